package contract

import (
	"context"
	"time"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/gl/domain"
)

// States of a period in which an event is accepted.
const (
	PeriodOpen       = string(domain.PeriodOpen)
	PeriodSoftClosed = string(domain.PeriodSoftClosed)
)

// TagLatePosting marks events that were posted into a soft-closed period.
const TagLatePosting = "late_posting"

// PeriodTag marks events with a financial effect in the period.
func PeriodTag(period string) string { return "period:" + period }

// YearTag marks events with a financial effect in the fiscal year.
func YearTag(fiscalYear string) string { return "fy:" + fiscalYear }

// Period is the period into which an event with a financial effect is posted.
type Period struct {
	ID         string   `json:"id"`          // "2026-03"
	FiscalYear string   `json:"fiscal_year"` // "2026"
	State      string   `json:"state"`       // PeriodOpen, or PeriodSoftClosed: the policy must ask for an approval
	Tags       []string `json:"-"`           // for every event with a financial effect: period:…, fy:…, late_posting
}

// NeedsApproval reports whether the policy must ask for an approval of the event.
func (p Period) NeedsApproval() bool { return p.State == PeriodSoftClosed }

// Rule is the trace of the period check.
func (p Period) Rule() event.RuleEvaluation {
	r := event.RuleEvaluation{RuleID: "gl.period.state", RuleName: "Posting period", Result: event.RuleConditionFalse}
	if p.NeedsApproval() {
		r.Result = event.RuleFired
		r.ActionsTaken = []string{"require_approval", PeriodTag(p.ID)}
	}
	return r
}

// CheckPeriod finds the period of the date and checks that the module may post into it. The
// stricter of the module's state and the ledger's counts. An open period accepts the
// posting. So does a soft-closed one, but Period.NeedsApproval tells the policy to ask for
// an approval. A hard-closed or unopened period is a fault. Faults: gl.period.undefined,
// gl.period.not_open, gl.period.hard_closed (with the first open date).
func (l *Ledger) CheckPeriod(ctx context.Context, moduleName string, date event.Date) (Period, error) {
	c, err := l.loadCalendar(ctx)
	if err != nil {
		return Period{}, err
	}
	year, span, found := c.Find(date)
	if !found {
		return Period{}, fault.New(fault.FailedPrecondition, "gl.period.undefined",
			"no fiscal year has a period for %s; define the year with gl.define_fiscal_year or use another date", date).
			With("date", date.String())
	}
	state, err := l.periodState(ctx, moduleName, span.Period)
	if err != nil {
		return Period{}, err
	}
	switch state {
	case domain.PeriodOpen, domain.PeriodSoftClosed:
	case domain.PeriodHardClosed:
		return Period{}, l.hardClosedFault(ctx, moduleName, date, span)
	default:
		return Period{}, fault.New(fault.FailedPrecondition, "gl.period.not_open",
			"period %s was not opened yet for %s; open it with gl.open_period or use another date", span.Period, moduleName).
			With("period", span.Period).With("module", moduleName).With("date", date.String())
	}
	p := Period{ID: span.Period, FiscalYear: year.Label, State: string(state), Tags: []string{PeriodTag(span.Period), YearTag(year.Label)}}
	if p.NeedsApproval() {
		p.Tags = append(p.Tags, TagLatePosting)
	}
	return p, nil
}

func (l *Ledger) loadCalendar(ctx context.Context) (*domain.Calendar, error) {
	if l.calendar == nil {
		c, err := module.Load[*domain.Calendar](ctx, l.state, domain.CalendarStream())
		if err != nil {
			return nil, err
		}
		l.calendar = c
	}
	return l.calendar, nil
}

// periodState returns the stricter of the module's state and the ledger's.
func (l *Ledger) periodState(ctx context.Context, moduleName, period string) (domain.PeriodState, error) {
	p, err := module.Load[*domain.ModulePeriod](ctx, l.state, domain.PeriodStream(ModuleName, period))
	if err != nil || moduleName == ModuleName {
		return stateOf(p), err
	}
	own, err := module.Load[*domain.ModulePeriod](ctx, l.state, domain.PeriodStream(moduleName, period))
	if err != nil {
		return domain.PeriodNotOpen, err
	}
	return p.State.Stricter(own.State), nil
}

func stateOf(p *domain.ModulePeriod) domain.PeriodState {
	if p == nil {
		return domain.PeriodNotOpen
	}
	return p.State
}

// hardClosedFault makes the fault for a hard-closed period. It names the first later date
// on which the module may post.
func (l *Ledger) hardClosedFault(ctx context.Context, moduleName string, date event.Date, closed domain.PeriodSpan) error {
	f := fault.New(fault.FailedPrecondition, "gl.period.hard_closed",
		"period %s is closed for good; no later period is open, so open one with gl.open_period and post there", closed.Period)
	for _, span := range l.calendar.Periods() {
		if span.Start <= closed.Start {
			continue
		}
		state, err := l.periodState(ctx, moduleName, span.Period)
		if err != nil {
			return err
		}
		if state == domain.PeriodOpen {
			f = fault.New(fault.FailedPrecondition, "gl.period.hard_closed",
				"period %s is closed for good; the first open date is %s, use that or a later one", closed.Period, span.Start).
				With("first_open_date", span.Start.String())
			break
		}
	}
	return f.With("period", closed.Period).With("module", moduleName).With("date", date.String())
}

// lookupCurrency finds a currency, retired or not.
func lookupCurrency(code string) (money.Currency, error) {
	return money.LookupCurrency(code, time.Time{})
}
