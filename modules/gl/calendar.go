package gl

import (
	"context"
	"fmt"
	"time"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/modules/gl/contract"
	"github.com/erpbackbone/backbone/modules/gl/domain"
)

func calendarTypes() []module.EventType {
	year := declare(domain.EventFiscalYearDefined, "A fiscal year with its periods was defined.", "")
	year.BusinessKeys, year.Checks = key("label", "label", "label"), []module.Check{checkYear}
	calendar := declare(domain.EventCalendarExtended, "A fiscal year joined the calendar, from which the period of a date is read.", "")
	calendar.Checks = []module.Check{checkYear}
	return []module.EventType{
		year, calendar,
		explained(domain.EventPeriodOpened, "A period was opened for a module."),
		explained(domain.EventPeriodSoftClosed, "A period was closed for a module; late postings need approval."),
		explained(domain.EventPeriodHardClosed, "A period was closed for a module for good."),
		explained(domain.EventPeriodReopened, "A softly closed period was opened again for a module."),
	}
}

func (m *Module) calendarIntents() []module.IntentType {
	return []module.IntentType{
		{Type: "gl.define_fiscal_year", Description: "Define a fiscal year; without periods it is cut at the ends of months.", Emits: []string{domain.EventFiscalYearDefined, domain.EventCalendarExtended}, Plan: module.PlanOf(planDefineFiscalYear)},
		{Type: "gl.open_period", Description: "Open a period for a module.", Emits: []string{domain.EventPeriodOpened}, Plan: planOpenPeriod},
		{Type: "gl.close_period", Description: "Close a period for a module, softly or for good.", Emits: []string{domain.EventPeriodSoftClosed, domain.EventPeriodHardClosed}, Plan: m.planClosePeriod},
		{Type: "gl.reopen_period", Description: "Open a softly closed period again.", Emits: []string{domain.EventPeriodReopened}, Plan: planReopenPeriod},
	}
}

func planDefineFiscalYear(ctx context.Context, in module.Input, s module.State, year domain.FiscalYear) (module.Plan, error) {
	calendar, err := loadCalendar(ctx, s)
	if err != nil {
		return module.Plan{}, err
	}
	for _, have := range calendar.Years() {
		if have.Label == year.Label {
			return module.Plan{}, duplicateFault(domain.EventFiscalYearDefined, "fiscal year "+year.Label).WithField("/label")
		}
	}
	if len(year.Periods) == 0 {
		year.Periods = splitByMonth(year)
	}
	if err := checkPeriods(calendar, year); err != nil {
		return module.Plan{}, err
	}
	if err := checkAdjacent(calendar.Years(), year); err != nil {
		return module.Plan{}, err
	}
	known, err := loadFacts(ctx, contract.NewLedger(s))
	date := in.Date()
	return module.Plan{
		Events: []event.Draft{
			{
				Type: domain.EventFiscalYearDefined, EffectiveDate: date, Stream: domain.FiscalYearStream(year.Label),
				Data: year, Entities: entity("fiscal_year", year.Label),
			},
			{Type: domain.EventCalendarExtended, EffectiveDate: date, Stream: domain.CalendarStream(), Data: year, CausedByIndex: 1},
		},
		Facts: known,
	}, err
}

// splitByMonth divides a year into periods at the ends of calendar months. A period is
// named by the year's label and its number: "2026-03" is the third period of year "2026",
// which is March if the year begins in January.
func splitByMonth(year domain.FiscalYear) []domain.PeriodSpan {
	var out []domain.PeriodSpan
	for start := year.Start; start <= year.End && len(out) < maxPeriods; {
		t := start.Time()
		end := min(event.DateOf(time.Date(t.Year(), t.Month()+1, 0, 0, 0, 0, 0, time.UTC)), year.End)
		out = append(out, domain.PeriodSpan{Period: fmt.Sprintf("%s-%02d", year.Label, len(out)+1), Start: start, End: end})
		start = end + 1
	}
	return out
}

// maxPeriods is the most periods of a year: 53 weeks, and some for closing entries.
const maxPeriods = 60

func overlapFault(field, detail string, args ...any) error {
	return fault.New(fault.FailedPrecondition, "gl.fiscal_year.overlap", detail, args...).WithField(field)
}

// checkPeriods refuses periods that do not fill the year in order, without gap and
// overlap, or whose names are taken.
func checkPeriods(calendar *domain.Calendar, year domain.FiscalYear) error {
	if year.End < year.Start {
		return overlapFault("/end", "the year ends on %s, before it starts on %s; correct the dates", year.End, year.Start)
	}
	if len(year.Periods) > maxPeriods {
		return overlapFault("/periods", "a year has at most %d periods; shorten it", maxPeriods)
	}
	names, next := map[string]bool{}, year.Start
	for i, p := range year.Periods {
		field := fmt.Sprintf("/periods/%d", i)
		_, _, taken := calendar.Period(p.Period)
		switch {
		case names[p.Period] || taken:
			return overlapFault(field+"/period", "period %s exists already; name it differently", p.Period)
		case p.Start != next:
			return overlapFault(field+"/start", "period %s starts on %s, not on %s; leave no gap and no overlap", p.Period, p.Start, next)
		case p.End < p.Start:
			return overlapFault(field+"/end", "period %s ends before it starts; correct the dates", p.Period)
		}
		names[p.Period], next = true, p.End+1
	}
	if next != year.End+1 {
		return overlapFault("/periods", "the periods end on %s and the year on %s; fill the year", next-1, year.End)
	}
	return nil
}

