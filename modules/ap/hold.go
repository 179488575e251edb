package ap

import (
	"context"
	"strings"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/ap/contract"
	"github.com/erpbackbone/backbone/modules/ap/domain"
)

// planHold plans a hold that a person places: MANUAL stops approval and payment, DISPUTE stops
// payment only and may name the disputed part.
func planHold(k contract.Kind) func(context.Context, module.Input, module.State) (module.Plan, error) {
	return module.PlanOf(func(ctx context.Context, in module.Input, s module.State, p contract.Hold) (module.Plan, error) {
		d, err := loadDocument(ctx, s, k, p.ID())
		if err != nil {
			return module.Plan{}, err
		}
		if strings.TrimSpace(p.Reason) == "" {
			return module.Plan{}, reasonRequiredFault("a document is held for a reason; send it in reason")
		}
		if d.State == domain.StatePaid {
			return module.Plan{}, fault.New(fault.Conflict, k.Code("already_paid"),
				"nothing of this %s is open any more, so there is nothing to hold", k.Noun())
		}
		if err := d.RequireState(domain.StateSubmitted, domain.StateValidated, domain.StatePosted, domain.StatePartiallyPaid); err != nil {
			return module.Plan{}, err
		}
		held := contract.DocumentHeld{
			DocumentRef: contract.RefTo(k, p.ID()), HoldID: holdID(p.ID(), len(d.Holds)+1), Kind: p.Kind, Reason: p.Reason, Blocks: contract.BlocksApproval,
		}
		if p.Kind == contract.HoldDispute {
			held.Blocks = contract.BlocksPayment
		}
		if p.DisputedAmount != nil {
			if err := checkDisputed(d, p); err != nil {
				return module.Plan{}, err
			}
			held.Finding = map[string]any{"disputed_amount": *p.DisputedAmount, "currency": d.Data.Currency}
		}
		e := draft(k, d, contract.Held, held, in.Date(), nil)
		e.CausedBy = d.SubmittedID
		return module.Plan{Events: []event.Draft{e}, Facts: factsOf(in), CorrelationID: d.CorrelationID}, nil
	})
}

// checkDisputed refuses a disputed amount that is no part of the document.
func checkDisputed(d *domain.Document, p contract.Hold) error {
	currency, err := money.LookupCurrency(d.Data.Currency, d.Data.InvoiceDate.Time())
	if err != nil {
		return err
	}
	for _, check := range []func(money.Number) error{
		money.CheckNonNegative, func(n money.Number) error { return money.CheckAmount(n, currency) },
	} {
		if err := check(*p.DisputedAmount); err != nil {
			return fault.WithField(err, "/disputed_amount")
		}
	}
	if p.Kind != contract.HoldDispute || p.DisputedAmount.Cmp(d.Data.TotalAmount) > 0 {
		return fault.New(fault.Invalid, "ap.hold.disputed_amount_invalid",
			"a disputed amount belongs to a hold of kind DISPUTE and is at most the total of %s %s; correct it", d.Data.TotalAmount, d.Data.Currency).
			WithField("/disputed_amount").WithNumbers(d.Data.TotalAmount.String(), p.DisputedAmount.String())
	}
	return nil
}

func reasonRequiredFault(detail string) error {
	return fault.New(fault.FailedPrecondition, "ap.hold.reason_required", "%s", detail).WithField("/reason")
}

// planReleaseHold plans the release of a hold on an invoice or a credit memo.
func planReleaseHold(ctx context.Context, in module.Input, s module.State, p contract.HoldRelease) (module.Plan, error) {
	d, hold, err := findHold(ctx, s, p)
	if err != nil {
		return module.Plan{}, err
	}
	if strings.TrimSpace(p.Reason) == "" {
		return module.Plan{}, reasonRequiredFault("a hold is released for a reason; send it in reason")
	}
	if hold.Released {
		return module.Plan{}, fault.New(fault.Conflict, "ap.hold.already_released",
			"this hold was released before; look at the %s's events to see by whom", d.Kind.Noun()).With("hold_id", hold.ID)
	}
	if err := d.RequireState(domain.StateSubmitted, domain.StateValidated, domain.StatePosted, domain.StatePartiallyPaid); err != nil {
		return module.Plan{}, err
	}
	released := draft(d.Kind, d, contract.HoldReleased, contract.HoldReleasedData{
		DocumentRef: contract.RefTo(d.Kind, d.Data.ID()), HoldID: hold.ID, Kind: hold.Kind, Reason: p.Reason,
	}, in.Date(), nil)
	released.CausedBy = d.SubmittedID
	f := factsOf(in)
	f.Submitters, f.Hold = d.Submitters, &holdFacts{ID: hold.ID, Kind: hold.Kind}
	return module.Plan{Events: []event.Draft{released}, Facts: f, CorrelationID: d.CorrelationID}, nil
}

func findHold(ctx context.Context, s module.State, p contract.HoldRelease) (*domain.Document, domain.Hold, error) {
	documentID, _, _ := strings.Cut(p.HoldID, "-H")
	if named := p.ID(); documentID != "" && (named == "" || named == documentID) {
		for _, k := range contract.Kinds() {
			if (p.InvoiceID != "" && k != contract.Invoice) || (p.CreditMemoID != "" && k != contract.CreditMemo) {
				continue
			}
			d, err := loadDocument(ctx, s, k, documentID)
			if err != nil {
				return nil, domain.Hold{}, err
			}
			if hold, found := d.Hold(p.HoldID); found {
				return d, hold, nil
			}
		}
	}
	return nil, domain.Hold{}, fault.New(fault.NotFound, "ap.hold.not_found",
		"no document in this legal entity has this hold; take hold_id from the document's events").WithField("/hold_id")
}
