package subscriptions_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/postgres"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pgtest"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/conformance"
	"github.com/erpbackbone/backbone/test/testkit"
)

// TestDrillLockedPublisherCursor: the partitions of a publisher share few workers.
func TestDrillLockedPublisherCursor(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	s := pgtest.Open(t, dsn)
	books := pgtest.NewPartitions(t, s, 2)
	for _, p := range books {
		_, err := s.Publishers.BeginPublishing(t.Context(), "nats", p, 1)
		require.NoError(t, err)
	}
	tx, err := pgtest.Connect(t, dsn).Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "SELECT FROM backbone.publisher_cursors WHERE partition_id = $1 FOR UPDATE", int32(books[0]))
	require.NoError(t, err)
	_, begun := s.Publishers.BeginPublishing(t.Context(), "nats", books[0], 1)
	for _, err := range []error{
		begun, s.Publishers.MovePublished(t.Context(), "nats", books[0], 1, 0, 5), s.Publishers.RecordPublishFailure(t.Context(), "nats", books[0], 1, "x"),
	} {
		f, ok := fault.As(err)
		require.True(t, ok)
		require.Equal(t, "store.unavailable", f.Code)
		require.Equal(t, fault.Unavailable, f.Kind)
		require.Contains(t, f.Detail, "another session")
	}
	require.NoError(t, s.Publishers.MovePublished(t.Context(), "nats", books[1], 1, 0, 5))
	require.NoError(t, tx.Rollback(t.Context()))
	require.NoError(t, s.Publishers.MovePublished(t.Context(), "nats", books[0], 1, 0, 5))
}

// TestDeliver_LockedCursorLeavesConnections: more answers wait for it
// than there are connections.
func TestDeliver_LockedCursorLeavesConnections(t *testing.T) {
	t.Parallel()
	clock := conformance.NewClock()
	dsn := pgtest.Database(t)
	const connections = 4
	s := pgtest.Open(t, dsn, pgtest.WithClock(clock), func(c *postgres.Config) { c.ReadPool = connections })
	c := conformance.NewDeliveryFixture(conformance.NewSubscriptionFixture(t, pgtest.Combine(s), clock, "t"), nil)
	c.Subscribe(t, "invoices", subscription.Settings{}, subscription.Filter{})
	sub, err := s.Subscriptions.Subscription(t.Context(), c.Tenant, "invoices")
	require.NoError(t, err)
	p := c.Entities[0].Partition
	require.Greater(t, len(c.Entities), 1)
	deliver := func(ctx context.Context, entity int) error {
		ran, err := s.Subscriptions.Deliver(ctx, sub.UID, c.Entities[entity].Partition, true, func(context.Context, ports.DeliveryTx) error { return nil })
		if ran != (err == nil) {
			return fmt.Errorf("ran: %v, error: %w", ran, err)
		}
		return err
	}
	require.NoError(t, deliver(t.Context(), 0))
	observer := pgtest.Connect(t, dsn)
	tx, err := pgtest.Connect(t, dsn).Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "SELECT FROM backbone.subscription_cursors WHERE subscription = $1 AND partition_id = $2 FOR UPDATE", [16]byte(sub.UID), int32(p))
	require.NoError(t, err)
	answers := make(chan error, 3*connections)
	for range cap(answers) {
		go func() { answers <- deliver(context.Background(), 0) }()
	}
	testkit.Eventually(t, pgtest.WaitLimit, func() bool { return pgtest.CountLockWaiters(t, observer) == 1 })
	for range 2 * connections {
		_, err := s.Subscriptions.Subscription(t.Context(), c.Tenant, "invoices")
		require.NoError(t, err)
		require.NoError(t, deliver(t.Context(), 1), "another legal entity's")
		require.LessOrEqual(t, pgtest.CountLockWaiters(t, observer), 1, "of all who want it one waits in the database")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, deliver(ctx, 0), context.Canceled)
	require.Empty(t, answers)
	require.NoError(t, tx.Rollback(t.Context()))
	for range cap(answers) {
		require.NoError(t, <-answers)
	}
}

