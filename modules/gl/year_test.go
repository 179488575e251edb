package gl_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	adapterplugin "github.com/erpbackbone/backbone/adapters/plugin"
	"github.com/erpbackbone/backbone/application/pipeline"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/modules/gl/adapters/plugin"
	"github.com/erpbackbone/backbone/test/moduletest"
)

// yearFixture is a ledger in USD over PostgreSQL with the fiscal years 2025 and 2026, whose
// periods of 2025 and 2026-01 are open. Services are split by department and project.
type yearFixture struct {
	*moduletest.Books
}

const yearConfiguration = `{"functional_currency": "USD", "default_dimensions": {"department": "OPS"}, "rate_age_days": 366,
	"posting_profile": {"ap_control": "2000", "rounding": "6990", "retained_earnings": "3000", "fx_unrealised": "7900", "ap_revaluation": "2090"},
	"second_person": %t, "orderly_close": true}`

func newYearFixture(t *testing.T) *yearFixture {
	t.Helper()
	f := &yearFixture{moduletest.NewOnPostgres(t, plugin.New(), adapterplugin.Module{Module: causingModule{}})}
	f.Problems = problems
	f.Execute("admin", "gl.configure_ledger", fmt.Sprintf(yearConfiguration, false))
	for _, a := range append([]string{
		`{"code": "1100", "name": "Bank in euros", "type": "asset", "revalue": true}`,
		`{"code": "2090", "name": "Revaluation of payables", "type": "liability"}`,
		`{"code": "3000", "name": "Retained earnings", "type": "equity"}`,
		`{"code": "4000", "name": "Sales", "type": "income"}`,
		`{"code": "7900", "name": "Unrealised exchange differences", "type": "expense"}`,
	}, exampleAccounts...) {
		f.Execute("gl_accountant", "gl.define_account", a)
	}
	for _, v := range append([]string{`{"dimension": "project", "value": "P-1", "name": "Bridge"}`}, exampleDimensionValues...) {
		f.Execute("gl_accountant", "gl.define_dimension_value", v)
	}
	for _, year := range []string{"2025", "2026"} {
		f.Execute("controller", "gl.define_fiscal_year", fmt.Sprintf(`{"label": %q, "start": "%s-01-01", "end": "%s-12-31"}`, year, year, year))
	}
	for month := 1; month <= 12; month++ {
		f.period("open", fmt.Sprintf("2025-%02d", month))
	}
	f.period("open", "2026-01")
	f.Execute("gl_accountant", "gl.set_exchange_rate", `{"from": "EUR", "to": "USD", "rate_type": "spot", "date": "2025-03-01", "rate": 1.10}`)
	f.Execute("gl_accountant", "gl.set_exchange_rate", `{"from": "EUR", "to": "USD", "rate_type": "spot", "date": "2025-09-01", "rate": 1.20}`)
	return f
}

func (f *yearFixture) period(step, period string) {
	switch step {
	case "soft", "hard":
		f.Execute("controller", "gl.close_period", fmt.Sprintf(`{"module": "gl", "period": %q, "level": %q}`, period, step))
	default:
		f.Execute("controller", "gl."+step+"_period", fmt.Sprintf(`{"module": "gl", "period": %q, "reason": "x"}`, period))
	}
}

func (f *yearFixture) closePeriods() {
	for month := 1; month <= 12; month++ {
		f.period("soft", fmt.Sprintf("2025-%02d", month))
	}
}

// entry is a journal between an account (debit) and a bank.
func entry(date, account, currency, amount, dimensions string) string {
	bank := map[string]string{"USD": "1000", "EUR": "1100"}[currency]
	return fmt.Sprintf(`{"description": "Entry", "posting_date": %q, "currency": %q, "lines": [
		{"account": %q, "debit_credit": "debit", "amount": %s, "dimensions": %s},
		{"account": %q, "debit_credit": "credit", "amount": %s}]}`, date, currency, account, amount, dimensions, bank, amount)
}

func sale(date, amount, dimensions string) string {
	return fmt.Sprintf(`{"description": "Sale", "posting_date": %q, "lines": [
		{"account": "1000", "debit_credit": "debit", "amount": %s},
		{"account": "4000", "debit_credit": "credit", "amount": %s, "dimensions": %s}]}`, date, amount, amount, dimensions)
}

