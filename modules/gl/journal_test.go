package gl_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
)

func TestPostJournal(t *testing.T) {
	t.Parallel()
	b := newLedger(t)
	out := b.execute(t, "gl_accountant", "gl.post_journal", examplePostJournal)
	e, data := b.journal(t, out)
	require.Equal(t, "GJ-2026-000001", data["journal_number"])
	require.Equal(t, "general", data["journal_type"])
	require.Equal(t, "USD", data["functional_currency"])
	require.Equal(t, "2026-03", data["period"])
	require.Equal(t, "2026", data["fiscal_year"])
	require.Equal(t, json.Number("1500.00"), data["total_debit"])
	require.Equal(t, e.Stream.ID, data["journal_id"])
	require.Equal(t, "gl.journal", e.Stream.Type)
	require.Equal(t, event.MustDate("2026-03-15"), e.EffectiveDate)
	require.Equal(t, []string{"period:2026-03", "fy:2026", "journal:GJ-2026-000001"}, e.Tags)
	body, err := e.Body()
	require.NoError(t, err)
	require.Equal(t, map[string]string{"department": "ENG"}, body.Dimensions)
	lines := data["lines"].([]any)
	require.Len(t, lines, 3)
	require.Equal(t, map[string]any{"department": "FIN"}, lines[1].(map[string]any)["dimensions"])
	require.Equal(t, "Services", lines[0].(map[string]any)["account_name"])
	require.Equal(t, json.Number("1200.00"), lines[0].(map[string]any)["amount"])
	require.Contains(t, string(e.RulesEvaluated), "gl.journal.balance")

	_, data = b.journal(t, b.execute(t, "gl_accountant", "gl.post_journal", examplePostJournal))
	require.Equal(t, "GJ-2026-000002", data["journal_number"])
}

func TestPostJournal_ForeignCurrency(t *testing.T) {
	t.Parallel()
	b := newLedger(t)
	_, data := b.journal(t, b.execute(t, "gl_accountant", "gl.post_journal", twoLines("100.00", "100.00", "EUR", "2026-03-15")))
	line := data["lines"].([]any)[0].(map[string]any)
	require.Equal(t, json.Number("108.34"), line["amount_in_reporting_currency"])
	require.Equal(t, json.Number("1.0834"), line["exchange_rate"])
	require.Equal(t, "2026-03-01", line["rate_date"])
	require.Equal(t, json.Number("108.34"), data["total_credit"])
}

func TestConversionDifferenceLine(t *testing.T) {
	t.Parallel()
	b := newLedger(t)
	// Three lines of 0.33 are 0.36 each, one of 0.99 is 1.07: 1.08 against 1.07.
	payload := `{"description": "Thirds", "posting_date": "2026-03-15", "currency": "EUR", "dimensions": {"department": "ENG"}, "lines": [
		{"account": "6000", "debit_credit": "debit", "amount": 0.33}, {"account": "6000", "debit_credit": "debit", "amount": 0.33},
		{"account": "6000", "debit_credit": "debit", "amount": 0.33}, {"account": "1000", "debit_credit": "credit", "amount": 0.99}]}`
	_, data := b.journal(t, b.execute(t, "gl_accountant", "gl.post_journal", payload))
	lines := data["lines"].([]any)
	require.Len(t, lines, 5)
	rounding := lines[4].(map[string]any)
	require.Equal(t, "6990", rounding["account"])
	require.Equal(t, "credit", rounding["debit_credit"])
	require.Equal(t, json.Number("0"), rounding["amount"])
	require.Equal(t, json.Number("0.01"), rounding["amount_in_reporting_currency"])
	require.Equal(t, "EUR", rounding["currency"])
	require.Equal(t, json.Number("1.08"), data["total_debit"])
	require.Equal(t, json.Number("1.08"), data["total_credit"])
}

