package module

import (
	"context"
	"encoding/json"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
)

// Upcast converts data of the previous version of an event type to this one. It must
// depend on the data only, be fast, and not change its argument. Sealed values appear as
// tokens, {"$pii":"0"} and up. It may move a token to a member that this version declares as
// personal data of the same class, and must not interpret it.
type Upcast func(data json.RawMessage) (json.RawMessage, error)

// Step converts data by one version.
type Step struct {
	To *RegisteredType
	// Upcast is nil if no step is declared. Missing required members are filled with the
	// schema's defaults after it, or instead of it.
	Upcast UpcastStep
	// Keys are the business keys that an Upcast to a candidate must keep. Nil for registered
	// versions, which were proven.
	Keys []eventtype.BusinessKeyRule
}

// UpcastStep is a declared step: an Upcast of a module, or a program of an administrator.
type UpcastStep func(ctx context.Context, data json.RawMessage) (json.RawMessage, error)

// UpcastStepOf adapts the Upcast of a module, nil for nil.
func UpcastStepOf(u Upcast) UpcastStep {
	if u == nil {
		return nil
	}
	return func(_ context.Context, data json.RawMessage) (json.RawMessage, error) { return u(data) }
}

// Versions returns the steps that convert events of earlier versions. The registry
// implements it.
type Versions interface {
	// Steps returns the steps from a version of a tenant's type, or of a built-in module's, to
	// its newest version, deprecated or not. It returns none for the newest version and for an
	// unknown one.
	Steps(tenantID, eventType string, from uint32) []Step
	// HasVersion reports whether this node has loaded a version.
	HasVersion(tenantID, eventType string, version uint32) bool
	// Refresh loads the tenant's versions, and those of built-in modules, that were registered
	// since the last call.
	Refresh(ctx context.Context, tenantID string) error
}

// Upcaster converts events to the newest version of their type. It never changes its
// arguments, and returns them if no event is of an earlier version. It works on stored data
// before sealed values are opened; a sealed value that was moved carries the location where
// it was sealed.
type Upcaster interface {
	// Upcast is for folds and projections. Fault event_type.upcast_failed for an event
	// that cannot be converted.
	Upcast(ctx context.Context, events []event.Recorded) ([]event.Recorded, error)
	// UpcastForDisplay is for callers of the API. It returns an event that cannot be
	// converted as stored, with the reason.
	UpcastForDisplay(ctx context.Context, events []event.Recorded) ([]event.Recorded, error)
	// CheckUpcastable checks before an append that the event can be converted and that the
	// result fits its schema. Fault event_type.not_upcastable.
	CheckUpcastable(ctx context.Context, e event.Recorded) error
}

// NotUpcastable is the fault for an append of an earlier version whose data its
// upcasters cannot convert.
func NotUpcastable(name string, version uint32) *fault.Error {
	return fault.New(fault.FailedPrecondition, "event_type.not_upcastable",
		"events of %s are read in a later version than %d, and this one cannot be converted to it; correct the members that violations name, or append it in a later version that takes events", name, version)
}
