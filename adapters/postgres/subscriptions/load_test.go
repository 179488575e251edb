package subscriptions_test

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

	"github.com/erpbackbone/backbone/adapters/embeddedpg"
	"github.com/erpbackbone/backbone/adapters/postgres"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pgtest"
	"github.com/erpbackbone/backbone/adapters/postgres/migrate"
	"github.com/erpbackbone/backbone/application/subscriptions"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/test/conformance"
	"github.com/erpbackbone/backbone/test/testkit"
)

// drainage is how far a subscription to all events was taken, by its id.
type drainage struct {
	by   string
	last map[event.PartitionID]event.Sequence
}

// drain takes and acknowledges until n events came, each exactly once and in order.
func (d *drainage) drain(t *testing.T, c *conformance.DeliveryFixture, n, limit int) {
	t.Helper()
	for got := 0; got < n; {
		batch, err := c.Service.Poll(t.Context(), c.Person, subscriptions.Poll{ID: d.by, Limit: limit})
		require.NoError(t, err)
		require.NotEmpty(t, batch.Deliveries)
		var ids []event.ID
		for _, one := range batch.Deliveries {
			require.Equal(t, d.last[one.Event.Partition]+1, one.Event.Sequence)
			d.last[one.Event.Partition]++
			ids = append(ids, one.Event.ID)
		}
		got += len(ids)
		out, err := c.Service.Acknowledge(t.Context(), c.Person, subscriptions.Acknowledgement{ID: d.by, EventIDs: ids})
		require.NoError(t, err)
		require.Equal(t, len(ids), out.Applied)
	}
}

// ownServer is a migrated database of a server of the test's own. On a server that others
// use a transaction that one of them has open, in whatever database, keeps rows that are
// gone in the way of all.
func ownServer(t *testing.T) string {
	t.Helper()
	testkit.Server(t) // without any PostgreSQL the test is skipped, or fails
	if _, _, err := embeddedpg.FindBinaries(""); err != nil {
		t.Skipf("no PostgreSQL is installed here: %v", err)
	}
	cluster, err := embeddedpg.Start(t.Context(), embeddedpg.Config{
		DataDir: t.TempDir(), Ephemeral: true, Settings: map[string]string{"shared_buffers": "64MB", "max_connections": "40"},
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), pgtest.WaitLimit)
		defer cancel()
		if err := cluster.Stop(ctx); err != nil {
			t.Errorf("stopping the server: %v", err)
		}
	})
	dsn := cluster.SuperuserDSN("postgres")
	require.NoError(t, migrate.Run(t.Context(), dsn, nil))
	return dsn
}

// The last batches of a catch-up cost as many statements and pages as the first ones, however
// many events lie between them and without a vacuum.
func TestDrillCatchUpCostPerBatch(t *testing.T) {
	t.Parallel()
	clock := conformance.NewClock()
	dsn := ownServer(t)
	c := conformance.NewDeliveryFixture(conformance.NewSubscriptionFixture(t, pgtest.Combine(pgtest.Open(t, dsn, pgtest.WithClock(clock))), clock, "catch-up"), nil)
	const events, part, limit = 10_000, 1000, 100
	for i := range events / 250 {
		c.Write(t, 0, 250, fmt.Sprint(i%10))
	}
	pgtest.Execute(t, dsn, `DO $$ DECLARE r regclass; BEGIN
		FOR r IN SELECT oid FROM pg_class WHERE relnamespace = 'backbone'::regnamespace AND relkind = 'r' LOOP
			EXECUTE format('ALTER TABLE %s SET (autovacuum_enabled = off)', r); END LOOP; END $$`)
	for _, by := range []string{subscription.PerLegalEntity, subscription.PerStream} {
		c.Subscribe(t, by, subscription.Settings{PartitionBy: by}, subscription.Filter{})
		d := &drainage{by: by, last: map[event.PartitionID]event.Sequence{}}
		take := func(n int) (pages, statements int) {
			counter := &statementCounter{}
			traced := func(config *postgres.Config) { pgtest.WithClock(clock)(config); config.Tracer = counter }
			pages = pagesOf(t, dsn, "event|subscription", traced, func(node *postgres.Database) {
				desk := *c.SubscriptionFixture
				desk.Store = pgtest.Combine(node)
				d.drain(t, conformance.NewDeliveryFixture(&desk, nil), n, limit)
			})
			return pages, int(counter.heads.Load() + counter.states.Load() + counter.others.Load())
		}
		pages, statements := take(part)
		take(events - 2*part)
		lastPages, lastStatements := take(part)
		t.Logf("%d events by %s in batches of %d: %d pages and %d statements for the first %d, %d and %d for the last",
			events, by, limit, pages, statements, part, lastPages, lastStatements)
		require.LessOrEqual(t, lastStatements, statements)
		require.LessOrEqual(t, lastPages, 2*pages)
		require.Less(t, statements, part/limit*30)
	}
}

