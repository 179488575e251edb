package ap

import (
	"context"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/modules/ap/contract"
	"github.com/erpbackbone/backbone/modules/ap/domain"
	gl "github.com/erpbackbone/backbone/modules/gl/contract"
)

// planVoid plans the end of a document that should not have been booked. The journal of a posted
// one is reversed in the same batch. What payments or other documents took has to be undone
// first.
func planVoid(k contract.Kind) func(context.Context, module.Input, module.State) (module.Plan, error) {
	return module.PlanOf(func(ctx context.Context, in module.Input, s module.State, p contract.Void) (module.Plan, error) {
		d, err := loadDocument(ctx, s, k, p.ID())
		if err != nil {
			return module.Plan{}, err
		}
		if d.Settled() {
			return module.Plan{}, fault.New(fault.FailedPrecondition, k.Code("has_payments"),
				"%s of %s %s are settled; void the payments and undo the applications first", d.Posting.Amount.Sub(d.Open), d.Posting.Amount, d.Data.Currency).
				With("applied", d.Posting.Amount.Sub(d.Open).String()).With("currency", d.Data.Currency)
		}
		if err := d.RequireState(domain.StateSubmitted, domain.StateValidated, domain.StatePosted, domain.StatePaid); err != nil {
			return module.Plan{}, err
		}
		date, err := postingDate(in, p.PostingDate, max(in.Today, d.OpenedOn))
		if err != nil {
			return module.Plan{}, err
		}
		settings, err := loadSettings(ctx, s)
		if err != nil {
			return module.Plan{}, err
		}
		f := factsOf(in)
		f.SecondPerson = settings.SecondPerson
		plan := module.Plan{Facts: &f, CorrelationID: d.CorrelationID}
		data := contract.DocumentVoided{DocumentRef: contract.RefTo(k, p.ID()), Reason: p.Reason}
		voided := draft(k, d, contract.Voided, nil, date, nil)
		voided.CausedBy = d.SubmittedID
		taken, err := takeBackBilling(ctx, s, d, date)
		if err != nil {
			return module.Plan{}, err
		}
		if d.Posting.JournalID == "" {
			voided.Data = data
			plan.Events = append([]event.Draft{voided}, taken...)
			return plan, nil
		}
		original, err := event.ParseID(d.Posting.JournalID)
		if err != nil {
			return module.Plan{}, err
		}
		ledger := gl.NewLedger(s)
		journalID := in.DocumentID(0)
		reversal, err := gl.PlanReversal(ctx, ledger, gl.Reversal{
			Module: contract.ModuleName, OriginalID: original, PostingDate: date, Reason: p.Reason, JournalID: journalID,
			SourceEventToken: gl.EventID(in, 0).String(), CausedByIndex: 1, Index: 1,
		})
		if err != nil {
			return module.Plan{}, err
		}
		if date < d.OpenedOn {
			return module.Plan{}, fault.New(fault.Invalid, k.Code("posting_date_invalid"),
				"the posting date %s is before %s, when a settlement of the %s was undone; use that day or a later one", date, d.OpenedOn, k.Noun()).
				WithField("/posting_date").With("earliest", d.OpenedOn.String())
		}
		books, err := ledger.Settings(ctx)
		if err != nil {
			return module.Plan{}, err
		}
		data.JournalID = journalID.String()
		if !d.Posting.Amount.IsZero() {
			data.Amount, data.Currency = &d.Posting.Amount, d.Data.Currency
			data.FunctionalAmount, data.FunctionalCurrency = &d.Posting.Functional, books.FunctionalCurrency
		}
		voided.Data, voided.Tags = data, reversal.Journal.Period.Tags
		entry := reversal.Journal.Draft
		entry.Entities = append(entry.Entities, contract.VendorRef(d.Data.VendorID), k.Ref(p.ID()))
		plan.Events = append([]event.Draft{voided, entry, reversal.Reversed}, taken...)
		plan.Rules, f.Period = reversal.Journal.Rules, &reversal.Journal.Period
		return plan, nil
	})
}