// postYear posts income and expense in two currencies and several combinations of dimensions.
func (f *yearFixture) postYear() {
	for _, journal := range []string{
		sale("2025-02-10", "5000", `{"department": "ENG"}`),
		sale("2025-11-10", "250.50", `{"department": "ENG", "project": "P-1"}`),
		entry("2025-03-10", "6000", "USD", "1200", `{"department": "ENG"}`),
		entry("2025-03-11", "6000", "USD", "300", `{"department": "FIN", "project": "P-1"}`),
		entry("2025-03-12", "6000", "EUR", "100", `{"department": "FIN"}`), // 110 USD
		`{"description": "Refund", "posting_date": "2025-09-12", "currency": "EUR", "lines": [
			{"account": "1100", "debit_credit": "debit", "amount": 95},
			{"account": "6000", "debit_credit": "credit", "amount": 95, "dimensions": {"department": "FIN"}}]}`, // 114 USD: 5 EUR debit, 4 USD credit remain
		entry("2026-01-10", "6000", "USD", "77", `{"department": "ENG"}`),
	} {
		f.Execute("gl_accountant", "gl.post_journal", journal)
	}
}

type balanceRow struct {
	Account, Currency, Balance string
	Dimensions                 map[string]string
	FunctionalBalance          string `json:"functional_balance"`
}

const closeYear = `{"fiscal_year": "2025"}`

func TestCloseYear(t *testing.T) {
	t.Parallel()
	f := newYearFixture(t)
	f.postYear()
	f.Refuse("gl.year.periods_open", "controller", "gl.close_year", closeYear)
	f.closePeriods()
	f.Refuse("gl.fiscal_year.not_found", "controller", "gl.close_year", `{"fiscal_year": "1999"}`)
	f.Refuse("intent.forbidden", "gl_accountant", "gl.close_year", closeYear)
	f.Refuse("gl.year.wrong_state", "controller", "gl.reopen_year", closeYear)
	before := f.opening(t)
	f.Execute("controller", "gl.close_year", closeYear)
	require.Empty(t, f.resultOf2025(t))
	closedOnce := f.opening(t)
	require.NotEqual(t, before, closedOnce)
	f.Refuse("gl.year.already_closed", "controller", "gl.close_year", closeYear)

	// A late posting is closed by the difference.
	late := f.Pend("gl_accountant", "gl.post_journal", entry("2025-06-10", "6000", "USD", "40", `{"department": "FIN"}`))
	_, err := f.Approve("cfo", late)
	require.NoError(t, err)
	require.Len(t, f.resultOf2025(t), 1)
	second := f.Execute("controller", "gl.close_year", closeYear)
	require.Len(t, second.Events, 2)
	require.Empty(t, f.resultOf2025(t))
	twice := f.opening(t)

	f.Refuse("gl.journal.is_closing", "gl_accountant", "gl.reverse_journal", fmt.Sprintf(`{"journal_id": %q, "posting_date": "2025-12-31", "reason": "x"}`, second.Events[0].Stream.ID))
	reopened := f.Execute("controller", "gl.reopen_year", closeYear)
	require.Len(t, reopened.Events, 5, "two closing journals are reversed")
	require.Len(t, f.resultOf2025(t), 6)
	f.Refuse("gl.year.wrong_state", "controller", "gl.reopen_year", closeYear)
	f.Execute("controller", "gl.close_year", closeYear)
	require.Empty(t, f.resultOf2025(t))
	require.Equal(t, twice, f.opening(t), "the detour leaves no trace")

	plain := newYearFixture(t)
	plain.postYear()
	plain.Execute("gl_accountant", "gl.post_journal", entry("2025-06-10", "6000", "USD", "40", `{"department": "FIN"}`))
	plain.closePeriods()
	plain.Execute("controller", "gl.close_year", closeYear)
	require.Equal(t, plain.opening(t), twice)
}

// resultOf2025 reads the balances of income and expense that are left in 2025.
func (f *yearFixture) resultOf2025(t *testing.T) []balanceRow {
	t.Helper()
	return f.balances(t, "income", "2025-12-31")
}

// opening reads the balances with which 2026 begins.
func (f *yearFixture) opening(t *testing.T) []balanceRow {
	t.Helper()
	return f.balances(t, "", "2025-12-31")
}

