package subscriptions_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/application/subscriptions"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/conformance"
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
	synctest.Test(t, func(t *testing.T) {
		store := &failingDue{}
		clock := conformance.NewClock()
		c := conformance.NewDeliveryFixture(conformance.NewSubscriptionFixture(t, conformance.NewMemoryStore(memory.Config{Clock: clock}), clock, "t"), func(config *subscriptions.Config) {
			store.Store = config.Store
			config.Store, config.ExpireInterval = store, time.Second
		})
		require.NoError(t, c.Service.Health(), "it does not run")
		c.Subscribe(t, "s", subscription.Settings{}, subscription.Filter{})
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		running.Go(func() { c.Service.Run(ctx) })
		t.Cleanup(func() { cancel(); running.Wait() })
		pass(time.Second)
		store.on.Store(true)
		pass(30 * time.Second)
		require.NoError(t, c.Service.Health())
		pass(1)
		require.Equal(t, "subscription.stalled", fault.CodeOf(c.Service.Health()))
		store.on.Store(false)
		pass(time.Second)
		require.NoError(t, c.Service.Health(), "it looks again")
	})
}

// A service that is set to sweep seldom is not ill between two sweeps.
func TestHealth_LongExpireInterval(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &failingDue{}
		clock := conformance.NewClock()
		c := conformance.NewDeliveryFixture(conformance.NewSubscriptionFixture(t, conformance.NewMemoryStore(memory.Config{Clock: clock}), clock, "t"), func(config *subscriptions.Config) {
			store.Store = config.Store
			config.Store, config.ExpireInterval = store, time.Hour
		})
		c.Subscribe(t, "s", subscription.Settings{}, subscription.Filter{})
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		running.Go(func() { c.Service.Run(ctx) })
		t.Cleanup(func() { cancel(); running.Wait() })
		pass(time.Hour)
		store.on.Store(true)
		pass(3 * time.Hour)
		require.NoError(t, c.Service.Health())
		pass(1)
		require.Equal(t, "subscription.stalled", fault.CodeOf(c.Service.Health()), "three sweeps have failed")
	})
}
