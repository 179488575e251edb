package gl_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/pipeline"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/modules/gl"
	"github.com/erpbackbone/backbone/test/typestest"
)

// TestJournalSchema_Compatibility pins what integrations rely on in
// gl.journal.posted v1: nothing may be removed, renamed, re-typed or newly
// required.
func TestJournalSchema_Compatibility(t *testing.T) {
	t.Parallel()
	type schema struct {
		Type       string
		Required   []string
		Enum       []string
		MinItems   int
		MaxLength  int
		Properties map[string]*schema
		Items      *schema
	}
	text, err := os.ReadFile("schema/gl.journal.posted.v1.json")
	require.NoError(t, err)
	var s schema
	require.NoError(t, json.Unmarshal(text, &s))
	require.Equal(t, []string{"journal_number", "description", "lines"}, s.Required)
	for name, want := range map[string]string{
		"journal_number": "string", "journal_type": "string", "description": "string", "reversal_date": "string", "recurring_id": "string",
		"source_module": "string", "source_event_id": "string", "lines": "array", "total_debit": "number", "total_credit": "number",
	} {
		require.Equal(t, want, s.Properties[name].Type, name)
	}
	require.Equal(t, []string{"general", "allocation", "revaluation", "closing", "opening", "reversal", "intercompany", "subledger"}, s.Properties["journal_type"].Enum)
	require.Equal(t, 500, s.Properties["description"].MaxLength)
	lines := s.Properties["lines"]
	require.Equal(t, 2, lines.MinItems)
	require.Equal(t, []string{"line_number", "account", "debit_credit", "amount", "currency"}, lines.Items.Required)
	for name, want := range map[string]string{
		"line_number": "integer", "account": "string", "account_name": "string", "debit_credit": "string", "amount": "number",
		"currency": "string", "amount_in_reporting_currency": "number", "exchange_rate": "number", "description": "string", "dimensions": "object",
	} {
		require.Equal(t, want, lines.Items.Properties[name].Type, name)
	}
}

func TestRawConfiguration(t *testing.T) {
	t.Parallel()
	b := newUnconfiguredLedger(t)
	for _, c := range []struct{ eventType, code, data string }{
		{"gl.ledger.configured", "money.currency_unsupported", `{"functional_currency": "XXX"}`},
		{"gl.ledger.configured", "money.exponent", `{"functional_currency": "USD", "limits": {"cfo": 1e3}}`},
		{"gl.ledger.configured", "money.scale", `{"functional_currency": "USD", "limits": {"cfo": 1.001}}`},
		{"gl.calendar.extended", "gl.fiscal_year.overlap", `{"label": "2026", "start": "2026-01-01", "end": "2026-12-31", "periods": [{"period": "A", "start": "2026-01-01", "end": "2026-11-30"}]}`},
		{"gl.fiscal_year.defined", "gl.fiscal_year.overlap", `{"label": "2026", "start": "2026-01-02", "end": "2026-12-31", "periods": [{"period": "A", "start": "2026-01-01", "end": "2026-12-31"}]}`},
	} {
		require.Equal(t, c.code, fault.CodeOf(b.raw(c.eventType, "x", c.data, nil)), c.data)
	}
	require.NoError(t, b.raw("gl.ledger.configured", "x", `{"functional_currency": "USD"}`, nil))
}

// TestChecks_OtherData gives the checks of event types data that are none of their type: a raw
// append of a type whose schema was registered otherwise meets them.
func TestChecks_OtherData(t *testing.T) {
	t.Parallel()
	catalog, err := module.Build(typestest.Schemas{}, gl.New(), pipeline.Module{})
	require.NoError(t, err)
	for _, c := range []struct{ eventType, code, data string }{
		{"gl.ledger.configured", "gl.ledger.data_invalid", `[]`},
		{"gl.fiscal_year.defined", "gl.fiscal_year.data_invalid", `[]`},
		{"gl.calendar.extended", "gl.fiscal_year.data_invalid", `[]`},
		{"gl.allocation.defined", "gl.allocation.data_invalid", `[]`},
		{"gl.bank_statement.imported", "gl.bank_statement.data_invalid", `[]`},
		{"gl.journal.posted", "gl.journal.data_invalid", `[]`},
		{"gl.journal.posted", "gl.journal.data_invalid", `{"lines": 1}`},
		{"gl.journal.posted", "gl.journal.side_invalid", `{"journal_number": "OLD-1", "description": "x", "functional_currency": "USD", "lines": [
			{"line_number": 1, "account": "1000", "debit_credit": "both", "amount": 1, "currency": "USD"}, {"line_number": 2, "account": "6000", "debit_credit": "credit", "amount": 1, "currency": "USD"}]}`},
	} {
		var codes []string
		for _, check := range catalog.Checks(c.eventType, 1) {
			err := check(json.RawMessage(c.data), map[string]string{"department": "ENG"})
			problems.Check(t, err)
			codes = append(codes, fault.CodeOf(err))
		}
		require.Contains(t, codes, c.code, "%s %s", c.eventType, c.data)
	}
}
