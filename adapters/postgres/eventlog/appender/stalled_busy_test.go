package appender_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/postgres"
	"github.com/erpbackbone/backbone/adapters/postgres/eventlog/appender"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pgtest"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// slowGroups delays every group while it holds its head locks, as slow disks do.
func slowGroups(t *testing.T, dsn, seconds string) {
	t.Helper()
	pgtest.Execute(t, dsn, `CREATE FUNCTION public.slowly() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(`+seconds+`); RETURN NULL; END $$`)
	pgtest.Execute(t, dsn, `CREATE TRIGGER slowly AFTER INSERT ON backbone.events FOR EACH STATEMENT EXECUTE FUNCTION public.slowly()`)
}

// TestStalledPartition_DeadlineRestartsAfterLock has other nodes write to a busy partition: a
// request waits for many of their locks before it acquires its own.
func TestStalledPartition_DeadlineRestartsAfterLock(t *testing.T) {
	t.Parallel()
	for name, next := range map[string]func(t *testing.T, dsn string, p event.PartitionID, stream string) (release func()){
		"the head": func(t *testing.T, dsn string, p event.PartitionID, _ string) func() {
			return pgtest.LockHead(t, dsn, p)
		},
		"a stream": func(t *testing.T, dsn string, p event.PartitionID, stream string) func() {
			tx, err := pgtest.Connect(t, dsn).Begin(t.Context())
			require.NoError(t, err)
			tag, err := tx.Exec(t.Context(), "SELECT FROM backbone.stream_versions WHERE partition_id = $1 AND stream_id = $2 FOR UPDATE", int32(p), stream)
			require.NoError(t, err)
			require.EqualValues(t, 1, tag.RowsAffected())
			return func() { require.NoError(t, tx.Rollback(t.Context())) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.Database(t)
			s, seen, books := openWithPartitions(t, dsn, 1)
			kept, err := s.Appender.Append(t.Context(), pgtest.Invoice(books[0], 1))
			require.NoError(t, err)
			release := pgtest.LockHead(t, dsn, books[0])
			first := send(context.Background(), s, pgtest.Invoice(books[0], 1))
			pgtest.AwaitStalled(t, seen)
			another := pgtest.Invoice(books[0], 1)
			another.Events[0].Stream, another.Streams = kept.Events[0].Stream, nil
			behind := send(context.Background(), s, another)
			testkit.Eventually(t, pgtest.WaitLimit, func() bool { return appender.Queued(s.Appender) == 1 })
			deadline := slices.MaxFunc(appender.Deadlines(s.Appender), time.Time.Compare) // of the one behind
			// The first one commits and pauses; no session has the lock then.
			reached, resume := seen.PauseAfterCommit(t)
			release()
			pgtest.Receive(t, reached, "the first one's commit")
			release = next(t, dsn, books[0], kept.Events[0].Stream.ID)
			resume()
			require.NoError(t, (<-first).err)
			testkit.Eventually(t, pgtest.WaitLimit, func() bool {
				now := appender.Deadlines(s.Appender)
				return len(now) == 1 && now[0].After(deadline)
			}, "it waits as long for the next lock")
			requireUnanswered(t, behind)
			release()
			require.NoError(t, (<-behind).err)
			require.Equal(t, 3, pgtest.RequireVerified(t, s, books[0]))
		})
	}
}

// TestStalledPartition_AllAreRecalledTogether releases many locks at once: if the partitions
// were tried one after the other, the last one's deadline would pass.
func TestStalledPartition_AllAreRecalledTogether(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	const many = 60
	s, seen, books := openWithPartitions(t, dsn, many)
	tx, err := pgtest.Connect(t, dsn).Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "LOCK TABLE backbone.event_keys IN ACCESS EXCLUSIVE MODE")
	require.NoError(t, err)
	var held []<-chan outcome
	for range 2 {
		for _, p := range books {
			held = append(held, send(context.Background(), s, pgtest.Invoice(p, 1)))
		}
	}
	testkit.Eventually(t, pgtest.WaitLimit, hasStalled(seen, many))
	require.NoError(t, tx.Rollback(t.Context()))
	for _, out := range held {
		require.NoError(t, (<-out).err)
	}
	sizes := seen.Seen()
	require.Less(t, len(sizes), many/2, "groups: %v", sizes)
	require.GreaterOrEqual(t, slices.Max(sizes), many)
	for _, p := range books {
		require.Equal(t, 2, pgtest.RequireVerified(t, s, p))
	}
	testkit.Eventually(t, pgtest.WaitLimit, hasStalled(seen, 0))
	require.Zero(t, appender.Queued(s.Appender))
}

