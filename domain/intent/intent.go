// Package intent has the stored request of a caller to a business module and its outcome: an
// Intent with its lifecycle, plan hash, rule trace and approvals. application/pipeline moves
// it from status to status and the stores keep it. The package does no planning and no I/O.
package intent

import (
	"encoding/json"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
)

// Status is a step of the lifecycle.
type Status string

// The lifecycle: received → validated → planned → (pending_approval → approved →)
// executed; the rest are ways to end.
const (
	Received        Status = "received"
	Validated       Status = "validated"
	Planned         Status = "planned"
	PendingApproval Status = "pending_approval"
	Approved        Status = "approved"
	Executed        Status = "executed"
	Rejected        Status = "rejected" // by an approver
	Denied          Status = "denied"   // by a rule or a right
	Failed          Status = "failed"   // by a conflict that outlasted the retries
	Expired         Status = "expired"
)

// Approval is one person's decision on a waiting intent.
type Approval struct {
	PersonID string    `json:"person_id"`
	ActorID  string    `json:"actor_id"`
	Role     string    `json:"role"`
	Decision string    `json:"decision"` // "approved" or "rejected"
	PlanHash string    `json:"plan_hash"`
	Comment  string    `json:"comment,omitempty"`
	At       time.Time `json:"at"`
}

// ApprovalNeed says who may let a waiting intent through, and why it waits.
type ApprovalNeed struct {
	Roles  []string `json:"roles"`
	Reason string   `json:"reason"`
	RuleID string   `json:"rule_id"`
}

// Refusal keeps why an intent ended without events.
type Refusal struct {
	Code   string `json:"code"`
	Kind   string `json:"kind"`
	Detail string `json:"detail"`
}

// Intent is the stored form.
type Intent struct {
	ID            event.ID
	Partition     event.PartitionID
	LegalEntity   string
	Type          string
	Payload       json.RawMessage
	Actor         event.Actor
	PersonID      string // the natural person behind the actor; approvals compare persons
	Roles         []string
	EffectiveDate event.Date // as asked for; zero with HasEffectiveDate false
	HasEffective  bool
	CorrelationID string
	CausedBy      event.ID
	Source        event.Source
	Status        Status
	PlanHash      string
	Need          []ApprovalNeed
	Approvals     []Approval
	Rules         json.RawMessage
	Refusal       *Refusal
	FirstSequence event.Sequence // of the events it made; 0: none
	EventCount    int
	Revision      int // compare-and-set counter, from 1
	CreatedAt     time.Time
	UpdatedAt     time.Time
}
