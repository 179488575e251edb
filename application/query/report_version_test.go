package query_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/query"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// versions is a projection of which several versions are there.
type versions struct {
	active     int
	reached    map[int]event.Sequence
	generation map[int]uint64
}

func (v *versions) Active(context.Context, string) (int, error) { return v.active, nil }

func (v *versions) Position(_ context.Context, _ string, version int, _ event.PartitionID) (event.Sequence, uint64, error) {
	return v.reached[version], v.generation[version], nil
}

// meddled is a source in the middle of whose answer something happens.
type meddled struct {
	numbers
	meddle func()
}

func (m *meddled) Query(ctx context.Context, q ports.ReadModelQuery) (ports.Report, error) {
	r, err := m.numbers.Query(ctx, q)
	if m.meddle != nil {
		m.meddle()
	}
	return r, err
}

// TestAReportIsOfOneVersion switches, drops and resets what a report is made of while
// it is made, and between its pages.
func TestAReportIsOfOneVersion(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 5, 10*time.Millisecond)
	v := &versions{active: 1, reached: map[int]event.Sequence{1: 5, 2: 5}}
	source := &meddled{}
	reports, err := query.NewReports(d.Service, map[string]module.ReadModel{"till/numbers": model}, map[string]ports.ReadModelSource{"till/numbers": source}, v, d.clock, 10*time.Millisecond)
	require.NoError(t, err)
	ask := func(cursor string) (ports.Report, error) {
		q := d.question()
		q.Limit, q.Cursor = 2, cursor
		return reports.Ask(t.Context(), q)
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

	// The version that a report was begun on is dropped.
	delete(v.reached, 1)
	_, err = ask(first.NextCursor)
	require.Equal(t, "read.rebuilding", fault.CodeOf(err))

	// It is dropped in the middle of an answer: the first page is made anew of the other.
	v.active, v.reached[1] = 1, 5
	source.meddle = func() { v.active = 2; delete(v.reached, 1) }
	_, err = ask("")
	require.NoError(t, err)
	require.Equal(t, 2, source.last().Version)

	// It is emptied in the middle of an answer: rows of before are never shown with those
	// of after.
	source.meddle = func() { v.reached[2] = 0 }
	q := d.question()
	q.KnownAt = "seq:5"
	_, err = reports.Ask(t.Context(), q)
	require.Equal(t, "read.not_caught_up", fault.CodeOf(err))
	source.meddle = func() { v.reached[2] = 4 }
	v.reached[2] = 5
	last, err := ask("")
	require.NoError(t, err)
	require.Equal(t, event.Sequence(4), source.last().Known, "made anew, and it says so")
	require.Equal(t, []any{1, 2}, last.Rows)
}

// TestAReportIsOfOneGeneration replaces the rows of a version while a report is made of
// it, and between its pages: at the same sequence, so that the checkpoint tells nothing.
func TestAReportIsOfOneGeneration(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 5, 10*time.Millisecond)
	v := &versions{active: 1, reached: map[int]event.Sequence{1: 5, 2: 5}, generation: map[int]uint64{1: 3}}
	source := &meddled{}
	reports, err := query.NewReports(d.Service, map[string]module.ReadModel{"till/numbers": model}, map[string]ports.ReadModelSource{"till/numbers": source}, v, d.clock, 10*time.Millisecond)
	require.NoError(t, err)
	ask := func(cursor string) (ports.Report, error) {
		q := d.question()
		q.Limit, q.Cursor = 2, cursor
		return reports.Ask(t.Context(), q)
	}
	replaceOnce := func() {
		v.generation[1]++
		source.meddle = nil
	}

	// The first page is made anew, and the next ones go on from there.
	source.meddle = replaceOnce
	first, err := ask("")
	require.NoError(t, err)
	require.Len(t, source.asked, 2)
	_, err = ask(first.NextCursor)
	require.NoError(t, err)

	// A later page would be of other rows than the first one.
	source.meddle = replaceOnce
	_, err = ask(first.NextCursor)
	require.Equal(t, "read.rebuilding", fault.CodeOf(err), "replaced while it was made")
	asked := len(source.asked)
	_, err = ask(first.NextCursor)
	require.Equal(t, "read.rebuilding", fault.CodeOf(err), "replaced before it")
	require.Len(t, source.asked, asked)

	// Also of the version that is not shown any more.
	first, err = ask("")
	require.NoError(t, err)
	v.active = 2
	_, err = ask(first.NextCursor)
	require.NoError(t, err)
	v.generation[1]++
	_, err = ask(first.NextCursor)
	require.Equal(t, "read.rebuilding", fault.CodeOf(err))
}
