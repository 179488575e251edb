package globallog_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/adapters/system"
	"github.com/erpbackbone/backbone/application/globallog"
	"github.com/erpbackbone/backbone/application/subscriptions"
	"github.com/erpbackbone/backbone/domain/event"
	domain "github.com/erpbackbone/backbone/domain/globallog"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/conformance"
)

// fixture is an installation in memory with some nodes, in a bubble.
type fixture struct {
	t        *testing.T
	database *memory.Database
	recorder *conformance.Recorder
	heads    *subscriptions.HeadWatcher
	observer window
	nodes    int
}

// window is what the newest observation says.
type window struct {
	mu       sync.Mutex
	extended int
	events   uint64
	age      time.Duration
}

func (w *window) GlobalLogExtended(events int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.extended += events
}

func (w *window) GlobalLogWindow(events uint64, age time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events, w.age = events, age
}

func newFixture(t *testing.T, partitions int) *fixture {
	t.Helper()
	f := &fixture{t: t, database: memory.New(memory.Config{Clock: system.Clock{}})}
	f.recorder = conformance.NewRecorder(t, f.database.Directory, f.database.Registry, f.database.Appender, partitions)
	var err error
	f.heads, err = subscriptions.NewHeadWatcher(subscriptions.HeadWatcherConfig{Heads: f.database.Events, WakeUps: f.database.Events, Clock: system.Clock{}, Poll: 500 * time.Millisecond})
	require.NoError(t, err)
	f.run(f.heads.Run)
	return f
}

// run runs what ends with the returned function or the test.
func (f *fixture) run(what func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(f.t.Context())
	done := make(chan struct{})
	go func() { defer close(done); what(ctx) }()
	stop = func() { cancel(); <-done }
	f.t.Cleanup(stop)
	return stop
}

// start starts a node that extends the global log over a store.
func (f *fixture) start(log globallog.Log) (stop func()) {
	f.nodes++
	return f.run(globallog.New(globallog.Config{
		Log: log, Leases: f.database.Leases, Heads: f.heads, Node: fmt.Sprintf("node-%d", f.nodes), Logger: slog.New(slog.DiscardHandler), Observer: &f.observer,
	}).Run)
}

// missing counts the events that the global log does not have, after it has compared the ranges with the log.
func (f *fixture) missing() (n int) {
	f.t.Helper()
	ranges, err := f.database.GlobalLog.GlobalRanges(f.t.Context(), ports.GlobalRangeQuery{Partitions: f.recorder.Partitions, Limit: 1 << 30})
	require.NoError(f.t, err)
	var next domain.Position
	ends := map[event.PartitionID]event.Sequence{}
	for _, r := range ranges {
		require.Equal(f.t, next, r.First)
		require.Equal(f.t, ends[r.Partition]+1, r.Sequence, "partition %d", r.Partition)
		next, ends[r.Partition] = r.End(), r.NextSequence()-1
	}
	for p, checksums := range f.recorder.Checksums {
		require.LessOrEqual(f.t, int(ends[p]), len(checksums))
		n += len(checksums) - int(ends[p])
	}
	return n
}

// pass lets simulated time pass.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// TestSequencer_TakesEverything: what was there at the start, what comes later, and of more partitions than one
// extension takes; each event is in the global log within a second.
func TestSequencer_TakesEverything(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 300)
		for _, p := range f.recorder.Partitions {
			f.recorder.Record(t, p, 2)
		}
		f.start(f.database.GlobalLog)
		pass(time.Second)
		require.Zero(t, f.missing())
		for range 30 {
			for range 5 {
				f.recorder.Record(t, f.recorder.Partitions[rand.IntN(300)], 1+rand.IntN(50))
			}
			pass(time.Second)
			require.Zero(t, f.missing())
		}
		f.recorder.Record(t, f.recorder.Partitions[7], 20_000)
		pass(time.Second)
		require.Zero(t, f.missing())
		size, err := f.database.GlobalLog.GlobalSize(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, size, f.observer.extended)
	})
}

