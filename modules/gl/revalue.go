package gl

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/gl/contract"
	"github.com/erpbackbone/backbone/modules/gl/domain"
)

func revaluationTypes() []module.EventType {
	return []module.EventType{declare(domain.EventRevaluationCompleted, "Balances in foreign currencies were revalued at the closing rates of a period's end.", "")}
}

func revaluationIntents() []module.IntentType {
	return []module.IntentType{{
		Type: "gl.revalue", Description: "Revalue balances in foreign currencies at the closing rates of a period's end. The differences are reversed on the next day.",
		Emits: []string{domain.EventJournalPosted, domain.EventRevaluationCompleted}, Plan: module.PlanOf(planRevalue),
	}}
}

type revalueRequest struct {
	Period string `json:"period"`
}

// revaluation plans the revaluation of one period.
type revaluation struct {
	ledger     *contract.Ledger
	settings   domain.Settings
	functional money.Currency
	span       domain.PeriodSpan
}

func planRevalue(ctx context.Context, in module.Input, s module.State, p revalueRequest) (module.Plan, error) {
	calendar, err := loadCalendar(ctx, s)
	if err != nil {
		return module.Plan{}, err
	}
	_, span, found := calendar.Period(p.Period)
	if !found {
		return module.Plan{}, undefinedPeriodFault(p.Period)
	}
	r := revaluation{ledger: contract.NewLedger(s), span: span}
	if r.settings, err = r.ledger.Settings(ctx); err != nil {
		return module.Plan{}, err
	}
	if r.functional, err = r.ledger.Functional(ctx); err != nil {
		return module.Plan{}, err
	}
	if err := r.checkNotRun(ctx, s); err != nil {
		return module.Plan{}, err
	}
	balances, err := readBalances(ctx, s, balancesQuery{through: span.End, statement: statementPosition, tags: tagsThrough(calendar, span)})
	if err != nil {
		return module.Plan{}, err
	}
	worksheet, err := r.worksheet(ctx, balances)
	if err != nil {
		return module.Plan{}, err
	}
	return r.plan(ctx, in, worksheet)
}

func undefinedPeriodFault(period string) error {
	return fault.New(fault.FailedPrecondition, "gl.period.undefined",
		"no fiscal year has period %s; define the year with gl.define_fiscal_year", period).WithField("/period")
}

// checkNotRun refuses a revaluation while a journal of an earlier one is not reversed.
func (r revaluation) checkNotRun(ctx context.Context, s module.State) error {
	state, err := module.Load[*domain.RevaluationState](ctx, s, domain.RevaluationStream(r.span.Period))
	if err != nil {
		return err
	}
	for _, id := range state.Journals {
		journal, err := module.Load[*domain.JournalState](ctx, s, domain.JournalStream(id))
		if err != nil {
			return err
		}
		if journal.ReversedBy == "" {
			return fault.New(fault.Conflict, "gl.revaluation.already_run",
				"period %s was revalued by journal %s; reverse it first", r.span.Period, journal.Journal.JournalNumber).
				With("period", r.span.Period).With("journal_id", id)
		}
	}
	return nil
}

// worksheet values the balances in foreign currencies of accounts that are revalued, and those
// of the control accounts of payables together. The difference of a control account is posted
// to ap_revaluation, so that the account still agrees with its subledger; its old value
// includes what earlier revaluations left there.
func (r revaluation) worksheet(ctx context.Context, balances []domain.Balance) ([]domain.RevaluedBalance, error) {
	type key struct{ account, currency string }
	rows := map[key]*domain.RevaluedBalance{}
	adjusted := map[string]money.Number{} // balance of ap_revaluation by currency
	adjusting := r.settings.PostingProfile[contract.RoleAPRevaluation]
	for _, b := range balances {
		if b.Currency == r.functional.Code {
			continue
		}
		if b.Account == adjusting {
			adjusted[b.Currency] = adjusted[b.Currency].Add(b.Functional)
			continue
		}
		account, err := r.ledger.Account(ctx, b.Account)
		if err != nil {
			return nil, err
		}
		at := key{b.Account, b.Currency}
		switch {
		case account.IsControl():
			if at.account, err = r.ledger.ProfileAccount(ctx, contract.RoleAPControl); err != nil {
				return nil, err
			}
		case !account.Revalue:
			continue
		}
		row := rows[at]
		if row == nil {
			row = &domain.RevaluedBalance{Account: at.account, Currency: at.currency}
			rows[at] = row
		}
		if account.IsControl() {
			if row.PostedTo, err = r.ledger.ProfileAccount(ctx, contract.RoleAPRevaluation); err != nil {
				return nil, err
			}
		}
		row.Balance, row.Old = row.Balance.Add(b.Amount), row.Old.Add(b.Functional)
	}
	out := make([]domain.RevaluedBalance, 0, len(rows))
	for _, row := range rows {
		if row.PostedTo != "" {
			row.Old = row.Old.Add(adjusted[row.Currency])
		}
		if err := r.value(ctx, row); err != nil {
			return nil, err
		}
		out = append(out, *row)
	}
	slices.SortFunc(out, func(a, b domain.RevaluedBalance) int {
		if c := strings.Compare(a.Account, b.Account); c != 0 {
			return c
		}
		return strings.Compare(a.Currency, b.Currency)
	})
	return out, nil
}

