package domain

import (
	"encoding/json"
	"fmt"
	"slices"
	"sort"

	"github.com/erpbackbone/backbone/domain/event"
)

// PeriodSpan is a posting period of the calendar. Start and End belong to it.
type PeriodSpan struct {
	Period string     `json:"period"`
	Start  event.Date `json:"start"`
	End    event.Date `json:"end"`
}

// FiscalYear is a year with its periods, in order, as gl.fiscal_year.defined and
// gl.calendar.extended carry it.
type FiscalYear struct {
	Label   string       `json:"label"`
	Start   event.Date   `json:"start"`
	End     event.Date   `json:"end"`
	Periods []PeriodSpan `json:"periods"`
}

// Calendar is the state of the stream gl.calendar/main: the fiscal years by start. A
// FiscalYear never changes, so clones share them.
type Calendar struct {
	years []FiscalYear
}

// NewCalendar makes a calendar of fiscal years by start.
func NewCalendar(years []FiscalYear) *Calendar { return &Calendar{years: years} }

// Years lists the fiscal years by start. The result must not be changed.
func (c *Calendar) Years() []FiscalYear { return c.years }

// Clone copies the calendar.
func (c *Calendar) Clone() *Calendar { return &Calendar{years: slices.Clone(c.years)} }

// Apply folds an event.
func (c *Calendar) Apply(e event.Recorded, data []byte) error {
	if e.Type != EventCalendarExtended {
		return nil
	}
	var y FiscalYear
	if err := json.Unmarshal(data, &y); err != nil {
		return fmt.Errorf("calendar: %w", err)
	}
	at := sort.Search(len(c.years), func(i int) bool { return c.years[i].Start > y.Start })
	c.years = slices.Insert(c.years, at, y)
	return nil
}

// Find returns the year and period of the day.
func (c *Calendar) Find(d event.Date) (FiscalYear, PeriodSpan, bool) {
	i := sort.Search(len(c.years), func(i int) bool { return c.years[i].End >= d })
	if i == len(c.years) || d < c.years[i].Start {
		return FiscalYear{}, PeriodSpan{}, false
	}
	y := c.years[i]
	j := sort.Search(len(y.Periods), func(j int) bool { return y.Periods[j].End >= d })
	if j == len(y.Periods) || d < y.Periods[j].Start {
		return FiscalYear{}, PeriodSpan{}, false
	}
	return y, y.Periods[j], true
}

// Period returns a period and its year by the period's id.
func (c *Calendar) Period(id string) (FiscalYear, PeriodSpan, bool) {
	for _, y := range c.years {
		for _, p := range y.Periods {
			if p.Period == id {
				return y, p, true
			}
		}
	}
	return FiscalYear{}, PeriodSpan{}, false
}

// Periods lists all periods in order.
func (c *Calendar) Periods() []PeriodSpan {
	var out []PeriodSpan
	for _, y := range c.years {
		out = append(out, y.Periods...)
	}
	return out
}

// PeriodState says whether a module may post into a period.
type PeriodState string

// The states of a period, in the order in which it passes through them. A soft-closed
// period can be reopened.
const (
	PeriodNotOpen    PeriodState = "not_open"
	PeriodOpen       PeriodState = "open"
	PeriodSoftClosed PeriodState = "soft_closed" // postings need an approval
	PeriodHardClosed PeriodState = "hard_closed" // final; postings are refused
)

// Stricter returns the state that accepts fewer events. A hard close is final, so it
// outranks a period that was never opened.
func (s PeriodState) Stricter(o PeriodState) PeriodState {
	if o.rank() > s.rank() {
		return o
	}
	return s
}

func (s PeriodState) rank() int {
	switch s {
	case PeriodOpen:
		return 0
	case PeriodSoftClosed:
		return 1
	case PeriodHardClosed:
		return 3
	default:
		return 2
	}
}

// ModulePeriod is the state of the stream gl.period/<module>:<period>.
type ModulePeriod struct {
	State PeriodState
}

// NewModulePeriod is a period that was not opened.
func NewModulePeriod() *ModulePeriod { return &ModulePeriod{State: PeriodNotOpen} }

// Clone copies the state.
func (p *ModulePeriod) Clone() *ModulePeriod { c := *p; return &c }

// Apply folds an event.
func (p *ModulePeriod) Apply(e event.Recorded, _ []byte) error {
	switch e.Type {
	case EventPeriodOpened, EventPeriodReopened:
		p.State = PeriodOpen
	case EventPeriodSoftClosed:
		p.State = PeriodSoftClosed
	case EventPeriodHardClosed:
		p.State = PeriodHardClosed
	}
	return nil
}
