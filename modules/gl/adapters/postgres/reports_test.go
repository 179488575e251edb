package postgres_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/modules/gl/adapters/postgres"
	"github.com/erpbackbone/backbone/modules/gl/domain"
	"github.com/erpbackbone/backbone/ports"
)

// rows asks a read model and returns its rows and its report.
func (b *ledgerFixture) rows(t *testing.T, source func(*pgxpool.Pool) ports.ReadModelSource, q ports.ReadModelQuery) ([]map[string]any, ports.Report) {
	t.Helper()
	r, err := source(b.pool).Query(t.Context(), q)
	require.NoError(t, err)
	text, err := json.Marshal(r.Rows)
	require.NoError(t, err)
	var rows []map[string]any
	require.NoError(t, json.Unmarshal(text, &rows))
	return rows, r
}

// posted records a journal of two lines, debit 6000 and credit 1000, of a type and with a number.
func (b *ledgerFixture) posted(effective, amount, journalType, number, more string) event.Recorded {
	return b.add(domain.EventJournalPosted, effective, fmt.Sprintf(`{"journal_number": %q, "journal_type": %q, "description": "Rent", "functional_currency": "USD", "fiscal_year": %q, "period": %q, %s "lines": [
		{"line_number": 1, "account": "6000", "debit_credit": "debit", "amount": %s, "currency": "USD", "dimensions": {"department": "ENG", "project": "P1"}},
		{"line_number": 2, "account": "1000", "debit_credit": "credit", "amount": %s, "currency": "USD", "dimensions": {"department": "FIN"}}]}`,
		number, journalType, effective[:4], effective[:7], more, amount, amount))
}

const years = `{"label": %q, "start": "%[1]s-01-01", "end": "%[1]s-12-31", "periods": [{"period": "%[1]s-01", "start": "%[1]s-01-01", "end": "%[1]s-12-31"}]}`

