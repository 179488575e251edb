package money_test

import (
	"encoding/json"
	"math"
	"math/big"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
)

var n = money.MustNumber

// wire generates the text of any number the wire admits.
func wire() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		whole := rapid.StringMatching(`0|[1-9][0-9]{0,9}`).Draw(t, "whole")
		decimals := rapid.StringMatching(`[0-9]{0,5}`).Draw(t, "decimals")
		s := whole
		if decimals != "" {
			s += "." + decimals
		}
		if strings.Trim(s, "0.") != "" && rapid.Bool().Draw(t, "negative") {
			s = "-" + s
		}
		return s
	})
}

// long generates numbers far beyond the inline coefficient.
func long() *rapid.Generator[money.Number] {
	return rapid.Custom(func(t *rapid.T) money.Number {
		var v money.Number
		s := rapid.StringMatching(`-?[1-9][0-9]{0,45}(\.[0-9]{1,25})?`).Draw(t, "long")
		require.NoError(t, v.Scan(s))
		return v
	})
}

// rat is the reference: the same value in the standard library's fractions.
func rat(t require.TestingT, v money.Number) *big.Rat {
	r, ok := new(big.Rat).SetString(v.String())
	require.True(t, ok)
	return r
}

func TestParseNumber_Accepted(t *testing.T) {
	t.Parallel()
	for _, s := range []string{
		"0", "0.0", "0.00", "1", "-1", "10", "2.50", "-2.50", "12500", "12500.0", "12500.00", "0.01", "-0.01",
		"0.0000000001", "999999999999999", "-999999999999999", "99999999999.9999", "0.000000000000001",
		"0." + strings.Repeat("0", 29) + "1",
	} {
		v, err := money.ParseNumber(s)
		require.NoError(t, err, s)
		require.Equal(t, s, v.String())
		b, err := json.Marshal(struct {
			Amount money.Number `json:"amount"`
		}{v})
		require.NoError(t, err)
		require.Equal(t, `{"amount":`+s+`}`, string(b))
	}
}

func TestParseNumber_Refused(t *testing.T) {
	t.Parallel()
	cases := map[string][]string{
		"money.exponent":      {"1e3", "1E3", "-1.5e-3", "0e0", "-0e1", "1e+3", "1e1000000"},
		"money.negative_zero": {"-0", "-0.0", "-0.00"},
		"money.too_large":     {"1000000000000000", "9007199254740991", "0.1234567890123456", "12500.000000000000", strings.Repeat("9", 1000)},
		"money.scale":         {"0." + strings.Repeat("0", 31), "0." + strings.Repeat("0", 64000) + "1"},
		"money.not_a_number": {
			"", " ", "-", "+1", "+", ".5", "5.", "-.5", "01", "00", "-01", "00.5", "1.2.3", "1,5", "1 000", " 1", "1 ", "1\n",
			"NaN", "nan", "Infinity", "-Infinity", "inf", "\u22121", "1e", "1e+", "e3", "0x10", "1_000", "null", `"1"`, "true",
			"{}", "\u0661", "--1", "1-", "\uff11", "1\x00",
		},
	}
	for code, inputs := range cases {
		for _, s := range inputs {
			_, err := money.ParseNumber(s)
			require.Equal(t, code, fault.CodeOf(err), "%.20q", s)
			require.Equal(t, fault.Invalid, fault.KindOf(err))
			var v money.Number
			require.Equal(t, code, fault.CodeOf(v.UnmarshalJSON([]byte(s))), "%.20q", s)
			require.Equal(t, code, fault.CodeOf(v.UnmarshalText([]byte(s))), "%.20q", s)
		}
	}
}

func TestParseNumber_GrammarProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.StringMatching(`[-+]?[0-9.eE]{0,6}`).Draw(t, "s")
		_, err := money.ParseNumber(s)
		// What encoding/json takes for a number without exponent and sign on zero is the grammar.
		want := json.Valid([]byte(s)) && !strings.ContainsAny(s, "eE") && (s[0] != '-' || strings.Trim(s, "-0.") != "")
		require.Equal(t, want, err == nil, s)
	})
}

func TestNumber_JSONRoundTrip(t *testing.T) {
	t.Parallel()
	type document struct {
		Amount   money.Number   `json:"amount"`
		Optional *money.Number  `json:"optional,omitempty"`
		List     []money.Number `json:"list"`
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := wire().Draw(t, "a"), wire().Draw(t, "b")
		in := `{"amount":` + a + `,"optional":` + b + `,"list":[` + b + `,` + a + `]}`
		var d document
		require.NoError(t, json.Unmarshal([]byte(in), &d))
		out, err := json.Marshal(d)
		require.NoError(t, err)
		require.Equal(t, in, string(out))
	})
}

