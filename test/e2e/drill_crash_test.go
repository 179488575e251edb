package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/test/testkit"
)

// sessionsOf runs a statement of the superuser that selects sessions of the application, until it finds
// some: PostgreSQL may be restarting.
func sessionsOf(t *testing.T, dir, statement string) (pids []int) {
	t.Helper()
	testkit.EventuallyNoError(t, endTime, func() error {
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

// TestDrillKilledUnderLoad ends sessions of the application with pg_terminate_backend and with SIGKILL,
// after which PostgreSQL ends all sessions: backbone recovers without a restart. Then it kills backbone,
// and the whole PostgreSQL under it.
func TestDrillKilledUnderLoad(t *testing.T) {
	dir := copyOfBooks(t)
	d := startOn(t, dir, recoveryStart)
	l := startLoad(t, d, fullSpeed)
	for round := range 6 {
		l.await(t, 200)
		switch round % 3 {
		case 0:
			sessionsOf(t, dir, `SELECT pid FROM pg_stat_activity, pg_terminate_backend(pid) WHERE usename = 'backbone_app'`)
		case 1: // one of those that write
			sessionsOf(t, dir, `SELECT pid FROM (SELECT pid FROM pg_stat_activity WHERE usename = 'backbone_app' AND state <> 'idle' LIMIT 1) AS busy, pg_terminate_backend(pid)`)
		case 2:
			testkit.EventuallyNoError(t, endTime, func() error { // one may just have ended
				pid := sessionsOf(t, dir, `SELECT pid FROM pg_stat_activity WHERE usename = 'backbone_app' ORDER BY state_change DESC LIMIT 1`)[0]
				return syscall.Kill(pid, syscall.SIGKILL)
			})
		}
		require.True(t, d.alive())
	}
	l.await(t, 200)
	verdict := command(t, nil, "verify", "--dsn", d.DSN)
	require.Zero(t, verdict.code, "while the log grows\n%s", verdict)
	require.True(t, d.alive())
	for round := range 4 {
		l.await(t, 300)
		if round%2 == 0 {
			require.NoError(t, d.signal(syscall.SIGKILL))
		} else {
			pid, err := postmaster(dir)
			require.NoError(t, err)
			require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
		}
		_, err := d.wait(endTime)
		require.NoError(t, err)
		d = startOn(t, dir, recoveryStart)
		l.server.Store(d)
	}
	l.await(t, 300)
	l.finish(t)
	code, err := d.interrupt()
	require.NoError(t, err)
	require.Zero(t, code)
}

// TestDrillFirstStartKilled kills the set-up of the books four times, and interrupts it as Ctrl-C does;
// the next start completes it, with the same books.
func TestDrillFirstStartKilled(t *testing.T) {
	needPostgres(t)
	s, err := seed()
	require.NoError(t, err)
	dir, err := os.MkdirTemp(scratch, "killed-")
	require.NoError(t, err)
	startUntil := func(stage string) *process {
		t.Helper()
		p, err := launch(program(t), dir, nil, "dev", "--data-dir", dir, "--http", "127.0.0.1:0")
		require.NoError(t, err)
		if stage == "initdb" {
			testkit.Eventually(t, recoveryStart, func() bool {
				begun, err := filepath.Glob(filepath.Join(dir, "pg", "data*", "PG_VERSION"))
				require.NoError(t, err)
				return len(begun) > 0 // it may also be over already
			})
			return p
		}
		_, err = p.awaitOutput(p.stdout, regexp.MustCompile(stage), recoveryStart)
		require.NoError(t, err)
		return p
	}
	for _, stage := range []string{"initdb", "Setting up", "open periods", "exchange rates"} {
		p := startUntil(stage)
		require.NoError(t, p.signal(syscall.SIGKILL))
		<-p.ended
	}
	p := startUntil("exchange rates")
	code, err := p.interrupt()
	require.NoError(t, err)
	require.Zero(t, code, p.stderr)
	require.Empty(t, p.stderr.String())
	require.Contains(t, p.stdout.String(), "Stopped.")
	require.NoFileExists(t, filepath.Join(dir, "pg", "data", "postmaster.pid"))

	d := startOn(t, dir, recoveryStart)
	require.Len(t, d.Tokens, len(personas))
	for _, entity := range d.LegalEntities {
		head, err := d.as(t, "auditor").head(entity)
		require.NoError(t, err)
		require.Equal(t, s.heads[entity], head, "each step of the set-up was taken once")
	}
	judge(t, d.DSN, "--data-dir", dir)
}
