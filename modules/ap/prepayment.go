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

// planApplyPrepayment plans to settle a part of an invoice with a paid prepayment. The journal
// debits the control account and takes back the same share of every other line that the
// prepayment posted: of the prepayment account, and of its input tax, which the invoice deducts
// again. A difference of carrying amounts is a realised exchange difference. The hold
// PREPAID_UNMATCHED ends once prepayments cover the amount that the invoice claims.
func planApplyPrepayment(ctx context.Context, in module.Input, s module.State, p contract.PrepaymentApplication) (module.Plan, error) {
	t, err := loadSettlement(ctx, in, s, contract.Invoice, p.PrepaymentID, p.InvoiceID, p.Amount, p.PostingDate)
	if err != nil {
		return module.Plan{}, err
	}
	if t.source.Data.DocumentType != contract.TypePrepayment || t.invoice.Data.DocumentType == contract.TypePrepayment {
		return module.Plan{}, fault.New(fault.FailedPrecondition, "ap.prepayment.type_invalid",
			"a prepayment is applied to an invoice that is none; name an invoice of document_type prepayment in prepayment_id").WithField("/prepayment_id")
	}
	if err := t.source.RequireState(domain.StatePaid); err != nil {
		return module.Plan{}, err
	}
	if p.Amount.Cmp(t.source.Unused) > 0 {
		return module.Plan{}, fault.New(fault.FailedPrecondition, contract.Invoice.Code("overapplied"),
			"%s %s of this prepayment are unused, and %s were requested; take at most what is unused", t.source.Unused, t.currency.Code, p.Amount).
			WithField("/amount").With("open", t.source.Unused.String()).With("requested", p.Amount.String()).With("currency", t.currency.Code)
	}
	fromInvoice, err := t.relieve(ctx, t.invoice)
	if err != nil {
		return module.Plan{}, err
	}
	control, err := controlLine(ctx, t.ledger, t.invoice, t.amount, fromInvoice)
	if err != nil {
		return module.Plan{}, err
	}
	back, functional, err := t.prepaymentLines(ctx)
	if err != nil {
		return module.Plan{}, err
	}
	lines := append([]gl.SubledgerLine{control}, back...)
	if difference := fromInvoice.Sub(functional); !difference.IsZero() {
		exchange, err := exchangeLine(ctx, t.ledger, difference)
		if err != nil {
			return module.Plan{}, err
		}
		lines = append(lines, exchange)
	}
	planned, err := t.journal(ctx, "Prepayment "+t.source.Data.InvoiceNumber+" applied to invoice "+t.invoice.Data.InvoiceNumber, lines)
	if err != nil {
		return module.Plan{}, err
	}
	id, tags := planned.Journal.JournalID, planned.Period.Tags
	used := t.event(t.source, t.invoice, contract.PrepaymentUsed, contract.PrepaymentUse{
		DocumentRef: contract.RefTo(contract.Invoice, p.PrepaymentID), ApplicationID: in.DocumentID(0).String(),
		With: contract.RefTo(contract.Invoice, p.InvoiceID), Amount: p.Amount, Currency: t.currency.Code,
		UnusedAfter: t.source.Unused.Sub(p.Amount), JournalID: id,
	}, tags)
	drafts := []event.Draft{used, planned.Draft,
		t.event(t.invoice, t.source, contract.PrepaymentApplied, t.application(t.invoice, t.source, fromInvoice, id), tags)}
	return t.plan(planned.Period, planned.Rules, append(drafts, t.matchedPrepaid()...)...), nil
}

