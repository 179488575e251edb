package fanout_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
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
)

func TestDispatcher_PublishesInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newFixture()
		r.log.write(1, 500)
		r.log.write(2, 3)
		_, _ = run(t, r.config("a"))
		r.settled(t, 1, 2)
		r.log.write(3, 40) // a new legal entity
		r.log.write(1, 1)
		r.settled(t, 1, 2, 3)
	})
}

// TestDispatcher_CursorFollowsConfirmations runs nodes on a broker, and on cursors, that
// fail in every way.
func TestDispatcher_CursorFollowsConfirmations(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newFixture()
				r.broker.fail = unreliable(seed)
				random := rand.New(rand.NewPCG(seed, 2))
				r.cursors.breaks = func() error {
					if random.IntN(5) == 0 {
						return errors.New("the database is away")
					}
					return nil
				}
				for p := event.PartitionID(1); p <= 5; p++ {
					r.log.write(p, 200)
				}
				_, _ = run(t, r.config("a"))
				_, stop := run(t, r.config("b"))
				for r.broker.has(1) <= 20 {
					pass(time.Millisecond)
				}
				stop()
				r.log.write(1, 100)
				pass(500 * longestPause) // a few dozen attempts fail
				r.settled(t, 1, 2, 3, 4, 5)
			})
		})
	}
}

// unreachableLeases are the leases of a node that can be cut off, as a stalled node is.
type unreachableLeases struct {
	ports.Leases
	off atomic.Bool
}

func (p *unreachableLeases) Hold(ctx context.Context, holder string, ttl time.Duration, resources []ports.LeaseResource) ([]ports.Lease, error) {
	if p.off.Load() {
		return nil, errors.New("asleep")
	}
	return p.Leases.Hold(ctx, holder, ttl, resources)
}

func (p *unreachableLeases) Beat(ctx context.Context, work, node string, within time.Duration) ([]string, error) {
	if p.off.Load() {
		return nil, errors.New("asleep")
	}
	return p.Leases.Beat(ctx, work, node, within)
}

func (p *unreachableLeases) Leave(ctx context.Context, work, node string) error {
	if p.off.Load() {
		return errors.New("asleep")
	}
	return p.Leases.Leave(ctx, work, node)
}

func (p *unreachableLeases) Release(ctx context.Context, holder string, resources []ports.LeaseResource) error {
	if p.off.Load() {
		return errors.New("asleep")
	}
	return p.Leases.Release(ctx, holder, resources)
}

// TestDispatcher_ExpiredLeaseIsFenced lets a node wake up in the middle of a batch
// after another node has gone on.
func TestDispatcher_ExpiredLeaseIsFenced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newFixture()
		sleeper := newBroker() // the sleeper's way to the same stream
		sleeper.stored = r.broker.stored
		block, blocked := make(chan struct{}), make(chan struct{}, 1)
		sleeper.block, sleeper.blocked = block, blocked
		r.log.write(1, 10)
		leases := &unreachableLeases{Leases: r.leases}
		c := r.config("sleeper")
		c.Leases, c.Publisher = leases, sleeper
		// The fence must not depend on this context: the sleeper's clock did not move either.
		c.Cursors = uncancelledCursors{r.cursors}
		_, stop := run(t, c)
		<-blocked
		leases.off.Store(true)
		_, _ = run(t, r.config("other"))
		pass(ttl - 1)
		require.Zero(t, r.cursors.through(t, 1), "the sleeper's lease has not ended")
		pass(1)
		r.settled(t, 1)
		r.log.write(1, 10)
		r.settled(t, 1)

		r.broker.mu.Lock() // both write to one stream
		sleeper.mu.Lock()
		sleeper.block = nil
		sleeper.mu.Unlock()
		close(block)
		r.broker.mu.Unlock()
		synctest.Wait()
		r.cursors.mu.Lock()
		require.Positive(t, r.cursors.fenced)
		r.cursors.mu.Unlock()
		stop()
		require.Equal(t, event.Sequence(20), r.cursors.through(t, 1), "the sleeper moved the cursor")
		r.log.write(1, 5)
		r.settled(t, 1)
	})
}

type cursors = ports.PublisherCursors

// uncancelledCursors moves cursors although the caller's context has ended.
type uncancelledCursors struct{ cursors }

