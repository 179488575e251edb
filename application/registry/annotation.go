package registry

import (
	"bytes"
	"encoding/json"
)

// sameSchema reports whether two documents are the same JSON Schema but for
// x-not-pii, the reason why a member is no personal datum: it says something to
// those who read the schema and changes nothing that the schema lets through, so a
// reason may join a version that is stored without one. The stored document stays.
func sameSchema(a, b json.RawMessage) bool {
	var x, y any
	if !decodeExact(a, &x) || !decodeExact(b, &y) {
		return false
	}
	withoutReasons(x)
	withoutReasons(y)
	ca, errA := json.Marshal(x)
	cb, errB := json.Marshal(y)
	return errA == nil && errB == nil && bytes.Equal(ca, cb)
}

// decodeExact keeps numbers as they are written.
func decodeExact(document json.RawMessage, into *any) bool {
	d := json.NewDecoder(bytes.NewReader(document))
	d.UseNumber()
	return d.Decode(into) == nil
}

// What may stand where a schema has a value that is no schema.
var (
	holdSchemasByName = map[string]bool{"properties": true, "patternProperties": true, "definitions": true, "$defs": true, "dependencies": true}
	holdValues        = map[string]bool{"enum": true, "const": true, "default": true, "examples": true}
)

// withoutReasons takes x-not-pii out of a decoded schema and those inside, not out
// of the names and values that a schema speaks of.
func withoutReasons(schema any) {
	switch s := schema.(type) {
	case []any:
		for _, inner := range s {
			withoutReasons(inner)
		}
	case map[string]any:
		delete(s, "x-not-pii")
		for word, v := range s {
			byName, isObject := v.(map[string]any)
			switch {
			case holdValues[word]:
			case holdSchemasByName[word] && isObject:
				for _, inner := range byName {
					withoutReasons(inner)
				}
			default:
				withoutReasons(v)
			}
		}
	}
}
