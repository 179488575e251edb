package gl_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
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
		"book_balance": "-32.50", "statement_balance": "67.50", "difference": "-100.00", "unmatched_book": "0.00", "unmatched_statement": "100.00", "unmatched_lines": "0", "unexplained": "0.00",
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

// A discarded statement counts until it is discarded, and its matches before count until they end.
// Imported again, its lines are lines of their own.
func TestBankReconciliation_Discard(t *testing.T) {
	t.Parallel()
	f := newYearFixture(t)
	rent := f.Execute("gl_accountant", "gl.post_journal", spend("30", "2025-03-04"))
	f.Execute("treasurer", "gl.import_bank_statement", statement("M-3", "2025-03-31", "0", "-30", "-30"))
	f.Execute("treasurer", "gl.import_bank_statement", statement("M-4", "2025-04-30", "-30", "-31", "-1"))
	f.Execute("treasurer", "gl.match_bank_line", matchLine("M-3", 1, journalLine(rent, 2)))
	matched := f.lastSequence()
	f.Execute("treasurer", "gl.unmatch_bank_line", unmatchLine("M-3", 1))
	f.Execute("treasurer", "gl.discard_bank_statement", discard("M-3", 1))
	header, rows := f.reconcile(t, "2025-12-31", "")
	require.Equal(t, "-31.00", header["statement_balance"])
	require.Equal(t, []string{"opening_balance 2025-04-30 -30.00 M-4", "statement_line 2025-04-30 -1.00 M-4", "book_line 2025-03-04 -30.00"}, rows)
	_, rows = f.reconcile(t, "2025-12-31", matched)
	require.Equal(t, []string{"statement_line 2025-04-30 -1.00 M-4"}, rows, "as it was known before the discard")
	discarded := f.lastSequence()

	f.Execute("treasurer", "gl.import_bank_statement", statement("M-3", "2025-03-31", "2", "-30", "-30", "-2"))
	f.Execute("treasurer", "gl.match_bank_line", matchLine("M-3", 1, journalLine(rent, 2)))
	_, rows = f.reconcile(t, "2025-12-31", "")
	require.Equal(t, []string{"opening_balance 2025-03-31 2.00 M-3", "statement_line 2025-03-31 -2.00 M-3", "statement_line 2025-04-30 -1.00 M-4"}, rows)
	_, rows = f.reconcile(t, "2025-12-31", discarded)
	require.Len(t, rows, 3)

	f.Execute("treasurer", "gl.import_bank_statement", statement("M-5", "2025-05-31", "-31", "969", slices.Repeat([]string{"1"}, 1000)...))
	f.Execute("treasurer", "gl.discard_bank_statement", discard("M-5", 1))
	_, rows = f.reconcile(t, "2025-12-31", "")
	require.Len(t, rows, 3, "also one of 1,000 lines")

	// The currency is that of the newest statement that counts.
	f.Execute("treasurer", "gl.import_bank_statement", strings.NewReplacer("1010", "1000", "USD", "EUR").Replace(statement("E-1", "2025-03-31", "0", "5", "5")))
	f.Execute("treasurer", "gl.discard_bank_statement", strings.Replace(discard("E-1", 1), "1010", "1000", 1))
	for at, currency := range map[string]string{"": "USD", fmt.Sprintf("seq:%d", len(f.Log())-1): "EUR"} {
		report := f.ReportAt("gl/bank-reconciliation", "2025-12-31", at, map[string]string{"account": "1000"})
		require.Equal(t, currency, fmt.Sprint(report.Header[2].Value))
	}
}

