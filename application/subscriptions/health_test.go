package subscriptions_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/application/subscriptions"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/conformance"
	"github.com/erpbackbone/backbone/test/testkit"
)

// failingDue is a store that stops telling what is due.
type failingDue struct {
	subscriptions.Store
	on atomic.Bool
}

func (h *failingDue) Due(ctx context.Context, limit int) ([]ports.DueDelivery, error) {
	if h.on.Load() {
		return nil, fault.New(fault.Unavailable, "store.unavailable", "away; wait")
	}
	return h.Store.Due(ctx, limit)
}

// TestHealth_ExpiryFails takes the store away and gives it back.
func TestHealth_ExpiryFails(t *testing.T) {
	t.Parallel()
	store := &failingDue{}
	clock := conformance.NewClock()
	c := conformance.NewDeliveryFixture(conformance.NewSubscriptionFixture(t, conformance.NewMemoryStore(memory.Config{Clock: clock}), clock, "t"), func(config *subscriptions.Config) {
		store.Store = config.Store
		config.Store, config.ExpireInterval = store, 10*time.Millisecond
	})
	c.Service.SetStallAfter(100 * time.Millisecond)
	require.NoError(t, c.Service.Health(), "it does not run")
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { c.Service.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	store.on.Store(true)
	testkit.Eventually(t, time.Minute, func() bool { return fault.CodeOf(c.Service.Health()) == "subscription.stalled" })
	store.on.Store(false)
	testkit.Eventually(t, time.Minute, func() bool { return c.Service.Health() == nil }, "it looks again")
}

// orphanRemovalSignal reports that a service has removed orphans.
type orphanRemovalSignal struct {
	subscriptions.Store
	once sync.Once
	done chan struct{}
}

func (d *orphanRemovalSignal) RemoveOrphanedMessages(ctx context.Context) (int, error) {
	d.once.Do(func() { close(d.done) })
	return d.Store.RemoveOrphanedMessages(ctx)
}

// A service that is set to sweep seldom is not ill between two sweeps.
func TestHealth_LongExpireInterval(t *testing.T) {
	t.Parallel()
	store := &orphanRemovalSignal{done: make(chan struct{})}
	clock := conformance.NewClock()
	c := conformance.NewDeliveryFixture(conformance.NewSubscriptionFixture(t, conformance.NewMemoryStore(memory.Config{Clock: clock}), clock, "t"), func(config *subscriptions.Config) {
		store.Store = config.Store
		config.Store, config.ExpireInterval, config.MeasureInterval = store, time.Hour, time.Millisecond
	})
	c.Service.SetStallAfter(time.Nanosecond)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { c.Service.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	<-store.done
	require.NoError(t, c.Service.Health())
}