// checkAdjacent refuses a year that adjoins neither end of the calendar.
func checkAdjacent(years []domain.FiscalYear, year domain.FiscalYear) error {
	if len(years) == 0 {
		return nil
	}
	first, last := years[0], years[len(years)-1]
	if year.Start == last.End+1 || year.End == first.Start-1 {
		return nil
	}
	return overlapFault("/start", "the calendar covers %s to %s; a new year starts on %s or ends on %s",
		first.Start, last.End, last.End+1, first.Start-1)
}

// periodChange is the payload of the period intents and, with the year, the data of
// their events.
type periodChange struct {
	Module     string `json:"module"`
	Period     string `json:"period"`
	FiscalYear string `json:"fiscal_year"`
	Reason     string `json:"reason,omitempty"`
}

type periodRequest struct {
	periodChange
	Level string `json:"level"`
}

// periodContext is the state that the planners of period intents read.
type periodContext struct {
	request     periodRequest
	calendar    *domain.Calendar
	year        domain.FiscalYear
	span        domain.PeriodSpan
	moduleState domain.PeriodState // of the module that was named
	ledgerState domain.PeriodState
}

func readPeriod(ctx context.Context, in module.Input, s module.State) (periodContext, error) {
	var p periodContext
	if err := module.DecodePayload(in.Payload, &p.request); err != nil {
		return p, err
	}
	calendar, err := loadCalendar(ctx, s)
	if err != nil {
		return p, err
	}
	year, span, found := calendar.Period(p.request.Period)
	if !found {
		return p, fault.New(fault.FailedPrecondition, "gl.period.undefined",
			"no fiscal year has period %s; define the year with gl.define_fiscal_year", p.request.Period).WithField("/period")
	}
	p.calendar, p.year, p.span = calendar, year, span
	p.request.FiscalYear = year.Label
	ledger, err := loadPeriod(ctx, s, contract.ModuleName, span.Period)
	if err != nil {
		return p, err
	}
	own, err := loadPeriod(ctx, s, p.request.Module, span.Period)
	if err != nil {
		return p, err
	}
	p.moduleState, p.ledgerState = own.State, ledger.State
	return p, nil
}

// draft makes the event that changes the period's state for a module.
func (p periodContext) draft(in module.Input, eventType, moduleName string) event.Draft {
	change := p.request.periodChange
	change.Module = moduleName
	return event.Draft{
		Type: eventType, EffectiveDate: in.Date(), Stream: domain.PeriodStream(moduleName, p.span.Period),
		Data: change, Entities: entity("period", moduleName+":"+p.span.Period),
	}
}

func (p periodContext) plan(ctx context.Context, s module.State, level string, drafts ...event.Draft) (module.Plan, error) {
	known, err := loadFacts(ctx, contract.NewLedger(s))
	known.CloseLevel = level
	return module.Plan{Events: drafts, Facts: known}, err
}

func (p periodContext) wrongStateFault(allowed ...string) error {
	return wrongStateFault("gl.period", "period "+p.span.Period+" of "+p.request.Module, string(p.moduleState), allowed...)
}

func (p periodContext) hardClosedFault() error {
	return fault.New(fault.FailedPrecondition, "gl.period.hard_closed",
		"period %s is closed for good for %s; post the correction in an open period", p.span.Period, p.request.Module).
		With("period", p.span.Period).With("module", p.request.Module)
}

// requireLedgerOpen refuses to open another module's period while the ledger's own is not
// open.
func (p periodContext) requireLedgerOpen() error {
	if p.request.Module == contract.ModuleName || p.ledgerState == domain.PeriodOpen {
		return nil
	}
	return fault.New(fault.FailedPrecondition, "gl.period.ledger_closed",
		"period %s of the ledger is %s, and %s cannot be more open than the ledger; open it for gl first", p.span.Period, p.ledgerState, p.request.Module).
		With("period", p.span.Period).With("state", string(p.ledgerState))
}

func planOpenPeriod(ctx context.Context, in module.Input, s module.State) (module.Plan, error) {
	p, err := readPeriod(ctx, in, s)
	if err != nil {
		return module.Plan{}, err
	}
	switch p.moduleState {
	case domain.PeriodNotOpen:
	case domain.PeriodHardClosed:
		return module.Plan{}, p.hardClosedFault()
	default:
		return module.Plan{}, p.wrongStateFault(string(domain.PeriodNotOpen))
	}
	if err := p.requireLedgerOpen(); err != nil {
		return module.Plan{}, err
	}
	return p.plan(ctx, s, "", p.draft(in, domain.EventPeriodOpened, p.request.Module))
}

func planReopenPeriod(ctx context.Context, in module.Input, s module.State) (module.Plan, error) {
	p, err := readPeriod(ctx, in, s)
	if err != nil {
		return module.Plan{}, err
	}
	switch p.moduleState {
	case domain.PeriodSoftClosed:
	case domain.PeriodHardClosed:
		return module.Plan{}, p.hardClosedFault()
	default:
		return module.Plan{}, p.wrongStateFault(string(domain.PeriodSoftClosed))
	}
	if err := p.requireLedgerOpen(); err != nil {
		return module.Plan{}, err
	}
	return p.plan(ctx, s, "", p.draft(in, domain.EventPeriodReopened, p.request.Module))
}
