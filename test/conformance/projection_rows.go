package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
)

// rowPromises are those of the rows of projections that were created at run time.
var rowPromises = []promise{
	{"RowsAreOfTheirVersionAndPartition", rowsApart},
	{"RowsOfAFailedBatchAreNotThere", rowsRolledBack},
	{"RowsArePagedByTheBytesOfTheirKeys", rowsPaged},
	{"ForgettingEmptiesOnePartition", rowsForgotten},
	{"AnEndedProjectionIsWorkedByNobodyAndSweptInSteps", rowsSwept},
	{"RowsAreReplacedByThoseOfAnotherFold", rowsRefolded},
}

// onRows calls f in the transaction of a batch, so that it may write rows.
type onRows func(ctx context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch) error

func (f onRows) Apply(ctx context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch) error {
	return f(ctx, tx, b)
}

// rows makes an event and writes rows with its checkpoint.
func (b *book) rows(t tester, name string, version int, gone []string, keys ...string) error {
	t.Helper()
	b.write(t, b.event(b.changed, stream("r")))
	_, _, err := b.store.Advance(context.Background(), b.step(name, version, nil, 0), onRows(func(ctx context.Context, tx ports.ProjectionTx, batch ports.ProjectionBatch) error {
		rows := make([]ports.ProjectionRow, len(keys))
		for i, key := range keys {
			rows[i] = ports.ProjectionRow{Key: key, State: json.RawMessage(fmt.Sprintf(`{"z": 1.10, "of": %q}`, key)), Sequence: batch.Events[0].Sequence}
		}
		return b.store.StoreProjectionRows(ctx, tx, batch, rows, gone)
	}))
	return err
}

func (b *book) listRows(t tester, q ports.ProjectionRowQuery) (keys []string, at event.Sequence) {
	t.Helper()
	q.Partition = b.le.Partition
	if q.Limit == 0 {
		q.Limit = 100
	}
	rows, at, err := b.store.ListProjectionRows(context.Background(), q)
	require.NoError(t, err)
	keys = []string{}
	for _, r := range rows {
		require.Equal(t, fmt.Sprintf(`{"z": 1.10, "of": %q}`, r.Key), string(r.State), "a state keeps its bytes")
		require.NotZero(t, r.Sequence)
		keys = append(keys, r.Key)
	}
	return keys, at
}

func rowsApart(t *testing.T, s *suite) {
	a, b := s.newBook(t), s.newBook(t)
	name := s.unique("rows")
	require.NoError(t, a.rows(t, name, 1, nil, "x", "y"))
	require.NoError(t, a.rows(t, name, 2, nil, "z"))
	require.NoError(t, b.rows(t, name, 1, nil, "w"))
	require.NoError(t, a.rows(t, name, 1, []string{"x", "absent"}, "y", "v"))
	keys, at := a.listRows(t, ports.ProjectionRowQuery{Projection: name, Version: 1})
	require.Equal(t, []string{"v", "y"}, keys)
	require.Equal(t, a.head(t).Sequence, at)
	keys, _ = a.listRows(t, ports.ProjectionRowQuery{Projection: name, Version: 2})
	require.Equal(t, []string{"z"}, keys)
	keys, _ = b.listRows(t, ports.ProjectionRowQuery{Projection: name, Version: 1})
	require.Equal(t, []string{"w"}, keys)
	a.write(t, a.event(a.changed, stream("r")))
	_, _, err := a.store.Advance(context.Background(), a.step(name, 1, nil, 0), onRows(func(ctx context.Context, tx ports.ProjectionTx, batch ports.ProjectionBatch) error {
		found, err := a.store.LoadProjectionRows(ctx, tx, batch, []string{"y", "x", "z", "w"})
		require.NoError(t, err)
		require.Len(t, found, 1)
		require.Equal(t, `{"z": 1.10, "of": "y"}`, string(found["y"].State))
		return nil
	}))
	require.NoError(t, err)
}