func TestTrialBalance_Parameters(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, account := range []string{
		`{"code": "6", "name": "Costs", "type": "expense"}`, `{"code": "60", "name": "External", "type": "expense", "parent": "6"}`,
		`{"code": "6000", "name": "Services", "type": "expense", "parent": "60"}`,
	} {
		b.add(domain.EventAccountDefined, "2026-01-01", account)
	}
	b.add(domain.EventCalendarExtended, "2025-01-01", fmt.Sprintf(years, "2025"))
	b.add(domain.EventCalendarExtended, "2026-01-01", fmt.Sprintf(years, "2026"))
	b.posted("2025-03-01", "70", "general", "GJ-2025-000001", "")
	b.posted("2026-02-01", "100", "general", "GJ-2026-000001", "")
	b.posted("2026-03-01", "30", "general", "GJ-2026-000002", "")
	closing := b.posted("2026-12-31", "5", "closing", "CL-2026-000001", "")
	b.posted("2026-12-31", "2", "reversal", "RV-2026-000001", fmt.Sprintf(`"reverses_journal_id": %q,`, closing.Stream.ID))
	b.add(domain.EventJournalPosted, "2026-04-01", `{"journal_number": "GJ-2026-000003", "description": "x", "functional_currency": "USD", "lines": [
		{"line_number": 1, "account": "6000", "debit_credit": "debit", "amount": 10, "currency": "EUR", "amount_in_reporting_currency": 11},
		{"line_number": 2, "account": "1000", "debit_credit": "credit", "amount": 10, "currency": "EUR", "amount_in_reporting_currency": 11}]}`)
	b.project(t)
	ask := func(params map[string]string) (costs map[string]any, r ports.Report) {
		t.Helper()
		rows, r := b.rows(t, postgres.NewTrialBalance, b.query("2026-12-31", 99, params))
		for _, row := range rows {
			if row["type"] == "expense" {
				costs = row
			}
		}
		return costs, r
	}
	for name, c := range map[string]struct {
		params map[string]string
		want   map[string]any
	}{
		"all":          {nil, map[string]any{"account": "6000", "name": "Services", "type": "expense", "debit": "218.00", "credit": "0.00", "balance": "218.00"}},
		"opening":      {map[string]string{"from": "2026-03-01"}, map[string]any{"account": "6000", "name": "Services", "type": "expense", "opening": "170.00", "debit": "48.00", "credit": "0.00", "balance": "218.00"}},
		"closing":      {map[string]string{"include_closing": "false"}, map[string]any{"account": "6000", "name": "Services", "type": "expense", "debit": "211.00", "credit": "0.00", "balance": "211.00"}},
		"level":        {map[string]string{"level": "1"}, map[string]any{"account": "6", "name": "Costs", "type": "expense", "debit": "218.00", "credit": "0.00", "balance": "218.00"}},
		"level 2":      {map[string]string{"level": "2"}, map[string]any{"account": "60", "name": "External", "type": "expense", "debit": "218.00", "credit": "0.00", "balance": "218.00"}},
		"level 9":      {map[string]string{"level": "9"}, map[string]any{"account": "6000", "name": "Services", "type": "expense", "debit": "218.00", "credit": "0.00", "balance": "218.00"}},
		"currency":     {map[string]string{"currency": "EUR"}, map[string]any{"account": "6000", "name": "Services", "type": "expense", "debit": "10.00", "credit": "0.00", "balance": "10.00"}},
		"dimension":    {map[string]string{"dimensions": "department=ENG,project=P1"}, map[string]any{"account": "6000", "name": "Services", "type": "expense", "debit": "207.00", "credit": "0.00", "balance": "207.00"}},
		"no dimension": {map[string]string{"dimensions": "department=none"}, map[string]any{"account": "6000", "name": "Services", "type": "expense", "debit": "11.00", "credit": "0.00", "balance": "11.00"}},
	} {
		costs, r := ask(c.params)
		require.Equal(t, c.want, costs, name)
		require.Contains(t, r.Footer, ports.ReportField{Name: "unclosed_years", Value: []string{"2025"}}, name)
	}
	_, r := ask(map[string]string{"currency": "EUR"})
	require.Contains(t, r.Header, ports.ReportField{Name: "currency", Value: "USD"})
	require.Contains(t, r.Header, ports.ReportField{Name: "balance_currency", Value: "EUR"})
	for _, params := range []map[string]string{{"level": "0"}, {"currency": "XXX"}, {"dimensions": "department"}, {"dimensions": "a=1,a=2"}, {"from": "x"}} {
		_, err := postgres.NewTrialBalance(b.pool).Query(t.Context(), b.query("2026-12-31", 99, params))
		require.Equal(t, "report.parameter_invalid", fault.CodeOf(err), params)
	}
	lines, _ := b.rows(t, func(pool *pgxpool.Pool) ports.ReadModelSource { return postgres.NewAccountLedger(pool) }, b.query("2026-12-31", 99, map[string]string{"account": "6000", "dimensions": "department=none", "from": "2026-01-01"}))
	require.Len(t, lines, 1)
	require.Equal(t, "11.00", lines[0]["running_balance"], "the opening balance has the filter too")
}

func TestDimensionBalances(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.posted("2026-02-01", "100", "general", "GJ-2026-000001", "")
	b.journal("2026-03-01", "30") // department ENG, and a line without a department
	b.project(t)
	rows, _ := b.rows(t, postgres.NewDimensionBalances, b.query("2026-12-31", 99, map[string]string{"dimensions": "department,project"}))
	require.Equal(t, []map[string]any{
		{"account": "1000", "dimensions": map[string]any{"department": "FIN", "project": "none"}, "debit": "0.00", "credit": "100.00", "balance": "-100.00", "account_balance": "-130.00"},
		{"account": "1000", "dimensions": map[string]any{"department": "none", "project": "none"}, "debit": "0.00", "credit": "30.00", "balance": "-30.00", "account_balance": "-130.00"},
		{"account": "6000", "dimensions": map[string]any{"department": "ENG", "project": "P1"}, "debit": "100.00", "credit": "0.00", "balance": "100.00", "account_balance": "130.00"},
		{"account": "6000", "dimensions": map[string]any{"department": "ENG", "project": "none"}, "debit": "30.00", "credit": "0.00", "balance": "30.00", "account_balance": "130.00"},
	}, rows)
	rows, _ = b.rows(t, postgres.NewDimensionBalances, b.query("2026-12-31", 99, map[string]string{"dimensions": "department", "account": "6000", "from": "2026-03-01"}))
	require.Len(t, rows, 1)
	require.Equal(t, "30.00", rows[0]["account_balance"])
	for _, names := range []string{"", "a,,b", "a,a", "a=1"} {
		_, err := postgres.NewDimensionBalances(b.pool).Query(t.Context(), b.query("2026-12-31", 99, map[string]string{"dimensions": names}))
		require.Equal(t, "report.parameter_invalid", fault.CodeOf(err), names)
	}
}