// prepaymentLines takes back the share of the prepayment's journal that goes with the amount:
// every line but that on the control account, with its side swapped, at the rate it was posted
// at. The first line takes what rounding leaves, so that the lines sum to the amount. functional
// is their sum.
func (t *settlement) prepaymentLines(ctx context.Context) (lines []gl.SubledgerLine, functional money.Number, err error) {
	posted, err := t.ledger.PostedLines(ctx, t.source.Posting.JournalID)
	if err != nil {
		return nil, functional, err
	}
	book, err := t.ledger.Functional(ctx)
	if err != nil {
		return nil, functional, err
	}
	total := t.source.Posting.Amount
	before := total.Sub(t.source.Unused)
	after := before.Add(t.amount)
	share := func(whole money.Number, c money.Currency) (money.Number, error) {
		to, err := domain.Share(whole, after, total, c)
		if err != nil {
			return to, err
		}
		from, err := domain.Share(whole, before, total, c)
		return to.Sub(from), err
	}
	controlAccount, err := t.ledger.ProfileAccount(ctx, gl.RoleAPControl)
	if err != nil {
		return nil, functional, err
	}
	rest := t.amount // credit less debit that the first line still has to bring
	for i := range posted {
		l := &posted[i]
		if l.Account == controlAccount {
			continue
		}
		amount, err := share(l.Amount, t.currency)
		if err != nil {
			return nil, functional, err
		}
		carried, err := share(l.FunctionalAmount, book)
		if err != nil {
			return nil, functional, err
		}
		line := gl.SubledgerLine{
			Account: l.Account, Side: l.Side.Opposite(), Amount: amount, Currency: l.Currency, FunctionalAmount: &carried,
			Description: l.Description, TaxCode: l.TaxCode, Dimensions: l.Dimensions,
		}
		if line.Side == gl.Credit {
			rest, functional = rest.Sub(amount), functional.Add(carried)
		} else {
			rest, functional = rest.Add(amount), functional.Sub(carried)
		}
		lines = append(lines, line)
	}
	if i := slices.IndexFunc(lines, func(l gl.SubledgerLine) bool { return l.Side == gl.Credit }); i >= 0 && !rest.IsZero() {
		lines[i].Amount = lines[i].Amount.Add(rest)
		if t.currency.Code == book.Code {
			carried := lines[i].FunctionalAmount.Add(rest)
			lines[i].FunctionalAmount, functional = &carried, functional.Add(rest)
		}
	}
	return slices.DeleteFunc(lines, func(l gl.SubledgerLine) bool { return l.Amount.IsZero() && l.FunctionalAmount.IsZero() }), functional, nil
}

// matchedPrepaid releases the invoice's holds PREPAID_UNMATCHED once prepayments cover its
// prepaid amount.
func (t *settlement) matchedPrepaid() []event.Draft {
	applied := t.amount
	for _, a := range t.invoice.Applications {
		if a.Action == contract.Invoice.Event(contract.PrepaymentApplied) {
			applied = applied.Add(a.Amount)
		}
	}
	if claimed := t.invoice.Data.PrepaidAmount; claimed == nil || applied.Cmp(*claimed) < 0 {
		return nil
	}
	var out []event.Draft
	for _, h := range t.invoice.OpenHolds(false) {
		if h.Kind == contract.HoldPrepaidUnmatched {
			out = append(out, draft(contract.Invoice, t.invoice, contract.HoldReleased, contract.HoldReleasedData{
				DocumentRef: contract.RefTo(contract.Invoice, t.invoice.Data.ID()), HoldID: h.ID, Kind: h.Kind, Reason: "prepayments cover the prepaid amount",
			}, t.date, nil))
		}
	}
	return out
}

// planUnapplyPrepayment plans to undo the application of a prepayment, with its journal.
func planUnapplyPrepayment(ctx context.Context, in module.Input, s module.State, p contract.ApplicationUndoing) (module.Plan, error) {
	u, err := loadUndoing(ctx, in, s, p, contract.PrepaymentApplied)
	if err != nil {
		return module.Plan{}, err
	}
	prepayment, err := loadDocument(ctx, s, contract.Invoice, u.applied.With.InvoiceID)
	if err != nil {
		return module.Plan{}, err
	}
	returned := u.event(prepayment, u.invoice, contract.PrepaymentReturned, contract.PrepaymentUse{
		DocumentRef: u.applied.With, ApplicationID: u.applied.ID, With: contract.RefTo(contract.Invoice, p.InvoiceID),
		Amount: u.applied.Amount, Currency: u.invoice.Data.Currency, UnusedAfter: prepayment.Unused.Add(u.applied.Amount), JournalID: u.journalID,
	})
	undone := u.event(u.invoice, prepayment, contract.PrepaymentUndone, contract.Application{
		DocumentRef: contract.RefTo(contract.Invoice, p.InvoiceID), ApplicationID: u.applied.ID, With: u.applied.With,
		Amount: u.applied.Amount, Currency: u.invoice.Data.Currency, Functional: u.applied.Functional,
		OpenAfter: u.invoice.Open.Add(u.applied.Amount), JournalID: u.journalID,
	})
	return u.plan(returned, undone), nil
}
