package registry

import (
	"encoding/json"
	"reflect"

	"github.com/erpbackbone/backbone/domain/jsondoc"
	"github.com/erpbackbone/backbone/domain/schema"
)

// equalSchemas reports whether two JSON Schemas are equal apart from x-not-pii, the reason
// why a member is not personal data. A reason documents the schema and does not change what
// it accepts, so a module may add one to a version that is stored without it. The stored
// document is not changed.
func equalSchemas(a, b json.RawMessage) bool {
	x, parsedX := schema.Parse(a)
	y, parsedY := schema.Parse(b)
	if !parsedX || !parsedY {
		return false
	}
	removeNotPIIReasons(x.Root())
	removeNotPIIReasons(y.Root())
	return reflect.DeepEqual(x.Root().Value, y.Root().Value)
}

// removeNotPIIReasons removes x-not-pii from a schema and the schemas inside it, but not from
// property names and plain values.
func removeNotPIIReasons(n schema.Node) {
	keywords, _ := n.Value.(map[string]any)
	delete(keywords, "x-not-pii")
	for _, p := range n.Parts() {
		removeNotPIIReasons(p.Node)
	}
}

// equalJSON compares JSON documents regardless of the order of members. Numbers are equal if
// they are written alike.
func equalJSON(a, b json.RawMessage) bool {
	x, errX := jsondoc.Decode(a)
	y, errY := jsondoc.Decode(b)
	return errX == nil && errY == nil && reflect.DeepEqual(x, y)
}
