package projections_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/projections"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// versioned counts events by version and partition.
type versioned struct {
	mu    sync.Mutex
	block map[int]error // by version
}

func (v *versioned) Apply(_ context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch) error {
	v.mu.Lock()
	err := v.block[b.Version]
	v.mu.Unlock()
	if err != nil {
		return err
	}
	t, err := memory.Bind(tx)
	if err != nil {
		return err
	}
	key := fmt.Sprint(b.Version, "/", b.Partition)
	n, _ := t.Get("versions", key)
	sum, _ := n.(int)
	t.Put("versions", key, sum+len(b.Events))
	return nil
}

func (v *versioned) fail(version int, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.block[version] = err
}

// targetFixture is a fixture with rebuilds.
type targetFixture struct {
	*runnerFixture
	handler  *versioned
	rebuilds *projections.Rebuilds
}

func newWorkshop(t *testing.T) *targetFixture {
	t.Helper()
	w := &targetFixture{handler: &versioned{block: map[int]error{}}}
	w.runnerFixture = newFixture(t, nil)
	c := w.config()
	c.Versions = w.store.ProjectionVersions
	w.runner = w.node(t, c, w.handler)
	w.rebuilds = w.newRebuilds(declared, false)
	return w
}

func (w *targetFixture) newRebuilds(declared []module.Projection, byHand bool) *projections.Rebuilds {
	return testkit.Must(projections.NewRebuilds(projections.RebuildsConfig{
		Store: w.store.Projections, Log: w.store.Events, Register: w.store.ProjectionVersions, Versions: w.store.ProjectionVersions, Clock: w.clock, Declared: declared, Handlers: map[string]ports.ProjectionHandler{name: w.handler},
		Tables: map[string][]ports.ProjectionTable{name: {{Schema: "till", Name: "balances"}}}, Wake: w.runner.Wake, MaxBehind: 5, ManualSwitch: byHand,
	}))
}

func (w *targetFixture) rows(version int, p event.PartitionID) int {
	v, _ := w.store.ReadModels.Row("versions", fmt.Sprint(version, "/", p))
	n, _ := v.(int)
	return n
}

func (w *targetFixture) show(t *testing.T) projections.Rebuild {
	t.Helper()
	b, err := w.rebuilds.Show(t.Context(), name)
	require.NoError(t, err)
	return b
}

func (w *targetFixture) active(t *testing.T) int {
	t.Helper()
	n, err := w.runner.Active(t.Context(), name)
	require.NoError(t, err)
	return n
}

