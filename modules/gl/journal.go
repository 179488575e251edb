package gl

import (
	"context"
	"fmt"
	"maps"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/gl/contract"
	"github.com/erpbackbone/backbone/modules/gl/domain"
)

func journalTypes() []module.EventType {
	posted := declare(domain.EventJournalPosted, "A journal entered the general ledger. Debits equal credits in every currency and in functional currency.", `{
		"journal_number": "OLD-2026-17", "journal_type": "general", "description": "Rent for March",
		"functional_currency": "USD", "fiscal_year": "2026", "period": "2026-03",
		"lines": [
			{"line_number": 1, "account": "6000", "debit_credit": "debit", "amount": 1200.00, "currency": "USD", "amount_in_reporting_currency": 1200.00},
			{"line_number": 2, "account": "1000", "debit_credit": "credit", "amount": 1200.00, "currency": "USD", "amount_in_reporting_currency": 1200.00}
		],
		"total_debit": 1200.00, "total_credit": 1200.00}`)
	posted.RequiredDimensions = []string{contract.DimensionDepartment}
	posted.OptionalDimensions = []string{"cost_center", "project", "customer", "vendor"}
	posted.BusinessKeys = key("journal_number", "journal_id", "journal_number")
	posted.Checks = []module.Check{domain.CheckJournal}
	posted.Redactable = []string{"$.description", "$.lines[*].description", "$.lines[*].account_name"}
	return []module.EventType{posted, explained(domain.EventJournalReversed, "A journal was reversed by another one.")}
}

func journalIntents() []module.IntentType {
	return []module.IntentType{
		{Type: "gl.post_journal", Description: "Post a journal.", Emits: []string{domain.EventJournalPosted}, Plan: module.PlanOf(planPostJournal)},
		{Type: "gl.reverse_journal", Description: "Reverse one of the ledger's own journals.", Emits: []string{domain.EventJournalPosted, domain.EventJournalReversed}, Plan: module.PlanOf(planReverseJournal)},
	}
}

type postJournal struct {
	Description  string            `json:"description"`
	PostingDate  *event.Date       `json:"posting_date"`
	ReversalDate *event.Date       `json:"reversal_date"`
	Currency     string            `json:"currency"` // of lines that name none; "" is the functional currency
	Dimensions   map[string]string `json:"dimensions"`
	Lines        []journalLine     `json:"lines"`
}

// journalLine is a line of a journal as a payload has it.
type journalLine struct {
	Account          string            `json:"account"`
	Side             domain.Side       `json:"debit_credit"`
	Amount           money.Number      `json:"amount"`
	Currency         string            `json:"currency,omitempty"`
	FunctionalAmount *money.Number     `json:"functional_amount,omitempty"` // of an exchange difference, whose amount is 0
	Description      string            `json:"description,omitempty"`
	TaxCode          string            `json:"tax_code,omitempty"`
	Dimensions       map[string]string `json:"dimensions,omitempty"`
}

// toPlan turns the lines of a payload into those that the ledger plans.
func toPlan(lines []journalLine, dimensions map[string]string) ([]contract.SubledgerLine, error) {
	var out []contract.SubledgerLine
	for i, l := range lines {
		if l.FunctionalAmount != nil && !l.Amount.IsZero() {
			return nil, fault.New(fault.Invalid, "gl.journal.functional_amount_invalid",
				"functional_amount is for exchange differences on lines of amount 0; leave it out, the ledger converts").
				WithField(fmt.Sprintf("/lines/%d/functional_amount", i))
		}
		out = append(out, contract.SubledgerLine{
			Account: l.Account, Side: l.Side, Amount: l.Amount, Currency: l.Currency, FunctionalAmount: l.FunctionalAmount,
			Description: l.Description, TaxCode: l.TaxCode, Dimensions: mergeDimensions(dimensions, l.Dimensions),
		})
	}
	return out, nil
}

func planPostJournal(ctx context.Context, in module.Input, s module.State, p postJournal) (module.Plan, error) {
	date, err := postingDate(in, p.PostingDate)
	if err != nil {
		return module.Plan{}, err
	}
	return planJournal(ctx, in, s, date, domain.General, p)
}

// planJournal plans a journal of the ledger's own from a payload.
func planJournal(ctx context.Context, in module.Input, s module.State, date event.Date, journalType domain.JournalType, p postJournal) (module.Plan, error) {
	ledger := contract.NewLedger(s)
	settings, err := ledger.Settings(ctx)
	if err != nil {
		return module.Plan{}, err
	}
	if p.Currency == "" {
		p.Currency = settings.FunctionalCurrency
	}
	journal := contract.Journal{
		SubledgerJournal: contract.SubledgerJournal{
			CausedBy: in.CausedBy, Description: p.Description, PostingDate: date, Currency: p.Currency,
			JournalID: in.DocumentID(0),
		},
		Type: journalType, ReversalDate: p.ReversalDate,
	}
	if journal.Lines, err = toPlan(p.Lines, p.Dimensions); err != nil {
		return module.Plan{}, err
	}
	journal.Dimensions = envelopeDimensions(p.Dimensions, journal.Lines)
	planned, err := contract.PlanJournal(ctx, ledger, journal)
	if err != nil {
		return module.Plan{}, err
	}
	return module.Plan{
		Events: []event.Draft{planned.Draft}, Rules: planned.Rules, Facts: journalFactsOf(settings, planned), Amount: journalAmount(settings, planned),
	}, nil
}

