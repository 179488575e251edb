package gl

import (
	"context"
	"fmt"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/modules/gl/contract"
	"github.com/erpbackbone/backbone/modules/gl/domain"
)

// maxClosingJournals bounds the closing journals of a year, so that one batch of 100 events
// can hold their reversals.
const maxClosingJournals = 49

func yearTypes() []module.EventType {
	return []module.EventType{
		explained(domain.EventYearClosed, "Income and expense of a fiscal year were taken to retained earnings."),
		explained(domain.EventYearReopened, "The closing journals of a fiscal year were reversed."),
	}
}

func yearIntents() []module.IntentType {
	return []module.IntentType{
		{
			Type: "gl.close_year", Description: "Close a fiscal year: take income and expense to retained earnings. Run again after a late posting it posts the difference.",
			Emits: []string{domain.EventJournalPosted, domain.EventYearClosed}, Plan: module.PlanOf(planCloseYear),
		},
		{
			Type: "gl.reopen_year", Description: "Reopen a fiscal year: reverse its closing journals.",
			Emits: []string{domain.EventJournalPosted, domain.EventJournalReversed, domain.EventYearReopened}, Plan: module.PlanOf(planReopenYear),
		},
	}
}

type yearRequest struct {
	FiscalYear string `json:"fiscal_year"`
	Reason     string `json:"reason"`
}

// yearContext is the state that the planners of year ends read.
type yearContext struct {
	ledger   *contract.Ledger
	settings domain.Settings
	calendar *domain.Calendar
	year     domain.FiscalYear
	state    *domain.YearState
}

func readYear(ctx context.Context, s module.State, label string) (yearContext, error) {
	y := yearContext{ledger: contract.NewLedger(s)}
	var err error
	if y.settings, err = y.ledger.Settings(ctx); err != nil {
		return y, err
	}
	if y.calendar, err = loadCalendar(ctx, s); err != nil {
		return y, err
	}
	for _, have := range y.calendar.Years() {
		if have.Label == label {
			y.year = have
			y.state, err = module.Load[*domain.YearState](ctx, s, domain.FiscalYearStream(label))
			return y, err
		}
	}
	return y, fault.New(fault.NotFound, "gl.fiscal_year.not_found",
		"there is no fiscal year %s; define it with gl.define_fiscal_year", label).WithField("/fiscal_year")
}

// checkPeriodsClosed refuses to close a year while the ledger may post into one of its
// periods without an approval.
func (y yearContext) checkPeriodsClosed(ctx context.Context, s module.State) error {
	var open []string
	for _, span := range y.year.Periods {
		p, err := loadPeriod(ctx, s, contract.ModuleName, span.Period)
		if err != nil {
			return err
		}
		if p.State != domain.PeriodSoftClosed && p.State != domain.PeriodHardClosed {
			open = append(open, span.Period)
		}
	}
	if len(open) > 0 {
		return fault.New(fault.FailedPrecondition, "gl.year.periods_open",
			"%d periods of fiscal year %s are not closed, the first is %s; close them softly first", len(open), y.year.Label, open[0]).
			With("fiscal_year", y.year.Label).With("periods", open)
	}
	return nil
}

// checkPriorClosed refuses to close a year while an earlier year is reopened, or has income or expense
// that was not taken to retained earnings. It reads the state of each earlier year, so that a
// reopening which commits first makes the closing again.
func (y yearContext) checkPriorClosed(ctx context.Context, s module.State) error {
	var tags []string
	prior := ""
	for _, earlier := range y.calendar.Years() {
		if earlier.Start >= y.year.Start {
			continue
		}
		tags, prior = append(tags, contract.YearTag(earlier.Label)), earlier.Label
		state, err := module.Load[*domain.YearState](ctx, s, domain.FiscalYearStream(earlier.Label))
		if err != nil {
			return err
		}
		if state.Reopened {
			return fault.New(fault.FailedPrecondition, "gl.year.prior_open",
				"fiscal year %s was reopened; close it before %s", prior, y.year.Label).
				With("fiscal_year", y.year.Label).With("prior_year", prior)
		}
	}
	if prior == "" {
		return nil
	}
	left, err := readBalances(ctx, s, balancesQuery{through: y.year.Start - 1, statement: statementIncome, tags: tags})
	if err != nil || len(left) == 0 {
		return err
	}
	return fault.New(fault.FailedPrecondition, "gl.year.prior_open",
		"account %s still has a balance of years before %s; close them first", left[0].Account, y.year.Label).
		With("fiscal_year", y.year.Label).With("prior_year", prior).With("account", left[0].Account)
}