func TestRebuild(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorkshop(t)
		a, b := w.entity(t, "A"), w.entity(t, "B")
		w.write(t, a, moved(20)...)
		require.Equal(t, version, w.active(t), "before any node has run")
		w.start(t)
		within(t, 3*time.Second, func() bool { return w.rows(version, a) == 20 }, "the first version")
		order := projections.Order{Name: name, Decider: projections.Decider{By: "ada"}}
		for _, step := range []func() error{
			func() error { _, err := w.rebuilds.Switch(t.Context(), order); return err },
			func() error { _, err := w.rebuilds.Cancel(t.Context(), order); return err },
			func() error { _, err := w.rebuilds.Compare(t.Context(), name, 0, nil, 0); return err },
		} {
			require.Equal(t, projection.CodeNotBuilding, fault.CodeOf(step()))
		}
		_, err := w.rebuilds.Rollback(t.Context(), order)
		require.Equal(t, projection.CodeNotRetained, fault.CodeOf(err))
		_, err = w.rebuilds.Start(t.Context(), projections.Order{Name: "no.such"}, false)
		require.Equal(t, "projection.not_found", fault.CodeOf(err))

		// The new version is held up; readers notice nothing.
		w.handler.fail(version+1, fault.New(fault.Unavailable, "x.away", "away"))
		shown, err := w.rebuilds.Start(t.Context(), order, false)
		require.NoError(t, err)
		require.Equal(t, []any{version, version + 1, "ada", false}, []any{shown.Active, shown.Building, shown.StartedBy, shown.CaughtUp})
		require.Equal(t, projection.Progress{Total: 20}, shown.Progress)
		_, err = w.rebuilds.Start(t.Context(), order, false)
		require.Equal(t, projection.CodeRebuilding, fault.CodeOf(err))
		_, err = w.rebuilds.Switch(t.Context(), order)
		require.Equal(t, projection.CodeVersionBehind, fault.CodeOf(err))
		w.write(t, a, moved(1)...)
		w.write(t, b, moved(2)...)
		within(t, 3*time.Second, func() bool { return w.rows(version, a) == 21 && w.rows(version, b) == 2 }, "the shown version continues")
		require.Equal(t, version, w.active(t))

		w.handler.fail(version+1, nil)
		within(t, 3*time.Second, func() bool { s := w.show(t); return s.CaughtUp && s.Progress.Remaining() == 0 }, "it catches up")
		require.Equal(t, []int{21, 2}, []int{w.rows(version+1, a), w.rows(version+1, b)})
		pass(10 * time.Second)
		shown = w.show(t)
		require.True(t, shown.TimeLeftKnown)
		require.Zero(t, shown.TimeLeft)

		shown, err = w.rebuilds.Switch(t.Context(), order)
		require.NoError(t, err)
		require.Equal(t, []int{version + 1, version, 0}, []int{shown.Active, shown.Retained, shown.Building})
		require.Equal(t, version+1, w.active(t))

		// Both are kept up to date, so that there is a way back.
		w.write(t, a, moved(1)...)
		within(t, 3*time.Second, func() bool { return w.rows(version, a) == 22 && w.rows(version+1, a) == 22 }, "both continue")
		shown, err = w.rebuilds.Rollback(t.Context(), order)
		require.NoError(t, err)
		require.Equal(t, []int{version, version + 1}, []int{shown.Active, shown.Retained})

		// Dropped, a version is not written any more, also by a node that has not noticed the drop.
		shown, err = w.rebuilds.Drop(t.Context(), order)
		require.NoError(t, err)
		require.Equal(t, []int{version + 1}, shown.Dropping)
		require.NoError(t, w.rebuilds.Maintain(t.Context()))
		require.Empty(t, w.show(t).Dropping)
		checkpoints, err := w.store.Projections.Checkpoints(t.Context(), name, version+1)
		require.NoError(t, err)
		require.Empty(t, checkpoints)
		_, _, err = w.store.Projections.Advance(t.Context(), ports.ProjectionAdvance{ProjectionWork: ports.ProjectionWork{Projection: name, Version: version + 1, Partition: a}}, w.handler)
		require.Equal(t, projection.CodeFenced, fault.CodeOf(err))

		// A number is never given again.
		shown, err = w.rebuilds.Start(t.Context(), order, true)
		require.NoError(t, err)
		require.Equal(t, version+2, shown.Building)
		within(t, 3*time.Second, func() bool { return w.show(t).CaughtUp }, "it catches up")
		require.NoError(t, w.rebuilds.Maintain(t.Context()))
		require.Equal(t, version+2, w.active(t), "it switches by itself")
	})
}

func TestRebuilds_StalledBuildIsNotActivated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorkshop(t)
		a := w.entity(t, "A")
		w.settings(t, func(s *projection.Settings) { s.MaxAttempts = 1 })
		w.write(t, a, moved(3)...)
		w.handler.fail(version+1, fault.New(fault.Internal, "x.broken", "broken"))
		w.start(t)
		within(t, 3*time.Second, func() bool { return w.rows(version, a) == 3 }, "the first version")
		_, err := w.rebuilds.Start(t.Context(), projections.Order{Name: name, Decider: projections.Decider{By: "ada"}}, true)
		require.NoError(t, err)
		within(t, 3*time.Second, func() bool { return w.show(t).Halted == 1 }, "it is halted")
		require.NoError(t, w.rebuilds.Maintain(t.Context()))
		require.Equal(t, version, w.active(t))
		_, err = w.rebuilds.Switch(t.Context(), projections.Order{Name: name})
		require.Equal(t, projection.CodeVersionHalted, fault.CodeOf(err))

		// An operator treats the version by its number.
		o := w.operations(w.handler)
		fix := projections.Command{Name: name, Action: projection.Fix, Partition: a, Decider: projections.Decider{By: "ada"}}
		require.Equal(t, projection.CodeNotHalted, fault.CodeOf(o.Do(t.Context(), fix)), "the one that is shown is well")
		w.handler.fail(version+1, nil)
		fix.Version = version + 1
		require.NoError(t, o.Do(t.Context(), fix))
		within(t, 3*time.Second, func() bool { return w.rows(version+1, a) == 3 }, "it continues")

		require.NoError(t, w.rebuilds.Maintain(t.Context()))
		require.Equal(t, version+1, w.active(t))
	})
}

