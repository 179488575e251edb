package appender_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/postgres"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pgtest"
	"github.com/erpbackbone/backbone/adapters/system"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/projections"
	"github.com/erpbackbone/backbone/application/subscriptions"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/conformance"
	"github.com/erpbackbone/backbone/test/testkit"
)

// jumpingClock is the machine's time plus an offset that a test changes.
type jumpingClock struct{ off atomic.Int64 }

func (c *jumpingClock) Now() time.Time { return time.Now().Add(time.Duration(c.off.Load())) }

// readsAll allows every principal to read all legal entities of the tenant.
type readsAll struct{ *postgres.Database }

func (a readsAll) Readable(ctx context.Context, p ports.Principal) ([]ports.LegalEntity, error) {
	return a.Directory.LegalEntities(ctx, p.TenantID)
}

// Sight implements subscriptions.Access.
func (readsAll) Sight(context.Context, ports.Principal) (module.Sight, error) {
	return module.FullSight(), nil
}

func (a readsAll) Visible(ctx context.Context, p ports.Principal) ([]ports.LegalEntity, error) {
	return a.Readable(ctx, p)
}

func (readsAll) Owner(_ context.Context, tenantID, personID string) (ports.Principal, error) {
	return ports.Principal{TenantID: tenantID, PersonID: personID}, nil
}

// TestAppend_NodesWithJumpingClocks has three nodes whose clocks jump by up to two days, back and forth,
// while they share projections and deliver a subscription's events. Leases, message
// timeouts and checkpoints use the database's clock: no event is applied twice or left
// out, and none is delivered again.
func TestAppend_NodesWithJumpingClocks(t *testing.T) {
	t.Parallel()
	const events, each, name = 400, 10, "clocks"
	dsn := pgtest.Database(t)
	pgtest.Execute(t, dsn, `CREATE TABLE backbone.jumps (partition_id integer, sequence bigint, place bigint GENERATED ALWAYS AS IDENTITY, PRIMARY KEY (partition_id, sequence));
		GRANT SELECT, INSERT ON backbone.jumps TO backbone_app`)
	writer := pgtest.Open(t, dsn)
	books := pgtest.NewPartitions(t, writer, 4)
	person := ports.Principal{TenantID: "demo", PersonID: "p-1"}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait() })

	var mutex sync.Mutex
	failures := []error{}
	delivered, repeats := map[event.ID]bool{}, 0
	last := map[event.PartitionID]event.Sequence{}
	clocks := make([]*jumpingClock, 3)
	var made sync.Once
	decisions := testkit.Must(conformance.NewAdministrativeLog(system.Clock{})).Subscriptions()
	for i := range clocks {
		c := &jumpingClock{}
		clocks[i] = c
		s := pgtest.Open(t, dsn, func(config *postgres.Config) { config.Clock, config.Limits.MaxClockSkew = c, 365*24*time.Hour })
		w := testkit.Must(subscriptions.NewHeadWatcher(subscriptions.HeadWatcherConfig{Heads: s.Events, Clock: c, Poll: 20 * time.Millisecond}))
		running.Go(func() { w.Run(ctx) })
		runner, err := projections.New(projections.Config{
			Store: s.Projections, Log: s.Events, Register: s.ProjectionVersions, Leases: s.Leases, Heads: w, Node: fmt.Sprintf("n%d", i), Clock: c,
			Limits: conformance.ProjectorLimits(func(l *projections.Limits) {
				l.TTL, l.Renew, l.Refresh, l.Batch = 3*time.Second, time.Second, 200*time.Millisecond, 5
			}),
		}, []module.Projection{{Name: name, Version: 1}}, map[string]ports.ProjectionHandler{name: pgtest.Applied(func(ctx context.Context, tx pgx.Tx, b ports.ProjectionBatch) error {
			for _, e := range b.Events {
				if _, err := tx.Exec(ctx, "INSERT INTO backbone.jumps (partition_id, sequence) VALUES ($1, $2)", int32(b.Partition), int64(e.Sequence)); err != nil {
					return err
				}
			}
			return nil
		})})
		require.NoError(t, err)
		running.Go(func() { runner.Run(ctx) })
		limits := conformance.DeliveryLimits()
		limits.ExpireInterval = 50 * time.Millisecond
		service := testkit.Must(subscriptions.New(subscriptions.Config{Store: s.Subscriptions, Log: s.Events, Decisions: decisions, Access: readsAll{s}, Heads: w, IDs: system.NewIDs(), Clock: c, Limits: limits}))
		running.Go(func() { service.Run(ctx) })
		made.Do(func() {
			_, created, err := service.Create(ctx, person, subscription.Subscription{
				ID: "all", SubscriberType: "service", SubscriberID: "clocks", Settings: subscription.Settings{MessageTimeout: time.Hour},
			})
			require.NoError(t, err)
			require.True(t, created)
		})
		running.Go(func() {
			for ctx.Err() == nil {
				batch, err := service.Poll(ctx, person, subscriptions.Poll{ID: "all", Limit: 5, Wait: 5 * time.Second})
				for _, d := range batch.Deliveries {
					mutex.Lock()
					if delivered[d.Event.ID] {
						repeats++
					}
					if d.Event.Sequence < last[d.Event.Partition] {
						failures = append(failures, fmt.Errorf("sequence %d after %d", d.Event.Sequence, last[d.Event.Partition]))
					}
					delivered[d.Event.ID], last[d.Event.Partition] = true, d.Event.Sequence
					mutex.Unlock()
					if err == nil {
						_, err = service.Acknowledge(ctx, person, subscriptions.Acknowledgement{ID: "all", EventIDs: []event.ID{d.Event.ID}})
					}
				}
				if err != nil && ctx.Err() == nil {
					mutex.Lock()
					failures = append(failures, err)
					mutex.Unlock()
					return
				}
			}
		})
	}

	conn := pgtest.Connect(t, dsn)
	count := func() (deliveries, appliedTo int) {
		mutex.Lock()
		deliveries = len(delivered)
		mutex.Unlock()
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM backbone.jumps").Scan(&appliedTo))
		return deliveries, appliedTo
	}
	for n := 1; n <= events; n++ {
		_, err := writer.Appender.Append(t.Context(), pgtest.Invoice(books[n%len(books)], 1))
		require.NoError(t, err)
		if n%each == 0 {
			clocks[rand.IntN(len(clocks))].off.Store(int64(time.Duration(rand.IntN(96)-48) * time.Hour))
		}
		if n%(10*each) == 0 { // they keep up, whatever their clocks say
			testkit.Eventually(t, pgtest.WaitLimit, func() bool { h, a := count(); return h == n && a == n })
		}
	}
	mutex.Lock()
	defer mutex.Unlock()
	require.Empty(t, failures)
	require.Zero(t, repeats)
	var inOrder bool
	require.NoError(t, conn.QueryRow(t.Context(), `SELECT bool_and(expected = sequence) FROM (SELECT sequence, row_number() OVER (PARTITION BY partition_id ORDER BY place) AS expected FROM backbone.jumps) AS r`).Scan(&inOrder))
	require.True(t, inOrder)
}
