package appender_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/postgres"
	"github.com/erpbackbone/backbone/adapters/postgres/eventlog/appender"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pgtest"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// shortLockTimeout is the lock timeout in tests that wait for it to pass. Tests that release the
// lock use that of pgtest.Open, which is too long to pass.
const shortLockTimeout = 2 * time.Second

func withShortLockTimeout(c *postgres.Config) { c.Limits.LockTimeout = shortLockTimeout }

// openWithPartitions opens a store with one appender, its metrics and some legal entities.
func openWithPartitions(t *testing.T, dsn string, entities int, options ...pgtest.Option) (*postgres.Database, *pgtest.Groups, []event.PartitionID) {
	t.Helper()
	seen := &pgtest.Groups{}
	s := pgtest.Open(t, dsn, append([]pgtest.Option{pgtest.SingleAppender, pgtest.WithoutPhysicalPartitions, func(c *postgres.Config) { c.Metrics = seen }}, options...)...)
	return s, seen, pgtest.NewPartitions(t, s, entities)
}

// send appends in the background.
func send(ctx context.Context, s *postgres.Database, r ports.AppendRequest) <-chan outcome {
	out := make(chan outcome, 1)
	go func() {
		var o outcome
		o.result, o.err = s.Appender.Append(ctx, r)
		out <- o
	}()
	return out
}

func hasStalled(g *pgtest.Groups, n int64) func() bool {
	return func() bool { return g.Stalled.Load() == n }
}

// requireUnanswered checks that an append is not answered yet.
func requireUnanswered(t *testing.T, out <-chan outcome) {
	t.Helper()
	select {
	case o := <-out:
		require.Fail(t, "answered while its lock was held", "%+v", o)
	default:
	}
}

func requireLocked(t *testing.T, err error) {
	t.Helper()
	f, ok := fault.As(err)
	require.True(t, ok)
	require.Equal(t, "store.unavailable", f.Code)
	require.Equal(t, fault.Unavailable, f.Kind)
	require.Positive(t, f.RetryAfter)
	require.Contains(t, f.Detail, "another session")
}

