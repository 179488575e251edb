package projections_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/postgres"
	"github.com/erpbackbone/backbone/adapters/postgres/eventlog"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pgtest"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/conformance"
	"github.com/erpbackbone/backbone/test/testkit"
)

// saving begins a snapshot of the first version in all partitions, or in one.
func (w *sumFixture) saving(t *testing.T, version int, scope event.PartitionID) {
	t.Helper()
	p, err := w.store.ProjectionVersions.AddProjection(t.Context(), projection.Projection{Name: sumsName, Version: version, Code: 1, Role: projection.Saving, Scope: scope, Status: projection.Running})
	require.NoError(t, err)
	require.Equal(t, []any{projection.Saving, scope}, []any{p.Role, p.Scope})
	require.NoError(t, w.store.ProjectionSnapshots.PlanSnapshot(t.Context(), sumsName, version, 1))
}

func (w *sumFixture) part(version int, p event.PartitionID) ports.SnapshotCopy {
	return ports.SnapshotCopy{Projection: sumsName, Version: version, Partition: p, Tables: sumsTables, Authenticate: conformance.AuthenticatePart("secret")}
}

func (w *sumFixture) save(t *testing.T, version int, partitions ...event.PartitionID) {
	t.Helper()
	for _, p := range partitions {
		done, err := w.store.ProjectionSnapshots.SavePart(t.Context(), w.part(version, p))
		require.NoError(t, err)
		require.True(t, done)
	}
	require.NoError(t, w.store.ProjectionSnapshots.FinishSnapshot(t.Context(), sumsName, version, 3, "ada"))
}

func (w *sumFixture) restore(t *testing.T, version, to int, p event.PartitionID) {
	t.Helper()
	c := w.part(version, p)
	c.To = to
	done, err := w.store.ProjectionSnapshots.RestorePart(t.Context(), c)
	require.NoError(t, err)
	require.True(t, done)
}

func (w *sumFixture) parts(t *testing.T) map[int]map[event.PartitionID]ports.SnapshotPart {
	t.Helper()
	all, err := w.store.ProjectionSnapshots.SnapshotParts(t.Context(), sumsName)
	require.NoError(t, err)
	out := map[int]map[event.PartitionID]ports.SnapshotPart{}
	for _, part := range all {
		if out[part.Version] == nil {
			out[part.Version] = map[event.PartitionID]ports.SnapshotPart{}
		}
		out[part.Version][part.Partition] = part
	}
	return out
}

func TestSnapshots_StartRebuild(t *testing.T) {
	t.Parallel()
	w, partitions := newSumFixture(t)
	a, b := partitions[0], partitions[1]
	w.write(t, a, 1, 12)
	w.write(t, b, 1, 4)
	w.advance(t, 1, a, 10)
	w.advance(t, 1, b, 0)
	w.saving(t, 2, 0)
	w.save(t, 2, a, b)
	parts := w.parts(t)[2]
	require.Equal(t, []any{event.Sequence(10), uint64(10), true}, []any{parts[a].Sequence, parts[a].Rows, parts[a].Usable})
	require.Equal(t, []any{event.Sequence(4), uint64(4), true}, []any{parts[b].Sequence, parts[b].Rows, parts[b].Usable})
	require.False(t, parts[a].TakenAt.IsZero())
	_, _, err := w.store.Projections.Advance(t.Context(), ports.ProjectionAdvance{ProjectionWork: w.work(2, a)}, w)
	require.Equal(t, projection.CodeFenced, fault.CodeOf(err), "no node writes it")
	require.ErrorContains(t, w.swap(t, 1, 2, 1000), "changed", "and readers do not see it")

	// It lacks later changes of the active rows.
	w.advance(t, 1, a, 0)
	pgtest.Execute(t, w.dsn, `UPDATE test.sums SET total = total + 1 WHERE version = 1 AND sequence = 3`)
	w.build(t, 3)
	w.restore(t, 2, 3, a)
	w.restore(t, 2, 3, b)
	require.Equal(t, map[int]int{1: 16, 2: 14, 3: 14}, w.rows(t))
	require.Equal(t, []any{event.Sequence(10), projection.Reading, false}, []any{w.at(t, 3, a).Sequence, w.at(t, 3, a).Status, w.at(t, 3, a).LastEventAt.IsZero()})
	w.restore(t, 2, 3, a) // again
	require.Equal(t, event.Sequence(12), w.advance(t, 3, a, 0))
	w.restore(t, 2, 3, a) // and never over what came after it
	require.Equal(t, 12, w.count(t, 3, a))
	d := w.compare(t, a, 1, 3)
	require.Equal(t, uint64(1), d.Rows(), "the damage, and nothing else: %+v", d)
	w.advance(t, 9, a, 0)
	require.Zero(t, w.compare(t, a, 9, 3).Rows())

	// It is as good for one partition, and the other way round.
	w.saving(t, 4, a)
	require.Len(t, w.parts(t)[4], 1)
	w.save(t, 4, a)
	w.buildIn(t, 5, b)
	w.restore(t, 2, 5, b)
	require.Equal(t, 4, w.count(t, 5, b))
	w.restore(t, 2, 5, a)
	require.Equal(t, projection.Saved, w.roles(t)[4], "of the other partition")
}

