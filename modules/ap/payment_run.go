package ap

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/ap/contract"
	"github.com/erpbackbone/backbone/modules/ap/domain"
	gl "github.com/erpbackbone/backbone/modules/gl/contract"
)

const (
	// maxRunDocuments bounds a run, so that its events fit one batch.
	maxRunDocuments = 10_000
	// maxPaymentDocuments bounds a payment: its execution writes an event per document, and a
	// batch holds 100 events.
	maxPaymentDocuments = 90
	// maxPartDocuments bounds the documents of one event of a proposal, so that it stays far
	// below the largest event.
	maxPartDocuments = 1000
	// maxPartLeftOut bounds the documents that one event of a proposal leaves out.
	maxPartLeftOut = 2000
	// maxNamedChanges bounds how many changed documents a refusal names.
	maxNamedChanges = 20
)

// candidate is a document that a run may pay.
type candidate struct {
	d       *domain.Document
	version event.Version
	vendor  *domain.Vendor
	apply   contract.PaymentApplication
}

// cash is what the candidate adds to a payment: negative for a credit memo.
func (c *candidate) cash() money.Number {
	if c.d.Kind == contract.CreditMemo {
		return c.apply.Amount.Neg()
	}
	return c.apply.Amount.Sub(valueOf(c.apply.Discount))
}

func valueOf(n *money.Number) money.Number {
	if n == nil {
		return money.Number{}
	}
	return *n
}

// proposal collects the documents of a run that is proposed.
type proposal struct {
	in       module.Input
	state    module.State
	payload  contract.PaymentRunProposal
	reserved *domain.Reservations
	vendors  map[string]*domain.Vendor
	seen     map[string]bool
	groups   map[group][]*candidate
	leftOut  []contract.LeftOut
}

// group is what one payment is for.
type group struct{ vendor, currency string }

// planProposeRun plans a payment run: one payment per vendor and currency, with the vendor's
// credit memos netted. Documents that cannot be paid are left out with the code that says why.
// The reservations keep a document in one unfinished run: two runs that are proposed at the same
// time read the same version of their stream, and the second is planned again.
func planProposeRun(ctx context.Context, in module.Input, s module.State, p contract.PaymentRunProposal) (module.Plan, error) {
	settings, err := loadSettings(ctx, s)
	if err != nil {
		return module.Plan{}, err
	}
	if _, known := settings.BankAccounts[p.BankAccount]; !known {
		return module.Plan{}, bankAccountNotFoundFault()
	}
	if (p.Documents == nil) == (p.Selection == nil) {
		return module.Plan{}, fault.New(fault.Invalid, "ap.payment_run.selection_invalid",
			"a run pays either the documents that you name or a selection; send documents or selection, not both")
	}
	r := &proposal{in: in, state: s, payload: p, vendors: map[string]*domain.Vendor{}, seen: map[string]bool{}, groups: map[group][]*candidate{}}
	if r.reserved, err = module.Load[*domain.Reservations](ctx, s, contract.ReservationStream()); err != nil {
		return module.Plan{}, err
	}
	documents := p.Documents
	if p.Selection != nil {
		if documents, err = selectDocuments(ctx, s, p.Selection); err != nil {
			return module.Plan{}, err
		}
	}
	if len(documents) > maxRunDocuments {
		return module.Plan{}, fault.New(fault.FailedPrecondition, "ap.payment_run.too_large",
			"the run would have %d documents, and %d are allowed; propose several runs, for example by vendor or currency", len(documents), maxRunDocuments).
			WithNumbers(maxRunDocuments, len(documents))
	}
	for _, d := range documents {
		if err := r.add(ctx, d); err != nil {
			return module.Plan{}, err
		}
	}
	payments := r.payments(in.DocumentID(0).String())
	if len(payments) == 0 {
		f := fault.New(fault.FailedPrecondition, "ap.payment_run.empty", "no document can be paid, of %d in all; left_out says why", len(documents))
		return module.Plan{}, f.With("left_out", r.leftOut[:min(len(r.leftOut), maxNamedChanges)])
	}
	return module.Plan{Events: r.events(payments), Facts: factsOf(in)}, nil
}

