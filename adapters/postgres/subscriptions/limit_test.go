package subscriptions_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/pgtest"
	"github.com/erpbackbone/backbone/application/subscriptions"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/test/conformance"
	"github.com/erpbackbone/backbone/test/testkit"
)

// A Create that runs while another transaction adds a subscription waits for that transaction,
// and then counts its subscription.
func TestCreateSubscription_ConcurrentLimit(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	clock := conformance.NewClock()
	c := conformance.NewDeliveryFixture(conformance.NewSubscriptionFixture(t, pgtest.Combine(pgtest.Open(t, dsn, pgtest.WithClock(clock))), clock, "few"), func(c *subscriptions.Config) { c.MaxPerTenant = 2 })
	c.Subscribe(t, "first", subscription.Settings{}, subscription.Filter{})
	conn, watcher := pgtest.Connect(t, dsn), pgtest.Connect(t, dsn)
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `UPDATE backbone.subscription_tenants SET tenant_id = tenant_id WHERE tenant_id = 'few'`)
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `INSERT INTO backbone.subscriptions SELECT gen_random_uuid(), tenant_id, 'second', subscriber_type, subscriber_id, definition, status, owner, revision, created_at, updated_at, failures
		FROM backbone.subscriptions WHERE id = 'first'`)
	require.NoError(t, err)
	answered := make(chan error, 1)
	go func() {
		_, _, err := c.Service.Create(t.Context(), c.Person, subscription.Subscription{ID: "third", SubscriberType: "service", SubscriberID: "suite"})
		answered <- err
	}()
	testkit.Eventually(t, pgtest.WaitLimit, func() bool {
		var waiting int
		err := watcher.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database() AND query LIKE '%LockSubscriptionTenant%'`).Scan(&waiting)
		return err == nil && waiting == 1
	}, "it waits")
	require.NoError(t, tx.Commit(t.Context()))
	require.Equal(t, "subscription.too_many", fault.CodeOf(<-answered))
}