func TestExchangeDifferenceLines(t *testing.T) {
	t.Parallel()
	b := newLedger(t)
	lines := func(first, second string) string {
		return fmt.Sprintf(`{"description": "Exchange", "posting_date": "2026-03-15", "dimensions": {"department": "ENG"}, "lines": [
			{"account": "6000", "debit_credit": "debit", "amount": 0, "currency": "EUR", "functional_amount": %s},
			{"account": "1000", "debit_credit": "credit", "amount": 0, "currency": "EUR", "functional_amount": %s}]}`, first, second)
	}
	_, data := b.journal(t, b.execute(t, "gl_accountant", "gl.post_journal", lines("5.20", "5.20")))
	require.Equal(t, json.Number("5.20"), data["total_debit"])
	f := b.refuse(t, "gl.journal.unbalanced_functional", "gl_accountant", "gl.post_journal", lines("5.20", "5.19"))
	require.Equal(t, "5.20", f.Attributes["debit"])
	require.Equal(t, "5.19", f.Attributes["credit"])
	b.refuse(t, "gl.journal.functional_amount_invalid", "gl_accountant", "gl.post_journal",
		strings.ReplaceAll(lines("5.20", "5.20"), `"amount": 0,`, `"amount": 1,`))
}

// TestJournalRefusals provokes every refusal that lines can meet.
func TestJournalRefusals(t *testing.T) {
	t.Parallel()
	b := newLedger(t)
	b.execute(t, "gl_accountant", "gl.define_account", `{"code": "6100", "name": "Rent", "type": "expense"}`)
	b.execute(t, "gl_accountant", "gl.block_account", `{"code": "6100", "reason": "Replaced"}`)
	line := func(members string) string {
		return fmt.Sprintf(`{"description": "x", "posting_date": "2026-03-15", "dimensions": {"department": "ENG"}, "lines": [
			{"account": "1000", "debit_credit": "credit", "amount": 5}, {"debit_credit": "debit", %s}]}`, members)
	}
	for _, c := range []struct{ name, code, payload, field string }{
		{"unknown account", "gl.account.not_found", line(`"account": "9999", "amount": 5`), "/lines/1/account"},
		{"summing account", "gl.account.not_postable", line(`"account": "1", "amount": 5`), "/lines/1/account"},
		{"account no longer active", "gl.account.inactive", line(`"account": "1900", "amount": 5`), "/lines/1/account"},
		{"blocked account", "gl.account.blocked", line(`"account": "6100", "amount": 5`), "/lines/1/account"},
		{"currency of the account", "gl.account.currency_not_allowed", line(`"account": "1010", "amount": 5, "currency": "EUR"`), "/lines/1/account"},
		{"control account", "gl.account.control_account", line(`"account": "2000", "amount": 5`), "/lines/1/account"},
		{"dimension missing", "gl.account.dimension_missing", line(`"account": "5100", "amount": 5`), "/lines/1/dimensions/cost_center"},
		{"value unknown", "gl.account.dimension_unknown", line(`"account": "6000", "amount": 5, "dimensions": {"project": "X"}`), "/lines/1/dimensions/project"},
		{"value no longer active", "gl.account.dimension_unknown", line(`"account": "6000", "amount": 5, "dimensions": {"department": "OLD"}`), "/lines/1/dimensions/department"},
		{"one line", "gl.journal.line_count", `{"description": "x", "lines": [{"account": "1000", "debit_credit": "credit", "amount": 5}]}`, "/lines"},
		{"unbalanced", "gl.journal.unbalanced", line(`"account": "6000", "amount": 4.99`), "/lines"},
		{"unbalanced in one of two currencies", "gl.journal.unbalanced", line(`"account": "6000", "amount": 5, "currency": "EUR"`), "/lines"},
		{"negative", "money.negative", line(`"account": "6000", "amount": -5`), "/lines/1/amount"},
		{"scale", "money.scale", line(`"account": "6000", "amount": 5.001`), "/lines/1/amount"},
		{"exponent", "money.exponent", line(`"account": "6000", "amount": 5e0`), ""},
		{"negative zero", "money.negative_zero", line(`"account": "6000", "amount": -0`), ""},
		{"16 digits", "money.too_large", line(`"account": "6000", "amount": 12345678901234.56`), ""},
		{"gold", "money.currency_unsupported", line(`"account": "6000", "amount": 5, "currency": "XAU"`), "/lines/1/currency"},
		{"retired currency", "money.currency_unsupported", line(`"account": "6000", "amount": 5, "currency": "HRK"`), "/lines/1/currency"},
		{"no rate", "gl.rate.missing", line(`"account": "6000", "amount": 5, "currency": "GBP"`), "/lines/1/currency"},
		{"zero", "gl.journal.zero", strings.Replace(line(`"account": "6000", "amount": 0`), `"amount": 5`, `"amount": 0.00`, 1), "/lines"},
		{"blank description", "text.blank", strings.Replace(line(`"account": "6000", "amount": 5`), `"description": "x"`, `"description": " \u00a0"`, 1), "/description"},
		{"bidirectional control", "text.invisible_character", strings.Replace(line(`"account": "6000", "amount": 5`), `"description": "x"`, `"description": "Rent\u202e1"`, 1), "/description"},
		{"account number in a line", "pii.in_text", line(`"account": "6000", "amount": 5, "description": "to DE89 3704 0044 0532 0130 00"`), "/lines/1/description"},
		{"unknown member", "intent.schema_invalid", line(`"account": "6000", "amount": 5, "colour": "red"`), "/payload/lines/1"},
		{"reversal before posting", "gl.journal.reversal_date_invalid", strings.Replace(twoLines("1", "1", "USD", "2026-03-15"), "{", `{"reversal_date": "2026-03-15", `, 1), "/reversal_date"},
		{"undefined period", "gl.period.undefined", twoLines("1", "1", "USD", "2027-01-01"), ""},
		{"period not open", "gl.period.not_open", twoLines("1", "1", "USD", "2026-04-01"), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := b.refuse(t, c.code, "gl_accountant", "gl.post_journal", c.payload)
			if c.field != "" {
				require.True(t, strings.HasPrefix(f.Field, "/payload"+strings.TrimPrefix(c.field, "/payload")), f.Field)
			}
		})
	}
}

