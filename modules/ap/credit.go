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

// planApplyCredit plans to settle a part of an invoice with a credit memo. If the two carry the
// amount at different rates, a journal posts the realised exchange difference; otherwise the
// control account stays as it is.
func planApplyCredit(ctx context.Context, in module.Input, s module.State, p contract.CreditApplication) (module.Plan, error) {
	t, err := loadSettlement(ctx, in, s, contract.CreditMemo, p.CreditMemoID, p.InvoiceID, p.Amount, p.PostingDate)
	if err != nil {
		return module.Plan{}, err
	}
	if err := t.source.RequireState(domain.OpenStates()...); err != nil {
		return module.Plan{}, err
	}
	if err := t.source.CheckOpen(p.Amount); err != nil {
		return module.Plan{}, err
	}
	fromMemo, err := t.relieve(ctx, t.source)
	if err != nil {
		return module.Plan{}, err
	}
	fromInvoice, err := t.relieve(ctx, t.invoice)
	if err != nil {
		return module.Plan{}, err
	}
	difference := fromInvoice.Sub(fromMemo)
	if difference.IsZero() {
		period, err := t.ledger.CheckPeriod(ctx, contract.ModuleName, t.date)
		if err != nil {
			return module.Plan{}, err
		}
		return t.plan(period, []event.RuleEvaluation{period.Rule()},
			t.event(t.source, t.invoice, contract.Applied, t.application(t.source, t.invoice, fromMemo, ""), period.Tags),
			t.event(t.invoice, t.source, contract.CreditApplied, t.application(t.invoice, t.source, fromInvoice, ""), period.Tags)), nil
	}
	invoiceLine, err := controlLine(ctx, t.ledger, t.invoice, t.amount, fromInvoice)
	if err != nil {
		return module.Plan{}, err
	}
	memoLine, err := controlLine(ctx, t.ledger, t.source, t.amount, fromMemo)
	if err != nil {
		return module.Plan{}, err
	}
	exchange, err := exchangeLine(ctx, t.ledger, difference)
	if err != nil {
		return module.Plan{}, err
	}
	planned, err := t.journal(ctx, "Credit memo "+t.source.Data.InvoiceNumber+" applied to invoice "+t.invoice.Data.InvoiceNumber,
		[]gl.SubledgerLine{invoiceLine, memoLine, exchange})
	if err != nil {
		return module.Plan{}, err
	}
	id, tags := planned.Journal.JournalID, planned.Period.Tags
	return t.plan(planned.Period, planned.Rules,
		t.event(t.source, t.invoice, contract.Applied, t.application(t.source, t.invoice, fromMemo, id), tags),
		planned.Draft,
		t.event(t.invoice, t.source, contract.CreditApplied, t.application(t.invoice, t.source, fromInvoice, id), tags)), nil
}

// planUnapplyCredit plans to undo the application of a credit memo, with its journal.
func planUnapplyCredit(ctx context.Context, in module.Input, s module.State, p contract.ApplicationUndoing) (module.Plan, error) {
	u, err := loadUndoing(ctx, in, s, p, contract.CreditApplied)
	if err != nil {
		return module.Plan{}, err
	}
	memo, err := loadDocument(ctx, s, contract.CreditMemo, u.applied.With.CreditMemoID)
	if err != nil {
		return module.Plan{}, err
	}
	counterpart, found := memo.Application(p.ApplicationID)
	if !found {
		return module.Plan{}, applicationNotFound()
	}
	data := func(d, other *domain.Document, a domain.Application) contract.Application {
		return contract.Application{
			DocumentRef: contract.RefTo(d.Kind, d.Data.ID()), ApplicationID: a.ID, With: contract.RefTo(other.Kind, other.Data.ID()),
			Amount: a.Amount, Currency: d.Data.Currency, Functional: a.Functional, OpenAfter: d.Open.Add(a.Amount), JournalID: u.journalID,
		}
	}
	return u.plan(
		u.event(memo, u.invoice, contract.Unapplied, data(memo, u.invoice, counterpart)),
		u.event(u.invoice, memo, contract.CreditUnapplied, data(u.invoice, memo, u.applied))), nil
}

