package registry

import (
	"bytes"
	"encoding/json"
)

// equalSchemas reports whether two documents are the same JSON Schema but for
// x-not-pii, the reason why a member is no personal datum: it says something to
// those who read the schema and changes nothing that the schema lets through, so a
// reason may join a version that is stored without one. The stored document stays.
func equalSchemas(a, b json.RawMessage) bool {
	var x, y any
	if !decodeKeepingNumbers(a, &x) || !decodeKeepingNumbers(b, &y) {
		return false
	}
	removeNotPIIReasons(x)
	removeNotPIIReasons(y)
	ca, errA := json.Marshal(x)
	cb, errB := json.Marshal(y)
	return errA == nil && errB == nil && bytes.Equal(ca, cb)
}

// decodeKeepingNumbers keeps numbers as they are written.
func decodeKeepingNumbers(document json.RawMessage, into *any) bool {
	d := json.NewDecoder(bytes.NewReader(document))
	d.UseNumber()
	return d.Decode(into) == nil
}

// What may stand where a schema has a value that is no schema.
var (
	schemaMapKeywords = map[string]bool{"properties": true, "patternProperties": true, "definitions": true, "$defs": true, "dependencies": true}
	valueKeywords     = map[string]bool{"enum": true, "const": true, "default": true, "examples": true}
)

// removeNotPIIReasons takes x-not-pii out of a decoded schema and those inside, not out
// of the names and values that a schema speaks of.
func removeNotPIIReasons(schema any) {
	switch s := schema.(type) {
	case []any:
		for _, inner := range s {
			removeNotPIIReasons(inner)
		}
	case map[string]any:
		delete(s, "x-not-pii")
		for word, v := range s {
			byName, isObject := v.(map[string]any)
			switch {
			case valueKeywords[word]:
			case schemaMapKeywords[word] && isObject:
				for _, inner := range byName {
					removeNotPIIReasons(inner)
				}
			default:
				removeNotPIIReasons(v)
			}
		}
	}
}
