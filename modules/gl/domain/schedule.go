package domain

import (
	"time"

	"github.com/erpbackbone/backbone/domain/event"
)

// How often a schedule is due, and on which day.
const (
	EveryMonth   = "month"
	EveryQuarter = "quarter"
	EveryYear    = "year"
	OnDay        = "day"
	OnPeriodEnd  = "period_end"
)

// Schedule says when a recurring journal is due: on a day of the month, or on the last day
// of the calendar's periods.
type Schedule struct {
	Every string `json:"every"`
	On    string `json:"on"`
	Day   int    `json:"day,omitempty"` // with OnDay; in a shorter month its last day
}

// Dates lists the due dates in the range, in order and within the calendar. With OnDay the
// months count from that of the first day of the range. With OnPeriodEnd the periods of a
// year are cut into quarters of equal length, as far as their number allows.
func (s Schedule) Dates(c *Calendar, from, through event.Date) []event.Date {
	years := c.Years()
	if len(years) == 0 {
		return nil
	}
	through = min(through, years[len(years)-1].End)
	if s.On == OnPeriodEnd {
		return s.periodEnds(years, from, through)
	}
	step := map[string]int{EveryMonth: 1, EveryQuarter: 3, EveryYear: 12}[s.Every]
	if step == 0 {
		return nil
	}
	var out []event.Date
	first := from.Time()
	for months := 0; ; months += step {
		last := time.Date(first.Year(), first.Month()+time.Month(months+1), 0, 0, 0, 0, 0, time.UTC)
		date := event.DateOf(last.AddDate(0, 0, min(s.Day, last.Day())-last.Day()))
		if date > through {
			return out
		}
		if date >= from {
			out = append(out, date)
		}
	}
}

func (s Schedule) periodEnds(years []FiscalYear, from, through event.Date) []event.Date {
	parts := map[string]int{EveryQuarter: 4, EveryYear: 1}
	var out []event.Date
	for _, y := range years {
		n := len(y.Periods)
		count, divided := parts[s.Every]
		if !divided {
			count = n
		}
		for i, p := range y.Periods {
			isEnd := (i+1)*count/n > i*count/n
			if isEnd && p.End >= from && p.End <= through {
				out = append(out, p.End)
			}
		}
	}
	return out
}
