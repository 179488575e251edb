package gl_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/pipeline"
)

// newRevaluationFixture is a yearFixture in which 100 EUR were paid and 200 EUR are owed, both
// booked at 1.10.
func newRevaluationFixture(t *testing.T) *yearFixture {
	t.Helper()
	f := newYearFixture(t)
	f.Execute("controller", "gl.open_period", `{"module": "ap", "period": "2025-03"}`)
	f.Execute("gl_accountant", "gl.post_journal", entry("2025-03-12", "6000", "EUR", "100", `{"department": "FIN"}`))
	f.Execute("gl_accountant", "ap.cause", `{"date": "2025-03-15", "account": "6000", "control": "2000", "currency": "EUR", "amount": 200}`)
	return f
}

func closingRate(date, rate, reason string) string {
	return fmt.Sprintf(`{"from": "EUR", "to": "USD", "rate_type": "closing", "date": %q, "rate": %s, "reason": %q}`, date, rate, reason)
}

// functional reads the balances of accounts as of a day in functional currency, of all
// currencies and dimensions together.
func (f *yearFixture) functional(t *testing.T, asOf string, accounts ...string) (out []string) {
	t.Helper()
	var rows []struct{ Account, Balance string }
	f.ReportAsOf("gl/trial-balance", asOf, nil, &rows)
	for _, account := range accounts {
		balance := "0.00"
		for _, row := range rows {
			if row.Account == account {
				balance = row.Balance
			}
		}
		out = append(out, balance)
	}
	return out
}

func TestRevalue(t *testing.T) {
	t.Parallel()
	f := newRevaluationFixture(t)
	march := `{"period": "2025-03"}`
	accounts := []string{"1100", "2000", "2090", "7900"}
	f.Refuse("gl.period.undefined", "gl_accountant", "gl.revalue", `{"period": "1999-01"}`)
	f.Refuse("gl.rate.missing", "gl_accountant", "gl.revalue", march)
	f.Refuse("intent.forbidden", "cfo", "gl.revalue", march)
	f.Execute("gl_accountant", "gl.set_exchange_rate", closingRate("2025-03-31", "1.25", "x"))
	require.Equal(t, []string{"-110.00", "-220.00", "0.00", "0.00"}, f.functional(t, "2025-03-31", accounts...))
	first := f.Execute("gl_accountant", "gl.revalue", march)
	require.Len(t, first.Events, 2)
	require.Equal(t, []string{"-125.00", "-220.00", "-30.00", "45.00"}, f.functional(t, "2025-03-31", accounts...), "payables are revalued beside their control account")
	f.Refuse("gl.revaluation.already_run", "gl_accountant", "gl.revalue", march)

	// The reversal of the next day leaves the period's end as it is, so another run posts the
	// difference to a corrected rate.
	f.reverse(first, "2025-04-01")
	require.Equal(t, []string{"-110.00", "-220.00", "0.00", "0.00"}, f.functional(t, "2025-04-01", accounts...))
	f.Execute("gl_accountant", "gl.set_exchange_rate", closingRate("2025-03-31", "1.30", "published late"))
	second := f.Execute("gl_accountant", "gl.revalue", march)
	require.Equal(t, []string{"-130.00", "-220.00", "-40.00", "60.00"}, f.functional(t, "2025-03-31", accounts...))
	f.reverse(second, "2025-03-31")
	require.Equal(t, []string{"-125.00", "-220.00", "-30.00", "45.00"}, f.functional(t, "2025-03-31", accounts...))
	third := f.Execute("gl_accountant", "gl.revalue", march)
	require.Equal(t, []string{"-130.00", "-220.00", "-40.00", "60.00"}, f.functional(t, "2025-03-31", accounts...), "a reversal on the same day starts from the values before")
	f.reverse(third, "2025-04-01")
	require.Equal(t, []string{"-110.00", "-220.00", "0.00", "0.00"}, f.functional(t, "2025-04-01", accounts...), "nothing unrealised is left")
}

func (f *yearFixture) reverse(revalued pipeline.Outcome, date string) {
	f.Execute("gl_accountant", "gl.reverse_journal", fmt.Sprintf(`{"journal_id": %q, "posting_date": %q, "reason": "Due"}`, revalued.Events[0].Stream.ID, date))
}

func TestRevalue_WithoutDifference(t *testing.T) {
	t.Parallel()
	f := newRevaluationFixture(t)
	f.Execute("gl_accountant", "gl.set_exchange_rate", closingRate("2025-03-31", "1.10", "x"))
	require.Len(t, f.Execute("gl_accountant", "gl.revalue", `{"period": "2025-03"}`).Events, 1, "a worksheet and no journal")
	require.Len(t, f.Execute("gl_accountant", "gl.revalue", `{"period": "2025-03"}`).Events, 1)
}

func TestRevalue_Worksheet(t *testing.T) {
	t.Parallel()
	f := newRevaluationFixture(t)
	f.Execute("gl_accountant", "gl.set_exchange_rate", closingRate("2025-03-31", "1.05", "x"))
	out := f.Execute("gl_accountant", "gl.revalue", `{"period": "2025-03"}`)
	var completed struct {
		Data struct {
			Worksheet  json.RawMessage
			JournalIDs []string `json:"journal_ids"`
			Total      json.Number
		}
	}
	require.NoError(t, json.Unmarshal(f.Event(out.Events[1].Sequence).Payload, &completed))
	require.JSONEq(t, `[
		{"account": "1100", "currency": "EUR", "balance": -100, "rate": 1.05, "rate_date": "2025-03-31", "old": -110.00, "new": -105.00, "delta": 5.00},
		{"account": "2000", "currency": "EUR", "posted_to": "2090", "balance": -200, "rate": 1.05, "rate_date": "2025-03-31", "old": -220.00, "new": -210.00, "delta": 10.00}
	]`, string(completed.Data.Worksheet))
	require.Equal(t, []string{out.Events[0].Stream.ID}, completed.Data.JournalIDs)
	require.Equal(t, "15.00", completed.Data.Total.String())
	var posted struct {
		Data struct {
			Type         string `json:"journal_type"`
			ReversalDate string `json:"reversal_date"`
		}
	}
	require.NoError(t, json.Unmarshal(f.Event(out.Events[0].Sequence).Payload, &posted))
	require.Equal(t, []string{"revaluation", "2025-04-01"}, []string{posted.Data.Type, posted.Data.ReversalDate})
}

func TestRevalue_Approvals(t *testing.T) {
	t.Parallel()
	f := newRevaluationFixture(t)
	f.Execute("gl_accountant", "gl.set_exchange_rate", closingRate("2025-03-31", "1.25", "x"))
	f.period("soft", "2025-03")
	f.Execute("admin", "gl.configure_ledger", fmt.Sprintf(yearConfiguration, true))
	waiting := f.Pend("gl_accountant", "gl.revalue", `{"period": "2025-03"}`)
	require.Len(t, waiting.Needs, 2, "a second person, and a late posting")
	_, err := f.Approve("controller", waiting)
	require.NoError(t, err)
	require.Equal(t, []string{"45.00"}, f.functional(t, "2025-03-31", "7900"))
}
