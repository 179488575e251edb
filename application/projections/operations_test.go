package projections_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/projections"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
)

// resettableHandler is a counter that can be reset.
type resettableHandler struct {
	*countingHandler
	countReset
}

func (g *runnerFixture) operations(h ports.ProjectionHandler) *projections.Operations {
	return projections.NewOperations(projections.OperationsConfig{
		Store: g.store.Projections, Log: g.store.Events, Register: g.store.ProjectionVersions, Letters: g.store.ProjectionVersions, Leases: g.store.Leases, Clock: g.clock, Declared: declared,
		Handlers: map[string]ports.ProjectionHandler{name: h}, Wake: g.runner.Wake,
	})
}

func TestOperations(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newFixture(t, nil)
		a, b := g.entity(t, "A"), g.entity(t, "B")
		all := []event.PartitionID{a, b}
		o := g.operations(resettableHandler{g.counter, countReset{}})
		do := func(action projection.Action, p event.PartitionID) error {
			return o.Do(t.Context(), projections.Command{Name: name, Action: action, Partition: p, Partitions: all, Decider: projections.Decider{By: "ada"}, Reason: "because"})
		}
		show := func() projections.View {
			t.Helper()
			v, err := o.Show(t.Context(), name, all)
			require.NoError(t, err)
			return v
		}
		g.write(t, a, moved(2)...)
		g.write(t, b, moved(2)...)
		pass(time.Minute)
		g.write(t, a, moved(1)...) // the newest are as young as can be
		g.write(t, b, moved(1)...)
		g.spoil(t, a, 2)
		g.spoil(t, b, 3)
		g.settings(t, func(s *projection.Settings) { s.MaxAttempts = 1 })
		v := show()
		require.Equal(t, []any{projection.Running, true, 2}, []any{v.Status, v.Current, len(v.Partitions)})
		require.Equal(t, []any{uint64(3), 60.0, event.Sequence(3)}, []any{v.Partitions[0].LagEvents, v.Partitions[0].LagSeconds, v.Partitions[0].Head})
		g.start(t)
		halted := func() int {
			n := 0
			for _, p := range show().Partitions {
				if p.Status == projection.Halted {
					n++
				}
			}
			return n
		}
		within(t, 3*time.Second, func() bool { return halted() == 2 }, "both are halted")
		one, err := o.Show(t.Context(), name, []event.PartitionID{b})
		require.NoError(t, err)
		require.Len(t, one.Partitions, 1, "who may see one sees one")

		// Skip is about one event of one legal entity.
		require.Equal(t, "projection.partition_missing", fault.CodeOf(do(projection.Skip, 0)))
		require.NoError(t, do(projection.Skip, a))
		within(t, 3*time.Second, func() bool { return g.reached(t, a) == 3 }, "it continues after the event")
		require.Equal(t, 2, g.count(a))
		require.Equal(t, projection.CodeNotHalted, fault.CodeOf(do(projection.Skip, a)))
		letters, err := o.DeadLetters(t.Context(), ports.DeadLetterQuery{Partitions: []event.PartitionID{a}})
		require.NoError(t, err)
		require.Len(t, letters, 1)
		require.Equal(t, []string{ports.LetterSkipped, "ada", "because"}, []string{letters[0].Status, letters[0].SettledBy, letters[0].Reason})

		// Fix tries again wherever it is halted.
		g.counter.mu.Lock()
		clear(g.counter.poison)
		g.counter.mu.Unlock()
		require.Equal(t, projection.CodeNotHalted, fault.CodeOf(do(projection.Fix, a)))
		require.NoError(t, do(projection.Fix, 0))
		within(t, 3*time.Second, func() bool { return g.reached(t, b) == 3 }, "it has digested it")
		require.Zero(t, halted())

		// A paused projection is halted and is resumed.
		require.Equal(t, "projection.partition_unwanted", fault.CodeOf(do(projection.Pause, a)))
		require.NoError(t, do(projection.Pause, 0))
		require.Equal(t, projection.Paused, show().Status)
		require.Equal(t, "ada", show().ChangedBy)
		require.Equal(t, "projection.wrong_state", fault.CodeOf(do(projection.Start, 0)))
		require.NoError(t, do(projection.Resume, 0))
		require.NoError(t, do(projection.Stop, 0))
		require.Equal(t, "projection.wrong_state", fault.CodeOf(do(projection.Resume, 0)))
		require.NoError(t, do(projection.Start, 0))

		// A reset reads all of it again, what was skipped too.
		require.NoError(t, do(projection.Reset, a))
		within(t, 3*time.Second, func() bool { return g.count(a) == 3 && g.reached(t, a) == 3 }, "from the beginning")
		require.Equal(t, 3, g.count(b))

		for _, unknown := range []projection.Action{"", "destroy", projection.Fault} {
			require.Equal(t, "projection.action_unknown", fault.CodeOf(do(unknown, 0)), string(unknown))
		}
		require.Equal(t, "projection.not_found", fault.CodeOf(o.Do(t.Context(), projections.Command{Name: "no.such", Action: projection.Pause})))
		_, err = o.Show(t.Context(), "no.such", all)
		require.Equal(t, "projection.not_found", fault.CodeOf(err))
		require.Equal(t, "projection.reset_unsupported", fault.CodeOf(g.operations(g.counter).Do(t.Context(), projections.Command{Name: name, Action: projection.Reset, Partitions: all})))
	})
}

