package ap

import (
	"cmp"
	"context"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/modules/ap/contract"
	"github.com/erpbackbone/backbone/modules/ap/domain"
	gl "github.com/erpbackbone/backbone/modules/gl/contract"
)

// paymentPolicy is the Rego package with the rules of payments.
const paymentPolicy = "backbone.rules.ap_payments"

// paymentDeclarations are the event types and intents of payment runs and payments.
func paymentDeclarations() declarations {
	run := eventtype.RequiredRef{EntityType: contract.EntityPaymentRun, Role: contract.RolePaymentRun, Cardinality: eventtype.One}
	payment := eventtype.RequiredRef{EntityType: contract.EntityPayment, Role: contract.RolePayment, Cardinality: eventtype.One}
	d := declarations{files: []module.File{paymentFile()}}
	for _, e := range []struct {
		name, description, redactable string
		refs                          []eventtype.RequiredRef
	}{
		{contract.EventRunProposed, "Payments were proposed. A large run has several of these events.", "", []eventtype.RequiredRef{run}},
		{contract.EventPaymentExcluded, "A payment was taken out of a proposed run.", "$.reason", []eventtype.RequiredRef{run, payment, vendorRefRule()}},
		{contract.EventRunApproved, "The payment run was approved.", "$.reason", []eventtype.RequiredRef{run}},
		{contract.EventRunRejected, "The payment run was rejected.", "$.reason", []eventtype.RequiredRef{run}},
		{contract.EventRunExported, "The bank file of the run was made: its hash, count and control sum.", "", []eventtype.RequiredRef{run}},
		{contract.EventReserved, "Documents are in a payment run, and in no other until they are released.", "", []eventtype.RequiredRef{run}},
		{contract.EventReleased, "Documents can be in another payment run again.", "", []eventtype.RequiredRef{run}},
		{contract.EventPaymentExecuted, "The bank executed the payment.", "", []eventtype.RequiredRef{run, payment, vendorRefRule()}},
		{contract.EventPaymentFailed, "The bank did not execute the payment.", "$.text", []eventtype.RequiredRef{run, payment, vendorRefRule()}},
		{contract.EventPaymentVoided, "An executed payment was taken back. Its journal is reversed.", "$.reason", []eventtype.RequiredRef{run, payment, vendorRefRule()}},
	} {
		t := module.EventType{Registration: eventtype.Registration{Type: e.name, Description: e.description, RequiredEntityRefs: e.refs}}
		if e.redactable != "" {
			t.Redactable = []string{e.redactable}
		}
		if e.name == contract.EventPaymentExecuted {
			t.BusinessKeys = []eventtype.BusinessKeyRule{{Name: "payment", Fields: []string{"payment_id"}, Document: "payment_id"}}
		}
		d.events = append(d.events, declaredEvent{schema: e.name, EventType: t})
	}
	voids := []string{contract.EventPaymentVoided, gl.EventJournalPosted, gl.EventJournalReversed}
	for _, k := range contract.Kinds() {
		for _, a := range []struct{ action, description string }{
			{contract.PartiallyPaid, "A payment settled a part of the " + k.Noun() + "."},
			{contract.PaymentReversed, "A payment of the " + k.Noun() + " was voided: what it settled is open again."},
			{contract.Paid, "Nothing of the " + k.Noun() + " is open any more."},
		} {
			if a.action == contract.Paid && k == contract.Invoice {
				continue // declared with the documents
			}
			d.events = append(d.events, declaredEvent{schema: "document.paid", kind: k, EventType: module.EventType{Registration: eventtype.Registration{
				Type: k.Event(a.action), Description: a.description,
				RequiredEntityRefs: []eventtype.RequiredRef{vendorRefRule(), {EntityType: string(k), Role: contract.RoleDocument, Cardinality: eventtype.One}},
			}}})
		}
		voids = append(voids, k.Event(contract.PaymentReversed))
	}
	for _, i := range []struct {
		schema string
		module.IntentType
	}{
		{"propose_payment_run", module.IntentType{
			Type: contract.IntentProposePaymentRun, Description: "Propose payments of open documents.",
			Emits: []string{contract.EventRunProposed, contract.EventReserved}, Plan: module.PlanOf(planProposeRun),
		}},
		{"exclude_payment", module.IntentType{
			Type: contract.IntentExcludePayment, Description: "Take a payment out of a proposed run.",
			Emits: []string{contract.EventPaymentExcluded, contract.EventReleased}, Plan: module.PlanOf(planExcludePayment),
		}},
		{"decide_payment_run", module.IntentType{
			Type: contract.IntentApprovePaymentRun, Description: "Approve a proposed payment run.",
			Emits: []string{contract.EventRunApproved}, Plan: module.PlanOf(planApproveRun),
		}},
		{"decide_payment_run", module.IntentType{
			Type: contract.IntentRejectPaymentRun, Description: "Reject a proposed payment run.",
			Emits: []string{contract.EventRunRejected, contract.EventReleased}, Plan: module.PlanOf(planRejectRun),
		}},
		{"decide_payment_run", module.IntentType{
			Type: contract.IntentExportPaymentRun, Description: "Make the bank file of an approved payment run.",
			Emits: []string{contract.EventRunExported}, Opens: []shredding.Class{shredding.Bank}, Plan: module.PlanOf(planExportRun),
		}},
		{"execute_payment", module.IntentType{
			Type: contract.IntentExecutePayment, Description: "Record that the bank executed a payment.", Emits: executionEvents(), Plan: module.PlanOf(planExecutePayment),
		}},
		{"fail_payment", module.IntentType{
			Type: contract.IntentFailPayment, Description: "Record that the bank did not execute a payment.",
			Emits: []string{contract.EventPaymentFailed, contract.EventReleased}, Plan: module.PlanOf(planFailPayment),
		}},
		{"void_payment", module.IntentType{
			Type: contract.IntentVoidPayment, Description: "Take an executed payment back; its journal is reversed.", Emits: voids, Plan: module.PlanOf(planVoidPayment),
		}},
	} {
		i.Policy = paymentPolicy
		d.intents = append(d.intents, declaredIntent{schema: i.schema, IntentType: i.IntentType})
	}
	return d
}

