package gl

import (
	"context"
	"maps"
	"slices"
	"strconv"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/jsondoc"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/gl/contract"
	"github.com/erpbackbone/backbone/modules/gl/domain"
)

func planConfigure(ctx context.Context, in module.Input, s module.State, settings domain.Settings) (module.Plan, error) {
	if err := checkSettings(settings, in.Today); err != nil {
		return module.Plan{}, err
	}
	ledger := contract.NewLedger(s)
	was, err := ledger.Settings(ctx)
	known := facts{SecondPerson: was.SecondPerson, Limits: was.EffectiveLimits()}
	switch {
	case fault.CodeOf(err) == "gl.ledger.not_configured":
		// The first configuration decides itself whether it needs a second person.
		known.SecondPerson = settings.SecondPerson
	case err != nil:
		return module.Plan{}, err
	case was.FunctionalCurrency != settings.FunctionalCurrency:
		if err := checkNoJournals(ctx, s, was.FunctionalCurrency); err != nil {
			return module.Plan{}, err
		}
	}
	return module.Plan{
		Events: []event.Draft{{
			Type: domain.EventLedgerConfigured, EffectiveDate: in.Date(), Stream: domain.LedgerStream(), Data: settings,
		}},
		Facts: known,
	}, nil
}

func checkSettings(s domain.Settings, on event.Date) error {
	currency, err := money.LookupCurrency(s.FunctionalCurrency, on.Time())
	if err != nil {
		return fault.WithField(err, "/functional_currency")
	}
	for _, name := range slices.Sorted(maps.Keys(s.TaxGroups)) {
		g := s.TaxGroups[name]
		if err := money.CheckPercent(g.Rate); err != nil {
			return fault.WithField(err, "/tax_groups/"+jsondoc.EscapeToken(name)+"/rate")
		}
		if err := money.CheckPercent(g.RecoverablePercent); err != nil {
			return fault.WithField(err, "/tax_groups/"+jsondoc.EscapeToken(name)+"/recoverable_percent")
		}
	}
	for _, role := range slices.Sorted(maps.Keys(s.Limits)) {
		if limit := s.Limits[role]; limit != nil {
			if err := domain.CheckSideAmount(*limit, currency); err != nil {
				return fault.WithField(err, "/limits/"+jsondoc.EscapeToken(role))
			}
		}
	}
	return nil
}

// checkNoJournals refuses a new functional currency once a journal was posted. It searches
// by the tag of each fiscal year, which every journal carries. The search becomes an append
// condition, so this change and the first journal cannot both be appended. The search
// returns at most module.TaggedLimit events; a year with that many counts as having a
// journal.
func checkNoJournals(ctx context.Context, s module.State, currency string) error {
	calendar, err := loadCalendar(ctx, s)
	if err != nil {
		return err
	}
	for _, year := range calendar.Years() {
		found, err := s.Tagged(ctx, contract.YearTag(year.Label))
		if err != nil {
			return err
		}
		journal := slices.ContainsFunc(found, func(e event.Recorded) bool { return e.Type == domain.EventJournalPosted })
		if journal || len(found) >= module.TaggedLimit {
			return fault.New(fault.FailedPrecondition, "gl.ledger.functional_currency_fixed",
				"the books are kept in %s and hold journals in fiscal year %s; keep the currency, or use another legal entity", currency, year.Label).
				WithField("/functional_currency").With("functional_currency", currency).With("fiscal_year", year.Label)
		}
	}
	return nil
}

