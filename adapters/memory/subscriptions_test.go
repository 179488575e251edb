package memory_test

import (
	"testing"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/conformance"
)

func TestSubscriptions(t *testing.T) {
	t.Parallel()
	conformance.RunSubscriptions(t, func(_ *testing.T, clock ports.Clock) conformance.SubscriptionStore {
		return conformance.NewMemoryStore(memory.Config{Clock: clock})
	})
}

func TestConsumersWorkAtTheSameTime(t *testing.T) {
	t.Parallel()
	conformance.RunConsumersTogether(t, func(_ *testing.T, clock ports.Clock) conformance.SubscriptionStore {
		return conformance.NewMemoryStore(memory.Config{Clock: clock})
	})
}

func TestDeliveryRace(t *testing.T) {
	t.Parallel()
	conformance.RunDeliveryRace(t, func(_ *testing.T, clock ports.Clock) conformance.SubscriptionStore {
		return conformance.NewMemoryStore(memory.Config{Clock: clock})
	}, 400)
}

func TestPollsEndAtTheirBytes(t *testing.T) {
	t.Parallel()
	conformance.RunDeliveryBytes(t, func(t *testing.T, clock ports.Clock) conformance.SubscriptionStore {
		return conformance.NewMemoryStore(memory.Config{Clock: clock})
	})
}

func TestASubscriptionGoesOnWhereAFeedStopped(t *testing.T) {
	t.Parallel()
	conformance.RunHandover(t, func(t *testing.T, clock ports.Clock) conformance.FeedStore {
		return conformance.NewMemoryStore(memory.Config{Clock: clock})
	}, 160)
}