// loadPayment loads a payment of a run with the run.
func loadPayment(ctx context.Context, s module.State, id string) (*domain.PaymentRun, *domain.Payment, error) {
	runID := contract.RunOfPayment(id)
	if runID == "" {
		return nil, nil, domain.PaymentNotFoundFault()
	}
	run, err := loadRun(ctx, s, runID)
	if err != nil {
		return nil, nil, err
	}
	if run.State == domain.RunNone {
		return nil, nil, domain.PaymentNotFoundFault()
	}
	payment, err := module.Load[*domain.Payment](ctx, s, contract.PaymentStream(id))
	return run, payment, err
}

// pendingPayment loads a payment that the bank has not answered yet. Faults: payment.not_found,
// payment.already_executed, payment.wrong_state, ap.payment_run.wrong_state.
func pendingPayment(ctx context.Context, s module.State, id string) (*domain.PaymentRun, contract.ProposedPayment, error) {
	run, state, err := loadPayment(ctx, s, id)
	if err != nil {
		return nil, contract.ProposedPayment{}, err
	}
	proposed, err := run.Payment(id)
	if err != nil {
		return nil, proposed, err
	}
	if err := run.RequireState(domain.RunApproved, domain.RunExported); err != nil {
		return nil, proposed, err
	}
	switch state.State {
	case domain.PaymentNone:
		return run, proposed, nil
	case domain.PaymentExecuted:
		return nil, proposed, fault.New(fault.Conflict, "payment.already_executed",
			"the payment was executed on %s; void it if the bank took it back", state.Executed.ExecutedOn).
			With("executed_on", state.Executed.ExecutedOn.String()).With("event_id", state.EventID.String())
	default:
		return nil, proposed, paymentStateFault(state.State, "nothing recorded")
	}
}

func paymentStateFault(state, needed string) error {
	return fault.New(fault.FailedPrecondition, "payment.wrong_state",
		"the payment is %s, and this needs a payment with %s; look at its events to see what happened", state, needed).With("state", state)
}