func bankAccountNotFoundFault() error {
	return fault.New(fault.NotFound, "ap.bank_account.not_found",
		"the settings have no bank account with this code; add it with ap.configure or use another").WithField("/bank_account")
}

// openItem is a row of the read model of open items.
type openItem struct {
	DocumentID string     `json:"document_id"`
	Kind       string     `json:"kind"`
	VendorID   string     `json:"vendor_id"`
	Currency   string     `json:"currency"`
	DueDate    event.Date `json:"due_date"`
}

// selectDocuments reads which documents a selection means from the open items. A row may be
// outdated: the planner reads the stream of each document. So the only events that make the
// selection again are those of other runs.
func selectDocuments(ctx context.Context, s module.State, sel *contract.PaymentSelection) ([]contract.PaymentDocument, error) {
	rows, err := module.ReportRows[openItem](ctx, s, module.ReportRead{
		Path: contract.ModuleName + "/" + ReadModelOpenItems, Items: []concurrency.Item{{Types: []string{contract.EventReserved}}},
	})
	if err != nil {
		return nil, err
	}
	var documents []contract.PaymentDocument
	due := map[group]bool{}
	selected := func(r *openItem) bool {
		return (len(sel.Vendors) == 0 || slices.Contains(sel.Vendors, r.VendorID)) && (len(sel.Currencies) == 0 || slices.Contains(sel.Currencies, r.Currency))
	}
	for i := range rows {
		if r := &rows[i]; r.Kind != string(contract.CreditMemo) && r.DueDate <= sel.DueBy && selected(r) {
			documents = append(documents, contract.PaymentDocument{DocumentRef: contract.RefTo(contract.Invoice, r.DocumentID)})
			due[group{r.VendorID, r.Currency}] = true
		}
	}
	for i := range rows {
		if r := &rows[i]; r.Kind == string(contract.CreditMemo) && due[group{r.VendorID, r.Currency}] {
			documents = append(documents, contract.PaymentDocument{DocumentRef: contract.RefTo(contract.CreditMemo, r.DocumentID)})
		}
	}
	return documents, nil
}

// add checks a document and adds it to its payment, or leaves it out. An error that is no refusal
// ends the planning.
func (r *proposal) add(ctx context.Context, p contract.PaymentDocument) error {
	k := contract.Invoice
	if p.CreditMemoID != "" {
		k = contract.CreditMemo
	}
	raw, version, err := r.state.Stream(ctx, k.Stream(p.ID()))
	if err != nil {
		return err
	}
	c := &candidate{d: raw.(*domain.Document), version: version}
	if err := r.check(ctx, c, p); isRefusal(err) {
		r.leftOut = append(r.leftOut, contract.LeftOut{DocumentRef: p.DocumentRef, VendorID: c.d.Data.VendorID, Code: fault.CodeOf(err)})
		return nil
	} else if err != nil {
		return err
	}
	r.seen[p.ID()] = true
	g := group{c.d.Data.VendorID, c.d.Data.Currency}
	r.groups[g] = append(r.groups[g], c)
	return nil
}

// isRefusal reports whether an error says that something cannot be paid. Other errors,
// such as those of a store that does not answer, end the planning.
func isRefusal(err error) bool {
	f, is := fault.As(err)
	return is && slices.Contains([]fault.Kind{fault.Invalid, fault.NotFound, fault.FailedPrecondition, fault.Conflict}, f.Kind)
}

