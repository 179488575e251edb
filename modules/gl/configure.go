package gl

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/jsondoc"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/gl/contract"
	"github.com/erpbackbone/backbone/modules/gl/domain"
)

func settingsTypes() []module.EventType {
	configured := declare(domain.EventLedgerConfigured, "The ledger's settings, whole.", "")
	configured.Checks = []module.Check{checkConfigured}
	return []module.EventType{configured}
}

func settingsIntents() []module.IntentType {
	return []module.IntentType{
		{Type: "gl.configure_ledger", Description: "Set the ledger's configuration as a whole.", Emits: []string{domain.EventLedgerConfigured}, Plan: module.PlanOf(planConfigure)},
	}
}

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
	if err := cmp.Or(money.CheckNonNegative(s.RateTolerance), money.CheckPercent(s.RateTolerance)); err != nil {
		return fault.WithField(err, "/rate_tolerance_percent")
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
