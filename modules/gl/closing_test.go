package gl_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/pipeline"
	"github.com/erpbackbone/backbone/modules/gl/adapters/plugin"
	"github.com/erpbackbone/backbone/modules/gl/contract"
	"github.com/erpbackbone/backbone/test/moduletest"
)

// checklist reads the checklist of 2025-03 as "state count ids" by module/item.
func (f *yearFixture) checklist(period, knownAt string) map[string]string {
	out := map[string]string{}
	for _, raw := range f.ReportAt("gl/close-checklist", "2025-12-31", knownAt, map[string]string{"period": period}).Rows {
		r := raw.(contract.ChecklistRow)
		out[r.Module+"/"+r.Item] = fmt.Sprint(r.Blocking, " ", r.State, " ", r.Count, " ", r.IDs)
	}
	return out
}

func TestCloseChecklist(t *testing.T) {
	t.Parallel()
	f := newYearFixture(t)
	require.Equal(t, map[string]string{
		"gl/waiting_intents": "hard done 0 []", "ap/waiting_intents": "hard done 0 []", "gl/reversals_due": "hard done 0 []",
		"gl/recurring_due": "hard not_applicable 0 []", "gl/allocations_due": "soft not_applicable 0 []",
		"gl/closing_rates": "soft not_applicable 0 []", "gl/revaluation": "soft not_applicable 0 []", "gl/number_gaps": "hard done 0 []",
		"gl/intercompany": "soft not_applicable 0 []", "gl/bank_statements": "soft not_applicable 0 []", "gl/bank_lines": "soft not_applicable 0 []",
		"gl/earlier_periods": "hard open 2 [2025-01 2025-02]", "gl/year_closed": "hard not_applicable 0 []",
	}, f.checklist("2025-03", ""))

	f.Execute("gl_accountant", "gl.post_journal", entry("2025-03-12", "6000", "EUR", "100", `{"department": "FIN"}`))
	accrual := f.Execute("gl_accountant", "gl.post_journal", strings.Replace(entry("2025-02-28", "6000", "USD", "40", `{"department": "FIN"}`), "{", `{"reversal_date": "2025-03-01", `, 1))
	require.NotZero(t, accrual)
	f.Execute("gl_accountant", "gl.define_recurring_journal", `{"recurring_id": "RENT", "description": "Rent", "schedule": {"every": "month", "on": "day", "day": 1}, "from": "2025-03-01",
		"lines": [{"account": "6000", "debit_credit": "debit", "amount": 7, "dimensions": {"department": "FIN"}}, {"account": "1000", "debit_credit": "credit", "amount": 7}]}`)
	f.Execute("gl_accountant", "gl.define_allocation", `{"allocation_id": "rent", "description": "Rent", "source": {"account": "6000", "dimensions": {"department": "FIN"}},
		"targets": [{"dimensions": {"department": "ENG"}, "percent": 100}]}`)
	waiting := f.Pend("gl_accountant", "gl.post_journal", entry("2025-03-20", "6000", "USD", "20000", `{"department": "FIN"}`))
	before := f.Log()
	full := f.checklist("2025-03", "")
	for item, want := range map[string]string{
		"gl/waiting_intents": "hard open 1 [" + waiting.IntentID.String() + "]", "gl/reversals_due": "hard open 1 [GJ-2025-000002]",
		"gl/recurring_due": "hard open 1 [RENT 2025-03-01]", "gl/allocations_due": "soft open 1 [rent]",
		"gl/closing_rates": "soft open 1 [EUR]", "gl/revaluation": "soft open 1 [1100 EUR]",
	} {
		require.Equal(t, want, full[item], item)
	}
	require.Equal(t, "hard done 0 []", f.checklist("2025-04", "")["gl/waiting_intents"], "waits for another period")
	require.Equal(t, "hard open 1 [6000]", f.checklist("2025-12", "")["gl/year_closed"])

	// Each step takes its item off the list, and what blocked the close blocks it no more.
	closeHard := func(period string) string {
		return fmt.Sprintf(`{"module": "gl", "period": %q, "level": "hard"}`, period)
	}
	f.Execute("controller", "gl.close_period", closeHard("2025-01"))
	f.Execute("controller", "gl.close_period", closeHard("2025-02"))
	f.Refuse("gl.period.pending_intents", "controller", "gl.close_period", closeHard("2025-03"))
	_, err := f.Pipeline.Reject(t.Context(), f.Caller("controller"), pipeline.Decision{LegalEntity: f.Entity, Intent: waiting.IntentID, Comment: "no"})
	require.NoError(t, err)
	f.Refuse("gl.period.reversals_due", "controller", "gl.close_period", closeHard("2025-03"))
	f.Execute("gl_accountant", "gl.run_due_reversals", `{"through": "2025-03-31"}`)
	f.Refuse("gl.period.recurring_due", "controller", "gl.close_period", closeHard("2025-03"))
	f.Execute("gl_accountant", "gl.run_recurring", `{"through": "2025-03-31"}`)
	f.Execute("gl_accountant", "gl.run_allocation", `{"allocation_id": "rent", "period": "2025-03"}`)
	f.Execute("gl_accountant", "gl.set_exchange_rate", `{"from": "EUR", "to": "USD", "rate_type": "closing", "date": "2025-03-31", "rate": 1.20}`)
	require.Equal(t, "soft done 0 []", f.checklist("2025-03", "")["gl/closing_rates"])
	f.Execute("gl_accountant", "gl.revalue", `{"period": "2025-03"}`)
	for item, state := range f.checklist("2025-03", "") {
		require.Contains(t, state, []string{"done", "not_applicable"}[strings.Count(state, "not_")], item)
	}
	f.Execute("controller", "gl.close_period", closeHard("2025-03"))
	require.Equal(t, full, f.checklist("2025-03", fmt.Sprintf("seq:%d", before[len(before)-1].Sequence)), "as it was known then")

	var sheet []struct {
		Run                                                         int
		Account, Currency, Balance, Rate, Old, New, Delta, Reversed any
		PostedTo                                                    string `json:"posted_to"`
	}
	f.Report("gl/revaluations/{period}", map[string]string{"period": "2025-03"}, &sheet)
	require.Len(t, sheet, 1)
	row := sheet[0]
	require.Equal(t, []any{1, "1100", "EUR", "-100.00", "1.20", "-110.00", "-120.00", "-10.00", false, "1100"},
		[]any{row.Run, row.Account, row.Currency, row.Balance, row.Rate, row.Old, row.New, row.Delta, row.Reversed, row.PostedTo})
	f.Report("gl/revaluations/{period}", map[string]string{"period": "2025-03", "currency": "JPY"}, &sheet)
	require.Empty(t, sheet)
}