// TestSnapshots_KeepNewest: those of one partition do not push out those of all.
func TestSnapshots_KeepNewest(t *testing.T) {
	t.Parallel()
	w, partitions := newSumFixture(t)
	a := partitions[0]
	w.write(t, a, 1, 3)
	w.advance(t, 1, a, 0)
	for version := 2; version <= 6; version++ {
		w.saving(t, version, 0)
		w.save(t, version, a)
	}
	w.saving(t, 7, a)
	w.save(t, 7, a)
	require.Equal(t, map[int]projection.Role{
		1: projection.Active, 2: projection.Dropping, 3: projection.Dropping, 4: projection.Saved, 5: projection.Saved, 6: projection.Saved, 7: projection.Saved,
	}, w.roles(t))
	require.Len(t, w.parts(t), 4)
	c := w.part(2, a)
	c.To = 8
	w.build(t, 8)
	done, err := w.store.ProjectionSnapshots.RestorePart(t.Context(), c)
	require.NoError(t, err)
	require.False(t, done, "what is dropped is not copied")
	for _, version := range []int{2, 3} {
		for w.roles(t)[version] == projection.Dropping {
			_, err := w.store.ProjectionVersions.SweepProjection(t.Context(), sumsName, version, sumsTables, 2)
			require.NoError(t, err)
		}
	}
	require.Equal(t, map[int]int{1: 3, 4: 3, 5: 3, 6: 3, 7: 3}, w.rows(t))
	require.NoError(t, w.store.ProjectionVersions.DropProjection(t.Context(), sumsName, 4, "ada"))
	require.Equal(t, projection.Dropping, w.roles(t)[4])
	require.Equal(t, projection.CodeChanged, fault.CodeOf(w.store.ProjectionSnapshots.FinishSnapshot(t.Context(), sumsName, 4, 3, "ada")))
}