// undoing is an application that is undone: its journal, if it has one, is reversed.
type undoing struct {
	in        module.Input
	invoice   *domain.Document
	applied   domain.Application // of the invoice
	date      event.Date
	period    gl.Period
	rules     []event.RuleEvaluation
	journalID string        // of the reversal; "" for an application without a journal
	reversal  []event.Draft // of the journal
}

func loadUndoing(ctx context.Context, in module.Input, s module.State, p contract.ApplicationUndoing, action string) (*undoing, error) {
	u := &undoing{in: in}
	var err error
	if u.invoice, err = loadDocument(ctx, s, contract.Invoice, p.InvoiceID); err != nil {
		return nil, err
	}
	if err := u.invoice.RequireState(domain.StatePosted, domain.StatePartiallyPaid, domain.StatePaid); err != nil {
		return nil, err
	}
	var found bool
	if u.applied, found = u.invoice.Application(p.ApplicationID); !found || u.applied.Action != contract.Invoice.Event(action) {
		return nil, applicationNotFound()
	}
	if u.date, err = postingDate(in, p.PostingDate, max(in.Today, u.applied.Date)); err != nil {
		return nil, err
	}
	if err := checkNotBefore(u.date, u.applied.Date); err != nil {
		return nil, err
	}
	ledger := gl.NewLedger(s)
	if u.applied.JournalID == "" {
		if u.period, err = ledger.CheckPeriod(ctx, contract.ModuleName, u.date); err != nil {
			return nil, err
		}
		u.rules = []event.RuleEvaluation{u.period.Rule()}
		return u, nil
	}
	original, err := event.ParseID(u.applied.JournalID)
	if err != nil {
		return nil, err
	}
	reversal, err := gl.PlanReversal(ctx, ledger, gl.Reversal{
		Module: contract.ModuleName, OriginalID: original, PostingDate: u.date, Reason: p.Reason, JournalID: in.DocumentID(0),
		SourceEventToken: gl.EventID(in, 0).String(), CausedByIndex: 1, Index: 1,
	})
	if err != nil {
		return nil, err
	}
	u.period, u.rules, u.journalID = reversal.Journal.Period, reversal.Journal.Rules, reversal.Journal.Journal.JournalID
	entry := reversal.Journal.Draft
	entry.Entities = append(entry.Entities, contract.VendorRef(u.invoice.Data.VendorID), contract.Invoice.Ref(p.InvoiceID))
	u.reversal = []event.Draft{entry, reversal.Reversed}
	return u, nil
}

func applicationNotFound() error {
	return fault.New(fault.NotFound, "ap.application.not_found",
		"the invoice has no such application, or it was undone; take application_id from the invoice's events").WithField("/application_id")
}

func (u *undoing) event(d, other *domain.Document, action string, data any) event.Draft {
	e := draft(d.Kind, d, action, data, u.date, u.period.Tags)
	e.Entities = append(e.Entities, other.Kind.AppliedRef(other.Data.ID()))
	return e
}

// plan joins the drafts: the first event, the reversal, and the other events.
func (u *undoing) plan(first event.Draft, others ...event.Draft) module.Plan {
	f := factsOf(u.in)
	f.Period = &u.period
	events := append([]event.Draft{first}, u.reversal...)
	for _, e := range others {
		e.CausedByIndex = 1
		events = append(events, e)
	}
	return module.Plan{
		Events: events, Rules: u.rules, Facts: &f, CorrelationID: u.invoice.CorrelationID,
		Amount: &module.Amount{Value: u.applied.Amount, Currency: u.invoice.Data.Currency},
	}
}
