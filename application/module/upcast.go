package module

import (
	"context"
	"encoding/json"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
)

// Upcast makes data of a version out of data of an earlier one. It depends on nothing
// but the data, is fast, and does not write to them. Sealed values are tokens,
// {"$pii":"0"} and on: it may move a token to where the version declares personal data
// of the same class, and must not look into it.
type Upcast func(data json.RawMessage) (json.RawMessage, error)

// Step leads data one step towards the version in which they are read.
type Step struct {
	To *RegisteredType
	// Upcast is nil without a declared step: what the schema requires is filled with its
	// defaults, and all else is left as it is. The same is done after Upcast.
	Upcast UpcastStep
}

// UpcastStep is a declared step: an Upcast of a module, or a program of an administrator.
type UpcastStep func(ctx context.Context, data json.RawMessage) (json.RawMessage, error)

// UpcastStepOf makes a step of what a module declared.
func UpcastStepOf(u Upcast) UpcastStep {
	if u == nil {
		return nil
	}
	return func(_ context.Context, data json.RawMessage) (json.RawMessage, error) { return u(data) }
}

// Versions knows how events of earlier versions are read: the registry.
type Versions interface {
	// Steps lead from a version of a type to the one in which its events are read, the
	// newest, deprecated or not. None if it is that one or an unknown one.
	Steps(eventType string, from uint32) []Step
	// Knows reports whether this node has heard of a version.
	Knows(eventType string, version uint32) bool
	// Refresh takes up what was registered since the last time.
	Refresh(ctx context.Context) error
}

// Upcaster shows events in the version in which they are read. What it is given stays
// as it is, and comes back itself if there is nothing to do. It works on stored data,
// before they are opened: a sealed value that was moved says by itself where it was
// sealed.
type Upcaster interface {
	// Upcast is for folds and projections. Fault event_type.upcast_failed for an event
	// that cannot be lifted.
	Upcast(ctx context.Context, events []event.Recorded) ([]event.Recorded, error)
	// Show is for people: an event that cannot be lifted is shown as it is stored, and
	// says why.
	Show(ctx context.Context, events []event.Recorded) ([]event.Recorded, error)
	// Try wants an event that is about to be stored to be liftable, and what comes of it
	// to fit. Fault event_type.not_upcastable.
	Try(ctx context.Context, e event.Recorded) error
}

// NotUpcastable is the fault for an append of an earlier version whose data its
// upcasters cannot lift.
func NotUpcastable(name string, version uint32) *fault.Error {
	return fault.New(fault.FailedPrecondition, "event_type.not_upcastable",
		"events of %s are read in a later version than %d, and this one cannot be lifted to it; correct what violations names, or append it in a later version that takes events", name, version)
}
