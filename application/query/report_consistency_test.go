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
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// fakeVersions is a projection with several versions.
type fakeVersions struct {
	active     int
	reached    map[int]event.Sequence
	generation map[int]uint64
}

func (v *fakeVersions) Active(context.Context, string) (int, error) { return v.active, nil }

func (v *fakeVersions) Position(_ context.Context, _ string, version int, _ event.PartitionID) (event.Sequence, uint64, error) {
	return v.reached[version], v.generation[version], nil
}

// interleavingSource runs a function during a query.
type interleavingSource struct {
	numbersSource
	before func()
}

func (m *interleavingSource) Query(ctx context.Context, q ports.ReadModelQuery) (ports.Report, error) {
	r, err := m.numbersSource.Query(ctx, q)
	if m.before != nil {
		m.before()
	}
	return r, err
}

// TestReport_VersionSwitch switches, drops and resets versions during a query and between
// pages.
func TestReport_VersionSwitch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newReportFixture(t, 5, time.Minute)
		v := &fakeVersions{active: 1, reached: map[int]event.Sequence{1: 5, 2: 5}}
		source := &interleavingSource{}
		reports, err := query.NewReports(d.Service, map[string]module.ReadModel{"till/numbers": model}, map[string]ports.ReadModelSource{"till/numbers": source}, v, time.Minute)
		require.NoError(t, err)
		ask := func(cursor string) (ports.Report, error) {
			q := d.request()
			q.Limit, q.Cursor = 2, cursor
			return reports.Query(t.Context(), q)
		}

		first, err := ask("")
		require.NoError(t, err)
		v.active = 2
		second, err := ask(first.NextCursor)
		require.NoError(t, err)
		require.Equal(t, 1, source.last().Version, "its pages are of one version")
		require.Equal(t, []any{3, 4}, second.Rows)
		_, err = ask("")
		require.NoError(t, err)
		require.Equal(t, 2, source.last().Version)

		// The version of the first page is dropped.
		delete(v.reached, 1)
		_, err = ask(first.NextCursor)
		require.Equal(t, "read.rebuilding", fault.CodeOf(err))

		// It is dropped during a query: the first page is read again from the other version.
		v.active, v.reached[1] = 1, 5
		source.before = func() { v.active = 2; delete(v.reached, 1) }
		_, err = ask("")
		require.NoError(t, err)
		require.Equal(t, 2, source.last().Version)

		// It is reset during a query: rows from before and after are never mixed.
		source.before = func() { v.reached[2] = 0 }
		q := d.request()
		q.KnownAt = "seq:5"
		_, err = reports.Query(t.Context(), q)
		require.Equal(t, "read.not_caught_up", fault.CodeOf(err))
		source.before = func() { v.reached[2] = 4 }
		v.reached[2] = 5
		last, err := ask("")
		require.NoError(t, err)
		require.Equal(t, event.Sequence(4), source.last().Known, "read again, at the new position")
		require.Equal(t, []any{1, 2}, last.Rows)
	})
}

// TestReport_GenerationChange replaces the rows of a version during a query and between pages,
// at the same sequence, so that the checkpoint does not change.
func TestReport_GenerationChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newReportFixture(t, 5, time.Minute)
		v := &fakeVersions{active: 1, reached: map[int]event.Sequence{1: 5, 2: 5}, generation: map[int]uint64{1: 3}}
		source := &interleavingSource{}
		reports, err := query.NewReports(d.Service, map[string]module.ReadModel{"till/numbers": model}, map[string]ports.ReadModelSource{"till/numbers": source}, v, time.Minute)
		require.NoError(t, err)
		ask := func(cursor string) (ports.Report, error) {
			q := d.request()
			q.Limit, q.Cursor = 2, cursor
			return reports.Query(t.Context(), q)
		}
		replaceOnce := func() {
			v.generation[1]++
			source.before = nil
		}

		// The first page is read again, and the next pages continue from it.
		source.before = replaceOnce
		first, err := ask("")
		require.NoError(t, err)
		require.Len(t, source.asked, 2)
		_, err = ask(first.NextCursor)
		require.NoError(t, err)

		// A later page would have rows of another generation than the first one.
		source.before = replaceOnce
		_, err = ask(first.NextCursor)
		require.Equal(t, "read.rebuilding", fault.CodeOf(err), "replaced during the query")
		asked := len(source.asked)
		_, err = ask(first.NextCursor)
		require.Equal(t, "read.rebuilding", fault.CodeOf(err), "replaced before the query")
		require.Len(t, source.asked, asked)

		// The same for a version that is no longer active.
		first, err = ask("")
		require.NoError(t, err)
		v.active = 2
		_, err = ask(first.NextCursor)
		require.NoError(t, err)
		v.generation[1]++
		_, err = ask(first.NextCursor)
		require.Equal(t, "read.rebuilding", fault.CodeOf(err))
	})
}

// fakeProjections is the progress of several projections.
type fakeProjections map[string]*fakeVersions

func (p fakeProjections) Active(ctx context.Context, projection string) (int, error) {
	return p[projection].Active(ctx, projection)
}

func (p fakeProjections) Position(ctx context.Context, projection string, version int, of event.PartitionID) (event.Sequence, uint64, error) {
	return p[projection].Position(ctx, projection, version, of)
}

// TestReport_TwoProjections reads a model that has rows of two projections: both at one
// sequence, which both have reached.
func TestReport_TwoProjections(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newReportFixture(t, 5, time.Minute)
		both := model
		both.Reads = []string{"till.prices"}
		prices := &fakeVersions{active: 4, reached: map[int]event.Sequence{4: 3}, generation: map[int]uint64{}}
		progress := fakeProjections{model.Projection: {active: 1, reached: map[int]event.Sequence{1: 5}}, "till.prices": prices}
		reports, err := query.NewReports(d.Service, map[string]module.ReadModel{"till/numbers": both}, map[string]ports.ReadModelSource{"till/numbers": d.source}, progress, time.Minute)
		require.NoError(t, err)
		ask := func(change func(q *query.ReportQuery)) (ports.Report, error) {
			q := d.request()
			q.Limit = 2
			change(&q)
			return reports.Query(t.Context(), q)
		}
		first, err := ask(func(*query.ReportQuery) {})
		require.NoError(t, err)
		require.Equal(t, event.Sequence(3), d.source.last().Known, "the one that is behind decides")
		require.Equal(t, map[string]int{"till.prices": 4}, d.source.last().Versions)
		_, err = ask(func(q *query.ReportQuery) { q.KnownAt = "seq:4" })
		require.Equal(t, "read.not_caught_up", code(t, err))

		prices.active = 5 // pages go on with the version of the first
		_, err = ask(func(q *query.ReportQuery) { q.Cursor = first.NextCursor })
		require.NoError(t, err)
		require.Equal(t, map[string]int{"till.prices": 4}, d.source.last().Versions)
		prices.generation[4] = 1
		_, err = ask(func(q *query.ReportQuery) { q.Cursor = first.NextCursor })
		require.Equal(t, "read.rebuilding", fault.CodeOf(err))
	})
}