func planDefineAccount(ctx context.Context, in module.Input, s module.State) (module.Plan, error) {
	account := domain.Account{Postable: true, Control: domain.ControlNone}
	if err := module.DecodePayload(in.Payload, &account); err != nil {
		return module.Plan{}, err
	}
	if account.NormalSide == "" {
		account.NormalSide = normalSide(account.Type)
	}
	for i, code := range account.Currencies {
		if _, err := money.LookupCurrency(code, in.Today.Time()); err != nil {
			return module.Plan{}, fault.WithField(err, "/currencies/"+strconv.Itoa(i))
		}
	}
	if err := checkActive(account.ActiveFrom, account.ActiveTo); err != nil {
		return module.Plan{}, err
	}
	ledger := contract.NewLedger(s)
	have, err := loadAccount(ctx, s, account.Code)
	if err != nil {
		return module.Plan{}, err
	}
	if have.Defined {
		return module.Plan{}, duplicateFault(domain.EventAccountDefined, "account "+account.Code).WithField("/code")
	}
	if account.Parent != "" {
		if _, err := ledger.Account(ctx, account.Parent); err != nil {
			return module.Plan{}, fault.WithField(err, "/parent")
		}
	}
	known, err := loadFacts(ctx, ledger)
	return module.Plan{
		Events: []event.Draft{{
			Type: domain.EventAccountDefined, EffectiveDate: in.Date(), Stream: domain.AccountStream(account.Code),
			Data: account, Entities: entity("account", account.Code),
		}},
		Facts: known,
	}, err
}

// normalSide returns the side that increases accounts of a type.
func normalSide(accountType string) domain.Side {
	if accountType == "asset" || accountType == "expense" {
		return domain.Debit
	}
	return domain.Credit
}

func checkActive(from, to *event.Date) error {
	if from != nil && to != nil && *to < *from {
		return fault.New(fault.Invalid, "intent.schema_invalid", "active_to %s is before active_from %s; correct the dates", *to, *from).
			WithField("/active_to")
	}
	return nil
}

// accountChange is the data of gl.account.blocked and gl.account.unblocked.
type accountChange struct {
	Code   string `json:"code"`
	Reason string `json:"reason"`
}

func planBlockAccount(ctx context.Context, in module.Input, s module.State) (module.Plan, error) {
	return planSetBlocked(ctx, in, s, domain.EventAccountBlocked, false)
}

func planUnblockAccount(ctx context.Context, in module.Input, s module.State) (module.Plan, error) {
	return planSetBlocked(ctx, in, s, domain.EventAccountUnblocked, true)
}

func planSetBlocked(ctx context.Context, in module.Input, s module.State, eventType string, blockedBefore bool) (module.Plan, error) {
	var mark accountChange
	if err := module.DecodePayload(in.Payload, &mark); err != nil {
		return module.Plan{}, err
	}
	ledger := contract.NewLedger(s)
	if _, err := ledger.Account(ctx, mark.Code); err != nil {
		return module.Plan{}, fault.WithField(err, "/code")
	}
	have, err := loadAccount(ctx, s, mark.Code)
	if err != nil {
		return module.Plan{}, err
	}
	if have.Blocked != blockedBefore {
		state, allowed := "blocked", "active"
		if !have.Blocked {
			state, allowed = allowed, state
		}
		return module.Plan{}, wrongStateFault("gl.account", "account "+mark.Code, state, allowed)
	}
	known, err := loadFacts(ctx, ledger)
	return module.Plan{
		Events: []event.Draft{{
			Type: eventType, EffectiveDate: in.Date(), Stream: domain.AccountStream(mark.Code),
			Data: mark, Entities: entity("account", mark.Code),
		}},
		Facts: known,
	}, err
}

func planDefineDimensionValue(ctx context.Context, in module.Input, s module.State, value domain.DimensionValue) (module.Plan, error) {
	if err := checkActive(value.ActiveFrom, value.ActiveTo); err != nil {
		return module.Plan{}, err
	}
	ledger := contract.NewLedger(s)
	have, err := ledger.DimensionValueDefined(ctx, value.Dimension, value.Value)
	if err != nil {
		return module.Plan{}, err
	}
	if have {
		return module.Plan{}, duplicateFault(domain.EventDimensionValueDefined, "value "+value.Value+" of "+value.Dimension).WithField("/value")
	}
	known, err := loadFacts(ctx, ledger)
	return module.Plan{
		Events: []event.Draft{{
			Type: domain.EventDimensionValueDefined, EffectiveDate: in.Date(),
			Stream: domain.DimensionStream(value.Dimension), Data: value,
		}},
		Facts: known,
	}, err
}
