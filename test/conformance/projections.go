package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
)

var projectionPromises = []promise{
	{"each event is applied exactly once in order", advanceOnce},
	{"batch holds at most the limit", advanceLimit},
	{"only requested types are delivered", advanceTypes},
	{"failed handler leaves checkpoint and read model untouched", handlerFails},
	{"several workers apply each event once", advanceRace},
	{"versions and partitions have separate checkpoints", ownCheckpoints},
}

// recorder is a projection that writes one row per event, numbered by how often
// it got the event, so that the read model reveals a repetition.
type recorder struct {
	*partition
	mu    sync.Mutex
	seen  []event.Sequence
	sizes []int
	after func() error // runs after the writes, before the end of Apply
}

func (r *recorder) Apply(ctx context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sizes = append(r.sizes, len(b.Events))
	for _, e := range b.Events {
		if err := r.readModel.Put(ctx, tx, r.le.Partition, fmt.Sprintf("%06d", e.Sequence), e.ID.String()); err != nil {
			return err
		}
		r.seen = append(r.seen, e.Sequence)
	}
	if r.after != nil {
		return r.after()
	}
	return nil
}

func (b *partition) step(name string, version int, types []string, limit int) ports.ProjectionAdvance {
	return ports.ProjectionAdvance{ProjectionWork: b.work(name, version), Types: types, Limit: limit}
}

func (b *partition) work(name string, version int) ports.ProjectionWork {
	return ports.ProjectionWork{Projection: name, Version: version, Partition: b.le.Partition}
}

func (r *recorder) advance(t tester, name string, limit int) (ports.Checkpoint, int) {
	t.Helper()
	c, passed, err := r.store.Advance(context.Background(), r.step(name, 1, []string{r.opened.Type, r.changed.Type}, limit), r)
	require.NoError(t, err)
	return c, passed
}

func (r *recorder) committed(t tester) map[string]string {
	t.Helper()
	rows, err := r.readModel.Committed(context.Background(), r.le.Partition)
	require.NoError(t, err)
	return rows
}

// catchUp advances until nothing is left and returns the last checkpoint.
func (r *recorder) catchUp(t *testing.T, name string, limit int) ports.Checkpoint {
	t.Helper()
	for range 100 {
		if c, passed := r.advance(t, name, limit); passed == 0 {
			return c
		}
	}
	t.Fatal("the projection does not catch up")
	return ports.Checkpoint{}
}

func advanceOnce(t *testing.T, s *suite) {
	b := s.ten(t)
	h, name := &recorder{partition: b}, b.unique("projection")
	c := h.catchUp(t, name, 3)
	require.Equal(t, event.Sequence(10), c.Sequence)
	require.Equal(t, upTo(10), h.seen)
	b.write(t, b.event(s.opened, stream("1")))
	c = h.catchUp(t, name, 3)
	require.Equal(t, event.Sequence(11), c.Sequence)
	require.Equal(t, upTo(11), h.seen)
	rows := h.committed(t)
	require.Len(t, rows, 11)
	for _, e := range b.all(t) {
		require.Equal(t, e.ID.String(), rows[fmt.Sprintf("%06d", e.Sequence)])
	}
	list, err := b.store.Checkpoints(context.Background(), name, 1)
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Equal(t, b.le.Partition, list[0].Partition)
	require.Equal(t, event.Sequence(11), list[0].Sequence)
	require.Equal(t, "running", list[0].Status)
	require.Equal(t, name, list[0].Projection)
	require.Equal(t, 1, list[0].Version)
}

func advanceLimit(t *testing.T, s *suite) {
	b := s.ten(t)
	h := &recorder{partition: b}
	h.catchUp(t, b.unique("projection"), 4)
	require.Equal(t, []int{4, 4, 2}, h.sizes, "a handler gets at most the limit, and is not called without events")
}

