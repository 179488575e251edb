package ap

import (
	"context"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/ap/contract"
	"github.com/erpbackbone/backbone/modules/ap/domain"
	gl "github.com/erpbackbone/backbone/modules/gl/contract"
)

// settlementDeclarations are the event types and intents by which documents settle each other.
func settlementDeclarations() declarations {
	invoice, memo := contract.Invoice, contract.CreditMemo
	application := func(k contract.Kind, action, description string) declaredEvent {
		name := "document.application"
		if action == contract.PrepaymentUsed || action == contract.PrepaymentReturned {
			name = "document.prepayment_use"
		}
		return declaredEvent{schema: name, kind: k, EventType: module.EventType{Registration: eventtype.Registration{
			Type: k.Event(action), Description: description,
			RequiredEntityRefs: []eventtype.RequiredRef{
				vendorRefRule(), {EntityType: string(k), Role: contract.RoleDocument, Cardinality: eventtype.One},
			},
		}}}
	}
	emits := func(names ...string) []string { return append(names, gl.EventJournalPosted) }
	undoes := func(names ...string) []string {
		return append(names, gl.EventJournalPosted, gl.EventJournalReversed)
	}
	return declarations{
		events: []declaredEvent{
			application(memo, contract.Applied, "A part of the credit memo settled an invoice."),
			application(memo, contract.Unapplied, "An application of the credit memo was undone."),
			application(invoice, contract.CreditApplied, "A credit memo settled a part of the invoice."),
			application(invoice, contract.CreditUnapplied, "The application of a credit memo was undone."),
			application(invoice, contract.PrepaymentUsed, "A part of the prepayment settled an invoice."),
			application(invoice, contract.PrepaymentReturned, "A part of the prepayment is unused again."),
			application(invoice, contract.PrepaymentApplied, "A prepayment settled a part of the invoice."),
			application(invoice, contract.PrepaymentUndone, "The application of a prepayment was undone."),
		},
		intents: []declaredIntent{
			{schema: "apply_credit", IntentType: module.IntentType{
				Type: contract.IntentApplyCredit, Description: "Settle a part of an invoice with a credit memo.",
				Emits: emits(memo.Event(contract.Applied), invoice.Event(contract.CreditApplied)), Plan: module.PlanOf(planApplyCredit),
			}},
			{schema: "unapply", IntentType: module.IntentType{
				Type: contract.IntentUnapplyCredit, Description: "Undo the application of a credit memo.",
				Emits: undoes(memo.Event(contract.Unapplied), invoice.Event(contract.CreditUnapplied)), Plan: module.PlanOf(planUnapplyCredit),
			}},
			{schema: "apply_prepayment", IntentType: module.IntentType{
				Type: contract.IntentApplyPrepayment, Description: "Settle a part of an invoice with a paid prepayment.",
				Emits: emits(invoice.Event(contract.PrepaymentUsed), invoice.Event(contract.PrepaymentApplied), invoice.Event(contract.HoldReleased)), Plan: module.PlanOf(planApplyPrepayment),
			}},
			{schema: "unapply", IntentType: module.IntentType{
				Type: contract.IntentUnapplyPrepayment, Description: "Undo the application of a prepayment.",
				Emits: undoes(invoice.Event(contract.PrepaymentReturned), invoice.Event(contract.PrepaymentUndone)), Plan: module.PlanOf(planUnapplyPrepayment),
			}},
		},
	}
}

// settlement is one document that settles an invoice: a credit memo or a prepayment. Both
// documents are read, so that settlements that race for one open amount are decided by the
// append.
type settlement struct {
	in       module.Input
	ledger   *gl.Ledger
	books    gl.Settings
	source   *domain.Document // the credit memo or prepayment
	invoice  *domain.Document
	amount   money.Number
	currency money.Currency
	date     event.Date
}

// loadSettlement loads both documents and checks what holds for every settlement: one vendor, one
// currency, a positive amount that is open in the invoice, and a date not before either posting.
func loadSettlement(ctx context.Context, in module.Input, s module.State, k contract.Kind, sourceID, invoiceID string, amount money.Number, given *event.Date) (*settlement, error) {
	t := &settlement{in: in, ledger: gl.NewLedger(s), amount: amount}
	var err error
	if t.source, err = loadDocument(ctx, s, k, sourceID); err != nil {
		return nil, err
	}
	if t.invoice, err = loadDocument(ctx, s, contract.Invoice, invoiceID); err != nil {
		return nil, err
	}
	if err := t.invoice.RequireState(domain.OpenStates()...); err != nil {
		return nil, err
	}
	if t.source.State == domain.StateNone {
		return nil, t.source.RequireState(domain.StatePosted)
	}
	code, noun := t.source.Kind.Code, t.source.Kind.Noun()
	if t.source.Kind == t.invoice.Kind {
		noun = "prepayment"
	}
	switch {
	case t.source.Data.VendorID != t.invoice.Data.VendorID:
		return nil, fault.New(fault.FailedPrecondition, code("vendor_mismatch"),
			"the %s is of vendor %s and the invoice of %s; settle documents of one vendor", noun, t.source.Data.VendorID, t.invoice.Data.VendorID)
	case t.source.Data.Currency != t.invoice.Data.Currency:
		return nil, fault.New(fault.FailedPrecondition, code("currency_mismatch"),
			"the %s is in %s and the invoice in %s; settle documents of one currency", noun, t.source.Data.Currency, t.invoice.Data.Currency).
			WithNumbers(t.invoice.Data.Currency, t.source.Data.Currency)
	}
	if t.currency, err = money.LookupCurrency(t.invoice.Data.Currency, t.invoice.Data.InvoiceDate.Time()); err != nil {
		return nil, err
	}
	if err := money.CheckAmount(amount, t.currency); err != nil {
		return nil, fault.WithField(err, "/amount")
	}
	if amount.Sign() <= 0 {
		return nil, fault.New(fault.Invalid, "ap.application.amount_invalid", "an application is of an amount above 0; correct it").WithField("/amount")
	}
	if err := t.invoice.CheckOpen(amount); err != nil {
		return nil, err
	}
	if t.books, err = t.ledger.Settings(ctx); err != nil {
		return nil, err
	}
	earliest := max(t.source.OpenedOn, t.invoice.OpenedOn)
	if t.date, err = postingDate(in, given, max(in.Today, earliest)); err != nil {
		return nil, err
	}
	return t, checkNotBefore(t.date, earliest)
}