// The checklist names bank accounts whose statements do not reach the period's end or lack one
// before it, and those with lines that are not matched. It blocks nothing.
func TestCloseChecklist_BankAccounts(t *testing.T) {
	t.Parallel()
	f := newYearFixture(t)
	bank := func(knownAt string) []string {
		items := f.checklist("2025-03", knownAt)
		return []string{items["gl/bank_statements"], items["gl/bank_lines"]}
	}
	const none, done = "soft not_applicable 0 []", "soft done 0 []"
	open := func(account string) string { return "soft open 1 [" + account + "]" }
	f.Execute("treasurer", "gl.import_bank_statement", statement("A-1", "2025-04-30", "0", "5", "5"))
	require.Equal(t, []string{none, none}, bank(""), "the first statement is of a later period")

	f.Execute("treasurer", "gl.import_bank_statement", statement("M-1", "2025-03-15", "0", "-30", "-30"))
	require.Equal(t, []string{open("1010 USD"), open("1010 USD")}, bank(""), "the statement of April does not follow")
	rent := f.Execute("gl_accountant", "gl.post_journal", spend("30", "2025-03-04"))
	f.Execute("treasurer", "gl.match_bank_line", matchLine("M-1", 1, journalLine(rent, 2)))
	before := f.lastSequence()
	require.Equal(t, []string{open("1010 USD"), done}, bank(""))
	f.Execute("treasurer", "gl.import_bank_statement", statement("M-2", "2025-03-28", "-30", "0", "30"))
	require.Equal(t, []string{done, open("1010 USD")}, bank(""), "that of April says that there is none in between")
	require.Equal(t, []string{open("1010 USD"), done}, bank(before), "as it was known then")
	f.Execute("gl_accountant", "gl.post_journal", spend("1", "2025-04-02"))
	back := f.Execute("gl_accountant", "gl.reverse_journal", fmt.Sprintf(`{"journal_id": %q, "posting_date": "2025-03-28", "reason": "Twice"}`, rent.Events[0].Stream.ID))
	f.Execute("treasurer", "gl.match_bank_line", matchLine("M-2", 1, journalLine(back, 2)))
	require.Equal(t, []string{done, done}, bank(""), "lines of April count in April")

	f.Execute("treasurer", "gl.discard_bank_statement", discard("A-1", 1))
	require.Equal(t, []string{open("1010 USD"), done}, bank(""), "the statements end on 28 March")
	f.Execute("gl_accountant", "gl.block_account", `{"code": "1010", "reason": "The bank account was closed"}`)
	require.Equal(t, []string{none, none}, bank(""))
	f.Execute("gl_accountant", "gl.unblock_account", `{"code": "1010", "reason": "A late fee"}`)
	require.Equal(t, []string{open("1010 USD"), done}, bank(""))
	for _, period := range []string{"2025-01", "2025-02", "2025-03"} {
		f.Execute("controller", "gl.close_period", fmt.Sprintf(`{"module": "gl", "period": %q, "level": "hard"}`, period))
	}
}

