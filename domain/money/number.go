// Package money holds exact amounts: numbers as they are written in a
// document (Number), currencies (Currency), and the operations that may round: Round,
// Convert, Percent and Allocate. Modules, entity states and read models use it. It never
// uses binary floating point, and it is the only importer of the decimal library.
package money

import (
	"math"
	"strconv"

	apd "github.com/cockroachdb/apd/v3"

	"github.com/erpbackbone/backbone/domain/fault"
)

const (
	// MaxDigits is the number of significant digits a number may have on the
	// wire. Every client that reads doubles still gives 15 digits back unchanged.
	MaxDigits = 15
	// MaxDecimals is the number of digits after the point a number may have on
	// the wire, whatever its use. Each use has a smaller limit of its own.
	MaxDecimals = 30
	// maxScanDigits bounds what Scan accepts: sums and quotients of a database may
	// be longer than an amount on the wire.
	maxScanDigits = 1000
)

// Number is an exact decimal number. It is immutable and may be copied; its zero
// value is 0. It keeps its scale: 2.50 stays "2.50" and is Equal to 2.5. Compare
// with Equal or Cmp, since == distinguishes 2.50 from 2.5.
//
// In JSON it is a bare number. An optional member is a *Number with omitempty;
// omitzero on a Number would drop amounts that are 0.
type Number struct {
	coefficient int64        // within ±MaxInt64; 0 when large is set
	scale       int32        // digits after the point, never negative
	large       *apd.Decimal // set when the coefficient does not fit; never changed once set
}

// ParseNumber reads a number as a payload may hold it:
// -?(0|[1-9][0-9]*)(\.[0-9]+)? with at most 15 significant digits. Trailing zeros
// count as digits. Faults, all of kind invalid: money.exponent,
// money.negative_zero, money.too_large (digits), money.scale (more than 30
// decimals), money.not_a_number (everything else).
func ParseNumber(s string) (Number, error) { return parse(s, MaxDigits, MaxDecimals) }

// MustNumber is ParseNumber for constants and tests; it panics on a fault.
func MustNumber(s string) Number {
	n, err := ParseNumber(s)
	if err != nil {
		panic(err)
	}
	return n
}

// FromInt gives a whole number with scale 0.
func FromInt(i int64) Number {
	if i == math.MinInt64 {
		return Number{large: apd.New(i, 0)}
	}
	return Number{coefficient: i}
}

// token is what the parser reads: the same code serves text and raw bytes.
type token interface{ ~string | ~[]byte }

// parse reads the grammar of ParseNumber within the given limits.
func parse[T token](s T, maxDigits, maxDecimals int) (Number, error) {
	i, end := 0, len(s)
	negative := end > 0 && s[0] == '-'
	if negative {
		i++
	}
	start := i
	var coefficient uint64
	for i < end && isDigit(s[i]) {
		coefficient = coefficient*10 + uint64(s[i]-'0')
		i++
	}
	whole := i - start
	if whole == 0 || whole > 1 && s[start] == '0' {
		return Number{}, refuse(s)
	}
	scale := 0
	if i < end && s[i] == '.' {
		point := i
		for i++; i < end && isDigit(s[i]); i++ {
			coefficient = coefficient*10 + uint64(s[i]-'0')
		}
		if scale = i - point - 1; scale == 0 {
			return Number{}, refuse(s)
		}
	}
	if i < end {
		return Number{}, refuse(s)
	}
	digits := whole + scale
	for j := start; j < end && (s[j] == '0' || s[j] == '.'); j++ {
		if s[j] == '0' {
			digits--
		}
	}
	switch {
	case digits == 0 && negative:
		return Number{}, negativeZero()
	case digits > maxDigits:
		return Number{}, tooLarge(maxDigits, digits)
	case scale > maxDecimals:
		return Number{}, fault.New(fault.Invalid, "money.scale",
			"a number may have at most %d decimals; round it before sending", maxDecimals).
			With("allowed", maxDecimals).With("got", scale)
	case digits > 18: // may exceed int64, so coefficient may have wrapped around
		return parseLarge(string(s), scale)
	}
	n := Number{coefficient: int64(coefficient), scale: int32(scale)}
	if negative {
		n.coefficient = -n.coefficient
	}
	return n, nil
}

