package projections_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/application/projections"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/conformance"
)

func TestRunner_AppliesEventsOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newFixture(t, nil)
		a, b := g.entity(t, "A"), g.entity(t, "B")
		g.write(t, a, moved(10)...)
		g.write(t, b, "till.opened", "till.cash.moved", "till.closed")
		g.start(t)
		synctest.Wait()
		require.Equal(t, []event.Sequence{10, 3}, []event.Sequence{g.reached(t, a), g.reached(t, b)}, "caught up without a signal when it starts")
		require.Equal(t, []int{10, 1}, []int{g.count(a), g.count(b)})

		g.write(t, a, moved(3)...)
		g.until(t, func() bool { return g.reached(t, a) == 13 }, "caught up")
		for range 5 {
			g.runner.Wake()
		}
		g.stop()
		require.Equal(t, 13, g.count(a))
		for id, n := range g.counter.seen {
			require.Equal(t, 1, n, id)
		}
		for _, n := range g.counter.batches {
			require.LessOrEqual(t, n, 4)
		}
		checkpoints, err := g.store.Projections.Checkpoints(t.Context(), name, version)
		require.NoError(t, err)
		require.Len(t, checkpoints, 2)
		for _, c := range checkpoints {
			require.Equal(t, []string{"running", ""}, []string{c.Status, c.Error})
		}
	})
}

func TestRunner_RestartsFromCheckpoint(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newFixture(t, nil)
		a := g.entity(t, "A")
		g.write(t, a, moved(6)...)
		g.start(t)
		synctest.Wait()
		require.EqualValues(t, 6, g.reached(t, a))
		g.stop()
		g.write(t, a, moved(2)...)
		g.runner = g.node(t, g.config(), g.counter)
		g.start(t)
		synctest.Wait()
		require.EqualValues(t, 8, g.reached(t, a))
		g.stop()
		require.Equal(t, 8, g.count(a))
		require.Len(t, g.counter.seen, 8)
	})
}

func TestRunner_FailingPartitionBlocksNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newFixture(t, nil)
		g.settings(t, func(s *projection.Settings) { s.MaxAttempts = 100 })
		bad, good := g.entity(t, "BAD"), g.entity(t, "GOOD")
		g.counter.fail(bad, fault.New(fault.Internal, "till.broken", "secret 4711"))
		g.write(t, bad, moved(2)...)
		g.start(t)
		g.until(t, func() bool { return g.watcher.failed(bad) == 1 }, "it failed")

		// The other ones continue, and the failing one is not tried before its time.
		for i := range 5 {
			g.write(t, good, moved(1)...)
			g.until(t, func() bool { return g.reached(t, good) == event.Sequence(i)+1 }, "the other ones continue")
		}
		require.Equal(t, 1, g.watcher.failed(bad))
		require.Zero(t, g.count(bad), "nothing of a failed batch stays")
		require.Zero(t, g.reached(t, bad))
		require.Equal(t, 1, g.checkpoint(t, bad).Attempts, "it is written down")
		require.Equal(t, []string{"retrying", "till.broken"}, []string{g.checkpoint(t, bad).Status, g.checkpoint(t, bad).Error}, "the code, not the text")

		// The pauses double up to a minute.
		for attempt, seconds := range []int{1, 2, 4, 8, 16, 32, 60, 60} {
			wait := time.Duration(seconds) * time.Second
			pass(wait - 1)
			g.write(t, good, moved(1)...)
			g.until(t, func() bool { return g.reached(t, good) == event.Sequence(attempt)+6 }, "a round without it")
			require.Equal(t, attempt+1, g.watcher.failed(bad), "too early after %s", wait)
			pass(1)
			require.Equal(t, attempt+2, g.watcher.failed(bad), "the next attempt after %s", wait)
		}

		// Once it is repaired it catches up, and a later failure starts again.
		g.counter.fail(bad, nil)
		pass(time.Minute)
		require.EqualValues(t, 2, g.reached(t, bad), "recovery")
		require.Equal(t, 2, g.count(bad))
		require.Equal(t, []string{"running", ""}, []string{g.checkpoint(t, bad).Status, g.checkpoint(t, bad).Error})
		failures := g.watcher.failed(bad)
		g.counter.fail(bad, errors.New("again"))
		g.write(t, bad, moved(1)...)
		g.until(t, func() bool { return g.watcher.failed(bad) == failures+1 }, "fails again")
		pass(time.Second)
		require.Equal(t, failures+2, g.watcher.failed(bad), "after one second, not a minute")
		g.stop()
		require.NotContains(t, g.logged.String(), "4711", "logs hold codes")
		require.Contains(t, g.logged.String(), "till.broken")
	})
}