func TestJournals(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first := b.posted("2026-02-01", "100", "general", "GJ-2026-000001", "")
	b.events[len(b.events)-1].ActorID = "p-1"
	b.events[len(b.events)-1].IntentID = first.ID
	b.events[len(b.events)-1].RulesEvaluated = []byte(`[{"rule_id": "gl.limit.approval", "rule_name": "approval by another person", "result": "fired", "actions_taken": ["approved by p-2 as controller: over the limit"], "evaluation_ms": 0}]`)
	second := b.posted("2026-02-05", "100", "reversal", "RV-2026-000001", fmt.Sprintf(`"reverses_journal_id": %q,`, first.Stream.ID))
	b.add(domain.EventJournalReversed, "2026-02-05", fmt.Sprintf(`{"journal_id": %q, "reversed_by_journal_id": %q, "posting_date": "2026-02-05", "reason": "x"}`, first.Stream.ID, second.Stream.ID))
	b.posted("2026-02-07", "7", "general", "GJ-2026-000002", "")
	b.project(t)

	rows, _ := b.rows(t, postgres.NewJournals, b.query("2026-12-31", 99, nil))
	require.Len(t, rows, 3)
	require.Equal(t, "RV-2026-000001", rows[0]["reversed_by"])
	require.Equal(t, "GJ-2026-000001", rows[1]["reverses"])
	require.Equal(t, []any{"p-2"}, rows[0]["approvers"])
	require.Equal(t, "p-1", rows[0]["actor_id"])
	require.Equal(t, first.ID.String(), rows[0]["intent_id"])
	require.Equal(t, "100.00", rows[0]["total"])
	before, _ := b.rows(t, postgres.NewJournals, b.query("2026-12-31", first.Sequence, nil))
	require.NotContains(t, before[0], "reversed_by", "not known yet")
	for params, want := range map[[2]string]int{
		{"type", "reversal"}: 1, {"period", "2026-02"}: 3, {"period", "2026-03"}: 0, {"number_from", "GJ-2026-000002"}: 2, {"number_to", "GJ-2026-000001"}: 1, {"from", "2026-02-05"}: 2,
	} {
		rows, _ := b.rows(t, postgres.NewJournals, b.query("2026-12-31", 99, map[string]string{params[0]: params[1]}))
		require.Len(t, rows, want, params)
	}
	q := b.query("2026-12-31", 99, nil)
	q.Limit = 2
	_, page := b.rows(t, postgres.NewJournals, q)
	require.True(t, page.HasMore)
	q.Cursor = page.NextCursor
	rest, _ := b.rows(t, postgres.NewJournals, q)
	require.Len(t, rest, 1)

	for _, name := range []string{"GJ-2026-000001", first.Stream.ID} {
		lines, report := b.rows(t, postgres.NewJournal, b.query("2026-12-31", 99, map[string]string{"number": name}))
		require.Len(t, lines, 2)
		require.Equal(t, "Services", lines[0]["account_name"])
		text, err := json.Marshal(report.Header[3].Value)
		require.NoError(t, err)
		require.Contains(t, string(text), `"reversed_by":"RV-2026-000001"`)
	}
	for _, name := range []string{"GJ-2026-000009", "RV-2026-000001 "} {
		_, err := postgres.NewJournal(b.pool).Query(t.Context(), b.query("2026-12-31", 99, map[string]string{"number": name}))
		require.Equal(t, "gl.journal.not_found", fault.CodeOf(err))
	}
	_, err := postgres.NewJournal(b.pool).Query(t.Context(), b.query("2026-01-31", 99, map[string]string{"number": "GJ-2026-000001"}))
	require.Equal(t, "gl.journal.not_found", fault.CodeOf(err), "effective later")
}

