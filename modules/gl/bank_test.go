package gl_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/pipeline"
	"github.com/erpbackbone/backbone/domain/fault"
)

// statement is the payload of an import into account 1010, in USD. Lines are as "-100.50 E2E-1".
func statement(id, date, opening, closing string, lines ...string) string {
	parts := make([]string, 0, len(lines))
	for _, l := range lines {
		amount, endToEnd, _ := strings.Cut(l, " ")
		side := "credit"
		if strings.HasPrefix(amount, "-") {
			side = "debit"
		}
		parts = append(parts, fmt.Sprintf(`{"debit_credit": %q, "amount": %s, "booking_date": %q, "end_to_end_id": %q}`, side, strings.TrimPrefix(amount, "-"), date, endToEnd))
	}
	return fmt.Sprintf(`{"account": "1010", "statement_id": %q, "currency": "USD", "statement_date": %q, "opening_balance": %s, "closing_balance": %s, "lines": [%s]}`,
		id, date, opening, closing, strings.Join(parts, ","))
}

// spend is a journal that pays an amount from account 1010, in its second line.
func spend(amount, date string) string {
	return fmt.Sprintf(`{"description": "Rent", "posting_date": %q, "dimensions": {"department": "ENG"}, "lines": [
		{"account": "6000", "debit_credit": "debit", "amount": %s},
		{"account": "1010", "debit_credit": "credit", "amount": %s}]}`, date, amount, amount)
}

func matchLine(statementID string, line int, journalLines ...string) string {
	return fmt.Sprintf(`{"account": "1010", "statement_id": %q, "line_number": %d, "journal_lines": [%s]}`, statementID, line, strings.Join(journalLines, ","))
}

func journalLine(out pipeline.Outcome, line int) string {
	return fmt.Sprintf(`{"journal_id": %q, "line_number": %d}`, out.Events[0].Stream.ID, line)
}

func unmatchLine(statementID string, line int) string {
	return fmt.Sprintf(`{"account": "1010", "statement_id": %q, "line_number": %d, "reason": "Wrong journal"}`, statementID, line)
}

func TestImportBankStatement_Refusals(t *testing.T) {
	t.Parallel()
	b := newLedger(t)
	sound := statement("S-1", "2026-03-10", "100", "89.50", "-10.50 E2E-1")
	change := func(pairs ...string) string { return strings.NewReplacer(pairs...).Replace(sound) }
	many := slices.Repeat([]string{"1"}, 1001)
	for name, c := range map[string]struct{ code, role, payload string }{
		"not the treasurer":           {"intent.forbidden", "gl_accountant", sound},
		"no account":                  {"gl.account.not_found", "treasurer", change("1010", "1011")},
		"control account":             {"gl.account.control_account", "treasurer", change(`"1010"`, `"2000"`)},
		"currency":                    {"gl.account.currency_not_allowed", "treasurer", change("USD", "EUR")},
		"unknown currency":            {"money.currency_unsupported", "treasurer", change("USD", "XXX")},
		"unbalanced":                  {"gl.bank_statement.unbalanced", "treasurer", change("89.50", "89.51")},
		"negative amount":             {"money.negative", "treasurer", change(`"amount": 10.50`, `"amount": -10.50`)},
		"amount of 0":                 {"gl.bank_statement.amount_invalid", "treasurer", change(`"amount": 10.50`, `"amount": 0`)},
		"three decimals":              {"money.scale", "treasurer", change(`10.50`, `10.505`)},
		"booked after the statement":  {"gl.bank_statement.date_invalid", "treasurer", change(`"booking_date": "2026-03-10"`, `"booking_date": "2026-03-11"`)},
		"part beyond the parts":       {"gl.bank_statement.part_invalid", "treasurer", change(`"lines"`, `"part": 2, "lines"`)},
		"part without the one before": {"gl.bank_statement.part_missing", "treasurer", change(`"lines"`, `"part": 2, "parts": 2, "lines"`)},
		"too many lines":              {"gl.bank_statement.line_count", "treasurer", statement("S-1", "2026-03-10", "0", "1001", many...)},
		"account number in a text":    {"pii.in_text", "treasurer", change(`E2E-1`, `DE89370400440532013000`)},
		"unknown member":              {"intent.schema_invalid", "treasurer", change(`"end_to_end_id"`, `"debtor"`)},
		"id with a control character": {"intent.schema_invalid", "treasurer", change(`S-1`, `S\u00011`)},
	} {
		t.Run(name, func(t *testing.T) { b.refuse(t, c.code, c.role, "gl.import_bank_statement", c.payload) })
	}
	b.execute(t, "treasurer", "gl.import_bank_statement", sound)
	f := b.refuse(t, "gl.bank_statement.duplicate", "treasurer", "gl.import_bank_statement", statement("S-1", "2026-03-11", "0", "0"))
	require.NotNil(t, f.Holder)
	f = b.refuse(t, "gl.bank_statement.unbalanced", "treasurer", "gl.import_bank_statement", statement("S-2", "2026-03-10", "100", "5", "-10.50"))
	require.Equal(t, "89.50", f.Expected)
	require.Equal(t, "5.00", f.Actual)
}