// check refuses a document that the run cannot pay, else completes the candidate.
func (r *proposal) check(ctx context.Context, c *candidate, p contract.PaymentDocument) error {
	d := c.d
	if err := d.CheckPayable(); err != nil {
		return err
	}
	if payment, taken := r.reserved.Documents[p.ID()]; taken || r.seen[p.ID()] {
		return fault.New(fault.FailedPrecondition, "ap.payment_run.invoice_reserved",
			"the document is in payment %s; execute, fail or exclude it first", payment).With("payment_id", payment)
	}
	currency, err := money.LookupCurrency(d.Data.Currency, d.Data.InvoiceDate.Time())
	if err != nil {
		return err
	}
	amount := d.Open
	if p.Amount != nil {
		amount = *p.Amount
		if err := money.CheckAmount(amount, currency); err != nil {
			return err
		}
		if amount.Sign() <= 0 {
			return fault.New(fault.Invalid, "ap.application.amount_invalid", "a payment settles an amount above 0; correct it").WithField("/amount")
		}
		if err := d.CheckOpen(amount); err != nil {
			return err
		}
	}
	vendor, known := r.vendors[d.Data.VendorID]
	if !known {
		if vendor, err = loadVendor(ctx, r.state, d.Data.VendorID); err != nil {
			return err
		}
		r.vendors[d.Data.VendorID] = vendor
	}
	if err := vendor.CheckNotBlocked(contract.BlockPayment); err != nil {
		return err
	}
	if _, err := vendor.PayableAccount(d.Data.Currency); err != nil {
		return err
	}
	c.vendor = vendor
	c.apply = contract.PaymentApplication{
		DocumentRef: contract.RefTo(d.Kind, d.Data.ID()), Number: cmp.Or(d.Data.PaymentReference, d.Data.InvoiceNumber), Amount: amount, Version: c.version,
	}
	if r.payload.TakeDiscount && d.Kind == contract.Invoice {
		if discount := domain.PaymentDiscount(&d.Data, vendor.Master.Terms, amount, r.payload.PayDate, currency); !discount.IsZero() {
			c.apply.Discount = &discount
		}
	}
	return nil
}

// payments makes the payments: of each vendor and currency as few as its documents allow.
func (r *proposal) payments(runID string) []contract.ProposedPayment {
	groups := slices.SortedFunc(maps.Keys(r.groups), func(a, b group) int {
		return cmp.Or(cmp.Compare(a.vendor, b.vendor), cmp.Compare(a.currency, b.currency))
	})
	var payments []contract.ProposedPayment
	for _, g := range groups {
		for _, members := range r.split(r.groups[g]) {
			p := contract.ProposedPayment{PaymentID: contract.PaymentID(runID, strconv.Itoa(len(payments)+1)), VendorID: g.vendor, Currency: g.currency}
			for _, c := range members {
				p.Amount = p.Amount.Add(c.cash())
				p.Discount = p.Discount.Add(valueOf(c.apply.Discount))
				p.Applications = append(p.Applications, c.apply)
			}
			account, _ := members[0].vendor.PayableAccount(g.currency) // checked before
			p.BankRequestID = account.RequestID
			payments = append(payments, p)
		}
	}
	return payments
}

// split divides the documents of a vendor and currency into payments. Each credit memo goes into
// the first payment that stays above zero with it; one for which there is none is left out, and so
// are documents whose discounts leave nothing to pay.
func (r *proposal) split(all []*candidate) [][]*candidate {
	var invoices, credits []*candidate
	for _, c := range all {
		if c.d.Kind == contract.CreditMemo {
			credits = append(credits, c)
		} else {
			invoices = append(invoices, c)
		}
	}
	room := maxPaymentDocuments - min(len(credits), maxPaymentDocuments/2)
	payments := slices.Collect(slices.Chunk(invoices, room))
	amounts := make([]money.Number, len(payments))
	for i, members := range payments {
		payments[i] = slices.Clip(members)
		for _, c := range members {
			amounts[i] = amounts[i].Add(c.cash())
		}
	}
	for _, c := range credits {
		i := 0
		for i < len(payments) && (len(payments[i]) >= maxPaymentDocuments || amounts[i].Add(c.cash()).Sign() <= 0) {
			i++
		}
		if i == len(payments) {
			r.leaveOut(c, "ap.payment_run.credit_exceeds_payment")
			continue
		}
		payments[i], amounts[i] = append(payments[i], c), amounts[i].Add(c.cash())
	}
	paid := payments[:0]
	for i, members := range payments {
		if amounts[i].Sign() > 0 {
			paid = append(paid, members)
			continue
		}
		for _, c := range members {
			r.leaveOut(c, "ap.payment_run.nothing_to_pay")
		}
	}
	return paid
}

