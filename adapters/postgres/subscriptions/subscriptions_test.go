package subscriptions_test

import (
	"testing"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/pgtest"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/conformance"
)

func TestSubscriptions(t *testing.T) {
	t.Parallel()
	conformance.RunSubscriptions(t, func(t *testing.T, clock ports.Clock) conformance.SubscriptionStore {
		return pgtest.Combine(pgtest.Open(t, pgtest.Database(t), pgtest.WithClock(clock)))
	})
}

func TestRecordedSubscriptions(t *testing.T) {
	t.Parallel()
	conformance.RunRecordedSubscriptions(t, func(t *testing.T, clock ports.Clock) conformance.SubscriptionStore {
		return pgtest.Combine(pgtest.Open(t, pgtest.Database(t), pgtest.WithClock(clock)))
	})
}

func TestDeliveryRace(t *testing.T) {
	t.Parallel()
	conformance.RunDeliveryRace(t, func(t *testing.T, clock ports.Clock) conformance.SubscriptionStore {
		return pgtest.Combine(pgtest.Open(t, pgtest.Database(t), pgtest.WithClock(clock)))
	}, 120)
}

func TestPoll_ConcurrentConsumers(t *testing.T) {
	t.Parallel()
	conformance.RunConsumersTogether(t, func(t *testing.T, clock ports.Clock) conformance.SubscriptionStore {
		return pgtest.Combine(pgtest.Open(t, pgtest.Database(t), pgtest.WithClock(clock)))
	})
}

func TestPoll_MaxBytes(t *testing.T) {
	t.Parallel()
	conformance.RunDeliveryBytes(t, func(t *testing.T, clock ports.Clock) conformance.SubscriptionStore {
		return pgtest.Combine(pgtest.Open(t, pgtest.Database(t), pgtest.WithClock(clock)))
	})
}

func TestCreate_StartAtFeedCursor(t *testing.T) {
	t.Parallel()
	conformance.RunHandover(t, func(t *testing.T, clock ports.Clock) conformance.FeedStore {
		return pgtest.Combine(pgtest.Open(t, pgtest.Database(t), pgtest.WithClock(clock)))
	}, 160)
}