// parseLarge reads a number that already passed the grammar.
func parseLarge(s string, scale int) (Number, error) {
	d, _, err := exact.NewFromString(s)
	if err != nil || d.Form != apd.Finite || int(-d.Exponent) != scale {
		return Number{}, refuse(s)
	}
	return fromDecimal(d), nil
}

// refuse says why a token is outside the grammar. It is off the fast path, so it
// may look at the token again.
func refuse[T token](s T) error {
	i, end := 0, len(s)
	digits := func() bool {
		from := i
		for i < end && isDigit(s[i]) {
			i++
		}
		return i > from
	}
	if i < end && s[i] == '-' {
		i++
	}
	if digits() {
		ok := true
		if i < end && s[i] == '.' {
			i++
			ok = digits()
		}
		if ok && i < end && (s[i] == 'e' || s[i] == 'E') {
			i++
			if i < end && (s[i] == '+' || s[i] == '-') {
				i++
			}
			if digits() && i == end {
				return fault.New(fault.Invalid, "money.exponent",
					"a number in a payload has no exponent; write all digits, 1500 instead of 1.5e3")
			}
		}
	}
	return fault.New(fault.Invalid, "money.not_a_number",
		"expected a bare JSON number such as 1250.00: no quotes, no null, no sign but a leading ASCII minus, no leading zeros; send it in that form")
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func negativeZero() error {
	return fault.New(fault.Invalid, "money.negative_zero", "zero has no sign; send 0 without the minus")
}

func tooLarge(allowed, got int) error {
	return fault.New(fault.Invalid, "money.too_large",
		"a number may have at most %d significant digits, trailing zeros included; send fewer digits", allowed).
		With("allowed", allowed).With("got", got)
}

// String gives the number in plain notation, as it was written.
func (n Number) String() string {
	if n.large != nil {
		return n.large.Text('f')
	}
	var buf [48]byte
	return string(n.append(buf[:0]))
}

// append adds the plain notation to dst.
func (n Number) append(dst []byte) []byte {
	if n.large != nil {
		return n.large.Append(dst, 'f')
	}
	c := n.coefficient
	if c < 0 {
		dst = append(dst, '-')
		c = -c
	}
	if n.scale == 0 {
		return strconv.AppendInt(dst, c, 10)
	}
	var buf [20]byte
	digits := strconv.AppendInt(buf[:0], c, 10)
	scale := int(n.scale)
	if whole := len(digits) - scale; whole > 0 {
		dst = append(dst, digits[:whole]...)
		dst = append(dst, '.')
		return append(dst, digits[whole:]...)
	}
	dst = append(dst, '0', '.')
	for range scale - len(digits) {
		dst = append(dst, '0')
	}
	return append(dst, digits...)
}

// MarshalJSON gives the bare number in plain notation.
func (n Number) MarshalJSON() ([]byte, error) { return n.append(make([]byte, 0, 24)), nil }

// UnmarshalJSON reads a bare number by the rules of ParseNumber. A JSON string,
// null or anything else is money.not_a_number.
func (n *Number) UnmarshalJSON(b []byte) error { return n.UnmarshalText(b) }

// MarshalText gives the plain notation.
func (n Number) MarshalText() ([]byte, error) { return n.MarshalJSON() }

// AppendText adds the plain notation to dst without further allocation; the error
// is always nil.
func (n Number) AppendText(dst []byte) ([]byte, error) { return n.append(dst), nil }

// UnmarshalText reads a number by the rules of ParseNumber.
func (n *Number) UnmarshalText(b []byte) error {
	v, err := parse(b, MaxDigits, MaxDecimals)
	if err != nil {
		return err
	}
	*n = v
	return nil
}

// Scan reads a number from a database column: text or a whole number. It accepts
// more digits than the wire does, because sums are computed there. NULL, NaN,
// infinity and binary floating point are money.not_a_number; read an optional
// column into a *Number.
func (n *Number) Scan(src any) error {
	var v Number
	var err error
	switch s := src.(type) {
	case string:
		v, err = parse(s, maxScanDigits, maxScanDigits)
	case []byte:
		v, err = parse(s, maxScanDigits, maxScanDigits)
	case int64:
		v = FromInt(s)
	default:
		return fault.New(fault.Invalid, "money.not_a_number",
			"a stored number must come as text or as a whole number, not as %T; select the column as text", src)
	}
	if err != nil {
		return err
	}
	*n = v
	return nil
}
