package postgres_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/postgres"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// patient is an append's patience in tests that wait for its end. Where the lock is given
// back it is that of open: so long that nobody's ends, however slow the machine.
const patient = 2 * time.Second

func impatient(c *postgres.Config) { c.LockTimeout = patient }

// diverted waits until an append waits beside the others, or has, if it is impatient.
func diverted(t *testing.T, g *groups) {
	t.Helper()
	testkit.Eventually(t, aWhile, func() bool { return g.most.Load() > 0 }, "the append waits beside the others")
}

// heldUp waits until an append of a store waits beside the others for a lock: from then on
// it waits for as long as it has patience, without a break.
func heldUp(t *testing.T, s *postgres.Store, superuser *pgx.Conn) {
	t.Helper()
	diverted(t, postgres.Observer(s).(*groups))
	testkit.Eventually(t, aWhile, func() bool { return waiters(t, superuser) > 0 }, "it waits for the lock")
}

// beside is a store with one appender, its metrics and some legal entities.
func beside(t *testing.T, dsn string, entities int, options ...option) (*postgres.Store, *groups, []event.PartitionID) {
	t.Helper()
	seen := &groups{}
	s := open(t, dsn, append([]option{singleAppender, withoutPhysicalPartitions, func(c *postgres.Config) { c.Metrics = seen }}, options...)...)
	return s, seen, newBooks(t, s, entities)
}

// send appends in the background.
func send(ctx context.Context, s *postgres.Store, r ports.AppendRequest) <-chan outcome {
	out := make(chan outcome, 1)
	go func() {
		var o outcome
		o.result, o.err = s.Append(ctx, r)
		out <- o
	}()
	return out
}

func detours(g *groups, n int64) func() bool { return func() bool { return g.detours.Load() == n } }

