package projections_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/projections"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
)

// lockedStore is a store in which another session holds the checkpoints of some
// partitions. Who waits for one briefly is busy at once, who waits longer waits until
// the test lets it continue.
type lockedStore struct {
	ports.Projections
	mu      sync.Mutex
	held    map[event.PartitionID]bool
	waits   map[event.PartitionID][]time.Duration
	waiting int
	most    int
	gate    chan struct{} // an attempt after the first continues
}

func (s *lockedStore) Advance(ctx context.Context, a ports.ProjectionAdvance, h ports.ProjectionHandler) (ports.Checkpoint, int, error) {
	s.mu.Lock()
	held := s.held[a.Partition]
	if held {
		s.waits[a.Partition] = append(s.waits[a.Partition], a.LockWait)
	}
	retries := held && len(s.waits[a.Partition]) > 1
	if retries {
		s.waiting++
		s.most = max(s.most, s.waiting)
	}
	s.mu.Unlock()
	if retries {
		select {
		case <-s.gate:
		case <-ctx.Done():
		}
		s.mu.Lock()
		s.waiting--
		held = s.held[a.Partition]
		s.mu.Unlock()
	}
	if held {
		return ports.Checkpoint{}, 0, projection.Busy()
	}
	return s.Projections.Advance(ctx, a, h)
}

func (s *lockedStore) see(f func() bool) func() bool {
	return func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return f()
	}
}

func newLockedRig(t *testing.T, workers int) (*runnerFixture, *lockedStore) {
	t.Helper()
	s := &lockedStore{held: map[event.PartitionID]bool{}, waits: map[event.PartitionID][]time.Duration{}, gate: make(chan struct{})}
	g := newFixture(t, func(c *projections.Config) {
		s.Projections = c.Store
		c.Store, c.Workers = s, workers
	})
	return g, s
}

// TestRunner_BlockedUnitsLeaveWorkersFree: twice as many are locked as there are
// workers.
func TestRunner_BlockedUnitsLeaveWorkersFree(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, s := newLockedRig(t, 4)
		var locked []event.PartitionID
		for i := range 8 {
			p := g.entity(t, "L"+string(rune('A'+i)))
			locked = append(locked, p)
			s.held[p] = true
			g.write(t, p, moved(3)...)
		}
		free := g.entity(t, "FREE")
		g.write(t, free, moved(1)...)
		g.start(t)
		within(t, time.Second, s.see(func() bool { return s.waiting == 1 && len(s.waits) == 8 }), "all were tried, and one is waited for")
		for n := 2; n < 6; n++ { // while that one is being waited for
			g.until(t, func() bool { return g.count(free) == n-1 }, "the other ones continue")
			g.write(t, free, moved(1)...)
			g.until(t, func() bool { return g.count(free) == n }, "the other ones continue")
		}
		require.True(t, s.see(func() bool { return s.most == 1 && s.waiting == 1 })(), "one worker of four waits")

		s.mu.Lock()
		clear(s.held)
		s.mu.Unlock()
		close(s.gate)
		for _, p := range locked {
			within(t, 10*time.Second, func() bool { return g.count(p) == 3 }, "they continue")
			require.Zero(t, g.watcher.failed(p), "a lock of another session is no failure")
			require.Zero(t, g.checkpoint(t, p).Attempts)
		}
		require.Empty(t, g.letters(t))
		for _, p := range locked {
			waits := s.waits[p]
			for i, wait := range waits {
				require.Positive(t, wait)
				require.LessOrEqual(t, wait, 2*time.Second/8, "each has its turn within two seconds")
				if i > 0 {
					require.GreaterOrEqual(t, wait, waits[0])
				}
			}
		}
		require.NoError(t, g.runner.Health())
	})
}

// TestRunner_LogsLongLockOnce: not with every attempt.
func TestRunner_LogsLongLockOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, s := newLockedRig(t, 1) // the only worker must not wait for one of them
		p, free := g.entity(t, "LOCKED"), g.entity(t, "FREE")
		s.held[p] = true
		close(s.gate)
		g.write(t, p, moved(1)...)
		g.start(t)
		pass(40 * time.Second)
		require.True(t, s.see(func() bool { return len(s.waits[p]) > 9 })(), "it lasts")
		g.write(t, free, moved(1)...)
		g.until(t, func() bool { return g.count(free) == 1 }, "the other continues")
		s.mu.Lock()
		delete(s.held, p)
		for _, wait := range s.waits[p] {
			require.Equal(t, s.waits[p][0], wait)
		}
		s.mu.Unlock()
		within(t, 10*time.Second, func() bool { return g.count(p) == 1 }, "it continues")
		require.Zero(t, g.watcher.failed(p))
		g.stop()
		require.Equal(t, 1, strings.Count(g.logged.String(), "projection waits for a lock that another session holds"))
		require.Equal(t, 1, strings.Count(g.logged.String(), "projection acquired the lock that it waited for"))
		require.NotContains(t, g.logged.String(), "level=ERROR")
	})
}
