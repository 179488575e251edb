package schema_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/schema"
)

func TestParts(t *testing.T) {
	d, ok := schema.Parse([]byte(`{"properties": {"b": {}, "a/b": true}, "items": [{}, {}], "allOf": [{}],
		"dependencies": {"a": ["b"], "c": {}}, "definitions": {"x": {}}, "not": {}, "then": 5, "contains": false, "unknown": {}}`))
	require.True(t, ok)
	var pointers []string
	for _, p := range d.Root().Parts() {
		pointers = append(pointers, p.At)
	}
	require.Equal(t, []string{
		"/contains", "/not", "/properties/a~1b", "/properties/b", "/definitions/x", "/allOf/0", "/items/0", "/items/1", "/dependencies/c",
	}, pointers)
}

func TestResolve(t *testing.T) {
	d, ok := schema.Parse([]byte(`{"definitions": {"a b": {"$ref": "#/properties/x/anyOf/1"}, "circle": {"$ref": "#/definitions/circle"}},
		"properties": {"x": {"anyOf": [{}, {"type": "null"}]}}}`))
	require.True(t, ok)
	for ref, target := range map[any]string{
		"#": "", "#/definitions/a%20b": "/properties/x/anyOf/1", "#/properties/x/anyOf/2": "none", "#/definitions/circle": "none",
		"other.json": "none", "#name": "none", 5: "none",
	} {
		n, ok := d.Derive(map[string]any{"$ref": ref}).Resolve()
		require.Equal(t, target != "none", ok, ref)
		if ok {
			require.Equal(t, target, n.At)
		}
	}
}

func TestKeywords(t *testing.T) {
	const words = `"const": 1, "if": {}, "exclusiveMinimum": 2, "type": "integer"}`
	for draft, want := range map[string]int{"draft-04": 2, "draft-06": 4, "draft-07": 5} {
		d, ok := schema.Parse([]byte(`{"$schema": "http://json-schema.org/` + draft + `/schema#", ` + words))
		require.True(t, ok)
		require.Len(t, d.Root().Keywords(), want, draft)
	}
}
