package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/postgres"
	"github.com/erpbackbone/backbone/application/delivery"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/test/conformance"
)

// drain takes and acknowledges until n events came, each exactly once and in order.
func drain(t *testing.T, c *conformance.Counter, id string, n, limit int) {
	t.Helper()
	last := map[event.PartitionID]event.Sequence{}
	for got := 0; got < n; {
		batch, err := c.Service.Poll(t.Context(), c.Person, delivery.Poll{ID: id, Limit: limit})
		require.NoError(t, err)
		require.NotEmpty(t, batch.Deliveries)
		var ids []event.ID
		for _, d := range batch.Deliveries {
			require.Equal(t, last[d.Event.Partition]+1, d.Event.Sequence)
			last[d.Event.Partition]++
			ids = append(ids, d.Event.ID)
		}
		got += len(ids)
		out, err := c.Service.Acknowledge(t.Context(), c.Person, delivery.Acknowledgement{ID: id, EventIDs: ids})
		require.NoError(t, err)
		require.Equal(t, len(ids), out.Taken)
	}
}

func TestCatchUpTakesSeconds(t *testing.T) {
	t.Parallel()
	clock := conformance.NewClock()
	c := conformance.NewCounter(conformance.NewDesk(t, open(t, database(t), withClock(clock)), clock, "catch-up"), nil)
	const events = 10_000
	for i := range events / 250 {
		c.Write(t, 0, 250, fmt.Sprint(i%10))
	}
	for _, by := range []string{subscription.PerLegalEntity, subscription.PerStream} {
		c.Subscribe(t, by, subscription.Settings{PartitionBy: by}, subscription.Filter{})
		started := time.Now()
		drain(t, c, by, events, 100)
		took := time.Since(started)
		t.Logf("%d events by %s in batches of 100: %s, %.0f events/s", events, by, took, events/took.Seconds())
		require.Less(t, took, 45*time.Second)
	}
}

// A backend that dies in the middle of a hand-out takes nothing with it: the messages
// are handed out again, and none twice.
func TestABackendDiesInTheMiddleOfAPoll(t *testing.T) {
	t.Parallel()
	dsn := database(t)
	clock := conformance.NewClock()
	killer := connect(t, dsn)
	var armed atomic.Bool
	tracer := &backendKiller{kill: func(pid uint32) {
		if armed.CompareAndSwap(true, false) {
			_, err := killer.Exec(context.Background(), "SELECT pg_terminate_backend($1, 5000)", int32(pid))
			if err != nil {
				panic(err)
			}
		}
	}}
	s := open(t, dsn, withClock(clock), func(c *postgres.Config) { c.Tracer = tracer })
	c := conformance.NewCounter(conformance.NewDesk(t, s, clock, "killed"), nil)
	c.Write(t, 0, 50, "one")
	c.Subscribe(t, "s", subscription.Settings{}, subscription.Filter{})
	armed.Store(true)
	_, err := c.Service.Poll(t.Context(), c.Person, delivery.Poll{ID: "s", Limit: 10})
	require.Error(t, err)
	require.False(t, armed.Load(), "nobody died")
	drain(t, c, "s", 50, 10)
}

// backendKiller ends the backend that is about to store messages.
type backendKiller struct{ kill func(pid uint32) }

func (k *backendKiller) TraceQueryStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if len(data.SQL) > 20 && data.SQL[:21] == "-- name: SaveMessages" {
		k.kill(conn.PgConn().PID())
	}
	return ctx
}

