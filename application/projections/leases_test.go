package projections_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/projections"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// clusterFixture are nodes on one store.
type clusterFixture struct {
	*runnerFixture
	nodes map[string]*clusterNode
}

type clusterNode struct {
	runner  *projections.Runner
	counter *countingHandler
	watcher *recordingObserver
	stop    func()
	frozen  *unreachableLeases
}

// unreachableLeases are leases that a node cannot reach any more, as one that hangs.
type unreachableLeases struct {
	ports.Leases
	mu            sync.Mutex
	isUnreachable bool
}

func (f *unreachableLeases) disconnect() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.isUnreachable = true
}

func (f *unreachableLeases) err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.isUnreachable {
		return fault.New(fault.Unavailable, "store.unavailable", "away")
	}
	return nil
}

func (f *unreachableLeases) Hold(ctx context.Context, holder string, ttl time.Duration, resources []ports.LeaseResource) ([]ports.Lease, error) {
	if err := f.err(); err != nil {
		return nil, err
	}
	return f.Leases.Hold(ctx, holder, ttl, resources)
}

func (f *unreachableLeases) Beat(ctx context.Context, work, node string, within time.Duration) ([]string, error) {
	if err := f.err(); err != nil {
		return nil, err
	}
	return f.Leases.Beat(ctx, work, node, within)
}

func (f *unreachableLeases) Release(ctx context.Context, holder string, resources []ports.LeaseResource) error {
	if err := f.err(); err != nil {
		return err
	}
	return f.Leases.Release(ctx, holder, resources)
}

func (f *unreachableLeases) Leave(ctx context.Context, work, node string) error {
	if err := f.err(); err != nil {
		return err
	}
	return f.Leases.Leave(ctx, work, node)
}

func newCluster(t *testing.T) *clusterFixture {
	t.Helper()
	return &clusterFixture{runnerFixture: newFixture(t, nil), nodes: map[string]*clusterNode{}}
}

func (c *clusterFixture) join(t *testing.T, node string, h func(*countingHandler) ports.ProjectionHandler) *clusterNode {
	t.Helper()
	m := &clusterNode{counter: newCountingHandler(), watcher: newRecordingObserver(), frozen: &unreachableLeases{Leases: c.store.Leases}}
	config := c.config()
	config.Logger, config.Observer, config.Node, config.Leases = nil, m.watcher, node, m.frozen
	config.Heads = newManualHeads(c.store, c.clock)
	var handler ports.ProjectionHandler = m.counter
	if h != nil {
		handler = h(m.counter)
	}
	m.runner = c.node(t, config, handler)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); m.runner.Run(ctx) }()
	m.stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(m.stop)
	c.nodes[node] = m
	return m
}

// wait wakes all nodes, and lets at most a time pass until a condition holds.
func (c *clusterFixture) wait(t *testing.T, most time.Duration, condition func() bool, what string) {
	t.Helper()
	for _, m := range c.nodes {
		m.runner.Wake()
	}
	within(t, most, condition, what)
}

func (c *clusterFixture) holders(t *testing.T) map[event.PartitionID]string {
	t.Helper()
	list, err := c.store.Leases.List(t.Context(), projections.LeaseName(name, version))
	require.NoError(t, err)
	out := map[event.PartitionID]string{}
	for _, l := range list {
		if l.Holder != "" && l.ExpiresAt.After(c.clock.Now()) {
			out[l.Partition] = l.Holder
		}
	}
	return out
}

func (c *clusterFixture) total(ps []event.PartitionID) int {
	sum := 0
	for _, p := range ps {
		sum += c.count(p)
	}
	return sum
}

func TestRunner_SharesPartitions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var ps []event.PartitionID
		for i := range 30 {
			ps = append(ps, c.entity(t, fmt.Sprint("E", i)))
		}
		written := 0
		write := func() {
			for _, p := range ps {
				c.write(t, p, moved(2)...)
				written += 2
			}
		}
		c.join(t, "a", nil)
		write()
		c.wait(t, 0, func() bool { return c.total(ps) == written }, "one alone does all")
		require.Equal(t, 30, c.nodes["a"].watcher.changes("taken"))

		c.join(t, "b", nil)
		c.join(t, "c", nil)
		settled := func() bool {
			for p, holder := range c.holders(t) {
				if holder != ports.Preferred([]string{"a", "b", "c"}, ports.LeaseResource{Name: projections.LeaseName(name, version), Partition: p}) {
					return false
				}
			}
			return true
		}
		shared := func() bool {
			share := map[string]int{}
			for _, holder := range c.holders(t) {
				share[holder]++
			}
			return share["a"] > 0 && share["b"] > 0 && share["c"] > 0 && settled()
		}
		c.wait(t, 3500*time.Millisecond, func() bool { write(); return shared() }, "they share after a renewal")
		c.wait(t, time.Second, func() bool { return c.total(ps) == written }, "caught up")
		require.True(t, settled(), "each by the one that should")
		require.NotZero(t, c.nodes["a"].watcher.changes("released"), "it was handed over")

		// One leaves in good order: the other nodes need not wait for anything to expire.
		c.nodes["b"].stop()
		require.NotContains(t, c.holders(t), "b")
		write()
		c.wait(t, 3*time.Second, func() bool { return c.total(ps) == written }, "the other nodes took it over")
		seen := 0
		for _, m := range c.nodes {
			for _, n := range m.counter.seen {
				seen += n
			}
		}
		require.Equal(t, written, seen, "each event was handled by one node, once")
	})
}

