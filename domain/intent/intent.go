// Package intent holds the types of a stored intent: a caller's request to a business module
// with its outcome, which is its status, plan hash, rule trace, approvals and the range of its
// events. application/pipeline decides the status, the append engine writes the row, and
// operators and approvers read it. The package does no planning and no I/O.
//
// An intent gets its row when its outcome is known, so most rows are written once. Only an
// intent that waits for approval changes: each decision writes its row again under the next
// Revision.
package intent

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
)

// Status is what became of an intent.
type Status string

// The statuses of stored intents. All but PendingApproval are final, and nothing but a
// decision, its requester or the end of its time ends that one.
const (
	PendingApproval Status = "pending_approval" // parked until persons approve or reject it
	Executed        Status = "executed"         // its events are in the log
	Rejected        Status = "rejected"         // by an approver
	Withdrawn       Status = "withdrawn"        // by the requester, before it was decided
	Expired         Status = "expired"          // waited longer than the setting intake.waiting_limit
	Denied          Status = "denied"           // refused by a right, the schema, the planner, the policy or the store
	Failed          Status = "failed"           // a submission met conflicts that outlasted the retries, or an error after planning began
)

// Statuses are those of stored intents.
var Statuses = []Status{PendingApproval, Executed, Rejected, Withdrawn, Expired, Denied, Failed}

// Planned is the status in the answer to a dry run, which stores nothing.
const Planned Status = "planned"

// Types of the events about an intent, on its stream. Every outcome but plain execution has
// one, in the append that writes the row. DecisionRefused alone leaves the row as it is.
const (
	EventPrefix      = "backbone"
	Waiting          = "backbone.intent.waiting"           // it waits for approval; again if its plan has changed
	ApprovalRecorded = "backbone.intent.approval_recorded" // approved by one person, and waits for another
	Approved         = "backbone.intent.approved"          // by the last person needed, and executed; its events precede this one
	RejectedEvent    = "backbone.intent.rejected"
	WithdrawnEvent   = "backbone.intent.withdrawn"        // by the requester
	ExpiredEvent     = "backbone.intent.expired"          // waited too long
	Refused          = "backbone.intent.refused"          // denied or failed
	DecisionRefused  = "backbone.intent.decision_refused" // a person tried to decide on it and may not; it still waits
	ExecutedEmpty    = "backbone.intent.executed"         // executed with a plan that has no events
)

// WaitingTag is the tag of Waiting and ApprovalRecorded events whose intent has an effective date in the
// month of d. A close of a period names it in the condition of its append, so that an intent that
// begins to wait in another month does not disturb it.
func WaitingTag(d event.Date) string { return "waiting:" + d.String()[:len("2006-01")] }

// IsAbout reports whether an event type is one of those about intents.
func IsAbout(eventType string) bool { return strings.HasPrefix(eventType, EventPrefix+".intent.") }

// StreamOf is the stream of the events about an intent.
func StreamOf(id event.ID) event.StreamID { return event.StreamID{Type: "intent", ID: id.String()} }

// Approval is one person's decision on a waiting intent, which may also be its rejection or withdrawal.
type Approval struct {
	PersonID string    `json:"person_id"`
	ActorID  string    `json:"actor_id"`
	Role     string    `json:"role"`      // that the decision counts for, also if the person has several; "" of the requester
	Decision string    `json:"decision"`  // "approved", "rejected" or "withdrawn"
	PlanHash string    `json:"plan_hash"` // of the plan that was decided on; the intent's may be another since
	Comment  string    `json:"comment,omitempty"`
	At       time.Time `json:"at"`
}

// ApprovalNeed says who may let a waiting intent through, and why it waits. One approval
// meets every need that lists its role: two needs with the same roles do not ask for two
// persons.
type ApprovalNeed struct {
	Roles  []string `json:"roles"` // one of them; empty: any role
	Reason string   `json:"reason"`
	RuleID string   `json:"rule_id"`
}

// Refusal keeps why a submission ended without events. The approvals hold the reason of a
// rejection.
type Refusal struct {
	Code   string `json:"code"`
	Kind   string `json:"kind"`           // of fault.Kind, such as "internal"
	Detail string `json:"detail"`         // "" if it would repeat personal data of the payload
	Rule   string `json:"rule,omitempty"` // of segregation of duties, such as "S1"
}

// MaxDocuments bounds Intent.Documents. A plan that writes more streams is about a batch, and
// its events say which.
const MaxDocuments = 32

// BeforeBindings is the LastSequence of rows from before events held bindings.
const BeforeBindings event.Sequence = 1<<64 - 1

// Intent is the stored form.
type Intent struct {
	ID               event.ID
	Partition        event.PartitionID
	LegalEntity      string
	Type             string
	Payload          json.RawMessage // with its personal values sealed or, once refused, left out
	Actor            event.Actor
	PersonID         string // the natural person behind the actor; approvals compare persons
	Roles            []string
	EffectiveDate    event.Date // of the plan's first event; of a refused intent the requested one
	HasEffectiveDate bool
	CorrelationID    string
	CausedBy         event.ID
	// CausedByPartition is that of the cause if it is in another legal entity, else 0.
	CausedByPartition event.PartitionID
	Source            event.Source
	Status            Status
	PlanHash          string         // of the plan that approvals are for; "" if the intent never waited
	Needs             []ApprovalNeed // of that plan, met or not
	Approvals         []Approval
	Rules             json.RawMessage // the rule trace: a JSON array of event.RuleEvaluation
	Refusal           *Refusal        // of Denied and Failed
	Documents         []string        // the streams that its plan writes, as type/id, at most MaxDocuments; none if it was refused before it had a plan
	FirstSequence     event.Sequence  // of the events it made; 0: none
	EventCount        int             // without those about it, see IsAbout
	LastSequence      event.Sequence  // of the event that holds the Binding of this revision; 0: none, see BeforeBindings
	Revision          int             // compare-and-set counter, from 1
	CreatedAt         time.Time
	UpdatedAt         time.Time
}

// NotFound is the fault of an id that no intent of a legal entity has, or none that the caller sees.
func NotFound(id event.ID) error {
	return fault.New(fault.NotFound, "intent.not_found", "there is no intent %s in this legal entity; check the id and the legal entity", id)
}
