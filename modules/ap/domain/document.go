package domain

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/ap/contract"
)

// State is the state of a document.
type State string

// The states. A document with findings stays submitted, one without is validated.
const (
	StateNone          State = ""
	StateDraft         State = "draft"
	StateDiscarded     State = "discarded"
	StateSubmitted     State = "submitted"
	StateValidated     State = "validated"
	StatePosted        State = "posted"
	StatePartiallyPaid State = "partially_paid" // payments or applications took a part
	StatePaid          State = "paid"           // nothing is open
	StateRejected      State = "rejected"
	StateVoided        State = "voided"
)

// UndecidedStates lists the states in which a document can be approved, corrected or rejected.
func UndecidedStates() []State { return []State{StateSubmitted, StateValidated} }

// OpenStates lists the states in which something of a document can be open.
func OpenStates() []State { return []State{StatePosted, StatePartiallyPaid} }

// Step is what a person did to a document, for segregation of duties.
type Step struct {
	Name    string   `json:"step"` // "drafted", "submitted", "corrected", "reinstated", "approved"
	EventID string   `json:"event_id"`
	Persons []string `json:"persons"`         // see Persons
	Roles   []string `json:"roles,omitempty"` // of an approver, see contract.DocumentApproved
}

// Hold blocks approval or payment of a document until it is released.
type Hold struct {
	ID       string
	Kind     string
	Blocks   string
	Finding  json.RawMessage `json:",omitempty"` // figures of the finding; nil: none
	Released bool
	Waived   bool // a person released it, and the body is still the one that was held
}

// Posting is what a document's journal did to the control account.
type Posting struct {
	JournalID  string
	Date       event.Date
	Amount     money.Number // in the document's currency
	Functional money.Number
}

// Application is one settlement of a document by another one.
type Application struct {
	ID         string
	With       contract.DocumentRef
	Action     string // of the event: contract.CreditApplied, ...
	Amount     money.Number
	Functional money.Number // carrying amount that the document lost
	JournalID  string       // of the application; "" if it needed none
	Date       event.Date
}

// Document is the state of the stream of an invoice or credit memo. Readers share it;
// only Apply changes it, on a clone.
type Document struct {
	Kind          contract.Kind
	State         State
	SubmittedID   event.ID
	Sequence      event.Sequence // of the submission
	PostingDate   event.Date     // proposed by the latest body
	CorrelationID string
	Data          contract.Document // the latest body
	Submitters    []Step            // the steps of drafting, submitting, correcting and reinstating
	Approvers     []Step            // of the latest body
	Holds         []Hold
	Posting       Posting // zero before the posting, and for documents without a journal
	Open          money.Number
	Carrying      money.Number // of Open, in functional currency
	Applications  []Application
	Discounts     []contract.DiscountShare // that payments took and whose tax they corrected
	Unused        money.Number             // of a prepayment: what no invoice has used
	OpenedOn      event.Date               // the latest day on which Open grew: by a posting, or a settlement that was undone; of a prepayment also Unused
}

// Clone copies the document. Bodies and discounts are replaced as a whole, so clones share them.
func (d *Document) Clone() *Document {
	c := *d
	c.Submitters, c.Approvers, c.Holds = slices.Clone(d.Submitters), slices.Clone(d.Approvers), slices.Clone(d.Holds)
	c.Applications = slices.Clone(d.Applications)
	return &c
}

// Apply folds an event.
func (d *Document) Apply(e event.Recorded, data []byte) error {
	switch e.Type {
	case d.Kind.Event(contract.Drafted):
		d.State, d.CorrelationID = StateDraft, e.CorrelationID
		return d.addSubmitter("drafted", e)
	case d.Kind.Event(contract.Discarded):
		d.State = StateDiscarded
	case d.Kind.Event(contract.Submitted):
		d.SubmittedID, d.Sequence, d.CorrelationID = e.ID, e.Sequence, e.CorrelationID
		return d.replaceBody("submitted", e, data)
	case d.Kind.Event(contract.Corrected):
		return d.replaceBody("corrected", e, data)
	case d.Kind.Event(contract.Reinstated):
		for i := range d.Holds {
			d.Holds[i].Released = true
		}
		return d.replaceBody("reinstated", e, data)
	case d.Kind.Event(contract.Validated):
		d.State = StateValidated
	case d.Kind.Event(contract.Held):
		return d.addHold(data)
	case d.Kind.Event(contract.HoldReleased):
		var r contract.HoldReleasedData
		if err := json.Unmarshal(data, &r); err != nil {
			return fmt.Errorf("hold release: %w", err)
		}
		if i := d.hold(r.HoldID); i >= 0 {
			d.Holds[i].Released, d.Holds[i].Waived = true, !r.FindingGone
		}
	case d.Kind.Event(contract.ApprovalRecorded), d.Kind.Event(contract.Approved):
		step, err := stepOf("approved", e)
		if err != nil {
			return err
		}
		var a contract.DocumentApproved
		if err := json.Unmarshal(data, &a); err != nil {
			return fmt.Errorf("approval: %w", err)
		}
		step.Roles = a.ApproverRoles
		d.Approvers = append(d.Approvers, step)
		if e.Type == d.Kind.Event(contract.Approved) {
			d.State, d.Posting = StatePosted, Posting{JournalID: a.JournalID, Date: e.EffectiveDate}
			if Control(&d.Data).IsZero() {
				d.State = StatePaid
			}
		}
	case d.Kind.Event(contract.Posted):
		return d.post(e, data)
	case d.Kind.Event(contract.Paid), d.Kind.Event(contract.PartiallyPaid), d.Kind.Event(contract.PaymentReversed):
		return d.applyPayment(e, data)
	case d.Kind.Event(contract.Rejected):
		d.State = StateRejected
	case d.Kind.Event(contract.Voided):
		d.State, d.Posting = StateVoided, Posting{}
		d.Open, d.Carrying, d.Unused, d.Discounts = money.Number{}, money.Number{}, money.Number{}, nil
	default:
		return d.applySettlement(e, data)
	}
	return nil
}