func TestPreferred_SpreadsEvenly(t *testing.T) {
	t.Parallel()
	share := map[string]int{}
	nodes := []string{"n1", "n2", "n3", "n4", "n5"}
	moved := 0
	for p := range event.PartitionID(5000) {
		resource := ports.LeaseResource{Name: "projection/gl.ledger/1", Partition: p}
		best := ports.Preferred(nodes, resource)
		share[best]++
		without := ports.Preferred(nodes[:4], resource)
		if best != "n5" {
			require.Equal(t, best, without, "what a living node has stays where it is")
		} else {
			moved++
		}
	}
	for node, n := range share {
		require.InDelta(t, 1000, n, 150, node)
	}
	require.Equal(t, share["n5"], moved)
	require.Empty(t, ports.Preferred(nil, ports.LeaseResource{}))
}

// TestRunner_DeadNodeIsReplaced freezes a node in the middle of a transaction. Another
// takes over; when the first wakes up, its transaction is refused.
func TestRunner_DeadNodeIsReplaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		a := c.entity(t, "A")
		resource := ports.LeaseResource{Name: projections.LeaseName(name, version), Partition: a}
		first := ports.Preferred([]string{"x", "y"}, resource)
		second := map[string]string{"x": "y", "y": "x"}[first]

		stuck := c.join(t, first, nil)
		c.write(t, a, moved(4)...)
		c.wait(t, 0, func() bool { return c.count(a) == 4 }, "the first works")
		held, err := c.store.Leases.List(t.Context(), resource.Name)
		require.NoError(t, err)
		stuck.frozen.disconnect()
		stuck.stop() // it hangs: no goodbye, no further signs of life

		begun := c.clock.Now()
		c.join(t, second, nil)
		c.write(t, a, moved(4)...)
		c.wait(t, 12*time.Second, func() bool { return c.count(a) == 8 }, "the second takes over")
		taken, err := c.store.Leases.List(t.Context(), resource.Name)
		require.NoError(t, err)
		require.Equal(t, 12*time.Second, taken[0].TakenAt.Sub(begun), "with the first renewal after the first one's lease ended")
		require.Equal(t, held[0].Term+1, taken[0].Term)

		// What the first one would still do is refused.
		c.write(t, a, moved(1)...)
		_, _, err = c.store.Projections.Advance(t.Context(), ports.ProjectionAdvance{
			ProjectionWork: ports.ProjectionWork{Projection: name, Version: version, Partition: a, Lease: &held[0]}, Limit: 10,
		}, stuck.counter)
		require.Equal(t, projection.CodeFenced, fault.CodeOf(err))
		c.wait(t, 0, func() bool { return c.count(a) == 9 }, "the second continues")
		for id, n := range c.nodes[second].counter.seen {
			require.Equal(t, 1, n, id)
		}
	})
}

// TestRunner_ContinuesAfterFencing: the lease is lost between two transactions.
func TestRunner_ContinuesAfterFencing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		a := c.entity(t, "A")
		m := c.join(t, "x", nil)
		c.write(t, a, moved(2)...)
		c.wait(t, 0, func() bool { return c.count(a) == 2 }, "it works")
		resources := []ports.LeaseResource{{Name: projections.LeaseName(name, version), Partition: a}}
		require.NoError(t, c.store.Leases.Release(t.Context(), "x", resources))
		_, err := c.store.Leases.Hold(t.Context(), "other", time.Second, resources)
		require.NoError(t, err)
		c.write(t, a, moved(2)...)
		c.wait(t, 0, func() bool { return m.watcher.changes("lost") == 1 }, "it is fenced")
		require.Equal(t, 2, c.count(a))
		require.Zero(t, m.watcher.failed(a), "that is no failure of the events")
		c.wait(t, time.Second, func() bool { return c.count(a) == 4 }, "and continues when the other's lease has ended")
		require.Equal(t, 2, m.watcher.changes("taken"))
	})
}