func TestJournalLines(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for i := range 5 {
		b.posted(fmt.Sprintf("2026-02-%02d", 10-i), "1", "general", fmt.Sprintf("GJ-2026-%06d", i+1), "")
	}
	b.project(t)
	whole, _ := b.rows(t, postgres.NewJournalLines, b.query("2026-12-31", 99, nil))
	require.Len(t, whole, 10)
	for limit := 1; limit < 5; limit++ {
		q := b.query("2026-12-31", 99, nil)
		q.Limit = limit
		var paged []map[string]any
		for more := true; more; {
			rows, r := b.rows(t, postgres.NewJournalLines, q)
			paged = append(paged, rows...)
			q.Cursor, more = r.NextCursor, r.HasMore
		}
		require.Equal(t, whole, paged)
	}
	rows, _ := b.rows(t, postgres.NewJournalLines, b.query("2026-02-08", 99, map[string]string{"account": "1000", "from": "2026-02-07"}))
	require.Len(t, rows, 2)
	q := b.query("2026-12-31", 99, nil)
	q.Cursor = "1"
	_, err := postgres.NewJournalLines(b.pool).Query(t.Context(), q)
	require.Equal(t, "cursor.malformed", fault.CodeOf(err))
}

func TestNumberGaps(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, number := range []string{"GJ-2026-000001", "GJ-2026-000002", "SL-2026-000002", "SL-2026-000005", "SL-2026-000005", "SL-2025-000001", "by hand"} {
		b.posted("2026-02-01", "1", "general", number, "")
	}
	b.project(t)
	rows, _ := b.rows(t, postgres.NewNumberGaps, b.query("2026-01-01", 99, nil))
	require.Equal(t, []map[string]any{
		{"series": "GJ-2026", "type": "general", "fiscal_year": "2026", "first": 1.0, "last": 2.0, "count": 2.0, "expected": 2.0, "missing": []any{}, "repeated": []any{}},
		{"series": "SL-2025", "type": "subledger", "fiscal_year": "2025", "first": 1.0, "last": 1.0, "count": 1.0, "expected": 1.0, "missing": []any{}, "repeated": []any{}},
		{
			"series": "SL-2026", "type": "subledger", "fiscal_year": "2026", "first": 2.0, "last": 5.0, "count": 3.0, "expected": 5.0,
			"missing": []any{map[string]any{"first": 1.0, "last": 1.0}, map[string]any{"first": 3.0, "last": 4.0}}, "repeated": []any{5.0},
		},
	}, rows)
	rows, _ = b.rows(t, postgres.NewNumberGaps, b.query("2026-01-01", 99, map[string]string{"type": "subledger", "fiscal_year": "2026"}))
	require.Len(t, rows, 1)
}

