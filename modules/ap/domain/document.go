package domain

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/ap/contract"
)

// State is the state of a document.
type State string

// The states. A document with findings stays submitted, one without is validated.
const (
	StateNone      State = ""
	StateSubmitted State = "submitted"
	StateValidated State = "validated"
	StatePosted    State = "posted"
	StatePaid      State = "paid"
	StateRejected  State = "rejected"
)

// UndecidedStates lists the states in which a document can be approved or rejected.
func UndecidedStates() []State { return []State{StateSubmitted, StateValidated} }

// Step is what a person did to a document, for segregation of duties.
type Step struct {
	Name    string   `json:"step"` // "submitted", "approved"
	EventID string   `json:"event_id"`
	Persons []string `json:"persons"` // see Persons
}

// Hold blocks approval or payment of a document until it is released.
type Hold struct {
	ID       string
	Kind     string
	Blocks   string
	Released bool
}

// Document is the state of the stream of an invoice or credit memo. Readers share it;
// only Apply changes it, on a clone.
type Document struct {
	Kind          contract.Kind
	State         State
	SubmittedID   event.ID
	Sequence      event.Sequence // of the submission
	PostingDate   event.Date     // proposed by the submission
	CorrelationID string
	Data          contract.Document
	Submitters    []Step
	Approvers     []Step
	Holds         []Hold
}

// Clone copies the document. The submitted data never changes, so clones share it.
func (d *Document) Clone() *Document {
	c := *d
	c.Submitters, c.Approvers, c.Holds = slices.Clone(d.Submitters), slices.Clone(d.Approvers), slices.Clone(d.Holds)
	return &c
}

// Apply folds an event.
func (d *Document) Apply(e event.Recorded, data []byte) error {
	switch e.Type {
	case d.Kind.Event(contract.Submitted):
		if err := json.Unmarshal(data, &d.Data); err != nil {
			return fmt.Errorf("document: %w", err)
		}
		step, err := stepOf("submitted", e)
		if err != nil {
			return err
		}
		d.State, d.SubmittedID, d.Sequence = StateSubmitted, e.ID, e.Sequence
		d.PostingDate, d.CorrelationID = e.EffectiveDate, e.CorrelationID
		d.Submitters = append(d.Submitters, step)
	case d.Kind.Event(contract.Validated):
		d.State = StateValidated
	case d.Kind.Event(contract.Held):
		var h contract.DocumentHeld
		if err := json.Unmarshal(data, &h); err != nil {
			return fmt.Errorf("hold: %w", err)
		}
		d.Holds = append(d.Holds, Hold{ID: h.HoldID, Kind: h.Kind, Blocks: h.Blocks})
	case d.Kind.Event(contract.HoldReleased):
		var r contract.HoldReleasedData
		if err := json.Unmarshal(data, &r); err != nil {
			return fmt.Errorf("hold release: %w", err)
		}
		if i := d.hold(r.HoldID); i >= 0 {
			d.Holds[i].Released = true
		}
	case d.Kind.Event(contract.ApprovalRecorded), d.Kind.Event(contract.Approved):
		step, err := stepOf("approved", e)
		if err != nil {
			return err
		}
		d.Approvers = append(d.Approvers, step)
		if e.Type == d.Kind.Event(contract.Approved) {
			d.State = StatePosted
			if Control(&d.Data).IsZero() {
				d.State = StatePaid
			}
		}
	case d.Kind.Event(contract.Posted):
		d.State = StatePosted
	case d.Kind.Event(contract.Paid):
		d.State = StatePaid
	case d.Kind.Event(contract.Rejected):
		d.State = StateRejected
	}
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

// DuplicateFault makes the fault for a later document with the number of d.
func (d *Document) DuplicateFault(later *contract.Document, h fault.Holder) *fault.Error {
	agree := d.Data.TotalAmount.Equal(later.TotalAmount) && d.Data.Currency == later.Currency
	detail := "this vendor's %s with this number was submitted before, with the same total; look at the holder instead of submitting it again"
	if !agree {
		detail = "this vendor's %s with this number was submitted before, with another total; compare the papers and ask the vendor"
	}
	return fault.New(fault.Conflict, d.Kind.Code("duplicate"), detail, d.Kind.Noun()).
		WithHolder(h).With("totals_agree", agree)
}

// Holder describes the document in the fault for a later one with its number.
func (d *Document) Holder() fault.Holder {
	return fault.Holder{EventID: d.SubmittedID.String(), DocumentID: d.Data.ID(), Sequence: fmt.Sprint(uint64(d.Sequence))}
}

// Finding is a reason to hold a document.
type Finding struct {
	Kind   string
	Blocks string
	Reason string
	Detail any // figures, for the event
}

// TaxFinding has the figures of a tax line that does not fit its rate.
type TaxFinding struct {
	TaxGroup   string       `json:"tax_group,omitempty"`
	Expected   money.Number `json:"expected"`
	Got        money.Number `json:"got"`
	Difference money.Number `json:"difference"`
	Currency   string       `json:"currency"`
}

// TaxFindings compares each tax line with its rate: tax = taxable × rate / 100 to
// the currency's minor unit, within the tolerance. reverseCharge reports for which
// groups the buyer owes the tax, so that the vendor must charge none.
func TaxFindings(d *contract.Document, c money.Currency, tolerance money.Number, reverseCharge func(group string) bool) []Finding {
	var found []Finding
	for i := range d.TaxLines {
		t := &d.TaxLines[i]
		expected := money.Number{}
		switch {
		case reverseCharge(t.TaxGroup):
		case t.Rate == nil || t.TaxableAmount == nil:
			continue
		default:
			expected = money.Percent(*t.TaxableAmount, *t.Rate, c)
		}
		difference := t.TaxAmount.Sub(expected)
		if difference.Abs().Cmp(tolerance) <= 0 {
			continue
		}
		found = append(found, Finding{
			Kind: contract.HoldTaxVariance, Blocks: contract.BlocksApproval,
			Reason: fmt.Sprintf("tax line %d differs from its rate by more than the tolerance", i+1),
			Detail: TaxFinding{TaxGroup: t.TaxGroup, Expected: expected, Got: t.TaxAmount, Difference: difference, Currency: d.Currency},
		})
	}
	return found
}

// PayeeFindings checks the document's statements about payment: a payee other than the
// vendor, and a prepaid amount.
func PayeeFindings(d *contract.Document) []Finding {
	var found []Finding
	if d.PayeeDiffers {
		found = append(found, Finding{Kind: contract.HoldPayeeDiffers, Blocks: contract.BlocksPayment,
			Reason: "the document names another payee than the vendor"})
	}
	if value(d.PrepaidAmount).Sign() > 0 && d.DocumentType != contract.TypePrepayment {
		found = append(found, Finding{Kind: contract.HoldPrepaidUnmatched, Blocks: contract.BlocksPayment,
			Reason: "the document claims a prepaid amount that no prepayment is applied for",
			Detail: map[string]any{"prepaid_amount": *d.PrepaidAmount, "currency": d.Currency}})
	}
	return found
}
