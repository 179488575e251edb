package postgres_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/postgres"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// slowly lets every group hold its heads for a while, as slow disks do.
func slowly(t *testing.T, dsn, seconds string) {
	t.Helper()
	execute(t, dsn, `CREATE FUNCTION public.slowly() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(`+seconds+`); RETURN NULL; END $$`)
	execute(t, dsn, `CREATE TRIGGER slowly AFTER INSERT ON backbone.events FOR EACH STATEMENT EXECUTE FUNCTION public.slowly()`)
}

// TestPatienceBeginsAnewWithTheNextLock: other nodes take turns in a busy partition, and
// a request may wait for many of them before its own turn comes. The next lock is one of a
// stream here: sessions that wait for the same row overtake one another.
func TestPatienceBeginsAnewWithTheNextLock(t *testing.T) {
	t.Parallel()
	dsn := database(t)
	const patience = 4 * time.Second
	s, seen, books := beside(t, dsn, 1, func(c *postgres.Config) { c.LockTimeout = patience })
	kept, err := s.Append(t.Context(), invoice(books[0], 1))
	require.NoError(t, err)
	tx, err := connect(t, dsn).Begin(t.Context())
	require.NoError(t, err)
	tag, err := tx.Exec(t.Context(), "SELECT FROM backbone.stream_versions WHERE partition_id = $1 AND stream_id = $2 FOR UPDATE", int32(books[0]), kept.Events[0].Stream.ID)
	require.NoError(t, err)
	require.EqualValues(t, 1, tag.RowsAffected())
	release, observer := hold(t, dsn, books[0]), connect(t, dsn)
	first := send(context.Background(), s, invoice(books[0], 1))
	testkit.Eventually(t, 3*time.Second, func() bool { return seen.detours.Load() == 1 && waiters(t, observer) == 1 })
	began := time.Now()
	another := invoice(books[0], 1)
	another.Events[0].Stream, another.Streams = kept.Events[0].Stream, nil
	behind := send(context.Background(), s, another)
	testkit.Eventually(t, 3*time.Second, func() bool { return postgres.Queued(s) == 1 })
	testkit.Eventually(t, patience, func() bool { return time.Since(began) > patience/2 })
	release()
	require.NoError(t, (<-first).err)
	testkit.Eventually(t, 2*patience, func() bool { return time.Since(began) > patience+patience/8 })
	unanswered(t, behind)
	require.NoError(t, tx.Rollback(t.Context()))
	require.NoError(t, (<-behind).err)
	require.Equal(t, 3, requireSound(t, s, books[0]))
}

// TestManyDetoursEndTogether: what held up many legal entities at once lets them go at
// once, and one after the other would outlast the patience of the last.
func TestManyDetoursEndTogether(t *testing.T) {
	t.Parallel()
	dsn := database(t)
	const many = 60
	s, seen, books := beside(t, dsn, many)
	tx, err := connect(t, dsn).Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "LOCK TABLE backbone.event_keys IN ACCESS EXCLUSIVE MODE")
	require.NoError(t, err)
	var held []<-chan outcome
	for range 2 {
		for _, p := range books {
			held = append(held, send(context.Background(), s, invoice(p, 1)))
		}
	}
	testkit.Eventually(t, 10*time.Second, detours(seen, many))
	require.NoError(t, tx.Rollback(t.Context()))
	for _, out := range held {
		require.NoError(t, (<-out).err)
	}
	sizes := seen.seen()
	require.Less(t, len(sizes), many/2, "groups: %v", sizes)
	require.GreaterOrEqual(t, slices.Max(sizes), many)
	for _, p := range books {
		require.Equal(t, 2, requireSound(t, s, p))
	}
	testkit.Eventually(t, 5*time.Second, detours(seen, 0))
	require.Zero(t, postgres.Queued(s))
}

