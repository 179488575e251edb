package e2e

import (
	"context"
	"fmt"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/test/testkit"
)

// TestDrillBackendsKilledUnderLoad ends sessions of the application with
// pg_terminate_backend and with SIGKILL, after which PostgreSQL ends all sessions. Backbone recovers without a restart.
func TestDrillBackendsKilledUnderLoad(t *testing.T) {
	t.Parallel()
	dir := copyOfBooks(t)
	d := startOn(t, dir, recoveryStart)
	l := startLoad(t, d, fullSpeed)
	super := func(statement string) (pids []int) {
		t.Helper()
		testkit.EventuallyNoError(t, endTime, func() error { // PostgreSQL may be restarting
			ctx := t.Context()
			connection, err := pgx.Connect(ctx, superuser(t, dir))
			if err != nil {
				return err
			}
			defer func() { _ = connection.Close(context.Background()) }()
			rows, err := connection.Query(ctx, statement)
			if err != nil {
				return err
			}
			pids, err = pgx.CollectRows(rows, pgx.RowTo[int])
			if err == nil && len(pids) == 0 {
				err = fmt.Errorf("no session of the application")
			}
			return err
		})
		return pids
	}
	for round := range 6 {
		l.await(t, 200)
		switch round % 3 {
		case 0:
			super(`SELECT pid FROM pg_stat_activity, pg_terminate_backend(pid) WHERE usename = 'backbone_app'`)
		case 1: // one of those that write
			super(`SELECT pid FROM (SELECT pid FROM pg_stat_activity WHERE usename = 'backbone_app' AND state <> 'idle' LIMIT 1) AS busy, pg_terminate_backend(pid)`)
		case 2:
			testkit.EventuallyNoError(t, endTime, func() error { // one may just have ended
				pid := super(`SELECT pid FROM pg_stat_activity WHERE usename = 'backbone_app' ORDER BY state_change DESC LIMIT 1`)[0]
				return syscall.Kill(pid, syscall.SIGKILL)
			})
		}
		require.True(t, d.alive())
	}
	l.await(t, 200)
	verdict := command(t, nil, "verify", "--dsn", d.DSN)
	require.Zero(t, verdict.code, "while the log grows\n%s", verdict)
	l.await(t, 100)
	l.finish(t)
	require.True(t, d.alive())
}