func TestImportBankStatement_Parts(t *testing.T) {
	t.Parallel()
	b := newLedger(t)
	part := func(n int, opening, closing, amount string) string {
		return strings.Replace(statement("S-1", "2026-03-10", opening, closing, amount), `"lines"`, fmt.Sprintf(`"part": %d, "parts": 3, "lines"`, n), 1)
	}
	b.execute(t, "importer", "gl.import_bank_statement", part(1, "0", "10", "10"))
	b.refuse(t, "gl.bank_statement.part_missing", "treasurer", "gl.import_bank_statement", part(3, "15", "17", "2"))
	b.refuse(t, "gl.bank_statement.part_mismatch", "treasurer", "gl.import_bank_statement", part(2, "11", "16", "5"))
	b.execute(t, "treasurer", "gl.import_bank_statement", part(2, "10", "15", "5"))
	b.refuse(t, "gl.bank_statement.duplicate", "treasurer", "gl.import_bank_statement", part(2, "10", "15", "5"))
	b.execute(t, "treasurer", "gl.import_bank_statement", part(3, "15", "17", "2"))
}

// Raw appends pass the checks that make a statement true on its own.
func TestBankStatement_Raw(t *testing.T) {
	t.Parallel()
	b := newLedger(t)
	raw := `{"account": "1010", "statement_id": "S", "part": 1, "parts": 1, "currency": "USD", "statement_date": "2026-03-10", "opening_balance": 0, "closing_balance": 2, "lines": [
		{"line_number": %d, "debit_credit": "credit", "amount": %s, "booking_date": "2026-03-10"}]}`
	require.Equal(t, "gl.bank_statement.unbalanced", fault.CodeOf(b.raw("gl.bank_statement.imported", "gl.bank_statement", fmt.Sprintf(raw, 1, "3"), nil)))
	require.Equal(t, "gl.bank_statement.line_number_invalid", fault.CodeOf(b.raw("gl.bank_statement.imported", "gl.bank_statement", fmt.Sprintf(raw, 2, "2"), nil)))
	require.Equal(t, "money.exponent", fault.CodeOf(b.raw("gl.bank_statement.imported", "gl.bank_statement", fmt.Sprintf(raw, 1, "2e0"), nil)))
	require.NoError(t, b.raw("gl.bank_statement.imported", "gl.bank_statement", fmt.Sprintf(raw, 1, "2"), nil))
}