// TestDrillManyStalledPartitions releases many locks one after the other; each time the
// appender tries all stalled partitions again.
func TestDrillManyStalledPartitions(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	s, seen, books := openWithPartitions(t, dsn, 8)
	var releases []func()
	for _, p := range books {
		releases = append(releases, pgtest.LockHead(t, dsn, p))
	}
	held := map[event.PartitionID][]<-chan outcome{}
	for i := range 3 {
		for _, p := range books {
			held[p] = append(held[p], send(context.Background(), s, pgtest.Invoice(p, 1)))
		}
		if i == 0 {
			testkit.Eventually(t, pgtest.WaitLimit, hasStalled(seen, int64(len(books))))
		} else {
			testkit.Eventually(t, pgtest.WaitLimit, func() bool { return appender.Queued(s.Appender) == i*len(books) })
		}
	}
	for i, release := range releases {
		for _, p := range books[i:] {
			for _, out := range held[p] {
				requireUnanswered(t, out)
			}
		}
		release()
		for n, out := range held[books[i]] {
			o := <-out
			require.NoError(t, o.err)
			require.EqualValues(t, n+1, o.result.Events[0].Sequence, "in the order in which they came")
		}
	}
	testkit.Eventually(t, pgtest.WaitLimit, hasStalled(seen, 0))
	require.Zero(t, appender.Queued(s.Appender))
}

// lockTimeouts records the lock timeouts that a store sets.
type lockTimeouts struct{ statements }

func (l *lockTimeouts) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, q := range data.Batch.QueuedQueries {
		if strings.Contains(q.SQL, "lock_timeout") {
			l.sent = append(l.sent, fmt.Sprint(q.Arguments...))
		}
	}
	return ctx
}

func (l *lockTimeouts) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

// TestDrillSlowGroup checks that appenders wait longer for locks where transactions are slow,
// because the other nodes' are slow too, and stalling would split groups of many partitions.
func TestDrillSlowGroup(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	seen, sent := &pgtest.Groups{}, &lockTimeouts{}
	s := pgtest.Open(t, dsn, pgtest.SingleAppender, pgtest.WithoutPhysicalPartitions, func(c *postgres.Config) { c.Metrics, c.Tracer = seen, sent })
	books := pgtest.NewPartitions(t, s, 1)
	require.Equal(t, 100*time.Millisecond, appender.LockWait(s.Appender))
	slowGroups(t, dsn, "0.2")
	for range 4 {
		_, err := s.Appender.Append(t.Context(), pgtest.Invoice(books[0], 1))
		require.NoError(t, err)
	}
	require.Empty(t, sent.take(), "the session's own holds")
	require.GreaterOrEqual(t, appender.LockWait(s.Appender), 800*time.Millisecond)
	require.LessOrEqual(t, appender.LockWait(s.Appender), 2*time.Second)
	wait := fmt.Sprint(appender.LockWait(s.Appender).Milliseconds())
	_, err := s.Appender.Append(t.Context(), pgtest.Invoice(books[0], 1))
	require.NoError(t, err)
	require.Equal(t, []string{wait}, sent.take(), "a group waits for its heads so long")
	require.Zero(t, seen.MaxStalled.Load())
	pgtest.Execute(t, dsn, "DROP TRIGGER slowly ON backbone.events")
	testkit.Eventually(t, pgtest.WaitLimit, func() bool {
		_, err := s.Appender.Append(t.Context(), pgtest.Invoice(books[0], 1))
		return err == nil && appender.LockWait(s.Appender) == 100*time.Millisecond
	}, "what was slow once is forgotten")
}

// TestGather_AbandonedRequestIsSkipped has the caller give up while gather reads its
// request: gather must take the requests after it.
func TestGather_AbandonedRequestIsSkipped(t *testing.T) {
	t.Parallel()
	large, small := pgtest.Invoice(1, 600), pgtest.Invoice(1, 1)
	group, kept := appender.Gather([]*ports.AppendRequest{&large, &small}, func(r *ports.AppendRequest) bool { return r != &large })
	require.Equal(t, []*ports.AppendRequest{&small}, group)
	require.Empty(t, kept)
	group, kept = appender.Gather([]*ports.AppendRequest{&large, &small}, func(*ports.AppendRequest) bool { return true })
	require.Equal(t, []*ports.AppendRequest{&large}, group)
	require.Equal(t, []*ports.AppendRequest{&small}, kept)
}
