package gl

import (
	"context"
	"encoding/json"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/gl/contract"
	"github.com/erpbackbone/backbone/modules/gl/domain"
)

func rateTypes() []module.EventType {
	rate := declare(domain.EventExchangeRateSet, "A rate was set for a day: units of to per 1 from.",
		`{"from": "EUR", "to": "USD", "rate_type": "spot", "date": "2026-03-01", "rate": 1.0834}`)
	rate.Checks, rate.Redactable = []module.Check{checkRate}, []string{"$.reason"}
	return []module.EventType{rate}
}

func rateIntents() []module.IntentType {
	return []module.IntentType{
		{Type: "gl.set_exchange_rate", Description: "Set the rate of a day.", Emits: []string{domain.EventExchangeRateSet}, Plan: planSetExchangeRate},
	}
}

func planSetExchangeRate(ctx context.Context, in module.Input, s module.State) (module.Plan, error) {
	rate := domain.ExchangeRate{RateType: domain.RateSpot}
	if err := module.DecodePayload(in.Payload, &rate); err != nil {
		return module.Plan{}, err
	}
	if err := checkRateValue(rate); err != nil {
		return module.Plan{}, err
	}
	for field, code := range map[string]string{"/from": rate.From, "/to": rate.To} {
		if _, err := money.LookupCurrency(code, rate.Date.Time()); err != nil {
			return module.Plan{}, fault.WithField(err, field)
		}
	}
	stream := domain.RateStream(rate.From, rate.To)
	history, err := module.Load[*domain.RateHistory](ctx, s, stream)
	if err != nil {
		return module.Plan{}, err
	}
	if have, found := history.On(rate.RateType, rate.Date); found && rate.Reason == "" {
		return module.Plan{}, fault.New(fault.Conflict, "gl.rate.duplicate",
			"the %s rate from %s to %s on %s is %s already; give a reason to correct it", rate.RateType, rate.From, rate.To, rate.Date, have.Rate).
			WithField("/date").WithNumbers(have.Rate.String(), rate.Rate.String())
	}
	ledger := contract.NewLedger(s)
	known, err := loadFacts(ctx, ledger)
	if err != nil {
		return module.Plan{}, err
	}
	if known.Rate, err = compareRate(ctx, ledger, history, rate); err != nil {
		return module.Plan{}, err
	}
	return module.Plan{
		Events: []event.Draft{{Type: domain.EventExchangeRateSet, EffectiveDate: rate.Date, Stream: stream, Data: rate}},
		Facts:  known,
	}, nil
}

// rateFacts compare a rate with those that the ledger has.
type rateFacts struct {
	Corrects  bool         `json:"corrects"` // the day has a rate already
	Deviates  bool         `json:"deviates"` // from the latest rate by more than the tolerance
	Previous  money.Number `json:"previous"`
	Tolerance money.Number `json:"tolerance_percent"`
}

// compareRate compares a rate with the latest one of its day or before; nil if there is
// none. Whether the rate was used would take a search through all journals, so every
// correction counts as one of a used rate.
func compareRate(ctx context.Context, ledger *contract.Ledger, history *domain.RateHistory, rate domain.ExchangeRate) (*rateFacts, error) {
	latest, found := history.Latest(rate.RateType, rate.Date)
	if !found {
		return nil, nil
	}
	settings, err := ledger.Settings(ctx)
	if fault.CodeOf(err) == "gl.ledger.not_configured" {
		settings, err = domain.Settings{RateTolerance: domain.DefaultRateTolerance()}, nil
	}
	if err != nil {
		return nil, err
	}
	difference := rate.Rate.Sub(latest.Rate).Abs().Mul(money.FromInt(100))
	return &rateFacts{
		Corrects: latest.Date == rate.Date, Deviates: difference.Cmp(latest.Rate.Mul(settings.RateTolerance)) > 0,
		Previous: latest.Rate, Tolerance: settings.RateTolerance,
	}, nil
}

// checkRateValue refuses a rate outside the grammar of package money, and one of a
// currency to itself.
func checkRateValue(r domain.ExchangeRate) error {
	if err := money.CheckRate(r.Rate); err != nil {
		f, _ := fault.As(err)
		return fault.New(fault.Invalid, "gl.rate.value_invalid", "%s", f.Detail).WithField("/rate").WithCause(err)
	}
	if r.From == r.To {
		return fault.New(fault.Invalid, "gl.rate.value_invalid", "a currency's rate to itself is always 1; name two currencies").WithField("/to")
	}
	return nil
}

// checkRate is the check of gl.exchange_rate.set. It runs on raw appends too.
func checkRate(data json.RawMessage, _ map[string]string) error {
	var r domain.ExchangeRate
	if err := json.Unmarshal(data, &r); err != nil {
		if f, ok := fault.As(err); ok {
			return f.WithField("/rate")
		}
		return fault.New(fault.Invalid, "gl.rate.value_invalid", "the data is not a rate; see the schema of gl.exchange_rate.set").WithCause(err)
	}
	return checkRateValue(r)
}