func TestRunner_ObservesLag(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newFixture(t, nil)
		g.settings(t, func(s *projection.Settings) { s.MaxAttempts = 100 })
		a := g.entity(t, "A")
		g.counter.fail(a, errors.New("no"))
		g.write(t, a, moved(7)...)
		lag := func() []float64 {
			events, seconds := g.watcher.lag(a)
			return []float64{float64(events), seconds}
		}
		pass(30 * time.Second)
		g.start(t)
		synctest.Wait()
		require.Equal(t, []float64{7, 30}, lag(), "behind")
		pass(10 * time.Minute)
		g.write(t, a, moved(1)...)
		pass(time.Second)
		require.Equal(t, []float64{8, 631}, lag(), "the oldest event's age, not the newest's")
		g.counter.fail(a, nil)
		pass(time.Minute) // its pause has grown
		require.Equal(t, []float64{0, 0}, lag(), "caught up")
		require.EqualValues(t, 8, g.reached(t, a))
	})
}

// countingLog counts the queries for the age of events, and the events in them.
type countingLog struct {
	ports.LogPositions
	queries, events atomic.Int64
}

func (q *countingLog) RecordedAt(ctx context.Context, positions []ports.EventPosition) (map[ports.EventPosition]time.Time, error) {
	q.queries.Add(1)
	q.events.Add(int64(len(positions)))
	return q.LogPositions.RecordedAt(ctx, positions)
}

// TestRunner_QueriesLagOnlyAfterProgress holds the price of the measurement: nothing
// where all is read, and one question where a projection is halted.
func TestRunner_QueriesLagOnlyAfterProgress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := &countingLog{}
		g := newFixture(t, func(c *projections.Config) {
			log.LogPositions = c.Log
			c.Log = log
		})
		idle, behind := g.entity(t, "A"), g.entity(t, "B")
		g.counter.fail(behind, errors.New("no"))
		g.write(t, idle, moved(1)...)
		g.start(t)
		g.until(t, func() bool { return g.reached(t, idle) == 1 }, "caught up")
		before := []int64{log.queries.Load(), log.events.Load()}
		g.write(t, behind, moved(3)...)
		g.until(t, func() bool { events, _ := g.watcher.lag(behind); return events == 3 }, "behind")
		for i := range 5 {
			pass(time.Second)
			_, seconds := g.watcher.lag(behind)
			require.InDelta(t, i+1, seconds, 0, "its age grows")
		}
		g.stop()
		require.Equal(t, []int64{before[0] + 1, before[1] + 1}, []int64{log.queries.Load(), log.events.Load()})
	})
}

func TestRunner_WakesOnSignal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newFixture(t, func(c *projections.Config) { c.Refresh, c.Renew = time.Hour, time.Hour })
		a := g.entity(t, "A")
		g.start(t)
		for i := range 5 {
			g.write(t, a, moved(1)...)
			g.taps.signal()
			synctest.Wait()
			require.EqualValues(t, i+1, g.reached(t, a), "without a tick")
		}
	})
}

// flaky fails to answer when told to.
type flaky struct {
	*memory.Projections
	log                      ports.HeadReader
	heads, checkpoints, mark atomic.Bool
	asked                    atomic.Int64
}

var errFlaky = errors.New("no connection")