func (f *yearFixture) balances(t *testing.T, statement, asOf string) (rows []balanceRow) {
	t.Helper()
	params := map[string]string{}
	if statement != "" {
		params["statement"] = statement
	}
	f.ReportAsOf("gl/balances", asOf, params, &rows)
	return rows
}

func TestCloseYear_SecondPerson(t *testing.T) {
	t.Parallel()
	f := newYearFixture(t)
	f.postYear()
	f.closePeriods()
	f.Execute("admin", "gl.configure_ledger", fmt.Sprintf(yearConfiguration, true))
	waiting := f.Pend("controller", "gl.close_year", closeYear)
	require.Len(t, waiting.Needs, 1, "a softly closed period asks for no second approval")
	_, err := f.Approve("gl_accountant", waiting)
	require.Error(t, err)
	_, err = f.Approve("controller:2", waiting)
	require.NoError(t, err)
	require.Empty(t, f.resultOf2025(t))
}

func TestCloseYear_PriorYear(t *testing.T) {
	t.Parallel()
	f := newYearFixture(t)
	f.postYear()
	f.closePeriods()
	f.closePeriods2026()
	f.Refuse("gl.year.prior_open", "controller", "gl.close_year", closeYear2026)
	f.Execute("controller", "gl.close_year", closeYear)
	f.Execute("controller", "gl.close_year", closeYear2026)
	require.Empty(t, f.balances(t, "income", "2026-12-31"))
}

const closeYear2026 = `{"fiscal_year": "2026"}`

// closePeriods2026 opens and closes the periods of 2026, of which January is open.
func (f *yearFixture) closePeriods2026() {
	f.period("soft", "2026-01")
	for month := 2; month <= 12; month++ {
		f.period("open", fmt.Sprintf("2026-%02d", month))
		f.period("soft", fmt.Sprintf("2026-%02d", month))
	}
}

// TestReopenYear_LaterYear reopens years from the last closed one back, also years without a balance.
func TestReopenYear_LaterYear(t *testing.T) {
	t.Parallel()
	for name, post := range map[string]func(*yearFixture){"with balances": (*yearFixture).postYear, "without balances": func(*yearFixture) {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newYearFixture(t)
			post(f)
			f.closePeriods()
			f.closePeriods2026()
			f.Execute("controller", "gl.close_year", closeYear)
			f.Execute("controller", "gl.close_year", closeYear2026)
			f.Refuse("gl.year.later_closed", "controller", "gl.reopen_year", closeYear)
			f.Execute("controller", "gl.reopen_year", closeYear2026)
			f.Execute("controller", "gl.reopen_year", closeYear)
			f.Refuse("gl.year.prior_open", "controller", "gl.close_year", closeYear2026)
			f.Execute("controller", "gl.close_year", closeYear)
			f.Execute("controller", "gl.close_year", closeYear2026)
		})
	}
}

// TestReopenYear_RacesWithLaterClose lets clients reopen a year while others close the next one: one
// request takes effect, whichever it is. Neither year has a balance, so no journal decides.
func TestReopenYear_RacesWithLaterClose(t *testing.T) {
	t.Parallel()
	f := newYearFixture(t)
	f.closePeriods()
	f.closePeriods2026()
	f.Execute("controller", "gl.close_year", closeYear)
	won := [2]int{}
	for round := range 16 {
		codes := [8]string{}
		var running sync.WaitGroup
		for i := range codes {
			running.Go(func() {
				request := [2]string{"gl.reopen_year", closeYear}
				if i%2 == 1 {
					request = [2]string{"gl.close_year", closeYear2026}
				} else if round%2 == 1 { // a closing reads balances: without this, each reopening would come first
					for range 2 {
						f.resultOf2025(t)
					}
				}
				_, err := f.Submit("controller", request[0], request[1])
				codes[i] = fault.CodeOf(err)
			})
		}
		running.Wait()
		winner := slices.Index(codes[:], "")
		require.GreaterOrEqual(t, winner, 0, "%v", codes)
		require.NotContains(t, codes[winner+1:], "", "%v", codes)
		if winner %= 2; winner == 0 {
			f.Execute("controller", "gl.close_year", closeYear)
		} else {
			f.Execute("controller", "gl.reopen_year", closeYear2026)
		}
		won[winner]++
	}
	t.Logf("reopened %d times, closed %d times", won[0], won[1])
}