// mergeDimensions adds the journal's dimensions to a line's; the line's win.
func mergeDimensions(header, line map[string]string) map[string]string {
	if len(header) == 0 {
		return line
	}
	out := maps.Clone(header)
	maps.Copy(out, line)
	return out
}

// envelopeDimensions returns the journal's dimensions. If they have no department, it adds
// the one that all lines have.
func envelopeDimensions(header map[string]string, lines []contract.SubledgerLine) map[string]string {
	out := maps.Clone(header)
	if out == nil {
		out = map[string]string{}
	}
	if len(lines) == 0 || out[contract.DimensionDepartment] != "" {
		return out
	}
	department := lines[0].Dimensions[contract.DimensionDepartment]
	for _, l := range lines {
		if l.Dimensions[contract.DimensionDepartment] != department {
			return out
		}
	}
	if department != "" {
		out[contract.DimensionDepartment] = department
	}
	return out
}

// journalAmount is the sum of the journal's debits.
func journalAmount(s domain.Settings, j contract.PlannedJournal) *module.Amount {
	return &module.Amount{Value: j.Journal.TotalDebit, Currency: s.FunctionalCurrency}
}

func journalFactsOf(s domain.Settings, j contract.PlannedJournal) facts {
	return facts{
		SecondPerson: s.SecondPerson, Limits: s.EffectiveLimits(),
		Journal: &journalFacts{Amount: j.Journal.TotalDebit, Currency: s.FunctionalCurrency, Period: j.Period},
	}
}

type reverseJournal struct {
	JournalID     event.ID    `json:"journal_id"`
	JournalNumber string      `json:"journal_number"`
	PostingDate   *event.Date `json:"posting_date"`
	Reason        string      `json:"reason"`
}

// findJournal returns the journal's id, which it looks up if the caller sent the number.
func (r reverseJournal) findJournal(ctx context.Context, s module.State) (event.ID, error) {
	byID := r.JournalID != event.ID{}
	if byID == (r.JournalNumber != "") {
		return event.ID{}, fault.New(fault.Invalid, "intent.schema_invalid",
			"name the journal by journal_id or by journal_number; send one of them").WithField("/journal_id")
	}
	if byID {
		return r.JournalID, nil
	}
	found, err := s.Tagged(ctx, contract.NumberTag(r.JournalNumber))
	if err != nil {
		return event.ID{}, err
	}
	for _, e := range found {
		if e.Type != domain.EventJournalPosted {
			continue
		}
		if id, err := event.ParseID(e.Stream.ID); err == nil {
			return id, nil
		}
	}
	return event.ID{}, fault.New(fault.NotFound, "gl.journal.not_found",
		"there is no journal %s; look it up in the account ledger", r.JournalNumber).WithField("/journal_number")
}

func planReverseJournal(ctx context.Context, in module.Input, s module.State, p reverseJournal) (module.Plan, error) {
	date, err := postingDate(in, p.PostingDate)
	if err != nil {
		return module.Plan{}, err
	}
	original, err := p.findJournal(ctx, s)
	if err != nil {
		return module.Plan{}, err
	}
	was, err := module.Load[*domain.JournalState](ctx, s, domain.JournalStream(original.String()))
	if err != nil {
		return module.Plan{}, err
	}
	if err := checkPairReversible(ctx, s, was, original); err != nil {
		return module.Plan{}, err
	}
	if p.PostingDate == nil && in.EffectiveDate == nil {
		// Without a given date, a journal of a future date is reversed on that date, as
		// PlanReversal refuses an earlier one.
		date = max(date, was.EffectiveDate)
	}
	ledger := contract.NewLedger(s)
	settings, err := ledger.Settings(ctx)
	if err != nil {
		return module.Plan{}, err
	}
	planned, err := contract.PlanReversal(ctx, ledger, contract.Reversal{
		Module: contract.ModuleName, OriginalID: original, PostingDate: date, Reason: p.Reason, JournalID: in.DocumentID(0),
	})
	if err != nil {
		return module.Plan{}, err
	}
	return module.Plan{
		Events: []event.Draft{planned.Journal.Draft, planned.Reversed}, Rules: planned.Journal.Rules,
		Facts: journalFactsOf(settings, planned.Journal), Amount: journalAmount(settings, planned.Journal),
	}, nil
}