// TestSequencer_Nodes: when the node that holds the lease ends, another one goes on soon; when it dies, once the lease
// has ended. Until then the window grows, and the nodes say so.
func TestSequencer_Nodes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 3)
		p := f.recorder.Partitions[0]
		dead := &switched{Log: f.database.GlobalLog}
		stop := f.start(f.database.GlobalLog)
		pass(time.Second)
		f.start(dead)
		pass(time.Second)
		stop()
		f.recorder.Record(t, p, 3)
		pass(5 * time.Second)
		require.Zero(t, f.missing(), "the lease was released")

		dead.set(errors.New("unreachable"))
		f.recorder.Record(t, p, 4)
		pass(30 * time.Second)
		require.Equal(t, 4, f.missing())
		dead.set(nil)
		pass(5 * time.Second)
		require.Zero(t, f.missing())
		pass(5 * time.Second)
		require.Zero(t, f.observer.events)
		require.Zero(t, f.observer.age)
	})
}

// switched is a log that may be unreachable.
type switched struct {
	globallog.Log
	mu  sync.Mutex
	err error
}

func (s *switched) set(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func (s *switched) ExtendGlobalLog(ctx context.Context, partitions []event.PartitionID, most int) ([]domain.Range, error) {
	s.mu.Lock()
	err := s.err
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return s.Log.ExtendGlobalLog(ctx, partitions, most)
}

// TestSequencer_Window: while nothing is extended, each node reports how much waits and for how long.
func TestSequencer_Window(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 2)
		log := &switched{Log: f.database.GlobalLog, err: errors.New("unreachable")}
		f.start(log)
		f.recorder.Record(t, f.recorder.Partitions[0], 5)
		pass(10 * time.Second)
		f.recorder.Record(t, f.recorder.Partitions[1], 2)
		pass(20 * time.Second)
		require.EqualValues(t, 7, f.observer.events)
		require.InDelta(t, 30, f.observer.age.Seconds(), 7)
		log.set(nil)
		pass(10 * time.Second)
		require.Zero(t, f.observer.events)
	})
}

// TestSequencer_Faults: two nodes, of which one is frozen past its lease within an extension, answers that are lost
// after the effect, and calls that fail before it. Each event comes once.
func TestSequencer_Faults(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 5)
		frozen := &freezing{Log: f.database.GlobalLog}
		f.start(frozen)
		pass(time.Second)
		f.start(&failing{Log: f.database.GlobalLog})
		for round := range 40 {
			frozen.freeze(round%10 == 3)
			for _, p := range f.recorder.Partitions {
				f.recorder.Record(t, p, rand.IntN(20))
			}
			pass(3 * time.Second)
			f.missing() // compares
		}
		frozen.freeze(false)
		pass(time.Minute)
		require.Zero(t, f.missing())
	})
}

// freezing is a log whose node stops in the middle of a call, for longer than its lease lives.
type freezing struct {
	globallog.Log
	mu    sync.Mutex
	stops bool
}

func (l *freezing) freeze(stops bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stops = stops
}

func (l *freezing) ExtendGlobalLog(ctx context.Context, partitions []event.PartitionID, most int) ([]domain.Range, error) {
	l.mu.Lock()
	stops := l.stops
	l.mu.Unlock()
	if stops {
		<-time.After(25 * time.Second)
	}
	return l.Log.ExtendGlobalLog(ctx, partitions, most)
}

// failing is a log of which every third call fails, by turns before and after its effect.
type failing struct {
	globallog.Log
	calls int
}

func (l *failing) ExtendGlobalLog(ctx context.Context, partitions []event.PartitionID, most int) ([]domain.Range, error) {
	l.calls++
	if l.calls%6 == 1 {
		return nil, errors.New("unreachable")
	}
	ranges, err := l.Log.ExtendGlobalLog(ctx, partitions, most)
	if l.calls%6 == 4 {
		return nil, errors.New("the answer is lost")
	}
	return ranges, err
}
