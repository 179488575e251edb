package gl_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/money"
)

// reconciliationRow is a row of gl/bank-reconciliation.
type reconciliationRow struct {
	Item              string `json:"item"`
	Date              string `json:"date"`
	Amount            string `json:"amount"`
	StatementID       string `json:"statement_id"`
	JournalID         string `json:"journal_id"`
	JournalNumber     string `json:"journal_number"`
	LineNumber        int    `json:"line_number"`
	ProposedJournalID string `json:"proposed_journal_id"`
	ProposedLine      int    `json:"proposed_line"`
}

// reconcile asks for the reconciliation of account 1010: its header, and rows as "item date amount".
func (f *yearFixture) reconcile(t *testing.T, asOf, knownAt string) (map[string]string, []string) {
	t.Helper()
	report := f.ReportAt("gl/bank-reconciliation", asOf, knownAt, map[string]string{"account": "1010"})
	header, rows := map[string]string{}, []string{}
	for _, h := range report.Header {
		header[h.Name] = fmt.Sprint(h.Value)
	}
	for _, r := range f.reconciliationRows(t, asOf, knownAt) {
		rows = append(rows, strings.TrimSpace(fmt.Sprint(r.Item, " ", r.Date, " ", r.Amount, " ", r.StatementID)))
	}
	require.Equal(t, "0.00", header["unexplained"])
	return header, rows
}

func (f *yearFixture) reconciliationRows(t *testing.T, asOf, knownAt string) (rows []reconciliationRow) {
	t.Helper()
	decodeRows(t, f.ReportAt("gl/bank-reconciliation", asOf, knownAt, map[string]string{"account": "1010"}).Rows, &rows)
	return rows
}

func (f *yearFixture) lastSequence() string { return fmt.Sprintf("seq:%d", len(f.Log())) }

func TestBankReconciliation(t *testing.T) {
	t.Parallel()
	f := newYearFixture(t)
	rent := f.Execute("gl_accountant", "gl.post_journal", spend("30", "2025-03-04"))
	fee := f.Execute("gl_accountant", "gl.post_journal", spend("2.50", "2025-04-02"))
	header, rows := f.reconcile(t, "2025-12-31", "")
	require.Equal(t, "-32.50", header["book_balance"])
	require.Equal(t, "0.00", header["statement_balance"])
	require.Equal(t, []string{"book_line 2025-03-04 -30.00", "book_line 2025-04-02 -2.50"}, rows)

	f.Execute("treasurer", "gl.import_bank_statement", statement("M-3", "2025-03-31", "100", "67.50", "-30", "-2.50"))
	f.Execute("treasurer", "gl.match_bank_line", matchLine("M-3", 1, journalLine(rent, 2)))
	before := f.lastSequence()
	f.Execute("treasurer", "gl.match_bank_line", matchLine("M-3", 2, journalLine(fee, 2)))

	header, rows = f.reconcile(t, "2025-12-31", "")
	require.Equal(t, map[string]string{
		"legal_entity": "USMF", "account": "1010", "currency": "USD", "as_of": "2025-12-31", "last_statement": "2025-03-31", "known_at": header["known_at"], "sequence": header["sequence"],
		"book_balance": "-32.50", "statement_balance": "67.50", "difference": "-100.00", "unmatched_book": "0.00", "unmatched_statement": "100.00", "unexplained": "0.00",
	}, header)
	require.Equal(t, []string{"opening_balance 2025-03-31 100.00 M-3"}, rows)
	_, rows = f.reconcile(t, "2025-12-31", before)
	require.Equal(t, []string{"opening_balance 2025-03-31 100.00 M-3", "statement_line 2025-03-31 -2.50 M-3", "book_line 2025-04-02 -2.50"}, rows, "as it was known before the second match")
	_, rows = f.reconcile(t, "2025-03-31", "")
	require.Equal(t, []string{"opening_balance 2025-03-31 100.00 M-3", "statement_line 2025-03-31 -2.50 M-3"}, rows, "in March the books have no fee yet")
	_, rows = f.reconcile(t, "2025-03-30", "")
	require.Equal(t, []string{"book_line 2025-03-04 -30.00"}, rows)

	// A statement that does not follow leaves a row until the missing one is there.
	f.Execute("treasurer", "gl.import_bank_statement", statement("M-5", "2025-05-31", "60", "55", "-5"))
	header, rows = f.reconcile(t, "2025-12-31", "")
	require.Equal(t, "55.00", header["statement_balance"], "the closing balance of the last statement")
	require.Equal(t, []string{"opening_balance 2025-03-31 100.00 M-3", "missing_statement 2025-05-31 -7.50 M-5", "statement_line 2025-05-31 -5.00 M-5"}, rows)
	f.Execute("treasurer", "gl.import_bank_statement", statement("M-4", "2025-04-30", "67.50", "60", "-7.50"))
	_, rows = f.reconcile(t, "2025-12-31", "")
	require.Equal(t, []string{"opening_balance 2025-03-31 100.00 M-3", "statement_line 2025-04-30 -7.50 M-4", "statement_line 2025-05-31 -5.00 M-5"}, rows)
}

