package registry

import (
	"bytes"
	"encoding/json"
	"reflect"
)

// equalSchemas reports whether two JSON Schemas are equal apart from x-not-pii, the reason
// why a member is not personal data. A reason documents the schema and does not change what
// it accepts, so a module may add one to a version that is stored without it. The stored
// document is not changed.
func equalSchemas(a, b json.RawMessage) bool {
	var x, y any
	if !decodeKeepingNumbers(a, &x) || !decodeKeepingNumbers(b, &y) {
		return false
	}
	removeNotPIIReasons(x)
	removeNotPIIReasons(y)
	return reflect.DeepEqual(x, y)
}

// decodeKeepingNumbers decodes a document without rounding its numbers.
func decodeKeepingNumbers(document json.RawMessage, into *any) bool {
	d := json.NewDecoder(bytes.NewReader(document))
	d.UseNumber()
	return d.Decode(into) == nil
}

// Keywords whose value is not itself a schema: a map from names to schemas, or plain values.
var (
	schemaMapKeywords = map[string]bool{"properties": true, "patternProperties": true, "definitions": true, "$defs": true, "dependencies": true}
	valueKeywords     = map[string]bool{"enum": true, "const": true, "default": true, "examples": true}
)

// removeNotPIIReasons removes x-not-pii from a decoded schema and its subschemas, but not from
// property names and plain values.
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
