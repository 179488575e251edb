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
