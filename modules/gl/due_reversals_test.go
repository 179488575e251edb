package gl_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/pipeline"
)

// accrual is a journal that is to be reversed on a date.
func accrual(amount, date, reversal string) string {
	return strings.Replace(twoLines(amount, amount, "USD", date), "{", fmt.Sprintf(`{"reversal_date": %q, `, reversal), 1)
}

// left is what the trace of a run says.
func left(t *testing.T, out pipeline.Outcome) []string {
	t.Helper()
	for _, r := range out.Rules {
		if r.RuleID == "gl.reversals.due" || r.RuleID == "gl.recurring.due" {
			return r.ActionsTaken
		}
	}
	t.Fatal("the answer has no trace of the run")
	return nil
}

func TestRunDueReversals(t *testing.T) {
	t.Parallel()
	b := newLedger(t)
	b.period(t, "open", "gl", "2026-04", "")
	first, _ := b.journal(t, b.execute(t, "gl_accountant", "gl.post_journal", accrual("10", "2026-03-15", "2026-04-01")))
	require.Contains(t, first.Tags, "reversal_due")
	second, _ := b.journal(t, b.execute(t, "gl_accountant", "gl.post_journal", accrual("20", "2026-03-16", "2026-03-31")))
	b.execute(t, "gl_accountant", "gl.post_journal", accrual("30", "2026-03-17", "2026-04-02"))
	byHand, _ := b.journal(t, b.execute(t, "gl_accountant", "gl.post_journal", accrual("40", "2026-03-17", "2026-03-30")))
	b.execute(t, "gl_accountant", "gl.reverse_journal", fmt.Sprintf(exampleReverse, byHand.Stream.ID))

	require.Empty(t, b.execute(t, "module", "gl.run_due_reversals", `{"through": "2026-03-30"}`).Events)
	out := b.execute(t, "module", "gl.run_due_reversals", `{"through": "2026-04-01"}`)
	require.Equal(t, []string{"posted 2", "left 0"}, left(t, out))
	require.Len(t, out.Events, 4)
	reversal, data := b.journal(t, out)
	require.Equal(t, "2026-03-31", reversal.EffectiveDate.String())
	require.Equal(t, second.Stream.ID, data["reverses_journal_id"])
	require.Equal(t, second.Stream, out.Events[1].Stream)
	require.Equal(t, first.Stream, out.Events[3].Stream)
	out.Events = out.Events[2:]
	reversal, data = b.journal(t, out)
	require.Equal(t, "2026-04-01", reversal.EffectiveDate.String())
	require.Equal(t, "RV-2026-000003", data["journal_number"])

	out = b.execute(t, "module", "gl.run_due_reversals", `{"through": "2026-04-01"}`)
	require.Empty(t, out.Events, "each journal once")
	b.refuse(t, "gl.journal.already_reversed", "gl_accountant", "gl.reverse_journal", fmt.Sprintf(exampleReverse, first.Stream.ID))
}

func TestRunDueReversals_Batches(t *testing.T) {
	t.Parallel()
	b := newLedger(t)
	for range 43 {
		b.execute(t, "gl_accountant", "gl.post_journal", accrual("10", "2026-03-15", "2026-03-31"))
	}
	out := b.execute(t, "gl_accountant", "gl.run_due_reversals", `{"through": "2026-03-31"}`)
	require.Len(t, out.Events, 80)
	require.Equal(t, []string{"posted 40", "left 3"}, left(t, out))
	require.Equal(t, []string{"posted 3", "left 0"}, left(t, b.execute(t, "gl_accountant", "gl.run_due_reversals", `{"through": "2026-03-31"}`)))
}