func (f *flaky) PartitionHeads(ctx context.Context) (map[event.PartitionID]ports.Head, error) {
	f.asked.Add(1)
	if f.heads.Load() {
		return nil, errFlaky
	}
	return f.log.PartitionHeads(ctx)
}

func (f *flaky) Checkpoints(ctx context.Context, name string, version int) ([]ports.Checkpoint, error) {
	if f.checkpoints.Load() {
		return nil, errFlaky
	}
	return f.Projections.Checkpoints(ctx, name, version)
}

func (f *flaky) RecordFailure(ctx context.Context, failure ports.ProjectionFailure) (ports.Checkpoint, error) {
	if f.mark.Load() {
		return ports.Checkpoint{}, errFlaky
	}
	return f.Projections.RecordFailure(ctx, failure)
}

func TestRunner_WaitsForUnavailableStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var f *flaky
		g := newFixture(t, func(c *projections.Config) {
			f = &flaky{Projections: c.Store.(*memory.Projections), log: c.Log}
			c.Store = f
		})
		g.taps.source = f
		a := g.entity(t, "A")
		g.write(t, a, moved(2)...)
		f.heads.Store(true)
		g.start(t)
		pass(time.Second)
		require.Greater(t, f.asked.Load(), int64(2), "it asks again")
		require.Zero(t, g.count(a))
		f.checkpoints.Store(true)
		_, _, err := g.runner.Position(t.Context(), name, version, a)
		require.ErrorIs(t, err, errFlaky)
		f.checkpoints.Store(false)
		f.heads.Store(false)
		g.until(t, func() bool { return g.reached(t, a) == 2 }, "recovery")

		// A fault that cannot be recorded holds the partition back all the same.
		f.mark.Store(true)
		g.counter.fail(a, errors.New("no"))
		g.write(t, a, moved(1)...)
		g.until(t, func() bool { return g.watcher.failed(a) == 1 }, "it failed")
		attempts := g.counter.attempts()
		n := f.asked.Load()
		pass(time.Second - 1)
		require.Greater(t, f.asked.Load(), n, "more rounds")
		require.Equal(t, attempts, g.counter.attempts())
		pass(1)
		require.Equal(t, attempts+1, g.counter.attempts(), "the pause is over")
	})
}

func TestRunner_Position(t *testing.T) {
	t.Parallel()
	g := newFixture(t, nil)
	a := g.entity(t, "A")
	require.Zero(t, g.reached(t, a), "before the first event")
	_, err := g.runner.Active(t.Context(), "no.such")
	require.Equal(t, "projection.not_found", fault.CodeOf(err))
}

func TestNew_UnboundProjection(t *testing.T) {
	t.Parallel()
	_, err := projections.New(projections.Config{Limits: conformance.ProjectorLimits(nil)}, declared, map[string]ports.ProjectionHandler{"till.other": newCountingHandler()})
	require.Equal(t, "projection.unbound", fault.CodeOf(err))
}

// panicking is a handler with a bug.
type panicking struct{ *countingHandler }

func (p panicking) Apply(ctx context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch) error {
	if err := p.countingHandler.Apply(ctx, tx, b); err != nil {
		panic("secret 4711")
	}
	return nil
}

func TestRunner_PanicFailsPartition(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newFixture(t, nil)
		g.runner = g.node(t, g.config(), panicking{g.counter})
		bad, good := g.entity(t, "BAD"), g.entity(t, "GOOD")
		g.counter.fail(bad, errors.New("no"))
		g.write(t, bad, moved(1)...)
		g.write(t, good, moved(1)...)
		g.start(t)
		g.until(t, func() bool { return g.watcher.failed(bad) == 1 && g.reached(t, good) == 1 }, "the process and the other projections keep running")
		require.Zero(t, g.count(bad))
		g.counter.fail(bad, nil)
		pass(time.Second)
		require.EqualValues(t, 1, g.reached(t, bad), "recovery")
		g.stop()
		require.NotContains(t, g.logged.String(), "4711")
	})
}