func TestRunner_SingleInstance(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.settings(t, func(s *projection.Settings) { s.SingleInstance = true })
		var ps []event.PartitionID
		for i := range 12 {
			ps = append(ps, c.entity(t, fmt.Sprint("E", i)))
			c.write(t, ps[i], moved(3)...)
		}
		c.join(t, "a", nil)
		c.join(t, "b", nil)
		preferred := ports.Preferred([]string{"a", "b"}, ports.LeaseResource{Name: projections.LeaseName(name, version)})
		other := map[string]string{"a": "b", "b": "a"}[preferred]
		// The first to come takes it, and gives it back when it knows of the other.
		c.wait(t, 3*time.Second, func() bool { return c.total(ps) == 36 && c.holders(t)[0] != other }, "all is done")
		for _, p := range ps {
			c.write(t, p, moved(1)...)
		}
		before := c.nodes[other].counter.attempts()
		c.wait(t, 3*time.Second, func() bool { return c.total(ps) == 48 }, "all is done")
		require.Equal(t, map[event.PartitionID]string{0: preferred}, c.holders(t))
		require.Equal(t, before, c.nodes[other].counter.attempts())
	})
}

// TestRunner_WorksPartitionsInParallel: slow partitions do not block other ones, as long
// as there are workers.
func TestRunner_WorksPartitionsInParallel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		began := make(chan event.PartitionID, 10)
		g := newFixture(t, func(c *projections.Config) { c.Workers = 3 })
		var slow []event.PartitionID
		for i := range 4 {
			slow = append(slow, g.entity(t, fmt.Sprint("SLOW", i)))
			g.write(t, slow[i], moved(1)...)
		}
		g.counter.block = func(ctx context.Context, b ports.ProjectionBatch) error {
			began <- b.Partition
			select {
			case <-release:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		// The memory store does one transaction at a time, so the other workers find it locked;
		// the loop does not wait for it.
		g.start(t)
		<-began
		pass(30 * time.Second)
		require.NoError(t, g.runner.Health())
		pass(1)
		require.Equal(t, "projection.stalled", fault.CodeOf(g.runner.Health()), "an attempt that does not end is noticed")
		close(release)
		within(t, 5*time.Second, func() bool { return g.count(slow[0])+g.count(slow[1])+g.count(slow[2])+g.count(slow[3]) == 4 }, "all done")
		require.NoError(t, g.runner.Health())
	})
}

func TestHealth_LoopStalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newFixture(t, nil)
		require.NoError(t, g.runner.Health(), "it has not begun")
		a := g.entity(t, "A")
		g.write(t, a, moved(1)...)
		g.start(t)
		g.until(t, func() bool { return g.reached(t, a) == 1 }, "it works")
		require.NoError(t, g.runner.Health())
		g.taps.mu.Lock()
		g.taps.stuck = true
		g.taps.mu.Unlock()
		pass(30 * time.Second)
		require.NoError(t, g.runner.Health())
		pass(1)
		require.ErrorContains(t, g.runner.Health(), "the log has not been read")
		g.taps.mu.Lock()
		g.taps.stuck = false
		g.taps.mu.Unlock()
		g.round()
		require.NoError(t, g.runner.Health())
		g.stop()
		pass(30 * time.Second)
		require.NoError(t, g.runner.Health())
		pass(1)
		require.ErrorContains(t, g.runner.Health(), "loop has not run")
	})
}

// passingTime is a clock on which time passes between one look at it and the next, as
// it does on every clock but a test's.
type passingTime struct{ *testkit.Clock }

func (p passingTime) Now() time.Time {
	p.Advance(time.Microsecond)
	return p.Clock.Now()
}

// TestRunner_UsesLeaseImmediately looks only when the log grows: what a lease was taken for must
// not wait for another signal or for the next tick.
func TestRunner_UsesLeaseImmediately(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newFixture(t, nil)
		c := g.config()
		c.Refresh, c.Renew, c.TTL, c.Node = time.Hour, time.Hour, 3*time.Hour, "a"
		c.Leases, c.Clock = g.store.Leases, passingTime{g.clock}
		g.runner = g.node(t, c, g.counter)
		a, b := g.entity(t, "A"), g.entity(t, "B")
		g.write(t, a, moved(1)...)
		g.start(t)
		synctest.Wait()
		require.EqualValues(t, 1, g.reached(t, a), "the first lease")
		g.write(t, b, moved(1)...)
		g.taps.signal()
		synctest.Wait()
		require.EqualValues(t, 1, g.reached(t, b), "another partition's lease")
		require.Zero(t, g.watcher.failed(a)+g.watcher.failed(b))
	})
}
