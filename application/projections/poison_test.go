package projections_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
)

// spoil makes the counter refuse an event, and returns its id.
func (g *runnerFixture) spoil(t *testing.T, p event.PartitionID, sequence event.Sequence) event.ID {
	t.Helper()
	events, err := g.store.Events.Events(t.Context(), ports.EventQuery{Partition: p, After: sequence - 1, Limit: 1})
	require.NoError(t, err)
	g.counter.mu.Lock()
	defer g.counter.mu.Unlock()
	g.counter.poison[events[0].ID] = fault.New(fault.Invalid, "till.amount_invalid", "secret 4711").WithField("/data/amount")
	return events[0].ID
}

func (g *runnerFixture) letters(t *testing.T) []ports.DeadLetter {
	t.Helper()
	list, err := g.store.ProjectionVersions.ListDeadLetters(t.Context(), ports.DeadLetterQuery{})
	require.NoError(t, err)
	return list
}

func TestRunner_IsolatesPoisonEvent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newFixture(t, nil)
		bad, good := g.entity(t, "BAD"), g.entity(t, "GOOD")
		g.write(t, bad, moved(8)...)
		g.write(t, good, moved(3)...)
		id := g.spoil(t, bad, 7) // the third of the second batch
		g.start(t)
		g.until(t, func() bool { return g.checkpoint(t, bad).Attempts == 1 }, "it failed, and that is written down with the time")
		require.EqualValues(t, 4, g.reached(t, bad))
		pass(15*time.Second - 1)
		require.Empty(t, g.letters(t))
		pass(1)
		require.Len(t, g.letters(t), 1, "it is isolated")
		d := g.letters(t)[0]
		require.Equal(t, []any{ports.LetterOfProjection, name, version, bad, event.Sequence(7), id, ports.LetterWaiting},
			[]any{d.Kind, d.Name, d.Version, d.Partition, d.Sequence, d.EventID, d.Status})
		require.Equal(t, []any{"till.amount_invalid", "at /data/amount", 5}, []any{d.Code, d.Detail, d.Attempts})
		require.Equal(t, 15*time.Second, d.LastFailedAt.Sub(d.FirstFailedAt), "1, 2, 4 and 8 seconds between five attempts")
		c := g.checkpoint(t, bad)
		require.Equal(t, []any{event.Sequence(6), projection.Halted, "till.amount_invalid"}, []any{c.Sequence, c.Status, c.Error})
		require.Equal(t, 6, g.count(bad), "the effects of the other events are kept, each once")
		g.until(t, func() bool { return g.count(good) == 3 }, "the other ones continue")

		// It stays halted, also after further events.
		attempts := g.counter.attempts()
		g.write(t, bad, moved(1)...)
		g.write(t, good, moved(1)...)
		g.until(t, func() bool { return g.count(good) == 4 }, "a round")
		require.Equal(t, attempts+1, g.counter.attempts())
		require.Equal(t, "projection.halted", fault.CodeOf(g.runner.Health()))
		g.until(t, func() bool { return g.watcher.isolated() == 1 }, "it is observed")

		// An operator fixes what was wrong.
		g.counter.mu.Lock()
		delete(g.counter.poison, id)
		g.counter.mu.Unlock()
		_, err := g.store.Projections.Fix(t.Context(), ports.ProjectionOperation{ProjectionWork: ports.ProjectionWork{Projection: name, Version: version, Partition: bad}, By: "ada"})
		require.NoError(t, err)
		pass(time.Second)
		require.EqualValues(t, 9, g.reached(t, bad), "it continues")
		require.Equal(t, 9, g.count(bad))
		require.Equal(t, ports.LetterResolved, g.letters(t)[0].Status)
		require.NoError(t, g.runner.Health())
		g.stop()
		require.NotContains(t, g.logged.String(), "4711")
	})
}

func TestRunner_SkipsPoisonEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newFixture(t, nil)
		g.settings(t, func(s *projection.Settings) { s.OnPoison, s.MaxAttempts = projection.SkipEvent, 2 })
		a := g.entity(t, "A")
		g.write(t, a, moved(12)...)
		for _, n := range []event.Sequence{1, 2, 6, 12} {
			g.spoil(t, a, n)
		}
		g.start(t)
		pass(4 * time.Second) // between two attempts of each event
		require.EqualValues(t, 12, g.reached(t, a), "it continues after the events")
		require.Equal(t, 8, g.count(a))
		list := g.letters(t)
		require.Len(t, list, 4)
		for _, d := range list {
			require.Equal(t, []any{ports.LetterPassed, 2}, []any{d.Status, d.Attempts}, d.Sequence)
		}
		c := g.checkpoint(t, a)
		require.Equal(t, []uint64{8, 4}, []uint64{c.Processed, c.Skipped})
		require.NoError(t, g.runner.Health())
	})
}