func TestPostJournal_LineLimit(t *testing.T) {
	t.Parallel()
	b := newLedger(t)
	lines := strings.Repeat(`{"account": "1000", "debit_credit": "credit", "amount": 1}, {"account": "1400", "debit_credit": "debit", "amount": 1},`, 1000)
	whole := func(more string) string {
		return `{"description": "x", "posting_date": "2026-03-15", "dimensions": {"department": "ENG"}, "lines": [` + lines[:len(lines)-1] + more + `]}`
	}
	b.execute(t, "gl_accountant", "gl.post_journal", whole(""))
	f := b.refuse(t, "gl.journal.line_count", "gl_accountant", "gl.post_journal", whole(`, {"account": "1000", "debit_credit": "credit", "amount": 0}`))
	require.Equal(t, 2001, f.Attributes["got"])
}

func TestDepartmentOfTheEnvelope(t *testing.T) {
	t.Parallel()
	b := newLedger(t)
	payload := func(first, second string) string {
		return fmt.Sprintf(`{"description": "x", "posting_date": "2026-03-15", "lines": [
			{"account": "6000", "debit_credit": "debit", "amount": 5, "dimensions": {"department": %q}},
			{"account": "1000", "debit_credit": "credit", "amount": 5, "dimensions": {"department": %q}}]}`, first, second)
	}
	department := func(payload string) string {
		e, _ := b.journal(t, b.execute(t, "gl_accountant", "gl.post_journal", payload))
		body, err := e.Body()
		require.NoError(t, err)
		return body.Dimensions["department"]
	}
	require.Equal(t, "FIN", department(payload("FIN", "FIN")), "all lines agree")
	require.Equal(t, "OPS", department(payload("FIN", "ENG")), "the ledger's default")
}

func TestPostingDateMismatch(t *testing.T) {
	t.Parallel()
	b := newLedger(t)
	date := event.MustDate("2026-03-16")
	_, err := b.submitOn("gl_accountant", "gl.post_journal", twoLines("1", "1", "USD", "2026-03-15"), &date)
	require.Equal(t, "gl.journal.posting_date_mismatch", fault.CodeOf(err))
	date = event.MustDate("2026-03-15")
	_, err = b.submitOn("gl_accountant", "gl.post_journal", twoLines("1", "1", "USD", "2026-03-15"), &date)
	require.NoError(t, err)
}

