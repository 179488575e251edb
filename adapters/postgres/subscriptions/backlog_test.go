package subscriptions_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/postgres"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pgtest"
	"github.com/erpbackbone/backbone/application/subscriptions"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/test/conformance"
)

// rowCounter counts the open messages that statements gave.
type rowCounter struct{ messages atomic.Int64 }

type ofMessages struct{}

func (r *rowCounter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	name, _, _ := strings.Cut(strings.TrimPrefix(data.SQL, "-- name: "), " ")
	return context.WithValue(ctx, ofMessages{}, strings.HasPrefix(name, "List") && strings.Contains(name, "Messages"))
}

func (r *rowCounter) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	if ctx.Value(ofMessages{}) == true {
		r.messages.Add(data.CommandTag.RowsAffected())
	}
}

// Thousands of messages wait behind the keys that one consumer has: what another one
// asks for, and what either answers, reads a handful of them.
func TestPoll_LargeBacklogReadsFewPages(t *testing.T) {
	t.Parallel()
	clock := conformance.NewClock()
	counter := &rowCounter{}
	s := pgtest.Open(t, pgtest.Database(t), pgtest.WithClock(clock), func(c *postgres.Config) { c.Tracer = counter })
	c := conformance.NewDeliveryFixture(conformance.NewSubscriptionFixture(t, pgtest.Combine(s), clock, "behind"), nil)
	const streams, events = 5, 3000
	for i := range events / 200 {
		c.Write(t, 0, 200, fmt.Sprint(i%streams))
	}
	c.Subscribe(t, "s", subscription.Settings{PartitionBy: subscription.PerStream}, subscription.Filter{})
	take := func(consumer string, limit int) []subscriptions.Delivery {
		t.Helper()
		batch, err := c.Service.Poll(t.Context(), c.Person, subscriptions.Poll{ID: "s", Consumer: consumer, Limit: limit})
		require.NoError(t, err)
		return batch.Deliveries
	}
	answer := func(consumer string, of ...subscriptions.Delivery) {
		t.Helper()
		a := subscriptions.Acknowledgement{ID: "s", Consumer: consumer}
		for _, d := range of {
			a.EventIDs = append(a.EventIDs, d.Event.ID)
		}
		out, err := c.Service.Acknowledge(t.Context(), c.Person, a)
		require.NoError(t, err)
		require.Equal(t, len(of), out.Applied)
	}
	// One has a message of each stream, and others have looked for a stream that is free.
	var held []subscriptions.Delivery
	for range streams {
		held = append(held, take("one", 1)...)
	}
	require.Len(t, held, streams)
	require.Empty(t, take("two", 10), "all streams are held")
	cursors, err := s.Subscriptions.Backlogs(t.Context(), subscriptionOf(t, c, "s").UID)
	require.NoError(t, err)
	waiting := 0
	for _, b := range cursors {
		waiting += b.Waiting
	}
	require.Equal(t, events-streams, waiting)

	reads := func(f func()) int64 {
		before := counter.messages.Load()
		f()
		return counter.messages.Load() - before
	}
	require.LessOrEqual(t, reads(func() { require.Empty(t, take("two", 10)) }), int64(50))
	require.LessOrEqual(t, reads(func() { answer("one", held[0]) }), int64(50))
	var next []subscriptions.Delivery
	require.LessOrEqual(t, reads(func() { next = take("two", 10) }), int64(150))
	require.Len(t, next, 10)
	for _, d := range next {
		require.Equal(t, held[0].Event.Stream, d.Event.Stream, "it is free now")
		require.LessOrEqual(t, reads(func() { answer("two", d) }), int64(50))
	}
}

func subscriptionOf(t *testing.T, c *conformance.DeliveryFixture, id string) subscription.Subscription {
	t.Helper()
	sub, err := c.Store.Subscription(t.Context(), c.Tenant, id)
	require.NoError(t, err)
	return sub
}
