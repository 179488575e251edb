package subscriptions_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/pgtest"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/conformance"
)

// Messages stay due while no consumer polls for them. However many there are, Due also returns
// the messages whose lease has ended.
func TestDue_OldRetriesHideNoExpiredLease(t *testing.T) {
	t.Parallel()
	clock := conformance.NewClock()
	s := pgtest.Open(t, pgtest.Database(t), pgtest.WithClock(clock))
	c := conformance.NewDeliveryFixture(conformance.NewSubscriptionFixture(t, pgtest.Combine(s), clock, "t"), nil)
	var uids []event.ID
	for i, state := range []subscription.State{subscription.Retry, subscription.Leased} {
		c.Subscribe(t, string(state), subscription.Settings{}, subscription.Filter{})
		sub, err := s.Subscriptions.Subscription(t.Context(), c.Tenant, string(state))
		require.NoError(t, err)
		uids = append(uids, sub.UID)
		_, err = s.Subscriptions.Deliver(t.Context(), sub.UID, c.Entities[0].Partition, true, func(ctx context.Context, tx ports.DeliveryTx) error {
			var list []subscription.Message
			for n := range event.Sequence(3) {
				list = append(list, subscription.Message{Sequence: n + 1, EventID: event.ID{byte(n)}, State: state, Attempts: 1, Due: clock.Now().Add(time.Duration(i) * time.Minute), ChangedAt: clock.Now()})
			}
			return tx.Save(ctx, tx.Cursor(), list, nil)
		})
		require.NoError(t, err)
	}
	clock.Advance(time.Hour)
	due, err := s.Subscriptions.Due(t.Context(), 2)
	require.NoError(t, err)
	require.ElementsMatch(t, []ports.DueDelivery{
		{UID: uids[0], Partition: c.Entities[0].Partition}, {UID: uids[1], Partition: c.Entities[0].Partition, Expired: true},
	}, due)
}

// The names of consumers that do not come back are not kept.
func TestConsumers_RemovesExpiredRows(t *testing.T) {
	t.Parallel()
	clock := conformance.NewClock()
	dsn := pgtest.Database(t)
	s := pgtest.Open(t, dsn, pgtest.WithClock(clock))
	uid := event.ID{1}
	for i := range 5 {
		_, err := s.Subscriptions.RegisterConsumer(t.Context(), uid, string(rune('a'+i)), time.Minute)
		require.NoError(t, err)
		clock.Advance(2 * time.Minute)
	}
	require.Equal(t, []string{"e"}, pgtest.Column(t, pgtest.Connect(t, dsn), "SELECT consumer FROM backbone.subscription_consumers"))
}