// checkLaterOpen refuses to reopen a year while a later one is closed, whose opening balances would
// change. It names the last of them, which can be reopened. Each later year's state is read, so that a
// closing which commits first makes the reopening again.
func (y yearContext) checkLaterOpen(ctx context.Context, s module.State) error {
	closed := ""
	for _, later := range y.calendar.Years() {
		if later.Start <= y.year.Start {
			continue
		}
		state, err := module.Load[*domain.YearState](ctx, s, domain.FiscalYearStream(later.Label))
		if err != nil {
			return err
		}
		if state.Closed {
			closed = later.Label
		}
	}
	if closed == "" {
		return nil
	}
	return fault.New(fault.FailedPrecondition, "gl.year.later_closed",
		"fiscal year %s is closed, and it begins with the balances of %s; reopen %s first", closed, y.year.Label, closed).
		With("fiscal_year", y.year.Label).With("later_year", closed)
}

// readResult reads the income and expense of the year that were not taken to retained
// earnings.
func (y yearContext) readResult(ctx context.Context, s module.State) ([]domain.Balance, error) {
	return readBalances(ctx, s, balancesQuery{from: y.year.Start, through: y.year.End, statement: statementIncome, tags: []string{contract.YearTag(y.year.Label)}})
}

func planCloseYear(ctx context.Context, in module.Input, s module.State, p yearRequest) (module.Plan, error) {
	y, err := readYear(ctx, s, p.FiscalYear)
	if err != nil {
		return module.Plan{}, err
	}
	if err := y.checkPeriodsClosed(ctx, s); err != nil {
		return module.Plan{}, err
	}
	if err := y.checkPriorClosed(ctx, s); err != nil {
		return module.Plan{}, err
	}
	balances, err := y.readResult(ctx, s)
	if err != nil {
		return module.Plan{}, err
	}
	if len(balances) == 0 && y.state.Closed {
		return module.Plan{}, fault.New(fault.Conflict, "gl.year.already_closed",
			"fiscal year %s is closed and no income or expense is left in it; there is nothing to do", p.FiscalYear).
			With("fiscal_year", p.FiscalYear)
	}
	closed := domain.YearClosed{FiscalYear: p.FiscalYear, FunctionalCurrency: y.settings.FunctionalCurrency, JournalIDs: []string{}, Reason: p.Reason}
	plan := module.Plan{Rules: []event.RuleEvaluation{{
		RuleID: "gl.year.periods", RuleName: "Periods of the year are closed", Result: event.RuleFired, ActionsTaken: []string{"accept"},
	}}}
	if len(balances) > 0 {
		if err := y.addClosingJournals(ctx, in, balances, &plan, &closed); err != nil {
			return module.Plan{}, err
		}
	}
	plan.Events = append(plan.Events, y.draft(domain.EventYearClosed, closed, len(plan.Events)))
	plan.Amount = &module.Amount{Value: closed.Result.Abs(), Currency: closed.FunctionalCurrency}
	plan.Facts, err = loadFacts(ctx, y.ledger)
	return plan, err
}