func TestSettings(t *testing.T) {
	t.Parallel()
	g := newFixture(t, nil)
	o := g.operations(g.counter)
	require.NoError(t, o.Configure(t.Context(), name, projection.Settings{OnPoison: projection.SkipEvent, RetryMS: 10}, projections.Decider{By: "ada"}))
	v, err := o.Show(t.Context(), name, nil)
	require.NoError(t, err)
	want := projection.DefaultSettings()
	want.OnPoison, want.RetryMS = projection.SkipEvent, 10
	require.Equal(t, want, v.Settings, "what is left out is the default")
	for field, s := range map[string]projection.Settings{
		"/settings/batch_size":         {BatchSize: -1},
		"/settings/checkpoint/mode":    {Checkpoint: projection.Checkpointing{Mode: "x"}},
		"/settings/checkpoint":         {Checkpoint: projection.Checkpointing{Events: 1}},
		"/settings/checkpoint/events":  {Checkpoint: projection.Checkpointing{Mode: projection.Batched, WaitMS: 1}},
		"/settings/checkpoint/wait_ms": {Checkpoint: projection.Checkpointing{Mode: projection.Batched, Events: 1}},
		"/settings/max_attempts":       {MaxAttempts: -1},
		"/settings/retry_ms":           {RetryMS: -1},
		"/settings/retry_max_ms":       {RetryMS: 10, RetryMaxMS: 9},
		"/settings/on_poison":          {OnPoison: "shrug"},
	} {
		f, ok := fault.As(o.Configure(t.Context(), name, s, projections.Decider{By: "ada"}))
		require.True(t, ok, field)
		require.Equal(t, []string{"projection.settings_invalid", field}, []string{f.Code, f.Field})
	}
	require.Equal(t, "projection.not_found", fault.CodeOf(o.Configure(t.Context(), "no.such", projection.Settings{}, projections.Decider{By: "ada"})))
}

// TestOperations_RetriesAfterConcurrentChange: another caller changes the projection between
// reading and writing.
func TestOperations_RetriesAfterConcurrentChange(t *testing.T) {
	t.Parallel()
	g := newFixture(t, nil)
	g.settings(t, func(*projection.Settings) {})
	r := &contendedRegister{ProjectionRegister: g.store.ProjectionVersions}
	o := projections.NewOperations(projections.OperationsConfig{
		Store: g.store.Projections, Log: g.store.Events, Register: r, Letters: g.store.ProjectionVersions, Leases: g.store.Leases, Clock: g.clock, Declared: declared,
	})
	r.before = func(p projection.Projection) {
		p.Settings.BatchSize = 7
		_, err := g.store.ProjectionVersions.ChangeProjection(t.Context(), p)
		require.NoError(t, err)
	}
	require.NoError(t, o.Do(t.Context(), projections.Command{Name: name, Action: projection.Pause, Decider: projections.Decider{By: "ada"}}))
	v, err := o.Show(t.Context(), name, nil)
	require.NoError(t, err)
	require.Equal(t, []any{projection.Paused, 7}, []any{v.Status, v.Settings.BatchSize}, "both changes stand")
}

type contendedRegister struct {
	ports.ProjectionRegister
	before func(projection.Projection)
}

func (o *contendedRegister) ChangeProjection(ctx context.Context, p projection.Projection) (projection.Projection, error) {
	if o.before != nil {
		o.before(p)
		o.before = nil
	}
	return o.ProjectionRegister.ChangeProjection(ctx, p)
}
