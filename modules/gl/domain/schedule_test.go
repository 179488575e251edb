package domain_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/modules/gl/domain"
)

// calendarYear is a calendar of one year with n periods of equal length, the last one longer.
func calendarYear(t *testing.T, year, n int) *domain.Calendar {
	t.Helper()
	start, end := event.MustDate(fmt.Sprintf("%d-01-01", year)), event.MustDate(fmt.Sprintf("%d-12-31", year))
	var periods []string
	for i := range n {
		first, last := start+event.Date(i*28), start+event.Date(i*28+27)
		if n == 12 {
			first = event.DateOf(time.Date(year, time.Month(i+1), 1, 0, 0, 0, 0, time.UTC))
			last = event.DateOf(time.Date(year, time.Month(i+2), 0, 0, 0, 0, 0, time.UTC))
		}
		if i == n-1 {
			last = end
		}
		periods = append(periods, fmt.Sprintf(`{"period": "P%d", "start": %q, "end": %q}`, i+1, first, last))
	}
	c := &domain.Calendar{}
	data := fmt.Sprintf(`{"label": "Y", "start": %q, "end": %q, "periods": [%s]}`, start, end, strings.Join(periods, ","))
	require.NoError(t, c.Apply(event.Recorded{Skeleton: event.Skeleton{Type: domain.EventCalendarExtended}}, []byte(data)))
	return c
}

func TestScheduleDates(t *testing.T) {
	t.Parallel()
	months := calendarYear(t, 2026, 12)
	for name, c := range map[string]struct {
		schedule      domain.Schedule
		calendar      *domain.Calendar
		from, through string
		want          string
	}{
		"31st of each month":         {domain.Schedule{Every: "month", On: "day", Day: 31}, months, "2026-01-31", "2026-04-30", "2026-01-31 2026-02-28 2026-03-31 2026-04-30"},
		"day before the start":       {domain.Schedule{Every: "month", On: "day", Day: 1}, months, "2026-01-15", "2026-03-01", "2026-02-01 2026-03-01"},
		"each quarter from February": {domain.Schedule{Every: "quarter", On: "day", Day: 15}, months, "2026-02-01", "2026-12-31", "2026-02-15 2026-05-15 2026-08-15 2026-11-15"},
		"each year":                  {domain.Schedule{Every: "year", On: "day", Day: 1}, months, "2024-03-01", "2026-12-31", "2024-03-01 2025-03-01 2026-03-01"},
		"not beyond the calendar":    {domain.Schedule{Every: "month", On: "day", Day: 30}, months, "2026-11-01", "9999-12-31", "2026-11-30 2026-12-30"},
		"ends of months":             {domain.Schedule{Every: "month", On: "period_end"}, months, "2026-02-01", "2026-03-31", "2026-02-28 2026-03-31"},
		"ends of quarters":           {domain.Schedule{Every: "quarter", On: "period_end"}, months, "2026-01-01", "2026-12-31", "2026-03-31 2026-06-30 2026-09-30 2026-12-31"},
		"end of the year":            {domain.Schedule{Every: "year", On: "period_end"}, months, "2026-01-01", "2026-12-31", "2026-12-31"},
		"quarters of 13 periods":     {domain.Schedule{Every: "quarter", On: "period_end"}, calendarYear(t, 2026, 13), "2026-01-01", "2026-12-31", "2026-04-22 2026-07-15 2026-10-07 2026-12-31"},
		"no calendar":                {domain.Schedule{Every: "month", On: "day", Day: 1}, &domain.Calendar{}, "2026-01-01", "2026-12-31", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, d := range c.schedule.Dates(c.calendar, event.MustDate(c.from), event.MustDate(c.through)) {
				got = append(got, d.String())
			}
			require.Equal(t, c.want, strings.Join(got, " "))
		})
	}
}