// value sets the new value of a row at the closing rate.
func (r revaluation) value(ctx context.Context, row *domain.RevaluedBalance) error {
	if !row.Balance.IsZero() {
		rate, rateDate, err := r.ledger.ClosingRate(ctx, row.Currency, r.functional.Code, r.span.End)
		if err != nil {
			return err
		}
		row.Rate, row.RateDate, row.New = rate, &rateDate, money.Convert(row.Balance, rate, r.functional)
	}
	row.Delta = row.New.Sub(row.Old)
	return nil
}

func (r revaluation) plan(ctx context.Context, in module.Input, worksheet []domain.RevaluedBalance) (module.Plan, error) {
	completed := domain.RevaluationCompleted{
		Period: r.span.Period, Date: r.span.End, FunctionalCurrency: r.functional.Code, JournalIDs: []string{}, Worksheet: worksheet,
	}
	var differences []domain.Balance
	var unrealised domain.Account
	for _, row := range worksheet {
		completed.Total = completed.Total.Add(row.Delta)
		if row.Delta.IsZero() {
			continue
		}
		if unrealised.Code == "" {
			code, err := r.ledger.ProfileAccount(ctx, contract.RoleFXUnrealised)
			if err != nil {
				return module.Plan{}, err
			}
			if unrealised, err = r.ledger.Account(ctx, code); err != nil {
				return module.Plan{}, err
			}
		}
		account := row.Account
		if row.PostedTo != "" {
			account = row.PostedTo
		}
		chart, err := r.ledger.Account(ctx, account)
		if err != nil {
			return module.Plan{}, err
		}
		dimensions, err := requiredDimensions(r.settings, chart, unrealised)
		if err != nil {
			return module.Plan{}, err
		}
		// Offsetting the negative difference posts the difference.
		differences = append(differences, domain.Balance{
			Account: account, AccountName: chart.Name, Currency: row.Currency, Dimensions: dimensions, Functional: row.Delta.Neg(),
		})
	}
	known := facts{SecondPerson: r.settings.SecondPerson, Limits: r.settings.EffectiveLimits()}
	var plan module.Plan
	if len(differences) > 0 {
		known.Journal = &journalFacts{Currency: r.functional.Code}
		reversal := r.span.End + 1
		for i, lines := range domain.OffsetBalances(differences, unrealised, domain.MaxLines) {
			planned, err := contract.PlanBalanceJournal(ctx, r.ledger, contract.Journal{
				SubledgerJournal: contract.SubledgerJournal{
					CausedBy: in.CausedBy, Description: fmt.Sprintf("Revaluation of period %s", r.span.Period), PostingDate: r.span.End, JournalID: in.DocumentID(i),
				},
				Type: domain.Revaluation, ReversalDate: &reversal,
			}, lines)
			if err != nil {
				return module.Plan{}, err
			}
			plan.Events, plan.Rules = append(plan.Events, planned.Draft), append(plan.Rules, planned.Rules...)
			completed.JournalIDs = append(completed.JournalIDs, planned.Journal.JournalID)
			known.Journal.Amount, known.Journal.Period = known.Journal.Amount.Add(planned.Journal.TotalDebit), planned.Period
		}
		plan.Amount = &module.Amount{Value: known.Journal.Amount, Currency: r.functional.Code}
	}
	plan.Events = append(plan.Events, event.Draft{
		Type: domain.EventRevaluationCompleted, EffectiveDate: r.span.End, Stream: domain.RevaluationStream(r.span.Period), Data: completed,
		CausedByIndex: min(len(plan.Events), 1), Entities: entity("period", contract.ModuleName+":"+r.span.Period), Tags: []string{contract.PeriodTag(r.span.Period)},
	})
	plan.Facts = known
	return plan, nil
}

// requiredDimensions are the dimensions that one of the accounts needs, from the ledger's
// defaults.
func requiredDimensions(s domain.Settings, accounts ...domain.Account) (map[string]string, error) {
	out := map[string]string{}
	for _, account := range accounts {
		for _, name := range account.RequiredDimensions {
			if out[name] = s.DefaultDimensions[name]; out[name] == "" {
				return nil, fault.New(fault.FailedPrecondition, "gl.account.dimension_missing",
					"account %s needs dimension %s, and the ledger has no default; set one with gl.configure_ledger", account.Code, name).
					With("account", account.Code).With("dimension", name)
			}
		}
	}
	return out, nil
}