func rowsRolledBack(t *testing.T, s *suite) {
	b, name := s.newBook(t), s.unique("rows")
	require.NoError(t, b.rows(t, name, 1, nil, "kept"))
	b.write(t, b.event(b.changed, stream("r")))
	_, _, err := b.store.Advance(context.Background(), b.step(name, 1, nil, 0), onRows(func(ctx context.Context, tx ports.ProjectionTx, batch ports.ProjectionBatch) error {
		require.NoError(t, b.store.StoreProjectionRows(ctx, tx, batch, []ports.ProjectionRow{{Key: "lost", State: json.RawMessage(`{}`), Sequence: 1}}, []string{"kept"}))
		return fault.New(fault.FailedPrecondition, "test.refused", "no")
	}))
	require.Equal(t, "test.refused", fault.CodeOf(err))
	keys, _ := b.listRows(t, ports.ProjectionRowQuery{Projection: name, Version: 1})
	require.Equal(t, []string{"kept"}, keys)
}

func rowsPaged(t *testing.T, s *suite) {
	b, name := s.newBook(t), s.unique("rows")
	sorted := []string{"A", "B", "a", "a%", "a_1", "ab", "b", "\u00e4", "\U0001f600"}
	require.NoError(t, b.rows(t, name, 1, nil, "\u00e4", "b", "a_1", "\U0001f600", "A", "ab", "a", "B", "a%"))
	q := ports.ProjectionRowQuery{Projection: name, Version: 1, Limit: 2}
	var all []string
	for {
		page, _ := b.listRows(t, q)
		all = append(all, page...)
		if len(page) < q.Limit {
			break
		}
		q.After = page[len(page)-1]
	}
	require.Equal(t, sorted, all)
	page, _ := b.listRows(t, ports.ProjectionRowQuery{Projection: name, Version: 1, Prefix: "a"})
	require.Equal(t, []string{"a", "a%", "a_1", "ab"}, page)
	page, _ = b.listRows(t, ports.ProjectionRowQuery{Projection: name, Version: 1, Prefix: "a_"})
	require.Equal(t, []string{"a_1"}, page)
	page, _ = b.listRows(t, ports.ProjectionRowQuery{Projection: name, Version: 1, Key: "a"})
	require.Equal(t, []string{"a"}, page)
}

func rowsForgotten(t *testing.T, s *suite) {
	a, b := s.newBook(t), s.newBook(t)
	name := s.unique("rows")
	require.NoError(t, a.rows(t, name, 1, nil, "x", "y"))
	require.NoError(t, b.rows(t, name, 1, nil, "z"))
	a.write(t, a.event(a.changed, stream("r")))
	_, _, err := a.store.Advance(context.Background(), a.step(name, 1, nil, 0), onRows(func(ctx context.Context, tx ports.ProjectionTx, batch ports.ProjectionBatch) error {
		return a.store.ForgetProjectionRows(ctx, tx, batch)
	}))
	require.NoError(t, err)
	keys, _ := a.listRows(t, ports.ProjectionRowQuery{Projection: name, Version: 1})
	require.Empty(t, keys)
	keys, _ = b.listRows(t, ports.ProjectionRowQuery{Projection: name, Version: 1})
	require.Equal(t, []string{"z"}, keys)
}

