package gl_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/pipeline"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/modules/gl/domain"
	"github.com/erpbackbone/backbone/ports"
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

func further(statementID string, line int) string {
	return fmt.Sprintf(`{"statement_id": %q, "line_number": %d}`, statementID, line)
}

// withLines adds further statement lines to a match.
func withLines(match string, lines ...string) string {
	return strings.Replace(match, `"journal_lines"`, fmt.Sprintf(`"further_lines": [%s], "journal_lines"`, strings.Join(lines, ",")), 1)
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
	b.execute(t, "treasurer", "gl.import_bank_statement", strings.Replace(statement("S-U", "2026-03-10", "0", "-10", "-10"), "1010", "1000", 1))

	for name, c := range map[string]struct{ code, role, payload string }{
		"line in another currency":          {"gl.bank_line.currency_mismatch", "treasurer", strings.Replace(matchLine("S-E", 1, journalLine(other, 2)), "1010", "1000", 1)},
		"not the treasurer":                 {"intent.forbidden", "gl_accountant", matchLine("S-1", 2, journalLine(ten, 2))},
		"not the importer":                  {"intent.forbidden", "importer", matchLine("S-1", 2, journalLine(ten, 2))},
		"no statement":                      {"gl.bank_statement.not_found", "treasurer", matchLine("S-2", 1, journalLine(ten, 2))},
		"no such line":                      {"gl.bank_line.not_found", "treasurer", matchLine("S-1", 3, journalLine(ten, 2))},
		"no journal":                        {"gl.journal.not_found", "treasurer", matchLine("S-1", 2, `{"journal_id": "01JQ7B8C9D0E1F2G3H4J5K6M7N", "line_number": 2}`)},
		"no line of the journal":            {"gl.journal_line.not_found", "treasurer", matchLine("S-1", 2, journalLine(ten, 3))},
		"line of another account":           {"gl.bank_line.account_mismatch", "treasurer", matchLine("S-1", 2, journalLine(other, 2))},
		"another amount":                    {"gl.bank_line.amount_mismatch", "treasurer", matchLine("S-1", 1, journalLine(ten, 2))},
		"line named twice":                  {"intent.schema_invalid", "treasurer", matchLine("S-1", 2, journalLine(ten, 2), journalLine(ten, 2))},
		"no journal lines":                  {"gl.bank_line.amount_mismatch", "treasurer", matchLine("S-1", 2)},
		"too many journal lines":            {"intent.schema_invalid", "treasurer", matchLine("S-1", 2, slices.Repeat([]string{journalLine(ten, 2)}, 33)...)},
		"too many statement lines":          {"intent.schema_invalid", "treasurer", withLines(matchLine("S-1", 2, journalLine(ten, 2)), slices.Repeat([]string{further("S-1", 1)}, 32)...)},
		"statement line named twice":        {"intent.schema_invalid", "treasurer", withLines(matchLine("S-1", 1, journalLine(ten, 2)), further("S-1", 1))},
		"statement lines of two currencies": {"gl.bank_line.currency_mismatch", "treasurer", strings.Replace(withLines(matchLine("S-E", 1, journalLine(other, 2)), further("S-U", 1)), "1010", "1000", 1)},
		"no further statement":              {"gl.bank_statement.not_found", "treasurer", withLines(matchLine("S-1", 1, journalLine(ten, 2)), further("S-2", 1))},
		"no further line":                   {"gl.bank_line.not_found", "treasurer", withLines(matchLine("S-1", 1, journalLine(ten, 2)), further("S-1", 3))},
		"another amount of several lines":   {"gl.bank_line.amount_mismatch", "treasurer", withLines(matchLine("S-1", 1, journalLine(ten, 2)), further("S-1", 2))},
		"nothing to take back":              {"gl.bank_line.not_matched", "treasurer", ""},
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

// race submits an intent as 16 treasurers at once and counts the codes of their answers.
func (b *ledgerFixture) race(intentType string, payload func(i int) string) map[string]int {
	var wait sync.WaitGroup
	var mu sync.Mutex
	codes := map[string]int{}
	for i := range 16 {
		wait.Go(func() {
			_, err := b.submit("treasurer", intentType, payload(i))
			mu.Lock()
			defer mu.Unlock()
			codes[fault.CodeOf(err)]++
		})
	}
	wait.Wait()
	return codes
}

// bankMatches folds the log into the lines of either side that are matched: each with the event
// of the match's first line. It refuses a line that two matches have.
func (b *ledgerFixture) bankMatches(t *testing.T) map[string]event.ID {
	t.Helper()
	events, err := b.store.Events.Events(t.Context(), ports.EventQuery{Partition: b.entity.Partition, Types: []string{"gl.bank_line.matched", "gl.bank_line.unmatched"}, Limit: 1000})
	require.NoError(t, err)
	out := map[string]event.ID{}
	var first event.ID
	for _, e := range events {
		data, err := e.Data()
		require.NoError(t, err)
		var m domain.BankMatch
		require.NoError(t, json.Unmarshal(data, &m))
		lines := []string{m.Stream().ID}
		if m.IsFirst() {
			first = e.ID
			for _, l := range m.JournalLines {
				lines = append(lines, l.Tag())
			}
		}
		for _, l := range lines {
			if _, taken := out[l]; e.Type == "gl.bank_line.matched" {
				require.False(t, taken, "%s is in two matches", l)
				out[l] = first
			} else {
				require.True(t, taken, "%s is in no match", l)
				delete(out, l)
			}
		}
	}
	return out
}

// Several statement lines are matched with one journal line, or with none if they cancel each
// other out. Unmatching any of them ends the whole match.
func TestMatchBankLine_Groups(t *testing.T) {
	t.Parallel()
	b := newLedger(t)
	b.execute(t, "treasurer", "gl.import_bank_statement", statement("S-1", "2026-03-10", "100", "60", "-30", "-10"))
	b.execute(t, "treasurer", "gl.import_bank_statement", statement("S-2", "2026-03-12", "60", "70", "-5", "5", "10"))
	forty := b.execute(t, "gl_accountant", "gl.post_journal", spend("40", "2026-03-08"))
	match := withLines(matchLine("S-1", 1, journalLine(forty, 2)), further("S-1", 2))
	for _, unmatched := range []int{1, 2} {
		out := b.execute(t, "treasurer", "gl.match_bank_line", match)
		require.Len(t, out.Events, 2, "one for each statement line")
		_, data := b.journal(t, out)
		require.Equal(t, "2026-03-10", data["matched_as_of"])
		require.Len(t, data["statement_lines"], 2)
		require.Len(t, b.bankMatches(t), 3)
		b.refuse(t, "gl.bank_line.already_matched", "treasurer", "gl.match_bank_line", withLines(matchLine("S-2", 3), further("S-1", 2)))
		b.execute(t, "treasurer", "gl.unmatch_bank_line", unmatchLine("S-1", unmatched))
		require.Empty(t, b.bankMatches(t))
		b.refuse(t, "gl.bank_line.not_matched", "treasurer", "gl.unmatch_bank_line", unmatchLine("S-1", 3-unmatched))
	}
	out := b.execute(t, "treasurer", "gl.match_bank_line", withLines(matchLine("S-1", 2), further("S-2", 3)))
	_, data := b.journal(t, out)
	require.Empty(t, data["journal_lines"])
	require.Equal(t, "2026-03-12", data["matched_as_of"], "the last day of the lines")
	b.execute(t, "treasurer", "gl.match_bank_line", withLines(matchLine("S-2", 1), further("S-2", 2)))
	b.execute(t, "treasurer", "gl.unmatch_bank_line", unmatchLine("S-2", 3))
	b.execute(t, "treasurer", "gl.match_bank_line", match)
	require.Len(t, b.bankMatches(t), 5)
}

// A match has up to 32 lines of either side.
func TestMatchBankLine_Bounds(t *testing.T) {
	t.Parallel()
	b := newLedger(t)
	b.execute(t, "treasurer", "gl.import_bank_statement", statement("S-1", "2026-03-10", "0", "-32", slices.Repeat([]string{"-1"}, 32)...))
	lines := slices.Repeat([]string{`{"account": "1010", "debit_credit": "credit", "amount": 1}`}, 32)
	posted := b.execute(t, "gl_accountant", "gl.post_journal", fmt.Sprintf(`{"description": "Rent", "posting_date": "2026-03-10", "dimensions": {"department": "ENG"}, "lines": [
		{"account": "6000", "debit_credit": "debit", "amount": 32}, %s]}`, strings.Join(lines, ",")))
	var statementLines, journalLines []string
	for i := range 32 {
		journalLines = append(journalLines, journalLine(posted, i+2))
		if i > 0 {
			statementLines = append(statementLines, further("S-1", i+1))
		}
	}
	require.Len(t, b.execute(t, "treasurer", "gl.match_bank_line", withLines(matchLine("S-1", 1, journalLines...), statementLines...)).Events, 32)
	require.Len(t, b.execute(t, "treasurer", "gl.unmatch_bank_line", unmatchLine("S-1", 17)).Events, 32)
}

// Of matches that race for overlapping groups, no two have a line of either side in common. Of 16
// clients who unmatch one group by its different lines, one succeeds.
func TestMatchBankLine_GroupRace(t *testing.T) {
	t.Parallel()
	b := newLedger(t)
	b.execute(t, "treasurer", "gl.import_bank_statement", statement("S", "2026-03-10", "0", "-16", slices.Repeat([]string{"-1"}, 16)...))
	posted := b.execute(t, "gl_accountant", "gl.post_journal", fmt.Sprintf(`{"description": "Rent", "posting_date": "2026-03-10", "dimensions": {"department": "ENG"}, "lines": [
		{"account": "6000", "debit_credit": "debit", "amount": 16}, %s]}`, strings.Join(slices.Repeat([]string{`{"account": "1010", "debit_credit": "credit", "amount": 1}`}, 16), ",")))
	codes := b.race("gl.match_bank_line", func(i int) string { // client i wants the lines i and i+1 of both sides
		next := (i + 1) % 16
		return withLines(matchLine("S", i+1, journalLine(posted, i+2), journalLine(posted, next+2)), further("S", next+1))
	})
	require.Positive(t, codes[""], "%v", codes)
	matched := b.bankMatches(t)
	require.Len(t, matched, 4*codes[""])
	for i := range 16 {
		if _, found := matched[fmt.Sprintf("1010:1:%d:S", i+1)]; found {
			_, _ = b.submit("treasurer", "gl.unmatch_bank_line", unmatchLine("S", i+1))
		}
	}
	require.Empty(t, b.bankMatches(t))

	var all []string
	for i := range 15 {
		all = append(all, further("S", i+2))
	}
	sixteen := b.execute(t, "gl_accountant", "gl.post_journal", spend("16", "2026-03-10"))
	b.execute(t, "treasurer", "gl.match_bank_line", withLines(matchLine("S", 1, journalLine(sixteen, 2)), all...))
	codes = b.race("gl.unmatch_bank_line", func(i int) string { return unmatchLine("S", i+1) })
	require.Equal(t, map[string]int{"": 1, "gl.bank_line.not_matched": 15}, codes)
	require.Empty(t, b.bankMatches(t))
}

func discard(statementID string, part int) string {
	return fmt.Sprintf(`{"account": "1010", "statement_id": %q, "part": %d, "reason": "Statement of another account"}`, statementID, part)
}

// A statement without matches is discarded, and can be imported again, also with other lines.
func TestDiscardBankStatement(t *testing.T) {
	t.Parallel()
	b := newLedger(t)
	b.refuse(t, "gl.bank_statement.not_found", "treasurer", "gl.discard_bank_statement", discard("S-1", 1))
	imported := b.execute(t, "treasurer", "gl.import_bank_statement", statement("S-1", "2026-03-10", "100", "60", "-30", "-10"))
	ten := b.execute(t, "gl_accountant", "gl.post_journal", spend("10", "2026-03-09"))
	b.execute(t, "treasurer", "gl.match_bank_line", matchLine("S-1", 2, journalLine(ten, 2)))
	f := b.refuse(t, "gl.bank_statement.has_matches", "treasurer", "gl.discard_bank_statement", discard("S-1", 1))
	require.Equal(t, []int{2}, f.Attributes["line_numbers"])
	b.execute(t, "treasurer", "gl.unmatch_bank_line", unmatchLine("S-1", 2))
	for _, role := range []string{"gl_accountant", "importer", "module", "controller"} {
		b.refuse(t, "intent.forbidden", role, "gl.discard_bank_statement", discard("S-1", 1))
	}
	out := b.execute(t, "treasurer", "gl.discard_bank_statement", discard("S-1", 1))
	e, _ := b.journal(t, out)
	require.Equal(t, imported.Events[0].ID, e.CausedBy)
	for intentType, payload := range map[string]string{
		"gl.discard_bank_statement": discard("S-1", 1), "gl.match_bank_line": matchLine("S-1", 2, journalLine(ten, 2)), "gl.unmatch_bank_line": unmatchLine("S-1", 2),
	} {
		b.refuse(t, "gl.bank_statement.not_found", "treasurer", intentType, payload)
	}

	b.execute(t, "treasurer", "gl.import_bank_statement", strings.Replace(statement("S-1", "2026-03-10", "100", "60", "-30", "-10"), "1010", "1000", 1))
	for range 2 {
		again := b.execute(t, "treasurer", "gl.import_bank_statement", statement("S-1", "2026-03-10", "100", "90", "-10"))
		require.Equal(t, "gl.bank_statement.reimported", again.Events[0].Type)
		f = b.refuse(t, "gl.bank_statement.duplicate", "treasurer", "gl.import_bank_statement", statement("S-1", "2026-03-10", "100", "90", "-10"))
		require.Equal(t, true, f.Attributes["same_content"])
		require.Equal(t, again.Events[0].ID.String(), f.Holder.EventID)
		b.refuse(t, "gl.bank_line.not_found", "treasurer", "gl.match_bank_line", matchLine("S-1", 2, journalLine(ten, 2)))
		b.execute(t, "treasurer", "gl.match_bank_line", matchLine("S-1", 1, journalLine(ten, 2)))
		b.execute(t, "treasurer", "gl.unmatch_bank_line", unmatchLine("S-1", 1))
		b.execute(t, "treasurer", "gl.discard_bank_statement", discard("S-1", 1))
	}
}

// Parts are discarded from the last one.
func TestDiscardBankStatement_Parts(t *testing.T) {
	t.Parallel()
	b := newLedger(t)
	part := func(n int, opening, closing, amount string) string {
		return strings.Replace(statement("S-1", "2026-03-10", opening, closing, amount), `"lines"`, fmt.Sprintf(`"part": %d, "parts": 2, "lines"`, n), 1)
	}
	b.execute(t, "treasurer", "gl.import_bank_statement", part(1, "0", "10", "10"))
	b.execute(t, "treasurer", "gl.import_bank_statement", part(2, "10", "15", "5"))
	b.refuse(t, "gl.bank_statement.part_follows", "treasurer", "gl.discard_bank_statement", discard("S-1", 1))
	b.execute(t, "treasurer", "gl.discard_bank_statement", discard("S-1", 2))
	b.execute(t, "treasurer", "gl.discard_bank_statement", discard("S-1", 1))
	b.refuse(t, "gl.bank_statement.part_missing", "treasurer", "gl.import_bank_statement", part(2, "10", "15", "5"))
	b.execute(t, "treasurer", "gl.import_bank_statement", statement("S-1", "2026-03-10", "0", "15", "10", "5"))
}

// A ledger with second_person takes the approval of a controller or CFO for a discard. It is
// refused if a line was matched while it waited.
func TestDiscardBankStatement_SecondPerson(t *testing.T) {
	t.Parallel()
	b := newLedger(t)
	b.execute(t, "admin", "gl.configure_ledger", strings.Replace(exampleConfigureLedger, `"second_person": false`, `"second_person": true`, 1))
	b.execute(t, "treasurer", "gl.import_bank_statement", statement("S-1", "2026-03-10", "0", "-10", "-10"))
	waiting := b.pend(t, "treasurer", "gl.discard_bank_statement", discard("S-1", 1))
	_, err := b.approve(t, "gl_accountant", waiting)
	require.Equal(t, "intent.forbidden", fault.CodeOf(err))
	ten := b.execute(t, "gl_accountant", "gl.post_journal", spend("10", "2026-03-09"))
	b.execute(t, "treasurer", "gl.match_bank_line", matchLine("S-1", 1, journalLine(ten, 2)))
	_, err = b.approve(t, "controller", waiting)
	require.Equal(t, "gl.bank_statement.has_matches", fault.CodeOf(err))
	b.execute(t, "treasurer", "gl.unmatch_bank_line", unmatchLine("S-1", 1))
	waiting = b.pend(t, "treasurer", "gl.discard_bank_statement", discard("S-1", 1))
	require.Equal(t, "gl.bank_statement.discarded", b.mustApprove(t, "cfo", waiting).Events[0].Type)
}

// Of a match and a discard that race for one statement, one is refused.
func TestDiscardBankStatement_Race(t *testing.T) {
	t.Parallel()
	b := newLedger(t)
	var lines []string
	for i := range 8 {
		b.execute(t, "treasurer", "gl.import_bank_statement", statement(fmt.Sprintf("S-%d", i), "2026-03-10", "0", "-20", "-10", "-10"))
		lines = append(lines, journalLine(b.execute(t, "gl_accountant", "gl.post_journal", spend("10", "2026-03-09")), 2))
	}
	var wait sync.WaitGroup
	outcomes := make([][2]string, 8)
	for i := range 8 {
		id := fmt.Sprintf("S-%d", i)
		for j, s := range []struct{ intentType, payload string }{{"gl.match_bank_line", matchLine(id, 2, lines[i])}, {"gl.discard_bank_statement", discard(id, 1)}} {
			wait.Go(func() {
				_, err := b.submit("treasurer", s.intentType, s.payload)
				outcomes[i][j] = fault.CodeOf(err)
			})
		}
	}
	wait.Wait()
	for i, o := range outcomes {
		require.Contains(t, [][2]string{{"", "gl.bank_statement.has_matches"}, {"gl.bank_statement.not_found", ""}}, o, "S-%d", i)
	}
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
		return b.race("gl.match_bank_line", payload)
	}
	codes := race(func(i int) string { return matchLine(fmt.Sprintf("S-%d", i), 1, wanted) })
	require.Equal(t, map[string]int{"": 1, "gl.journal_line.already_matched": 15}, codes)
	codes = race(func(i int) string { return matchLine("wanted", 1, own[i]) })
	require.Equal(t, 1, codes[""], "%v", codes)
	require.Equal(t, 15, codes["gl.bank_line.already_matched"]+codes["gl.journal_line.already_matched"], "%v", codes)
}