// replaceBody takes over a new body. It ends approvals of the earlier one.
func (d *Document) replaceBody(step string, e event.Recorded, data []byte) error {
	d.Data = contract.Document{}
	if err := json.Unmarshal(data, &d.Data); err != nil {
		return fmt.Errorf("document: %w", err)
	}
	d.State, d.PostingDate, d.Approvers = StateSubmitted, e.EffectiveDate, nil
	for i := range d.Holds {
		d.Holds[i].Waived = false
	}
	return d.addSubmitter(step, e)
}

func (d *Document) addSubmitter(name string, e event.Recorded) error {
	step, err := stepOf(name, e)
	if err != nil {
		return err
	}
	d.Submitters = append(d.Submitters, step)
	return nil
}

func (d *Document) addHold(data []byte) error {
	var h struct {
		contract.DocumentHeld
		Finding json.RawMessage `json:"finding"`
	}
	if err := json.Unmarshal(data, &h); err != nil {
		return fmt.Errorf("hold: %w", err)
	}
	d.Holds = append(d.Holds, Hold{ID: h.HoldID, Kind: h.Kind, Blocks: h.Blocks, Finding: h.Finding})
	return nil
}

func stepOf(name string, e event.Recorded) (Step, error) {
	actor, err := e.Actor()
	if err != nil {
		return Step{}, err
	}
	return Step{Name: name, EventID: e.ID.String(), Persons: Persons(actor)}, nil
}

// IsService reports whether an actor is a system, which never counts as a person.
func IsService(t event.ActorType) bool {
	return t == event.System || t == event.External || t == event.Import
}

// Persons lists the persons who count as having acted, for segregation of duties: a person
// or agent itself, and the one on whose behalf it acts; for a service only the latter.
func Persons(a event.Actor) []string {
	persons := []string{}
	if !IsService(a.Type) {
		persons = append(persons, a.ID)
	}
	if o := a.Details.OnBehalfOf; o != nil && o.ID != "" && !slices.Contains(persons, o.ID) {
		persons = append(persons, o.ID)
	}
	return persons
}

func (d *Document) hold(id string) int {
	return slices.IndexFunc(d.Holds, func(h Hold) bool { return h.ID == id })
}

// Hold finds a hold.
func (d *Document) Hold(id string) (Hold, bool) {
	if i := d.hold(id); i >= 0 {
		return d.Holds[i], true
	}
	return Hold{}, false
}

// OpenHolds lists the holds that are not released. blocksApproval leaves out
// those that block payment only.
func (d *Document) OpenHolds(blocksApproval bool) []Hold {
	var open []Hold
	for _, h := range d.Holds {
		if !h.Released && (!blocksApproval || h.Blocks == contract.BlocksApproval) {
			open = append(open, h)
		}
	}
	return open
}

// RequireState refuses a document that does not exist or is in none of the states.
// Faults: <kind>.not_found, <kind>.wrong_state.
func (d *Document) RequireState(allowed ...State) error {
	if d.State == StateNone {
		return fault.New(fault.NotFound, d.Kind.Code("not_found"),
			"there is no %s with this id in this legal entity; look it up and use its id", d.Kind.Noun())
	}
	if slices.Contains(allowed, d.State) {
		return nil
	}
	return fault.New(fault.FailedPrecondition, d.Kind.Code("wrong_state"),
		"the %s is %s, and this needs %s; look at its events to see what happened", d.Kind.Noun(), d.State, states(allowed)).
		With("state", string(d.State)).With("allowed_states", allowed)
}

func states(allowed []State) string {
	text := ""
	for i, s := range allowed {
		if i > 0 {
			text += " or "
		}
		text += string(s)
	}
	return text
}

// OnHoldFault refuses a step that open holds block: <kind>.on_hold.
func OnHoldFault(k contract.Kind, holds []Hold) error {
	var ids, kinds []string
	for _, h := range holds {
		ids = append(ids, h.ID)
		if !slices.Contains(kinds, h.Kind) {
			kinds = append(kinds, h.Kind)
		}
	}
	return fault.New(fault.FailedPrecondition, k.Code("on_hold"),
		"the %s is held (%s); release the holds with ap.release_hold first", k.Noun(), strings.Join(kinds, ", ")).
		With("holds", ids).With("hold_kinds", kinds)
}