func (r *proposal) leaveOut(c *candidate, code string) {
	r.leftOut = append(r.leftOut, contract.LeftOut{DocumentRef: c.apply.DocumentRef, VendorID: c.d.Data.VendorID, Code: code})
}

// events drafts the proposal in parts, and the reservations of their documents.
func (r *proposal) events(payments []contract.ProposedPayment) []event.Draft {
	runID := r.in.DocumentID(0).String()
	totals := map[string]money.Number{}
	var parts [][]contract.ProposedPayment
	documents := maxPartDocuments
	for _, p := range payments {
		totals[p.Currency] = totals[p.Currency].Add(p.Amount)
		if documents += len(p.Applications); len(parts) == 0 || documents > maxPartDocuments {
			parts, documents = append(parts, nil), len(p.Applications)
		}
		parts[len(parts)-1] = append(parts[len(parts)-1], p)
	}
	leftOut := slices.Collect(slices.Chunk(r.leftOut, maxPartLeftOut))
	for len(parts) < len(leftOut) {
		parts = append(parts, []contract.ProposedPayment{})
	}
	var events []event.Draft
	for i, part := range parts {
		data := contract.PaymentRunProposed{
			RunID: runID, Part: i + 1, Parts: len(parts), BankAccount: r.payload.BankAccount, PayDate: r.payload.PayDate, Payments: part, Totals: totals,
		}
		if i < len(leftOut) {
			data.LeftOut = leftOut[i]
		}
		events = append(events, runDraft(r.in, runID, contract.EventRunProposed, data))
	}
	for _, part := range parts {
		if len(part) == 0 {
			continue
		}
		reserved := contract.Reservation{RunID: runID, Payments: map[string][]string{}}
		for _, p := range part {
			for i := range p.Applications {
				reserved.Payments[p.PaymentID] = append(reserved.Payments[p.PaymentID], p.Applications[i].ID())
			}
		}
		e := runDraft(r.in, runID, contract.EventReserved, reserved)
		e.Stream, e.CausedByIndex = contract.ReservationStream(), 1
		events = append(events, e)
	}
	return events
}

// runDraft makes an event on the stream of a run.
func runDraft(in module.Input, runID, eventType string, data any) event.Draft {
	return event.Draft{
		Type: eventType, EffectiveDate: in.Date(), Stream: contract.PaymentRunStream(runID), Data: data,
		Entities: []event.EntityRef{contract.PaymentRunRef(runID)},
	}
}

// releaseDraft frees the documents of payments, or of a whole run. It is appended without an
// expectation: payments that are executed at the same time do not wait for each other.
func releaseDraft(in module.Input, runID string, payments ...string) event.Draft {
	e := runDraft(in, runID, contract.EventReleased, contract.Release{RunID: runID, Payments: payments})
	e.Stream, e.CausedByIndex = contract.ReservationStream(), 1
	return e
}

func loadRun(ctx context.Context, s module.State, id string) (*domain.PaymentRun, error) {
	return module.Load[*domain.PaymentRun](ctx, s, contract.PaymentRunStream(id))
}

// paymentFacts are what the policy of payments decides on, beside what all plans have.
type paymentFacts struct {
	facts
	Proposers []domain.Step `json:"proposers,omitempty"`  // of the run
	BankSteps []domain.Step `json:"bank_steps,omitempty"` // requests and approvals of the accounts that the run pays to
}

