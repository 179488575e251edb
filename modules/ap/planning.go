package ap

import (
	"context"
	"slices"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/ap/contract"
	"github.com/erpbackbone/backbone/modules/ap/domain"
	gl "github.com/erpbackbone/backbone/modules/gl/contract"
)

// postingDate chooses the date that decides the period: the payload's, else the intent's
// effective date, else the fallback. It refuses two dates that differ.
func postingDate(in module.Input, given *event.Date, fallback event.Date) (event.Date, error) {
	switch {
	case given != nil && in.EffectiveDate != nil && *given != *in.EffectiveDate:
		return 0, fault.New(fault.Invalid, "intent.effective_date_mismatch",
			"posting_date is %s and the intent's effective date %s; send one of them", *given, *in.EffectiveDate).
			WithField("/posting_date")
	case given != nil:
		return *given, nil
	case in.EffectiveDate != nil:
		return *in.EffectiveDate, nil
	default:
		return fallback, nil
	}
}

func loadSettings(ctx context.Context, s module.State) (*domain.Settings, error) {
	return module.Load[*domain.Settings](ctx, s, contract.SettingsStream())
}

func loadVendor(ctx context.Context, s module.State, id string) (*domain.Vendor, error) {
	v, err := module.Load[*domain.Vendor](ctx, s, contract.VendorStream(id))
	if err != nil {
		return nil, err
	}
	if !v.Registered {
		return nil, fault.New(fault.NotFound, "ap.vendor.not_found",
			"no vendor has this id in this legal entity; register it with ap.register_vendor or correct vendor_id").WithField("/vendor_id")
	}
	return v, nil
}

func loadDocument(ctx context.Context, s module.State, k contract.Kind, id string) (*domain.Document, error) {
	return module.Load[*domain.Document](ctx, s, k.Stream(id))
}

// facts are what the policy decides on.
type facts struct {
	Acting       []string       `json:"acting"`               // persons who count as acting now
	Service      bool           `json:"service"`              // the actor is a system
	Submitters   []domain.Step  `json:"submitters,omitempty"` // of the document
	Approvers    []domain.Step  `json:"approvers,omitempty"`  // of the document, so far
	Approval     *approvalFacts `json:"approval,omitempty"`   // the intent approves a document
	Period       *gl.Period     `json:"period,omitempty"`     // the plan posts into this period
	SecondPerson bool           `json:"second_person"`        // a second person must agree
	Hold         *holdFacts     `json:"hold,omitempty"`       // the intent releases this hold
	Requester    *domain.Step   `json:"requester,omitempty"`  // of the bank account that the intent decides on
}

type approvalFacts struct {
	Amount        money.Number             `json:"amount"` // gross, functional currency
	Currency      string                   `json:"currency"`
	Limits        map[string]*money.Number `json:"limits"`
	Step          int                      `json:"step"`
	StepsRequired int                      `json:"steps_required"`
}

type holdFacts struct {
	ID   string `json:"id"`
	Kind string `json:"kind"`
}

// factsOf makes the facts that every plan has: the acting persons.
func factsOf(in module.Input) facts {
	f := facts{Acting: domain.Persons(in.Actor), Service: domain.IsService(in.Actor.Type)}
	if !f.Service && in.PersonID != "" && !slices.Contains(f.Acting, in.PersonID) {
		f.Acting = append(f.Acting, in.PersonID)
	}
	return f
}

// draft makes an event on a document's stream.
func draft(k contract.Kind, d *domain.Document, action string, data any, date event.Date, tags []string) event.Draft {
	id := d.Data.ID()
	return event.Draft{
		Type: k.Event(action), EffectiveDate: date, Stream: k.Stream(id), Data: data,
		Entities: []event.EntityRef{contract.VendorRef(d.Data.VendorID), k.Ref(id)}, Tags: slices.Clone(tags),
	}
}
