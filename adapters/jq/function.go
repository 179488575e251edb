package jq

import (
	"encoding/json"
	"errors"
	"math/big"
	"regexp/syntax"
	"strings"

	"github.com/itchyny/gojq"

	"github.com/erpbackbone/backbone/domain/jsondoc"
)

// Bounds of single operations.
const (
	maxIndex         = 100_000
	maxPathLength    = maxDepth
	maxPatternText   = 1024
	comparisonFactor = 8 // about how often sorting compares a value
)

var (
	errNumbers  = errors.New("numbers wanted")
	errOperands = errors.New("operands do not go together")
	errZero     = errors.New("division by zero")
	errRange    = errors.New("number out of bounds")
	errIndex    = errors.New("index out of bounds")
	errPattern  = errors.New("pattern out of bounds")
)

// functions are the functions that rewritten programs call. Those made by payFunction only
// pay and give null; those made by checkFunction give their input, so that they can follow
// an argument.
func (m *meter) functions() []gojq.CompilerOption {
	payFunction := func(name string, pay func(v any) bool) gojq.CompilerOption {
		return gojq.WithFunction(name, 0, 0, func(v any, _ []any) any {
			if !pay(v) {
				return errExhausted
			}
			return nil
		})
	}
	checkFunction := func(name string, check func(v any) error) gojq.CompilerOption {
		return gojq.WithFunction(name, 0, 0, func(v any, _ []any) any {
			if err := check(v); err != nil {
				return err
			}
			return v
		})
	}
	unary := func(name string, f func(v any) any) gojq.CompilerOption {
		return gojq.WithFunction(name, 0, 0, func(v any, _ []any) any { return f(v) })
	}
	binary := func(name string, f func(a, b any) any) gojq.CompilerOption {
		return gojq.WithFunction(name, 2, 2, func(_ any, args []any) any { return f(args[0], args[1]) })
	}
	compares := func(name string, holds func(c int) bool) gojq.CompilerOption {
		return binary(name, func(a, b any) any {
			c, err := m.compare(a, b)
			if err != nil {
				return err
			}
			return holds(c)
		})
	}
	rounds := func(name string, to rounding) gojq.CompilerOption {
		return unary(name, func(v any) any { return number(v, func(d decimal) any { return d.round(to).value() }) })
	}
	return []gojq.CompilerOption{
		payFunction(string(costShallow), func(v any) bool { return m.payShallow(v, 2) }),
		payFunction(string(costDeep), func(v any) bool { return m.payDeep(v, comparisonFactor, 0) }),
		payFunction(string(costCopy), func(v any) bool { return m.payDeep(v, 1, 0) }),
		payFunction("_each", func(v any) bool { return m.payShallow(v, 1) }),
		checkFunction("_paid", func(v any) error {
			if !m.payDeep(v, 2, 0) {
				return errExhausted
			}
			return nil
		}),
		checkFunction("_at", m.checkIndex), checkFunction("_path", m.checkPath), checkFunction("_paths", m.checkPaths), checkFunction("_pathlength", m.checkPath),
		binary("_addition", m.add), binary("_sub", m.subtract), binary("_mul", m.multiply), binary("_div", m.divide), binary("_mod", m.modulo),
		compares("_eq", func(c int) bool { return c == 0 }), compares("_ne", func(c int) bool { return c != 0 }),
		compares("_lt", func(c int) bool { return c < 0 }), compares("_gt", func(c int) bool { return c > 0 }),
		compares("_le", func(c int) bool { return c <= 0 }), compares("_ge", func(c int) bool { return c >= 0 }),
		unary("_neg", func(v any) any {
			return number(v, func(d decimal) any { return decimal{new(big.Int).Neg(d.digits), d.scale}.value() })
		}),
		unary("_pos", func(v any) any { return number(v, func(decimal) any { return v }) }),
		unary("_abs", func(v any) any {
			return number(v, func(d decimal) any { return decimal{new(big.Int).Abs(d.digits), d.scale}.value() })
		}),
		rounds("_floor", roundDown), rounds("_ceil", roundUp), rounds("_round", roundHalfAway), rounds("_trunc", roundToZero),
		unary("_sum", m.sum), unary("_tonumber", m.toNumber), unary("_fromjson", m.fromJSON),
		gojq.WithFunction("_join", 1, 1, func(v any, args []any) any { return m.join(v, args[0]) }),
		gojq.WithFunction("_pattern", 2, 2, func(v any, args []any) any { return m.payPattern(v, args[0], args[1]) }),
	}
}

