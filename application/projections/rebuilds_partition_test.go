package projections_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/projections"
	"github.com/erpbackbone/backbone/application/snapshots"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// rowPerEvent writes a row for each event, which says what wrote it.
type rowPerEvent struct {
	store *memory.Database
	mark  string
	fails map[int]error // by version
}

func (r *rowPerEvent) Apply(ctx context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch) error {
	if err := r.fails[b.Version]; err != nil {
		return err
	}
	rows := make([]ports.ProjectionRow, len(b.Events))
	for i, e := range b.Events {
		rows[i] = ports.ProjectionRow{Key: fmt.Sprintf("%04d", e.Sequence), State: json.RawMessage(`"` + r.mark + `"`), Sequence: e.Sequence}
	}
	return r.store.ProjectionRows.StoreProjectionRows(ctx, tx, b, rows, nil)
}

// rebuildFixture is a rig with rebuilds of rows that can be replaced.
type rebuildFixture struct {
	*runnerFixture
	handler       *rowPerEvent
	rebuilds      *projections.Rebuilds
	snapshotEvery int
}

func newRebuildFixture(t *testing.T) *rebuildFixture {
	t.Helper()
	w := &rebuildFixture{runnerFixture: newFixture(t, nil)}
	w.handler = &rowPerEvent{store: w.store, mark: "first", fails: map[int]error{}}
	c := w.config()
	c.Versions = w.store.ProjectionVersions
	w.runner = w.node(t, c, w.handler)
	w.rebuilds = w.looking(declared)
	return w
}

func (g *runnerFixture) proofs() *snapshots.Projections {
	return snapshots.NewProjections(g.store.Directory, snapshots.NewAuthenticator(&testkit.Secrets{}, slog.New(slog.DiscardHandler), nil))
}

func (w *rebuildFixture) looking(declared []module.Projection) *projections.Rebuilds {
	return testkit.Must(projections.NewRebuilds(projections.RebuildsConfig{
		Store: w.store.Projections, Log: w.store.Events, Register: w.store.ProjectionVersions, Versions: w.store.ProjectionVersions, Snapshots: w.store.ProjectionSnapshots, Proofs: w.proofs(), Clock: w.clock, Declared: declared,
		Handlers: map[string]ports.ProjectionHandler{name: w.handler}, Tables: map[string][]ports.ProjectionTable{name: {ports.ProjectionRowTable}},
		Wake: w.runner.Wake, MaxBehind: 5, SnapshotEvery: w.snapshotEvery,
	}))
}

// shown counts the rows of a version by what wrote them.
func (w *rebuildFixture) shown(t *testing.T, version int, p event.PartitionID) map[string]int {
	t.Helper()
	rows, _, err := w.store.ProjectionRows.ListProjectionRows(t.Context(), ports.ProjectionRowQuery{Projection: name, Version: version, Partition: p, Limit: 1000})
	require.NoError(t, err)
	out := map[string]int{}
	for _, r := range rows {
		var mark string
		require.NoError(t, json.Unmarshal(r.State, &mark))
		out[mark]++
	}
	return out
}

func (w *rebuildFixture) status(t *testing.T) projections.Rebuild {
	t.Helper()
	b, err := w.rebuilds.Show(t.Context(), name)
	require.NoError(t, err)
	return b
}

