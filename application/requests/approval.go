package requests

import (
	"encoding/json"
	"slices"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
)

// Approval is what the event of an approval has to say.
type Approval struct {
	RequestedBy, ApprovedBy string         // person ids
	Scope                   string         // in hex
	Row                     string         // digest of the stored request in hex; "": not compared
	Lasting                 []string       // states after the approval in which it is still in force
	Adopted                 event.Sequence // what was recorded before it was adopted from an earlier release
}

// IsRecorded reports whether the approver, as the actor of an event, has approved the request,
// and no later event took the approval back. A row alone is no approval, since a session of the
// database can write it. A request of an earlier release was adopted with its approval. Fault
// administration.event_damaged.
func (a Approval) IsRecorded(events []event.Recorded) (bool, error) {
	recorded := false
	for i := range events {
		e := &events[i]
		var data struct {
			State       string `json:"state"`
			RequestedBy string `json:"requested_by"`
			ApprovedBy  string `json:"approved_by"`
			Scope       string `json:"scope"`
			Row         string `json:"row_sha256"`
		}
		raw, err := e.Data()
		if err == nil {
			err = json.Unmarshal(raw, &data)
		}
		actor, actorErr := e.Actor()
		if err != nil || actorErr != nil {
			return false, fault.New(fault.Internal, "administration.event_damaged", "an event of the administrative log cannot be read; run `backbone verify`")
		}
		adopted := e.Sequence < a.Adopted
		lasting := slices.Contains(a.Lasting, data.State)
		if data.State == "approved" || lasting && adopted {
			recorded = (adopted || actor.Type == event.Human && actor.ID == a.ApprovedBy) && data.ApprovedBy == a.ApprovedBy && data.RequestedBy == a.RequestedBy &&
				data.Scope == a.Scope && (a.Row == "" || data.Row == a.Row)
		} else if !lasting {
			recorded = false
		}
	}
	return recorded, nil
}