// A statement line is proposed for the one journal line with its reference and amount.
func TestBankReconciliation_Proposals(t *testing.T) {
	t.Parallel()
	f := newYearFixture(t)
	journals := map[string]string{} // id by number
	for _, amount := range []string{"10", "20", "30"} {
		f.Execute("gl_accountant", "gl.post_journal", spend(amount, "2025-03-04"))
	}
	for _, r := range f.reconciliationRows(t, "2025-12-31", "") {
		journals[r.JournalNumber] = r.JournalID
	}
	f.Execute("treasurer", "gl.import_bank_statement", statement("S", "2025-03-31", "0", "-131",
		"-10 GJ-2025-000001",                       // proposed
		"-20",                                      // no reference
		"-21 GJ-2025-000002",                       // another amount
		"-30 GJ-2025-000003", "-30 GJ-2025-000003", // two lines for one journal
		"-20 GJ-2025-000009")) // no such journal
	proposed := map[int]string{}
	for _, r := range f.reconciliationRows(t, "2025-12-31", "") {
		if r.ProposedJournalID != "" {
			require.Equal(t, 2, r.ProposedLine)
			proposed[r.LineNumber] = r.ProposedJournalID
		}
	}
	require.Equal(t, map[int]string{1: journals["GJ-2025-000001"]}, proposed)
}

// TestBankReconciliation_Property imports, posts, reverses, matches and unmatches at random, and
// compares the report on both axes with a fold over the same steps.
func TestBankReconciliation_Property(t *testing.T) {
	t.Parallel()
	f := newYearFixture(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	type booking struct {
		date, amount, payload string // the payload names the line
		matched               int    // index of the match + 1
		known                 int
	}
	type match struct{ bank, book, from, until int }
	var bank, book []booking
	var matches []match
	balance := money.Number{}
	known := func() int { return len(f.Log()) }
	for i := range 60 {
		day := fmt.Sprintf("2025-%02d-%02d", 1+i/6, 1+r.IntN(3)+5*(i%6))
		amount := fmt.Sprint(1+r.IntN(3), ".", r.IntN(2), "0")
		switch r.IntN(5) {
		case 0, 1: // a statement that follows the one before
			closing := balance
			lines := []string{}
			id := fmt.Sprintf("S-%d", i)
			for n := range 1 + r.IntN(3) {
				lines = append(lines, "-"+amount)
				closing = closing.Sub(money.MustNumber(amount))
				bank = append(bank, booking{date: day, amount: "-" + amount, payload: fmt.Sprintf(`"account": "1010", "statement_id": %q, "line_number": %d`, id, n+1)})
			}
			f.Execute("treasurer", "gl.import_bank_statement", statement(id, day, balance.String(), closing.String(), lines...))
			for n := range lines {
				bank[len(bank)-1-n].known = known()
			}
			balance = closing
		case 2:
			out := f.Execute("gl_accountant", "gl.post_journal", spend(amount, day))
			book = append(book, booking{date: day, amount: "-" + amount, payload: journalLine(out, 2), known: known()})
			if r.IntN(4) == 0 {
				out := f.Execute("gl_accountant", "gl.reverse_journal", fmt.Sprintf(`{"journal_id": %q, "posting_date": "2025-12-01", "reason": "Twice"}`, out.Events[0].Stream.ID))
				book = append(book, booking{date: "2025-12-01", amount: amount, payload: journalLine(out, 2), known: int(out.Events[0].Sequence)})
			}
		case 3, 4:
			if n := len(matches); n > 0 && r.IntN(4) == 0 && matches[n-1].until == 0 {
				m := &matches[n-1]
				f.Execute("treasurer", "gl.unmatch_bank_line", `{"reason": "Wrong", `+bank[m.bank].payload+`}`)
				m.until, bank[m.bank].matched, book[m.book].matched = known(), 0, 0
				continue
			}
		search:
			for i := range bank {
				for j := range book {
					if bank[i].matched == 0 && book[j].matched == 0 && bank[i].amount == book[j].amount {
						f.Execute("treasurer", "gl.match_bank_line", fmt.Sprintf(`{%s, "journal_lines": [%s]}`, bank[i].payload, book[j].payload))
						matches = append(matches, match{bank: i, book: j, from: known()})
						bank[i].matched, book[j].matched = len(matches), len(matches)
						break search
					}
				}
			}
		}
	}
	require.NotEmpty(t, matches)
	last := known()
	for range 12 {
		asOf, at := event.MustDate("2025-01-01").AddDays(r.IntN(360)).String(), last-r.IntN(last/2)
		sums := map[string]money.Number{}
		var rows int
		add := func(side string, entries []booking, index func(match) int) {
			for i, b := range entries {
				if b.date > asOf || b.known > at {
					continue
				}
				sums[side] = sums[side].Add(money.MustNumber(b.amount))
				open := true
				for _, m := range matches {
					if index(m) == i && m.from <= at && (m.until == 0 || m.until > at) && bank[m.bank].date <= asOf && book[m.book].date <= asOf {
						open = false
					}
				}
				if open {
					rows++
					sums[side+" open"] = sums[side+" open"].Add(money.MustNumber(b.amount))
				}
			}
		}
		add("bank", bank, func(m match) int { return m.bank })
		add("book", book, func(m match) int { return m.book })
		header, found := f.reconcile(t, asOf, fmt.Sprintf("seq:%d", at))
		require.Equal(t, sums["bank"].Fixed(2), header["statement_balance"], "%s %d", asOf, at)
		require.Equal(t, sums["book"].Fixed(2), header["book_balance"], "%s %d", asOf, at)
		require.Equal(t, sums["bank open"].Fixed(2), header["unmatched_statement"], "%s %d", asOf, at)
		require.Equal(t, sums["book open"].Fixed(2), header["unmatched_book"], "%s %d", asOf, at)
		require.Len(t, found, rows)
	}
}

func decodeRows(t *testing.T, rows []any, into any) {
	t.Helper()
	text, err := json.Marshal(rows)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, into))
}
