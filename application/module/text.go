package module

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/jsondoc"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/domain/text"
)

// TextCheck checks a string of a payload: member is the name of the member that has it, itself or
// in a list, pointer leads to it.
type TextCheck func(member, pointer, s string) error

// WithTexts makes a planner that first checks the texts which people wrote into the payload:
// every string in a member with one of the names, at any depth. Faults: those of text.Check.
func WithTexts(plan func(context.Context, Input, State) (Plan, error), members ...string) func(context.Context, Input, State) (Plan, error) {
	return WithTextCheck(plan, textsOf(members))
}

// WithTextCheck makes a planner that first checks every string of the payload. The stored intent
// of a refusal has [REDACTED] in place of each string that the check refuses, and lacks what the
// planner would not keep either.
func WithTextCheck(plan func(context.Context, Input, State) (Plan, error), check TextCheck) func(context.Context, Input, State) (Plan, error) {
	return func(ctx context.Context, in Input, s State) (Plan, error) {
		refusal, err := checkTexts(in.Payload, check)
		if err != nil {
			return Plan{}, err
		}
		if refusal == nil {
			return plan(ctx, in, s)
		}
		p, err := plan(ctx, in, s)
		if _, refused := fault.As(err); err != nil && !refused {
			return Plan{}, err
		}
		kept := in.Payload
		if p.Kept != nil {
			kept = p.Kept
		}
		if kept, err = redactTexts(kept, check); err != nil {
			return Plan{}, err
		}
		return Plan{Kept: kept}, refusal
	}
}

// CheckTexts checks every string in a member with one of the names, at any depth, in the
// order of the members' names. Faults: those of text.Check.
func CheckTexts(payload json.RawMessage, members ...string) error {
	refusal, err := checkTexts(payload, textsOf(members))
	return cmp.Or(err, refusal)
}

func textsOf(members []string) TextCheck {
	return func(member, pointer, s string) error {
		if !slices.Contains(members, member) {
			return nil
		}
		return text.Check(pointer, s)
	}
}

// checkTexts returns the refusal of the first refused string, in the order of the members' names. Only
// then it decodes the payload: every intent is checked, and hardly any is refused.
func checkTexts(payload json.RawMessage, check TextCheck) (refusal, err error) {
	start, end, _, err := jsondoc.Locate(payload, "")
	if err != nil {
		return nil, err
	}
	if err := checkStrings(payload, start, end, "", check); err == nil {
		return nil, nil
	} else if !errors.Is(err, errRefused) {
		return nil, err
	}
	root, err := jsondoc.Decode(payload)
	if err != nil {
		return nil, err
	}
	return firstRefusal(root, "", "", check), nil
}

// errRefused ends a walk at a string that is refused.
var errRefused = errors.New("a string is refused")

// checkStrings checks the strings of the value at raw[start:end]: errRefused.
func checkStrings(raw []byte, start, end int, member string, check TextCheck) error {
	switch raw[start] {
	case '"':
		s, err := unquote(raw[start+1 : end-1])
		if err == nil && check(member, "", s) != nil {
			err = errRefused
		}
		return err
	case '[':
		return jsondoc.EachElement(raw, start, func(_, start, end int) error {
			return checkStrings(raw, start, end, member, check)
		})
	case '{':
		return jsondoc.EachMember(raw, start, func(name []byte, start, end int) error {
			if c := raw[start]; c != '"' && c != '[' && c != '{' {
				return nil
			}
			member, err := unquote(name)
			if err != nil {
				return err
			}
			return checkStrings(raw, start, end, member, check)
		})
	}
	return nil
}

// unquote decodes a string as written, without its quotes.
func unquote(written []byte) (s string, err error) {
	if bytes.IndexByte(written, '\\') < 0 {
		return string(written), nil
	}
	err = json.Unmarshal(append(append([]byte{'"'}, written...), '"'), &s)
	return s, err
}

func firstRefusal(v any, pointer, member string, check TextCheck) error {
	switch v := v.(type) {
	case string:
		return check(member, pointer, v)
	case []any:
		for i, element := range v {
			if err := firstRefusal(element, pointer+"/"+strconv.Itoa(i), member, check); err != nil {
				return err
			}
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if err := firstRefusal(v[name], pointer+"/"+jsondoc.EscapeToken(name), name, check); err != nil {
				return err
			}
		}
	}
	return nil
}

// redactTexts replaces the strings that a check refuses.
func redactTexts(payload json.RawMessage, check TextCheck) (json.RawMessage, error) {
	root, err := jsondoc.Decode(payload)
	if err != nil {
		return nil, err
	}
	var redact func(v any, member string) any
	redact = func(v any, member string) any {
		switch v := v.(type) {
		case string:
			if check(member, "", v) != nil {
				return json.RawMessage(shredding.Redacted)
			}
		case []any:
			for i := range v {
				v[i] = redact(v[i], member)
			}
		case map[string]any:
			for name := range v {
				v[name] = redact(v[name], name)
			}
		}
		return v
	}
	return json.Marshal(redact(root, ""))
}
