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

// post folds the posting: from then on the whole amount on the control account is open.
func (d *Document) post(e event.Recorded, data []byte) error {
	var p contract.DocumentPosted
	if err := json.Unmarshal(data, &p); err != nil {
		return fmt.Errorf("posting: %w", err)
	}
	d.State = StatePosted
	d.Posting = Posting{JournalID: p.JournalID, Date: e.EffectiveDate, Amount: p.Amount, Functional: p.FunctionalAmount}
	d.Open, d.Carrying, d.OpenedOn = p.Amount, p.FunctionalAmount, max(d.OpenedOn, e.EffectiveDate)
	if d.Data.DocumentType == contract.TypePrepayment {
		d.Unused = p.Amount
	}
	return nil
}

// applySettlement folds the events by which documents settle each other.
func (d *Document) applySettlement(e event.Recorded, data []byte) error {
	switch e.Type {
	case d.Kind.Event(contract.Applied), d.Kind.Event(contract.CreditApplied), d.Kind.Event(contract.PrepaymentApplied):
		var a contract.Application
		if err := json.Unmarshal(data, &a); err != nil {
			return fmt.Errorf("application: %w", err)
		}
		d.Applications = append(d.Applications, Application{
			ID: a.ApplicationID, With: a.With, Action: e.Type, Amount: a.Amount, Functional: a.Functional,
			JournalID: a.JournalID, Date: e.EffectiveDate,
		})
		d.setOpen(a.OpenAfter, d.Carrying.Sub(a.Functional))
	case d.Kind.Event(contract.Unapplied), d.Kind.Event(contract.CreditUnapplied), d.Kind.Event(contract.PrepaymentUndone):
		var a contract.Application
		if err := json.Unmarshal(data, &a); err != nil {
			return fmt.Errorf("application: %w", err)
		}
		d.Applications = slices.DeleteFunc(d.Applications, func(have Application) bool { return have.ID == a.ApplicationID })
		d.setOpen(a.OpenAfter, d.Carrying.Add(a.Functional))
		d.OpenedOn = max(d.OpenedOn, e.EffectiveDate)
	case d.Kind.Event(contract.PrepaymentUsed), d.Kind.Event(contract.PrepaymentReturned):
		var u contract.PrepaymentUse
		if err := json.Unmarshal(data, &u); err != nil {
			return fmt.Errorf("use of a prepayment: %w", err)
		}
		d.Unused = u.UnusedAfter
		if e.Type == d.Kind.Event(contract.PrepaymentReturned) {
			d.OpenedOn = max(d.OpenedOn, e.EffectiveDate)
		}
	}
	return nil
}

// setOpen sets what is open, and the state that follows from it.
func (d *Document) setOpen(open, carrying money.Number) {
	d.Open, d.Carrying = open, carrying
	switch {
	case open.IsZero():
		d.State = StatePaid
	case open.Equal(d.Posting.Amount):
		d.State = StatePosted
	default:
		d.State = StatePartiallyPaid
	}
}

// Settled reports whether payments or other documents took a part of the document, or an invoice
// used a part of a prepayment.
func (d *Document) Settled() bool {
	used := d.Data.DocumentType == contract.TypePrepayment && !d.Unused.Equal(d.Posting.Amount)
	return !d.Open.Equal(d.Posting.Amount) || used
}

// Application finds a settlement by its id.
func (d *Document) Application(id string) (Application, bool) {
	i := slices.IndexFunc(d.Applications, func(a Application) bool { return a.ID == id })
	if i < 0 {
		return Application{}, false
	}
	return d.Applications[i], true
}

// Relieve returns the share of the carrying amount that goes with a part of the open amount,
// in functional currency. The last part takes the rest, so that nothing remains of a document
// that is settled. The amount is at most Open.
func (d *Document) Relieve(amount money.Number, functional money.Currency) (money.Number, error) {
	return Share(d.Carrying, amount, d.Open, functional)
}

// CheckOpen refuses to take more from the document than is open. Fault: <kind>.overapplied.
func (d *Document) CheckOpen(amount money.Number) error {
	if amount.Cmp(d.Open) <= 0 {
		return nil
	}
	return fault.New(fault.FailedPrecondition, d.Kind.Code("overapplied"),
		"%s %s of this %s are open, and %s were requested; take at most what is open", d.Open, d.Data.Currency, d.Kind.Noun(), amount).
		WithField("/amount").With("open", d.Open.String()).With("requested", amount.String()).With("currency", d.Data.Currency)
}

// Share returns the part of a whole that goes with the first used of total, by the rounding of
// money.Allocate. The part of all of total is the whole.
func Share(whole, used, total money.Number, c money.Currency) (money.Number, error) {
	shares, err := money.Allocate(whole, []money.Number{used, total.Sub(used)}, c)
	if err != nil {
		return money.Number{}, fmt.Errorf("share of an amount: %w", err)
	}
	return shares[0], nil
}