// TestSnapshots_AreConsistent takes snapshots of a projection that continues all the time.
func TestSnapshots_AreConsistent(t *testing.T) {
	t.Parallel()
	w, partitions := newSumFixture(t, func(c *postgres.Config) { c.ReadPool = 12 })
	a := partitions[0]
	const events, snapshots = 120, 6
	ctx, stop := context.WithCancel(t.Context())
	var writing, working sync.WaitGroup
	writing.Go(func() { w.write(t, a, 1, events) })
	working.Go(func() {
		for ctx.Err() == nil {
			if _, _, err := w.store.Projections.Advance(ctx, ports.ProjectionAdvance{ProjectionWork: w.work(1, a), Limit: 3}, w); err != nil && ctx.Err() == nil {
				t.Errorf("advance: %v", err)
				return
			}
		}
	})
	testkit.Eventually(t, pgtest.WaitLimit, func() bool { return w.at(t, 1, a).Sequence > 0 }, "it has begun")
	for n := range snapshots {
		w.saving(t, 2+n, 0)
		var nodes sync.WaitGroup
		for range 3 { // nodes that find the same part
			nodes.Go(func() {
				if _, err := w.store.ProjectionSnapshots.SavePart(ctx, w.part(2+n, a)); err != nil {
					t.Errorf("save: %v", err)
				}
			})
		}
		nodes.Wait()
		part := w.parts(t)[2+n][a]
		var rows, top, total int64
		require.NoError(t, w.store.Pool().QueryRow(ctx, "SELECT count(*), max(sequence), max(total) FROM test.sums WHERE version = $1", 2+n).Scan(&rows, &top, &total))
		require.Equal(t, []int64{int64(part.Sequence), int64(part.Sequence), top * (top + 1) / 2}, []int64{rows, top, total})
		require.Equal(t, uint64(rows), part.Rows)
		require.NoError(t, w.store.ProjectionSnapshots.FinishSnapshot(ctx, sumsName, 2+n, snapshots, "ada"))
	}
	writing.Wait()
	testkit.Eventually(t, pgtest.WaitLimit, func() bool { return w.at(t, 1, a).Sequence == events }, "it has caught up")
	stop()
	working.Wait()
	for n := range snapshots {
		w.buildIn(t, 20+n, a)
		w.restore(t, 2+n, 20+n, a)
		w.advance(t, 20+n, a, 0)
		require.Zero(t, w.compare(t, a, 1, 20+n).Rows())
		require.NoError(t, w.store.ProjectionVersions.DropProjection(t.Context(), sumsName, 20+n, "ada"))
	}
}

// TestSnapshots_CopyBlocksNoWriter blocks a copy in the middle of its rows.
func TestSnapshots_CopyBlocksNoWriter(t *testing.T) {
	t.Parallel()
	for name, copying := range map[string]func(*sumFixture, context.Context, event.PartitionID) (bool, error){
		"a snapshot that is being taken": func(w *sumFixture, ctx context.Context, a event.PartitionID) (bool, error) {
			return w.store.ProjectionSnapshots.SavePart(ctx, w.part(3, a))
		},
		"a version that begins with one": func(w *sumFixture, ctx context.Context, a event.PartitionID) (bool, error) {
			c := w.part(2, a)
			c.To = 4
			return w.store.ProjectionSnapshots.RestorePart(ctx, c)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, partitions := newSumFixture(t)
			a := partitions[0]
			w.write(t, a, 1, 6)
			w.advance(t, 1, a, 4)
			w.saving(t, 2, 0)
			w.save(t, 2, a)
			w.saving(t, 3, 0)
			w.build(t, 4)
			// Another session has locked the row that the copy would write.
			to := map[bool]int{true: 3, false: 4}[name == "a snapshot that is being taken"]
			blocker, err := pgtest.Connect(t, w.dsn).Begin(t.Context())
			require.NoError(t, err)
			_, err = blocker.Exec(t.Context(), fmt.Sprintf("INSERT INTO test.sums (sequence, partition_id, version, total, note) VALUES (4, %d, %d, 0, 'x')", a, to))
			require.NoError(t, err)
			type answer struct {
				done bool
				err  error
			}
			first := make(chan answer, 1)
			go func() {
				done, err := copying(w, context.Background(), a)
				first <- answer{done, err}
			}()
			w.waiting(t, 1, "it is in the middle")

			done, err := copying(w, t.Context(), a)
			require.NoError(t, err)
			require.False(t, done, "another node leaves it alone")
			require.Equal(t, event.Sequence(6), w.advance(t, 1, a, 0), "the projection continues")
			if to == 4 {
				require.NoError(t, w.store.ProjectionVersions.DropProjection(t.Context(), sumsName, 4, "ada"), "a rebuild is cancelled at once")
			}
			require.NoError(t, blocker.Rollback(t.Context()))
			got := <-first
			if to == 4 {
				require.Equal(t, projection.CodeChanged, fault.CodeOf(got.err))
				require.Zero(t, w.count(t, 4, a))
				require.Zero(t, w.at(t, 4, a).Version)
				return
			}
			require.NoError(t, got.err)
			require.True(t, got.done)
			require.Equal(t, []any{event.Sequence(4), 4}, []any{w.parts(t)[3][a].Sequence, w.count(t, 3, a)})
		})
	}
}