func advanceTypes(t *testing.T, s *suite) {
	b := s.newPartition(t)
	for range 3 {
		b.write(t, b.event(s.closed, stream("1")), b.event(s.closed, stream("1")), b.event(s.opened, stream("1")), b.event(s.closed, stream("1")))
	}
	h, name := &recorder{partition: b}, b.unique("projection") // asks for opened and changed
	c := h.catchUp(t, name, 2)
	require.Equal(t, []event.Sequence{3, 7, 11}, h.seen)
	require.Equal(t, event.Sequence(12), c.Sequence, "the checkpoint passes events of other types")
}

func handlerFails(t *testing.T, s *suite) {
	b := s.ten(t)
	ctx := context.Background()
	h, name := &recorder{partition: b}, b.unique("projection")
	c, passed := h.advance(t, name, 3)
	require.Equal(t, 3, passed)
	require.Equal(t, event.Sequence(3), c.Sequence)
	broken := errors.New("the handler broke")
	h.after = func() error { return broken }
	for range 2 {
		_, _, err := b.store.Advance(ctx, b.step(name, 1, []string{s.changed.Type}, 3), h)
		require.ErrorIs(t, err, broken)
		require.Len(t, h.committed(t), 3, "the rows of a failed batch were kept")
		list, err := b.store.Checkpoints(ctx, name, 1)
		require.NoError(t, err)
		require.Len(t, list, 1)
		require.Equal(t, event.Sequence(3), list[0].Sequence, "the checkpoint moved past a failed batch")
	}
	h.after = nil
	h.catchUp(t, name, 3)
	require.Equal(t, append(append(upTo(6), 4, 5, 6), upTo(10)[3:]...), h.seen)
	require.Len(t, h.committed(t), 10)
}

func advanceRace(t *testing.T, s *suite) {
	b := s.ten(t)
	for range 5 {
		h, name := &recorder{partition: b}, b.unique("projection")
		total := make([]int, 4)
		errs := race(len(total), func(i int) error {
			for {
				_, passed, err := b.store.Advance(context.Background(), b.step(name, 1, []string{s.changed.Type}, 1), h)
				if err != nil || passed == 0 {
					return err
				}
				total[i] += passed
			}
		})
		sum := 0
		for i := range errs {
			require.NoError(t, errs[i])
			sum += total[i]
		}
		require.Equal(t, 10, sum)
		require.Equal(t, upTo(10), h.seen)
	}
}

func ownCheckpoints(t *testing.T, s *suite) {
	a, b := s.ten(t), s.ten(t)
	ctx := context.Background()
	name := a.unique("projection")
	for _, c := range []struct {
		partition *partition
		version   int
		limit     int
	}{{a, 1, 4}, {a, 2, 3}, {b, 1, 2}} {
		h := &recorder{partition: c.partition}
		checkpoint, passed, err := s.store.Advance(ctx, c.partition.step(name, c.version, []string{s.changed.Type}, c.limit), h)
		require.NoError(t, err)
		require.Equal(t, c.limit, passed)
		require.Equal(t, event.Sequence(c.limit), checkpoint.Sequence)
		require.Equal(t, upTo(c.limit), h.seen)
	}
	list, err := s.store.Checkpoints(ctx, name, 1)
	require.NoError(t, err)
	got := map[event.PartitionID]event.Sequence{}
	for _, c := range list {
		got[c.Partition] = c.Sequence
	}
	require.Equal(t, map[event.PartitionID]event.Sequence{a.le.Partition: 4, b.le.Partition: 2}, got)
}

var wakeUpPromises = []promise{
	{"listener wakes when a partition grows", wakeUp},
}

// wakeUp appends until the listener is notified, since one signal may be lost.
func wakeUp(t *testing.T, s *suite) {
	b := s.newPartition(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	notified := make(chan struct{})
	var once sync.Once
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.store.Listen(ctx, func(p event.PartitionID) {
			if p == b.le.Partition {
				once.Do(func() { close(notified) })
			}
		})
	}()
	waitFor(t, notified, func() { b.write(t, b.event(s.opened, stream("1"))) })
	cancel()
	waitFor(t, ended, func() {})
}