// A backend that dies during a poll loses no message: the next polls deliver all of them, and none
// twice.
func TestDrillBackendKilledDuringPoll(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	clock := conformance.NewClock()
	killer := pgtest.Connect(t, dsn)
	var armed atomic.Bool
	tracer := &backendKiller{kill: func(pid uint32) {
		if armed.CompareAndSwap(true, false) {
			_, err := killer.Exec(context.Background(), "SELECT pg_terminate_backend($1, 5000)", int32(pid))
			if err != nil {
				panic(err)
			}
		}
	}}
	s := pgtest.Open(t, dsn, pgtest.WithClock(clock), func(c *postgres.Config) { c.Tracer = tracer })
	c := conformance.NewDeliveryFixture(conformance.NewSubscriptionFixture(t, pgtest.Combine(s), clock, "killed"), nil)
	c.Write(t, 0, 50, "one")
	c.Subscribe(t, "s", subscription.Settings{}, subscription.Filter{})
	armed.Store(true)
	_, err := c.Service.Poll(t.Context(), c.Person, subscriptions.Poll{ID: "s", Limit: 10})
	require.Error(t, err)
	require.False(t, armed.Load(), "no backend was killed")
	(&drainage{by: "s", last: map[event.PartitionID]event.Sequence{}}).drain(t, c, 50, 10)
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

// await polls until something is handed out, as consumers do: no poll waits longer than
// delivery.MaxWait.
func await(ctx context.Context, c *conformance.DeliveryFixture, id string) (got int64) {
	for ctx.Err() == nil && got == 0 {
		batch, err := c.Service.Poll(ctx, c.Person, subscriptions.Poll{ID: id, Limit: 10, Wait: subscriptions.MaxWait})
		if err != nil {
			return 0
		}
		got = int64(len(batch.Deliveries))
	}
	return got
}

// Subscriptions that wait ask the database nothing.
func TestPoll_IdleSubscriptionsSendNoQueries(t *testing.T) {
	t.Parallel()
	clock := conformance.NewClock()
	counter := &statementCounter{}
	s := pgtest.Open(t, pgtest.Database(t), pgtest.WithClock(clock), func(c *postgres.Config) { c.Tracer = counter })
	c := conformance.NewDeliveryFixture(conformance.NewSubscriptionFixture(t, pgtest.Combine(s), clock, "idle"), nil)
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer cancel()
	waiting.Go(func() { c.Heads.Run(ctx) })
	c.Write(t, 0, 1, "one")
	const idle = 200
	var got atomic.Int64
	name := func(i int) string { return fmt.Sprintf("s-%d", i) }
	for i := range idle {
		c.Subscribe(t, name(i), subscription.Settings{Start: subscription.Start{From: subscription.End}}, subscription.Filter{})
	}
	for i := range idle {
		waiting.Go(func() { got.Add(await(ctx, c, name(i))) })
	}
	// Quiet is when only the watch's own look happens: one statement after the other.
	testkit.Eventually(t, pgtest.WaitLimit, func() bool {
		looks, others := counter.heads.Load(), counter.others.Load()
		testkit.Eventually(t, pgtest.WaitLimit, func() bool { return counter.heads.Load() >= looks+20 })
		return counter.others.Load() == others
	}, "nothing but looks")
	c.Write(t, 0, 1, "one")
	testkit.Eventually(t, pgtest.WaitLimit, func() bool { return got.Load() == idle }, "everybody has it")
}

// Subscriptions that wait behind open messages cost one statement at a time together,
// and see all the same what other nodes do.
func TestPoll_WaitingPollsShareQueries(t *testing.T) {
	t.Parallel()
	clock := conformance.NewClock()
	counter := &statementCounter{}
	s := pgtest.Open(t, pgtest.Database(t), pgtest.WithClock(clock), func(c *postgres.Config) { c.Tracer = counter })
	quick := func(c *subscriptions.Config) { c.RecheckInterval = 50 * time.Millisecond }
	c := conformance.NewDeliveryFixture(conformance.NewSubscriptionFixture(t, pgtest.Combine(s), clock, "open"), quick)
	elsewhere := conformance.NewDeliveryFixture(c.SubscriptionFixture, nil).Service
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer cancel()
	waiting.Go(func() { c.Heads.Run(ctx) })
	written := c.Write(t, 0, 2, "one")
	const consumers = 100
	var got atomic.Int64
	name := func(i int) string { return fmt.Sprintf("s-%d", i) }
	for i := range consumers {
		id := name(i)
		c.Subscribe(t, id, subscription.Settings{}, subscription.Filter{})
		batch, err := c.Service.Poll(ctx, c.Person, subscriptions.Poll{ID: id, Limit: 1})
		require.NoError(t, err)
		require.Len(t, batch.Deliveries, 1)
		if i == 1 {
			_, err := c.Service.Pause(ctx, subscriptions.Caller{Principal: c.Person}, id)
			require.NoError(t, err)
		}
	}
	for i := range consumers {
		waiting.Go(func() { got.Add(await(ctx, c, name(i))) })
	}
	testkit.Eventually(t, pgtest.WaitLimit, func() bool {
		looks, others := counter.states.Load(), counter.others.Load()
		testkit.Eventually(t, pgtest.WaitLimit, func() bool { return counter.states.Load() >= looks+5 })
		return counter.others.Load() == others
	}, "nothing but looks")
	require.Zero(t, got.Load())
	clock.Advance(time.Second)
	for _, id := range []string{"s-0", "s-1"} {
		out, err := elsewhere.Acknowledge(ctx, c.Person, subscriptions.Acknowledgement{ID: id, EventIDs: written[:1]})
		require.NoError(t, err)
		require.Equal(t, 1, out.Applied)
	}
	testkit.Eventually(t, pgtest.WaitLimit, func() bool { return got.Load() == 1 }, "what was waited for was answered on another node")
	_, err := elsewhere.Resume(ctx, subscriptions.Caller{Principal: c.Person}, "s-1")
	require.NoError(t, err)
	testkit.Eventually(t, pgtest.WaitLimit, func() bool { return got.Load() == 2 }, "it was resumed on another node")
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
