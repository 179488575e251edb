package module

import (
	"context"
	"encoding/json"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
)

// Upcast converts data of an earlier version to a version. It depends on the data only, is
// fast, and does not change its argument. Sealed values are tokens, {"$pii":"0"} and up: it
// may move a token to a place where the version declares personal data of the same class,
// and must not read it.
type Upcast func(data json.RawMessage) (json.RawMessage, error)

// Step converts data by one version, towards the one in which they are read.
type Step struct {
	To *RegisteredType
	// Upcast is nil without a declared step. Then, and after Upcast, required members that
	// are missing are filled with the schema's defaults.
	Upcast UpcastStep
}

// UpcastStep is a declared step: an Upcast of a module, or a program of an administrator.
type UpcastStep func(ctx context.Context, data json.RawMessage) (json.RawMessage, error)

// UpcastStepOf makes a step of a module's declaration, nil without one.
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
	// HasVersion reports whether this node has loaded a version.
	HasVersion(eventType string, version uint32) bool
	// Refresh loads versions registered since the last call.
	Refresh(ctx context.Context) error
}

// Upcaster converts events to the version in which they are read. It never changes its
// arguments, and returns them as they are if no event is of an earlier version. It works on
// stored data, before they are opened: a sealed value that was moved carries the location
// where it was sealed.
type Upcaster interface {
	// Upcast is for folds and projections. Fault event_type.upcast_failed for an event
	// that cannot be converted.
	Upcast(ctx context.Context, events []event.Recorded) ([]event.Recorded, error)
	// UpcastForDisplay is for callers of the API: an event that cannot be converted is returned as it is
	// stored, with the reason.
	UpcastForDisplay(ctx context.Context, events []event.Recorded) ([]event.Recorded, error)
	// CheckUpcastable checks that an event that is about to be stored can be converted, and that the
	// result fits its schema. Fault event_type.not_upcastable.
	CheckUpcastable(ctx context.Context, e event.Recorded) error
}

// NotUpcastable is the fault for an append of an earlier version whose data its
// upcasters cannot convert.
func NotUpcastable(name string, version uint32) *fault.Error {
	return fault.New(fault.FailedPrecondition, "event_type.not_upcastable",
		"events of %s are read in a later version than %d, and this one cannot be converted to it; correct the members that violations name, or append it in a later version that takes events", name, version)
}