func TestRunDueReversals_Approval(t *testing.T) {
	t.Parallel()
	b := newLedger(t)
	b.period(t, "open", "gl", "2026-04", "")
	b.execute(t, "controller", "gl.post_journal", accrual("20000", "2026-03-15", "2026-04-01"))
	b.execute(t, "gl_accountant", "gl.post_journal", accrual("10", "2026-03-15", "2026-03-31"))
	waiting := b.pend(t, "gl_accountant", "gl.run_due_reversals", `{"through": "2026-04-01"}`)
	require.Equal(t, "gl.journal.limit", waiting.Needs[0].RuleID)
	b.period(t, "soft", "gl", "2026-03", "")
	waiting = b.pend(t, "controller", "gl.run_due_reversals", `{"through": "2026-04-01"}`)
	require.Equal(t, "gl.period.late_posting", waiting.Needs[0].RuleID)
	require.Len(t, b.mustApprove(t, "cfo", waiting).Events, 4)
}

// TestClosePeriod_ReversalsDue: a period is not closed for good while journals are to be
// reversed in it, and no journal is to be reversed in a period that is.
func TestClosePeriod_ReversalsDue(t *testing.T) {
	t.Parallel()
	b := newLedger(t)
	b.period(t, "open", "gl", "2026-04", "")
	b.execute(t, "gl_accountant", "gl.post_journal", accrual("10", "2026-03-15", "2026-04-01"))
	hard := func(period string) string {
		return fmt.Sprintf(`{"module": "gl", "period": %q, "level": "hard"}`, period)
	}
	f := b.refuse(t, "gl.period.reversals_due", "controller", "gl.close_period", hard("2026-04"))
	require.Equal(t, []string{"GJ-2026-000001"}, f.Attributes["journal_numbers"])
	require.Contains(t, f.Detail, "GJ-2026-000001")
	b.execute(t, "gl_accountant", "gl.run_due_reversals", `{"through": "2026-04-30"}`)
	b.execute(t, "controller", "gl.close_period", hard("2026-04"))
	b.refuse(t, "gl.journal.reversal_date_invalid", "gl_accountant", "gl.post_journal", accrual("10", "2026-03-15", "2026-04-30"))
	b.execute(t, "gl_accountant", "gl.post_journal", accrual("10", "2026-03-15", "2026-05-01"))
	f = b.refuse(t, "gl.period.not_open", "gl_accountant", "gl.run_due_reversals", `{"through": "2026-05-01"}`)
	require.Equal(t, "GJ-2026-000002", f.Attributes["journal_number"])
}

// TestRunDueReversals_Race: runs at the same time reverse each journal once.
func TestRunDueReversals_Race(t *testing.T) {
	t.Parallel()
	b := newLedger(t)
	for range 10 {
		b.execute(t, "gl_accountant", "gl.post_journal", accrual("10", "2026-03-15", "2026-03-31"))
	}
	b.caller("module")
	counts := make([]int, 8)
	var wg sync.WaitGroup
	for i := range counts {
		wg.Go(func() {
			out, err := b.submit("module", "gl.run_due_reversals", `{"through": "2026-03-31"}`)
			if err == nil {
				counts[i] = len(out.Events)
			}
		})
	}
	wg.Wait()
	total := 0
	for _, n := range counts {
		total += n
	}
	require.Equal(t, 20, total)
}

func TestRunDueReversals_LongJournals(t *testing.T) {
	t.Parallel()
	b := newLedger(t)
	lines := strings.Repeat(`{"account": "1000", "debit_credit": "credit", "amount": 1}, {"account": "1400", "debit_credit": "debit", "amount": 1},`, 1000)
	long := fmt.Sprintf(`{"description": "Long", "posting_date": "2026-03-15", "reversal_date": "2026-03-31", "dimensions": {"department": "ENG"}, "lines": [%s]}`, strings.TrimSuffix(lines, ","))
	for range 7 {
		b.execute(t, "gl_accountant", "gl.post_journal", long)
	}
	require.Equal(t, []string{"posted 5", "left 2"}, left(t, b.execute(t, "module", "gl.run_due_reversals", `{"through": "2026-03-31"}`)))
	require.Equal(t, []string{"posted 2", "left 0"}, left(t, b.execute(t, "module", "gl.run_due_reversals", `{"through": "2026-03-31"}`)))
}
