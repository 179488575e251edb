package postgres_test

import (
	"testing"

	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/conformance"
)

func TestSubscriptions(t *testing.T) {
	t.Parallel()
	conformance.RunSubscriptions(t, func(t *testing.T, clock ports.Clock) conformance.SubscriptionStore {
		return open(t, database(t), withClock(clock))
	})
}

func TestDeliveryRace(t *testing.T) {
	t.Parallel()
	conformance.RunDeliveryRace(t, func(t *testing.T, clock ports.Clock) conformance.SubscriptionStore {
		return open(t, database(t), withClock(clock))
	}, 120)
}

func TestConsumersWorkAtTheSameTime(t *testing.T) {
	t.Parallel()
	conformance.RunConsumersTogether(t, func(t *testing.T, clock ports.Clock) conformance.SubscriptionStore {
		return open(t, database(t), withClock(clock))
	})
}

func TestPollsEndAtTheirBytes(t *testing.T) {
	t.Parallel()
	conformance.RunDeliveryBytes(t, func(t *testing.T, clock ports.Clock) conformance.SubscriptionStore {
		return open(t, database(t), withClock(clock))
	})
}

func TestASubscriptionGoesOnWhereAFeedStopped(t *testing.T) {
	t.Parallel()
	conformance.RunHandover(t, func(t *testing.T, clock ports.Clock) conformance.FeedStore {
		return open(t, database(t), withClock(clock))
	}, 160)
}
