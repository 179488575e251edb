package gl_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/pipeline"
)

// recurring is a definition between account 6000 (debit) and 1000 (credit).
func recurring(id, schedule, dates, amount string) string {
	return fmt.Sprintf(`{"recurring_id": %q, "description": "Rent", "schedule": %s, %s, "dimensions": {"department": "ENG"}, "lines": [
		{"account": "6000", "debit_credit": "debit", "amount": %s}, {"account": "1000", "debit_credit": "credit", "amount": %s}]}`, id, schedule, dates, amount, amount)
}

const firstOfMonth = `{"every": "month", "on": "day", "day": 1}`

// postedDates lists the journals of a run as "RENT 2026-03-01".
func (b *ledgerFixture) postedDates(t *testing.T, out pipeline.Outcome) []string {
	t.Helper()
	var got []string
	for len(out.Events) > 0 {
		e, data := b.journal(t, out)
		got = append(got, fmt.Sprint(data["recurring_id"], " ", e.EffectiveDate))
		out.Events = out.Events[1:]
	}
	return got
}

func TestRunRecurring(t *testing.T) {
	t.Parallel()
	b := newLedger(t)
	b.period(t, "open", "gl", "2026-04", "")
	defined := b.execute(t, "gl_accountant", "gl.define_recurring_journal", recurring("RENT", firstOfMonth, `"from": "2026-03-01", "until": "2026-06-30"`, "12.50"))
	b.execute(t, "gl_accountant", "gl.define_recurring_journal", recurring("AUDIT", `{"every": "month", "on": "period_end"}`, `"from": "2026-03-15", "reverse": "next_period"`, "5"))
	run := func(payload string) []string {
		t.Helper()
		return b.postedDates(t, b.execute(t, "module", "gl.run_recurring", payload))
	}
	out := b.execute(t, "module", "gl.run_recurring", `{"through": "2026-03-31"}`)
	require.Equal(t, []string{"posted 2", "left 0"}, left(t, out))
	e, data := b.journal(t, out)
	require.Equal(t, "general", data["journal_type"])
	require.Equal(t, "Rent", data["description"])
	require.Equal(t, defined.Events[0].ID, e.CausedBy)
	require.NotContains(t, data, "reversal_date")
	require.Equal(t, []string{"RENT 2026-03-01", "AUDIT 2026-03-31"}, b.postedDates(t, out))
	out.Events = out.Events[1:]
	_, data = b.journal(t, out)
	require.Equal(t, "2026-04-01", data["reversal_date"])

	require.Empty(t, run(`{"through": "2026-03-31"}`), "each date once")
	require.Len(t, b.execute(t, "module", "gl.run_due_reversals", `{"through": "2026-04-01"}`).Events, 2)
	require.Empty(t, run(`{"through": "2026-03-31"}`), "also after its reversal")
	require.Equal(t, []string{"RENT 2026-04-01"}, run(`{"through": "2026-04-30", "recurring_id": "RENT"}`))
	f := b.refuse(t, "gl.period.not_open", "module", "gl.run_recurring", `{"through": "2026-05-31"}`)
	require.Equal(t, "RENT", f.Attributes["recurring_id"])
	require.Equal(t, "2026-05-01", f.Attributes["date"])

	// A later definition counts from now on; what was posted stays posted.
	b.execute(t, "gl_accountant", "gl.define_recurring_journal", recurring("RENT", `{"every": "month", "on": "day", "day": 30}`, `"from": "2026-04-01", "until": "2026-04-30"`, "13"))
	require.Equal(t, []string{"AUDIT 2026-04-30", "RENT 2026-04-30"}, run(`{"through": "2026-04-30"}`))
	require.Empty(t, run(`{"through": "2026-05-30", "recurring_id": "RENT"}`))
	b.refuse(t, "gl.recurring.not_found", "module", "gl.run_recurring", `{"through": "2026-03-31", "recurring_id": "LOAN"}`)
}