// paymentDraft makes an event on the stream of a payment.
func paymentDraft(runID, paymentID, vendorID, eventType string, data any, date event.Date) event.Draft {
	return event.Draft{
		Type: eventType, EffectiveDate: date, Stream: contract.PaymentStream(paymentID), Data: data,
		Entities: []event.EntityRef{contract.VendorRef(vendorID), contract.PaymentRef(paymentID), contract.PaymentRunRef(runID)},
	}
}

// execution is a payment that the bank executed.
type execution struct {
	in       module.Input
	ledger   *gl.Ledger
	payload  contract.PaymentExecution
	run      *domain.PaymentRun
	payment  contract.ProposedPayment
	account  contract.PayingAccount
	currency money.Currency
	book     money.Currency

	keepTax   bool // a discount leaves tax as it is
	documents []*domain.Document
	relieved  []money.Number             // carrying amounts of what is settled, by document
	shares    [][]contract.DiscountShare // of the discount, by document; nil if none of its tax is corrected
	discount  money.Number               // functional
	cash      money.Number               // functional, as the bank took it
	steps     []domain.Step
}

// planExecutePayment plans the execution of a payment: each document loses what the payment
// settles and its share of the carrying amount. Every document is read, so of payments and
// applications that race for one open amount the append lets one take it.
func planExecutePayment(ctx context.Context, in module.Input, s module.State, p contract.PaymentExecution) (module.Plan, error) {
	x := &execution{in: in, ledger: gl.NewLedger(s), payload: p}
	var err error
	if x.run, x.payment, err = pendingPayment(ctx, s, p.PaymentID); err != nil {
		return module.Plan{}, err
	}
	if err := x.load(ctx, s); err != nil {
		return module.Plan{}, err
	}
	lines, err := x.lines(ctx)
	if err != nil {
		return module.Plan{}, err
	}
	planned, err := gl.PlanSubledgerJournal(ctx, x.ledger, gl.SubledgerJournal{
		SourceModule: contract.ModuleName, CausedByIndex: 1, SourceEventToken: gl.EventID(in, 0).String(),
		Description: "Payment " + p.PaymentID, PostingDate: p.ExecutedOn, Currency: x.payment.Currency,
		Dimensions: map[string]string{dimensionVendor: x.payment.VendorID}, Lines: lines, JournalID: in.DocumentID(0),
	})
	if err != nil {
		return module.Plan{}, err
	}
	planned.Draft.Entities = append(planned.Draft.Entities, contract.VendorRef(x.payment.VendorID), contract.PaymentRef(p.PaymentID))
	f := paymentFacts{facts: factsOf(in)}
	f.Period, f.Submitters = &planned.Period, domain.DistinctSteps(x.steps)
	return module.Plan{
		Events: x.events(planned), Rules: planned.Rules, Facts: &f, CorrelationID: x.run.CorrelationID,
		Amount: &module.Amount{Value: x.payment.Amount, Currency: x.payment.Currency},
	}, nil
}

// load reads the documents and checks that each may be paid on the day.
func (x *execution) load(ctx context.Context, s module.State) error {
	settings, err := loadSettings(ctx, s)
	if err != nil {
		return err
	}
	account, known := settings.BankAccounts[x.run.BankAccount]
	if !known {
		return bankAccountNotFoundFault()
	}
	x.account, x.keepTax = account, settings.KeepDiscountTax
	vendor, err := loadVendor(ctx, s, x.payment.VendorID)
	if err != nil {
		return err
	}
	if err := vendor.CheckNotBlocked(contract.BlockPayment); err != nil {
		return err
	}
	if x.book, err = x.ledger.Functional(ctx); err != nil {
		return err
	}
	if x.currency, err = money.LookupCurrency(x.payment.Currency, x.payload.ExecutedOn.Time()); err != nil {
		return err
	}
	for i := range x.payment.Applications {
		a := &x.payment.Applications[i]
		d, err := loadDocument(ctx, s, kindOf(a.DocumentRef), a.ID())
		if err != nil {
			return err
		}
		// An amount that another payment took is refused as such, also when nothing is open any more.
		if err := d.CheckOpen(a.Amount); err != nil && d.State == domain.StatePaid {
			return err
		}
		if err := d.CheckPayable(); err != nil {
			return err
		}
		if err := d.CheckOpen(a.Amount); err != nil {
			return err
		}
		if x.payload.ExecutedOn < d.OpenedOn {
			return fault.New(fault.Invalid, "payment.executed_on_invalid",
				"the payment was executed on %s, and one of its documents was posted, or a settlement of it undone, on %s; correct executed_on", x.payload.ExecutedOn, d.OpenedOn).
				WithField("/executed_on").With("earliest", d.OpenedOn.String())
		}
		relieved, err := d.Relieve(a.Amount, x.book)
		if err != nil {
			return err
		}
		x.documents, x.relieved = append(x.documents, d), append(x.relieved, relieved)
		x.steps = append(append(x.steps, d.Submitters...), d.Approvers...)
	}
	return nil
}

