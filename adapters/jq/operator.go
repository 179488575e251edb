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
	x, okX := parse(a)
	y, okY := parse(b)
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
	if n, are := numbers(a, b, decimal.plus); are {
		return n
	}
	if !m.shallow(a, 1) || !m.shallow(b, 1) {
		return errOver
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

// sum adds what is in a list or an object, in order. Lists and texts are built up once.
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
	if !m.shallow(v, 2) {
		return errOver
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
					return errOver
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
				if !m.shallow(l, 1) {
					return errOver
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
	if n, are := numbers(a, b, decimal.minus); are {
		return n
	}
	x, okX := a.([]any)
	y, okY := b.([]any)
	if !okX || !okY {
		return errOperands
	}
	if !m.spend(16*len(x)*max(len(y), 1)) || !m.deep(a, max(len(y), 1), 0) || !m.deep(b, max(len(x), 1), 0) {
		return errOver
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
	if n, are := numbers(a, b, decimal.times); are {
		return n
	}
	if text, is := b.(string); is {
		a, b = text, a
	}
	switch x := a.(type) {
	case string:
		times, ok := parse(b)
		if !ok {
			return errOperands
		}
		if times.digits.Sign() <= 0 {
			return nil
		}
		n := times.round(up)
		if !n.digits.IsInt64() || n.digits.Int64() > 1<<30 || !m.spend(int(n.digits.Int64())*(len(x)+1)) {
			m.over = true
			return errOver
		}
		return strings.Repeat(x, int(n.digits.Int64()))
	case map[string]any:
		y, is := b.(map[string]any)
		if !is {
			return errOperands
		}
		if !m.deep(a, 1, 0) || !m.deep(b, 1, 0) {
			return errOver
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
	x, okX := parse(a)
	y, okY := parse(b)
	if okX && okY {
		if y.digits.Sign() == 0 {
			return errZero
		}
		return x.over(y).value()
	}
	text, isText := a.(string)
	separator, isToo := b.(string)
	if !isText || !isToo {
		return errOperands
	}
	if !m.spend(costElement * (len(text) + 1)) {
		return errOver
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

// modulo works on whole numbers, what is behind the point falls away; the sign is that
// of the first.
func (m *meter) modulo(a, b any) any {
	x, okX := parse(a)
	y, okY := parse(b)
	if !okX || !okY {
		return errOperands
	}
	divisor := y.round(toZero).digits
	if divisor.Sign() == 0 {
		return errZero
	}
	return decimal{new(big.Int).Rem(x.round(toZero).digits, divisor), 0}.value()
}
