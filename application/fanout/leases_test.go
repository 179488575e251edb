package fanout_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
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
		if l.ExpiresAt.After(time.Now()) {
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
	synctest.Test(t, func(t *testing.T) {
		r := newFixture()
		const n = 48 // 16 for each of three; less than 4 for one happens once in a million
		all := make([]event.PartitionID, n)
		for i := range all {
			all[i] = event.PartitionID(i + 1)
			r.log.write(all[i], 20)
		}
		shares := func(within time.Duration, nodes ...string) {
			t.Helper()
			for i := range int(within / (5 * time.Millisecond)) {
				r.log.write(all[i%n], 5) // there is always something under way
				if i%20 == 10 {          // a new legal entity: all renew at once
					all = append(all, event.PartitionID(len(all)+1))
					r.log.write(all[len(all)-1], 1)
				}
				pass(5 * time.Millisecond)
			}
			require.True(t, r.shared(t, len(all), 4, nodes...), "%v: %v", nodes, r.holders(t))
		}
		var seen [3]counting
		nodes := make([]*unreachableLeases, 3)
		stops := make([]func(), 3)
		names := []string{"a", "b", "c"}
		for i, name := range names {
			nodes[i] = &unreachableLeases{Leases: r.leases}
			c := r.config(name)
			c.Leases, c.Observer, c.Workers = nodes[i], &seen[i], 8
			_, stops[i] = run(t, c)
			shares(2*renewal, names[:i+1]...) // one for the others to release, one to take
		}
		r.settled(t, all...)
		for i := range seen {
			seen[i].mu.Lock()
			require.Zero(t, seen[i].duplicates, "a node that releases a partition publishes nothing twice")
			seen[i].mu.Unlock()
		}
		seen[0].mu.Lock()
		require.Positive(t, seen[0].released)
		require.Equal(t, 3, seen[0].alive)
		seen[0].mu.Unlock()

		stops[1]()
		shares(renewal, "a", "c")
		r.settled(t, all...)

		nodes[2].off.Store(true) // it gives no sign and gives nothing back
		shares(ttl+renewal, "a")
		r.settled(t, all...)
	})
}

// TestDispatcher_FinishesBatchBeforeHandover blocks a batch of a
// partition that another node should have.
func TestDispatcher_FinishesBatchBeforeHandover(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
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
		d, _ := run(t, c)
		for range n {
			<-blocked
		}
		second := r.config("second")
		second.TTL = time.Minute
		_, _ = run(t, second)
		pass(2 * c.TTL / 3) // two renewals
		require.Equal(t, map[string]int{"first": n}, r.holders(t), "every partition is under way")
		r.broker.mu.Lock()
		r.broker.block = nil
		r.broker.mu.Unlock()
		close(block)
		synctest.Wait()
		seen.mu.Lock()
		require.Positive(t, seen.released, "given back as soon as the batch is done, not with the next renewal")
		seen.mu.Unlock()
		require.NoError(t, d.Health())
	})
}

// TestHealth_PublisherStalls takes the broker away, and then the leases.
func TestHealth_PublisherStalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
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
		leases := &unreachableLeases{Leases: r.leases}
		c.Leases = leases
		d := testkit.Must(fanout.New(c))
		require.NoError(t, d.Health(), "it does not run")
		d, _ = run(t, c)
		// Each renewal looks, so it says so with the first one after StallAfter.
		stalls := func(words ...string) {
			t.Helper()
			pass(stallAfter + renewal - 1)
			require.NoError(t, d.Health(), "not longer than StallAfter")
			pass(1)
			err := d.Health()
			require.Equal(t, "publisher.stalled", fault.CodeOf(err))
			for _, w := range words {
				require.ErrorContains(t, err, w)
			}
		}
		pass(2 * stallAfter)
		require.NoError(t, d.Health(), "nothing waits")
		r.log.write(1, 3)
		stalls("publisher.unavailable", "1 legal entities")
		away.Store(false)
		pass(renewal)
		require.NoError(t, d.Health(), "it continues")
		r.settled(t, 1)

		leases.off.Store(true)
		stalls("could not be renewed")
		leases.off.Store(false)
		pass(renewal)
		require.NoError(t, d.Health())
	})
}

// TestDispatcher_TakeoverKeepsBackoff sees that a takeover asks no more
// often than the node before.
func TestDispatcher_TakeoverKeepsBackoff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
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
		c.Timing = fanout.StandardTiming
		_, err = r.leases.Hold(t.Context(), "before", time.Microsecond, []ports.LeaseResource{{Name: fanout.LeaseName("nats"), Partition: 1}})
		require.NoError(t, err) // term 1 was another node's
		pass(time.Microsecond)
		_, _ = run(t, c)
		synctest.Wait()
		require.EqualValues(t, 1, asked.Load())
		list, err := r.cursors.PublisherCursors(t.Context(), "nats")
		require.NoError(t, err)
		require.Equal(t, 8, list[0].Failures)
		status, err := fanout.Status(t.Context(), fanout.StatusSources{
			Cursors: r.cursors, Heads: r.log, Leases: r.leases, Entities: entities{}, Log: r.log, Clock: system.Clock{},
		}, "nats")
		require.NoError(t, err)
		require.Equal(t, status[0].FailedAt.Add(time.Minute), *status[0].NextAttemptAt)
		pass(time.Until(*status[0].NextAttemptAt) - 1)
		require.EqualValues(t, 1, asked.Load())
		pass(1)
		require.EqualValues(t, 2, asked.Load(), "exactly when the status says")
	})
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