// lines makes the lines of the journal: the documents leave the control account at their carrying
// amounts, discounts at their share of it, and the bank takes its amount at the rate of the day.
// What remains is the realised exchange difference.
func (x *execution) lines(ctx context.Context) ([]gl.SubledgerLine, error) {
	var lines []gl.SubledgerLine
	var difference money.Number // debit less credit, functional
	discounts, err := x.newDiscountLines(ctx)
	if err != nil {
		return nil, err
	}
	x.shares = make([][]contract.DiscountShare, len(x.documents))
	for i, d := range x.documents {
		a := &x.payment.Applications[i]
		line, err := controlLine(ctx, x.ledger, d, a.Amount, x.relieved[i])
		if err != nil {
			return nil, err
		}
		lines = append(lines, line)
		if d.Kind == contract.CreditMemo {
			difference = difference.Sub(x.relieved[i])
			continue
		}
		difference = difference.Add(x.relieved[i])
		if discount := valueOf(a.Discount); !discount.IsZero() {
			share, err := domain.Share(x.relieved[i], discount, a.Amount, x.book)
			if err != nil {
				return nil, err
			}
			x.discount = x.discount.Add(share)
			if x.shares[i], err = discounts.addDocument(ctx, d, a.Amount, discount, share); err != nil {
				return nil, err
			}
		}
	}
	lines = append(lines, discounts.lines...)
	bank, err := x.bankLines(ctx)
	if err != nil {
		return nil, err
	}
	lines = append(lines, bank...)
	if difference = difference.Sub(x.discount).Sub(x.cash); !difference.IsZero() {
		exchange, err := exchangeLine(ctx, x.ledger, difference)
		if err != nil {
			return nil, err
		}
		if x.payment.Currency == x.book.Code {
			exchange.Currency = x.account.Currency // a line in functional currency has no difference
		}
		lines = append(lines, exchange)
	}
	return lines, nil
}

// bankLines credit the bank account. A payment from an account in another currency passes both
// amounts through fx_clearing, whose functional balance stays zero.
func (x *execution) bankLines(ctx context.Context) ([]gl.SubledgerLine, error) {
	account := x.account.Account
	if account == "" {
		var err error
		if account, err = x.ledger.ProfileAccount(ctx, gl.RoleBank); err != nil {
			return nil, err
		}
	}
	text := "Payment " + x.payload.PaymentID
	taken := x.payment.Amount
	if x.account.Currency == x.payment.Currency {
		if given := x.payload.BankAmount; given != nil && !given.Equal(taken) {
			return nil, fault.New(fault.Invalid, "payment.bank_amount_mismatch",
				"the bank took %s, and the payment is of %s %s; record the payment with ap.fail_payment and propose what the bank paid", *given, taken, x.payment.Currency).
				WithField("/bank_amount").WithNumbers(taken.String(), given.String())
		}
		cash, _, _, err := x.ledger.FunctionalAmount(ctx, taken, x.payment.Currency, x.payload.ExecutedOn)
		x.cash = cash
		return []gl.SubledgerLine{{Account: account, Side: gl.Credit, Amount: taken, Description: text}}, err
	}
	if x.payload.BankAmount == nil {
		return nil, fault.New(fault.Invalid, "payment.bank_amount_missing",
			"the bank account is in %s and the payment in %s; send what the bank took in bank_amount", x.account.Currency, x.payment.Currency).WithField("/bank_amount")
	}
	taken = *x.payload.BankAmount
	currency, err := money.LookupCurrency(x.account.Currency, x.payload.ExecutedOn.Time())
	if err != nil {
		return nil, err
	}
	if err := money.CheckAmount(taken, currency); err != nil {
		return nil, fault.WithField(err, "/bank_amount")
	}
	if taken.Sign() <= 0 {
		return nil, fault.New(fault.Invalid, "payment.bank_amount_missing", "the bank took an amount above 0; send it in bank_amount").WithField("/bank_amount")
	}
	if x.cash, _, _, err = x.ledger.FunctionalAmount(ctx, taken, currency.Code, x.payload.ExecutedOn); err != nil {
		return nil, err
	}
	cleared := x.cash
	if x.payment.Currency == x.book.Code {
		cleared = x.payment.Amount
	}
	clearing, err := x.ledger.ProfileAccount(ctx, gl.RoleFXClearing)
	return []gl.SubledgerLine{
		{Account: clearing, Side: gl.Credit, Amount: x.payment.Amount, FunctionalAmount: &cleared, Description: text},
		{Account: clearing, Side: gl.Debit, Amount: taken, Currency: currency.Code, FunctionalAmount: &cleared, Description: text},
		{Account: account, Side: gl.Credit, Amount: taken, Currency: currency.Code, FunctionalAmount: &x.cash, Description: text},
	}, err
}