func rowsRefolded(t *testing.T, s *suite) {
	ctx := context.Background()
	b := s.newBook(t)
	name := b.versions(t)
	work := ports.ProjectionWork{Projection: name, Version: 1, Partition: b.le.Partition}
	_, begun, err := s.store.FoldPoint(ctx, work)
	require.NoError(t, err)
	require.False(t, begun)
	require.NoError(t, b.rows(t, name, 1, nil, "a", "b", "c"))
	since, begun, err := s.store.FoldPoint(ctx, work)
	require.NoError(t, err)
	require.True(t, begun)
	require.Equal(t, b.head(t).Sequence, since.Sequence)
	require.NoError(t, b.rows(t, name, 1, nil, "a"))
	require.NoError(t, b.rows(t, name, 1, nil, "d"))
	var handed []event.Sequence
	refold := func(r ports.RowRefold) (ports.TargetChange, error) {
		r.ProjectionWork, r.Since, r.Folded, r.By = work, since, since.Sequence, "ada"
		r.Keys = []string{"a", "b", "x"}
		rows := map[string]ports.ProjectionRow{}
		return s.store.RefoldRows(ctx, r, func() (ports.ProjectionHandler, func() map[string]ports.ProjectionRow) {
			handed = nil
			return onRows(func(_ context.Context, _ ports.ProjectionTx, batch ports.ProjectionBatch) error {
				for _, e := range batch.Events {
					handed = append(handed, e.Sequence)
				}
				for _, key := range []string{"a", "x"} {
					rows[key] = ports.ProjectionRow{Key: key, State: json.RawMessage(fmt.Sprintf(`{"z": 1.10, "of": %q}`, key)), Sequence: 1}
				}
				return nil
			}), func() map[string]ports.ProjectionRow { return rows }
		})
	}
	_, err = refold(ports.RowRefold{Limit: 1})
	require.Equal(t, projection.CodeChanged, fault.CodeOf(err), "more came than may be read while the checkpoint is held")
	for _, dry := range []bool{true, false} {
		before := b.checkpointOf(t, name, 1)
		change, err := refold(ports.RowRefold{Limit: 2, DryRun: dry})
		require.NoError(t, err)
		require.Equal(t, []event.Sequence{since.Sequence + 1, since.Sequence + 2}, handed)
		require.Equal(t, []any{before.Sequence, 2, uint64(3)}, []any{change.Sequence, change.Events, change.Rows()})
		require.Equal(t, []uint64{2, 2, 1, 1, 1}, []uint64{
			change.Tables[0].LeftRows, change.Tables[0].RightRows, change.Tables[0].OnlyLeft, change.Tables[0].OnlyRight, change.Tables[0].Changed,
		})
		keys, _ := b.listRows(t, ports.ProjectionRowQuery{Projection: name, Version: 1})
		after := b.checkpointOf(t, name, 1)
		if dry {
			require.Equal(t, []string{"a", "b", "c", "d"}, keys)
			require.Equal(t, before, after)
			continue
		}
		require.Equal(t, []string{"a", "c", "d", "x"}, keys)
		require.Equal(t, before.Generation+1, after.Generation)
	}
	_, err = refold(ports.RowRefold{Limit: 2})
	require.Equal(t, projection.CodeChanged, fault.CodeOf(err), "the rows were replaced meanwhile")
	require.NoError(t, s.store.EndProjection(ctx, name, "ada"))
	_, err = refold(ports.RowRefold{Limit: 2})
	require.Equal(t, projection.CodeFenced, fault.CodeOf(err))
}

func rowsSwept(t *testing.T, s *suite) {
	b, name := s.newBook(t), s.unique("rows")
	ctx := context.Background()
	(&recorder{book: b}).register(t, name)
	require.NoError(t, b.rows(t, name, 1, nil, "a", "b", "c"))
	require.Equal(t, "projection.not_found", fault.CodeOf(s.store.EndProjection(ctx, name+"-other", "ada")))
	require.NoError(t, s.store.EndProjection(ctx, name, "ada"))
	require.Equal(t, "projection.not_found", fault.CodeOf(s.store.EndProjection(ctx, name, "ada")))
	require.Equal(t, projection.Dropping, s.registered(t, name).Role)
	require.Equal(t, projection.CodeFenced, fault.CodeOf(b.rows(t, name, 1, nil, "d")))
	var removed []int64
	for s.registered(t, name).Role == projection.Dropping {
		n, err := s.store.SweepProjection(ctx, name, 1, []ports.ProjectionTable{ports.ProjectionRowTable}, 2)
		require.NoError(t, err)
		removed = append(removed, n)
		require.Less(t, len(removed), 1000)
	}
	require.Zero(t, removed[len(removed)-1])
	// Where there are many legal entities, a call looks at some that have no rows.
	require.Equal(t, []int64{2, 1}, slices.DeleteFunc(removed, func(n int64) bool { return n == 0 }))
	require.Equal(t, projection.Dropped, s.registered(t, name).Role)
	keys, _ := b.listRows(t, ports.ProjectionRowQuery{Projection: name, Version: 1})
	require.Empty(t, keys)
}
