package contract

import (
	"context"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/gl/domain"
)

// Ledger reads the ledger's state for one plan. It loads streams on demand and caches
// them; every stream it reads becomes an expectation of the append. It must not be used
// concurrently.
type Ledger struct {
	state      module.State
	settings   *domain.LedgerState
	calendar   *domain.Calendar
	accounts   map[string]*domain.AccountState
	dimensions map[string]*domain.DimensionState
	rates      map[string]*domain.RateHistory
}

// NewLedger makes a Ledger that reads the state of a plan.
func NewLedger(s module.State) *Ledger {
	return &Ledger{
		state:      s,
		accounts:   map[string]*domain.AccountState{},
		dimensions: map[string]*domain.DimensionState{},
		rates:      map[string]*domain.RateHistory{},
	}
}

// Settings returns the ledger's configuration, with all defaults filled in. Callers must
// not change the maps. Fault: gl.ledger.not_configured.
func (l *Ledger) Settings(ctx context.Context) (Settings, error) {
	if l.settings == nil {
		s, err := module.Load[*domain.LedgerState](ctx, l.state, domain.LedgerStream())
		if err != nil {
			return Settings{}, err
		}
		l.settings = s
	}
	if !l.settings.Configured {
		return Settings{}, fault.New(fault.FailedPrecondition, "gl.ledger.not_configured",
			"the ledger of this legal entity has no functional currency yet; submit gl.configure_ledger first")
	}
	return l.settings.Settings, nil
}

// ProfileAccount returns the account of a role of the posting profile. Faults:
// gl.ledger.not_configured, gl.ledger.profile_missing.
func (l *Ledger) ProfileAccount(ctx context.Context, role string) (string, error) {
	s, err := l.Settings(ctx)
	if err != nil {
		return "", err
	}
	account := s.PostingProfile[role]
	if account == "" {
		return "", fault.New(fault.FailedPrecondition, "gl.ledger.profile_missing",
			"the posting profile names no account for %s; add it with gl.configure_ledger", role).With("role", role)
	}
	return account, nil
}

// Functional returns the functional currency. Fault: gl.ledger.not_configured.
func (l *Ledger) Functional(ctx context.Context) (money.Currency, error) {
	s, err := l.Settings(ctx)
	if err != nil {
		return money.Currency{}, err
	}
	return lookupCurrency(s.FunctionalCurrency)
}

func (l *Ledger) account(ctx context.Context, code string) (*domain.AccountState, error) {
	if a, ok := l.accounts[code]; ok {
		return a, nil
	}
	a, err := module.Load[*domain.AccountState](ctx, l.state, domain.AccountStream(code))
	if err != nil {
		return nil, err
	}
	l.accounts[code] = a
	return a, nil
}

// Account returns an account of the chart. Fault: gl.account.not_found.
func (l *Ledger) Account(ctx context.Context, code string) (Account, error) {
	a, err := l.account(ctx, code)
	if err != nil {
		return Account{}, err
	}
	if !a.Defined {
		return Account{}, fault.New(fault.NotFound, "gl.account.not_found",
			"account %q is not in the chart; define it with gl.define_account or use another", code).With("account", code)
	}
	return a.Account, nil
}

func (l *Ledger) dimensionValue(ctx context.Context, dimension, value string) (domain.DimensionValue, bool, error) {
	d, ok := l.dimensions[dimension]
	if !ok {
		loaded, err := module.Load[*domain.DimensionState](ctx, l.state, domain.DimensionStream(dimension))
		if err != nil {
			return domain.DimensionValue{}, false, err
		}
		d = loaded
		l.dimensions[dimension] = d
	}
	v, found := d.Value(value)
	return v, found, nil
}

// DimensionValueDefined reports whether a dimension has the value, whatever its
// active dates.
func (l *Ledger) DimensionValueDefined(ctx context.Context, dimension, value string) (bool, error) {
	_, found, err := l.dimensionValue(ctx, dimension, value)
	return found, err
}

// Rate returns the spot rate, units of to per 1 from, and its date: the latest on or before
// the date, at most Settings.RateAgeDays old. The rate of a currency to itself is 1. It
// derives neither inverse nor cross rates. Faults:
// gl.rate.missing, gl.rate.stale, gl.ledger.not_configured.
func (l *Ledger) Rate(ctx context.Context, from, to string, date event.Date) (money.Number, event.Date, error) {
	return l.latestRate(ctx, domain.RateSpot, from, to, date)
}

// ClosingRate returns the closing rate and its date, by the rules of Rate. Faults: those of
// Rate.
func (l *Ledger) ClosingRate(ctx context.Context, from, to string, date event.Date) (money.Number, event.Date, error) {
	return l.latestRate(ctx, domain.RateClosing, from, to, date)
}

func (l *Ledger) latestRate(ctx context.Context, rateType, from, to string, date event.Date) (money.Number, event.Date, error) {
	if from == to {
		return money.FromInt(1), date, nil
	}
	s, err := l.Settings(ctx)
	if err != nil {
		return money.Number{}, 0, err
	}
	stream := domain.RateStream(from, to)
	h, ok := l.rates[stream.ID]
	if !ok {
		if h, err = module.Load[*domain.RateHistory](ctx, l.state, stream); err != nil {
			return money.Number{}, 0, err
		}
		l.rates[stream.ID] = h
	}
	r, found := h.Latest(rateType, date)
	if !found {
		return money.Number{}, 0, fault.New(fault.FailedPrecondition, "gl.rate.missing",
			"there is no %s rate from %s to %s on or before %s; set one with gl.set_exchange_rate", rateType, from, to, date).
			With("from", from).With("to", to).With("date", date.String()).With("rate_type", rateType)
	}
	if age := int(date - r.Date); age > s.RateAgeDays {
		return money.Number{}, 0, fault.New(fault.FailedPrecondition, "gl.rate.stale",
			"the latest %s rate from %s to %s is of %s, %d days before %s, and %d are allowed; set a newer one with gl.set_exchange_rate",
			rateType, from, to, r.Date, age, date, s.RateAgeDays).
			With("from", from).With("to", to).With("date", date.String()).With("rate_date", r.Date.String()).With("rate_type", rateType).
			WithNumbers(s.RateAgeDays, age)
	}
	return r.Rate, r.Date, nil
}

// FunctionalAmount converts an amount to functional currency at the rate of Rate and
// rounds once. It is for figures that are shown or compared; PlanJournal converts the lines
// of a journal itself. Faults: those of Rate, money.currency_unsupported.
func (l *Ledger) FunctionalAmount(ctx context.Context, amount money.Number, currency string, date event.Date) (functional, rate money.Number, rateDate event.Date, err error) {
	book, err := l.Functional(ctx)
	if err != nil {
		return money.Number{}, money.Number{}, 0, err
	}
	rate, rateDate, err = l.Rate(ctx, currency, book.Code, date)
	if err != nil {
		return money.Number{}, money.Number{}, 0, err
	}
	if currency == book.Code {
		return amount, rate, rateDate, nil
	}
	return money.Convert(amount, rate, book), rate, rateDate, nil
}
