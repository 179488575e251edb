package ap_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/test/moduletest"
)

// publishedInvoice is the published first version of the invoice's schema. No member of it may
// be removed, renamed or given another type.
const publishedInvoice = `{
	"invoice_number": {"type": "string", "maxLength": 50}, "vendor_id": {"type": "string"}, "vendor_name": {"type": "string"},
	"invoice_date": {"type": "string", "format": "date"}, "due_date": {"type": "string", "format": "date"},
	"currency": {"type": "string", "pattern": "^[A-Z]{3}$"}, "total_amount": {"type": "number", "minimum": 0},
	"tax_amount": {"type": "number", "minimum": 0}, "description": {"type": "string", "maxLength": 500},
	"po_reference": {"type": "string"}, "external_reference": {"type": "string"}
}`

const publishedLine = `{
	"line_number": {"type": "integer", "minimum": 1}, "description": {"type": "string"}, "quantity": {"type": "number"},
	"unit_price": {"type": "number"}, "amount": {"type": "number"}, "account": {"type": "string"}, "tax_group": {"type": "string"},
	"po_line_reference": {"type": "string"}, "item_id": {"type": "string"},
	"dimensions": {"type": "object", "additionalProperties": {"type": "string"}}
}`

const publishedAttachment = `{
	"id": {"type": "string"}, "filename": {"type": "string"}, "content_type": {"type": "string"}, "size_bytes": {"type": "integer"}
}`

func TestInvoiceSchema_Compatibility(t *testing.T) {
	t.Parallel()
	newBooks(t)
	var invoice *eventtype.Registration
	for i := range catalog.EventTypes {
		if catalog.EventTypes[i].Type == "ap.invoice.submitted" {
			invoice = &catalog.EventTypes[i].Registration
		}
	}
	require.NotNil(t, invoice)
	require.EqualValues(t, 1, invoice.SchemaVersion)
	require.Equal(t, "accounts_payable", invoice.Module)
	require.Equal(t, []string{"department"}, invoice.RequiredDimensions)
	require.Equal(t, []string{"cost_center", "project"}, invoice.OptionalDimensions)
	require.Equal(t, []eventtype.RequiredRef{{EntityType: "vendor", Role: "subject", Cardinality: eventtype.One}}, invoice.RequiredEntityRefs)
	require.Equal(t, eventtype.Regulatory, invoice.RetentionClass)
	require.Equal(t, 7, invoice.MinRetentionYears)
	require.Empty(t, invoice.PIIFields)

	type schema struct {
		Required   []string                   `json:"required"`
		Properties map[string]json.RawMessage `json:"properties"`
		MinItems   int                        `json:"minItems"`
		Additional *bool                      `json:"additionalProperties"`
		Items      struct {
			Required   []string                   `json:"required"`
			Properties map[string]json.RawMessage `json:"properties"`
			Additional *bool                      `json:"additionalProperties"`
		} `json:"items"`
	}
	decode := func(raw []byte) (s schema) {
		require.NoError(t, json.Unmarshal(raw, &s))
		return s
	}
	keeps := func(published string, properties map[string]json.RawMessage) {
		var want map[string]json.RawMessage
		require.NoError(t, json.Unmarshal([]byte(published), &want))
		for name, s := range want {
			require.Contains(t, properties, name)
			require.JSONEq(t, string(s), string(moduletest.WithoutReasons(t, properties[name])), name)
		}
	}
	data := decode(invoice.DataSchema)
	lines, attachments := decode(data.Properties["lines"]), decode(data.Properties["attachments"])
	require.ElementsMatch(t, []string{"invoice_number", "vendor_id", "invoice_date", "due_date", "currency", "total_amount", "lines"}, data.Required)
	require.ElementsMatch(t, []string{"line_number", "amount"}, lines.Items.Required)
	require.Equal(t, 1, lines.MinItems)
	require.Nil(t, data.Additional)
	require.Nil(t, lines.Items.Additional)
	keeps(publishedInvoice, data.Properties)
	keeps(publishedLine, lines.Items.Properties)
	keeps(publishedAttachment, attachments.Items.Properties)
}