// checkNotBefore refuses to settle documents before all of what is open was: before they were
// posted, and before an earlier settlement was undone. Reports of the days between would show
// that more was settled than there was.
func checkNotBefore(date, earliest event.Date) error {
	if date >= earliest {
		return nil
	}
	return fault.New(fault.Invalid, "ap.application.posting_date_invalid",
		"the posting date %s is before %s, when the later of both documents was posted or a settlement of it was undone; use that day or a later one", date, earliest).
		WithField("/posting_date").With("earliest", earliest.String())
}

// relieve returns the carrying amount that goes with the settled part of a document.
func (t *settlement) relieve(ctx context.Context, d *domain.Document) (money.Number, error) {
	book, err := t.ledger.Functional(ctx)
	if err != nil {
		return money.Number{}, err
	}
	return d.Relieve(t.amount, book)
}

// controlLine is the line on the control account that settles a part of a document: the other
// side than that of its posting.
func controlLine(ctx context.Context, ledger *gl.Ledger, d *domain.Document, amount, functional money.Number) (gl.SubledgerLine, error) {
	account, err := ledger.ProfileAccount(ctx, gl.RoleAPControl)
	side := gl.Debit
	if d.Kind == contract.CreditMemo {
		side = gl.Credit
	}
	return gl.SubledgerLine{
		Account: account, Side: side, Amount: amount, FunctionalAmount: &functional, Control: true,
		Description: "Settlement of " + journalTitle(d.Kind, &d.Data), Dimensions: map[string]string{dimensionVendor: d.Data.VendorID},
	}, err
}

// exchangeLine is the realised exchange difference of lines whose functional amounts leave
// difference more debit than credit: a gain if positive.
func exchangeLine(ctx context.Context, ledger *gl.Ledger, difference money.Number) (gl.SubledgerLine, error) {
	role, side := gl.RoleFXGain, gl.Credit
	if difference.Sign() < 0 {
		role, side = gl.RoleFXLoss, gl.Debit
	}
	account, err := ledger.ProfileAccount(ctx, role)
	amount := difference.Abs()
	return gl.SubledgerLine{Account: account, Side: side, FunctionalAmount: &amount, Description: "Realised exchange difference"}, err
}

// journal plans the journal of the settlement. Draft 0 of the plan causes it.
func (t *settlement) journal(ctx context.Context, title string, lines []gl.SubledgerLine) (gl.PlannedJournal, error) {
	planned, err := gl.PlanSubledgerJournal(ctx, t.ledger, gl.SubledgerJournal{
		SourceModule: contract.ModuleName, CausedByIndex: 1, SourceEventToken: gl.EventID(t.in, 0).String(),
		Description: title, PostingDate: t.date, Currency: t.currency.Code,
		Dimensions: map[string]string{dimensionVendor: t.invoice.Data.VendorID}, Lines: lines, JournalID: t.in.DocumentID(1),
	})
	if err != nil {
		return planned, err
	}
	planned.Draft.Entities = append(planned.Draft.Entities, contract.VendorRef(t.invoice.Data.VendorID),
		t.source.Kind.AppliedRef(t.source.Data.ID()), contract.Invoice.Ref(t.invoice.Data.ID()))
	return planned, nil
}

// event drafts the settlement's event on the stream of d. other is the other document.
func (t *settlement) event(d, other *domain.Document, action string, data any, tags []string) event.Draft {
	e := draft(d.Kind, d, action, data, t.date, tags)
	e.Entities = append(e.Entities, other.Kind.AppliedRef(other.Data.ID()))
	return e
}

// application is what a settlement does to a document.
func (t *settlement) application(d, other *domain.Document, functional money.Number, journalID string) contract.Application {
	return contract.Application{
		DocumentRef: contract.RefTo(d.Kind, d.Data.ID()), ApplicationID: t.in.DocumentID(0).String(), With: contract.RefTo(other.Kind, other.Data.ID()),
		Amount: t.amount, Currency: t.currency.Code, Functional: functional, OpenAfter: d.Open.Sub(t.amount), JournalID: journalID,
	}
}

// plan joins the drafts of a settlement.
func (t *settlement) plan(period gl.Period, rules []event.RuleEvaluation, drafts ...event.Draft) module.Plan {
	f := factsOf(t.in)
	f.Period = &period
	for i := 1; i < len(drafts); i++ {
		if drafts[i].CausedByIndex == 0 {
			drafts[i].CausedByIndex = 1
		}
	}
	return module.Plan{
		Events: drafts, Rules: rules, Facts: &f, CorrelationID: t.invoice.CorrelationID,
		Amount: &module.Amount{Value: t.amount, Currency: t.currency.Code},
	}
}
