package query_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/query"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

// repeatedSource has more of its rows than a planner may read.
type repeatedSource struct{ pages int }

func (s *repeatedSource) Query(_ context.Context, q ports.ReadModelQuery) (ports.Report, error) {
	s.pages++
	return ports.Report{Rows: make([]any, q.Limit), HasMore: true, NextCursor: "more"}, nil
}

func TestReadForPlan(t *testing.T) {
	t.Parallel()
	read := module.ReportRead{Path: "till/numbers", Params: map[string]string{"account": "1"}, AsOf: event.MustDate("2026-03-31")}

	t.Run("all_pages_are_read_as_of_the_newest_event", func(t *testing.T) {
		t.Parallel()
		const events, rows = 3, 20_001
		d := newReportFixture(t, events, time.Minute)
		d.source.rows = rows
		found, known, err := d.ReadForPlan(t.Context(), d.entity, read)
		require.NoError(t, err)
		require.EqualValues(t, events, known)
		require.Len(t, found, rows)
		require.Equal(t, []any{1, rows}, []any{found[0], found[rows-1]})
		require.Len(t, d.source.asked, 3)
		for _, q := range d.source.asked {
			require.Equal(t, []any{event.Sequence(events), "2026-03-31", read.Params}, []any{q.Known, q.AsOf.String(), q.Params})
		}
	})

	t.Run("log_without_events_has_no_rows", func(t *testing.T) {
		t.Parallel()
		d := newReportFixture(t, 0, time.Minute)
		rows, known, err := d.ReadForPlan(t.Context(), d.entity, module.ReportRead{Path: read.Path, Params: read.Params})
		require.NoError(t, err)
		require.Empty(t, rows)
		require.Zero(t, known)
		require.Equal(t, "2026-01-01", d.source.last().AsOf.String(), "today")
	})

	t.Run("projection_that_reaches_the_head_late_is_waited_for", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			d := newReportFixture(t, 3, time.Minute)
			d.progress.reached, d.progress.step = 0, 1
			rows, known, err := d.ReadForPlan(t.Context(), d.entity, read)
			require.NoError(t, err)
			require.Len(t, rows, 3)
			require.EqualValues(t, 3, known)
		})
	})

	t.Run("projection_that_does_not_reach_the_head_is_refused", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			d, begun := newReportFixture(t, 3, time.Minute), time.Now()
			d.progress.reached = 2
			_, _, err := d.ReadForPlan(t.Context(), d.entity, read)
			require.Equal(t, module.CodeNotCaughtUp, code(t, err))
			require.Equal(t, time.Minute, time.Since(begun))
		})
	})

	t.Run("unknown_read_model_and_parameter_are_refused", func(t *testing.T) {
		t.Parallel()
		d := newReportFixture(t, 1, time.Minute)
		_, _, err := d.ReadForPlan(t.Context(), d.entity, module.ReportRead{Path: "till/none"})
		require.Equal(t, "report.not_found", code(t, err))
		_, _, err = d.ReadForPlan(t.Context(), d.entity, module.ReportRead{Path: read.Path, Params: map[string]string{"account": "1", "place": "x"}})
		require.Equal(t, "report.parameter_unknown", code(t, err))
	})

	t.Run("more_rows_than_the_limit_are_refused", func(t *testing.T) {
		t.Parallel()
		d, source := newReportFixture(t, 1, time.Minute), &repeatedSource{}
		reports, err := query.NewReports(d.Service, map[string]module.ReadModel{"till/numbers": model}, map[string]ports.ReadModelSource{"till/numbers": source}, d.progress, time.Minute)
		require.NoError(t, err)
		_, _, err = reports.ReadForPlan(t.Context(), d.entity, read)
		require.Equal(t, "report.too_many_rows", code(t, err))
		require.Equal(t, module.MaxReportRows/10_000+1, source.pages)
	})
}
