package gl_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/fault"
)

func TestExchangeRates(t *testing.T) {
	t.Parallel()
	b := newLedger(t)
	set := func(from, to, date, rate, more string) string {
		return fmt.Sprintf(`{"from": %q, "to": %q, "date": %q, "rate": %s%s}`, from, to, date, rate, more)
	}
	for _, c := range []struct{ code, payload string }{
		{"gl.rate.value_invalid", set("EUR", "USD", "2026-03-02", "0", "")},
		{"gl.rate.value_invalid", set("EUR", "USD", "2026-03-02", "-1", "")},
		{"gl.rate.value_invalid", set("EUR", "USD", "2026-03-02", "1.0000000000001", "")},
		{"gl.rate.value_invalid", set("EUR", "EUR", "2026-03-02", "1", "")},
		{"gl.rate.duplicate", set("EUR", "USD", "2026-03-01", "1.09", "")},
		{"money.exponent", set("EUR", "USD", "2026-03-02", "1e1", "")},
		{"money.currency_unsupported", set("XAU", "USD", "2026-03-02", "1", "")},
	} {
		b.refuse(t, c.code, "gl_accountant", "gl.set_exchange_rate", c.payload)
	}
	b.execute(t, "gl_accountant", "gl.set_exchange_rate", set("EUR", "USD", "2026-03-01", "1.09", `, "rate_type": "closing"`))
	_, data := b.journal(t, b.execute(t, "gl_accountant", "gl.post_journal", twoLines("100", "100", "EUR", "2026-03-05")))
	require.Equal(t, "108.34", fmt.Sprint(data["total_debit"]), "a closing rate converts nothing")
	b.execute(t, "gl_accountant", "gl.set_exchange_rate", set("EUR", "USD", "2026-03-01", "1.10", `, "reason": "Typing error"`))
	_, data = b.journal(t, b.execute(t, "gl_accountant", "gl.post_journal", twoLines("100", "100", "EUR", "2026-03-05")))
	require.Equal(t, "110.00", fmt.Sprint(data["total_debit"]), "the correction counts from now on")

	err := b.raw("gl.exchange_rate.set", "gl.exchange_rate", set("EUR", "USD", "2026-03-01", "-1", `, "rate_type": "spot"`), nil)
	require.ErrorContains(t, err, "gl.rate.value_invalid")
}

func TestLatestRate(t *testing.T) {
	t.Parallel()
	b := newLedger(t)
	for _, p := range []string{"2026-02", "2026-04"} {
		b.period(t, "open", "gl", p, "")
	}
	b.execute(t, "gl_accountant", "gl.set_exchange_rate", `{"from": "EUR", "to": "USD", "date": "2026-03-10", "rate": 1.2}`)
	rateDate := func(date string) any {
		_, data := b.journal(t, b.execute(t, "gl_accountant", "gl.post_journal", twoLines("1", "1", "EUR", date)))
		return data["lines"].([]any)[0].(map[string]any)["rate_date"]
	}
	require.Equal(t, "2026-03-01", rateDate("2026-03-09"))
	require.Equal(t, "2026-03-10", rateDate("2026-03-10"))
	require.Equal(t, "2026-03-10", rateDate("2026-04-10"), "31 days old")
	f := b.refuse(t, "gl.rate.stale", "gl_accountant", "gl.post_journal", twoLines("1", "1", "EUR", "2026-04-11"))
	require.Equal(t, 32, f.Actual)
	require.Equal(t, 31, f.Expected)
	f = b.refuse(t, "gl.rate.missing", "gl_accountant", "gl.post_journal", twoLines("1", "1", "EUR", "2026-02-28"))
	require.Equal(t, "EUR", f.Attributes["from"])
	b.execute(t, "gl_accountant", "gl.set_exchange_rate", `{"from": "USD", "to": "GBP", "date": "2026-03-01", "rate": 0.8}`)
	b.refuse(t, "gl.rate.missing", "gl_accountant", "gl.post_journal", twoLines("1", "1", "GBP", "2026-03-05"))
}

// TestSetExchangeRate_SecondPerson: rates far from the latest one and corrections wait.
func TestSetExchangeRate_SecondPerson(t *testing.T) {
	t.Parallel()
	b := newLedger(t)
	b.execute(t, "admin", "gl.configure_ledger", strings.Replace(exampleConfigureLedger, `"second_person": false`, `"second_person": true, "rate_tolerance_percent": 5`, 1))
	set := func(date, rate, more string) string {
		return fmt.Sprintf(`{"from": "EUR", "to": "USD", "date": %q, "rate": %s%s}`, date, rate, more)
	}
	// The latest rate is 1.0834: 5 percent of it are 0.05417.
	b.execute(t, "gl_accountant", "gl.set_exchange_rate", set("2026-03-02", "1.13757", ""))
	b.execute(t, "gl_accountant", "gl.set_exchange_rate", set("2026-03-03", "1.0806915", ""))
	b.execute(t, "gl_accountant", "gl.set_exchange_rate", set("2026-02-27", "9", ""))
	b.execute(t, "gl_accountant", "gl.set_exchange_rate", `{"from": "EUR", "to": "USD", "date": "2026-03-03", "rate": 9, "rate_type": "closing"}`)
	waiting := b.pend(t, "module", "gl.set_exchange_rate", set("2026-03-04", "0.92", ""))
	require.Equal(t, []string{"gl_accountant", "controller", "cfo"}, waiting.Needs[0].Roles)
	b.mustApprove(t, "gl_accountant", waiting)
	waiting = b.pend(t, "gl_accountant", "gl.set_exchange_rate", set("2026-03-04", "0.93", `, "reason": "Typing error"`))
	_, err := b.approve(t, "gl_accountant", waiting)
	require.Equal(t, "sod.same_person", fault.CodeOf(err))
	b.mustApprove(t, "cfo", waiting)
	b.refuse(t, "money.scale", "admin", "gl.configure_ledger", strings.Replace(exampleConfigureLedger, `"rate_age_days": 31`, `"rate_tolerance_percent": 5.1234567`, 1))
}
