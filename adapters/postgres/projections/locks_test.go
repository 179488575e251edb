package projections_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pgtest"
	"github.com/erpbackbone/backbone/adapters/system"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/projections"
	"github.com/erpbackbone/backbone/application/subscriptions"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/conformance"
	"github.com/erpbackbone/backbone/test/testkit"
)

// TestAdvance_LockOfOtherSessionIsBusy: a session that locks the checkpoint, or rows that the handler
// writes, keeps an attempt no longer than it wants to wait, and changes nothing.
func TestAdvance_LockOfOtherSessionIsBusy(t *testing.T) {
	t.Parallel()
	w, books := newSumFixture(t)
	p, other := books[0], books[1]
	for _, id := range books {
		_, err := w.store.Appender.Append(t.Context(), pgtest.Invoice(id, 4))
		require.NoError(t, err)
	}
	advance := func(p event.PartitionID, wait time.Duration) (ports.Checkpoint, int, error) {
		work := w.work(1, p)
		work.LockWait = wait
		return w.store.Projections.Advance(t.Context(), ports.ProjectionAdvance{ProjectionWork: work, Limit: 1}, w)
	}
	_, passed, err := advance(p, 0)
	require.NoError(t, err)
	require.Equal(t, 1, passed)
	for name, statement := range map[string]string{
		"the checkpoint":           "SELECT FROM backbone.projection_checkpoints WHERE partition_id = $1 FOR UPDATE",
		"what the handler writes":  "INSERT INTO test.sums (sequence, partition_id, version, total, note) VALUES (2, $1, 1, 0, 'of another session')",
		"the version of the model": "",
	} {
		at := p
		if statement == "" { // the other partition has no checkpoint yet
			statement, at = "UPDATE backbone.projections SET changed_by = changed_by WHERE version <> $1", other
		}
		tx, err := pgtest.Connect(t, w.dsn).Begin(t.Context())
		require.NoError(t, err)
		tag, err := tx.Exec(t.Context(), statement, int32(p))
		require.NoError(t, err)
		require.Positive(t, tag.RowsAffected(), name)
		for range 6 { // more often than an event's attempts
			_, passed, err = advance(at, 20*time.Millisecond)
			f, ok := fault.As(err)
			require.True(t, ok, "%s: %v", name, err)
			require.Equal(t, projection.CodeBusy, f.Code, name)
			require.Equal(t, fault.Unavailable, f.Kind)
			require.Positive(t, f.RetryAfter)
			require.Zero(t, passed)
		}
		require.NoError(t, tx.Rollback(context.WithoutCancel(t.Context())))
	}
	checkpoints, err := w.store.Projections.Checkpoints(t.Context(), sumsName, 1)
	require.NoError(t, err)
	require.Len(t, checkpoints, 1)
	require.EqualValues(t, 1, checkpoints[0].Sequence)
	require.Zero(t, checkpoints[0].Attempts)
	require.Zero(t, checkpoints[0].Failed)
	for _, id := range books {
		_, passed, err = advance(id, 20*time.Millisecond)
		require.NoError(t, err)
		require.Equal(t, 1, passed)
	}
}

// attempts counts the attempts in some partitions: the first one of each, and those that
// come after it, which are known to meet a lock.
type attempts struct {
	ports.Projections
	mu        sync.Mutex
	met       map[event.PartitionID]bool
	atOnce    int // of those that came after the first
	most      int
	longest   time.Duration
	unlimited bool
}

func (a *attempts) Advance(ctx context.Context, w ports.ProjectionAdvance, h ports.ProjectionHandler) (ports.Checkpoint, int, error) {
	a.mu.Lock()
	before, locked := a.met[w.Partition]
	if locked {
		a.met[w.Partition] = true
		a.longest, a.unlimited = max(a.longest, w.LockWait), a.unlimited || w.LockWait <= 0
	}
	if before {
		a.atOnce++
		a.most = max(a.most, a.atOnce)
	}
	a.mu.Unlock()
	c, passed, err := a.Projections.Advance(ctx, w, h)
	if before {
		a.mu.Lock()
		a.atOnce--
		a.mu.Unlock()
	}
	return c, passed, err
}

