package jq

import (
	"encoding/json"
	"fmt"
	"math/big"
	"strconv"
	"strings"
)

// decimal is an exact number: digits times ten to the power of -scale.
type decimal struct {
	digits *big.Int
	scale  int
}

// Bounds of numbers in arithmetic. A number that a program only copies may be larger.
const (
	maxDigits      = 400
	maxBits        = 1400 // of that many digits
	quotientDigits = 34   // significant digits of a quotient that does not come out even
)

// parseNumber reads a number of any type that the library uses. ok is false for other values
// and for numbers out of bounds.
func parseNumber(v any) (d decimal, ok bool) {
	switch v := v.(type) {
	case int:
		return decimal{big.NewInt(int64(v)), 0}, true
	case *big.Int:
		return decimal{v, 0}, v.BitLen() <= maxBits
	case json.Number:
		return parseText(string(v))
	case string, bool, nil, []any, map[string]any:
		return d, false
	default:
		return parseText(fmt.Sprint(v)) // a binary floating-point number: its shortest text
	}
}

func parseText(text string) (d decimal, ok bool) {
	if len(text) > maxDigits+8 {
		return d, false
	}
	mantissa, exponent := text, 0
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		n, err := strconv.Atoi(strings.TrimPrefix(text[i+1:], "+"))
		if err != nil || n > maxDigits || n < -maxDigits {
			return d, false
		}
		mantissa, exponent = text[:i], n
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := whole + fraction
	if strings.TrimLeft(digits, "+-0123456789") != "" {
		return d, false
	}
	d.digits, ok = new(big.Int).SetString(digits, 10)
	if !ok {
		return d, false
	}
	if d.scale = len(fraction) - exponent; d.scale < 0 {
		d.digits.Mul(d.digits, pow10(-d.scale))
		d.scale = 0
	}
	return d, d.fits()
}

func pow10(n int) *big.Int { return new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil) }

func (d decimal) fits() bool { return d.scale <= maxDigits && d.digits.BitLen() <= maxBits }

// String writes the number without an exponent.
func (d decimal) String() string {
	text := d.digits.String()
	if d.scale == 0 {
		return text
	}
	sign := ""
	if text[0] == '-' {
		sign, text = "-", text[1:]
	}
	if missing := d.scale + 1 - len(text); missing > 0 {
		text = strings.Repeat("0", missing) + text
	}
	return sign + text[:len(text)-d.scale] + "." + text[len(text)-d.scale:]
}

// value is the number in a type that the library uses.
func (d decimal) value() any {
	if d.scale > 0 {
		return json.Number(d.String())
	}
	if d.digits.IsInt64() {
		return int(d.digits.Int64())
	}
	return d.digits
}

// align gives the digits of two numbers at the scale of the finer one.
func align(a, b decimal) (x, y *big.Int, scale int) {
	x, y, scale = a.digits, b.digits, max(a.scale, b.scale)
	if a.scale < scale {
		x = new(big.Int).Mul(x, pow10(scale-a.scale))
	}
	if b.scale < scale {
		y = new(big.Int).Mul(y, pow10(scale-b.scale))
	}
	return x, y, scale
}

func (d decimal) add(o decimal) decimal {
	x, y, scale := align(d, o)
	return decimal{new(big.Int).Add(x, y), scale}
}

func (d decimal) subtract(o decimal) decimal {
	x, y, scale := align(d, o)
	return decimal{new(big.Int).Sub(x, y), scale}
}

func (d decimal) multiply(o decimal) decimal {
	return decimal{new(big.Int).Mul(d.digits, o.digits), d.scale + o.scale}
}

func (d decimal) cmp(o decimal) int {
	x, y, _ := align(d, o)
	return x.Cmp(y)
}

// divide is exact if the quotient has finitely many digits, else to 34 significant digits,
// half to even. o is not zero.
func (d decimal) divide(o decimal) decimal {
	x, y, _ := align(d, o)
	q := new(big.Rat).SetFrac(x, y)
	if places, exact := q.FloatPrec(); exact && places <= maxDigits {
		out, _ := parseText(q.FloatString(places))
		return out
	}
	// The quotient times ten to the power of scale has 34 or 35 digits before its point.
	scale := quotientDigits - (len(new(big.Int).Abs(q.Num()).String()) - len(q.Denom().String()))
	num, denom := new(big.Int).Set(q.Num()), new(big.Int).Set(q.Denom())
	if scale >= 0 {
		num.Mul(num, pow10(scale))
	} else {
		denom.Mul(denom, pow10(-scale))
	}
	out := decimal{halfEven(num, denom), scale}
	if scale < 0 {
		out = decimal{new(big.Int).Mul(out.digits, pow10(-scale)), 0}
	}
	return out
}

func halfEven(num, denom *big.Int) *big.Int {
	q, r := new(big.Int).QuoRem(num, denom, new(big.Int))
	twice := new(big.Int).Abs(r)
	twice.Lsh(twice, 1)
	if c := twice.CmpAbs(denom); c > 0 || c == 0 && q.Bit(0) == 1 {
		q.Add(q, big.NewInt(int64(num.Sign()*denom.Sign())))
	}
	return q
}

// rounding is how a number becomes whole.
type rounding uint8

const (
	roundToZero rounding = iota
	roundDown
	roundUp
	roundHalfAway // halves away from zero
)

func (d decimal) round(to rounding) decimal {
	if d.scale == 0 {
		return d
	}
	unit := pow10(d.scale)
	q, r := new(big.Int).QuoRem(d.digits, unit, new(big.Int))
	awayFromZero := false
	switch to {
	case roundToZero:
	case roundDown:
		awayFromZero = r.Sign() < 0
	case roundUp:
		awayFromZero = r.Sign() > 0
	case roundHalfAway:
		awayFromZero = new(big.Int).Lsh(new(big.Int).Abs(r), 1).Cmp(unit) >= 0
	}
	if awayFromZero {
		q.Add(q, big.NewInt(int64(r.Sign())))
	}
	return decimal{q, 0}
}