func TestRebuilds_OnePartition(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newRebuildFixture(t)
		a, b := w.entity(t, "A"), w.entity(t, "B")
		w.write(t, a, moved(20)...)
		w.write(t, b, moved(10)...)
		w.start(t)
		within(t, 3*time.Second, func() bool { return w.shown(t, version, a)["first"] == 20 && w.shown(t, version, b)["first"] == 10 }, "the first version")
		order := projections.Order{Name: name, Decider: projections.Decider{By: "ada"}, Partition: a}
		_, err := w.rebuilds.Switch(t.Context(), order)
		require.Equal(t, projection.CodeNotBuilding, fault.CodeOf(err))

		// From here on it writes other rows, as if it had been wrong before.
		w.stop()
		w.handler.mark = "second"
		w.handler.fails[version+1] = fault.New(fault.Unavailable, "x.away", "away")
		w.start(t)
		_, err = w.rebuilds.Start(t.Context(), order, false)
		require.NoError(t, err)
		_, err = w.rebuilds.Start(t.Context(), order, false)
		require.Equal(t, projection.CodeRebuilding, fault.CodeOf(err))
		require.Len(t, w.status(t).Partitions, 1)
		part := w.status(t).Partitions[0]
		require.Equal(t, []any{a, version + 1, false, projection.Progress{Total: 20}}, []any{part.Partition, part.Building, part.CaughtUp, part.Progress}, "it counts its own events")
		require.Zero(t, w.status(t).Building)
		_, err = w.rebuilds.Switch(t.Context(), order)
		require.Equal(t, projection.CodeVersionBehind, fault.CodeOf(err))

		// The whole may be built at the same time.
		whole, err := w.rebuilds.Start(t.Context(), projections.Order{Name: name, Decider: projections.Decider{By: "ada"}}, false)
		require.NoError(t, err)
		require.Equal(t, version+2, whole.Building)
		_, err = w.rebuilds.Cancel(t.Context(), projections.Order{Name: name, Decider: projections.Decider{By: "ada"}})
		require.NoError(t, err)

		w.stop()
		delete(w.handler.fails, version+1)
		w.start(t)
		within(t, 3*time.Second, func() bool { return w.status(t).Partitions[0].Progress.Remaining() == 0 }, "it catches up")
		require.Empty(t, w.shown(t, version+1, b), "it reads no other")
		c, err := w.rebuilds.Compare(t.Context(), name, a, []event.PartitionID{a}, 1)
		require.NoError(t, err)
		require.Equal(t, []any{version, version + 1, uint64(20)}, []any{c.Left, c.Right, c.Rows()})

		_, err = w.rebuilds.Switch(t.Context(), order)
		require.NoError(t, err)
		require.Equal(t, version, w.status(t).Active, "no other version is shown")
		require.Equal(t, map[string]int{"second": 20}, w.shown(t, version, a))
		require.Equal(t, map[string]int{"first": 10}, w.shown(t, version, b))
		kept := w.status(t).Partitions[0].Retained
		require.Equal(t, map[string]int{"first": 20}, w.shown(t, kept, a))

		// Both continue, and there is a way back.
		w.write(t, a, moved(2)...)
		w.write(t, b, moved(1)...)
		within(t, 3*time.Second, func() bool {
			return w.shown(t, version, a)["second"] == 22 && w.shown(t, kept, a)["second"] == 2 && w.shown(t, version, b)["second"] == 1
		}, "both continue")
		reached, generation, err := w.runner.Position(t.Context(), name, version, a)
		require.NoError(t, err)
		require.Equal(t, []uint64{22, 1}, []uint64{uint64(reached), generation})
		_, err = w.rebuilds.Rollback(t.Context(), order)
		require.NoError(t, err)
		require.Equal(t, map[string]int{"first": 20, "second": 2}, w.shown(t, version, a))
		_, err = w.rebuilds.Drop(t.Context(), order)
		require.NoError(t, err)
		require.Empty(t, w.status(t).Partitions)
		_, err = w.rebuilds.Rollback(t.Context(), order)
		require.Equal(t, projection.CodeNotRetained, fault.CodeOf(err))

		// One that switches by itself.
		_, err = w.rebuilds.Start(t.Context(), order, true)
		require.NoError(t, err)
		within(t, 3*time.Second, func() bool {
			require.NoError(t, w.rebuilds.Maintain(t.Context()))
			return w.shown(t, version, a)["second"] == 22
		}, "it is shown")

		// Another release's handler does not mix its rows in.
		newer := w.looking([]module.Projection{{Name: name, Version: version + 1, EventTypes: declared[0].EventTypes}})
		_, err = newer.Start(t.Context(), order, false)
		require.Equal(t, projection.CodeOtherCode, fault.CodeOf(err))
	})
}

