package contract

import (
	"context"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/gl/domain"
)

// ClosingRate returns the closing rate, units of to per 1 from, and its date, by the rules of
// Rate. Faults: those of Rate.
func (l *Ledger) ClosingRate(ctx context.Context, from, to string, date event.Date) (money.Number, event.Date, error) {
	if from == to {
		return money.FromInt(1), date, nil
	}
	s, err := l.Settings(ctx)
	if err != nil {
		return money.Number{}, 0, err
	}
	history, err := module.Load[*domain.RateHistory](ctx, l.state, domain.RateStream(from, to))
	if err != nil {
		return money.Number{}, 0, err
	}
	r, found := history.Latest(domain.RateClosing, date)
	switch age := int(date - r.Date); {
	case !found:
		return money.Number{}, 0, fault.New(fault.FailedPrecondition, "gl.rate.missing",
			"there is no closing rate from %s to %s on or before %s; set one with gl.set_exchange_rate", from, to, date).
			With("from", from).With("to", to).With("date", date.String()).With("rate_type", domain.RateClosing)
	case age > s.RateAgeDays:
		return money.Number{}, 0, fault.New(fault.FailedPrecondition, "gl.rate.stale",
			"the latest closing rate from %s to %s is of %s, %d days before %s, and %d are allowed; set a newer one with gl.set_exchange_rate",
			from, to, r.Date, age, date, s.RateAgeDays).
			With("from", from).With("to", to).With("date", date.String()).With("rate_date", r.Date.String()).
			WithNumbers(s.RateAgeDays, age)
	}
	return r.Rate, r.Date, nil
}
