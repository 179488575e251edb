package fanout_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/system"
	"github.com/erpbackbone/backbone/application/fanout"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// holders counts the partitions by node.
func (r *fanoutFixture) holders(t *testing.T) map[string]int {
	t.Helper()
	list, err := r.leases.List(context.Background(), fanout.LeaseName("nats"))
	require.NoError(t, err)
	out := map[string]int{}
	for _, l := range list {
		if l.ExpiresAt.After(r.clock.Now()) {
			node, _, _ := strings.Cut(l.Holder, "/")
			out[node]++
		}
	}
	return out
}

// shared reports whether just these nodes hold all of n partitions, each at least least.
func (r *fanoutFixture) shared(t *testing.T, n, least int, nodes ...string) bool {
	t.Helper()
	have := r.holders(t)
	for _, node := range nodes {
		if have[node] < least {
			return false
		}
		n -= have[node]
	}
	return n == 0 && len(have) == len(nodes)
}

// TestDispatcher_SharesPartitions has three nodes come one after another while events are
// written all the time, one leave, and one fall silent.
func TestDispatcher_SharesPartitions(t *testing.T) {
	t.Parallel()
	r := newFixture()
	const n = 48 // 16 for each of three; less than 4 for one happens once in a million
	all := make([]event.PartitionID, n)
	for i := range all {
		all[i] = event.PartitionID(i + 1)
		r.log.write(all[i], 20)
	}
	const ttl = time.Minute // no node loses a lease because the machine is busy
	shares := func(what string, nodes ...string) {
		t.Helper()
		looks := 0
		testkit.Eventually(t, maxWait, func() bool {
			r.log.write(all[looks%n], 5) // there is always something under way
			if looks++; looks%20 == 0 {  // a new legal entity: all renew at once
				all = append(all, event.PartitionID(len(all)+1))
				r.log.write(all[len(all)-1], 1)
			}
			return r.shared(t, len(all), 4, nodes...)
		}, what, nodes)
	}
	var seen [3]counting
	nodes := make([]*unreachableLeases, 3)
	stops := make([]func(), 3)
	names := []string{"a", "b", "c"}
	for i, name := range names {
		nodes[i] = &unreachableLeases{Leases: r.leases}
		c := r.config(name)
		c.Leases, c.Observer, c.Workers, c.TTL = nodes[i], &seen[i], 8, ttl
		_, stops[i] = run(t, c)
		shares("shares of ", names[:i+1]...)
	}
	r.settled(t, all...)
	for i := range seen {
		seen[i].mu.Lock()
		require.Zero(t, seen[i].duplicates, "a node that releases a partition publishes nothing twice")
		seen[i].mu.Unlock()
	}
	testkit.Eventually(t, maxWait, func() bool { // on a stalled machine each node sees only itself for a moment
		seen[0].mu.Lock()
		defer seen[0].mu.Unlock()
		return seen[0].released > 0 && seen[0].alive == 3
	})

	stops[1]()
	shares("b has left: ", "a", "c")
	r.settled(t, all...)

	nodes[2].off.Store(true) // it gives no sign and gives nothing back
	r.clock.off.Store(int64(2 * ttl))
	shares("c has fallen silent: ", "a")
	r.settled(t, all...)
}

// TestDispatcher_FinishesBatchBeforeHandover blocks a batch of a
// partition that another node should have.
func TestDispatcher_FinishesBatchBeforeHandover(t *testing.T) {
	t.Parallel()
	r := newFixture()
	const n = 16
	block, blocked := make(chan struct{}), make(chan struct{}, 2*n)
	r.broker.block, r.broker.blocked = block, blocked
	for p := event.PartitionID(1); p <= n; p++ {
		r.log.write(p, 3)
	}
	c := r.config("first")
	c.Workers, c.TTL = n, time.Minute // its turns outlast the test
	seen := &counting{}
	c.Observer = seen
	leases := &beatCountingLeases{Leases: r.leases}
	c.Leases = leases
	d, _ := run(t, c)
	for range n {
		<-blocked
	}
	second := r.config("second")
	second.TTL = time.Minute
	joined := &beatCountingLeases{Leases: r.leases}
	second.Leases = joined
	_, _ = run(t, second)
	testkit.Eventually(t, maxWait, func() bool { return joined.beats.Load() > 0 })
	for i := range 2 { // two renewals, so that the first of them is over
		before := leases.beats.Load()
		r.log.write(n+1+event.PartitionID(i), 1) // a new legal entity: all renew at once
		testkit.Eventually(t, maxWait, func() bool { return leases.beats.Load() > before })
	}
	require.GreaterOrEqual(t, r.holders(t)["first"], n, "every partition is under way")
	r.broker.mu.Lock()
	r.broker.block = nil
	r.broker.mu.Unlock()
	close(block)
	testkit.Eventually(t, maxWait, func() bool {
		seen.mu.Lock()
		defer seen.mu.Unlock()
		return seen.released > 0
	}, "given back as soon as the batch is done, not with the next renewal")
	require.NoError(t, d.Health())
}

