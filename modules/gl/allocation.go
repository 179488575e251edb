package gl

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/modules/gl/contract"
	"github.com/erpbackbone/backbone/modules/gl/domain"
)

func allocationTypes() []module.EventType {
	defined := declare(domain.EventAllocationDefined, "An allocation was defined, or replaced.", `{
		"allocation_id": "rent", "description": "Rent by floor space", "source": {"account": "6000", "dimensions": {"department": "OPS"}},
		"targets": [{"dimensions": {"department": "ENG"}, "percent": 62.5}, {"dimensions": {"department": "FIN"}, "percent": 37.5}]}`)
	defined.Checks, defined.Redactable = []module.Check{checkAllocation}, []string{"$.description"}
	return []module.EventType{defined, declare(domain.EventAllocationCompleted, "An allocation ran for a period.", "")}
}

func allocationIntents() []module.IntentType {
	return []module.IntentType{
		{Type: "gl.define_allocation", Description: "Define how the balance of an account is divided among targets. It replaces an earlier definition.", Emits: []string{domain.EventAllocationDefined}, Plan: module.PlanOf(planDefineAllocation)},
		{Type: "gl.run_allocation", Description: "Divide the balance of a period among the targets of an allocation.", Emits: []string{domain.EventJournalPosted, domain.EventAllocationCompleted}, Plan: module.PlanOf(planRunAllocation)},
	}
}

// checkAllocation is the check of gl.allocation.defined. It runs on raw appends too.
func checkAllocation(data json.RawMessage, _ map[string]string) error {
	var a domain.AllocationRule
	if err := json.Unmarshal(data, &a); err != nil {
		if _, ok := fault.As(err); ok {
			return err
		}
		return fault.New(fault.Invalid, "gl.allocation.data_invalid", "the data is not an allocation; see the type's schema").WithCause(err)
	}
	return a.Check()
}

func planDefineAllocation(ctx context.Context, in module.Input, s module.State, a domain.AllocationRule) (module.Plan, error) {
	if err := a.Check(); err != nil {
		return module.Plan{}, err
	}
	ledger := contract.NewLedger(s)
	if _, err := ledger.Account(ctx, a.Source.Account); err != nil {
		return module.Plan{}, fault.WithField(err, "/source/account")
	}
	for i, t := range a.Targets {
		if t.Account == "" {
			continue
		}
		if _, err := ledger.Account(ctx, t.Account); err != nil {
			return module.Plan{}, fault.WithField(err, fmt.Sprintf("/targets/%d/account", i))
		}
	}
	stream := domain.AllocationStream(a.AllocationID)
	if _, _, err := s.Stream(ctx, stream); err != nil { // of two definitions at once, one is made after the other
		return module.Plan{}, err
	}
	known, err := loadFacts(ctx, ledger)
	return module.Plan{
		Events: []event.Draft{{
			Type: domain.EventAllocationDefined, EffectiveDate: in.Date(), Stream: stream, Data: a, Entities: entity("allocation", a.AllocationID),
		}},
		Facts: known,
	}, err
}

type runAllocation struct {
	AllocationID string `json:"allocation_id"`
	Period       string `json:"period"`
}