func TestPeriodsAndChartAndRates(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.add(domain.EventCalendarExtended, "2026-01-01", `{"label": "2026", "start": "2026-01-01", "end": "2026-12-31", "periods": [
		{"period": "2026-01", "start": "2026-01-01", "end": "2026-06-30"}, {"period": "2026-02", "start": "2026-07-01", "end": "2026-12-31"}]}`)
	opened := b.add(domain.EventPeriodOpened, "2026-01-01", `{"module": "gl", "period": "2026-01", "fiscal_year": "2026"}`)
	b.add(domain.EventPeriodSoftClosed, "2026-01-01", `{"module": "gl", "period": "2026-01", "fiscal_year": "2026", "reason": "done"}`)
	b.events[len(b.events)-1].ActorID = "p-9"
	block := b.add(domain.EventAccountBlocked, "2026-01-01", `{"code": "6000", "reason": "x"}`)
	b.events[len(b.events)-1].Stream = event.StreamID{Type: domain.StreamAccount, ID: "6000"}
	b.add(domain.EventExchangeRateSet, "2026-02-01", `{"from": "EUR", "to": "USD", "rate_type": "spot", "date": "2026-02-01", "rate": 1.1}`)
	b.add(domain.EventExchangeRateSet, "2026-02-01", `{"from": "EUR", "to": "USD", "rate_type": "spot", "date": "2026-02-01", "rate": 1.125, "reason": "typing error"}`)
	b.add(domain.EventExchangeRateSet, "2026-01-01", `{"from": "EUR", "to": "USD", "rate_type": "spot", "date": "2026-01-01", "rate": 1.2}`)
	b.project(t)
	b.project(t) // a rebuild passes the same events again

	rows, _ := b.rows(t, postgres.NewPeriods, b.query("2026-12-31", 99, nil))
	require.Len(t, rows, 4, "two periods of two modules")
	require.Equal(t, "soft_closed", rows[0]["state"])
	require.Equal(t, "p-9", rows[0]["actor_id"])
	require.Equal(t, "done", rows[0]["reason"])
	require.Equal(t, "not_open", rows[1]["state"])
	require.NotContains(t, rows[1], "changed_at")
	rows, _ = b.rows(t, postgres.NewPeriods, b.query("2026-12-31", opened.Sequence, map[string]string{"module": "gl", "state": "open"}))
	require.Len(t, rows, 1)

	rows, _ = b.rows(t, postgres.NewChart, b.query("2026-12-31", 99, nil))
	require.Len(t, rows, 2)
	require.Equal(t, "blocked", rows[1]["status"])
	rows, _ = b.rows(t, postgres.NewChart, b.query("2026-12-31", block.Sequence-1, map[string]string{"status": "blocked"}))
	require.Empty(t, rows)

	rows, _ = b.rows(t, postgres.NewRates, b.query("2026-02-11", 99, map[string]string{"from_currency": "EUR", "latest": "true"}))
	require.Len(t, rows, 1)
	require.Equal(t, []any{"1.125", 10.0, "typing error"}, []any{rows[0]["rate"], rows[0]["age"], rows[0]["reason"]})
	rows, _ = b.rows(t, postgres.NewRates, b.query("2026-02-11", 99, map[string]string{"rate_type": "spot"}))
	require.Len(t, rows, 2)
	rows, _ = b.rows(t, postgres.NewRates, b.query("2026-01-31", 99, map[string]string{"latest": "true"}))
	require.Equal(t, "1.2", rows[0]["rate"])
}

// TestTrialBalance_Blocks asks around the ends of the blocks of sequences whose sums are kept,
// and removes lines, as a rebuild does.
func TestTrialBalance_Blocks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	random := rand.New(rand.NewPCG(9, 10))
	start := event.MustDate("2026-01-01")
	var points []event.Sequence
	for _, at := range []event.Sequence{32_700, 65_520, 131_060} {
		b.sequence = at
		for range 80 {
			points = append(points, b.journal(start.AddDays(random.IntN(9)).String(), strconv.Itoa(1+random.IntN(999))).Sequence)
		}
	}
	b.project(t)
	b.project(t) // a rebuild passes the same events again, and inserts no line
	compare := func(events []event.Recorded) {
		t.Helper()
		for _, known := range append(points, 32_767, 32_768, 65_535, 131_071, 131_072, 1<<40) {
			asOf := start.AddDays(random.IntN(10))
			rows, _ := b.rows(t, postgres.NewTrialBalance, b.query(asOf.String(), known, nil))
			got := map[string]string{}
			for _, row := range rows {
				got[row["account"].(string)] = row["balance"].(string)
			}
			require.Equal(t, naive(t, events, asOf, known), got, "as of %s, known at %d", asOf, known)
		}
	}
	compare(b.events)
	left := b.events[:0:0]
	for i, e := range b.events {
		if e.Type == domain.EventJournalPosted && i%3 == 0 {
			_, err := b.pool.Exec(t.Context(), "DELETE FROM gl.journal_lines WHERE partition_id = $1 AND sequence = $2", int32(b.partition), int64(e.Sequence))
			require.NoError(t, err)
			continue
		}
		left = append(left, e)
	}
	compare(left)
	require.NoError(t, pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
		return postgres.NewProjection().Reset(t.Context(), tx, ports.ProjectionBatch{Partition: b.partition})
	}))
	var sums int
	require.NoError(t, b.pool.QueryRow(t.Context(), "SELECT count(*) FROM gl.line_totals WHERE partition_id = $1", int32(b.partition)).Scan(&sums))
	require.Zero(t, sums)
}
