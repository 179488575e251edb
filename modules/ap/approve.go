package ap

import (
	"context"
	"slices"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/ap/contract"
	"github.com/erpbackbone/backbone/modules/ap/domain"
	gl "github.com/erpbackbone/backbone/modules/gl/contract"
)

// planApprove plans an approval. Every document needs one approval, and two when its
// gross amount is over the settings' SecondApproverAbove; the policy checks limits and
// segregation of duties. The first of two approvals is only recorded. The last one is a
// single plan of the approved event, the journal and the posted event, so that one append
// commits all three or none.
func planApprove(k contract.Kind) func(context.Context, module.Input, module.State) (module.Plan, error) {
	return module.PlanOf(func(ctx context.Context, in module.Input, s module.State, p contract.Decision) (module.Plan, error) {
		d, err := loadDocument(ctx, s, k, p.ID())
		if err != nil {
			return module.Plan{}, err
		}
		if err := d.RequireState(domain.UndecidedStates()...); err != nil {
			return module.Plan{}, err
		}
		if holds := d.OpenHolds(true); len(holds) > 0 {
			return module.Plan{}, domain.OnHoldFault(k, holds)
		}
		date, err := postingDate(in, p.PostingDate, d.PostingDate)
		if err != nil {
			return module.Plan{}, err
		}
		settings, err := loadSettings(ctx, s)
		if err != nil {
			return module.Plan{}, err
		}
		ledger := gl.NewLedger(s)
		books, err := ledger.Settings(ctx)
		if err != nil {
			return module.Plan{}, err
		}
		gross, _, _, err := ledger.FunctionalAmount(ctx, d.Data.TotalAmount, d.Data.Currency, date)
		if err != nil {
			return module.Plan{}, err
		}
		approval := contract.DocumentApproved{
			DocumentRef: contract.RefTo(k, p.ID()), PostingDate: date, FunctionalAmount: gross, FunctionalCurrency: books.FunctionalCurrency,
			Step: len(d.Approvers) + 1, StepsRequired: 1, Comment: p.Comment,
			ApproverRoles: approvingRoles(in.Roles),
		}
		if gross.Cmp(settings.SecondApproverAbove) > 0 {
			approval.StepsRequired = 2
		}
		f := factsOf(in)
		f.Submitters, f.Approvers = d.Submitters, d.Approvers
		f.Approval = &approvalFacts{
			Amount: gross, Currency: books.FunctionalCurrency, Limits: settings.Limits,
			Step: approval.Step, StepsRequired: approval.StepsRequired,
		}
		plan := module.Plan{Facts: &f, CorrelationID: d.CorrelationID, Amount: &module.Amount{Value: gross, Currency: books.FunctionalCurrency}}
		if approval.Step < approval.StepsRequired {
			recorded := draft(k, d, contract.ApprovalRecorded, approval, date, nil)
			recorded.CausedBy = d.SubmittedID
			plan.Events = []event.Draft{recorded}
			return plan, nil
		}
		a := finalApproval{kind: k, d: d, in: in, date: date, approval: approval, ledger: ledger, books: books, settings: settings}
		if plan.Events, plan.Rules, f.Period, err = a.post(ctx, s); err != nil {
			return plan, err
		}
		given, err := giveBackBilling(ctx, s, settings.Match, d, date)
		plan.Events = append(plan.Events, given...)
		return plan, err
	})
}

// approvingRoles returns those of an approver's roles whose limits count, in a fixed order.
func approvingRoles(roles []string) []string {
	return slices.DeleteFunc([]string{"approver", "controller", "cfo"}, func(role string) bool { return !slices.Contains(roles, role) })
}

// finalApproval is the last approval of a document.
type finalApproval struct {
	kind     contract.Kind
	d        *domain.Document
	in       module.Input
	date     event.Date
	approval contract.DocumentApproved
	ledger   *gl.Ledger
	books    gl.Settings
	settings *domain.Settings
}