func (k *backendKiller) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// Subscriptions that wait ask the database nothing.
func TestIdleSubscriptionsAskNothing(t *testing.T) {
	t.Parallel()
	clock := conformance.NewClock()
	counter := &statementCounter{}
	s := open(t, database(t), withClock(clock), func(c *postgres.Config) { c.Tracer = counter })
	c := conformance.NewCounter(conformance.NewDesk(t, s, clock, "idle"), nil)
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer cancel()
	waiting.Go(func() { c.Watch.Run(ctx) })
	c.Write(t, 0, 1, "one")
	const idle = 200
	var got atomic.Int64
	for i := range idle {
		id := fmt.Sprintf("s-%d", i)
		c.Subscribe(t, id, subscription.Settings{Start: subscription.Start{From: subscription.End}}, subscription.Filter{})
		waiting.Go(func() {
			if batch, err := c.Service.Poll(ctx, c.Person, delivery.Poll{ID: id, Limit: 10, Wait: delivery.MaxWait}); err == nil {
				got.Add(int64(len(batch.Deliveries)))
			}
		})
	}
	// Quiet is when only the watch's own look happens: one statement after the other.
	quiet := func() bool {
		looks, others := counter.heads.Load(), counter.others.Load()
		require.Eventually(t, func() bool { return counter.heads.Load() >= looks+20 }, 20*time.Second, time.Millisecond)
		return counter.others.Load() == others
	}
	require.Eventually(t, quiet, 40*time.Second, time.Millisecond)
	c.Write(t, 0, 1, "one")
	require.Eventually(t, func() bool { return got.Load() == idle }, 40*time.Second, 10*time.Millisecond)
}

// Subscriptions that wait behind open messages cost one statement at a time together,
// and see all the same what other nodes do.
func TestSubscriptionsThatWaitForAnswersLookTogether(t *testing.T) {
	t.Parallel()
	clock := conformance.NewClock()
	counter := &statementCounter{}
	s := open(t, database(t), withClock(clock), func(c *postgres.Config) { c.Tracer = counter })
	quick := func(c *delivery.Config) { c.Recheck = 50 * time.Millisecond }
	c := conformance.NewCounter(conformance.NewDesk(t, s, clock, "open"), quick)
	elsewhere := conformance.NewCounter(c.Desk, nil).Service
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer cancel()
	waiting.Go(func() { c.Watch.Run(ctx) })
	written := c.Write(t, 0, 2, "one")
	const consumers = 100
	var got atomic.Int64
	for i := range consumers {
		id := fmt.Sprintf("s-%d", i)
		c.Subscribe(t, id, subscription.Settings{}, subscription.Filter{})
		batch, err := c.Service.Poll(ctx, c.Person, delivery.Poll{ID: id, Limit: 1})
		require.NoError(t, err)
		require.Len(t, batch.Deliveries, 1)
		if i == 1 {
			_, err := c.Service.Pause(ctx, delivery.Caller{Principal: c.Person}, id)
			require.NoError(t, err)
		}
		waiting.Go(func() {
			if batch, err := c.Service.Poll(ctx, c.Person, delivery.Poll{ID: id, Limit: 10, Wait: delivery.MaxWait}); err == nil {
				got.Add(int64(len(batch.Deliveries)))
			}
		})
	}
	quiet := func() bool {
		looks, others := counter.states.Load(), counter.others.Load()
		require.Eventually(t, func() bool { return counter.states.Load() >= looks+5 }, 20*time.Second, time.Millisecond)
		return counter.others.Load() == others
	}
	require.Eventually(t, quiet, 40*time.Second, time.Millisecond)
	require.Zero(t, got.Load())
	clock.Advance(time.Second)
	for _, id := range []string{"s-0", "s-1"} {
		out, err := elsewhere.Acknowledge(ctx, c.Person, delivery.Acknowledgement{ID: id, EventIDs: written[:1]})
		require.NoError(t, err)
		require.Equal(t, 1, out.Taken)
	}
	require.Eventually(t, func() bool { return got.Load() == 1 }, 20*time.Second, time.Millisecond, "what was waited for was answered on another node")
	_, err := elsewhere.Resume(ctx, delivery.Caller{Principal: c.Person}, "s-1")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return got.Load() == 2 }, 20*time.Second, time.Millisecond, "it was resumed on another node")
}

// statementCounter counts looks at the heads, at the state of subscriptions, and all
// other statements.
type statementCounter struct{ heads, states, others atomic.Int64 }

func (k *statementCounter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	switch {
	case strings.HasPrefix(data.SQL, "-- name: ListPartitionHead"):
		k.heads.Add(1)
	case strings.HasPrefix(data.SQL, "-- name: ListSubscriptionStates"):
		k.states.Add(1)
	default:
		k.others.Add(1)
	}
	return ctx
}

func (k *statementCounter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