// planExcludePayment plans a proposed run without one of its payments.
func planExcludePayment(ctx context.Context, in module.Input, s module.State, p contract.PaymentExclusion) (module.Plan, error) {
	runID := contract.RunOfPayment(p.PaymentID)
	run, err := loadRun(ctx, s, runID)
	if err != nil {
		return module.Plan{}, err
	}
	if run.State == domain.RunNone {
		return module.Plan{}, domain.PaymentNotFoundFault()
	}
	if err := run.RequireState(domain.RunProposed); err != nil {
		return module.Plan{}, err
	}
	payment, err := run.Payment(p.PaymentID)
	if err != nil {
		return module.Plan{}, err
	}
	excluded := runDraft(in, runID, contract.EventPaymentExcluded, contract.PaymentExcluded{RunID: runID, PaymentExclusion: p})
	excluded.CausedBy = run.EventID
	excluded.Entities = append(excluded.Entities, contract.PaymentRef(p.PaymentID), contract.VendorRef(payment.VendorID))
	return module.Plan{
		Events: []event.Draft{excluded, releaseDraft(in, runID, p.PaymentID)}, Facts: factsOf(in), CorrelationID: run.CorrelationID,
		Amount: &module.Amount{Value: payment.Amount, Currency: payment.Currency},
	}, nil
}

// planApproveRun plans the approval of a run. It refuses one whose documents or accounts have
// changed since the proposal: the approver saw other figures.
func planApproveRun(ctx context.Context, in module.Input, s module.State, p contract.PaymentRunDecision) (module.Plan, error) {
	run, err := loadRun(ctx, s, p.RunID)
	if err != nil {
		return module.Plan{}, err
	}
	if err := run.RequireState(domain.RunProposed); err != nil {
		return module.Plan{}, err
	}
	if len(run.Payments) == 0 {
		return module.Plan{}, fault.New(fault.FailedPrecondition, "ap.payment_run.empty", "every payment of the run was excluded; reject the run")
	}
	f := paymentFacts{facts: factsOf(in), Proposers: run.Proposers}
	if f.BankSteps, err = checkUnchanged(ctx, s, run); err != nil {
		return module.Plan{}, err
	}
	settings, err := loadSettings(ctx, s)
	if err != nil {
		return module.Plan{}, err
	}
	// A run that is entered late is valued on its own day: today's rates have nothing to do with it.
	total, currency, err := functionalTotal(ctx, gl.NewLedger(s), run, min(in.Today, run.PayDate))
	if err != nil {
		return module.Plan{}, err
	}
	f.Approval = &approvalFacts{Amount: total, Currency: currency, Limits: settings.Limits, Step: 1, StepsRequired: 1}
	approved := runDraft(in, p.RunID, contract.EventRunApproved, contract.PaymentRunApproved{
		RunID: p.RunID, FunctionalAmount: total, FunctionalCurrency: currency, Payments: len(run.Payments), Reason: p.Reason,
	})
	approved.CausedBy = run.EventID
	return module.Plan{
		Events: []event.Draft{approved}, Facts: &f, CorrelationID: run.CorrelationID, Amount: &module.Amount{Value: total, Currency: currency},
	}, nil
}

// functionalTotal converts the total of a run at the rates of a day.
func functionalTotal(ctx context.Context, ledger *gl.Ledger, run *domain.PaymentRun, date event.Date) (money.Number, string, error) {
	book, err := ledger.Functional(ctx)
	if err != nil {
		return money.Number{}, "", err
	}
	totals := map[string]money.Number{}
	for i := range run.Payments {
		totals[run.Payments[i].Currency] = totals[run.Payments[i].Currency].Add(run.Payments[i].Amount)
	}
	var sum money.Number
	for _, currency := range slices.Sorted(maps.Keys(totals)) {
		functional, _, _, err := ledger.FunctionalAmount(ctx, totals[currency], currency, date)
		if err != nil {
			return money.Number{}, "", err
		}
		sum = sum.Add(functional)
	}
	return sum, book.Code, nil
}

