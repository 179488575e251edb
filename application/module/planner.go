package module

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
)

// PlanOf makes the Plan of an IntentType from a planner that takes the decoded payload.
// Faults of decoding are those of DecodePayload.
func PlanOf[P any](plan func(ctx context.Context, in Input, s State, payload P) (Plan, error)) func(context.Context, Input, State) (Plan, error) {
	return func(ctx context.Context, in Input, s State) (Plan, error) {
		var payload P
		if err := DecodePayload(in.Payload, &payload); err != nil {
			return Plan{}, err
		}
		return plan(ctx, in, s, payload)
	}
}

// DecodePayload decodes a payload that fits its schema. A schema cannot express that a
// number follows the grammar of package money, whose faults are returned with the number's
// pointer, nor that a date exists: intent.schema_invalid.
func DecodePayload(payload json.RawMessage, into any) error {
	err := json.Unmarshal(payload, into)
	if err == nil {
		return nil
	}
	if f, ok := fault.As(err); ok {
		if f.Field == "" {
			f = f.WithField(money.Locate(payload))
		}
		return f
	}
	f := fault.New(fault.Invalid, "intent.schema_invalid",
		"a value of the payload is not of its type; compare the payload with the intent's schema").WithCause(err)
	if wrongType, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		f = f.WithField("/" + strings.ReplaceAll(wrongType.Field, ".", "/"))
	}
	return f
}
