package domain_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/gl/domain"
)

func TestAllocationRule_Check(t *testing.T) {
	t.Parallel()
	first, last := event.MustDate("2026-01-01"), event.MustDate("2025-12-31")
	for code, rules := range map[string][]domain.AllocationRule{
		"": {
			{Targets: targets("100")}, {Targets: targets("33.333333", "33.333333", "33.333334")},
			{Targets: targets("100"), ValidFrom: &first, ValidTo: &first},
		},
		"gl.allocation.percent_mismatch": {
			{}, {Targets: targets("99.999999")}, {Targets: targets("100", "0")}, {Targets: targets("150", "-50")}, {Targets: targets("33.33", "33.33", "33.33")},
		},
		"gl.allocation.validity_invalid": {{Targets: targets("100"), ValidFrom: &first, ValidTo: &last}},
		"money.scale":                    {{Targets: targets("99.9999999", "0.0000001")}},
	} {
		for _, rule := range rules {
			require.Equal(t, code, fault.CodeOf(rule.Check()), "%v", rule)
		}
	}
}

func targets(percents ...string) (out []domain.AllocationTarget) {
	for _, p := range percents {
		out = append(out, domain.AllocationTarget{Percent: money.MustNumber(p)})
	}
	return out
}

// Shares are exact in both currencies, whatever the percents.
func TestAllocationRule_Lines(t *testing.T) {
	t.Parallel()
	functional, err := money.LookupCurrency("USD", event.MustDate("2026-01-01").Time())
	require.NoError(t, err)
	for _, amounts := range [][2]string{{"0.01", "0.02"}, {"100", "-108.35"}, {"-99.99", "-110.07"}, {"0", "0.01"}, {"1234567.89", "1337331.17"}} {
		rule := domain.AllocationRule{Source: domain.AllocationSource{Account: "6000"}, Targets: targets("33.333333", "33.333333", "33.333334")}
		lines, err := rule.Lines([]domain.Balance{{Account: "6000", Currency: "EUR", Amount: money.MustNumber(amounts[0]), Functional: money.MustNumber(amounts[1])}}, functional)
		require.NoError(t, err)
		require.NoError(t, domain.CheckBalance(lines))
		debit, credit := domain.FunctionalTotals(lines)
		require.True(t, debit.Equal(credit), amounts)
	}
}