// TestDrillLockedCheckpoints: a node with its usual four workers keeps the
// other legal entities up to date while another session holds twice as many checkpoints.
func TestDrillLockedCheckpoints(t *testing.T) {
	t.Parallel()
	const name, rounds = "locks", 20
	dsn := pgtest.Database(t)
	pgtest.Execute(t, dsn, `CREATE TABLE backbone.applied (partition_id integer, sequence bigint, PRIMARY KEY (partition_id, sequence));
		GRANT SELECT, INSERT ON backbone.applied TO backbone_app`)
	s := pgtest.Open(t, dsn, pgtest.WithoutPhysicalPartitions)
	books := pgtest.NewPartitions(t, s, 12)
	locked, free := books[:8], books[8:]
	tries := &attempts{Projections: s.Projections, met: map[event.PartitionID]bool{}}
	watch := testkit.Must(subscriptions.NewHeadWatcher(subscriptions.HeadWatcherConfig{Heads: s.Events, Clock: system.Clock{}, Poll: 20 * time.Millisecond}))
	runner, err := projections.New(projections.Config{Store: tries, Log: s.Events, Register: s.ProjectionVersions, Heads: watch, Clock: system.Clock{}, Limits: conformance.ProjectorLimits(nil)},
		[]module.Projection{{Name: name, Version: 1}}, map[string]ports.ProjectionHandler{name: pgtest.Applied(func(ctx context.Context, tx pgx.Tx, b ports.ProjectionBatch) error {
			for _, e := range b.Events {
				if _, err := tx.Exec(ctx, "INSERT INTO backbone.applied VALUES ($1, $2)", int32(b.Partition), int64(e.Sequence)); err != nil {
					return err
				}
			}
			return nil
		})})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait() })
	running.Go(func() { watch.Run(ctx) })
	running.Go(func() { runner.Run(ctx) })
	reader := pgtest.Connect(t, dsn)
	reached := func(ids []event.PartitionID, want int) func() bool {
		return func() bool {
			var n int
			require.NoError(t, reader.QueryRow(t.Context(), "SELECT count(*) FROM backbone.applied WHERE partition_id = ANY($1)", pg.Partitions(ids)).Scan(&n))
			return n == want*len(ids)
		}
	}
	write := func(ids []event.PartitionID) {
		for _, p := range ids {
			_, err := s.Appender.Append(t.Context(), pgtest.Invoice(p, 1))
			require.NoError(t, err)
		}
	}
	write(books)
	testkit.Eventually(t, pgtest.WaitLimit, reached(books, 1), "everything has a checkpoint")

	tx, err := pgtest.Connect(t, dsn).Begin(t.Context())
	require.NoError(t, err)
	tag, err := tx.Exec(t.Context(), "SELECT FROM backbone.projection_checkpoints WHERE projection = $1 AND partition_id = ANY($2) FOR UPDATE", name, pg.Partitions(locked))
	require.NoError(t, err)
	require.EqualValues(t, 8, tag.RowsAffected())
	tries.mu.Lock()
	for _, p := range locked {
		tries.met[p] = false
	}
	tries.mu.Unlock()
	write(locked)
	testkit.Eventually(t, pgtest.WaitLimit, func() bool { return pgtest.CountLockWaiters(t, reader) > 0 }, "they are waited for")
	for round := range rounds {
		write(free)
		testkit.Eventually(t, pgtest.WaitLimit, reached(free, 2+round), "the other ones continue")
	}
	require.True(t, reached(locked, 1)())
	// No round waits for a lock: once they have been met, one worker is left with them.
	testkit.Eventually(t, pgtest.WaitLimit, func() bool {
		tries.mu.Lock()
		defer tries.mu.Unlock()
		for _, met := range tries.met {
			if !met {
				return false
			}
		}
		return tries.most > 0
	}, "all of them were tried")
	tries.mu.Lock()
	most, longest, unlimited := tries.most, tries.longest, tries.unlimited
	tries.mu.Unlock()
	require.Equal(t, 1, most)
	require.False(t, unlimited)
	require.LessOrEqual(t, longest, 2*time.Second)
	require.NoError(t, tx.Rollback(t.Context()))
	testkit.Eventually(t, pgtest.WaitLimit, reached(locked, 2), "they continue when they are free")
	all, err := s.Projections.Checkpoints(t.Context(), name, 1)
	require.NoError(t, err)
	require.Len(t, all, 12)
	for _, c := range all {
		require.Zero(t, c.Attempts)
		require.Zero(t, c.Failed)
		require.Empty(t, c.Error)
	}
}