// events drafts the execution, its journal, and what it did to each document.
func (x *execution) events(planned gl.PlannedJournal) []event.Draft {
	p := &x.payment
	data := contract.PaymentExecuted{
		PaymentID: p.PaymentID, RunID: x.run.RunID, VendorID: p.VendorID, BankAccount: x.run.BankAccount, Currency: p.Currency, Amount: p.Amount,
		FunctionalAmount: x.cash, FunctionalCurrency: x.book.Code, ExecutedOn: x.payload.ExecutedOn, BankReference: x.payload.BankReference,
		Discount: p.Discount, JournalID: planned.Journal.JournalID,
	}
	if x.account.Currency != p.Currency {
		data.BankAmount, data.BankCurrency = x.payload.BankAmount, x.account.Currency
	}
	drafts := []event.Draft{{}, planned.Draft}
	for i, d := range x.documents {
		a := p.Applications[i]
		a.Version, a.Functional, a.DiscountShares = 0, &x.relieved[i], x.shares[i]
		data.Applications = append(data.Applications, a)
		action := contract.PartiallyPaid
		if d.Open.Equal(a.Amount) {
			action = contract.Paid
		}
		e := draft(d.Kind, d, action, contract.DocumentPaid{
			DocumentRef: a.DocumentRef, Applied: a.Amount, OpenAfter: d.Open.Sub(a.Amount), PaymentID: p.PaymentID, Currency: p.Currency,
			Functional: &x.relieved[i], Discount: a.Discount, JournalID: data.JournalID, DiscountShares: a.DiscountShares,
		}, x.payload.ExecutedOn, planned.Period.Tags)
		e.Entities, e.CausedByIndex = append(e.Entities, contract.PaymentRef(p.PaymentID)), 1
		drafts = append(drafts, e)
	}
	drafts[0] = paymentDraft(x.run.RunID, p.PaymentID, p.VendorID, contract.EventPaymentExecuted, data, x.payload.ExecutedOn)
	drafts[0].Tags, drafts[0].CausedBy = planned.Period.Tags, x.run.EventID
	for _, d := range x.documents {
		drafts[0].Entities = append(drafts[0].Entities, d.Kind.AppliedRef(d.Data.ID()))
	}
	return append(drafts, releaseDraft(x.in, x.run.RunID, p.PaymentID))
}

// planFailPayment plans that the bank refused a payment. Its documents are free again.
func planFailPayment(ctx context.Context, in module.Input, s module.State, p contract.PaymentFailure) (module.Plan, error) {
	run, payment, err := pendingPayment(ctx, s, p.PaymentID)
	if err != nil {
		return module.Plan{}, err
	}
	failed := paymentDraft(run.RunID, p.PaymentID, payment.VendorID, contract.EventPaymentFailed, contract.PaymentFailed{RunID: run.RunID, PaymentFailure: p}, in.Date())
	failed.CausedBy = run.EventID
	return module.Plan{
		Events: []event.Draft{failed, releaseDraft(in, run.RunID, p.PaymentID)}, Facts: factsOf(in), CorrelationID: run.CorrelationID,
		Amount: &module.Amount{Value: payment.Amount, Currency: payment.Currency},
	}, nil
}

