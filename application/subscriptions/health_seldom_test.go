package subscriptions_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/application/subscriptions"
	"github.com/erpbackbone/backbone/test/conformance"
)

// tidied tells that a service has run for a while.
type tidied struct {
	subscriptions.Store
	once sync.Once
	done chan struct{}
}

func (d *tidied) RemoveOrphanedMessages(ctx context.Context) (int, error) {
	d.once.Do(func() { close(d.done) })
	return d.Store.RemoveOrphanedMessages(ctx)
}

// A service that is set to sweep seldom is not ill between two sweeps.
func TestAServiceThatSweepsSeldomIsHealthy(t *testing.T) {
	t.Parallel()
	store := &tidied{done: make(chan struct{})}
	clock := conformance.NewClock()
	c := conformance.NewDeliveryFixture(conformance.NewSubscriptionFixture(t, memory.New(memory.Config{Clock: clock}), clock, "t"), func(config *subscriptions.Config) {
		store.Store = config.Store
		config.Store, config.ExpireInterval, config.StallAfter, config.MeasureInterval = store, time.Hour, time.Nanosecond, time.Millisecond
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { c.Service.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	<-store.done
	require.NoError(t, c.Service.Health())
}