func TestMatchBankLine(t *testing.T) {
	t.Parallel()
	b := newLedger(t)
	b.execute(t, "treasurer", "gl.import_bank_statement", statement("S-1", "2026-03-10", "100", "60", "-30", "-10"))
	ten, twenty, other := b.execute(t, "gl_accountant", "gl.post_journal", spend("10", "2026-03-09")), b.execute(t, "gl_accountant", "gl.post_journal", spend("20", "2026-03-12")),
		b.execute(t, "gl_accountant", "gl.post_journal", twoLines("10", "10", "USD", "2026-03-10"))

	b.execute(t, "treasurer", "gl.import_bank_statement", strings.NewReplacer("USD", "EUR", "1010", "1000").Replace(statement("S-E", "2026-03-10", "0", "-10", "-10")))

	for name, c := range map[string]struct{ code, role, payload string }{
		"line in another currency": {"gl.bank_line.currency_mismatch", "treasurer", strings.Replace(matchLine("S-E", 1, journalLine(other, 2)), "1010", "1000", 1)},
		"not the treasurer":        {"intent.forbidden", "gl_accountant", matchLine("S-1", 2, journalLine(ten, 2))},
		"not the importer":         {"intent.forbidden", "importer", matchLine("S-1", 2, journalLine(ten, 2))},
		"no statement":             {"gl.bank_statement.not_found", "treasurer", matchLine("S-2", 1, journalLine(ten, 2))},
		"no such line":             {"gl.bank_line.not_found", "treasurer", matchLine("S-1", 3, journalLine(ten, 2))},
		"no journal":               {"gl.journal.not_found", "treasurer", matchLine("S-1", 2, `{"journal_id": "01JQ7B8C9D0E1F2G3H4J5K6M7N", "line_number": 2}`)},
		"no line of the journal":   {"gl.journal_line.not_found", "treasurer", matchLine("S-1", 2, journalLine(ten, 3))},
		"line of another account":  {"gl.bank_line.account_mismatch", "treasurer", matchLine("S-1", 2, journalLine(other, 2))},
		"another amount":           {"gl.bank_line.amount_mismatch", "treasurer", matchLine("S-1", 1, journalLine(ten, 2))},
		"line named twice":         {"intent.schema_invalid", "treasurer", matchLine("S-1", 2, journalLine(ten, 2), journalLine(ten, 2))},
		"no journal lines":         {"intent.schema_invalid", "treasurer", matchLine("S-1", 2)},
		"too many journal lines":   {"intent.schema_invalid", "treasurer", matchLine("S-1", 2, slices.Repeat([]string{journalLine(ten, 2)}, 41)...)},
		"nothing to take back":     {"gl.bank_line.not_matched", "treasurer", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if c.payload == "" {
				b.refuse(t, c.code, c.role, "gl.unmatch_bank_line", unmatchLine("S-1", 2))
				return
			}
			b.refuse(t, c.code, c.role, "gl.match_bank_line", c.payload)
		})
	}

	out := b.execute(t, "treasurer", "gl.match_bank_line", matchLine("S-1", 1, journalLine(ten, 2), journalLine(twenty, 2)))
	_, data := b.journal(t, out)
	require.Equal(t, "2026-03-12", data["matched_as_of"], "the last day of the lines")
	b.refuse(t, "gl.bank_line.already_matched", "treasurer", "gl.match_bank_line", matchLine("S-1", 1, journalLine(ten, 2)))
	b.refuse(t, "gl.journal_line.already_matched", "treasurer", "gl.match_bank_line", matchLine("S-1", 2, journalLine(ten, 2)))
	b.refuse(t, "intent.forbidden", "gl_accountant", "gl.unmatch_bank_line", unmatchLine("S-1", 1))
	b.execute(t, "treasurer", "gl.unmatch_bank_line", unmatchLine("S-1", 1))
	b.refuse(t, "gl.bank_line.not_matched", "treasurer", "gl.unmatch_bank_line", unmatchLine("S-1", 1))
	b.execute(t, "treasurer", "gl.match_bank_line", matchLine("S-1", 2, journalLine(ten, 2)))
	b.refuse(t, "gl.journal_line.already_matched", "treasurer", "gl.match_bank_line", matchLine("S-1", 1, journalLine(ten, 2), journalLine(twenty, 2)))
}

// Of 16 clients who match lines of different statements with one journal line, and different
// journal lines with one statement line, one succeeds each.
func TestMatchBankLine_Race(t *testing.T) {
	t.Parallel()
	b := newLedger(t)
	var own []string
	for i := range 16 {
		b.execute(t, "treasurer", "gl.import_bank_statement", statement(fmt.Sprintf("S-%d", i), "2026-03-10", "0", "-10", "-10"))
		own = append(own, journalLine(b.execute(t, "gl_accountant", "gl.post_journal", spend("10", "2026-03-09")), 2))
	}
	b.execute(t, "treasurer", "gl.import_bank_statement", statement("wanted", "2026-03-10", "0", "-10", "-10"))
	wanted := journalLine(b.execute(t, "gl_accountant", "gl.post_journal", spend("10", "2026-03-09")), 2)
	race := func(payload func(i int) string) map[string]int {
		var wait sync.WaitGroup
		var mu sync.Mutex
		codes := map[string]int{}
		for i := range 16 {
			wait.Go(func() {
				_, err := b.submit("treasurer", "gl.match_bank_line", payload(i))
				mu.Lock()
				defer mu.Unlock()
				codes[fault.CodeOf(err)]++
			})
		}
		wait.Wait()
		return codes
	}
	codes := race(func(i int) string { return matchLine(fmt.Sprintf("S-%d", i), 1, wanted) })
	require.Equal(t, map[string]int{"": 1, "gl.journal_line.already_matched": 15}, codes)
	codes = race(func(i int) string { return matchLine("wanted", 1, own[i]) })
	require.Equal(t, 1, codes[""], "%v", codes)
	require.Equal(t, 15, codes["gl.bank_line.already_matched"]+codes["gl.journal_line.already_matched"], "%v", codes)
}