// TestRawJournals checks that raw appends of journals pass the same checks as intents.
func TestRawJournals(t *testing.T) {
	t.Parallel()
	b := newLedger(t)
	department := map[string]string{"department": "ENG"}
	journal := func(header, first, second string) string {
		return fmt.Sprintf(`{"journal_number": "M-%s", "description": "x", %s "lines": [
			{"line_number": 1, "account": "6000", "debit_credit": "debit", %s},
			{"line_number": 2, "account": "1000", "debit_credit": "credit", %s}]}`, ids{}.NewID(now), header, first, second)
	}
	usd := func(n string) string { return `"amount": ` + n + `, "currency": "USD"` }
	require.NoError(t, b.raw("gl.journal.posted", "gl.journal", journal("", usd("5.00"), usd("5")), department))
	for _, c := range []struct{ name, code, data string }{
		{"one cent off", "gl.journal.unbalanced", journal("", usd("5.00"), usd("5.01"))},
		{"scale", "money.scale", journal("", usd("5.001"), usd("5.001"))},
		{"totals", "gl.journal.total_mismatch", journal(`"total_debit": 6,`, usd("5"), usd("5"))},
		{"functional currency unnamed", "gl.journal.functional_currency_invalid", journal("", usd("5"), `"amount": 5, "currency": "EUR"`)},
		{"functional amount missing", "gl.journal.functional_amount_mismatch", journal(`"functional_currency": "USD",`, `"amount": 5, "currency": "EUR"`, `"amount": 5, "currency": "EUR"`)},
		{"functional amount differs", "gl.journal.functional_amount_mismatch", journal(`"functional_currency": "USD",`, usd("5")+`, "amount_in_reporting_currency": 6`, usd("5"))},
		{"functional unbalanced", "gl.journal.unbalanced_functional", journal(`"functional_currency": "USD",`, `"amount": 5, "currency": "EUR", "amount_in_reporting_currency": 6`, `"amount": 5, "currency": "EUR", "amount_in_reporting_currency": 6.01`)},
		{"rate of zero decimals", "money.not_positive", journal(`"functional_currency": "USD",`, `"amount": 5, "currency": "EUR", "amount_in_reporting_currency": 6, "exchange_rate": -1`, `"amount": 5, "currency": "EUR", "amount_in_reporting_currency": 6`)},
		{"numbers twice", "gl.journal.line_number_invalid", strings.Replace(journal("", usd("5"), usd("5")), `"line_number": 2`, `"line_number": 1`, 1)},
		{"no account", "gl.journal.account_invalid", strings.Replace(journal("", usd("5"), usd("5")), `"account": "1000"`, `"account": ""`, 1)},
		{"number out of range", "gl.journal.line_number_invalid", strings.Replace(journal("", usd("5"), usd("5")), `"line_number": 2`, `"line_number": 2000000`, 1)},
		{"unknown currency", "money.currency_unsupported", strings.ReplaceAll(journal("", usd("5"), usd("5")), "USD", "QQQ")},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := b.raw("gl.journal.posted", "gl.journal", c.data, department)
			require.Equal(t, c.code, fault.CodeOf(err), "%v", err)
		})
	}
	require.Equal(t, "append.dimension_missing", fault.CodeOf(b.raw("gl.journal.posted", "gl.journal", journal("", usd("5"), usd("5")), nil)))

	// A journal with the next number of a series would end it.
	for number, code := range map[string]string{
		"GJ-2026-000001": "gl.journal.number_reserved", "SL-FY 26-1234567": "gl.journal.number_reserved", "CL-2025-000001": "gl.journal.number_reserved",
		"GJ-2026-17": "", "JE-2026-000001": "", "OLD-GJ-2026-000001": "",
	} {
		numbered := regexp.MustCompile(`"M-[^"]*"`).ReplaceAllString(journal("", usd("5"), usd("5")), `"`+number+`"`)
		err := b.raw("gl.journal.posted", "gl.journal", numbered, department)
		require.Equal(t, code, fault.CodeOf(err), number)
		problems.Check(t, err)
	}
	b.execute(t, "gl_accountant", "gl.post_journal", twoLines("5", "5", "USD", "2026-03-15"))
}

func TestJournalNumber_Duplicate(t *testing.T) {
	t.Parallel()
	b := newLedger(t)
	data := `{"journal_number": "M-1", "description": "x", "lines": [
		{"line_number": 1, "account": "6000", "debit_credit": "debit", "amount": 1, "currency": "USD"},
		{"line_number": 2, "account": "1000", "debit_credit": "credit", "amount": 1, "currency": "USD"}]}`
	require.NoError(t, b.raw("gl.journal.posted", "gl.journal", data, map[string]string{"department": "ENG"}))
	err := b.raw("gl.journal.posted", "gl.journal", data, map[string]string{"department": "ENG"})
	require.Equal(t, fault.Conflict, fault.KindOf(err))
}
