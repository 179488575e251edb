package subscriptions_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/application/subscriptions"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/test/conformance"
)

// lagObserver knows the lag that was reported last.
type lagObserver struct {
	subscriptions.Observer
	mu      sync.Mutex
	events  uint64
	seconds float64
}

func (l *lagObserver) SubscriptionLag(_, _ string, events uint64, seconds float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events, l.seconds = events, seconds
}

func (l *lagObserver) SubscriptionParked(string, string, int)                 {}
func (l *lagObserver) SubscriptionCounts(string, string, subscription.Counts) {}
func (l *lagObserver) SubscriptionBreaker(string, string)                     {}
func (l *lagObserver) SubscriptionGone(string, string)                        {}

// reported is what was reported last.
func (l *lagObserver) reported() (events uint64, seconds float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.events, l.seconds
}

// TestLag_MetricEqualsAPI has an old event that was delivered and not acknowledged, and a newer
// one that was not read.
func TestLag_MetricEqualsAPI(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		clock := conformance.NewClock()
		fixture := conformance.NewSubscriptionFixture(t, conformance.NewMemoryStore(memory.Config{Clock: clock}), clock, "t")
		observer := &lagObserver{seconds: -1}
		c := conformance.NewDeliveryFixture(fixture, func(config *subscriptions.Config) {
			config.Observer = observer
		})
		c.Subscribe(t, "s", subscription.Settings{MessageTimeout: 24 * time.Hour}, subscription.Filter{})
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { c.Heads.Run(ctx) })
		running.Go(func() { c.Service.Run(ctx) })
		defer running.Wait()
		defer stop()
		same := func(want time.Duration) {
			t.Helper()
			status, err := c.Service.Get(t.Context(), owner(c), "s")
			require.NoError(t, err)
			require.Equal(t, want, status.LagAge)
			pass(conformance.DeliveryLimits().MeasureInterval)
			events, seconds := observer.reported()
			require.InDelta(t, want.Seconds(), seconds, 0)
			require.Equal(t, status.LagEvents, events)
		}
		same(0)
		written := c.Write(t, 0, 1, "one")
		batch, err := c.Service.Poll(t.Context(), c.Person, subscriptions.Poll{ID: "s", Limit: 10})
		require.NoError(t, err)
		require.Len(t, batch.Deliveries, 1)
		clock.Advance(time.Hour)
		same(time.Hour) // handed out is not done with
		c.Write(t, 0, 1, "two")
		clock.Advance(time.Minute)
		same(time.Hour + time.Minute) // the oldest counts
		_, err = c.Service.Acknowledge(t.Context(), c.Person, subscriptions.Acknowledgement{ID: "s", LegalEntity: batch.Deliveries[0].Event.Scope.LegalEntity, EventIDs: written})
		require.NoError(t, err)
		same(time.Minute)
	})
}
