package subscriptions_test

import (
	"context"
	"io/fs"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/postgres"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pgtest"
	"github.com/erpbackbone/backbone/application/subscriptions"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/subscription"
	backbonesql "github.com/erpbackbone/backbone/sql/backbone"
	"github.com/erpbackbone/backbone/test/conformance"
	"github.com/erpbackbone/backbone/test/testkit"
)

// beforeParkedTable is the schema of the release before, in which parked messages were
// rows among the open ones.
const beforeParkedTable = `
DROP TABLE backbone.subscription_parked, backbone.subscription_tenants;
ALTER TABLE backbone.subscription_cursors DROP COLUMN parked;
ALTER TABLE backbone.subscription_messages DROP CONSTRAINT subscription_messages_state_check;
ALTER TABLE backbone.subscription_messages ADD CONSTRAINT subscription_messages_state_check CHECK (state IN ('waiting', 'leased', 'retry', 'parked'));`

// What the release before has parked is parked afterwards, is counted, holds back what
// it held back, and can be replayed.
func TestParked_MessagesOfPreviousRelease(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	clock := conformance.NewClock()
	s := pgtest.Open(t, dsn, pgtest.WithClock(clock))
	c := conformance.NewDeliveryFixture(conformance.NewSubscriptionFixture(t, pgtest.Combine(s), clock, "upgraded"), nil)
	c.Subscribe(t, "s", subscription.Settings{PartitionBy: subscription.PerStream}, subscription.Filter{})
	written := c.Write(t, 0, 3, "one")
	other := c.Write(t, 0, 2, "two")
	poll := func() (ids []event.ID) {
		batch, err := c.Service.Poll(t.Context(), c.Person, subscriptions.Poll{ID: "s", Limit: 100})
		require.NoError(t, err)
		for _, d := range batch.Deliveries {
			ids = append(ids, d.Event.ID)
		}
		return ids
	}
	require.Equal(t, slices.Concat(written, other), poll())
	pgtest.Execute(t, dsn, beforeParkedTable)
	pgtest.Execute(t, dsn, `UPDATE backbone.subscription_messages SET state = 'parked', due_at = NULL, attempts = 6, code = 'case.broken', detail = 'at line 3' WHERE sequence IN (1, 4)`)
	pgtest.Execute(t, dsn, `UPDATE backbone.subscription_messages SET state = 'waiting', due_at = NULL WHERE sequence IN (2, 5)`)
	migration, err := fs.ReadFile(backbonesql.Migrations, "migrations/00019_parked_messages.sql")
	require.NoError(t, err)
	pgtest.Execute(t, dsn, "SET ROLE backbone_owner;"+string(migration))

	reopened := *c.SubscriptionFixture
	reopened.Store = pgtest.Combine(pgtest.Open(t, dsn, pgtest.WithClock(clock)))
	c = conformance.NewDeliveryFixture(&reopened, nil)
	caller := subscriptions.Caller{Principal: c.Person}
	there, err := c.Service.Get(t.Context(), caller, "s")
	require.NoError(t, err)
	require.Equal(t, []int{2, 1, 2}, []int{there.Parked, there.InFlight, there.Waiting})
	require.Empty(t, poll(), "what follows a parked message of its stream waits")
	page, err := c.Service.DeadLetters(t.Context(), caller, "s", subscriptions.DeadLetterQuery{Limit: 10})
	require.NoError(t, err)
	require.Len(t, page.DeadLetters, 2)
	first := page.DeadLetters[0]
	require.Equal(t, written[0], first.EventID)
	require.Equal(t, []any{"AA", 6, "case.broken", "at line 3", subscription.ParkedState}, []any{first.LegalEntity, first.Attempts, first.Code, first.Detail, first.State})
	_, err = c.Service.Discard(t.Context(), caller, "s", subscriptions.DeadLetterQuery{EventIDs: other[:1], Limit: 10}, "not needed")
	require.NoError(t, err)
	require.Equal(t, other[1:], poll())
	settled, err := c.Service.Replay(t.Context(), caller, "s", subscriptions.DeadLetterQuery{Limit: 10}, "")
	require.NoError(t, err)
	require.Equal(t, 1, settled.Messages)
	require.Equal(t, written[:2], poll())
}

// A node of the release before cannot park a message in subscription_messages, where this
// release does not look for parked ones.
func TestParked_NotAmongOpenMessages(t *testing.T) {
	t.Parallel()
	conn := pgtest.Connect(t, pgtest.As("backbone_app", pgtest.Database(t)))
	_, err := conn.Exec(t.Context(), `INSERT INTO backbone.subscription_messages (subscription, partition_id, sequence, event_id, order_key, state, consumer, attempts, code, detail, changed_at)
		VALUES (gen_random_uuid(), 1, 1, gen_random_uuid(), decode(md5(''), 'hex'), 'parked', '', 1, '', '', now())`)
	require.ErrorContains(t, err, "subscription_messages_state_check")
}

