package ap

import (
	"context"
	"fmt"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/modules/ap/contract"
	"github.com/erpbackbone/backbone/modules/ap/domain"
)

// planSubmit plans the submission of a document: the submitted event, then either the
// validated event or one held event per finding. No document is posted here: every one
// waits for an approval.
func planSubmit(k contract.Kind) func(context.Context, module.Input, module.State) (module.Plan, error) {
	return module.PlanOf(func(ctx context.Context, in module.Input, s module.State, p contract.Submission) (plan module.Plan, err error) {
		d := p.Document
		doc := &domain.Document{Kind: k}
		if id := d.ID(); id != "" {
			if doc, err = loadDocument(ctx, s, k, id); err != nil {
				return module.Plan{}, err
			}
			if err := doc.RequireState(domain.StateDraft); err != nil {
				return module.Plan{}, err
			}
		} else {
			d.SetID(k, in.DocumentID(0).String())
		}
		checker, err := newChecker(ctx, s, k, d.VendorID)
		if err != nil {
			return module.Plan{}, err
		}
		// The stored intent must not hold the person's name either, also when a later check
		// refuses the plan.
		if p.Buyer != nil {
			d.BuyerMatch = domain.CompareBuyer(*p.Buyer, checker.settings.Buyer, in.LegalEntity.Name)
		}
		var sellerErr error
		if p.SellerName != "" {
			d.SellerMatch, sellerErr = compareSeller(ctx, s, checker.vendor, p.SellerName)
		}
		if kept := keptSubmission(in.Payload, &p, &d, checker.vendor); kept != nil {
			defer func() { plan.Kept = kept }()
		}
		if sellerErr != nil {
			return module.Plan{}, sellerErr
		}
		date, err := postingDate(in, p.PostingDate, d.InvoiceDate)
		if err != nil {
			return module.Plan{}, err
		}
		if d.PayeeBank, err = comparePayee(ctx, s, checker.vendor, d.PayeeBank, p.PayeeAccounts); err != nil {
			return module.Plan{}, err
		}
		checked, err := checker.check(ctx, &d, date)
		if err != nil {
			return module.Plan{}, err
		}
		plan = module.Plan{Rules: checked.rules(), Facts: factsOf(in), CorrelationID: doc.CorrelationID}
		if doc.State == domain.StateNone {
			plan.Streams = []concurrency.StreamExpectation{{Stream: k.Stream(d.ID()), Expected: concurrency.NoStream()}}
		}
		plan.Events = append(plan.Events, checked.bodyEvent(contract.Submitted, d, date))
		plan.Events = append(plan.Events, checked.outcome(doc.Holds, date)...)
		return plan, nil
	})
}

// applyDefaults fills in the due date from the vendor's terms, else from the default
// terms. It drops the name of a natural person, which submissions cannot seal.
func applyDefaults(d *contract.Document, vendor *domain.Vendor, settings *domain.Settings) {
	if vendor.Master.NaturalPerson {
		d.VendorName = ""
	}
	if d.DueDate == nil {
		terms, source := settings.DefaultTerms, contract.DueDateFromDefault
		if vendor.Master.Terms != nil {
			terms, source = *vendor.Master.Terms, contract.DueDateFromVendor
		}
		due := d.InvoiceDate.AddDays(terms.NetDays)
		d.DueDate, d.DueDateSource = &due, source
	} else if d.DueDateSource == "" {
		d.DueDateSource = contract.DueDateFromDocument
	}
}

func checkWithholding(d *contract.Document, settings *domain.Settings) error {
	for i, w := range d.Withholding {
		if _, known := settings.WithholdingCodes[w.Code]; !known {
			return fault.New(fault.NotFound, "ap.withholding_code.not_found",
				"the settings have no such withholding code; add it with ap.configure or correct it").
				WithField(fmt.Sprintf("/withholding/%d/code", i))
		}
	}
	return nil
}