// rowPromises are those of the rows of projections that were created at run time.
var rowPromises = []promise{
	{"rows belong to version and partition", rowsSeparate},
	{"failed batch stores no rows", rowsRolledBack},
	{"rows are paged by the bytes of their keys", rowsPaged},
	{"forget removes rows of one partition", rowsForgotten},
	{"ended projection is swept in steps", rowsSwept},
	{"recomputed rows replace rows", rowsRecomputed},
}

// onRows calls f in the transaction of a batch, so that it may write rows.
type onRows func(ctx context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch) error

func (f onRows) Apply(ctx context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch) error {
	return f(ctx, tx, b)
}

// rows makes an event and writes rows with its checkpoint.
func (b *partition) rows(t tester, name string, version int, gone []string, keys ...string) error {
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

func (b *partition) listRows(t tester, q ports.ProjectionRowQuery) (keys []string, at event.Sequence) {
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

func rowsSeparate(t *testing.T, s *suite) {
	a, b := s.newPartition(t), s.newPartition(t)
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
	b, name := s.newPartition(t), s.unique("rows")
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
	b, name := s.newPartition(t), s.unique("rows")
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
	a, b := s.newPartition(t), s.newPartition(t)
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

func rowsRecomputed(t *testing.T, s *suite) {
	ctx := context.Background()
	b := s.newPartition(t)
	name := b.versions(t)
	work := ports.ProjectionWork{Projection: name, Version: 1, Partition: b.le.Partition}
	_, begun, err := s.store.RowPosition(ctx, work)
	require.NoError(t, err)
	require.False(t, begun)
	require.NoError(t, b.rows(t, name, 1, nil, "a", "b", "c"))
	since, begun, err := s.store.RowPosition(ctx, work)
	require.NoError(t, err)
	require.True(t, begun)
	require.Equal(t, b.head(t).Sequence, since.Sequence)
	require.NoError(t, b.rows(t, name, 1, nil, "a"))
	require.NoError(t, b.rows(t, name, 1, nil, "d"))
	var applied []event.Sequence
	recompute := func(r ports.RowRecompute) (ports.TargetChange, error) {
		r.ProjectionWork, r.Since, r.ReadThrough, r.By = work, since, since.Sequence, "ada"
		r.Keys = []string{"a", "b", "x"}
		rows := map[string]ports.ProjectionRow{}
		return s.store.RecomputeRows(ctx, r, func() (ports.ProjectionHandler, func() map[string]ports.ProjectionRow) {
			applied = nil
			return onRows(func(_ context.Context, _ ports.ProjectionTx, batch ports.ProjectionBatch) error {
				for _, e := range batch.Events {
					applied = append(applied, e.Sequence)
				}
				for _, key := range []string{"a", "x"} {
					rows[key] = ports.ProjectionRow{Key: key, State: json.RawMessage(fmt.Sprintf(`{"z": 1.10, "of": %q}`, key)), Sequence: 1}
				}
				return nil
			}), func() map[string]ports.ProjectionRow { return rows }
		})
	}
	_, err = recompute(ports.RowRecompute{Limit: 1})
	require.Equal(t, projection.CodeChanged, fault.CodeOf(err), "more came than may be read while the checkpoint is held")
	for _, dry := range []bool{true, false} {
		before := b.checkpointOf(t, name, 1)
		change, err := recompute(ports.RowRecompute{Limit: 2, DryRun: dry})
		require.NoError(t, err)
		require.Equal(t, []event.Sequence{since.Sequence + 1, since.Sequence + 2}, applied)
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
	_, err = recompute(ports.RowRecompute{Limit: 2})
	require.Equal(t, projection.CodeChanged, fault.CodeOf(err), "the rows were replaced since")
	require.NoError(t, s.store.EndProjection(ctx, name, "ada"))
	_, err = recompute(ports.RowRecompute{Limit: 2})
	require.Equal(t, projection.CodeFenced, fault.CodeOf(err))
}

func rowsSwept(t *testing.T, s *suite) {
	b, name := s.newPartition(t), s.unique("rows")
	ctx := context.Background()
	(&recorder{partition: b}).register(t, name)
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