func TestRunner_PoisonEventHaltsProjection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newFixture(t, nil)
		g.settings(t, func(s *projection.Settings) { s.OnPoison, s.MaxAttempts = projection.StopProjection, 1 })
		bad, good := g.entity(t, "BAD"), g.entity(t, "GOOD")
		g.write(t, bad, moved(1)...)
		g.spoil(t, bad, 1)
		g.start(t)
		status := func() projection.Status {
			all, err := g.store.ProjectionVersions.ListProjections(t.Context())
			require.NoError(t, err)
			return all[0].Status
		}
		g.until(t, func() bool { return status() == projection.Faulted }, "all of it stops")
		// The node looks for it every second. Before that it would begin with other partitions.
		pass(time.Second)
		g.write(t, good, moved(1)...)
		pass(5 * time.Second)
		require.Equal(t, "projection.halted", fault.CodeOf(g.runner.Health()))
		require.Zero(t, g.count(good))
	})
}

// TestRunner_OutageCountsNoAttempt: what has nothing to do with the events puts none of
// them into the dead letters, however long it lasts.
func TestRunner_OutageCountsNoAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newFixture(t, nil)
		a := g.entity(t, "A")
		g.counter.fail(a, fault.New(fault.Unavailable, "rates.unavailable", "the rates cannot be reached; try again"))
		g.write(t, a, moved(3)...)
		g.start(t)
		pass(31 * time.Second)
		require.Equal(t, 6, g.watcher.failed(a), "after 1, 2, 4, 8 and 16 seconds")
		require.Empty(t, g.letters(t))
		require.Zero(t, g.reached(t, a))
		g.counter.fail(a, nil)
		pass(32*time.Second - 1)
		require.Zero(t, g.reached(t, a))
		pass(1)
		require.EqualValues(t, 3, g.reached(t, a), "it continues by itself")
	})
}

func TestOperations_OnPoisonEvent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newFixture(t, nil)
		a := g.entity(t, "A")
		g.start(t)
		g.write(t, a, moved(2)...)
		g.until(t, func() bool { return g.reached(t, a) == 2 }, "a built-in projection runs by itself")
		change := func(status projection.Status) {
			t.Helper()
			all, err := g.store.ProjectionVersions.ListProjections(t.Context())
			require.NoError(t, err)
			all[0].Status = status
			_, err = g.store.ProjectionVersions.ChangeProjection(t.Context(), all[0])
			require.NoError(t, err)
		}
		for _, still := range []projection.Status{projection.Paused, projection.Stopped} {
			change(still)
			before := g.reached(t, a)
			pass(time.Second) // it has been seen
			g.write(t, a, moved(1)...)
			pass(4 * time.Second)
			require.Equal(t, before, g.reached(t, a))
			change(projection.Running)
			pass(time.Second)
			require.Equal(t, before+1, g.reached(t, a), "it continues where it was")
		}
		require.Equal(t, 4, g.count(a))

		_, err := g.store.Projections.Reset(t.Context(), ports.ProjectionOperation{ProjectionWork: ports.ProjectionWork{Projection: name, Version: version, Partition: a}}, countReset{})
		require.NoError(t, err)
		pass(time.Second)
		require.EqualValues(t, 4, g.reached(t, a), "it reads again from the beginning")
		require.Equal(t, 4, g.count(a))
	})
}

// countReset forgets what the counter counted.
type countReset struct{}

func (countReset) Reset(_ context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch) error {
	t, err := memory.Bind(tx)
	if err == nil {
		t.Delete("counts", fmt.Sprint(b.Partition))
	}
	return err
}

// TestRunner_BatchedCheckpoints: a transaction begins when enough events are
// there, or when the first of them has waited long enough.
func TestRunner_BatchedCheckpoints(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newFixture(t, nil)
		g.settings(t, func(s *projection.Settings) {
			s.BatchSize = 100
			s.Checkpoint = projection.Checkpointing{Mode: projection.Batched, Events: 5, WaitMS: 2000}
		})
		a := g.entity(t, "A")
		g.write(t, a, moved(3)...)
		g.start(t)
		g.round()
		require.Zero(t, g.reached(t, a))
		g.write(t, a, moved(2)...)
		g.until(t, func() bool { return g.reached(t, a) == 5 }, "five are enough")
		g.write(t, a, moved(1)...)
		g.round()
		pass(2*time.Second - 1)
		require.EqualValues(t, 5, g.reached(t, a))
		pass(1)
		require.EqualValues(t, 6, g.reached(t, a), "it has waited long enough")
	})
}

// TestRunner_ClockSetBack: a pause is no longer than it was.
func TestRunner_ClockSetBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		a := c.entity(t, "A")
		m := c.join(t, "x", nil)
		c.write(t, a, moved(1)...)
		c.wait(t, 0, func() bool { return c.count(a) == 1 }, "it works")
		m.counter.fail(a, errors.New("no"))
		c.write(t, a, moved(1)...)
		c.wait(t, 0, func() bool { return m.watcher.failed(a) == 1 }, "it failed")
		m.counter.fail(a, nil)
		c.clock.Advance(-24 * time.Hour)
		c.wait(t, 0, func() bool { return c.count(a) == 2 }, "it does not wait for a day")
	})
}
