package module

import (
	"context"
	"encoding/json"
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
		root, err := jsondoc.Decode(in.Payload)
		if err != nil {
			return Plan{}, err
		}
		refusal := checkTexts(root, check)
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
	root, err := jsondoc.Decode(payload)
	if err != nil {
		return err
	}
	return checkTexts(root, textsOf(members))
}

func textsOf(members []string) TextCheck {
	return func(member, pointer, s string) error {
		if !slices.Contains(members, member) {
			return nil
		}
		return text.Check(pointer, s)
	}
}

// checkTexts returns the refusal of the first refused string, in the order of the members' names. It
// makes pointers and an order only once there is one.
func checkTexts(root any, check TextCheck) error {
	if passes(root, "", check) {
		return nil
	}
	return firstRefusal(root, "", "", check)
}

func passes(v any, member string, check TextCheck) bool {
	switch v := v.(type) {
	case string:
		return check(member, "", v) == nil
	case []any:
		for _, element := range v {
			if !passes(element, member, check) {
				return false
			}
		}
	case map[string]any:
		for name, value := range v {
			if !passes(value, name, check) {
				return false
			}
		}
	}
	return true
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