// planVoidPayment plans that an executed payment did not happen: its journal is reversed, and what
// it settled is open again with the carrying amount that it had.
func planVoidPayment(ctx context.Context, in module.Input, s module.State, p contract.PaymentVoid) (module.Plan, error) {
	run, state, err := loadPayment(ctx, s, p.PaymentID)
	if err != nil {
		return module.Plan{}, err
	}
	if _, err := run.Payment(p.PaymentID); err != nil {
		return module.Plan{}, err
	}
	if state.State != domain.PaymentExecuted {
		return module.Plan{}, paymentStateFault(cmp.Or(state.State, "not executed"), "an execution that was not voided")
	}
	executed := &state.Executed
	date, err := postingDate(in, p.PostingDate, max(in.Today, executed.ExecutedOn))
	if err != nil {
		return module.Plan{}, err
	}
	original, err := event.ParseID(executed.JournalID)
	if err != nil {
		return module.Plan{}, err
	}
	settings, err := loadSettings(ctx, s)
	if err != nil {
		return module.Plan{}, err
	}
	reversal, err := gl.PlanReversal(ctx, gl.NewLedger(s), gl.Reversal{
		Module: contract.ModuleName, OriginalID: original, PostingDate: date, Reason: p.Reason, JournalID: in.DocumentID(0),
		SourceEventToken: gl.EventID(in, 0).String(), CausedByIndex: 1, Index: 1,
	})
	if err != nil {
		return module.Plan{}, err
	}
	period, id := &reversal.Journal.Period, reversal.Journal.Journal.JournalID
	entry := reversal.Journal.Draft
	entry.Entities = append(entry.Entities, contract.VendorRef(executed.VendorID), contract.PaymentRef(p.PaymentID))
	voided := paymentDraft(run.RunID, p.PaymentID, executed.VendorID, contract.EventPaymentVoided,
		contract.PaymentVoided{PaymentID: p.PaymentID, Reason: p.Reason, JournalID: id}, date)
	voided.Tags, voided.CausedBy = period.Tags, state.EventID
	drafts := []event.Draft{voided, entry, reversal.Reversed}
	for i := range executed.Applications {
		a := &executed.Applications[i]
		d, err := loadDocument(ctx, s, kindOf(a.DocumentRef), a.ID())
		if err != nil {
			return module.Plan{}, err
		}
		if d.Data.DocumentType == contract.TypePrepayment && !d.Unused.Equal(d.Posting.Amount) {
			return module.Plan{}, fault.New(fault.FailedPrecondition, contract.Invoice.Code("prepayment_in_use"),
				"invoices used %s of the prepayment that this payment paid; undo it with ap.unapply_prepayment first", d.Posting.Amount.Sub(d.Unused)).
				With("invoice_id", a.ID()).With("used", d.Posting.Amount.Sub(d.Unused).String()).With("currency", executed.Currency)
		}
		e := draft(d.Kind, d, contract.PaymentReversed, contract.DocumentPaid{
			DocumentRef: a.DocumentRef, Applied: a.Amount, OpenAfter: d.Open.Add(a.Amount), PaymentID: p.PaymentID, Currency: executed.Currency,
			Functional: a.Functional, Discount: a.Discount, JournalID: id, DiscountShares: a.DiscountShares,
		}, date, period.Tags)
		e.Entities, e.CausedByIndex = append(e.Entities, contract.PaymentRef(p.PaymentID)), 1
		drafts = append(drafts, e)
	}
	f := paymentFacts{facts: factsOf(in)}
	f.Period, f.SecondPerson = period, settings.SecondPerson
	return module.Plan{
		Events: drafts, Rules: reversal.Journal.Rules, Facts: &f, CorrelationID: state.CorrelationID,
		Amount: &module.Amount{Value: executed.Amount, Currency: executed.Currency},
	}, nil
}
