package conformance

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/subscriptions"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/ports"
)

// cutOff is a store that fails to write definitions while err is set.
type cutOff struct {
	SubscriptionStore
	err error
}

func (c *cutOff) CreateSubscription(ctx context.Context, s subscription.Subscription, cursors []ports.DeliveryCursor, most int) (subscription.Subscription, bool, error) {
	if c.err != nil {
		return s, false, c.err
	}
	return c.SubscriptionStore.CreateSubscription(ctx, s, cursors, most)
}

func (c *cutOff) ChangeSubscription(ctx context.Context, s subscription.Subscription) error {
	if c.err != nil {
		return c.err
	}
	return c.SubscriptionStore.ChangeSubscription(ctx, s)
}

func (c *cutOff) DeleteSubscription(ctx context.Context, uid event.ID) error {
	if c.err != nil {
		return c.err
	}
	return c.SubscriptionStore.DeleteSubscription(ctx, uid)
}

// RunRecordedSubscriptions checks that the row of a subscription is what was recorded about it:
// after every decision, in a race, after a crash between record and row, and after an edit.
func RunRecordedSubscriptions(t *testing.T, newStore func(t *testing.T, clock ports.Clock) SubscriptionStore) {
	t.Helper()
	clock := NewClock()
	d := NewSubscriptionFixture(t, newStore(t, clock), clock, "recorded")
	store := &cutOff{SubscriptionStore: d.Store}
	c := NewDeliveryFixture(d, func(config *subscriptions.Config) { config.Store = store })
	ctx, by, decisions := t.Context(), subscriptions.Caller{Principal: c.Person}, d.Log.Subscriptions()
	isRecorded := func(id string) subscription.Subscription {
		t.Helper()
		row, err := d.Store.Subscription(ctx, d.Tenant, id)
		require.NoError(t, err)
		record, err := decisions.Subscription(ctx, d.Tenant, id)
		require.NoError(t, err)
		require.True(t, row.IsRecorded(&record.Subscription), "%+v\n%+v", row, record)
		return row
	}
	heads := d.Write(t, 0, 3, "one")
	predicate, err := event.ParsePredicate("$.id", "eq", "x")
	require.NoError(t, err)
	c.Subscribe(t, "s", subscription.Settings{Start: subscription.Start{From: subscription.Position, Positions: map[string]event.Sequence{"AA": 2}}}, subscription.Filter{
		EventTypes: []string{"conformance.ticket.opened"}, LegalEntities: []string{"AA"}, Tags: []string{"a", "b"}, Predicate: predicate,
	})
	require.Len(t, heads, 3)
	isRecorded("s")
	_, created, err := c.Service.Create(ctx, c.Person, subscription.Subscription{ID: "t", SubscriberType: "service", SubscriberID: "suite"})
	require.NoError(t, err)
	require.True(t, created)
	for _, decide := range []func() error{
		func() error { _, err := c.Service.Pause(ctx, by, "t"); return err },
		func() error { _, err := c.Service.Resume(ctx, by, "t"); return err },
		func() error {
			_, err := c.Service.Change(ctx, by, "t", subscription.Settings{MaxRetries: 7})
			return err
		},
		func() error {
			_, err := c.Service.Reset(ctx, by, "t", subscription.Start{From: subscription.End})
			return err
		},
	} {
		require.NoError(t, decide())
		isRecorded("t")
	}

	// Of decisions at the same time each is refused or recorded, and the last record is the row.
	var running sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		node := NewDeliveryFixture(d, nil).Service
		running.Go(func() {
			_, errs[i] = node.Change(context.Background(), by, "t", subscription.Settings{MaxRetries: 10 + i})
		})
	}
	running.Wait()
	for _, err := range errs {
		if err != nil {
			require.Equal(t, "subscription.changed", fault.CodeOf(err))
		}
	}
	isRecorded("t")

	// A decision whose row was not written takes effect with the next one, or when a node starts.
	lost := errors.New("connection lost")
	store.err = lost
	_, err = c.Service.Pause(ctx, by, "t")
	require.ErrorIs(t, err, lost)
	_, _, err = c.Service.Create(ctx, c.Person, subscription.Subscription{ID: "u", SubscriberType: "service", SubscriberID: "suite"})
	require.ErrorIs(t, err, lost)
	require.ErrorIs(t, c.Service.Delete(ctx, by, "s"), lost)
	store.err = nil
	for range 2 {
		require.NoError(t, c.Service.Recover(ctx, d.Tenant))
	}
	require.Equal(t, subscription.Paused, isRecorded("t").Status)
	isRecorded("u")
	_, created, err = c.Service.Create(ctx, c.Person, subscription.Subscription{ID: "u", SubscriberType: "service", SubscriberID: "suite"})
	require.NoError(t, err)
	require.False(t, created)
	_, err = d.Store.Subscription(ctx, d.Tenant, "s")
	require.Equal(t, "subscription.not_found", fault.CodeOf(err))

	store.err = lost
	_, _, err = c.Service.Create(ctx, c.Person, subscription.Subscription{ID: "v", SubscriberType: "service", SubscriberID: "suite"})
	require.ErrorIs(t, err, lost)
	store.err = nil
	_, _, err = c.Service.Create(ctx, c.Person, subscription.Subscription{ID: "v", SubscriberType: "service", SubscriberID: "suite"})
	require.NoError(t, err)
	isRecorded("v")
	store.err = lost
	require.ErrorIs(t, c.Service.Delete(ctx, by, "v"), lost)
	store.err = nil
	_, created, err = c.Service.Create(ctx, c.Person, subscription.Subscription{ID: "v", SubscriberType: "service", SubscriberID: "another"})
	require.NoError(t, err)
	require.True(t, created, "its deletion was recorded")
	isRecorded("v")

	// An edited row is restored by the next decision, and no decision takes up an invented one.
	edited := isRecorded("v")
	edited.Filter.EventTypes, edited.Revision = []string{"another.thing.done"}, edited.Revision+1
	require.NoError(t, d.Store.ChangeSubscription(ctx, edited))
	_, err = c.Service.Pause(ctx, by, "v")
	require.NoError(t, err)
	require.Empty(t, isRecorded("v").Filter.EventTypes)
	invented := edited
	invented.UID, invented.ID, invented.Revision = event.ID{1}, "w", 1
	_, _, err = d.Store.CreateSubscription(ctx, invented, nil, 0)
	require.NoError(t, err)
	_, err = c.Service.Resume(ctx, by, "w")
	require.Equal(t, "subscription.unrecorded", fault.CodeOf(err))
	require.NoError(t, c.Service.Delete(ctx, by, "w"))
}