type pairReport struct {
	Counterparty, State, Amount, Difference string
	BegunBy                                 string `json:"begun_by"`
	CounterpartyAmount                      string `json:"counterparty_amount"`
	NextStep                                string `json:"next_step"`
}

func TestIntercompanyReport(t *testing.T) {
	t.Parallel()
	us := moduletest.NewOnPostgres(t, plugin.New())
	de := us.Another("DEMF")
	for _, b := range []*moduletest.Books{us, de} {
		b.Execute("admin", "gl.configure_ledger", `{"functional_currency": "EUR", "default_dimensions": {"department": "ENG"}, "second_person": false, "orderly_close": false,
			"posting_profile": {"due_from": "1910", "due_to": "2910"}}`)
		for _, a := range []string{
			`{"code": "1000", "name": "Bank", "type": "asset"}`, `{"code": "1910", "name": "Due from affiliates", "type": "asset"}`,
			`{"code": "2910", "name": "Due to affiliates", "type": "liability"}`, `{"code": "6000", "name": "Services", "type": "expense"}`,
		} {
			b.Execute("gl_accountant", "gl.define_account", a)
		}
		b.Execute("gl_accountant", "gl.define_dimension_value", `{"dimension": "department", "value": "ENG", "name": "Engineering"}`)
		b.Execute("controller", "gl.define_fiscal_year", `{"label": "2026", "start": "2026-01-01", "end": "2026-12-31"}`)
		b.Execute("controller", "gl.open_period", `{"module": "gl", "period": "2026-03"}`)
	}
	pairs := func(b *moduletest.Books) (rows []pairReport) {
		b.ReportAsOf("gl/intercompany", "2026-12-31", map[string]string{"period": "2026-03"}, &rows)
		return rows
	}
	first := us.Execute("gl_accountant", "gl.post_intercompany", paidFor("100.00")).Events[1].Stream.ID
	require.Equal(t, []pairReport{{"DEMF", "under_way", "100.00", "100.00", "USMF", "0.00", "gl.mirror_intercompany in DEMF"}}, pairs(us))
	require.Equal(t, []pairReport{{"USMF", "incoming", "0.00", "100.00", "USMF", "100.00", "gl.mirror_intercompany or gl.refuse_intercompany here"}}, pairs(de))

	de.Execute("module", "gl.mirror_intercompany", fmt.Sprintf(`{"pair_id": %q, "initiator": "USMF"}`, first))
	require.Equal(t, []pairReport{{"USMF", "complete", "-100.00", "0.00", "USMF", "100.00", ""}}, pairs(de)) // waits for DEMF's rows
	require.Equal(t, []pairReport{{"DEMF", "complete", "100.00", "0.00", "USMF", "-100.00", ""}}, pairs(us))

	// A pair that was refused there is refused and reversed here.
	second := us.Execute("gl_accountant", "gl.post_intercompany", paidFor("50.00")).Events
	de.Execute("module", "gl.refuse_intercompany", fmt.Sprintf(`{"pair_id": %q, "initiator": "USMF", "reason": "x"}`, second[1].Stream.ID))
	require.Len(t, pairs(us), 2) // waits for USMF's rows, as the next one for DEMF's
	require.Equal(t, "refused", pairs(de)[1].State)
	require.Equal(t, "refused_there", pairs(us)[1].State)
	us.Execute("module", "gl.refuse_intercompany", fmt.Sprintf(`{"pair_id": %q, "reason": "x"}`, second[1].Stream.ID))
	require.Equal(t, pairReport{"DEMF", "refused", "50.00", "50.00", "USMF", "0.00", "gl.reverse_journal here"}, pairs(us)[1])
	us.Execute("gl_accountant", "gl.reverse_journal", fmt.Sprintf(`{"journal_id": %q, "posting_date": "2026-03-20", "reason": "x"}`, second[0].Stream.ID))
	require.Equal(t, pairReport{"DEMF", "reversed", "0.00", "0.00", "USMF", "0.00", ""}, pairs(us)[1])
}