// A node of the release before that resets a subscription leaves what is parked: it is
// handed out again, and parked again if it fails again, and counted once.
func TestParked_TwiceIsOneDeadLetter(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	clock := conformance.NewClock()
	c := conformance.NewDeliveryFixture(conformance.NewSubscriptionFixture(t, pgtest.Combine(pgtest.Open(t, dsn, pgtest.WithClock(clock))), clock, "t"), nil)
	c.Subscribe(t, "s", subscription.Settings{PartitionBy: subscription.NoOrder}, subscription.Filter{})
	written := c.Write(t, 0, 3, "one")
	refuse := func(code string, ids ...event.ID) {
		_, err := c.Service.Poll(t.Context(), c.Person, subscriptions.Poll{ID: "s", Limit: 100})
		require.NoError(t, err)
		answered, err := c.Service.Refuse(t.Context(), c.Person, subscriptions.Refusal{ID: "s", EventIDs: ids, Action: subscription.Park, Code: code})
		require.NoError(t, err)
		require.Equal(t, len(ids), answered.Applied)
	}
	refuse("once", written[0])
	pgtest.Execute(t, dsn, `DELETE FROM backbone.subscription_messages; UPDATE backbone.subscription_cursors SET read_through = 0, checkpoint = 0`)
	refuse("twice", written[:2]...)
	caller := subscriptions.Caller{Principal: c.Person}
	there, err := c.Service.Get(t.Context(), caller, "s")
	require.NoError(t, err)
	require.Equal(t, 2, there.Parked)
	groups, err := c.Service.DeadLetterGroups(t.Context(), caller, "s")
	require.NoError(t, err)
	require.Len(t, groups, 1)
	require.Equal(t, []any{"twice", 2}, []any{groups[0].Code, groups[0].Messages})
	settled, err := c.Service.Replay(t.Context(), caller, "s", subscriptions.DeadLetterQuery{Limit: 10}, "")
	require.NoError(t, err)
	require.Equal(t, 2, settled.Messages)
	there, err = c.Service.Get(t.Context(), caller, "s")
	require.NoError(t, err)
	require.Zero(t, there.Parked)
}

// parkMany writes dead letters past the service: of so many keys, of events that the log
// has or not.
func parkMany(t *testing.T, conn *pgx.Conn, sub subscription.Subscription, p event.PartitionID, messages, keys int) {
	t.Helper()
	_, err := conn.Exec(t.Context(), `INSERT INTO backbone.subscription_parked (subscription, partition_id, sequence, event_id, order_key, consumer, attempts, code, detail, changed_at)
		SELECT $1, $2, 1000000 + n, gen_random_uuid(), decode(md5((n % $4::int)::text), 'hex'), '', 6, 'case.broken', 'at line 3', now() FROM generate_series(1, $3::int) n`,
		pgtype.UUID{Bytes: sub.UID, Valid: true}, int32(p), messages, keys)
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), `UPDATE backbone.subscription_cursors SET parked = parked + $3 WHERE subscription = $1 AND partition_id = $2`, pgtype.UUID{Bytes: sub.UID, Valid: true}, int32(p), messages)
	require.NoError(t, err)
}

// Dead letters do not slow down polls: with 200,000 of them a poll reads, for each key, only the
// pages that lead down an index, although ANALYZE has not run on their table.
func TestDrillPollCostWithDeadLetters(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	clock := conformance.NewClock()
	c := conformance.NewDeliveryFixture(conformance.NewSubscriptionFixture(t, pgtest.Combine(pgtest.Open(t, dsn, pgtest.WithClock(clock))), clock, "letters"), nil)
	conn := pgtest.Connect(t, dsn)
	pgtest.Execute(t, dsn, `ALTER TABLE backbone.subscription_parked SET (autovacuum_enabled = off)`)
	const (
		parked  = 200_000
		polls   = 10
		atOnce  = 50
		perPoll = 2 * atOnce * 4 // a poll and an answer look each key up: three pages of an index and one of rows
	)
	for i := range 2 * polls * atOnce / 250 {
		c.Write(t, 0, 250, string(rune('a'+i)))
	}
	for _, by := range []string{subscription.PerLegalEntity, subscription.PerStream} {
		c.Subscribe(t, by, subscription.Settings{PartitionBy: by}, subscription.Filter{})
		sub, err := c.Store.Subscription(t.Context(), c.Tenant, by)
		require.NoError(t, err)
		parkMany(t, conn, sub, c.Entities[0].Partition, parked, parked/10)
		pages := pagesOf(t, dsn, "subscription_parked", pgtest.WithClock(clock), func(node *postgres.Database) {
			onNode := *c.SubscriptionFixture
			onNode.Store = pgtest.Combine(node)
			service := conformance.NewDeliveryFixture(&onNode, nil).Service
			for range polls {
				batch, err := service.Poll(t.Context(), c.Person, subscriptions.Poll{ID: by, Limit: atOnce})
				require.NoError(t, err)
				require.Len(t, batch.Deliveries, atOnce)
				ids := []event.ID{{9}}
				for _, d := range batch.Deliveries {
					ids = append(ids, d.Event.ID)
				}
				answered, err := service.Acknowledge(t.Context(), c.Person, subscriptions.Acknowledgement{ID: by, EventIDs: ids})
				require.NoError(t, err)
				require.Equal(t, atOnce, answered.Applied)
			}
		})
		t.Logf("%d polls and answers of %d by %s pages at %d pages of dead letters", polls, atOnce, by, pages)
		require.LessOrEqual(t, pages, polls*perPoll)
		there, err := c.Service.Get(t.Context(), subscriptions.Caller{Principal: c.Person}, by)
		require.NoError(t, err)
		require.Equal(t, parked, there.Parked)
	}
}

