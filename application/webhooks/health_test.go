package webhooks_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/webhooks"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/test/testkit"
)

// hung is a directory that stops answering.
type hung struct {
	webhooks.Directory
	on atomic.Bool
}

func (h *hung) Subscriptions(ctx context.Context, tenantID string) ([]subscription.Subscription, error) {
	if h.on.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return h.Directory.Subscriptions(ctx, tenantID)
}

// changes counts what is reported of leases.
type changes struct {
	mu   sync.Mutex
	told map[string]int
}

func (c *changes) WebhookAttempt(string, time.Duration) {}

func (c *changes) WebhookLease(change string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told[change]++
}

func (c *changes) count(change string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.told[change]
}

// TestHealth_DispatcherStalls takes the store away and gives it back; an
// endpoint that comes and goes is told of.
func TestHealth_DispatcherStalls(t *testing.T) {
	t.Parallel()
	h := newFixture()
	h.set(t)
	directory := &hung{Directory: h}
	told := &changes{told: map[string]int{}}
	d := testkit.Must(webhooks.NewDispatcher(webhooks.Config{
		Service: h.service(), Consumer: h, Directory: directory, Encoder: h, Leases: h.leases, Node: "a", Observer: told,
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
	testkit.Eventually(t, patience, func() bool { return healthy() && told.count("taken") > 0 }, "it delivers")
	directory.on.Store(true)
	testkit.Eventually(t, patience, func() bool { return fault.CodeOf(d.Health()) == "webhook.stalled" })
	directory.on.Store(false)
	testkit.Eventually(t, patience, healthy, "it looks again")
	h.mu.Lock()
	h.gone = true
	h.mu.Unlock()
	testkit.Eventually(t, patience, func() bool { return told.count("lost") > 0 }, "the subscription was deleted")
	require.Zero(t, told.count("released"))
}
