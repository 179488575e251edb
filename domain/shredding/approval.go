package shredding

import (
	"encoding/json"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
)

// Move is what the event of a move of a request says, as ErasureRecord and RedactionRecord do.
type Move struct {
	State       string `json:"state"`
	RequestedBy string `json:"requested_by"`
	ApprovedBy  string `json:"approved_by"`
	Scope       string `json:"scope"`
	Row         string `json:"row_sha256"`

	Sequence event.Sequence `json:"-"` // of the event
	Actor    event.Actor    `json:"-"`
}

// ReadMoves reads the events of a request. Fault administration.event_damaged.
func ReadMoves(events []event.Recorded) ([]Move, error) {
	out := make([]Move, len(events))
	for i := range events {
		e, m := &events[i], &out[i]
		raw, err := e.Data()
		if err == nil {
			err = json.Unmarshal(raw, m)
		}
		actor, actorErr := e.Actor()
		if err != nil || actorErr != nil {
			return nil, fault.New(fault.Internal, "administration.event_damaged", "an event of the administrative log cannot be read; run `backbone verify`")
		}
		m.Sequence, m.Actor = e.Sequence, actor
	}
	return out, nil
}

// Approval is what the event of an approval has to say.
type Approval struct {
	RequestedBy, ApprovedBy string                  // person ids
	Scope                   string                  // in hex
	Row                     string                  // digest of the stored request in hex; "": not compared
	Lasting                 func(state string) bool // reports whether a state follows an approval that is still in force
	Adopted                 event.Sequence          // what was recorded before it was adopted from an earlier release
}

// IsRecorded reports whether the approver, as the actor of an event, has approved the request,
// and no later event took the approval back. A row alone is no approval, since a session of the
// database can write it, or another requester into it. A request of an earlier release was adopted
// with its approval.
func (a Approval) IsRecorded(moves []Move) bool {
	recorded := false
	for _, m := range moves {
		if m.RequestedBy != a.RequestedBy {
			return false
		}
		adopted, lasting := m.Sequence < a.Adopted, a.Lasting(m.State)
		switch {
		case m.State == "approved" || lasting && adopted:
			recorded = (adopted || m.Actor.Type == event.Human && m.Actor.ID == a.ApprovedBy) && m.ApprovedBy == a.ApprovedBy &&
				m.Scope == a.Scope && (a.Row == "" || m.Row == a.Row)
		case !lasting:
			recorded = false
		}
	}
	return recorded
}

// ErasureLasts reports whether the approval of an erasure is still in force in a state after it.
func ErasureLasts(state string) bool { return ErasureState(state).Fences() }

// RedactionLasts is ErasureLasts for redactions.
func RedactionLasts(state string) bool { return RedactionState(state).CarriedOut() }
