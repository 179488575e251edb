package webhooks_test

import (
	"context"
	"sync"
	"testing"
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
	h := newFixture()
	h.set(t)
	reported := &leaseCounter{counts: map[string]int{}}
	d := testkit.Must(webhooks.NewDispatcher(webhooks.Config{
		Service: h.service(), Consumer: h, Encoder: h, Leases: h.leases, Node: "a", Observer: reported,
		Concurrency: 4, Timing: webhooks.Timing{
			ReconcileInterval: 10 * time.Millisecond, TTL: 2 * time.Second, PollWait: 25 * time.Second, FirstPause: time.Second, LongestPause: time.Minute, StallAfter: 100 * time.Millisecond,
		},
	}))
	require.NoError(t, d.Health(), "it does not run")
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { d.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	healthy := func() bool { return d.Health() == nil }
	testkit.Eventually(t, maxWait, func() bool { return healthy() && reported.count("taken") > 0 }, "it delivers")
	h.hangs.Store(true)
	testkit.Eventually(t, maxWait, func() bool { return fault.CodeOf(d.Health()) == "webhook.stalled" })
	h.hangs.Store(false)
	testkit.Eventually(t, maxWait, healthy, "it looks again")
	h.mu.Lock()
	h.gone = true
	h.mu.Unlock()
	testkit.Eventually(t, maxWait, func() bool { return reported.count("lost") > 0 }, "the subscription was deleted")
	require.Zero(t, reported.count("released"))
}