func TestRunRecurring_Batches(t *testing.T) {
	t.Parallel()
	b := newLedger(t)
	for i := range 43 {
		b.execute(t, "gl_accountant", "gl.define_recurring_journal", recurring(fmt.Sprintf("R%02d", i), firstOfMonth, `"from": "2026-03-01"`, "1"))
	}
	require.Equal(t, []string{"posted 40", "left 3"}, left(t, b.execute(t, "gl_accountant", "gl.run_recurring", `{"through": "2026-03-31"}`)))
	require.Equal(t, []string{"posted 3", "left 0"}, left(t, b.execute(t, "gl_accountant", "gl.run_recurring", `{"through": "2026-03-31"}`)))
}

func TestRunRecurring_Race(t *testing.T) {
	t.Parallel()
	b := newLedger(t)
	b.execute(t, "gl_accountant", "gl.define_recurring_journal", recurring("RENT", firstOfMonth, `"from": "2026-03-01"`, "1"))
	b.caller("module")
	counts := make([]int, 8)
	var wg sync.WaitGroup
	for i := range counts {
		wg.Go(func() {
			if out, err := b.submit("module", "gl.run_recurring", `{"through": "2026-03-31"}`); err == nil {
				counts[i] = len(out.Events)
			}
		})
	}
	wg.Wait()
	total := 0
	for _, n := range counts {
		total += n
	}
	require.Equal(t, 1, total)
}

func TestDefineRecurring_Refusals(t *testing.T) {
	t.Parallel()
	b := newLedger(t)
	valid := recurring("RENT", firstOfMonth, `"from": "2026-03-01"`, "5")
	for _, c := range []struct{ name, code, payload string }{
		{"day missing", "intent.schema_invalid", strings.Replace(valid, `, "day": 1`, "", 1)},
		{"day of a period end", "intent.schema_invalid", strings.Replace(valid, `"on": "day"`, `"on": "period_end"`, 1)},
		{"until before from", "intent.schema_invalid", strings.Replace(valid, `"from"`, `"until": "2026-02-01", "from"`, 1)},
		{"unbalanced", "gl.journal.unbalanced", strings.Replace(valid, `"amount": 5`, `"amount": 4`, 1)},
		{"zero", "gl.journal.zero", strings.ReplaceAll(valid, `"amount": 5`, `"amount": 0`)},
		{"control account", "gl.account.control_account", strings.Replace(valid, `"6000"`, `"2000"`, 1)},
		{"unknown account", "gl.account.not_found", strings.Replace(valid, `"6000"`, `"6001"`, 1)},
		{"scale", "money.scale", strings.ReplaceAll(valid, `"amount": 5`, `"amount": 5.001`)},
		{"no rate", "gl.rate.missing", strings.Replace(valid, `"from"`, `"currency": "GBP", "from"`, 1)},
		{"one line", "gl.journal.line_count", strings.Replace(valid, `, {"account": "1000", "debit_credit": "credit", "amount": 5}`, "", 1)},
		{"blank", "text.blank", strings.Replace(valid, `"Rent"`, `" "`, 1)},
	} {
		t.Run(c.name, func(t *testing.T) { b.refuse(t, c.code, "gl_accountant", "gl.define_recurring_journal", c.payload) })
	}
	f := b.refuse(t, "gl.rate.missing", "gl_accountant", "gl.define_recurring_journal", strings.Replace(valid, `"from"`, `"currency": "GBP", "from"`, 1))
	require.Equal(t, "/payload/lines/0/currency", f.Field)

	// A service without a limit may post it later, so its amount counts now.
	waiting := b.pend(t, "gl_accountant", "gl.define_recurring_journal", recurring("BIG", firstOfMonth, `"from": "2026-03-01"`, "10000.01"))
	require.Equal(t, "gl.journal.limit", waiting.Needs[0].RuleID)
	b.mustApprove(t, "controller", waiting)
	require.Len(t, b.execute(t, "module", "gl.run_recurring", `{"through": "2026-03-31"}`).Events, 1)
}
