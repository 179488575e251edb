package webhooks_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/webhooks"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/test/testkit"
)

// leaseCounter counts the reported changes of leases.
type leaseCounter struct {
	mu     sync.Mutex
	counts map[string]int
}

func (c *leaseCounter) WebhookAttempt(string, time.Duration) {}

func (c *leaseCounter) WebhookLease(change string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[change]++
}

func (c *leaseCounter) count(change string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts[change]
}

// TestHealth_DispatcherStalls takes the store away and gives it back; an
// endpoint that comes and goes is reported.
func TestHealth_DispatcherStalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newFixture()
		h.set(t)
		reported := &leaseCounter{counts: map[string]int{}}
		d := testkit.Must(webhooks.NewDispatcher(webhooks.Config{
			Service: h.service(), Consumer: h, Encoder: h, Leases: h.leases, Node: "a", Observer: reported, Concurrency: 4, Timing: webhooks.StandardTiming,
		}))
		require.NoError(t, d.Health(), "it does not run")
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		running.Go(func() { d.Run(ctx) })
		t.Cleanup(func() { cancel(); running.Wait() })
		reconcile()
		require.NoError(t, d.Health())
		require.Equal(t, 1, reported.count("taken"), "it delivers")
		h.hangs.Store(true)
		pass(30 * time.Second)
		require.NoError(t, d.Health())
		pass(1)
		require.Equal(t, "webhook.stalled", fault.CodeOf(d.Health()))
		h.hangs.Store(false)
		pass(webhooks.StandardTiming.TTL / 2) // the question that hangs is given up
		require.NoError(t, d.Health(), "it looks again")
		h.mu.Lock()
		h.gone = true
		h.mu.Unlock()
		reconcile()
		require.Equal(t, 1, reported.count("lost"), "the subscription was deleted")
		require.Zero(t, reported.count("released"))
	})
}