// unanswered checks that nobody has answered an append yet.
func unanswered(t *testing.T, out <-chan outcome) {
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

// TestALockedHeadHoldsUpItsLegalEntityAlone: one appender serves all of them.
func TestALockedHeadHoldsUpItsLegalEntityAlone(t *testing.T) {
	t.Parallel()
	dsn := database(t)
	s, seen, books := beside(t, dsn, 101)
	locked, others := books[50], append(append([]event.PartitionID{}, books[:50]...), books[51:]...)
	release := hold(t, dsn, locked)
	requests := []ports.AppendRequest{invoice(locked, 2), invoice(locked, 1), invoice(locked, 1)}
	waiting := []<-chan outcome{send(context.Background(), s, requests[0])}
	testkit.Eventually(t, aWhile, detours(seen, 1), "the append waits beside the others")
	for i, r := range requests[1:] {
		waiting = append(waiting, send(context.Background(), s, r))
		testkit.Eventually(t, aWhile, func() bool { return postgres.Queued(s) == i+1 })
	}
	var wg sync.WaitGroup
	for _, p := range others {
		wg.Go(func() {
			for range 3 {
				if _, err := s.Append(context.Background(), invoice(p, 1)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for _, out := range waiting {
		unanswered(t, out)
	}
	release()
	next := event.Sequence(1)
	for i, out := range waiting {
		o := <-out
		require.NoError(t, o.err)
		require.Equal(t, next, o.result.Events[0].Sequence, "in the order in which they came")
		next += event.Sequence(len(requests[i].Events))
	}
	require.Equal(t, 4, requireSound(t, s, locked))
	for _, p := range others {
		require.Equal(t, 3, requireSound(t, s, p))
	}
	testkit.Eventually(t, aWhile, detours(seen, 0))
}

// TestALockThatIsMissedInAGroupCostsTheOthersNothing: the group had been gathered with
// requests of the locked legal entity in it.
func TestALockThatIsMissedInAGroupCostsTheOthersNothing(t *testing.T) {
	t.Parallel()
	dsn := database(t)
	s, seen, books := beside(t, dsn, 12)
	releases := []func(){hold(t, dsn, books[0]), hold(t, dsn, books[6]), hold(t, dsn, books[11])}
	locked := map[event.PartitionID]bool{books[0]: true, books[6]: true, books[11]: true}
	var free, held []<-chan outcome
	for range 5 {
		for _, p := range books {
			out := send(context.Background(), s, invoice(p, 1))
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
	testkit.Eventually(t, aWhile, detours(seen, 3))
	for _, out := range held {
		unanswered(t, out)
	}
	for _, release := range releases {
		release()
	}
	for _, out := range held {
		require.NoError(t, (<-out).err)
	}
	for _, p := range books {
		require.Equal(t, 5, requireSound(t, s, p))
	}
}

// TestMoreLockedHeadsThanSlots: nobody is forgotten, whoever gets the slots.
func TestMoreLockedHeadsThanSlots(t *testing.T) {
	t.Parallel()
	dsn := database(t)
	s, seen, books := beside(t, dsn, 20)
	locker := connect(t, dsn)
	tx, err := locker.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "SELECT FROM backbone.partition_heads WHERE partition_id = ANY($1) FOR UPDATE", int32s(books[:10]))
	require.NoError(t, err)
	var held []<-chan outcome
	for _, p := range books[:10] {
		held = append(held, send(context.Background(), s, invoice(p, 1)))
	}
	testkit.Eventually(t, aWhile, detours(seen, 10))
	for _, p := range books[10:] {
		_, err := s.Append(t.Context(), invoice(p, 1))
		require.NoError(t, err)
	}
	for _, out := range held {
		unanswered(t, out)
	}
	require.NoError(t, tx.Rollback(t.Context()))
	for _, out := range held {
		require.NoError(t, (<-out).err)
	}
	for _, p := range books {
		require.Equal(t, 1, requireSound(t, s, p))
	}
}

func int32s(ids []event.PartitionID) []int32 {
	out := make([]int32, len(ids))
	for i, p := range ids {
		out[i] = int32(p)
	}
	return out
}

func TestDrillLockTimeout(t *testing.T) {
	t.Parallel()
	dsn := database(t)
	s, seen, books := beside(t, dsn, 2, impatient)
	release := hold(t, dsn, books[0])
	began := time.Now()
	first := invoice(books[0], 1)
	refused := []<-chan outcome{send(context.Background(), s, first)}
	diverted(t, seen)
	refused = append(refused, send(context.Background(), s, invoice(books[0], 1)))
	for _, out := range refused {
		requireLocked(t, (<-out).err)
	}
	require.GreaterOrEqual(t, time.Since(began), patient)
	testkit.Eventually(t, aWhile, detours(seen, 0))
	_, err := s.EventByID(t.Context(), books[0], first.Events[0].ID)
	require.Equal(t, "event.not_found", fault.CodeOf(err))

	// From now on the appender does not try it at all: the detour does, at once.
	postgres.BePatient(s, 2*aWhile)
	groupsBefore := len(seen.seen())
	again := send(context.Background(), s, invoice(books[0], 1))
	testkit.Eventually(t, aWhile, func() bool { return postgres.Queued(s) == 0 && seen.detours.Load() == 1 })
	_, err = s.Append(t.Context(), invoice(books[1], 1))
	require.NoError(t, err)
	require.Len(t, seen.seen(), groupsBefore+1)
	unanswered(t, again)
	release()
	require.NoError(t, (<-again).err)
	_, err = s.Append(t.Context(), invoice(books[0], 1))
	require.NoError(t, err)
	require.Equal(t, 2, requireSound(t, s, books[0]))
}

// TestDrillLockOnEventRow: another session holds a row that an append has to change.
func TestDrillLockOnEventRow(t *testing.T) {
	t.Parallel()
	dsn := database(t)
	s, seen, books := beside(t, dsn, 3, impatient)
	kept := invoice(books[0], 1)
	_, err := s.Append(t.Context(), kept)
	require.NoError(t, err)
	tx, err := connect(t, dsn).Begin(t.Context())
	require.NoError(t, err)
	tag, err := tx.Exec(t.Context(), "SELECT FROM backbone.stream_versions WHERE partition_id = $1 AND stream_id = $2 FOR UPDATE", int32(books[0]), kept.Events[0].Stream.ID)
	require.NoError(t, err)
	require.EqualValues(t, 1, tag.RowsAffected())
	more := func() ports.AppendRequest {
		r := invoice(books[0], 1)
		r.Events[0].Stream, r.Streams = kept.Events[0].Stream, nil
		return r
	}
	refused := send(context.Background(), s, more())
	diverted(t, seen)
	for _, p := range books[1:] {
		_, err := s.Append(t.Context(), invoice(p, 1))
		require.NoError(t, err)
	}
	requireLocked(t, (<-refused).err)
	testkit.Eventually(t, aWhile, detours(seen, 0))
	postgres.BePatient(s, 2*aWhile)
	late := send(context.Background(), s, more())
	testkit.Eventually(t, aWhile, detours(seen, 1))
	require.NoError(t, tx.Rollback(t.Context()))
	require.NoError(t, (<-late).err)
	require.Equal(t, 2, requireSound(t, s, books[0]))
}

// TestALockedTable holds up everybody: VACUUM FULL of one legal entity's events does, for
// a statement locks all partitions of the table. All of them go on when it has ended.
func TestALockedTable(t *testing.T) {
	t.Parallel()
	dsn := database(t)
	seen := &groups{}
	s := open(t, dsn, singleAppender, func(c *postgres.Config) { c.Metrics = seen })
	books := newBooks(t, s, 9)
	conn := connect(t, dsn)
	_, err := s.Append(t.Context(), invoice(books[1], 1))
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
		held = append(held, send(context.Background(), s, invoice(p, 1)))
	}
	testkit.Eventually(t, aWhile, detours(seen, 9))
	for _, out := range held {
		unanswered(t, out)
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
		require.Equal(t, want, requireSound(t, s, p))
	}
}

func TestACallerWhoGivesUpBesideTheOthersFindsNothingWritten(t *testing.T) {
	t.Parallel()
	dsn := database(t)
	s, seen, books := beside(t, dsn, 1)
	release := hold(t, dsn, books[0])
	ctx, cancel := context.WithCancel(t.Context())
	first, behind, kept := invoice(books[0], 1), invoice(books[0], 1), invoice(books[0], 1)
	given := []<-chan outcome{send(ctx, s, first)}
	testkit.Eventually(t, aWhile, detours(seen, 1))
	given = append(given, send(ctx, s, behind))
	testkit.Eventually(t, aWhile, func() bool { return postgres.Queued(s) == 1 })
	stays := send(t.Context(), s, kept)
	testkit.Eventually(t, aWhile, func() bool { return postgres.Queued(s) == 2 })
	cancel()
	for _, out := range given {
		require.ErrorIs(t, (<-out).err, context.Canceled)
	}
	release()
	require.NoError(t, (<-stays).err)
	for _, r := range []ports.AppendRequest{first, behind} {
		_, err := s.EventByID(t.Context(), books[0], r.Events[0].ID)
		require.Equal(t, "event.not_found", fault.CodeOf(err))
	}
	require.Equal(t, 1, requireSound(t, s, books[0]))
	require.Zero(t, postgres.Queued(s))
}

func TestLockedLegalEntitiesLeaveHalfOfTheQueue(t *testing.T) {
	t.Parallel()
	dsn := database(t)
	s, seen, books := beside(t, dsn, 3, func(c *postgres.Config) { c.QueueRequests = 8 })
	release := []func(){hold(t, dsn, books[0]), hold(t, dsn, books[1])}
	waiting := []<-chan outcome{send(context.Background(), s, invoice(books[0], 1)), send(context.Background(), s, invoice(books[1], 1))}
	testkit.Eventually(t, aWhile, detours(seen, 2))
	for i := range 4 {
		waiting = append(waiting, send(context.Background(), s, invoice(books[i%2], 1)))
	}
	testkit.Eventually(t, aWhile, func() bool { return postgres.Queued(s) == 4 })
	for _, p := range books[:2] {
		_, err := s.Append(t.Context(), invoice(p, 1))
		require.Equal(t, "append.queue_full", fault.CodeOf(err))
	}
	_, err := s.Append(t.Context(), invoice(books[2], 1))
	require.NoError(t, err)
	for _, f := range release {
		f()
	}
	for _, out := range waiting {
		require.NoError(t, (<-out).err)
	}
	require.Equal(t, 3, requireSound(t, s, books[0]))
	require.Equal(t, 3, requireSound(t, s, books[1]))
	require.Zero(t, postgres.Queued(s))
}

func TestDrillCloseWithLockedLegalEntities(t *testing.T) {
	t.Parallel()
	for _, released := range []bool{true, false} {
		dsn := database(t)
		s, seen, books := beside(t, dsn, 2, func(c *postgres.Config) {
			if !released {
				c.LockTimeout = patient
			}
		})
		release := hold(t, dsn, books[0])
		waiting := []<-chan outcome{send(context.Background(), s, invoice(books[0], 1))}
		diverted(t, seen)
		waiting = append(waiting, send(context.Background(), s, invoice(books[0], 1)))
		testkit.Eventually(t, aWhile, func() bool { return postgres.Queued(s) == 1 || len(waiting[1]) == 1 }, "it waits, or has lost its patience")
		closed := make(chan struct{})
		go func() {
			s.Close()
			close(closed)
		}()
		testkit.Eventually(t, aWhile, func() bool {
			_, err := s.Append(t.Context(), invoice(books[1], 1))
			return fault.CodeOf(err) == "append.shutting_down"
		})
		want := 0
		if released {
			release()
			want = 2
		}
		receive(t, closed, "the end of Close")
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
		require.Equal(t, want, requireSound(t, open(t, dsn), books[0]))
	}
}