// changedDocument names what changed since a proposal.
type changedDocument struct {
	contract.DocumentRef
	PaymentID string `json:"payment_id"`
	VendorID  string `json:"vendor_id"`
	Code      string `json:"code,omitempty"` // of the refusal that it leads to
}

// checkUnchanged refuses a run with documents or bank accounts that are not as they were when it
// was proposed: ap.payment_run.changed. It returns who requested and approved the accounts.
func checkUnchanged(ctx context.Context, s module.State, run *domain.PaymentRun) ([]domain.Step, error) {
	var changed []changedDocument
	var steps []domain.Step
	for i := range run.Payments {
		p := &run.Payments[i]
		for j := range p.Applications {
			a := &p.Applications[j]
			raw, version, err := s.Stream(ctx, kindOf(a.DocumentRef).Stream(a.ID()))
			if err != nil {
				return nil, err
			}
			d := raw.(*domain.Document)
			err = cmp.Or(d.CheckPayable(), d.CheckOpen(a.Amount))
			if err != nil || version != a.Version {
				changed = append(changed, changedDocument{DocumentRef: a.DocumentRef, PaymentID: p.PaymentID, VendorID: p.VendorID, Code: fault.CodeOf(err)})
			}
		}
		account, err := payableAccount(ctx, s, p)
		if err != nil {
			if !isRefusal(err) {
				return nil, err
			}
			changed = append(changed, changedDocument{PaymentID: p.PaymentID, VendorID: p.VendorID, Code: fault.CodeOf(err)})
			continue
		}
		steps = append(steps, account.Steps()...)
	}
	if len(changed) > 0 {
		return nil, runChangedFault(changed)
	}
	return domain.DistinctSteps(steps), nil
}

func runChangedFault(changed []changedDocument) error {
	return fault.New(fault.FailedPrecondition, "ap.payment_run.changed",
		"documents or bank accounts have changed since the run was proposed, %d in all; exclude their payments or reject the run, and propose them again", len(changed)).
		With("changed", changed[:min(len(changed), maxNamedChanges)]).With("count", len(changed))
}

func kindOf(r contract.DocumentRef) contract.Kind {
	if r.CreditMemoID != "" {
		return contract.CreditMemo
	}
	return contract.Invoice
}

// payableAccount returns the account that a payment goes to. It refuses a blocked vendor, one
// whose account is missing or waits for a decision, and an account other than the one for which
// the payment was proposed: ap.payment_run.changed.
func payableAccount(ctx context.Context, s module.State, p *contract.ProposedPayment) (domain.BankAccount, error) {
	vendor, err := loadVendor(ctx, s, p.VendorID)
	if err != nil {
		return domain.BankAccount{}, err
	}
	if err := vendor.CheckNotBlocked(contract.BlockPayment); err != nil {
		return domain.BankAccount{}, err
	}
	account, err := vendor.PayableAccount(p.Currency)
	if err == nil && account.RequestID != p.BankRequestID {
		err = runChangedFault([]changedDocument{{PaymentID: p.PaymentID, VendorID: p.VendorID}})
	}
	return account, err
}

// planRejectRun plans the end of a proposed run. Its documents are free again.
func planRejectRun(ctx context.Context, in module.Input, s module.State, p contract.PaymentRunDecision) (module.Plan, error) {
	run, err := loadRun(ctx, s, p.RunID)
	if err != nil {
		return module.Plan{}, err
	}
	if err := run.RequireState(domain.RunProposed); err != nil {
		return module.Plan{}, err
	}
	rejected := runDraft(in, p.RunID, contract.EventRunRejected, p)
	rejected.CausedBy = run.EventID
	return module.Plan{
		Events: []event.Draft{rejected, releaseDraft(in, p.RunID)}, Facts: &paymentFacts{facts: factsOf(in), Proposers: run.Proposers}, CorrelationID: run.CorrelationID,
	}, nil
}
