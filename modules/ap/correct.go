package ap

import (
	"context"
	"slices"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/modules/ap/contract"
	"github.com/erpbackbone/backbone/modules/ap/domain"
)

// planCorrect plans a new body for a document that is not approved. An approval of the earlier
// body no longer counts.
func planCorrect(k contract.Kind) func(context.Context, module.Input, module.State) (module.Plan, error) {
	return planNewBody(k, contract.Corrected, domain.UndecidedStates()...)
}

// planReinstate plans to book a rejected or voided document after all. It stays on its stream and
// keeps its number, and is checked and approved like a new one.
func planReinstate(k contract.Kind) func(context.Context, module.Input, module.State) (module.Plan, error) {
	return planNewBody(k, contract.Reinstated, domain.StateRejected, domain.StateVoided)
}

func planNewBody(k contract.Kind, action string, allowed ...domain.State) func(context.Context, module.Input, module.State) (module.Plan, error) {
	return module.PlanOf(func(ctx context.Context, in module.Input, s module.State, p contract.Correction) (plan module.Plan, err error) {
		doc, err := loadDocument(ctx, s, k, p.ID())
		if err != nil {
			return module.Plan{}, err
		}
		if err := doc.RequireState(allowed...); err != nil {
			return module.Plan{}, err
		}
		body := p.Document
		body.VendorID, body.InvoiceNumber = doc.Data.VendorID, doc.Data.InvoiceNumber
		if body.SourceDocument == nil {
			body.SourceDocument = doc.Data.SourceDocument // the paper stays the same
			if body.Attachments == nil {
				body.Attachments = doc.Data.Attachments
			}
		}
		if body.PayeeBank == "" {
			body.PayeeBank = doc.Data.PayeeBank
		}
		if body.BuyerMatch == "" {
			body.BuyerMatch = doc.Data.BuyerMatch
		}
		body.SellerMatch = doc.Data.SellerMatch // a correction has no paper to compare
		checker, err := newChecker(ctx, s, k, body.VendorID)
		if err != nil {
			return module.Plan{}, err
		}
		if p.Buyer != nil {
			body.BuyerMatch = domain.CompareBuyer(*p.Buyer, checker.settings.Buyer, in.LegalEntity.Name)
		}
		if kept := keptSubmission(in.Payload, &p.Submission, &body, checker.vendor); kept != nil {
			defer func() { plan.Kept = kept }()
		}
		date, err := postingDate(in, p.PostingDate, body.InvoiceDate)
		if err != nil {
			return module.Plan{}, err
		}
		checked, err := checker.check(ctx, &body, date)
		if err != nil {
			return module.Plan{}, err
		}
		changed := checked.bodyEvent(action, contract.DocumentCorrected{Document: body, Reason: p.Reason}, date)
		changed.CausedBy = doc.SubmittedID
		holds := doc.Holds
		if action == contract.Reinstated { // which ends all earlier holds
			holds = slices.Clone(holds)
			for i := range holds {
				holds[i].Released = true
			}
		}
		events := append([]event.Draft{changed}, checked.outcome(holds, date)...)
		if reference, _ := domain.OrderReference(&doc.Data); reference != checked.match.reference {
			taken, err := takeBackBilling(ctx, s, doc, date)
			if err != nil {
				return module.Plan{}, err
			}
			events = append(events, taken...)
		}
		return module.Plan{
			Events: events,
			Rules:  checked.rules(), Facts: factsOf(in), CorrelationID: doc.CorrelationID,
		}, nil
	})
}

// planValidate plans to check a document again, after settings, accounts, tax groups or its
// purchase order changed. A finding whose hold a person has released is not held again, unless
// the body changed since.
func planValidate(k contract.Kind) func(context.Context, module.Input, module.State) (module.Plan, error) {
	return module.PlanOf(func(ctx context.Context, in module.Input, s module.State, p contract.DocumentRef) (module.Plan, error) {
		doc, err := loadDocument(ctx, s, k, p.ID())
		if err != nil {
			return module.Plan{}, err
		}
		if err := doc.RequireState(domain.UndecidedStates()...); err != nil {
			return module.Plan{}, err
		}
		checker, err := newChecker(ctx, s, k, doc.Data.VendorID)
		if err != nil {
			return module.Plan{}, err
		}
		body := doc.Data
		checked, err := checker.check(ctx, &body, doc.PostingDate)
		if err != nil {
			return module.Plan{}, err
		}
		checked.findings = withoutWaived(checked.findings, doc.Holds)
		events := checked.outcome(doc.Holds, in.Date())
		if len(events) == 0 {
			return module.Plan{}, domain.OnHoldFault(k, doc.OpenHolds(false))
		}
		for i := range events {
			events[i].CausedBy, events[i].CausedByIndex = doc.SubmittedID, 0
		}
		return module.Plan{Events: events, Rules: checked.rules(), Facts: factsOf(in), CorrelationID: doc.CorrelationID}, nil
	})
}