func TestRebuilds_FromSnapshot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newRebuildFixture(t)
		a, b := w.entity(t, "A"), w.entity(t, "B")
		w.write(t, a, moved(20)...)
		order := projections.Order{Name: name, Decider: projections.Decider{By: "ada"}}
		w.start(t)
		within(t, 3*time.Second, func() bool { return w.shown(t, version, a)["first"] == 20 }, "the first version")
		latest := projections.Order{Name: name, Decider: projections.Decider{By: "ada"}, Latest: true}
		_, err := w.rebuilds.Start(t.Context(), latest, false)
		require.Equal(t, projection.CodeSnapshotNotFound, fault.CodeOf(err))

		_, err = w.rebuilds.TakeSnapshot(t.Context(), order)
		require.NoError(t, err)
		_, err = w.rebuilds.TakeSnapshot(t.Context(), order)
		require.Equal(t, projection.CodeSnapshotInProgress, fault.CodeOf(err))
		_, err = w.rebuilds.Start(t.Context(), latest, false)
		require.Equal(t, projection.CodeSnapshotNotFound, fault.CodeOf(err), "it is not complete")
		require.NoError(t, w.rebuilds.CopySnapshots(t.Context()))
		require.Len(t, w.status(t).Snapshots, 1)
		taken := w.status(t).Snapshots[0]
		require.Equal(t, []any{version + 1, true, true, "ada"}, []any{taken.Version, taken.Complete, taken.SameCode, taken.StartedBy})
		require.Equal(t, []any{event.Sequence(20), uint64(20), true}, []any{taken.Parts[0].Sequence, taken.Parts[0].Rows, taken.Parts[0].Usable})

		// It reads only what came after it, and what is in no snapshot from the beginning.
		w.write(t, a, moved(3)...)
		w.write(t, b, moved(2)...)
		w.stop()
		w.handler.mark = "second"
		w.start(t)
		_, err = w.rebuilds.Start(t.Context(), latest, false)
		require.NoError(t, err)
		shown := w.status(t)
		require.Equal(t, []any{version + 2, version + 1, projection.Created, false}, []any{shown.Building, shown.Base, shown.Status, shown.CaughtUp})
		within(t, 3*time.Second, func() bool { return w.shown(t, version, b)["first"]+w.shown(t, version, b)["second"] == 2 }, "the other ones continue")
		require.Empty(t, w.shown(t, version+2, b), "it waits for the copy")
		require.NoError(t, w.rebuilds.CopySnapshots(t.Context()))
		within(t, 3*time.Second, func() bool { return w.status(t).CaughtUp && w.status(t).Progress.Remaining() == 0 }, "it catches up")
		require.Equal(t, map[string]int{"first": 20, "second": 3}, w.shown(t, version+2, a))
		require.Equal(t, map[string]int{"second": 2}, w.shown(t, version+2, b))
		_, err = w.rebuilds.Switch(t.Context(), order)
		require.NoError(t, err)

		// One of a partition, for that partition; by its version; and it goes as it came.
		inA := projections.Order{Name: name, Decider: projections.Decider{By: "ada"}, Partition: a}
		_, err = w.rebuilds.TakeSnapshot(t.Context(), inA)
		require.NoError(t, err)
		require.NoError(t, w.rebuilds.CopySnapshots(t.Context()))
		newest := w.status(t).Snapshots[0]
		require.Equal(t, a, newest.Partition)
		inA.Snapshot = newest.Version
		_, err = w.rebuilds.Start(t.Context(), inA, false)
		require.NoError(t, err)
		require.Equal(t, newest.Version, w.status(t).Partitions[0].Base)
		inB := inA
		inB.Partition = b
		_, err = w.rebuilds.Start(t.Context(), inB, false)
		require.Equal(t, projection.CodeSnapshotNotFound, fault.CodeOf(err), "it holds nothing of this one")
		_, err = w.rebuilds.DropSnapshot(t.Context(), inB)
		require.Equal(t, projection.CodeSnapshotNotFound, fault.CodeOf(err))
		_, err = w.rebuilds.DropSnapshot(t.Context(), inA)
		require.NoError(t, err)

		// What begins with it is not held up by its end: it reads the log.
		require.NoError(t, w.rebuilds.CopySnapshots(t.Context()))
		within(t, 3*time.Second, func() bool {
			return w.status(t).Partitions[0].CaughtUp && w.status(t).Partitions[0].Progress.Remaining() == 0
		}, "it catches up")
		require.Equal(t, map[string]int{"second": 23}, w.shown(t, w.status(t).Partitions[0].Building, a))

		// Another release's handler begins with none of this one.
		newer := w.looking([]module.Projection{{Name: name, Version: version + 1, EventTypes: declared[0].EventTypes}})
		b2, err := newer.Show(t.Context(), name)
		require.NoError(t, err)
		require.False(t, b2.Snapshots[0].SameCode)
		_, err = newer.Start(t.Context(), latest, false)
		require.Equal(t, projection.CodeOtherCode, fault.CodeOf(err))
	})
}