func planRunAllocation(ctx context.Context, in module.Input, s module.State, p runAllocation) (module.Plan, error) {
	stream := domain.AllocationStream(p.AllocationID)
	state, err := module.Load[*domain.AllocationState](ctx, s, stream)
	if err != nil {
		return module.Plan{}, err
	}
	if !state.Defined {
		return module.Plan{}, fault.New(fault.NotFound, "gl.allocation.not_found",
			"there is no allocation %s; define it with gl.define_allocation", p.AllocationID).WithField("/allocation_id")
	}
	calendar, err := loadCalendar(ctx, s)
	if err != nil {
		return module.Plan{}, err
	}
	_, span, found := calendar.Period(p.Period)
	if !found {
		return module.Plan{}, undefinedPeriodFault(p.Period)
	}
	if !state.Rule.ValidOn(span.End) {
		return module.Plan{}, fault.New(fault.FailedPrecondition, "gl.allocation.not_valid",
			"allocation %s is not valid on %s; choose another period or define it again", p.AllocationID, span.End).
			With("allocation_id", p.AllocationID).With("date", span.End.String())
	}
	if err := checkAllocationNotRun(ctx, s, state, span.Period); err != nil {
		return module.Plan{}, err
	}
	planned, settings, err := planAllocationJournal(ctx, in, s, state.Rule, span)
	if err != nil {
		return module.Plan{}, err
	}
	return module.Plan{
		Events: []event.Draft{planned.Draft, {
			Type: domain.EventAllocationCompleted, EffectiveDate: span.End, Stream: stream, CausedByIndex: 1,
			Data: domain.AllocationCompleted{
				AllocationID: p.AllocationID, Period: span.Period, Date: span.End, JournalID: planned.Journal.JournalID,
			},
			Entities: append(entity("allocation", p.AllocationID), event.EntityRef{Type: "journal", ID: planned.Journal.JournalID, Role: "journal"}),
			Tags:     slices.Clone(planned.Period.Tags),
		}},
		Rules: planned.Rules, Facts: journalFactsOf(settings, planned), Amount: journalAmount(settings, planned),
	}, nil
}

// checkAllocationNotRun refuses a second run for a period while the first journal is not
// reversed.
func checkAllocationNotRun(ctx context.Context, s module.State, state *domain.AllocationState, period string) error {
	id := state.Runs[period]
	if id == "" {
		return nil
	}
	journal, err := module.Load[*domain.JournalState](ctx, s, domain.JournalStream(id))
	if err != nil || journal.ReversedBy != "" {
		return err
	}
	return fault.New(fault.Conflict, "gl.allocation.already_run",
		"allocation %s ran for period %s by journal %s; reverse it first", state.Rule.AllocationID, period, journal.Journal.JournalNumber).
		With("allocation_id", state.Rule.AllocationID).With("period", period).With("journal_id", id)
}

// planAllocationJournal plans the journal that takes the source's balance of a period to the
// targets.
func planAllocationJournal(ctx context.Context, in module.Input, s module.State, a domain.AllocationRule, span domain.PeriodSpan) (contract.PlannedJournal, domain.Settings, error) {
	ledger := contract.NewLedger(s)
	settings, err := ledger.Settings(ctx)
	if err != nil {
		return contract.PlannedJournal{}, settings, err
	}
	functional, err := ledger.Functional(ctx)
	if err != nil {
		return contract.PlannedJournal{}, settings, err
	}
	balances, err := readBalances(ctx, s, balancesQuery{from: span.Start, through: span.End, account: a.Source.Account, tags: []string{contract.PeriodTag(span.Period)}})
	if err != nil {
		return contract.PlannedJournal{}, settings, err
	}
	balances = slices.DeleteFunc(balances, func(b domain.Balance) bool { return !a.Source.Selects(b) })
	if len(balances) == 0 {
		return contract.PlannedJournal{}, settings, fault.New(fault.FailedPrecondition, "gl.allocation.source_empty",
			"account %s has no balance of period %s with the source's dimensions; there is nothing to divide", a.Source.Account, span.Period).
			With("allocation_id", a.AllocationID).With("period", span.Period)
	}
	lines, err := a.Lines(balances, functional)
	if err != nil {
		return contract.PlannedJournal{}, settings, err
	}
	journal := contract.Journal{
		SubledgerJournal: contract.SubledgerJournal{
			CausedBy: in.CausedBy, Description: fmt.Sprintf("Allocation %s of period %s", a.AllocationID, span.Period),
			PostingDate: span.End, Currency: settings.FunctionalCurrency, JournalID: in.DocumentID(0),
		},
		Type: domain.Allocation,
	}
	for i := range lines {
		l := &lines[i]
		journal.Lines = append(journal.Lines, contract.SubledgerLine{
			Account: l.Account, Side: l.Side, Amount: l.Amount, Currency: l.Currency, FunctionalAmount: &l.FunctionalAmount, Dimensions: l.Dimensions,
		})
	}
	journal.Dimensions = envelopeDimensions(nil, journal.Lines)
	planned, err := contract.PlanJournal(ctx, ledger, journal)
	return planned, settings, err
}
