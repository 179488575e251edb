package projections_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/pgtest"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// TestAdvance_PausedWorkerIsFenced pauses a worker at the lock of its checkpoint: another node
// holds the row while the lease changes hands. What it had read before does not count.
func TestAdvance_PausedWorkerIsFenced(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	s := pgtest.Open(t, dsn)
	p := pgtest.NewPartitions(t, s, 1)[0]
	for n := 1; n <= 3; n++ {
		_, err := s.Appender.Append(t.Context(), pgtest.Invoice(p, n))
		require.NoError(t, err)
	}
	resource := []ports.LeaseResource{{Name: "projection/x/1", Partition: p}}
	held, err := s.Leases.Hold(t.Context(), "a", time.Hour, resource)
	require.NoError(t, err)
	step := ports.ProjectionAdvance{ProjectionWork: ports.ProjectionWork{Projection: "x", Version: 1, Partition: p, Lease: &held[0]}, Limit: 1}
	called := 0
	count := pgtest.Applied(func(context.Context, pgx.Tx, ports.ProjectionBatch) error { called++; return nil })
	_, passed, err := s.Projections.Advance(t.Context(), step, count)
	require.NoError(t, err)
	require.Equal(t, 1, passed)

	conn := pgtest.Connect(t, dsn)
	blocker, err := conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = blocker.Exec(t.Context(), "SELECT FROM backbone.projection_checkpoints WHERE projection = 'x' FOR UPDATE")
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() {
		_, _, err := s.Projections.Advance(context.Background(), step, count)
		done <- err
	}()
	watcher := pgtest.Connect(t, dsn)
	testkit.Eventually(t, pgtest.WaitLimit, func() bool {
		var waiting int
		require.NoError(t, watcher.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'").Scan(&waiting))
		return waiting == 1
	}, "the worker waits for the row")
	require.NoError(t, s.Leases.Release(t.Context(), "a", resource))
	taken, err := s.Leases.Hold(t.Context(), "b", time.Hour, resource)
	require.NoError(t, err)
	require.Equal(t, held[0].Term+1, taken[0].Term)
	require.NoError(t, blocker.Commit(t.Context()))
	require.Equal(t, projection.CodeFenced, fault.CodeOf(<-done))
	require.Equal(t, 1, called)

	step.Lease = &taken[0]
	c, _, err := s.Projections.Advance(t.Context(), step, count)
	require.NoError(t, err)
	require.Equal(t, []any{event.Sequence(2), taken[0].Term}, []any{c.Sequence, c.Term})
}

// TestAdvance_HandlerErrors: what the database refuses is a failure of the
// event, without PostgreSQL's words; a database that goes away is not.
func TestAdvance_HandlerErrors(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	s := pgtest.Open(t, dsn)
	p := pgtest.NewPartitions(t, s, 1)[0]
	_, err := s.Appender.Append(t.Context(), pgtest.Invoice(p, 1))
	require.NoError(t, err)
	step := ports.ProjectionAdvance{ProjectionWork: ports.ProjectionWork{Projection: "x", Version: 1, Partition: p}, Limit: 1}
	statement := func(sql string) error {
		_, _, err := s.Projections.Advance(t.Context(), step, pgtest.Applied(func(ctx context.Context, tx pgx.Tx, _ ports.ProjectionBatch) error {
			_, err := tx.Exec(ctx, sql)
			return err
		}))
		return err
	}
	err = statement("SELECT 'Ada Lovelace'::date")
	require.Equal(t, fault.Internal, fault.KindOf(err))
	require.NotContains(t, err.Error(), "Ada")
	require.Equal(t, fault.Unavailable, fault.KindOf(statement("DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '57P01'; END $$")))
	list, err := s.Projections.Checkpoints(t.Context(), "x", 1)
	require.NoError(t, err)
	for _, c := range list {
		require.Zero(t, c.Sequence)
	}
}

// TestAdvance_EndsHungTransaction: its lock on the checkpoint ends by itself.
func TestAdvance_EndsHungTransaction(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	s := pgtest.Open(t, dsn, pgtest.WithDefaultLimits)
	p := pgtest.NewPartitions(t, s, 1)[0]
	_, err := s.Appender.Append(t.Context(), pgtest.Invoice(p, 1))
	require.NoError(t, err)
	step := ports.ProjectionAdvance{ProjectionWork: ports.ProjectionWork{Projection: "x", Version: 1, Partition: p}, Limit: 1}
	_, _, err = s.Projections.Advance(t.Context(), step, pgtest.Applied(func(ctx context.Context, tx pgx.Tx, _ ports.ProjectionBatch) error {
		var idle, lock string
		require.NoError(t, tx.QueryRow(ctx, "SELECT current_setting('idle_in_transaction_session_timeout'), current_setting('lock_timeout')").Scan(&idle, &lock))
		require.Equal(t, []string{"10s", "5s"}, []string{idle, lock})
		return nil
	}))
	require.NoError(t, err)
	var lock string
	require.NoError(t, s.Pool().QueryRow(t.Context(), "SELECT current_setting('lock_timeout')").Scan(&lock))
	require.NotEqual(t, "5s", lock, "it ends with the transaction")
}
