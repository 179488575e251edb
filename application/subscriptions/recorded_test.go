package subscriptions_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/application/subscriptions"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/conformance"
)

// lateDecisions does something after it has read the records of a tenant.
type lateDecisions struct {
	ports.SubscriptionDecisions
	after func()
}

func (d lateDecisions) Subscriptions(ctx context.Context, tenantID string) ([]ports.SubscriptionRecord, error) {
	all, err := d.SubscriptionDecisions.Subscriptions(ctx, tenantID)
	d.after()
	return all, err
}

// lateStore does something before it inserts a row.
type lateStore struct {
	conformance.SubscriptionStore
	before func()
}

func (s lateStore) CreateSubscription(ctx context.Context, sub subscription.Subscription, cursors []ports.DeliveryCursor, maxPerTenant int) (subscription.Subscription, bool, error) {
	s.before()
	return s.SubscriptionStore.CreateSubscription(ctx, sub, cursors, maxPerTenant)
}

// A node that starts does not bring back what another node deletes between its reads and writes.
func TestRecover_WhileDeleted(t *testing.T) {
	t.Parallel()
	for name, withStore := range map[string]bool{"after the records are read": false, "before the row is written": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock := conformance.NewClock()
			fixture := conformance.NewSubscriptionFixture(t, conformance.NewMemoryStore(memory.Config{Clock: clock}), clock, "t")
			other := conformance.NewDeliveryFixture(fixture, nil)
			remove := func() {
				require.NoError(t, other.Service.Recover(t.Context(), other.Tenant))
				require.NoError(t, other.Service.Delete(t.Context(), owner(other), "s"))
			}
			node := conformance.NewDeliveryFixture(fixture, func(c *subscriptions.Config) {
				if withStore {
					c.Store = lateStore{fixture.Store, remove}
				} else {
					c.Decisions = lateDecisions{c.Decisions, remove}
				}
			})
			other.Subscribe(t, "s", subscription.Settings{}, subscription.Filter{})
			stored, err := fixture.Store.Subscription(t.Context(), "t", "s")
			require.NoError(t, err)
			require.NoError(t, fixture.Store.DeleteSubscription(t.Context(), stored.UID)) // as if the creation was cut off
			require.NoError(t, node.Service.Recover(t.Context(), "t"))
			_, err = fixture.Store.Subscription(t.Context(), "t", "s")
			require.Equal(t, "subscription.not_found", fault.CodeOf(err))
		})
	}
}

// A creation that was deleted before its row was written leaves no row.
func TestCreate_WhileDeleted(t *testing.T) {
	t.Parallel()
	clock := conformance.NewClock()
	fixture := conformance.NewSubscriptionFixture(t, conformance.NewMemoryStore(memory.Config{Clock: clock}), clock, "t")
	other := conformance.NewDeliveryFixture(fixture, nil)
	node := conformance.NewDeliveryFixture(fixture, func(c *subscriptions.Config) {
		c.Store = lateStore{fixture.Store, func() {
			require.NoError(t, other.Service.Recover(t.Context(), "t"))
			require.NoError(t, other.Service.Delete(t.Context(), owner(other), "s"))
		}}
	})
	_, created, err := node.Service.Create(t.Context(), node.Person, subscription.Subscription{ID: "s", SubscriberType: "service", SubscriberID: "suite"})
	require.Equal(t, "subscription.not_found", fault.CodeOf(err))
	require.False(t, created)
	_, err = fixture.Store.Subscription(t.Context(), "t", "s")
	require.Equal(t, "subscription.not_found", fault.CodeOf(err))
}