// post drafts the approval, the journal and the posting. A document without any amount
// gets no journal.
func (a *finalApproval) post(ctx context.Context, s module.State) ([]event.Draft, []event.RuleEvaluation, *gl.Period, error) {
	id, journalID := a.d.Data.ID(), a.in.DocumentID(0)
	isFree := a.d.Data.TotalAmount.IsZero() && domain.Control(&a.d.Data).IsZero()
	if !isFree {
		a.approval.JournalID = journalID.String()
	}
	approved := draft(a.kind, a.d, contract.Approved, a.approval, a.date, nil)
	approved.CausedBy = a.d.SubmittedID

	if isFree {
		period, err := a.ledger.CheckPeriod(ctx, contract.ModuleName, a.date)
		if err != nil {
			return nil, nil, nil, err
		}
		approved.Tags = slices.Clone(period.Tags)
		events := a.appendPaid([]event.Draft{approved}, 1, period.Tags)
		return events, []event.RuleEvaluation{period.Rule()}, &period, nil
	}

	vendor, err := loadVendor(ctx, s, a.d.Data.VendorID)
	if err != nil {
		return nil, nil, nil, err
	}
	if err := vendor.CheckNotBlocked(contract.BlockAll); err != nil {
		return nil, nil, nil, err
	}
	head, err := headDimensions(a.kind, &a.d.Data, vendor, a.books)
	if err != nil {
		return nil, nil, nil, err
	}
	currency, err := money.LookupCurrency(a.d.Data.Currency, a.d.Data.InvoiceDate.Time())
	if err != nil {
		return nil, nil, nil, err
	}
	lines, err := journalLines(ctx, a.ledger, a.books, a.settings, vendor, a.kind, &a.d.Data, currency, head)
	if err != nil {
		return nil, nil, nil, err
	}
	planned, err := gl.PlanSubledgerJournal(ctx, a.ledger, gl.SubledgerJournal{
		SourceModule: contract.ModuleName, CausedByIndex: 1, SourceEventToken: gl.EventID(a.in, 0).String(),
		Description: journalTitle(a.kind, &a.d.Data), PostingDate: a.date, DocumentDate: gl.DocumentDateOf(a.d.Data.InvoiceDate), Currency: a.d.Data.Currency,
		Dimensions: withDefaults(map[string]string{dimensionVendor: a.d.Data.VendorID}, head), Lines: lines, JournalID: journalID,
	})
	if err != nil {
		return nil, nil, nil, err
	}
	tags := planned.Period.Tags
	approved.Tags = slices.Clone(tags)
	entry := planned.Draft
	entry.Entities = append(slices.Clone(entry.Entities), contract.VendorRef(a.d.Data.VendorID), a.kind.Ref(id))
	events := []event.Draft{approved, entry}
	c := planned.Control
	if c == nil { // withholding and rounding take the whole total: nothing is owed to the vendor
		return a.appendPaid(events, 2, tags), planned.Rules, &planned.Period, nil
	}
	posted := draft(a.kind, a.d, contract.Posted, contract.DocumentPosted{
		DocumentRef: contract.RefTo(a.kind, id), JournalID: journalID.String(), JournalEventID: gl.EventID(a.in, 1).String(),
		ControlAccount: c.Account, Side: string(c.Side), Amount: c.Amount, Currency: c.Currency,
		FunctionalAmount: c.FunctionalAmount, FunctionalCurrency: a.books.FunctionalCurrency, Rate: c.Rate, RateDate: c.RateDate,
	}, a.date, tags)
	posted.CausedByIndex = 2
	posted.Entities = append(posted.Entities, event.EntityRef{Type: "journal", ID: journalID.String(), Role: "posting"})
	return append(events, posted), planned.Rules, &planned.Period, nil
}

// appendPaid adds the paid event of an invoice that leaves nothing open. Credit memos have
// no such event; their fold derives the state from the amount.
func (a *finalApproval) appendPaid(events []event.Draft, cause int, tags []string) []event.Draft {
	if a.kind != contract.Invoice {
		return events
	}
	paid := draft(a.kind, a.d, contract.Paid, contract.DocumentPaid{DocumentRef: contract.RefTo(a.kind, a.d.Data.ID())}, a.date, tags)
	paid.CausedByIndex = cause
	return append(events, paid)
}

// planReject plans the rejection of a document that is neither approved nor rejected.
func planReject(k contract.Kind) func(context.Context, module.Input, module.State) (module.Plan, error) {
	return module.PlanOf(func(ctx context.Context, in module.Input, s module.State, p contract.Rejection) (module.Plan, error) {
		d, err := loadDocument(ctx, s, k, p.ID())
		if err != nil {
			return module.Plan{}, err
		}
		if err := d.RequireState(domain.UndecidedStates()...); err != nil {
			return module.Plan{}, err
		}
		rejected := draft(k, d, contract.Rejected, contract.DocumentRejected{DocumentRef: contract.RefTo(k, p.ID()), Reason: p.Reason}, in.Date(), nil)
		rejected.CausedBy = d.SubmittedID
		f := factsOf(in)
		f.Submitters, f.Approvers = d.Submitters, d.Approvers
		taken, err := takeBackBilling(ctx, s, d, in.Date())
		return module.Plan{Events: append([]event.Draft{rejected}, taken...), Facts: f, CorrelationID: d.CorrelationID}, err
	})
}