func (d uncancelledCursors) MovePublished(ctx context.Context, publisher string, p event.PartitionID, term uint64, from, to event.Sequence) error {
	return d.cursors.MovePublished(context.WithoutCancel(ctx), publisher, p, term, from, to)
}

func TestDispatcher_StopReleasesLeases(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newFixture()
		r.log.write(1, 10)
		c := r.config("a")
		c.TTL = time.Hour
		_, stop := run(t, c)
		r.settled(t, 1)
		stop()
		r.log.write(1, 10)
		c = r.config("b")
		c.TTL = time.Hour
		_, _ = run(t, c)
		r.settled(t, 1)
	})
}

// TestDispatcher_FailingPartitionBlocksNoOther also shows what a failure leaves behind.
func TestDispatcher_FailingPartitionBlocksNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newFixture()
		var broken atomic.Bool
		broken.Store(true)
		r.broker.fail = func(m []ports.Message) (int, ports.Published, error, bool) {
			if m[0].Partition == 1 && broken.Load() {
				return 0, ports.Published{}, fault.New(fault.FailedPrecondition, "publisher.refused", "no; change it"), true
			}
			return 0, ports.Published{}, nil, false
		}
		r.log.write(1, 10)
		r.log.write(2, 100)
		c := r.config("a")
		c.Workers, c.LongestPause, c.FirstPause = 1, time.Minute, time.Minute
		d, _ := run(t, c)
		r.settled(t, 2)
		status := func() fanout.PartitionStatus {
			list, err := fanout.Status(context.Background(), fanout.StatusSources{
				Cursors: r.cursors, Heads: r.log, Leases: r.leases, Entities: entities{}, Log: r.log, Clock: system.Clock{},
			}, "nats")
			require.NoError(t, err)
			require.Len(t, list, 2)
			require.Equal(t, event.Sequence(100), list[1].PublishedThrough)
			require.Zero(t, list[1].LagEvents)
			require.Zero(t, list[1].LagSeconds)
			require.True(t, strings.HasPrefix(list[1].Holder, "a/"))
			return list[0]
		}
		pass(time.Minute - 1)
		s := status()
		require.Equal(t, 1, s.Failures)
		require.Equal(t, uint64(10), s.LagEvents)
		require.InDelta(t, time.Minute.Seconds(), s.LagSeconds, 1e-5)
		require.Equal(t, "publisher.refused", s.LastError)
		require.NotNil(t, s.FailedAt)
		pass(1)
		require.Equal(t, 2, status().Failures, "the pause is over")
		broken.Store(false)
		d.Wake() // the broker is back: the pause ends at once
		r.settled(t, 1)
		require.Zero(t, status().Failures)
	})
}

// TestDispatcher_WakeEndsBackoff wakes a publisher whose turn fails
// only then.
func TestDispatcher_WakeEndsBackoff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newFixture()
		block, blocked := make(chan struct{}), make(chan struct{}, 1)
		r.broker.block, r.broker.blocked = block, blocked
		var failed atomic.Bool
		r.broker.fail = func(m []ports.Message) (n int, p ports.Published, err error, broken bool) {
			if m[0].Partition == 1 && !failed.Swap(true) {
				err, broken = fault.New(fault.Unavailable, "publisher.unavailable", "away; wait"), true
			}
			return n, p, err, broken
		}
		r.log.write(1, 10)
		c := r.config("a")
		c.LongestPause, c.FirstPause = time.Hour, time.Hour
		d, _ := run(t, c)
		<-blocked
		r.broker.mu.Lock()
		r.broker.block = nil
		r.broker.mu.Unlock()
		d.Wake()
		r.log.write(2, 1)
		r.settled(t, 2)
		close(block)
		r.settled(t, 1)
		require.True(t, failed.Load())
	})
}

type entities struct{}

func (entities) LegalEntities(context.Context, string) ([]ports.LegalEntity, error) {
	return []ports.LegalEntity{{Partition: 2, TenantID: "acme", Code: "LE2"}, {Partition: 1, TenantID: "acme", Code: "LE1"}}, nil
}

