package disclosure

import (
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/shredding"
)

// Grant lets an auditor read classes of personal data until a time, each time with a reason.
type Grant struct {
	ID        event.ID
	PersonID  string // the auditor
	Classes   []shredding.Class
	Until     time.Time // not included
	Reason    string
	GrantedBy string // person id
	GrantedAt time.Time
	EndedBy   string // "": it lasts until Until
	EndReason string
	EndedAt   time.Time
}

// Active reports whether the auditor may read.
func (g *Grant) Active(now time.Time) bool { return g.EndedBy == "" && now.Before(g.Until) }

// The types of the events about grants.
const (
	Granted = "backbone.disclosure.granted" // GrantData
	Ended   = "backbone.disclosure.ended"   // EndData
)

// GrantStream is the type of the stream of a grant in an administrative log; its id is that of
// the grant.
const GrantStream = "backbone.disclosure"

// GrantData is the data of Granted. Who granted is the actor of the event.
type GrantData struct {
	PersonID string            `json:"person_id"`
	Classes  []shredding.Class `json:"classes"`
	Until    time.Time         `json:"until"`
	Reason   string            `json:"reason"`
}

// EndData is the data of Ended.
type EndData struct {
	Reason string `json:"reason"`
}
