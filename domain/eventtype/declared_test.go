package eventtype_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/eventtype"
)

func TestDeclares(t *testing.T) {
	t.Parallel()
	const schema = `{"type":"object","properties":{
		"order":{"$ref":"#/definitions/order"},
		"lines":{"type":"array","items":{"properties":{"account":{"type":"string"}}}},
		"labels":{"type":"object","additionalProperties":{"type":"string"}},
		"by":{"patternProperties":{"^x":{}}},
		"free":{"type":"object"},
		"lost":{"$ref":"#/definitions/none"}},
		"allOf":[{"if":{"properties":{"kind":{"const":"a"}}},"then":{"properties":{"extra":{"properties":{"note":{}}}}}}],
		"definitions":{"order":{"type":"object","additionalProperties":false,"properties":{"id":{"type":"string"},"again":{"$ref":"#/definitions/order"}}}}}`
	r := eventtype.Registration{DataSchema: json.RawMessage(schema)}
	for path, declared := range map[string]bool{
		"order": true, "order.id": true, "order.again.again.id": true, "order.number": false, "order.id.part": false,
		"lines.account": true, "lines.amount": false, "labels.any": true, "by.xy": true, "free": true, "free.any": false, "lost.any": true,
		"kind": true, "extra.note": true, "extra.other": false, "orders": false,
	} {
		require.Equal(t, declared, r.Declares(strings.Split(path, ".")), path)
	}
}

// An event claims a key if each field holds a string or a number, so a schema that may let something
// else pass is refused.
func TestCheckBusinessKeys(t *testing.T) {
	t.Parallel()
	const unknown, otherKind = "event_type.business_key_unknown_field", "event_type.business_key_field_type"
	number := func(schema string) string { return `{"type":"object","properties":{"number":` + schema + `}}` }
	for name, c := range map[string]struct{ schema, want string }{
		"string":           {number(`{"type":"string"}`), ""},
		"integer":          {number(`{"type":"integer"}`), ""},
		"number":           {number(`{"type":["number","null"]}`), ""},
		"listed":           {number(`{"enum":["a",1,null]}`), ""},
		"constant":         {number(`{"const":"a"}`), ""},
		"reference":        {`{"definitions":{"no":{"type":"string"}},"properties":{"number":{"$ref":"#/definitions/no"}}}`, ""},
		"one of two":       {number(`{"anyOf":[{"type":"string"},{"type":"null"}]}`), ""},
		"beside":           {`{"properties":{"number":{"minLength":1}},"allOf":[{"properties":{"number":{"type":"string"}}}]}`, ""},
		"in each case":     {`{"oneOf":[{"properties":{"number":{"type":"string"}}},{"properties":{"number":{"type":"integer"}}},{"type":"array"}]}`, ""},
		"pattern, named":   {`{"properties":{"number":{"type":"string"}},"patternProperties":{"^x-":{}}}`, ""},
		"boolean":          {number(`{"type":"boolean"}`), otherKind},
		"array":            {number(`{"type":"array","items":{"type":"string"}}`), otherKind},
		"object":           {number(`{"type":"object"}`), otherKind},
		"null":             {number(`{"type":"null"}`), otherKind},
		"string or object": {number(`{"type":["string","object"]}`), otherKind},
		"listed object":    {number(`{"enum":["a",{}]}`), otherKind},
		"any":              {number(`{}`), otherKind},
		"any, true":        {number(`true`), otherKind},
		"none":             {number(`false`), otherKind},
		"one of an object": {number(`{"anyOf":[{"type":"string"},{"type":"object"}]}`), otherKind},
		"in one case":      {`{"oneOf":[{"properties":{"number":{"type":"string"}}},{"type":"object"}]}`, otherKind},
		"by a pattern":     {`{"patternProperties":{"^num":{"type":"string"}}}`, otherKind},
		"another pattern":  {`{"properties":{"quote_number":{"type":"string"}},"patternProperties":{"^x-":{}}}`, otherKind},
		"by no name":       {`{"additionalProperties":{"type":"string"}}`, otherKind},
		"missing":          {`{"properties":{"quote_number":{"type":"string"}}}`, unknown},
		"circle":           {`{"allOf":[{"$ref":"#"},{"$ref":"#"}]}`, otherKind},
	} {
		r := eventtype.Registration{DataSchema: json.RawMessage(c.schema), BusinessKeys: []eventtype.BusinessKeyRule{{Name: "quote", Fields: []string{"number"}}}}
		var got string
		for _, v := range r.CheckBusinessKeys() {
			require.Equal(t, "/business_keys/0/fields/0", v.Field)
			got += v.Code
		}
		require.Equal(t, c.want, got, name)
	}
	r := eventtype.Registration{DataSchema: json.RawMessage(number(`{"type":"string"}`)), BusinessKeys: []eventtype.BusinessKeyRule{{Name: "quote", Fields: []string{"number"}, Document: "id"}}}
	require.Equal(t, "/business_keys/0/document", r.CheckBusinessKeys()[0].Field)
	r.DataSchema = json.RawMessage(`{"properties":{"number":{"type":"string"},"id":{"type":"object"}}}`)
	require.Empty(t, r.CheckBusinessKeys(), "a document is shown and claims nothing")
	for range 1000 {
		r.BusinessKeys[0].Fields = append(r.BusinessKeys[0].Fields, "missing")
	}
	require.Len(t, r.CheckBusinessKeys(), 100, "findings are bounded")
}
