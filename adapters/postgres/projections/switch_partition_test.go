package projections_test

import (
	"context"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/postgres"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pgtest"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// buildIn begins a version of one partition.
func (w *sumFixture) buildIn(t *testing.T, version int, p event.PartitionID) {
	t.Helper()
	got, err := w.store.ProjectionVersions.AddProjection(t.Context(), projection.Projection{Name: sumsName, Version: version, Code: 1, Role: projection.Building, Scope: p, Status: projection.Running})
	require.NoError(t, err)
	require.Equal(t, []any{projection.Building, p}, []any{got.Role, got.Scope})
}

func (w *sumFixture) swapIn(ctx context.Context, p event.PartitionID, to int, behind uint64) (int, error) {
	return w.store.ProjectionVersions.SwitchPartition(ctx, ports.PartitionSwitch{
		ProjectionSwitch: ports.ProjectionSwitch{Projection: sumsName, From: 1, To: to, MaxBehind: behind, Partitions: []event.PartitionID{p}, Handler: w, By: "ada"},
		Partition:        p, Tables: sumsTables,
	})
}

func (w *sumFixture) at(t *testing.T, version int, p event.PartitionID) (c ports.Checkpoint) {
	t.Helper()
	all, err := w.store.Projections.Checkpoints(t.Context(), sumsName, version)
	require.NoError(t, err)
	for _, one := range all {
		if one.Partition == p {
			c = one
		}
	}
	return c
}

// count is how many rows there are of a version in a partition.
func (w *sumFixture) count(t *testing.T, version int, p event.PartitionID) (n int) {
	t.Helper()
	require.NoError(t, w.store.Pool().QueryRow(t.Context(), "SELECT count(*) FROM test.sums WHERE version = $1 AND partition_id = $2", version, int32(p)).Scan(&n))
	return n
}

// waiting returns once so many sessions wait for a lock.
func (w *sumFixture) waiting(t *testing.T, n int, what string) {
	t.Helper()
	watcher := pgtest.Connect(t, w.dsn)
	testkit.Eventually(t, pgtest.WaitLimit, func() bool {
		var waiting int
		require.NoError(t, watcher.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'").Scan(&waiting))
		return waiting == n
	}, what)
}

func TestSwitchPartition_ReplacesRows(t *testing.T) {
	t.Parallel()
	w, partitions := newSumFixture(t)
	a, b := partitions[0], partitions[1]
	w.write(t, a, 1, 12)
	w.write(t, b, 1, 4)
	w.advance(t, 1, a, 0)
	w.advance(t, 1, b, 0)
	pgtest.Execute(t, w.dsn, `UPDATE test.sums SET note = 'damaged' WHERE version = 1 AND sequence <= 3`)

	w.buildIn(t, 2, a)
	require.ErrorContains(t, func() error { _, err := w.swapIn(t.Context(), b, 2, 100); return err }(), "changed", "of another partition")
	_, err := w.swapIn(t.Context(), a, 2, 5)
	require.Equal(t, projection.CodeVersionBehind, fault.CodeOf(err), "it has not begun")
	w.advance(t, 2, a, 6)
	_, err = w.swapIn(t.Context(), a, 2, 5)
	require.Equal(t, projection.CodeVersionBehind, fault.CodeOf(err), "it lacks 6")
	require.Equal(t, projection.CodeChanged, fault.CodeOf(w.swap(t, 1, 2, 1000)), "not for all partitions")
	require.Equal(t, uint64(3), w.compare(t, a, 1, 2).Rows())

	before := w.at(t, 1, a)
	kept, err := w.swapIn(t.Context(), a, 2, 50)
	require.NoError(t, err)
	require.Equal(t, 3, kept)
	require.Equal(t, map[int]projection.Role{1: projection.Active, 2: projection.Dropping, 3: projection.Retained}, w.roles(t))
	require.Equal(t, []int{12, 0, 12}, []int{w.count(t, 1, a), w.count(t, 2, a), w.count(t, 3, a)})
	require.Equal(t, uint64(3), w.compare(t, a, 1, 3).Rows(), "what was replaced is kept")
	w.advance(t, 9, a, 0)
	require.Zero(t, w.compare(t, a, 1, 9).Rows(), "as a fold of the log")
	after := w.at(t, 1, a)
	require.Equal(t, []uint64{12, before.Generation + 1, before.Processed}, []uint64{uint64(after.Sequence), after.Generation, after.Processed})
	require.Zero(t, w.at(t, 1, b).Generation, "nothing has happened to the other one")
	require.Zero(t, w.at(t, 2, a).Version, "it has no checkpoint any more")
	_, err = w.swapIn(t.Context(), a, 2, 50)
	require.Equal(t, projection.CodeChanged, fault.CodeOf(err))
	_, _, err = w.store.Projections.Advance(t.Context(), ports.ProjectionAdvance{ProjectionWork: w.work(2, a)}, w)
	require.Equal(t, projection.CodeFenced, fault.CodeOf(err))

	// Both continue, and the way back is as short.
	w.write(t, a, 13, 20)
	w.advance(t, 1, a, 0)
	w.advance(t, 3, a, 0)
	kept, err = w.swapIn(t.Context(), a, 3, 50)
	require.NoError(t, err)
	require.Equal(t, 4, kept)
	require.Equal(t, uint64(3), w.compare(t, a, 1, 9).Rows())
	require.Equal(t, before.Generation+2, w.at(t, 1, a).Generation)

	// A second rebuild takes the place of what is kept; the other partition has its own.
	w.buildIn(t, 5, a)
	w.buildIn(t, 6, b)
	w.advance(t, 5, a, 0)
	w.advance(t, 6, b, 0)
	_, err = w.swapIn(t.Context(), a, 5, 50)
	require.NoError(t, err)
	_, err = w.swapIn(t.Context(), b, 6, 50)
	require.NoError(t, err)
	require.Equal(t, map[int]projection.Role{
		1: projection.Active, 2: projection.Dropping, 3: projection.Dropping, 4: projection.Dropping, 5: projection.Dropping, 6: projection.Dropping,
		7: projection.Retained, 8: projection.Retained,
	}, w.roles(t))
	for version := range 8 {
		for w.roles(t)[version] == projection.Dropping {
			_, err := w.store.ProjectionVersions.SweepProjection(t.Context(), sumsName, version, sumsTables, 100)
			require.NoError(t, err)
		}
	}
	require.Equal(t, map[int]int{1: 24, 7: 20, 8: 4, 9: 20}, w.rows(t))
	w.write(t, a, 21, 22)
	w.advance(t, 1, a, 0)
	w.advance(t, 9, a, 0)
	require.Zero(t, w.compare(t, a, 1, 9).Rows())

	// Of another handler's rows there is no mixture.
	_, err = w.store.ProjectionVersions.AddProjection(t.Context(), projection.Projection{Name: sumsName, Version: 10, Code: 2, Role: projection.Building, Scope: a, Status: projection.Running})
	require.NoError(t, err)
	w.advance(t, 10, a, 0)
	_, err = w.swapIn(t.Context(), a, 10, 50)
	require.Equal(t, projection.CodeOtherCode, fault.CodeOf(err))
	require.Equal(t, 22, w.count(t, 1, a))
}

// TestSwitchPartition_HaltedPartitionContinues: dead letters belong to the rows.
func TestSwitchPartition_HaltedPartitionContinues(t *testing.T) {
	t.Parallel()
	w, partitions := newSumFixture(t)
	a := partitions[0]
	w.write(t, a, 1, 8)
	w.advance(t, 1, a, 5)
	_, err := w.store.Projections.Isolate(t.Context(), ports.ProjectionFailure{ProjectionWork: w.work(1, a), At: 5, Code: "x"}, projection.StopPartition)
	require.NoError(t, err)
	w.buildIn(t, 2, a)
	w.advance(t, 2, a, 4)
	_, err = w.store.Projections.Isolate(t.Context(), ports.ProjectionFailure{ProjectionWork: w.work(2, a), At: 4, Code: "x"}, projection.StopPartition)
	require.NoError(t, err)
	_, err = w.swapIn(t.Context(), a, 2, 50)
	require.Equal(t, projection.CodeVersionHalted, fault.CodeOf(err))
	_, err = w.store.Projections.Fix(t.Context(), ports.ProjectionOperation{ProjectionWork: w.work(2, a), By: "ada"})
	require.NoError(t, err)
	w.advance(t, 2, a, 0)

	_, err = w.swapIn(t.Context(), a, 2, 50)
	require.NoError(t, err)
	require.Equal(t, []any{event.Sequence(8), projection.Reading, ""}, []any{w.at(t, 1, a).Sequence, w.at(t, 1, a).Status, w.at(t, 1, a).Error})
	require.Equal(t, []any{event.Sequence(5), projection.Halted}, []any{w.at(t, 3, a).Sequence, w.at(t, 3, a).Status})
	letters, err := w.store.ProjectionVersions.ListDeadLetters(t.Context(), ports.DeadLetterQuery{Name: sumsName})
	require.NoError(t, err)
	require.Len(t, letters, 2)
	require.Equal(t, []any{1, ports.LetterResolved, 3, ports.LetterWaiting}, []any{letters[0].Version, letters[0].Status, letters[1].Version, letters[1].Status})
}

// TestSwitchPartition_UnderLoad writes, reads and replaces rows of one partition
// forwards and backwards, all at once.
func TestSwitchPartition_UnderLoad(t *testing.T) {
	t.Parallel()
	w, partitions := newSumFixture(t, func(c *postgres.Config) { c.ReadPool = 12 })
	const events = 120
	a := partitions[0]
	w.write(t, a, 1, 40)
	w.buildIn(t, 2, a)
	ctx, stop := context.WithCancel(t.Context())
	var writing, working sync.WaitGroup
	for i, p := range partitions {
		writing.Go(func() {
			for n := 1 + 40*(1-i); n <= events; n++ {
				if _, err := w.store.Appender.Append(ctx, pgtest.Invoice(p, 1)); err != nil {
					t.Errorf("append: %v", err)
					return
				}
			}
		})
		for _, role := range []projection.Role{projection.Active, projection.Building, projection.Retained} {
			working.Go(func() { // a node works each version that has a role now
				for ctx.Err() == nil {
					all, err := w.store.ProjectionVersions.ListProjections(ctx)
					for _, known := range all {
						if known.Role != role || !known.Reads(p) {
							continue
						}
						_, _, err = w.store.Projections.Advance(ctx, ports.ProjectionAdvance{ProjectionWork: w.work(known.Version, p), Limit: 7}, w)
					}
					if err != nil && ctx.Err() == nil && fault.CodeOf(err) != projection.CodeFenced {
						t.Errorf("%s: %v", role, err)
						return
					}
				}
			})
		}
		working.Go(func() { // a reader, who never sees less than before
			last := int64(0)
			for ctx.Err() == nil {
				var n, top, total int64
				err := w.store.Pool().QueryRow(ctx, `SELECT count(*), coalesce(max(sequence), 0), coalesce(max(total), 0) FROM test.sums WHERE partition_id = $1 AND version = 1`,
					int32(p)).Scan(&n, &top, &total)
				if err != nil {
					continue
				}
				if n != top || total != top*(top+1)/2 || top < last {
					t.Errorf("%d shows %d rows up to %d with the sum %d, after %d", p, n, top, total, last)
					return
				}
				last = top
			}
		})
	}
	written := make(chan struct{})
	go func() { writing.Wait(); close(written) }()
	other, switched := 2, 0
	for done := false; !done || switched < 3; {
		switch kept, err := w.swapIn(ctx, a, other, 30); {
		case err == nil:
			other, switched = kept, switched+1
		case fault.CodeOf(err) != projection.CodeVersionBehind:
			require.NoError(t, err)
		}
		select {
		case <-written:
			done = true
		default:
		}
	}
	testkit.Eventually(t, pgtest.WaitLimit, func() bool { return w.rows(t)[1] == 2*events && w.rows(t)[other] == events }, "all have caught up")
	stop()
	working.Wait()
	for _, p := range partitions {
		w.advance(t, 999, p, 0)
		require.Zero(t, w.compare(t, p, 999, 1).Rows())
	}
	require.Zero(t, w.compare(t, a, 999, other).Rows())
	require.Equal(t, uint64(switched), w.at(t, 1, a).Generation)
}

// TestSwitchPartition_ConcurrentSwitches lets what excludes one another wait for the same
// checkpoint.
func TestSwitchPartition_ConcurrentSwitches(t *testing.T) {
	t.Parallel()
	for name, rival := range map[string]func(*sumFixture, context.Context, event.PartitionID) error{
		"another node": func(w *sumFixture, ctx context.Context, a event.PartitionID) error {
			_, err := w.swapIn(ctx, a, 2, 50)
			return err
		},
		"a reset": func(w *sumFixture, ctx context.Context, a event.PartitionID) error {
			_, err := w.store.Projections.Reset(ctx, ports.ProjectionOperation{ProjectionWork: w.work(1, a), By: "eve"}, w)
			return err
		},
		"a switch of all": func(w *sumFixture, ctx context.Context, _ event.PartitionID) error {
			return w.store.ProjectionVersions.SwitchProjection(ctx, ports.ProjectionSwitch{Projection: sumsName, From: 1, To: 4, MaxBehind: 50, Handler: w, By: "eve"})
		},
		"a cancellation": func(w *sumFixture, ctx context.Context, _ event.PartitionID) error {
			return w.store.ProjectionVersions.DropProjection(ctx, sumsName, 2, "eve")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, partitions := newSumFixture(t)
			a := partitions[0]
			w.write(t, a, 1, 9)
			w.advance(t, 1, a, 0)
			w.buildIn(t, 2, a)
			w.advance(t, 2, a, 0)
			w.build(t, 4)
			w.advance(t, 4, a, 0)
			w.advance(t, 9, a, 0)

			held, err := pgtest.Connect(t, w.dsn).Begin(t.Context())
			require.NoError(t, err)
			_, err = held.Exec(t.Context(), "SELECT FROM backbone.projection_checkpoints WHERE projection = $1 AND partition_id = $2 FOR UPDATE", sumsName, int32(a))
			require.NoError(t, err)
			ours, theirs := make(chan error, 1), make(chan error, 1)
			go func() { _, err := w.swapIn(context.Background(), a, 2, 50); ours <- err }()
			go func() { theirs <- rival(w, context.Background(), a) }()
			w.waiting(t, 2, "both wait")
			require.NoError(t, held.Rollback(t.Context()))
			own, other := <-ours, <-theirs
			for _, err := range []error{own, other} {
				if err != nil {
					require.Equal(t, projection.CodeChanged, fault.CodeOf(err))
				}
			}
			require.False(t, own != nil && other != nil, "one of them wins")
			// A reset, and a switch of all to another version, are right before and after it.
			require.False(t, (name == "another node" || name == "a cancellation") && own == nil && other == nil, "and only one")

			active, err := w.store.ProjectionVersions.ActiveProjection(t.Context(), sumsName)
			require.NoError(t, err)
			w.advance(t, active, a, 0)
			require.Zero(t, w.compare(t, a, 9, active).Rows())
			for version, role := range w.roles(t) {
				if role.IsLive() {
					w.advance(t, version, a, 0)
					require.Zero(t, w.compare(t, a, 9, version).Rows(), "version %d", version)
				}
			}
		})
	}
}

// Reset implements ports.ProjectionResetter.
func (w *sumFixture) Reset(ctx context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch) error {
	_, err := tx.(pgx.Tx).Exec(ctx, "DELETE FROM test.sums WHERE partition_id = $1 AND version = $2", int32(b.Partition), int32(b.Version))
	return err
}

// TestSwitchPartition_IsAtomic ends the session in the middle of the rows.
func TestSwitchPartition_IsAtomic(t *testing.T) {
	t.Parallel()
	w, partitions := newSumFixture(t)
	a := partitions[0]
	w.write(t, a, 1, 9)
	w.advance(t, 1, a, 0)
	w.buildIn(t, 2, a)
	w.advance(t, 2, a, 0)
	blocker, err := pgtest.Connect(t, w.dsn).Begin(t.Context())
	require.NoError(t, err)
	_, err = blocker.Exec(t.Context(), "SELECT FROM test.sums WHERE version = 2 AND sequence = 5 FOR UPDATE")
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { _, err := w.swapIn(context.Background(), a, 2, 50); done <- err }()
	w.waiting(t, 1, "it is in the middle")
	var ended int
	require.NoError(t, pgtest.Connect(t, w.dsn).QueryRow(t.Context(), `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
		WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&ended))
	require.Equal(t, 1, ended)
	require.Equal(t, fault.Unavailable, fault.KindOf(<-done))
	require.NoError(t, blocker.Rollback(t.Context()))
	require.Equal(t, map[int]int{1: 9, 2: 9}, w.rows(t))
	require.Equal(t, map[int]projection.Role{1: projection.Active, 2: projection.Building}, w.roles(t))
	_, err = w.swapIn(t.Context(), a, 2, 50)
	require.NoError(t, err)
	require.Equal(t, map[int]int{1: 9, 3: 9}, w.rows(t))
}