func TestDispatcher_LargeEventBecomesReference(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newFixture()
		r.broker.fail = func(m []ports.Message) (int, ports.Published, error, bool) {
			for i := range m {
				if m[i].Sequence == 5 && !m[i].Reference {
					return i, ports.Published{Stored: i}, fault.New(fault.TooLarge, "publisher.too_large", "too large; make it smaller"), true
				}
			}
			return 0, ports.Published{}, nil, false
		}
		r.log.write(1, 10)
		_, _ = run(t, r.config("a"))
		r.settled(t, 1)
		for n, body := range r.broker.bodies {
			require.Equal(t, fmt.Sprintf(`{"sequence":"%d","reference":%t}`, n, n == 5), body)
		}
	})
}

// TestDispatcher_BatchBytes: a batch ends at its bytes, from the first one
// on, and an event that has more than a batch comes alone.
func TestDispatcher_BatchBytes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newFixture()
		r.log.payload = make([]byte, 1<<20)
		r.log.write(1, 20)
		r.log.payload = make([]byte, 9<<20)
		r.log.write(2, 2)
		r.log.payload = nil
		r.log.write(2, 3)
		most := map[event.PartitionID]int{}
		r.broker.fail = func(m []ports.Message) (int, ports.Published, error, bool) {
			most[m[0].Partition] = max(most[m[0].Partition], len(m))
			return 0, ports.Published{}, nil, false
		}
		_, _ = run(t, r.config("a"))
		r.settled(t, 1, 2)
		require.Equal(t, map[event.PartitionID]int{1: 8, 2: 3}, most)
		require.Equal(t, 9<<20, r.log.largest)
	})
}

// TestDispatcher_GapIsRefused has a reader that loses an event.
func TestDispatcher_GapIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newFixture()
		var lying atomic.Bool
		lying.Store(true)
		r.log.lies = func(page []event.Recorded) []event.Recorded {
			if lying.Load() && len(page) > 2 {
				return append(page[:1:1], page[2:]...)
			}
			return page
		}
		r.log.write(1, 10)
		_, _ = run(t, r.config("a"))
		synctest.Wait()
		list, err := r.cursors.PublisherCursors(t.Context(), "nats")
		require.NoError(t, err)
		require.Len(t, list, 1)
		require.Equal(t, "publisher.gap", list[0].LastError)
		require.Zero(t, r.broker.has(1))
		lying.Store(false)
		pass(firstPause)
		r.settled(t, 1)
	})
}

// counting is an Observer.
type counting struct {
	mu                  sync.Mutex
	messages, failures  int
	duplicates          int
	leases, alive       int
	taken, released     int
	lag                 uint64
	reportedWithoutLags int
}

func (c *counting) Published(_ string, messages, duplicates int) {
	c.mu.Lock()
	c.messages += messages
	c.duplicates += duplicates
	c.mu.Unlock()
}
func (c *counting) PublishFailed(string, string) { c.mu.Lock(); c.failures++; c.mu.Unlock() }
func (c *counting) PublishLag(_ string, events uint64, _ float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lag = events
	if events == 0 {
		c.reportedWithoutLags++
	}
}
func (c *counting) PublisherLeases(_ string, held int) { c.mu.Lock(); c.leases = held; c.mu.Unlock() }

func (c *counting) PublisherNodes(_ string, alive int) { c.mu.Lock(); c.alive = alive; c.mu.Unlock() }
func (c *counting) PublisherLease(_, change string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch change {
	case "taken":
		c.taken++
	case "released":
		c.released++
	}
}

func TestDispatcher_Observer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newFixture()
		var once sync.Once
		r.broker.fail = func([]ports.Message) (n int, p ports.Published, err error, broken bool) {
			once.Do(func() { err, broken = fault.New(fault.Unavailable, "publisher.unavailable", "away; wait"), true })
			return n, p, err, broken
		}
		r.log.write(1, 50)
		c := r.config("a")
		seen := &counting{}
		c.Observer = seen
		_, _ = run(t, c)
		pass(firstPause)
		r.settled(t, 1)
		r.log.write(2, 1) // a new legal entity: the leases are renewed, and the lag is reported, at once
		r.settled(t, 2)
		seen.mu.Lock()
		defer seen.mu.Unlock()
		require.Equal(t, []int{51, 1, 2, 1, 2, 0}, []int{seen.messages, seen.failures, seen.leases, seen.alive, seen.taken, seen.released})
		require.Zero(t, seen.lag)
		require.Positive(t, seen.reportedWithoutLags)
	})
}