// pagesOf is how many pages of tables, whose names begin with a pattern, and of their
// indexes a store looks at that is used for nothing else. Sessions tell it when they end,
// so the store is closed then.
func pagesOf(t *testing.T, dsn, tables string, how pgtest.Option, use func(*postgres.Database)) int {
	t.Helper()
	conn := pgtest.Connect(t, dsn)
	told := func() (pages int) {
		_, err := conn.Exec(t.Context(), `SELECT pg_stat_force_next_flush()`)
		require.NoError(t, err)
		require.NoError(t, conn.QueryRow(t.Context(), `SELECT coalesce(sum(heap_blks_read + heap_blks_hit + coalesce(idx_blks_read + idx_blks_hit, 0)), 0)
			FROM pg_statio_all_tables WHERE schemaname = 'backbone' AND relname ~ ('^(' || $1 || ')')`, tables).Scan(&pages))
		return pages
	}
	rows, err := conn.Query(t.Context(), `SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'backbone %'`)
	require.NoError(t, err)
	others, err := pgx.CollectRows(rows, pgx.RowTo[int32])
	require.NoError(t, err)
	before := told()
	s := pgtest.Open(t, dsn, how)
	use(s)
	s.Close()
	testkit.Eventually(t, pgtest.WaitLimit, func() bool {
		var left int
		require.NoError(t, conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND application_name LIKE 'backbone %' AND pid <> ALL ($1)`, others).Scan(&left))
		return left == 0
	}, "its sessions have ended")
	return told() - before
}

// A node of the release before deletes a subscription and leaves its dead letters, which
// it does not know.
func TestDeleteSubscription_RemovesDeadLetters(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	clock := conformance.NewClock()
	s := pgtest.Open(t, dsn, pgtest.WithClock(clock))
	c := conformance.NewDeliveryFixture(conformance.NewSubscriptionFixture(t, pgtest.Combine(s), clock, "t"), func(config *subscriptions.Config) { config.MeasureInterval = 1 })
	c.Write(t, 0, 2, "one")
	c.Write(t, 1, 1, "two")
	for _, id := range []string{"goes", "stays"} {
		c.Subscribe(t, id, subscription.Settings{PartitionBy: subscription.NoOrder}, subscription.Filter{})
		batch, err := c.Service.Poll(t.Context(), c.Person, subscriptions.Poll{ID: id, Limit: 100})
		require.NoError(t, err)
		require.Len(t, batch.Deliveries, 3)
		var ids []event.ID
		for _, d := range batch.Deliveries {
			ids = append(ids, d.Event.ID)
		}
		_, err = c.Service.Refuse(t.Context(), c.Person, subscriptions.Refusal{ID: id, EventIDs: ids, Action: subscription.Park})
		require.NoError(t, err)
	}
	for _, rows := range []string{"subscription_messages WHERE subscription", "subscription_cursors WHERE subscription", "subscriptions WHERE uid"} {
		pgtest.Execute(t, dsn, "DELETE FROM backbone."+rows+" = (SELECT g.uid FROM backbone.subscriptions g WHERE g.id = 'goes')")
	}
	conn := pgtest.Connect(t, dsn)
	parked := func() (rows int) {
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM backbone.subscription_parked").Scan(&rows))
		return rows
	}
	require.Equal(t, 6, parked())
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { c.Service.Run(ctx) })
	defer running.Wait()
	defer stop()
	testkit.Eventually(t, pgtest.WaitLimit, func() bool { return parked() == 3 })
	page, err := c.Service.DeadLetters(t.Context(), subscriptions.Caller{Principal: c.Person}, "stays", subscriptions.DeadLetterQuery{Limit: 10})
	require.NoError(t, err)
	require.Len(t, page.DeadLetters, 3)
	removed, err := s.Subscriptions.RemoveOrphanedMessages(t.Context())
	require.NoError(t, err)
	require.Zero(t, removed)
}