func TestCloseYear_WithoutBalances(t *testing.T) {
	t.Parallel()
	f := newYearFixture(t)
	f.closePeriods()
	require.Len(t, f.Execute("controller", "gl.close_year", closeYear).Events, 1)
	f.Refuse("gl.year.already_closed", "controller", "gl.close_year", closeYear)
	require.Len(t, f.Execute("controller", "gl.reopen_year", closeYear).Events, 1)
}

func TestHardClose_LastPeriodOfYear(t *testing.T) {
	t.Parallel()
	f := newYearFixture(t)
	f.postYear()
	f.closePeriods()
	for month := 1; month <= 11; month++ {
		f.period("hard", fmt.Sprintf("2025-%02d", month))
	}
	const last = `{"module": "gl", "period": "2025-12", "level": "hard"}`
	f.Refuse("gl.period.year_open", "controller", "gl.close_period", last)
	f.Execute("controller", "gl.close_year", closeYear)
	late := f.Pend("gl_accountant", "gl.post_journal", entry("2025-12-10", "6000", "USD", "40", `{"department": "FIN"}`))
	_, err := f.Approve("cfo", late)
	require.NoError(t, err)
	f.Refuse("gl.period.year_open", "controller", "gl.close_period", last)
	f.Execute("controller", "gl.close_year", closeYear)
	f.Execute("controller", "gl.close_period", last)
	f.Refuse("gl.period.hard_closed", "controller", "gl.reopen_year", closeYear)
}

// TestCloseYear_ManyCombinations closes more balances than one journal has lines.
func TestCloseYear_ManyCombinations(t *testing.T) {
	t.Parallel()
	f := newYearFixture(t)
	const perJournal = 1999
	for journal := range 2 {
		lines := []string{fmt.Sprintf(`{"account": "1000", "debit_credit": "credit", "amount": %d}`, perJournal)}
		for i := range perJournal {
			lines = append(lines, fmt.Sprintf(`{"account": "6000", "debit_credit": "debit", "amount": 1, "dimensions": {"department": "ENG", "vendor": "V-%d-%d"}}`, journal, i))
		}
		f.Execute("gl_accountant", "gl.post_journal", `{"description": "Many", "posting_date": "2025-03-10", "lines": [`+strings.Join(lines, ",")+`]}`)
	}
	f.closePeriods()
	require.Len(t, f.resultOf2025(t), 2*perJournal)
	require.Len(t, f.Execute("controller", "gl.close_year", closeYear).Events, 5+1)
	require.Empty(t, f.resultOf2025(t))
	require.Len(t, f.Execute("controller", "gl.reopen_year", closeYear).Events, 2*5+1)
	require.Len(t, f.resultOf2025(t), 2*perJournal)
}

// TestCloseYear_ConcurrentPostings closes a year while others approve late postings into it.
// Whatever commits between read and append makes the closing again, so what is left is what
// committed after the last closing.
func TestCloseYear_ConcurrentPostings(t *testing.T) {
	t.Parallel()
	f := newYearFixture(t)
	f.postYear()
	f.closePeriods()
	var waiting []pipeline.Outcome
	for i := range 20 {
		waiting = append(waiting, f.Pend("gl_accountant", "gl.post_journal", entry("2025-06-10", "6000", "USD", fmt.Sprint(i+1), `{"department": "FIN"}`)))
	}
	var running sync.WaitGroup
	running.Go(func() {
		for _, w := range waiting {
			if _, err := f.Approve("cfo", w); err != nil {
				t.Error(err)
			}
		}
	})
	running.Go(func() {
		for range 6 {
			_, err := f.Submit("controller", "gl.close_year", closeYear)
			switch fault.CodeOf(err) {
			case "", "gl.year.already_closed", "append.condition_failed", "append.wrong_expected_version":
			default:
				t.Error(err)
			}
		}
	})
	running.Wait()
	if out, err := f.Submit("controller", "gl.close_year", closeYear); err == nil {
		require.Equal(t, intent.Executed, out.Status)
	} else {
		require.Equal(t, "gl.year.already_closed", fault.CodeOf(err))
	}
	require.Empty(t, f.resultOf2025(t))
}