func TestUnmarshal_StringAndNull(t *testing.T) {
	t.Parallel()
	for _, in := range []string{`{"amount":"1.00"}`, `{"amount":null}`, `{"amount":true}`, `{"amount":[1]}`} {
		var d struct {
			Amount money.Number `json:"amount"`
		}
		require.Equal(t, "money.not_a_number", fault.CodeOf(json.Unmarshal([]byte(in), &d)), in)
	}
}

func TestNumber_ZeroValue(t *testing.T) {
	t.Parallel()
	var z money.Number
	require.Equal(t, "0", z.String())
	require.True(t, z.IsZero())
	require.True(t, z.Equal(n("0.00")))
	require.Equal(t, "0.00", z.Fixed(2))
}

func TestFromInt(t *testing.T) {
	t.Parallel()
	require.Equal(t, "42", money.FromInt(42).String())
	require.Equal(t, "9223372036854775807", money.FromInt(math.MaxInt64).String())
	lowest := money.FromInt(math.MinInt64)
	require.Equal(t, "-9223372036854775808", lowest.String())
	require.Equal(t, "9223372036854775808", lowest.Neg().String())
	require.Equal(t, "-9223372036854775807", lowest.Add(n("1")).String())
	require.True(t, lowest.Neg().Neg().Equal(lowest))
}

func TestScan(t *testing.T) {
	t.Parallel()
	for _, src := range []any{"12.3400", []byte("12.3400")} {
		var v money.Number
		require.NoError(t, v.Scan(src))
		require.Equal(t, "12.3400", v.String())
	}
	var v money.Number
	require.NoError(t, v.Scan(int64(-7)))
	require.Equal(t, "-7", v.String())
	for _, s := range []string{"9223372036854775807", "9223372036854775808", "-99999999999999999999999999999999999999.0001"} {
		require.NoError(t, v.Scan(s))
		require.Equal(t, s, v.String())
	}
	v = n("1")
	for _, src := range []any{nil, "NaN", "Infinity", "-Infinity", []byte("NaN"), "", 1.5, true, "1e3"} {
		require.Error(t, v.Scan(src), "%v", src)
		require.Equal(t, fault.Invalid, fault.KindOf(v.Scan(src)))
	}
	require.Equal(t, "money.too_large", fault.CodeOf(v.Scan(strings.Repeat("9", 1001))))
	require.Equal(t, "1", v.String(), "a refused value leaves the receiver alone")
}

func TestArithmetic_FractionProperty(t *testing.T) {
	t.Parallel()
	number := rapid.OneOf(
		rapid.Map(wire(), n), long(),
		rapid.Map(rapid.Int64(), money.FromInt),
	)
	rapid.Check(t, func(t *rapid.T) {
		a, b := number.Draw(t, "a"), number.Draw(t, "b")
		ra, rb := rat(t, a), rat(t, b)
		textA, textB := a.String(), b.String()

		sum, difference, product := a.Add(b), a.Sub(b), a.Mul(b)
		require.Zero(t, rat(t, sum).Cmp(new(big.Rat).Add(ra, rb)))
		require.Zero(t, rat(t, difference).Cmp(new(big.Rat).Sub(ra, rb)))
		require.Zero(t, rat(t, product).Cmp(new(big.Rat).Mul(ra, rb)))
		require.Equal(t, max(a.Scale(), b.Scale()), sum.Scale())
		require.Equal(t, a.Scale()+b.Scale(), product.Scale())

		require.True(t, sum.Sub(b).Equal(a))
		require.True(t, difference.Add(b).Equal(a))
		require.True(t, sum.Equal(money.Sum(b, a)))
		require.Equal(t, ra.Cmp(rb), a.Cmp(b))
		require.Equal(t, ra.Sign(), a.Sign())
		require.Equal(t, ra.Sign() == 0, a.IsZero())
		require.True(t, a.Neg().Neg().Equal(a))
		require.GreaterOrEqual(t, a.Abs().Sign(), 0)

		for _, v := range []money.Number{sum, difference, product, a.Neg(), a.Abs()} {
			var again money.Number
			require.NoError(t, again.Scan(v.String()))
			require.Equal(t, v.String(), again.String())
			require.True(t, v.Equal(again))
		}
		require.Equal(t, textA, a.String(), "operands never change")
		require.Equal(t, textB, b.String(), "operands never change")
	})
}