// TestMoreDetoursThanSlotsKeepTheirOrder: one of many locks is given back after the other,
// and each time all the others are tried again.
func TestMoreDetoursThanSlotsKeepTheirOrder(t *testing.T) {
	t.Parallel()
	dsn := database(t)
	s, seen, books := beside(t, dsn, 8)
	var releases []func()
	for _, p := range books {
		releases = append(releases, hold(t, dsn, p))
	}
	held := map[event.PartitionID][]<-chan outcome{}
	for i := range 3 {
		for _, p := range books {
			held[p] = append(held[p], send(context.Background(), s, invoice(p, 1)))
		}
		if i == 0 {
			testkit.Eventually(t, 10*time.Second, detours(seen, int64(len(books))))
		} else {
			testkit.Eventually(t, 5*time.Second, func() bool { return postgres.Queued(s) == i*len(books) })
		}
	}
	for i, release := range releases {
		for _, p := range books[i:] {
			for _, out := range held[p] {
				unanswered(t, out)
			}
		}
		release()
		for n, out := range held[books[i]] {
			o := <-out
			require.NoError(t, o.err)
			require.EqualValues(t, n+1, o.result.Events[0].Sequence, "in the order in which they came")
		}
	}
	testkit.Eventually(t, 5*time.Second, detours(seen, 0))
	require.Zero(t, postgres.Queued(s))
}

// mostDetours remembers how many there were at once.
type mostDetours struct {
	groups
	most atomic.Int64
}

func (m *mostDetours) ObserveDetours(partitions int) {
	m.most.Store(max(m.most.Load(), int64(partitions)))
}

// TestSlowGroupsAreWaitedFor: where transactions are slow, so are those of the nodes that
// hold a head, and to leave them aside would tear groups of many partitions apart.
func TestSlowGroupsAreWaitedFor(t *testing.T) {
	t.Parallel()
	dsn := database(t)
	seen := &mostDetours{}
	s := open(t, dsn, singleAppender, withoutPhysicalPartitions, func(c *postgres.Config) { c.Metrics = seen })
	books := newBooks(t, s, 1)
	require.Equal(t, 100*time.Millisecond, postgres.Brief(s))
	slowly(t, dsn, "0.2")
	for range 4 {
		_, err := s.Append(t.Context(), invoice(books[0], 1))
		require.NoError(t, err)
	}
	require.GreaterOrEqual(t, postgres.Brief(s), 800*time.Millisecond)
	require.LessOrEqual(t, postgres.Brief(s), 2*time.Second)
	release := hold(t, dsn, books[0])
	began := time.Now()
	waiting := send(context.Background(), s, invoice(books[0], 1))
	testkit.Eventually(t, 5*time.Second, func() bool { return time.Since(began) > 300*time.Millisecond })
	release()
	require.NoError(t, (<-waiting).err)
	require.Zero(t, seen.most.Load())
	execute(t, dsn, "DROP TRIGGER slowly ON backbone.events")
	testkit.Eventually(t, 20*time.Second, func() bool {
		_, err := s.Append(t.Context(), invoice(books[0], 1))
		return err == nil && postgres.Brief(s) == 100*time.Millisecond
	}, "what was slow once is forgotten")
}

// TestARequestThatIsGivenUpKeepsNoneFromTheGroup: its caller may give up in the moment
// in which it is looked at, and whoever comes after it would wait for the next request.
func TestARequestThatIsGivenUpKeepsNoneFromTheGroup(t *testing.T) {
	t.Parallel()
	large, small := invoice(1, 600), invoice(1, 1)
	group, kept := postgres.Gather([]*ports.AppendRequest{&large, &small}, func(r *ports.AppendRequest) bool { return r != &large })
	require.Equal(t, []*ports.AppendRequest{&small}, group)
	require.Empty(t, kept)
	group, kept = postgres.Gather([]*ports.AppendRequest{&large, &small}, func(*ports.AppendRequest) bool { return true })
	require.Equal(t, []*ports.AppendRequest{&large}, group)
	require.Equal(t, []*ports.AppendRequest{&small}, kept)
}