// TestBankReconciliation_Property imports, discards, posts, reverses, matches groups and unmatches
// at random, and compares the report on both axes with a fold over the same steps.
func TestBankReconciliation_Property(t *testing.T) {
	t.Parallel()
	f := newYearFixture(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	type booking struct {
		date, amount, payload string // the payload names the line
		isMatched             bool
		known, until          int // until: when its statement was discarded
	}
	type imported struct {
		id, date         string
		opening, closing money.Number
		lines            []int
		known, until     int
	}
	type match struct {
		bank, book  []int
		date        string
		from, until int
	}
	var bank, book []booking
	var statements []imported
	var matches []match
	balance := money.Number{}
	known := func() int { return len(f.Log()) }
	load := func(s imported, amounts []string) { // a statement that was discarded keeps its id
		s.closing, s.lines, s.until = s.opening, nil, 0
		for n, amount := range amounts {
			s.closing = s.closing.Add(money.MustNumber(amount))
			s.lines = append(s.lines, len(bank))
			bank = append(bank, booking{date: s.date, amount: amount, payload: fmt.Sprintf(`"statement_id": %q, "line_number": %d`, s.id, n+1)})
		}
		f.Execute("treasurer", "gl.import_bank_statement", statement(s.id, s.date, s.opening.String(), s.closing.String(), amounts...))
		s.known = known()
		for _, i := range s.lines {
			bank[i].known = s.known
		}
		statements, balance = append(statements, s), s.closing
	}
	pick := func(entries []booking, most int) (picked []int, sum money.Number, last string) { // free lines
		for range r.IntN(most + 1) {
			if len(entries) == 0 {
				break
			}
			i := r.IntN(len(entries))
			if e := entries[i]; !e.isMatched && e.until == 0 && !slices.Contains(picked, i) {
				picked, sum, last = append(picked, i), sum.Add(money.MustNumber(e.amount)), max(last, e.date)
			}
		}
		return picked, sum, last
	}
	mark := func(m match, isMatched bool) {
		for _, i := range m.bank {
			bank[i].isMatched = isMatched
		}
		for _, i := range m.book {
			book[i].isMatched = isMatched
		}
	}
	for i := range 70 {
		day := fmt.Sprintf("2025-%02d-%02d", 1+i/7, 1+r.IntN(3)+3*(i%7))
		amount := func() string { return fmt.Sprint(1+r.IntN(2), ".", r.IntN(2), "0") }
		switch r.IntN(8) {
		case 0, 1: // a statement that follows the one before
			var amounts []string
			for range 1 + r.IntN(3) {
				amounts = append(amounts, []string{"-", "-", ""}[r.IntN(3)]+amount())
			}
			load(imported{id: fmt.Sprintf("S-%d", i), date: day, opening: balance}, amounts)
		case 2:
			paid := amount()
			out := f.Execute("gl_accountant", "gl.post_journal", spend(paid, day))
			book = append(book, booking{date: day, amount: "-" + paid, payload: journalLine(out, 2), known: known()})
			if r.IntN(4) == 0 {
				out := f.Execute("gl_accountant", "gl.reverse_journal", fmt.Sprintf(`{"journal_id": %q, "posting_date": "2025-12-01", "reason": "Twice"}`, out.Events[0].Stream.ID))
				book = append(book, booking{date: "2025-12-01", amount: paid, payload: journalLine(out, 2), known: int(out.Events[0].Sequence)})
			}
		case 3: // a statement without matches is discarded, and some are imported again
			n := len(statements)
			if n == 0 {
				continue
			}
			s := &statements[r.IntN(n)]
			if s.until != 0 || slices.ContainsFunc(s.lines, func(i int) bool { return bank[i].isMatched }) {
				continue
			}
			f.Execute("treasurer", "gl.discard_bank_statement", discard(s.id, 1))
			s.until = known()
			var amounts []string
			for _, i := range s.lines {
				bank[i].until = s.until
				amounts = append(amounts, bank[i].amount)
			}
			if r.IntN(2) == 0 {
				load(*s, amounts[r.IntN(len(amounts)):])
			}
		default:
			if n := len(matches); n > 0 && r.IntN(6) == 0 && matches[n-1].until == 0 {
				m := &matches[n-1]
				out := f.Execute("treasurer", "gl.unmatch_bank_line", `{"account": "1010", "reason": "Wrong", `+bank[m.bank[r.IntN(len(m.bank))]].payload+`}`)
				m.until = int(out.Events[0].Sequence) // a report never cuts a batch
				mark(*m, false)
				continue
			}
			for range 200 {
				ofBank, moved, lastMoved := pick(bank, 3)
				ofBook, booked, lastBooked := pick(book, 3)
				if len(ofBank) == 0 || !moved.Equal(booked) {
					continue
				}
				var furtherLines, journalLines []string
				for _, i := range ofBank[1:] {
					furtherLines = append(furtherLines, "{"+bank[i].payload+"}")
				}
				for _, i := range ofBook {
					journalLines = append(journalLines, book[i].payload)
				}
				out := f.Execute("treasurer", "gl.match_bank_line", fmt.Sprintf(`{"account": "1010", %s, "further_lines": [%s], "journal_lines": [%s]}`,
					bank[ofBank[0]].payload, strings.Join(furtherLines, ","), strings.Join(journalLines, ",")))
				matches = append(matches, match{bank: ofBank, book: ofBook, date: max(lastMoved, lastBooked), from: int(out.Events[0].Sequence)})
				mark(matches[len(matches)-1], true)
				break
			}
		}
	}
	require.NotEmpty(t, matches)
	last := known()
	for range 16 {
		asOf, at := event.MustDate("2025-01-01").AddDays(r.IntN(360)).String(), last-r.IntN(last/2)
		sums := map[string]money.Number{}
		var rows int
		add := func(side string, entries []booking, of func(match) []int) {
			for i, b := range entries {
				if b.date > asOf || b.known > at || b.until != 0 && b.until <= at {
					continue
				}
				sums[side] = sums[side].Add(money.MustNumber(b.amount))
				if !slices.ContainsFunc(matches, func(m match) bool {
					return slices.Contains(of(m), i) && m.from <= at && (m.until == 0 || m.until > at) && m.date <= asOf
				}) {
					rows++
					sums[side+" open"] = sums[side+" open"].Add(money.MustNumber(b.amount))
				}
			}
		}
		add("bank", bank, func(m match) []int { return m.bank })
		add("book", book, func(m match) []int { return m.book })
		lines := rows
		var chain []imported
		for _, s := range statements {
			if s.known <= at && (s.until == 0 || s.until > at) {
				chain = append(chain, s)
			}
		}
		slices.SortStableFunc(chain, func(a, b imported) int { return strings.Compare(a.date, b.date) })
		before := money.Number{}
		for _, s := range chain {
			if gap := s.opening.Sub(before); !gap.IsZero() && s.date <= asOf {
				rows++
				sums["bank"], sums["bank open"] = sums["bank"].Add(gap), sums["bank open"].Add(gap)
			}
			before = s.closing
		}
		header, found := f.reconcile(t, asOf, fmt.Sprintf("seq:%d", at))
		require.Equal(t, sums["bank"].Fixed(2), header["statement_balance"], "%s %d", asOf, at)
		require.Equal(t, sums["book"].Fixed(2), header["book_balance"], "%s %d", asOf, at)
		require.Equal(t, sums["bank open"].Fixed(2), header["unmatched_statement"], "%s %d", asOf, at)
		require.Equal(t, sums["book open"].Fixed(2), header["unmatched_book"], "%s %d", asOf, at)
		require.Equal(t, fmt.Sprint(lines), header["unmatched_lines"], "%s %d", asOf, at)
		require.Len(t, found, rows)
	}
}

func decodeRows(t *testing.T, rows []any, into any) {
	t.Helper()
	text, err := json.Marshal(rows)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, into))
}