// TestSnapshots_RestoreNoRedactedValue redacts an event that is in the rows that readers
// are active, in a snapshot, and in a version that starts from it.
func TestSnapshots_RestoreNoRedactedValue(t *testing.T) {
	t.Parallel()
	w, partitions := newSumFixture(t)
	a := &pgtest.RedactionFixture{Dsn: w.dsn, Database: w.store, Partition: partitions[0]}
	_, err := a.Appender.Append(t.Context(), pgtest.Invoice(a.Partition, 1))
	require.NoError(t, err)
	r := pgtest.Invoice(a.Partition, 1)
	r.Events[0].Payload = []byte(conformance.PlainPayload)
	r.Events[0].PayloadHash = event.HashPayload(r.Events[0].Salt, r.Events[0].Payload)
	_, err = a.Appender.Append(t.Context(), r)
	require.NoError(t, err)
	a.Event, err = a.Events.EventByID(t.Context(), a.Partition, r.Events[0].ID)
	require.NoError(t, err)
	a.Redactor, err = eventlog.OpenRedactor(t.Context(), pgtest.As("backbone_eraser", a.Dsn))
	require.NoError(t, err)
	t.Cleanup(a.Redactor.Close)

	p := a.Partition
	w.advance(t, 1, p, 0)
	w.saving(t, 2, 0)
	w.save(t, 2, p)
	require.True(t, w.parts(t)[2][p].Usable)
	_, err = a.RedactPayload(t.Context(), a.Store().Approved(t, "/data/name", "/data/lines/0/note"), conformance.Replacement(a.Event.PayloadHash, conformance.RedactedPayload))
	require.NoError(t, err)

	require.False(t, w.parts(t)[2][p].Usable)
	w.build(t, 3)
	w.restore(t, 2, 3, p)
	require.Zero(t, w.count(t, 3, p), "it begins with the log")
	require.NoError(t, w.store.ProjectionSnapshots.ForgetPart(t.Context(), w.part(2, p)))
	require.Equal(t, map[int]int{1: 2}, w.rows(t))

	// The active rows were folded before it, so a snapshot of them is no better.
	w.saving(t, 4, 0)
	w.save(t, 4, p)
	require.Equal(t, []any{uint64(0), false, false}, []any{w.parts(t)[4][p].Rows, w.parts(t)[4][p].Usable, w.parts(t)[4][p].TakenAt.IsZero()})
	// Once they are recomputed it is, in whatever way.
	w.advance(t, 3, p, 0)
	require.NoError(t, w.swap(t, 1, 3, 100))
	w.saving(t, 5, 0)
	w.save(t, 5, p)
	require.True(t, w.parts(t)[5][p].Usable)
	require.NoError(t, w.swap(t, 3, 1, 100))
	_, err = w.store.Projections.Reset(t.Context(), ports.ProjectionOperation{ProjectionWork: w.work(1, p), By: "ada"}, w)
	require.NoError(t, err)
	w.advance(t, 1, p, 0)
	w.saving(t, 6, 0)
	w.save(t, 6, p)
	require.True(t, w.parts(t)[6][p].Usable)
}

// TestSnapshots_OfOneHandler switches to another handler's version while one is taken.
func TestSnapshots_OfOneHandler(t *testing.T) {
	t.Parallel()
	w, partitions := newSumFixture(t)
	a, b := partitions[0], partitions[1]
	for _, p := range partitions {
		w.write(t, p, 1, 3)
		w.advance(t, 1, p, 0)
	}
	w.saving(t, 2, 0)
	done, err := w.store.ProjectionSnapshots.SavePart(t.Context(), w.part(2, a))
	require.NoError(t, err)
	require.True(t, done)
	_, err = w.store.ProjectionVersions.AddProjection(t.Context(), projection.Projection{Name: sumsName, Version: 3, Code: 2, Role: projection.Building, Status: projection.Running})
	require.NoError(t, err)
	for _, p := range partitions {
		w.advance(t, 3, p, 0)
	}
	require.NoError(t, w.swap(t, 1, 3, 100))
	_, err = w.store.ProjectionSnapshots.SavePart(t.Context(), w.part(2, b))
	require.Equal(t, projection.CodeOtherCode, fault.CodeOf(err))
	require.Zero(t, w.count(t, 2, b))
}
