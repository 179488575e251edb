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

// hung is a store that stops telling what is due.
type hung struct {
	subscriptions.Store
	on atomic.Bool
}

func (h *hung) Due(ctx context.Context, limit int) ([]ports.DueDelivery, error) {
	if h.on.Load() {
		return nil, fault.New(fault.Unavailable, "store.unavailable", "away; wait")
	}
	return h.Store.Due(ctx, limit)
}

// TestAServiceThatSweepsNoMoreIsUnhealthy takes the store away and gives it back.
func TestAServiceThatSweepsNoMoreIsUnhealthy(t *testing.T) {
	t.Parallel()
	store := &hung{}
	clock := conformance.NewClock()
	c := conformance.NewDeliveryFixture(conformance.NewSubscriptionFixture(t, memory.New(memory.Config{Clock: clock}), clock, "t"), func(config *subscriptions.Config) {
		store.Store = config.Store
		config.Store, config.ExpireInterval, config.StallAfter = store, 10*time.Millisecond, 100*time.Millisecond
	})
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