// countingStore counts the attempts to advance a version.
type countingStore struct {
	ports.Projections
	attempts atomic.Int64
}

func (s *countingStore) Advance(ctx context.Context, a ports.ProjectionAdvance, h ports.ProjectionHandler) (ports.Checkpoint, int, error) {
	if a.Version == version+1 {
		s.attempts.Add(1)
	}
	return s.Projections.Advance(ctx, a, h)
}

// TestRunner_DroppedVersionIsFencedOnce drops a version that a node still works: its next attempt is
// refused, and it does not try again until it reads the register.
func TestRunner_DroppedVersionIsFencedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorkshop(t)
		store := &countingStore{Projections: w.store.Projections}
		c := w.config()
		c.Store, c.Versions = store, w.store.ProjectionVersions
		w.runner = w.node(t, c, w.handler)
		a := w.entity(t, "A")
		w.write(t, a, moved(1)...)
		w.start(t)
		synctest.Wait()
		order := projections.Order{Name: name, Decider: projections.Decider{By: "ada"}}
		_, err := w.rebuilds.Start(t.Context(), order, false)
		require.NoError(t, err)
		pass(time.Second)
		require.Equal(t, 1, w.rows(version+1, a))
		require.EqualValues(t, 1, store.attempts.Load())
		_, err = w.rebuilds.Cancel(t.Context(), order)
		require.NoError(t, err)
		w.write(t, a, moved(1)...)
		w.until(t, func() bool { return w.rows(version, a) == 2 }, "the active version continues")
		pass(10 * time.Second)
		require.EqualValues(t, 2, store.attempts.Load())
	})
}

// TestRebuilds_NewerHandlerBuildsVersion: a release whose handler is newer begins a
// version of its own, and nodes of the release before continue with theirs.
func TestRebuilds_NewerHandlerBuildsVersion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, byHand := range []bool{false, true} {
			w := newWorkshop(t)
			a := w.entity(t, "A")
			w.write(t, a, moved(7)...)
			w.start(t)
			within(t, 3*time.Second, func() bool { return w.rows(version, a) == 7 }, "the release before")
			newer := []module.Projection{{Name: name, Version: version + 4, EventTypes: declared[0].EventTypes}}
			c := w.config()
			c.Versions = w.store.ProjectionVersions
			next, err := projections.New(c, newer, map[string]ports.ProjectionHandler{name: w.handler})
			require.NoError(t, err)
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() { defer close(ended); next.Run(ctx) }()
			rebuilds := w.newRebuilds(newer, byHand)
			shown := func() projections.Rebuild {
				b, err := rebuilds.Show(t.Context(), name)
				require.NoError(t, err)
				return b
			}
			within(t, 3*time.Second, func() bool {
				next.Wake()
				b := shown()
				return b.Building == version+1 && b.CaughtUp && w.rows(version+1, a) == 7
			}, "the newer one")
			require.Equal(t, version, shown().Active)
			w.write(t, a, moved(1)...)
			within(t, 3*time.Second, func() bool { next.Wake(); return w.rows(version, a) == 8 && w.rows(version+1, a) == 8 }, "each follows with its own handler")
			require.NoError(t, w.rebuilds.Maintain(t.Context()), "the release before leaves the switch to the newer one")
			require.Equal(t, version, shown().Active)
			require.NoError(t, rebuilds.Maintain(t.Context()))
			if byHand {
				require.Equal(t, version, shown().Active)
			} else {
				require.Equal(t, []int{version + 1, version}, []int{shown().Active, shown().Retained})
			}
			stop()
			<-ended
			w.stop()
		}
	})
}

func TestPace(t *testing.T) {
	t.Parallel()
	p := projection.Progress{Done: 300, Total: 1300}
	rate, left, known := p.Pace(projection.Sample{At: start, Done: 100}, projection.Sample{At: start.Add(2 * time.Second), Done: 300})
	require.True(t, known)
	require.Equal(t, []any{100.0, 10 * time.Second}, []any{rate, left})
	_, _, known = p.Pace(projection.Sample{At: start, Done: 300}, projection.Sample{At: start.Add(time.Second), Done: 300})
	require.False(t, known, "nothing moves")
	_, left, known = projection.Progress{Done: 5, Total: 5}.Pace(projection.Sample{}, projection.Sample{})
	require.True(t, known)
	require.Zero(t, left)
	require.Zero(t, projection.Progress{Done: 6, Total: 5}.Remaining())
}
