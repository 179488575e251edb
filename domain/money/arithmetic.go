package money

import (
	"cmp"
	"math"
	"math/bits"
	"strings"

	apd "github.com/cockroachdb/apd/v3"

	"github.com/erpbackbone/backbone/domain/fault"
)

// The decimal library computes with coefficients that do not fit an int64.
// Its contexts are never changed after start. Sums and products are never cut;
// precision only bounds the length of a result that is brought to a scale.
var (
	unlimited = apd.BaseContext
	exact     = apd.Context{
		Precision: 100_000, MaxExponent: apd.MaxExponent, MinExponent: apd.MinExponent,
		Rounding: apd.RoundHalfUp, Traps: apd.DefaultTraps | apd.Inexact,
	}
	rounding = apd.Context{
		Precision: 100_000, MaxExponent: apd.MaxExponent, MinExponent: apd.MinExponent,
		Rounding: apd.RoundHalfUp, // half away from zero in the library's terms
		Traps:    apd.DefaultTraps,
	}
)

// powers holds the powers of ten that fit an int64.
var powers = func() (p [19]int64) {
	p[0] = 1
	for i := 1; i < len(p); i++ {
		p[i] = p[i-1] * 10
	}
	return p
}()

// decimal gives the number to the library. The result must not be changed.
func (n Number) decimal() *apd.Decimal {
	if n.large != nil {
		return n.large
	}
	return apd.New(n.coefficient, -n.scale)
}

// fromDecimal takes ownership of a decimal: the caller does not change it afterwards. It uses
// the short form if the coefficient fits.
func fromDecimal(d *apd.Decimal) Number {
	if d.Exponent > 0 { // scales are never negative
		widened := new(apd.Decimal)
		check(exact.Quantize(widened, d, 0))
		d = widened
	}
	if d.Coeff.IsInt64() {
		c := d.Coeff.Int64()
		if d.Negative {
			c = -c
		}
		return Number{coefficient: c, scale: -d.Exponent}
	}
	return Number{large: d}
}

// check stops on an error of the library that no input within the limits of the
// wire or of Scan can bring about: exponents beyond ±100,000.
func check(_ apd.Condition, err error) {
	if err != nil {
		panic("money: exponent out of the library's range: " + err.Error())
	}
}

// shift multiplies a coefficient by 10^places, ok if the result fits.
func shift(c int64, places int32) (_ int64, ok bool) {
	if places == 0 || c == 0 {
		return c, true
	}
	if places >= int32(len(powers)) {
		return 0, false
	}
	return multiply(c, powers[places])
}

// multiply gives a*b, ok if the result stays within ±MaxInt64.
func multiply(a, b int64) (_ int64, ok bool) {
	hi, lo := bits.Mul64(magnitude(a), magnitude(b))
	if hi != 0 || lo > math.MaxInt64 {
		return 0, false
	}
	if (a < 0) != (b < 0) {
		return -int64(lo), true
	}
	return int64(lo), true
}

// magnitude gives |c|; a coefficient is never MinInt64.
func magnitude(c int64) uint64 {
	if c < 0 {
		return uint64(-c)
	}
	return uint64(c)
}

// align brings two short numbers to the larger of their scales, ok if both fit.
func align(a, b Number) (x, y int64, scale int32, ok bool) {
	if a.large != nil || b.large != nil {
		return 0, 0, 0, false
	}
	x, y, scale = a.coefficient, b.coefficient, a.scale
	switch {
	case a.scale < b.scale:
		scale = b.scale
		x, ok = shift(x, b.scale-a.scale)
	case a.scale > b.scale:
		y, ok = shift(y, a.scale-b.scale)
	default:
		ok = true
	}
	return x, y, scale, ok
}

// Sign is -1, 0 or 1.
func (n Number) Sign() int {
	if n.large != nil {
		return n.large.Sign()
	}
	return cmp.Compare(n.coefficient, 0)
}

// IsZero reports whether the value is 0, at any scale.
func (n Number) IsZero() bool { return n.Sign() == 0 }

// Scale is the number of digits after the point.
func (n Number) Scale() int {
	if n.large != nil {
		return int(-n.large.Exponent)
	}
	return int(n.scale)
}

// digits counts the significant digits, trailing zeros included, 0 for zero.
func (n Number) digits() int {
	if n.large != nil {
		return int(n.large.NumDigits())
	}
	count := 0
	for m := magnitude(n.coefficient); m > 0; m /= 10 {
		count++
	}
	return count
}

// Cmp is -1 if n < o, 0 if they have the same value, 1 if n > o.
func (n Number) Cmp(o Number) int {
	if x, y, _, ok := align(n, o); ok {
		return cmp.Compare(x, y)
	}
	return n.decimal().Cmp(o.decimal())
}

// Equal reports whether both have the same value; 2.50 equals 2.5.
func (n Number) Equal(o Number) bool { return n.Cmp(o) == 0 }

