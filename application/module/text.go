package module

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	"github.com/erpbackbone/backbone/domain/jsondoc"
	"github.com/erpbackbone/backbone/domain/text"
)

// WithTexts makes a planner that first checks the texts which people wrote into the payload:
// every string in a member with one of the names, at any depth. Faults: those of text.Check.
func WithTexts(plan func(context.Context, Input, State) (Plan, error), members ...string) func(context.Context, Input, State) (Plan, error) {
	return func(ctx context.Context, in Input, s State) (Plan, error) {
		if err := CheckTexts(in.Payload, members...); err != nil {
			return Plan{}, err
		}
		return plan(ctx, in, s)
	}
}

// CheckTexts checks every string in a member with one of the names, at any depth, in the
// order of the members' names. Faults: those of text.Check.
func CheckTexts(payload json.RawMessage, members ...string) error {
	root, err := jsondoc.Decode(payload)
	if err != nil {
		return err
	}
	return checkTexts(root, "", false, members)
}

func checkTexts(v any, pointer string, isText bool, members []string) error {
	switch v := v.(type) {
	case string:
		if isText {
			return text.Check(pointer, v)
		}
	case []any:
		for i, element := range v {
			if err := checkTexts(element, pointer+"/"+strconv.Itoa(i), isText, members); err != nil {
				return err
			}
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if err := checkTexts(v[name], pointer+"/"+jsondoc.EscapeToken(name), slices.Contains(members, name), members); err != nil {
				return err
			}
		}
	}
	return nil
}
