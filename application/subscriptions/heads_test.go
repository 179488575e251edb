package subscriptions_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/system"
	"github.com/erpbackbone/backbone/application/subscriptions"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// growingHeads is a store whose partitions grow on demand.
type growingHeads struct {
	mu    sync.Mutex
	heads map[event.PartitionID]ports.Head
	reads atomic.Int64
	wake  chan struct{} // nil: its signals are lost
	fails atomic.Bool
}

func (g *growingHeads) PartitionHeads(context.Context) (map[event.PartitionID]ports.Head, error) {
	g.reads.Add(1)
	if g.fails.Load() {
		return nil, context.DeadlineExceeded
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make(map[event.PartitionID]ports.Head, len(g.heads))
	for p, h := range g.heads {
		out[p] = h
	}
	return out, nil
}

func (g *growingHeads) growSilently(p event.PartitionID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	h := g.heads[p]
	h.Sequence++
	g.heads[p] = h
}

func (g *growingHeads) grow(p event.PartitionID) {
	g.growSilently(p)
	if g.wake != nil {
		g.wake <- struct{}{}
	}
}

func (g *growingHeads) Listen(ctx context.Context, wake func(event.PartitionID)) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-g.wake:
			wake(1)
		}
	}
}

func run(t *testing.T, w *subscriptions.HeadWatcher) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() { w.Run(ctx) })
	t.Cleanup(func() { cancel(); done.Wait() })
}

// pass lets simulated time pass, and waits until what was due by then is done.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// reach waits, as a reader does, until the partition's head is known.
func reach(w *subscriptions.HeadWatcher, p event.PartitionID, want event.Sequence) {
	for {
		heads, changed := w.Heads()
		if heads[p].Sequence >= want {
			return
		}
		<-changed
	}
}

// requireReached checks that the partition's head becomes known within a time.
func requireReached(t *testing.T, w *subscriptions.HeadWatcher, want event.Sequence, within time.Duration) {
	t.Helper()
	begun := time.Now()
	reach(w, 1, want)
	require.LessOrEqual(t, time.Since(begun), within)
}

// minReadInterval is the shortest time between two reads.
const minReadInterval = 5 * time.Millisecond

func TestHeadWatcher_SignalRefreshes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &growingHeads{heads: map[event.PartitionID]ports.Head{1: {}, 2: {}}, wake: make(chan struct{})}
		w := testkit.Must(subscriptions.NewHeadWatcher(subscriptions.HeadWatcherConfig{Heads: g, WakeUps: g, Clock: system.Clock{}, Poll: time.Hour}))
		run(t, w)
		for n := event.Sequence(1); n <= 50; n++ {
			g.grow(1)
			requireReached(t, w, n, minReadInterval)
		}
		require.NotZero(t, w.LastRead())
	})
}

func TestHeadWatcher_PollsWithoutSignals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &growingHeads{heads: map[event.PartitionID]ports.Head{1: {}}}
		w := testkit.Must(subscriptions.NewHeadWatcher(subscriptions.HeadWatcherConfig{Heads: g, Clock: system.Clock{}, Poll: time.Second}))
		run(t, w)
		g.grow(1)
		requireReached(t, w, 1, time.Second)
		g.fails.Store(true)
		g.grow(1)
		before := g.reads.Load()
		pass(3 * time.Second)
		require.Equal(t, before+3, g.reads.Load())
		g.fails.Store(false)
		requireReached(t, w, 2, time.Second)
	})
}

// hangingHeads is a store whose connection is dead: the first query hangs.
type hangingHeads struct {
	growingHeads
	hung atomic.Bool
}

func (s *hangingHeads) PartitionHeads(ctx context.Context) (map[event.PartitionID]ports.Head, error) {
	if s.hung.CompareAndSwap(false, true) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.growingHeads.PartitionHeads(ctx)
}

func TestHeadWatcher_QueryTimesOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &hangingHeads{growingHeads: growingHeads{heads: map[event.PartitionID]ports.Head{1: {Sequence: 1}}}}
		w := testkit.Must(subscriptions.NewHeadWatcher(subscriptions.HeadWatcherConfig{Heads: s, Clock: system.Clock{}, Poll: time.Second}))
		run(t, w)
		pass(6*time.Second - 1) // five of the query and one of the pause
		heads, _ := w.Heads()
		require.Empty(t, heads)
		pass(1)
		requireReached(t, w, 1, 0)
		require.True(t, s.hung.Load())
	})
}

// A caller that takes the heads and the channel together misses no growth, also when both
// change at that moment.
func TestHeadWatcher_ReportsEveryGrowth(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &growingHeads{heads: map[event.PartitionID]ports.Head{1: {}}, wake: make(chan struct{})}
		w := testkit.Must(subscriptions.NewHeadWatcher(subscriptions.HeadWatcherConfig{Heads: g, WakeUps: g, Clock: system.Clock{}, Poll: time.Hour}))
		run(t, w)
		const last = 300
		var waiters sync.WaitGroup
		for range 8 {
			waiters.Go(func() { reach(w, 1, last) })
		}
		for range last {
			g.grow(1)
			<-time.After(minReadInterval)
		}
		waiters.Wait()
	})
}

func TestHeadWatcher_UnchangedHeadsWakeNoReader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &growingHeads{heads: map[event.PartitionID]ports.Head{1: {Sequence: 7}}}
		w := testkit.Must(subscriptions.NewHeadWatcher(subscriptions.HeadWatcherConfig{Heads: g, Clock: system.Clock{}, Poll: time.Second}))
		run(t, w)
		requireReached(t, w, 7, 0)
		_, changed := w.Heads()
		before := g.reads.Load()
		pass(5 * time.Second)
		require.Equal(t, before+5, g.reads.Load())
		select {
		case <-changed:
			require.Fail(t, "nothing has grown")
		default:
		}
	})
}

func TestHeadWatcher_PollIntervals(t *testing.T) {
	t.Parallel()
	t.Run("quietly while signals announce every event", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			g := &growingHeads{heads: map[event.PartitionID]ports.Head{1: {}}, wake: make(chan struct{})}
			w := testkit.Must(subscriptions.NewHeadWatcher(subscriptions.HeadWatcherConfig{Heads: g, WakeUps: g, Clock: system.Clock{}, Poll: time.Second, Quiet: 10 * time.Second}))
			run(t, w)
			<-time.After(2 * time.Minute) // the first minute trusts no signal
			g.grow(1)
			<-time.After(time.Minute)
			before := g.reads.Load()
			<-time.After(time.Minute)
			require.InDelta(t, 6, g.reads.Load()-before, 1)
		})
	})
	t.Run("every Poll for a minute after a signal was lost", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			g := &growingHeads{heads: map[event.PartitionID]ports.Head{1: {}}, wake: make(chan struct{})}
			w := testkit.Must(subscriptions.NewHeadWatcher(subscriptions.HeadWatcherConfig{Heads: g, WakeUps: g, Clock: system.Clock{}, Poll: time.Second, Quiet: 10 * time.Second}))
			run(t, w)
			<-time.After(2 * time.Minute)
			g.growSilently(1)
			requireReached(t, w, 1, 10*time.Second)
			before := g.reads.Load()
			<-time.After(30 * time.Second)
			require.InDelta(t, 30, g.reads.Load()-before, 1)
			<-time.After(time.Minute)
			before = g.reads.Load()
			<-time.After(time.Minute)
			require.InDelta(t, 6, g.reads.Load()-before, 1)
		})
	})
}
