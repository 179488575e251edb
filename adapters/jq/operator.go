package jq

import (
	"maps"
	"math/big"
	"slices"
	"strings"

	"github.com/itchyny/gojq"
)

// numbers applies f if both are numbers. A result with too many digits is an error.
func numbers(a, b any, f func(x, y decimal) decimal) (any, bool) {
	x, okX := parseNumber(a)
	y, okY := parseNumber(b)
	if !okX || !okY {
		return nil, false
	}
	out := f(x, y)
	if !out.fits() {
		return errRange, true
	}
	return out.value(), true
}

func (m *meter) add(a, b any) any {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	if n, are := numbers(a, b, decimal.add); are {
		return n
	}
	if !m.payShallow(a, 1) || !m.payShallow(b, 1) {
		return errExhausted
	}
	switch x := a.(type) {
	case string:
		if y, is := b.(string); is {
			return x + y
		}
	case []any:
		if y, is := b.([]any); is {
			return slices.Concat(x, y)
		}
	case map[string]any:
		if y, is := b.(map[string]any); is {
			out := maps.Clone(x)
			maps.Copy(out, y)
			return out
		}
	}
	return errOperands
}

// sum adds the elements of a list or the members of an object, in order. Consecutive texts
// and lists are joined in one pass, so that the cost does not grow with their square.
func (m *meter) sum(v any) any {
	var parts []any
	switch v := v.(type) {
	case []any:
		parts = v
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			parts = append(parts, v[name])
		}
	default:
		return errOperands
	}
	if !m.payShallow(v, 2) {
		return errExhausted
	}
	var total any
	for i := 0; i < len(parts); i++ {
		switch parts[i].(type) {
		case string:
			var text strings.Builder
			for ; i < len(parts); i++ {
				s, is := parts[i].(string)
				if !is {
					break
				}
				if !m.spend(len(s) + 16) {
					return errExhausted
				}
				text.WriteString(s)
			}
			i--
			total = m.add(total, text.String())
		case []any:
			var list []any
			for ; i < len(parts); i++ {
				l, is := parts[i].([]any)
				if !is {
					break
				}
				if !m.payShallow(l, 1) {
					return errExhausted
				}
				list = append(list, l...)
			}
			i--
			if list == nil {
				list = []any{}
			}
			total = m.add(total, list)
		default:
			total = m.add(total, parts[i])
		}
		if err, is := total.(error); is {
			return err
		}
	}
	return total
}

func (m *meter) subtract(a, b any) any {
	if n, are := numbers(a, b, decimal.subtract); are {
		return n
	}
	x, okX := a.([]any)
	y, okY := b.([]any)
	if !okX || !okY {
		return errOperands
	}
	if !m.spend(16*len(x)*max(len(y), 1)) || !m.payDeep(a, max(len(y), 1), 0) || !m.payDeep(b, max(len(x), 1), 0) {
		return errExhausted
	}
	out := []any{}
	for _, v := range x {
		if !slices.ContainsFunc(y, func(w any) bool { return gojq.Compare(v, w) == 0 }) {
			out = append(out, v)
		}
	}
	return out
}

func (m *meter) multiply(a, b any) any {
	if n, are := numbers(a, b, decimal.multiply); are {
		return n
	}
	if text, is := b.(string); is {
		a, b = text, a
	}
	switch x := a.(type) {
	case string:
		times, ok := parseNumber(b)
		if !ok {
			return errOperands
		}
		if times.digits.Sign() <= 0 {
			return nil
		}
		n := times.round(roundUp)
		if !n.digits.IsInt64() || n.digits.Int64() > 1<<30 || !m.spend(int(n.digits.Int64())*(len(x)+1)) {
			m.isExhausted = true
			return errExhausted
		}
		return strings.Repeat(x, int(n.digits.Int64()))
	case map[string]any:
		y, is := b.(map[string]any)
		if !is {
			return errOperands
		}
		if !m.payDeep(a, 1, 0) || !m.payDeep(b, 1, 0) {
			return errExhausted
		}
		return merge(x, y)
	}
	return errOperands
}

func merge(x, y map[string]any) map[string]any {
	out := maps.Clone(x)
	for name, v := range y {
		inner, isX := out[name].(map[string]any)
		other, isY := v.(map[string]any)
		if isX && isY {
			v = merge(inner, other)
		}
		out[name] = v
	}
	return out
}

func (m *meter) divide(a, b any) any {
	x, okX := parseNumber(a)
	y, okY := parseNumber(b)
	if okX && okY {
		if y.digits.Sign() == 0 {
			return errZero
		}
		return x.divide(y).value()
	}
	text, isText := a.(string)
	separator, isToo := b.(string)
	if !isText || !isToo {
		return errOperands
	}
	if !m.spend(costElement * (len(text) + 1)) {
		return errExhausted
	}
	out := []any{}
	if text == "" {
		return out
	}
	for _, part := range strings.Split(text, separator) {
		out = append(out, part)
	}
	return out
}

// modulo works on the integer parts; the result has the sign of a.
func (m *meter) modulo(a, b any) any {
	x, okX := parseNumber(a)
	y, okY := parseNumber(b)
	if !okX || !okY {
		return errOperands
	}
	divisor := y.round(roundToZero).digits
	if divisor.Sign() == 0 {
		return errZero
	}
	return decimal{new(big.Int).Rem(x.round(roundToZero).digits, divisor), 0}.value()
}