// TestDeliver_EndsHungTransaction: a node that stops in a delivery, as one does whose machine is
// suspended, keeps the cursor from other nodes for the idle timeout only.
func TestDeliver_EndsHungTransaction(t *testing.T) {
	t.Parallel()
	clock := conformance.NewClock()
	dsn := pgtest.Database(t)
	s := pgtest.Open(t, dsn, pgtest.WithClock(clock))
	hanging := pgtest.Open(t, dsn, pgtest.WithClock(clock), func(c *postgres.Config) { c.Limits.ProjectionIdleTimeout = 100 * time.Millisecond })
	c := conformance.NewDeliveryFixture(conformance.NewSubscriptionFixture(t, pgtest.Combine(s), clock, "t"), nil)
	c.Subscribe(t, "invoices", subscription.Settings{}, subscription.Filter{})
	sub, err := s.Subscriptions.Subscription(t.Context(), c.Tenant, "invoices")
	require.NoError(t, err)
	held, thaw, late := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		_, err := hanging.Subscriptions.Deliver(context.Background(), sub.UID, c.Entities[0].Partition, true, func(context.Context, ports.DeliveryTx) error {
			close(held)
			<-thaw
			return nil
		})
		late <- err
	}()
	pgtest.Receive(t, held, "it holds the cursor")
	ran, err := s.Subscriptions.Deliver(t.Context(), sub.UID, c.Entities[0].Partition, true, func(context.Context, ports.DeliveryTx) error { return nil })
	require.NoError(t, err)
	require.True(t, ran)
	close(thaw)
	require.Equal(t, fault.Unavailable, fault.KindOf(<-late), "nothing of it was written")
}

// TestDrillCursorWaitersTimeOut: each caller waits one lock timeout, and not those of the
// callers before it.
func TestDrillCursorWaitersTimeOut(t *testing.T) {
	t.Parallel()
	clock := conformance.NewClock()
	dsn := pgtest.Database(t)
	const lockTimeout = 5 * time.Second
	s := pgtest.Open(t, dsn, pgtest.WithClock(clock), func(c *postgres.Config) { pgtest.SetLockTimeout(c, lockTimeout) })
	c := conformance.NewDeliveryFixture(conformance.NewSubscriptionFixture(t, pgtest.Combine(s), clock, "t"), nil)
	c.Subscribe(t, "invoices", subscription.Settings{}, subscription.Filter{})
	sub, err := s.Subscriptions.Subscription(t.Context(), c.Tenant, "invoices")
	require.NoError(t, err)
	tx, err := pgtest.Connect(t, dsn).Begin(t.Context())
	require.NoError(t, err)
	tag, err := tx.Exec(t.Context(), "UPDATE backbone.subscription_cursors SET updated_at = updated_at WHERE subscription = $1", [16]byte(sub.UID))
	require.NoError(t, err)
	require.Positive(t, tag.RowsAffected())
	answers := make(chan error, 24)
	began := time.Now()
	for range cap(answers) {
		go func() {
			_, err := s.Subscriptions.Deliver(context.Background(), sub.UID, c.Entities[0].Partition, true, func(context.Context, ports.DeliveryTx) error { return nil })
			answers <- err
		}()
	}
	for range cap(answers) {
		f, ok := fault.As(<-answers)
		require.True(t, ok)
		require.Equal(t, "store.unavailable", f.Code)
		require.Contains(t, f.Detail, "another session")
	}
	require.Less(t, time.Since(began), time.Duration(cap(answers))*lockTimeout, "as long as one after the other would take")
	require.NoError(t, tx.Rollback(t.Context()))
}

// TestConsumers_LockedRow: polls do not wait for the row that says that they come.
func TestConsumers_LockedRow(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	s := pgtest.Open(t, dsn)
	uid := event.ID{1}
	for _, consumer := range []string{"a", "b"} {
		_, err := s.Subscriptions.RegisterConsumer(t.Context(), uid, consumer, time.Hour)
		require.NoError(t, err)
	}
	tx, err := pgtest.Connect(t, dsn).Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "SELECT FROM backbone.subscription_consumers WHERE consumer = 'a' FOR UPDATE")
	require.NoError(t, err)
	active, err := s.Subscriptions.RegisterConsumer(t.Context(), uid, "a", time.Hour)
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b"}, active)
	require.NoError(t, tx.Rollback(t.Context()))
}