// TestStalledPartition_BlocksItsLegalEntityOnly has one appender for all legal entities.
func TestStalledPartition_BlocksItsLegalEntityOnly(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	s, seen, books := openWithPartitions(t, dsn, 101)
	locked, others := books[50], append(append([]event.PartitionID{}, books[:50]...), books[51:]...)
	release := pgtest.LockHead(t, dsn, locked)
	requests := []ports.AppendRequest{pgtest.Invoice(locked, 2), pgtest.Invoice(locked, 1), pgtest.Invoice(locked, 1)}
	waiting := []<-chan outcome{send(context.Background(), s, requests[0])}
	testkit.Eventually(t, pgtest.WaitLimit, hasStalled(seen, 1), "the partition is stalled")
	for i, r := range requests[1:] {
		waiting = append(waiting, send(context.Background(), s, r))
		testkit.Eventually(t, pgtest.WaitLimit, func() bool { return appender.Queued(s.Appender) == i+1 })
	}
	var wg sync.WaitGroup
	for _, p := range others {
		wg.Go(func() {
			for range 3 {
				if _, err := s.Appender.Append(context.Background(), pgtest.Invoice(p, 1)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for _, out := range waiting {
		requireUnanswered(t, out)
	}
	release()
	next := event.Sequence(1)
	for i, out := range waiting {
		o := <-out
		require.NoError(t, o.err)
		require.Equal(t, next, o.result.Events[0].Sequence, "in the order in which they came")
		next += event.Sequence(len(requests[i].Events))
	}
	require.Equal(t, 4, pgtest.RequireVerified(t, s, locked))
	for _, p := range others {
		require.Equal(t, 3, pgtest.RequireVerified(t, s, p))
	}
	testkit.Eventually(t, pgtest.WaitLimit, hasStalled(seen, 0))
}

// TestStalledPartition_GroupCommitsTheOtherPartitions has a group with requests of locked
// and of free legal entities.
func TestStalledPartition_GroupCommitsTheOtherPartitions(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	s, seen, books := openWithPartitions(t, dsn, 12)
	releases := []func(){pgtest.LockHead(t, dsn, books[0]), pgtest.LockHead(t, dsn, books[6]), pgtest.LockHead(t, dsn, books[11])}
	locked := map[event.PartitionID]bool{books[0]: true, books[6]: true, books[11]: true}
	var free, held []<-chan outcome
	for range 5 {
		for _, p := range books {
			out := send(context.Background(), s, pgtest.Invoice(p, 1))
			if locked[p] {
				held = append(held, out)
			} else {
				free = append(free, out)
			}
		}
	}
	for _, out := range free {
		require.NoError(t, (<-out).err)
	}
	testkit.Eventually(t, pgtest.WaitLimit, hasStalled(seen, 3))
	for _, out := range held {
		requireUnanswered(t, out)
	}
	for _, release := range releases {
		release()
	}
	for _, out := range held {
		require.NoError(t, (<-out).err)
	}
	for _, p := range books {
		require.Equal(t, 5, pgtest.RequireVerified(t, s, p))
	}
}

// TestStalledPartition_MorePartitionsThanSlots checks that every partition gets a slot in time.
func TestStalledPartition_MorePartitionsThanSlots(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	s, seen, books := openWithPartitions(t, dsn, 20)
	locker := pgtest.Connect(t, dsn)
	tx, err := locker.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "SELECT FROM backbone.partition_heads WHERE partition_id = ANY($1) FOR UPDATE", pg.Partitions(books[:10]))
	require.NoError(t, err)
	var held []<-chan outcome
	for _, p := range books[:10] {
		held = append(held, send(context.Background(), s, pgtest.Invoice(p, 1)))
	}
	testkit.Eventually(t, pgtest.WaitLimit, hasStalled(seen, 10))
	for _, p := range books[10:] {
		_, err := s.Appender.Append(t.Context(), pgtest.Invoice(p, 1))
		require.NoError(t, err)
	}
	for _, out := range held {
		requireUnanswered(t, out)
	}
	require.NoError(t, tx.Rollback(t.Context()))
	for _, out := range held {
		require.NoError(t, (<-out).err)
	}
	for _, p := range books {
		require.Equal(t, 1, pgtest.RequireVerified(t, s, p))
	}
}

func TestDrillLockTimeout(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	s, seen, books := openWithPartitions(t, dsn, 2, withShortLockTimeout)
	release := pgtest.LockHead(t, dsn, books[0])
	began := time.Now()
	first := pgtest.Invoice(books[0], 1)
	refused := []<-chan outcome{send(context.Background(), s, first)}
	pgtest.AwaitStalled(t, seen)
	refused = append(refused, send(context.Background(), s, pgtest.Invoice(books[0], 1)))
	for _, out := range refused {
		requireLocked(t, (<-out).err)
	}
	require.GreaterOrEqual(t, time.Since(began), shortLockTimeout)
	testkit.Eventually(t, pgtest.WaitLimit, hasStalled(seen, 0))
	_, err := s.Events.EventByID(t.Context(), books[0], first.Events[0].ID)
	require.Equal(t, "event.not_found", fault.CodeOf(err))

	// From now on the stalled partition alone waits for the lock, from the first request on.
	appender.SetMaxWait(s.Appender, 2*pgtest.WaitLimit)
	groupsBefore := len(seen.Seen())
	again := send(context.Background(), s, pgtest.Invoice(books[0], 1))
	testkit.Eventually(t, pgtest.WaitLimit, func() bool { return appender.Queued(s.Appender) == 0 && seen.Stalled.Load() == 1 })
	_, err = s.Appender.Append(t.Context(), pgtest.Invoice(books[1], 1))
	require.NoError(t, err)
	require.Len(t, seen.Seen(), groupsBefore+1)
	requireUnanswered(t, again)
	release()
	require.NoError(t, (<-again).err)
	_, err = s.Appender.Append(t.Context(), pgtest.Invoice(books[0], 1))
	require.NoError(t, err)
	require.Equal(t, 2, pgtest.RequireVerified(t, s, books[0]))
}

// TestDrillLockOnEventRow has another session lock a row that an append must change.
func TestDrillLockOnEventRow(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	s, seen, books := openWithPartitions(t, dsn, 3, withShortLockTimeout)
	kept := pgtest.Invoice(books[0], 1)
	_, err := s.Appender.Append(t.Context(), kept)
	require.NoError(t, err)
	tx, err := pgtest.Connect(t, dsn).Begin(t.Context())
	require.NoError(t, err)
	tag, err := tx.Exec(t.Context(), "SELECT FROM backbone.stream_versions WHERE partition_id = $1 AND stream_id = $2 FOR UPDATE", int32(books[0]), kept.Events[0].Stream.ID)
	require.NoError(t, err)
	require.EqualValues(t, 1, tag.RowsAffected())
	more := func() ports.AppendRequest {
		r := pgtest.Invoice(books[0], 1)
		r.Events[0].Stream, r.Streams = kept.Events[0].Stream, nil
		return r
	}
	refused := send(context.Background(), s, more())
	pgtest.AwaitStalled(t, seen)
	for _, p := range books[1:] {
		_, err := s.Appender.Append(t.Context(), pgtest.Invoice(p, 1))
		require.NoError(t, err)
	}
	requireLocked(t, (<-refused).err)
	testkit.Eventually(t, pgtest.WaitLimit, hasStalled(seen, 0))
	appender.SetMaxWait(s.Appender, 2*pgtest.WaitLimit)
	late := send(context.Background(), s, more())
	testkit.Eventually(t, pgtest.WaitLimit, hasStalled(seen, 1))
	require.NoError(t, tx.Rollback(t.Context()))
	require.NoError(t, (<-late).err)
	require.Equal(t, 2, pgtest.RequireVerified(t, s, books[0]))
}

// TestStalledPartition_LockedTable locks the table of one legal entity's events, as VACUUM FULL
// does. That blocks all legal entities, because a statement locks all partitions of a table.
func TestStalledPartition_LockedTable(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	seen := &pgtest.Groups{}
	s := pgtest.Open(t, dsn, pgtest.SingleAppender, func(c *postgres.Config) { c.Metrics = seen })
	books := pgtest.NewPartitions(t, s, 9)
	conn := pgtest.Connect(t, dsn)
	_, err := s.Appender.Append(t.Context(), pgtest.Invoice(books[1], 1))
	require.NoError(t, err)
	var table string
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT tableoid::regclass::text FROM backbone.events WHERE partition_id = $1", int32(books[1])).Scan(&table))
	require.NotEqual(t, "backbone.events_default", table)
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "LOCK TABLE "+table+" IN ACCESS EXCLUSIVE MODE")
	require.NoError(t, err)
	var held []<-chan outcome
	for _, p := range books {
		held = append(held, send(context.Background(), s, pgtest.Invoice(p, 1)))
	}
	testkit.Eventually(t, pgtest.WaitLimit, hasStalled(seen, 9))
	for _, out := range held {
		requireUnanswered(t, out)
	}
	require.NoError(t, tx.Rollback(t.Context()))
	for _, out := range held {
		require.NoError(t, (<-out).err)
	}
	for i, p := range books {
		want := 1
		if i == 1 {
			want = 2
		}
		require.Equal(t, want, pgtest.RequireVerified(t, s, p))
	}
}

func TestStalledPartition_CancelledRequestWritesNothing(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	s, seen, books := openWithPartitions(t, dsn, 1)
	release := pgtest.LockHead(t, dsn, books[0])
	ctx, cancel := context.WithCancel(t.Context())
	first, behind, kept := pgtest.Invoice(books[0], 1), pgtest.Invoice(books[0], 1), pgtest.Invoice(books[0], 1)
	given := []<-chan outcome{send(ctx, s, first)}
	testkit.Eventually(t, pgtest.WaitLimit, hasStalled(seen, 1))
	given = append(given, send(ctx, s, behind))
	testkit.Eventually(t, pgtest.WaitLimit, func() bool { return appender.Queued(s.Appender) == 1 })
	stays := send(t.Context(), s, kept)
	testkit.Eventually(t, pgtest.WaitLimit, func() bool { return appender.Queued(s.Appender) == 2 })
	cancel()
	for _, out := range given {
		require.ErrorIs(t, (<-out).err, context.Canceled)
	}
	release()
	require.NoError(t, (<-stays).err)
	for _, r := range []ports.AppendRequest{first, behind} {
		_, err := s.Events.EventByID(t.Context(), books[0], r.Events[0].ID)
		require.Equal(t, "event.not_found", fault.CodeOf(err))
	}
	require.Equal(t, 1, pgtest.RequireVerified(t, s, books[0]))
	require.Zero(t, appender.Queued(s.Appender))
}

func TestStalledPartition_LoadIsBounded(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	s, seen, books := openWithPartitions(t, dsn, 3, func(c *postgres.Config) { c.Limits.QueueRequests, c.Limits.PartitionRequests = 8, 4 })
	release := []func(){pgtest.LockHead(t, dsn, books[0]), pgtest.LockHead(t, dsn, books[1])}
	waiting := []<-chan outcome{send(context.Background(), s, pgtest.Invoice(books[0], 1)), send(context.Background(), s, pgtest.Invoice(books[1], 1))}
	testkit.Eventually(t, pgtest.WaitLimit, hasStalled(seen, 2))
	for i := range 4 {
		waiting = append(waiting, send(context.Background(), s, pgtest.Invoice(books[i%2], 1)))
	}
	testkit.Eventually(t, pgtest.WaitLimit, func() bool { return appender.Queued(s.Appender) == 4 })
	for _, p := range books[:2] {
		_, err := s.Appender.Append(t.Context(), pgtest.Invoice(p, 1))
		require.Equal(t, "append.queue_full", fault.CodeOf(err))
	}
	_, err := s.Appender.Append(t.Context(), pgtest.Invoice(books[2], 1))
	require.NoError(t, err)
	for _, f := range release {
		f()
	}
	for _, out := range waiting {
		require.NoError(t, (<-out).err)
	}
	require.Equal(t, 3, pgtest.RequireVerified(t, s, books[0]))
	require.Equal(t, 3, pgtest.RequireVerified(t, s, books[1]))
	require.Zero(t, appender.Queued(s.Appender))
}

func TestDrillCloseWithLockedLegalEntities(t *testing.T) {
	t.Parallel()
	for _, released := range []bool{true, false} {
		dsn := pgtest.Database(t)
		s, seen, books := openWithPartitions(t, dsn, 2, func(c *postgres.Config) {
			if !released {
				c.Limits.LockTimeout = shortLockTimeout
			}
		})
		release := pgtest.LockHead(t, dsn, books[0])
		waiting := []<-chan outcome{send(context.Background(), s, pgtest.Invoice(books[0], 1))}
		pgtest.AwaitStalled(t, seen)
		waiting = append(waiting, send(context.Background(), s, pgtest.Invoice(books[0], 1)))
		testkit.Eventually(t, pgtest.WaitLimit, func() bool { return appender.Queued(s.Appender) == 1 || len(waiting[1]) == 1 }, "it waits, or has timed out")
		closed := make(chan struct{})
		go func() {
			s.Close()
			close(closed)
		}()
		testkit.Eventually(t, pgtest.WaitLimit, func() bool {
			_, err := s.Appender.Append(t.Context(), pgtest.Invoice(books[1], 1))
			return fault.CodeOf(err) == "append.shutting_down"
		})
		want := 0
		if released {
			release()
			want = 2
		}
		pgtest.Receive(t, closed, "the end of Close")
		for _, out := range waiting {
			o := <-out
			if released {
				require.NoError(t, o.err, "what was queued is answered")
			} else {
				requireLocked(t, o.err)
			}
		}
		if !released {
			release()
		}
		require.Equal(t, want, pgtest.RequireVerified(t, pgtest.Open(t, dsn), books[0]))
	}
}