// Neg is -n.
func (n Number) Neg() Number {
	if n.large != nil {
		return fromDecimal(new(apd.Decimal).Neg(n.large))
	}
	n.coefficient = -n.coefficient
	return n
}

// Abs is |n|.
func (n Number) Abs() Number {
	if n.Sign() < 0 {
		return n.Neg()
	}
	return n
}

// Add is n+o, exact, at the larger of the two scales.
func (n Number) Add(o Number) Number {
	if x, y, scale, ok := align(n, o); ok {
		sum := x + y
		// Overflow shows as a sign that neither operand has.
		if (x^sum)&(y^sum) >= 0 && sum != math.MinInt64 {
			return Number{coefficient: sum, scale: scale}
		}
	}
	d := new(apd.Decimal)
	check(unlimited.Add(d, n.decimal(), o.decimal()))
	return fromDecimal(d)
}

// Sub is n-o, exact, at the larger of the two scales.
func (n Number) Sub(o Number) Number { return n.Add(o.Neg()) }

// Mul is n*o, exact; the scales add up.
func (n Number) Mul(o Number) Number {
	if n.large == nil && o.large == nil {
		if c, ok := multiply(n.coefficient, o.coefficient); ok {
			return Number{coefficient: c, scale: n.scale + o.scale}
		}
	}
	d := new(apd.Decimal)
	check(unlimited.Mul(d, n.decimal(), o.decimal()))
	return fromDecimal(d)
}

// Sum adds all numbers, exact, at the largest scale; 0 for none.
func Sum(ns ...Number) Number {
	var total Number
	for _, n := range ns {
		total = total.Add(n)
	}
	return total
}

// Round brings the number to exactly scale digits after the point, half away from
// zero: 2.345 to 2 is 2.35, -2.345 is -2.35, 2.3 is 2.30. A negative scale counts
// as 0. It is the one inexact operation; Convert, Percent and Allocate rest on it.
func (n Number) Round(scale int) Number {
	scale = max(scale, 0)
	if n.large == nil {
		switch places := int(n.scale) - scale; {
		case places == 0:
			return n
		case places < 0:
			if c, ok := shift(n.coefficient, int32(min(-places, math.MaxInt32))); ok {
				return Number{coefficient: c, scale: int32(scale)}
			}
		case places >= len(powers):
			// At most MaxInt64 / 10^19, which is below one half and so 0, but
			// 10^19 itself is out of range.
			if places > len(powers) || magnitude(n.coefficient) < 5_000_000_000_000_000_000 {
				return Number{scale: int32(scale)}
			}
			return Number{coefficient: int64(n.Sign()), scale: int32(scale)}
		default:
			p := powers[places]
			q, r := n.coefficient/p, n.coefficient%p
			if magnitude(r) >= uint64(p/2) { // p is a power of ten above 1, so even
				q += int64(n.Sign())
			}
			return Number{coefficient: q, scale: int32(scale)}
		}
	}
	d := new(apd.Decimal)
	check(rounding.Quantize(d, n.decimal(), int32(-scale)))
	return fromDecimal(d)
}

// Rescale brings the number to exactly scale digits after the point without
// changing its value. If digits other than zeros would be lost it is money.scale
// with the attributes allowed and got.
func (n Number) Rescale(scale int) (Number, error) {
	if r, ok := n.rescale(scale); ok {
		return r, nil
	}
	return Number{}, fault.New(fault.Invalid, "money.scale",
		"the number has more than %d decimals and may not be rounded here; send it with fewer", scale).
		With("allowed", scale).With("got", n.Scale())
}

func (n Number) rescale(scale int) (Number, bool) {
	if scale < 0 {
		return Number{}, false
	}
	if n.large == nil {
		places := int(n.scale) - scale
		switch {
		case places == 0:
			return n, true
		case n.coefficient == 0:
			return Number{scale: int32(scale)}, true
		case places >= len(powers):
			return Number{}, false // not 0, and shorter than the digits to drop
		case places > 0:
			p := powers[places]
			return Number{coefficient: n.coefficient / p, scale: int32(scale)}, n.coefficient%p == 0
		}
		if c, ok := shift(n.coefficient, int32(-places)); ok {
			return Number{coefficient: c, scale: int32(scale)}, true
		}
	}
	d := new(apd.Decimal)
	if _, err := exact.Quantize(d, n.decimal(), int32(-scale)); err != nil {
		return Number{}, false
	}
	return fromDecimal(d), true
}

// Fixed writes the number with scale digits after the point, for reports: 2.5 at 2
// is "2.50". It never rounds: if digits would be lost the text is longer.
func (n Number) Fixed(scale int) string {
	scale = max(scale, 0)
	if r, ok := n.rescale(scale); ok {
		return r.String()
	}
	// Not all its decimals are zeros, so trimming stops before the point.
	return strings.TrimRight(n.String(), "0")
}