// addClosingJournals plans the journals that take the balances to retained earnings, and adds
// them and their totals to closed.
func (y yearContext) addClosingJournals(ctx context.Context, in module.Input, balances []domain.Balance, plan *module.Plan, closed *domain.YearClosed) error {
	code, err := y.ledger.ProfileAccount(ctx, contract.RoleRetainedEarnings)
	if err != nil {
		return err
	}
	retained, err := y.ledger.Account(ctx, code)
	if err != nil {
		return err
	}
	if retained.Type == domain.AccountIncome || retained.Type == domain.AccountExpense {
		return fault.New(fault.FailedPrecondition, "gl.ledger.profile_missing",
			"account %s, which the posting profile names for %s, is closed itself; name an account of type equity with gl.configure_ledger", code, contract.RoleRetainedEarnings).
			With("role", contract.RoleRetainedEarnings)
	}
	journals := domain.OffsetBalances(balances, retained, domain.MaxLines)
	if n := len(y.state.Journals) + len(journals); n > maxClosingJournals {
		return fault.New(fault.FailedPrecondition, "gl.year.too_large",
			"fiscal year %s would have %d closing journals of %d lines, and %d are possible; use fewer combinations of dimensions on income and expense",
			y.year.Label, n, domain.MaxLines, maxClosingJournals).With("fiscal_year", y.year.Label).WithNumbers(maxClosingJournals, n)
	}
	for i, lines := range journals {
		planned, err := contract.PlanBalanceJournal(ctx, y.ledger, contract.Journal{
			SubledgerJournal: contract.SubledgerJournal{
				CausedBy: in.CausedBy, Description: "Closing of fiscal year " + y.year.Label, PostingDate: y.year.End, JournalID: in.DocumentID(i),
			},
			Type: domain.Closing,
		}, lines)
		if err != nil {
			return err
		}
		plan.Events = append(plan.Events, planned.Draft)
		closed.JournalIDs = append(closed.JournalIDs, planned.Journal.JournalID)
	}
	for _, b := range balances {
		if b.AccountType == domain.AccountIncome {
			closed.Income = closed.Income.Sub(b.Functional)
		} else {
			closed.Expense = closed.Expense.Add(b.Functional)
		}
	}
	closed.Result = closed.Income.Sub(closed.Expense)
	return nil
}

// draft makes the event that changes the year's state; the first of journals caused it.
func (y yearContext) draft(eventType string, data any, journals int) event.Draft {
	return event.Draft{
		Type: eventType, EffectiveDate: y.year.End, Stream: domain.FiscalYearStream(y.year.Label), Data: data,
		CausedByIndex: min(journals, 1), Entities: entity("fiscal_year", y.year.Label), Tags: []string{contract.YearTag(y.year.Label)},
	}
}

func planReopenYear(ctx context.Context, in module.Input, s module.State, p yearRequest) (module.Plan, error) {
	y, err := readYear(ctx, s, p.FiscalYear)
	if err != nil {
		return module.Plan{}, err
	}
	if !y.state.Closed {
		return module.Plan{}, wrongStateFault("gl.year", "fiscal year "+p.FiscalYear, "open", "closed")
	}
	if err := y.checkLaterOpen(ctx, s); err != nil {
		return module.Plan{}, err
	}
	reopened := domain.YearReopened{
		FiscalYear: p.FiscalYear, FunctionalCurrency: y.settings.FunctionalCurrency, JournalIDs: []string{}, ReversalIDs: []string{},
		Result: y.state.Result, Reason: p.Reason,
	}
	reason := p.Reason
	if reason == "" {
		reason = "Fiscal year " + p.FiscalYear + " was reopened"
	}
	var plan module.Plan
	for i, id := range y.state.Journals {
		original, err := event.ParseID(id)
		if err != nil {
			return module.Plan{}, fmt.Errorf("closing journal of fiscal year %s: %w", p.FiscalYear, err)
		}
		planned, err := contract.PlanReopening(ctx, y.ledger, contract.Reversal{
			Module: contract.ModuleName, OriginalID: original, PostingDate: y.year.End, Reason: reason,
			JournalID: in.DocumentID(i), Index: len(plan.Events),
		})
		if err != nil {
			return module.Plan{}, err
		}
		plan.Events = append(plan.Events, planned.Journal.Draft, planned.Reversed)
		reopened.JournalIDs = append(reopened.JournalIDs, id)
		reopened.ReversalIDs = append(reopened.ReversalIDs, planned.Journal.Journal.JournalID)
	}
	plan.Events = append(plan.Events, y.draft(domain.EventYearReopened, reopened, len(plan.Events)))
	plan.Amount = &module.Amount{Value: y.state.Result.Abs(), Currency: reopened.FunctionalCurrency}
	plan.Facts, err = loadFacts(ctx, y.ledger)
	return plan, err
}
