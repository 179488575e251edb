package eventtype

import (
	"crypto/sha256"

	"github.com/erpbackbone/backbone/domain/fault"
)

// State is what the changes of a version make of it.
type State struct {
	Active   bool    // it takes new events
	Withheld bool    // it was proposed, and no second person has confirmed it
	Moved    bool    // out of the shared registry
	Proposal *Change // that waits for a second person; nil: none
}

// Apply adds a change.
func (s *State) Apply(c Change) {
	switch c.Action {
	case ActionRegistered, ActionReactivated:
		*s = State{Active: true}
	case ActionDeprecated:
		*s = State{}
	case ActionMoved:
		*s = State{Moved: true}
	case ActionProposed:
		*s = State{Withheld: true, Proposal: &c}
	case ActionDeprecationProposed, ActionReactivationProposed, ActionAmendmentProposed:
		s.Proposal = &c
	case ActionRejected, ActionAmended:
		s.Proposal = nil
	}
}

// Confirmation is the change that takes effect when a second person confirms a proposal.
func (a Action) Confirmation() Action {
	switch a {
	case ActionProposed:
		return ActionRegistered
	case ActionDeprecationProposed:
		return ActionDeprecated
	case ActionReactivationProposed:
		return ActionReactivated
	case ActionAmendmentProposed:
		return ActionAmended
	default:
		return ""
	}
}

// next reports whether a change of the version changes anything.
func (s *State) next(c *Change) (bool, error) {
	if s.Moved {
		return false, nil
	}
	switch c.Action {
	case ActionDeprecationProposed, ActionReactivationProposed:
		if s.Withheld || s.Active == (c.Action == ActionReactivationProposed) {
			return false, nil
		}
		if s.Proposal != nil && s.Proposal.Action != c.Action {
			return false, proposalOpen(c)
		}
		return s.Proposal == nil, nil
	case ActionRejected:
		return s.Proposal != nil, nil
	default:
		if s.Proposal == nil || s.Proposal.Action.Confirmation() != c.Action {
			return false, nil
		}
		if s.Proposal.Actor == c.Actor {
			return false, SamePerson(c.Type)
		}
		return true, nil
	}
}

func proposalOpen(c *Change) error {
	return fault.New(fault.Conflict, "event_type.proposal_open", "another change of version %d of event type %q waits for its confirmation; confirm or reject that first", c.SchemaVersion, c.Type)
}

// CheckAmendment reports why a version cannot be amended now. Faults event_type.duplicate for one
// that is not registered, or has the document already, event_type.deprecated and
// event_type.proposal_open.
func (v *VersionState) CheckAmendment(c *Change) error {
	switch {
	case v.State.Withheld || v.State.Moved || v.Digest == c.Digest:
		return Duplicate(c.Type, c.SchemaVersion)
	case !v.State.Active:
		return Deprecated(c.Type)
	case v.State.Proposal != nil:
		return proposalOpen(c)
	default:
		return nil
	}
}

// SamePerson is the fault for a person who confirms what they proposed.
func SamePerson(name string) *fault.Error {
	return fault.New(fault.Forbidden, "event_type.same_person", "you proposed this change of event type %q yourself; another administrator confirms it", name)
}

// NotProposed is the fault for a confirmation or rejection of what is not proposed.
func NotProposed(name string) *fault.Error {
	return fault.New(fault.FailedPrecondition, "event_type.not_proposed",
		"no change of event type %q waits for a confirmation, or another one than you looked at; look at it (GET /api/event-types/{type})", name)
}

// VersionState is a registered version with the changes that were made to it.
type VersionState struct {
	SchemaVersion uint32
	Digest        [sha256.Size]byte // of its document as it was last amended
	State         State
}

// ChangeVersions gives the changes that a request makes to the versions of its type: to the one
// that is named, or with version 0 to all. A version that is in the wanted state already is left
// out. The registry's store calls it under the lock of the registry. Faults:
//
//	event_type.not_found      there is no such version
//	event_type.not_proposed   nothing to confirm or to reject
//	event_type.proposal_open  another change of a version waits for its confirmation
//	event_type.same_person    a person confirms a proposal of their own
func ChangeVersions(versions []VersionState, c Change) ([]Change, error) {
	known, out := false, []Change{}
	for i := range versions {
		v := &versions[i]
		if c.SchemaVersion != 0 && v.SchemaVersion != c.SchemaVersion || v.State.Moved {
			continue
		}
		known = true
		made := c
		made.SchemaVersion, made.Digest = v.SchemaVersion, v.Digest
		if made.Action == ActionAmended && v.State.Proposal != nil {
			made.Digest = v.State.Proposal.Digest
		}
		changes, err := v.State.next(&made)
		if err != nil {
			return nil, err
		}
		if changes {
			out = append(out, made)
		}
	}
	if !known {
		return nil, NotRegistered(c.Type)
	}
	if len(out) == 0 && c.Action.Confirmation() == "" {
		return nil, NotProposed(c.Type)
	}
	return out, nil
}