func number(v any, f func(d decimal) any) any {
	d, ok := parseNumber(v)
	if !ok {
		return errNumbers
	}
	return f(d)
}

// compare orders values as jq does, numbers exactly.
func (m *meter) compare(a, b any) (int, error) {
	x, okX := parseNumber(a)
	y, okY := parseNumber(b)
	if okX && okY {
		return x.cmp(y), nil
	}
	if !m.payDeep(a, 1, 0) || !m.payDeep(b, 1, 0) {
		return 0, errExhausted
	}
	return gojq.Compare(a, b), nil
}

func (m *meter) checkIndex(v any) error {
	switch v := v.(type) {
	case string, nil:
		return nil
	case []any, map[string]any, bool:
		return errIndex
	default:
		n, ok := parseNumber(v)
		if !ok || n.digits.CmpAbs(new(big.Int).Mul(big.NewInt(maxIndex), pow10(n.scale))) > 0 {
			return errIndex
		}
		return nil
	}
}

func (m *meter) checkPath(v any) error {
	steps, is := v.([]any)
	if !is || len(steps) > maxPathLength {
		m.isExhausted = m.isExhausted || is
		return errIndex
	}
	if !m.payShallow(v, 1) {
		return errExhausted
	}
	for _, step := range steps {
		if slice, is := step.(map[string]any); is {
			for _, bound := range slice {
				if err := m.checkIndex(bound); err != nil {
					return err
				}
			}
			continue
		}
		if err := m.checkIndex(step); err != nil {
			return err
		}
	}
	return nil
}

func (m *meter) checkPaths(v any) error {
	all, is := v.([]any)
	if !is {
		return errIndex
	}
	for _, p := range all {
		if err := m.checkPath(p); err != nil {
			return err
		}
	}
	return nil
}

func (m *meter) toNumber(v any) any {
	text, is := v.(string)
	if !is {
		return number(v, func(decimal) any { return v })
	}
	if _, ok := parseText(text); !ok || !json.Valid([]byte(text)) {
		return errNumbers
	}
	return json.Number(text)
}

func (m *meter) fromJSON(v any) any {
	text, is := v.(string)
	if !is {
		return errOperands
	}
	if !m.spend(64*len(text) + 64) {
		return errExhausted
	}
	out, err := jsondoc.Decode([]byte(text))
	if err != nil {
		return errOperands
	}
	return out
}

// payPattern pays for a regular expression: matching reads every character once for each
// instruction, and every match is an object.
func (m *meter) payPattern(v, re, flags any) any {
	text, isText := v.(string)
	source, isSource := re.(string)
	if letters, is := flags.(string); !isText || !isSource || flags != nil && (!is || len(letters) > 16) {
		return errOperands
	}
	if len(source) > maxPatternText {
		return errPattern
	}
	parts := len(source) + 1
	if tree, err := syntax.Parse(source, syntax.Perl); err == nil {
		if program, err := syntax.Compile(tree.Simplify()); err == nil {
			parts = len(program.Inst)
		}
	}
	if !m.spend(256*len(source) + 4*parts*(len(text)+16) + 1024*(len(text)+1)) {
		return errExhausted
	}
	return nil
}

func (m *meter) join(v, separator any) any {
	list, isList := v.([]any)
	between, isText := separator.(string)
	if !isList || !isText {
		return errOperands
	}
	var out strings.Builder
	for i, part := range list {
		var text string
		switch part := part.(type) {
		case nil:
		case string:
			text = part
		case bool:
			if text = "false"; part {
				text = "true"
			}
		case json.Number:
			text = part.String()
		default:
			d, ok := parseNumber(part)
			if !ok {
				return errOperands
			}
			text = d.String()
		}
		if !m.spend(2*(len(text)+len(between)) + 16) {
			return errExhausted
		}
		if i > 0 {
			out.WriteString(between)
		}
		out.WriteString(text)
	}
	return out.String()
}
