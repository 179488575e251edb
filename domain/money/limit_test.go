package money_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
)

func TestCheckAmount(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		amount string
		c      money.Currency
	}{
		{"12500", eur}, {"12500.0", eur}, {"12500.00", eur}, {"-0.01", eur}, {"0.00", eur}, {"100", jpy}, {"1.234", kwd},
		{"9999999999999.99", eur},
	} {
		require.NoError(t, money.CheckAmount(n(c.amount), c.c), c.amount)
	}
	err := money.CheckAmount(n("1.000"), eur)
	require.Equal(t, "money.scale", fault.CodeOf(err))
	f, _ := fault.As(err)
	require.Equal(t, map[string]any{"currency": "EUR", "allowed": 2, "got": 3}, f.Attributes)
	require.Equal(t, "money.scale", fault.CodeOf(money.CheckAmount(n("1.0"), jpy)))
	require.Equal(t, "money.too_large", fault.CodeOf(money.CheckAmount(n("99999999999999.9").Mul(n("10.0")), eur)))
	require.Equal(t, "money.too_large", fault.CodeOf(money.CheckAmount(must(t, "99999999999999999999"), eur)))
}

func TestCheckNonNegative(t *testing.T) {
	t.Parallel()
	require.NoError(t, money.CheckNonNegative(n("0.00")))
	require.NoError(t, money.CheckNonNegative(n("1")))
	require.Equal(t, "money.negative", fault.CodeOf(money.CheckNonNegative(n("-0.01"))))
}

func TestCheckOtherNumbers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		check func(money.Number) error
		value string
		code  string
	}{
		{"quantity", money.CheckQuantity, "-3.0123456789", ""},
		{"quantity", money.CheckQuantity, "0.01234567890", "money.scale"},
		{"percent", money.CheckPercent, "33.333333", ""},
		{"percent", money.CheckPercent, "33.3333333", "money.scale"},
		{"rate", money.CheckRate, "0.000000000001", ""},
		{"rate", money.CheckRate, "1.085400000000", ""},
		{"rate", money.CheckRate, "9999999999.99999", ""},
		{"rate", money.CheckRate, "0.0000000000001", "money.scale"},
		{"rate", money.CheckRate, "0", "money.not_positive"},
		{"rate", money.CheckRate, "-1.1", "money.not_positive"},
		{"rate", money.CheckRate, "10000000000", "money.too_large"},
	} {
		require.Equal(t, c.code, fault.CodeOf(c.check(n(c.value))), "%s %s", c.name, c.value)
	}
}