// TestRebuilds_SnapshotEvery takes a snapshot by itself, once, when the projection has read enough
// events since the one before.
func TestRebuilds_SnapshotEvery(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newRebuildFixture(t)
		w.snapshotEvery = 10
		nodes := []*projections.Rebuilds{w.looking(declared), w.looking(declared)}
		w.rebuilds = nodes[0]
		a, b := w.entity(t, "A"), w.entity(t, "B")
		w.start(t)
		read := func(p event.PartitionID, events, all int) {
			w.write(t, p, moved(events)...)
			within(t, 3*time.Second, func() bool { return w.shown(t, version, p)["first"] == all }, "the events are read")
			pass(projections.SnapshotCheck)
			errs := make([]error, len(nodes))
			var wg sync.WaitGroup
			for i, n := range nodes {
				wg.Go(func() { errs[i] = n.CopySnapshots(t.Context()) })
			}
			wg.Wait()
			require.Equal(t, []error{nil, nil}, errs)
			require.NoError(t, nodes[0].CopySnapshots(t.Context()), "what was ordered is copied")
		}
		read(a, 6, 6)
		require.Empty(t, w.status(t).Snapshots)
		read(b, 4, 4)
		require.Len(t, w.status(t).Snapshots, 1, "ten events of all legal entities")
		first := w.status(t).Snapshots[0]
		require.Equal(t, []any{true, "system"}, []any{first.Complete, first.StartedBy})
		read(a, 9, 15)
		require.Len(t, w.status(t).Snapshots, 1)
		_, err := w.rebuilds.TakeSnapshot(t.Context(), projections.Order{Name: name, Decider: projections.Decider{By: "ada"}, Partition: a})
		require.NoError(t, err)
		read(a, 1, 16)
		require.Len(t, w.status(t).Snapshots, 3, "one of a single legal entity is beside them")
		for i := range 4 {
			read(b, 10, 14+10*i)
		}
		whole := 0
		for _, s := range w.status(t).Snapshots {
			if s.Partition == 0 {
				whole++
			}
		}
		require.Equal(t, projections.KeptSnapshots, whole, "older ones are dropped")

		w.snapshotEvery = 0
		nodes = []*projections.Rebuilds{w.looking(declared), w.looking(declared)}
		newest := w.status(t).Snapshots[0].Version
		read(b, 50, 94)
		require.Equal(t, newest, w.status(t).Snapshots[0].Version, "none by default")
	})
}

// TestRebuilds_DropsSnapshotOfOtherHandler switches to a newer handler's version before the
// copy is made.
func TestRebuilds_DropsSnapshotOfOtherHandler(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newRebuildFixture(t)
		a := w.entity(t, "A")
		w.write(t, a, moved(5)...)
		w.start(t)
		within(t, 3*time.Second, func() bool { return w.shown(t, version, a)["first"] == 5 }, "the first version")
		_, err := w.rebuilds.TakeSnapshot(t.Context(), projections.Order{Name: name, Decider: projections.Decider{By: "ada"}})
		require.NoError(t, err)
		_, err = w.store.ProjectionVersions.AddProjection(t.Context(), projection.Projection{Name: name, Version: 9, Code: 9, Role: projection.Building, Status: projection.Running})
		require.NoError(t, err)
		require.NoError(t, w.store.ProjectionVersions.SwitchProjection(t.Context(), ports.ProjectionSwitch{Projection: name, From: version, To: 9, Force: true, By: "ada"}))
		_, _, err = w.store.Projections.Advance(t.Context(), ports.ProjectionAdvance{ProjectionWork: ports.ProjectionWork{Projection: name, Version: 9, Partition: a}}, w.handler)
		require.NoError(t, err)
		require.NoError(t, w.rebuilds.CopySnapshots(t.Context()))
		require.Empty(t, w.status(t).Snapshots)
		require.Equal(t, []int{version + 1}, w.status(t).Dropping)
	})
}