func TestRound_FractionProperty(t *testing.T) {
	t.Parallel()
	number := rapid.OneOf(rapid.Map(wire(), n), long(), rapid.Map(rapid.Int64(), func(i int64) money.Number {
		return money.FromInt(i).Mul(n("0.0000000000000000001"))
	}))
	rapid.Check(t, func(t *rapid.T) {
		v, scale := number.Draw(t, "v"), rapid.IntRange(0, 30).Draw(t, "scale")
		got := v.Round(scale)
		require.Equal(t, scale, got.Scale())
		// floor(|v| * 10^scale + 1/2), then the sign again: half away from zero.
		r := new(big.Rat).Abs(rat(t, v))
		r.Mul(r, new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(scale)), nil)))
		r.Add(r, big.NewRat(1, 2))
		want := new(big.Int).Quo(r.Num(), r.Denom())
		if v.Sign() < 0 {
			want.Neg(want)
		}
		units := rat(t, got)
		units.Mul(units, new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(scale)), nil)))
		require.True(t, units.IsInt())
		require.Zero(t, want.Cmp(units.Num()), "%s to %d is %s", v, scale, got)

		exact, err := v.Rescale(scale)
		require.Equal(t, got.Equal(v), err == nil)
		if err == nil {
			require.Equal(t, got.String(), exact.String())
			require.Equal(t, got.String(), v.Fixed(scale))
		} else {
			require.Equal(t, "money.scale", fault.CodeOf(err))
			require.Zero(t, rat(t, v).Cmp(rat(t, must(t, v.Fixed(scale)))), "Fixed never rounds")
		}
	})
}

func must(t require.TestingT, s string) (v money.Number) {
	require.NoError(t, v.Scan(s))
	return v
}

func TestRound(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in    string
		scale int
		want  string
	}{
		{"2.345", 2, "2.35"}, {"-2.345", 2, "-2.35"}, {"2.344", 2, "2.34"}, {"2.3", 2, "2.30"}, {"0.5", 0, "1"}, {"-0.5", 0, "-1"},
		{"0.49", 0, "0"}, {"-0.49", 0, "0"}, {"1.005", 2, "1.01"}, {"12", -2, "12"}, {"0.0000000001", 2, "0.00"},
		{"999999999999.995", 2, "1000000000000.00"},
	} {
		require.Equal(t, c.want, n(c.in).Round(c.scale).String(), c.in)
	}
}

func TestFixed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in    string
		scale int
		want  string
	}{
		{"2.5", 2, "2.50"}, {"2.5000", 2, "2.50"}, {"2.5050", 2, "2.505"}, {"-3", 2, "-3.00"}, {"3.00", 0, "3"}, {"3.01", 0, "3.01"},
		{"3", -1, "3"},
	} {
		require.Equal(t, c.want, n(c.in).Fixed(c.scale), c.in)
	}
}

func TestAllocations(t *testing.T) {
	amount, large, rate := n("12500.37"), n("9123456789.01"), n("1.085423000000")
	euro := money.Currency{Code: "EUR", MinorUnit: 2}
	raw := []byte("12500.37")
	buf := make([]byte, 0, 64)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		var v money.Number
		_ = v.UnmarshalJSON(raw)
		v = v.Add(amount).Sub(large).Neg().Abs()
		v = money.Convert(v, rate, euro)
		buf, _ = v.AppendText(buf[:0])
	}), "the path of an invoice line does not allocate")
}

func BenchmarkUnmarshal(b *testing.B) {
	raw := []byte("12500.37")
	b.ReportAllocs()
	for b.Loop() {
		var v money.Number
		if err := v.UnmarshalJSON(raw); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkMarshal(b *testing.B) {
	v := n("12500.37")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := v.MarshalJSON(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAdd(b *testing.B) {
	b.Run("short", func(b *testing.B) {
		x, y := n("12500.37"), n("0.125")
		b.ReportAllocs()
		for b.Loop() {
			_ = x.Add(y)
		}
	})
	b.Run("long", func(b *testing.B) {
		x, y := must(b, "99999999999999999999999.37"), n("0.125")
		b.ReportAllocs()
		for b.Loop() {
			_ = x.Add(y)
		}
	})
}

func BenchmarkConvert(b *testing.B) {
	amount, rate := n("1250000.37"), n("1.085400000000")
	euro := money.Currency{Code: "EUR", MinorUnit: 2}
	b.ReportAllocs()
	for b.Loop() {
		_ = money.Convert(amount, rate, euro)
	}
}

// FuzzParseNumber compares the parser with exact fractions: what it accepts, it reads exactly.
func FuzzParseNumber(f *testing.F) {
	for _, s := range []string{"0", "-0", "1.50", "-12.345", "999999999999999", "1e3", "01", ".5", "1.", "0." + strings.Repeat("0", 40), "\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		number, err := money.ParseNumber(s)
		if err != nil {
			_, ok := fault.As(err)
			require.True(t, ok)
			return
		}
		want, ok := new(big.Rat).SetString(s)
		require.True(t, ok)
		got, ok := new(big.Rat).SetString(number.String())
		require.True(t, ok)
		require.Zero(t, want.Cmp(got))
	})
}
