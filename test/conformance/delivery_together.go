package conformance

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/subscriptions"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/ports"
)

// consumerCount is how many consumers share a subscription.
const consumerCount = 8

// RunConsumersTogether lets the consumers of one legal entity, on two nodes, meet while
// each of them holds a message that nobody else has: nobody's work waits for another's.
// One key fails and holds back its own messages only.
func RunConsumersTogether(t *testing.T, newStore func(t *testing.T, clock ports.Clock) SubscriptionStore) {
	t.Helper()
	clock := NewClock()
	c := NewDeliveryFixture(NewSubscriptionFixture(t, newStore(t, clock), clock, "together"), nil)
	nodes := []*subscriptions.Service{c.Service, NewDeliveryFixture(c.SubscriptionFixture, nil).Service}
	c.Subscribe(t, "s", subscription.Settings{PartitionBy: subscription.PerStream, BreakerAfter: subscription.NoBreaker}, subscription.Filter{})
	const rounds = 3
	bad := c.Write(t, 0, 2, "bad")
	for range rounds {
		for key := range consumerCount {
			c.Write(t, 0, 1, fmt.Sprint("key-", key))
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for range rounds {
		c.deliverConcurrently(ctx, t, nodes, bad)
	}
	there, err := c.Service.Get(ctx, subscriptions.Caller{Principal: c.Person}, "s")
	require.NoError(t, err)
	require.Equal(t, []int{0, 2, rounds * consumerCount}, []int{there.InFlight, there.Waiting, int(there.Counts.Acknowledged)}, "the key that fails is all that is left")
	clock.Advance(time.Hour)
	batch, err := nodes[1].Poll(ctx, c.Person, subscriptions.Poll{ID: "s", Limit: 1})
	require.NoError(t, err)
	require.Len(t, batch.Deliveries, 1)
	require.Equal(t, bad[0], batch.Deliveries[0].Event.ID, "in its order")
}

// deliverConcurrently lets every consumer take one message, and acknowledge it when all of them have
// one. Whoever gets one of the bad key refuses it and asks again.
func (c *DeliveryFixture) deliverConcurrently(ctx context.Context, t *testing.T, nodes []*subscriptions.Service, bad []event.ID) {
	t.Helper()
	var mu sync.Mutex
	held := map[event.ID]bool{}
	all := make(chan struct{})
	var working sync.WaitGroup
	for i := range consumerCount {
		working.Go(func() {
			node, name := nodes[i%len(nodes)], fmt.Sprint("c", i)
			id := c.next(ctx, t, node, name, bad)
			mu.Lock()
			if held[id] = true; len(held) == consumerCount {
				close(all)
			}
			mu.Unlock()
			select {
			case <-all:
			case <-ctx.Done():
				return
			}
			answered, err := node.Acknowledge(ctx, c.Person, subscriptions.Acknowledgement{ID: "s", Consumer: name, EventIDs: []event.ID{id}})
			if err != nil || answered.Applied != 1 {
				t.Errorf("%s could not acknowledge: %v, %v", name, answered, err)
			}
		})
	}
	working.Wait()
	require.Len(t, held, consumerCount, "consumers that had a message of their own at the same time")
	require.NoError(t, ctx.Err())
}

// next waits for a message that is not of the bad ones.
func (c *DeliveryFixture) next(ctx context.Context, t *testing.T, node *subscriptions.Service, consumer string, bad []event.ID) event.ID {
	for ctx.Err() == nil {
		batch, err := node.Poll(ctx, c.Person, subscriptions.Poll{ID: "s", Consumer: consumer, Limit: 1, Wait: 50 * time.Millisecond})
		if err != nil {
			t.Errorf("poll: %v", err)
			return event.ID{}
		}
		for _, d := range batch.Deliveries {
			if !slices.Contains(bad, d.Event.ID) {
				return d.Event.ID
			}
			if _, err := node.Refuse(ctx, c.Person, subscriptions.Refusal{ID: "s", Consumer: consumer, EventIDs: []event.ID{d.Event.ID}, Action: subscription.Again}); err != nil {
				t.Errorf("refuse: %v", err)
			}
		}
	}
	return event.ID{}
}