// beatCountingLeases are leases that count the signs of life.
type beatCountingLeases struct {
	ports.Leases
	beats atomic.Int64
}

func (h *beatCountingLeases) Beat(ctx context.Context, work, node string, within time.Duration) ([]string, error) {
	alive, err := h.Leases.Beat(ctx, work, node, within)
	h.beats.Add(1)
	return alive, err
}

// TestHealth_PublisherStalls takes the broker away, and then the leases.
func TestHealth_PublisherStalls(t *testing.T) {
	t.Parallel()
	r := newFixture()
	var away atomic.Bool
	away.Store(true)
	r.broker.fail = func([]ports.Message) (n int, p ports.Published, err error, broken bool) {
		if away.Load() {
			return 0, p, fault.New(fault.Unavailable, "publisher.unavailable", "away; wait"), true
		}
		return 0, p, nil, false
	}
	c := r.config("a")
	c.StallAfter = 50 * time.Millisecond
	leases := &unreachableLeases{Leases: r.leases}
	c.Leases = leases
	c.TTL = 90 * time.Millisecond
	d := testkit.Must(fanout.New(c))
	require.NoError(t, d.Health(), "it does not run")
	d, _ = run(t, c)
	testkit.Eventually(t, maxWait, func() bool { return d.Health() == nil }, "nothing waits")
	r.log.write(1, 3)
	testkit.Eventually(t, maxWait, func() bool { // on a busy machine it may be unhealthy for other reasons, too
		err := d.Health()
		return fault.CodeOf(err) == "publisher.stalled" && strings.Contains(err.Error(), "publisher.unavailable") && strings.Contains(err.Error(), "1 legal entities")
	})
	away.Store(false)
	testkit.Eventually(t, maxWait, func() bool { return d.Health() == nil }, "it continues")
	r.settled(t, 1)

	leases.off.Store(true)
	testkit.Eventually(t, maxWait, func() bool {
		err := d.Health()
		return err != nil && strings.Contains(err.Error(), "could not be renewed")
	})
	leases.off.Store(false)
	testkit.Eventually(t, maxWait, func() bool { return d.Health() == nil })
}

// TestDispatcher_TakeoverKeepsBackoff sees that a takeover asks no more
// often than the node before.
func TestDispatcher_TakeoverKeepsBackoff(t *testing.T) {
	t.Parallel()
	require.Equal(t, time.Duration(0), fanout.Backoff(time.Second, time.Minute, 0))
	require.Equal(t, time.Second, fanout.Backoff(time.Second, time.Minute, 1))
	require.Equal(t, 32*time.Second, fanout.Backoff(time.Second, time.Minute, 6))
	require.Equal(t, time.Minute, fanout.Backoff(time.Second, time.Minute, 7))
	require.Equal(t, time.Minute, fanout.Backoff(time.Second, time.Minute, 1_000_000))

	r := newFixture()
	r.log.write(1, 3)
	_, err := r.cursors.BeginPublishing(t.Context(), "nats", 1, 1)
	require.NoError(t, err)
	for range 7 {
		require.NoError(t, r.cursors.RecordPublishFailure(t.Context(), "nats", 1, 1, "publisher.unavailable"))
	}
	var asked atomic.Int64
	r.broker.fail = func([]ports.Message) (n int, p ports.Published, err error, broken bool) {
		asked.Add(1)
		return 0, p, fault.New(fault.Unavailable, "publisher.unavailable", "away; wait"), true
	}
	c := r.config("a")
	c.FirstPause, c.LongestPause, c.TTL = time.Second, time.Hour, time.Minute
	_, err = r.leases.Hold(t.Context(), "before", time.Nanosecond, []ports.LeaseResource{{Name: fanout.LeaseName("nats"), Partition: 1}})
	require.NoError(t, err) // term 1 was another node's
	_, stop := run(t, c)
	testkit.Eventually(t, maxWait, func() bool { return asked.Load() == 1 })
	testkit.Eventually(t, maxWait, func() bool {
		list, err := r.cursors.PublisherCursors(t.Context(), "nats")
		require.NoError(t, err)
		return list[0].Failures == 8
	})
	status, err := fanout.Status(t.Context(), fanout.StatusSources{
		Cursors: r.cursors, Heads: r.log, Leases: r.leases, Entities: entities{}, Log: r.log, Clock: system.Clock{},
	}, "nats")
	require.NoError(t, err)
	require.Equal(t, status[0].FailedAt.Add(time.Minute), *status[0].NextAttemptAt)
	stop()
}

// TestNewRefusesMissingLimits checks that a limit which the caller left out is no default.
func TestNewRefusesMissingLimits(t *testing.T) {
	t.Parallel()
	c := newFixture().config("a")
	c.Workers = 0
	_, err := fanout.New(c)
	require.ErrorContains(t, err, "Workers")
	c.Workers, c.TTL = 1, 0
	_, err = fanout.New(c)
	require.ErrorContains(t, err, "TTL")
}
