package domain_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/gl/domain"
)

func TestOffsetBalances(t *testing.T) {
	t.Parallel()
	retained := domain.Account{Code: "3000", Name: "Retained earnings"}
	balance := func(account, currency, amount, functional string, dimensions ...string) domain.Balance {
		b := domain.Balance{Account: account, Currency: currency, Amount: money.MustNumber(amount), Functional: money.MustNumber(functional), Dimensions: map[string]string{}}
		for i := 0; i < len(dimensions); i += 2 {
			b.Dimensions[dimensions[i]] = dimensions[i+1]
		}
		return b
	}
	// after returns what is left of the balances per account, currency and dimensions.
	after := func(balances []domain.Balance, journals [][]domain.Line) map[string][2]money.Number {
		left := map[string][2]money.Number{}
		add := func(account, currency string, dimensions map[string]string, amount, functional money.Number) {
			k := fmt.Sprint(account, currency, dimensions)
			left[k] = [2]money.Number{left[k][0].Add(amount), left[k][1].Add(functional)}
		}
		for _, b := range balances {
			add(b.Account, b.Currency, b.Dimensions, b.Amount, b.Functional)
		}
		for _, lines := range journals {
			for _, l := range lines {
				if l.Side == domain.Debit {
					add(l.Account, l.Currency, l.Dimensions, l.Amount, l.FunctionalAmount)
				} else {
					add(l.Account, l.Currency, l.Dimensions, l.Amount.Neg(), l.FunctionalAmount.Neg())
				}
			}
		}
		return left
	}
	var many []domain.Balance
	for i := range 5000 {
		many = append(many, balance(fmt.Sprintf("6%03d", i%700), "USD", fmt.Sprint(i-2500), fmt.Sprint(i-2500), "project", fmt.Sprint("P-", i/700)))
	}
	for name, c := range map[string]struct {
		balances []domain.Balance
		journals []int // their numbers of lines
	}{
		"none":                                {nil, nil},
		"one_balance":                         {[]domain.Balance{balance("6000", "USD", "5", "5")}, []int{2}},
		"income_equals_expense":               {[]domain.Balance{balance("6000", "USD", "5", "5"), balance("4000", "USD", "-5", "-5")}, []int{2}},
		"two_combinations":                    {[]domain.Balance{balance("6000", "USD", "5", "5", "department", "A"), balance("6000", "USD", "7", "7", "department", "B")}, []int{4}},
		"foreign_amount_against_functional":   {[]domain.Balance{balance("6000", "EUR", "5", "-4")}, []int{4}},
		"functional_amount_alone":             {[]domain.Balance{balance("6000", "EUR", "0", "-4")}, []int{2}},
		"currencies_are_closed_for_their_own": {[]domain.Balance{balance("6000", "EUR", "5", "6"), balance("6000", "USD", "-6", "-6")}, []int{4}},
		"more_lines_than_a_journal_has":       {many, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			journals := domain.OffsetBalances(c.balances, retained, domain.MaxLines)
			var counts []int
			for _, lines := range journals {
				counts = append(counts, len(lines))
				debit, credit := domain.FunctionalTotals(lines)
				posted := domain.JournalPosted{Description: "Close 2026", FunctionalCurrency: "USD", Lines: lines, TotalDebit: debit, TotalCredit: credit}
				require.NoError(t, posted.Check())
			}
			if c.journals != nil {
				require.Equal(t, c.journals, counts)
			}
			for key, sums := range after(c.balances, journals) {
				if key[:4] != retained.Code {
					require.True(t, sums[0].IsZero() && sums[1].IsZero(), key)
				}
			}
		})
	}
	require.Len(t, domain.OffsetBalances(many, retained, domain.MaxLines), 3)
}
