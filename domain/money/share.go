package money

import (
	"math"
	"math/big"
	"math/bits"
	"slices"

	apd "github.com/cockroachdb/apd/v3"

	"github.com/erpbackbone/backbone/domain/fault"
)

// Convert gives amount times rate, rounded half away from zero to the minor unit
// of the target currency. Use it once per line.
func Convert(amount, rate Number, to Currency) Number {
	return roundedProduct(amount, rate, 0, to.MinorUnit)
}

// Percent gives percent hundredths of the amount, rounded half away from zero to
// the currency's minor unit: tax on a summed base, discounts, withholding.
func Percent(amount, percent Number, c Currency) Number {
	return roundedProduct(amount, percent, 2, c.MinorUnit)
}

// roundedProduct gives a*b/10^shift, rounded half away from zero to scale. A rate
// read from the database has 12 decimals, so the product of everyday amounts
// outgrows 64 bits; it still fits 128, and the result fits 64 again.
func roundedProduct(a, b Number, shift int32, scale int) Number {
	if a.large == nil && b.large == nil {
		places := int(a.scale+b.scale+shift) - scale
		hi, lo := bits.Mul64(magnitude(a.coefficient), magnitude(b.coefficient))
		if places > 0 && places < len(powers) && hi < uint64(powers[places]) {
			p := uint64(powers[places])
			q, r := bits.Div64(hi, lo, p)
			if q < math.MaxInt64 {
				if r >= p/2 { // p is a power of ten above 1, so even
					q++
				}
				c := int64(q)
				if (a.coefficient < 0) != (b.coefficient < 0) {
					c = -c
				}
				return Number{coefficient: c, scale: int32(scale)}
			}
		}
	}
	product := a.Mul(b)
	if product.large == nil {
		product.scale += shift
		return product.Round(scale)
	}
	d := new(apd.Decimal).Set(product.large)
	d.Exponent -= shift
	return fromDecimal(d).Round(scale)
}

// Allocate splits total into one share per weight, in proportion to the weights,
// each at the currency's minor unit. What is left after cutting every share down
// goes, one minor unit each, to the largest remainders, ties to the lower index.
// The shares always sum to total; a share of weight 0 is 0. The split of -x is
// the split of x with the signs changed. Weights may have mixed signs (allowances
// among lines) as long as their sum is not 0.
//
// Faults: money.scale if total has value below the minor unit,
// money.weights_invalid if there are no weights or they sum to 0.
func Allocate(total Number, weights []Number, c Currency) ([]Number, error) {
	units, err := total.Rescale(c.MinorUnit)
	if err != nil {
		return nil, fault.New(fault.Invalid, "money.scale",
			"the total to split has more than %d decimals; round it to %s first", c.MinorUnit, c.Code).
			With("currency", c.Code).With("allowed", c.MinorUnit).With("got", total.Scale())
	}
	sum := Sum(weights...)
	if sum.IsZero() {
		return nil, fault.New(fault.Invalid, "money.weights_invalid",
			"an amount can only be split by weights whose sum is not 0; give at least one weight that counts")
	}
	scale := sum.Scale()
	whole, divisor := units.integer(units.Scale()), sum.integer(scale)
	negative := whole.Sign() < 0
	whole.Abs(whole)
	invert := divisor.Sign() < 0 // both sides of every fraction change sign
	divisor.Abs(divisor)
	shares := make([]*big.Int, len(weights))
	remainders := make([]*big.Int, len(weights))
	left := new(big.Int).Set(whole)
	for i, w := range weights {
		product := w.integer(scale)
		if invert {
			product.Neg(product)
		}
		product.Mul(product, whole)
		// Euclidean division cuts down and leaves a remainder of 0 or more.
		shares[i], remainders[i] = product.DivMod(product, divisor, new(big.Int))
		left.Sub(left, shares[i])
	}
	one := big.NewInt(1)
	for _, i := range descending(len(weights), func(i, j int) int { return remainders[i].Cmp(remainders[j]) })[:left.Int64()] {
		shares[i].Add(shares[i], one)
	}
	out := make([]Number, len(weights))
	for i, s := range shares {
		if negative {
			s.Neg(s)
		}
		d := apd.NewWithBigInt(new(apd.BigInt).SetMathBigInt(s), int32(-units.Scale()))
		out[i] = fromDecimal(d)
	}
	return out, nil
}

// integer gives the value times 10^scale, where scale is at least the number's
// own, as an integer the caller may change.
func (n Number) integer(scale int) *big.Int {
	d := new(apd.Decimal)
	check(exact.Quantize(d, n.decimal(), int32(-scale)))
	i := d.Coeff.MathBigInt()
	if d.Negative {
		i.Neg(i)
	}
	return i
}

// descending gives the indexes 0..n-1 from the largest to the smallest by compare,
// equal ones in ascending order.
func descending(n int, compare func(i, j int) int) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return compare(j, i) })
	return order
}
