package jq

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	"github.com/erpbackbone/backbone/domain/fault"
)

// encode writes a value as JSON: members by name, numbers as they are.
func encode(v any, l Limits) ([]byte, error) {
	e := encoder{limits: l}
	e.text = json.NewEncoder(&e.out)
	e.text.SetEscapeHTML(false)
	if err := e.value(v, 1); err != nil {
		return nil, err
	}
	if e.out.Len() > l.OutputBytes {
		return nil, e.tooLarge()
	}
	return e.out.Bytes(), nil
}

func (e *encoder) tooLarge() error {
	return fault.New(fault.FailedPrecondition, codeLimit, "the jq program gives more than %d bytes, or more than %d levels; make it give less",
		e.limits.OutputBytes, e.limits.OutputDepth)
}

type encoder struct {
	out    bytes.Buffer
	text   *json.Encoder
	limits Limits
}

func (e *encoder) value(v any, depth int) error {
	if e.out.Len() > e.limits.OutputBytes || depth > e.limits.OutputDepth {
		return e.tooLarge()
	}
	switch v := v.(type) {
	case nil:
		e.out.WriteString("null")
	case bool:
		if v {
			e.out.WriteString("true")
		} else {
			e.out.WriteString("false")
		}
	case string:
		return e.string(v)
	case []any:
		e.out.WriteByte('[')
		for i, inner := range v {
			if i > 0 {
				e.out.WriteByte(',')
			}
			if err := e.value(inner, depth+1); err != nil {
				return err
			}
		}
		e.out.WriteByte(']')
	case map[string]any:
		e.out.WriteByte('{')
		for i, name := range slices.Sorted(maps.Keys(v)) {
			if i > 0 {
				e.out.WriteByte(',')
			}
			if err := e.string(name); err != nil {
				return err
			}
			e.out.WriteByte(':')
			if err := e.value(v[name], depth+1); err != nil {
				return err
			}
		}
		e.out.WriteByte('}')
	default:
		if n, isNumber := v.(json.Number); isNumber && json.Valid([]byte(n)) {
			e.out.WriteString(string(n))
			return nil
		}
		n, ok := parseNumber(v)
		if !ok {
			return invalidOutput("gives a number that JSON cannot say, or one with too many digits")
		}
		e.out.WriteString(n.String())
	}
	return nil
}

func (e *encoder) string(s string) error {
	if err := e.text.Encode(s); err != nil {
		return err
	}
	e.out.Truncate(e.out.Len() - 1) // the line break that ends it
	return nil
}
