package money_test

import (
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
)

var (
	eur = money.Currency{Code: "EUR", Number: "978", MinorUnit: 2}
	jpy = money.Currency{Code: "JPY", Number: "392", MinorUnit: 0}
	kwd = money.Currency{Code: "KWD", Number: "414", MinorUnit: 3}
)

func TestConvert(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		amount, rate string
		to           money.Currency
		want         string
	}{
		{"100.00", "1.0854", eur, "108.54"}, {"100.005", "1", eur, "100.01"}, {"-100.005", "1", eur, "-100.01"},
		{"1", "156.5", jpy, "157"}, {"-1", "156.5", jpy, "-157"}, {"10", "0.30705", kwd, "3.071"}, {"1", "2", eur, "2.00"},
		{"999999999999.99", "9999999999.99999", eur, "9999999999999890000000.00"},
	} {
		require.Equal(t, c.want, money.Convert(n(c.amount), n(c.rate), c.to).String(), "%s at %s", c.amount, c.rate)
	}
}

func TestPercent(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		amount, percent string
		c               money.Currency
		want            string
	}{
		{"100.00", "19", eur, "19.00"}, {"0.50", "19", eur, "0.10"}, {"-0.50", "19", eur, "-0.10"}, {"1000", "7.7", jpy, "77"},
		{"250", "0.2", jpy, "1"}, {"99.99", "2.5", eur, "2.50"}, {"999999999999.99", "33.333333", eur, "333333330000.00"},
	} {
		require.Equal(t, c.want, money.Percent(n(c.amount), n(c.percent), c.c).String(), "%s%% of %s", c.percent, c.amount)
	}
	require.Equal(t, "333333329999999999999.67", money.Percent(must(t, "999999999999999999999"), n("33.333333"), eur).String())
}

func TestConvertAndPercent_RoundProperty(t *testing.T) {
	t.Parallel()
	currency := rapid.SampledFrom([]money.Currency{eur, jpy, kwd, {Code: "CLF", MinorUnit: 4}})
	number := rapid.OneOf(rapid.Map(wire(), n), long(), rapid.Map(rapid.Int64(), func(i int64) money.Number {
		return money.FromInt(i).Mul(n("0.000000000001"))
	}))
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := number.Draw(t, "a"), number.Draw(t, "b"), currency.Draw(t, "currency")
		product := a.Mul(b)
		require.Equal(t, product.Round(c.MinorUnit).String(), money.Convert(a, b, c).String())
		require.Equal(t, product.Mul(n("0.01")).Round(c.MinorUnit).String(), money.Percent(a, b, c).String())
	})
}

func texts(ns []money.Number) (out []string) {
	for _, v := range ns {
		out = append(out, v.String())
	}
	return out
}

func numbers(ss ...string) (out []money.Number) {
	for _, s := range ss {
		out = append(out, n(s))
	}
	return out
}

func TestAllocate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		total   string
		weights []money.Number
		c       money.Currency
		want    []string
	}{
		{"100", numbers("1", "1", "1"), eur, []string{"33.34", "33.33", "33.33"}},
		{"-100", numbers("1", "1", "1"), eur, []string{"-33.34", "-33.33", "-33.33"}},
		{"100", numbers("1", "1", "1"), jpy, []string{"34", "33", "33"}},
		{"0.05", numbers("3", "7"), eur, []string{"0.02", "0.03"}},              // 0.015, 0.035: tie to the lower index
		{"0.01", numbers("0", "1", "1"), eur, []string{"0.00", "0.01", "0.00"}}, // weight 0 gets nothing
		{"10.00", numbers("0.5", "0.25", "0.250"), eur, []string{"5.00", "2.50", "2.50"}},
		{"1.00", numbers("100", "-99"), eur, []string{"100.00", "-99.00"}}, // a line and its allowance
		{"7.000", numbers("2"), eur, []string{"7.00"}},
		{"0", numbers("2", "3"), eur, []string{"0.00", "0.00"}},
		{"1", numbers("-1", "-2"), jpy, []string{"0", "1"}},
	} {
		got, err := money.Allocate(n(c.total), c.weights, c.c)
		require.NoError(t, err)
		require.Equal(t, c.want, texts(got), "%s by %v", c.total, texts(c.weights))
	}
	for _, weights := range [][]money.Number{nil, {}, numbers("0"), numbers("1", "-1")} {
		_, err := money.Allocate(n("1"), weights, eur)
		require.Equal(t, "money.weights_invalid", fault.CodeOf(err))
	}
	_, err := money.Allocate(n("1.005"), numbers("1"), eur)
	require.Equal(t, "money.scale", fault.CodeOf(err))
}

func TestAllocate_SumProperty(t *testing.T) {
	t.Parallel()
	currency := rapid.SampledFrom([]money.Currency{eur, jpy, kwd})
	weight := rapid.OneOf(rapid.Map(wire(), n), rapid.Map(wire(), func(s string) money.Number { return n(s).Abs() }), long())
	rapid.Check(t, func(t *rapid.T) {
		c := currency.Draw(t, "currency")
		total := rapid.OneOf(rapid.Map(wire(), n), long()).Draw(t, "total").Round(c.MinorUnit)
		weights := rapid.SliceOfN(weight, 1, 20).Draw(t, "weights")
		sum := money.Sum(weights...)
		shares, err := money.Allocate(total, weights, c)
		if sum.IsZero() {
			require.Equal(t, "money.weights_invalid", fault.CodeOf(err))
			return
		}
		require.NoError(t, err)
		require.Len(t, shares, len(weights))
		require.True(t, money.Sum(shares...).Equal(total), "shares sum to the total")

		unit := new(big.Rat).SetFrac(big.NewInt(1), new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(c.MinorUnit)), nil))
		for i, share := range shares {
			require.Equal(t, c.MinorUnit, share.Scale())
			fair := new(big.Rat).Mul(rat(t, total), rat(t, weights[i]))
			fair.Quo(fair, rat(t, sum))
			off := fair.Sub(fair, rat(t, share))
			require.Negative(t, off.Abs(off).Cmp(unit), "a share is less than one minor unit off")
		}
		mirrored, err := money.Allocate(total.Neg(), weights, c)
		require.NoError(t, err)
		for i := range shares {
			require.True(t, mirrored[i].Equal(shares[i].Neg()))
		}
	})
}

func BenchmarkAllocate(b *testing.B) {
	weights := numbers("120.00", "33.10", "7.25", "99.99", "0.01")
	total := n("100.00")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := money.Allocate(total, weights, eur); err != nil {
			b.Fatal(err)
		}
	}
}
