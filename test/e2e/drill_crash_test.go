package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/test/testkit"
)

// TestDrillServerKilledUnderLoad kills backbone, and the whole PostgreSQL under it, under load.
func TestDrillServerKilledUnderLoad(t *testing.T) {
	dir := copyOfBooks(t)
	d := startOn(t, dir, recoveryStart)
	l := startLoad(t, d, fullSpeed)
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

// TestDrillFirstStartKilled kills the set-up of the books twice; the next start completes it,
// with the same books.
func TestDrillFirstStartKilled(t *testing.T) {
	needPostgres(t)
	s, err := seed()
	require.NoError(t, err)
	dir, err := os.MkdirTemp(scratch, "killed-")
	require.NoError(t, err)
	for _, stage := range []string{"initdb", "Setting up", "open periods", "exchange rates"} {
		p, err := launch(program(t), dir, nil, "dev", "--data-dir", dir, "--http", "127.0.0.1:0")
		require.NoError(t, err)
		if stage == "initdb" {
			testkit.Eventually(t, recoveryStart, func() bool {
				begun, err := filepath.Glob(filepath.Join(dir, "pg", "data*", "PG_VERSION"))
				require.NoError(t, err)
				return len(begun) > 0 // it may also be over already
			})
		} else {
			_, err = p.awaitOutput(p.stdout, regexp.MustCompile(stage), recoveryStart)
			require.NoError(t, err)
		}
		require.NoError(t, p.signal(syscall.SIGKILL))
		<-p.ended
	}
	d := startOn(t, dir, recoveryStart)
	require.Len(t, d.Tokens, len(personas))
	for _, entity := range d.LegalEntities {
		head, err := d.as(t, "auditor").head(entity)
		require.NoError(t, err)
		require.Equal(t, s.heads[entity], head, "each step of the set-up was taken once")
	}
	require.Zero(t, command(t, nil, "verify", "--data-dir", dir).code)
}

// TestDrillFirstStartInterrupted interrupts the set-up of the books as Ctrl-C does.
func TestDrillFirstStartInterrupted(t *testing.T) {
	needPostgres(t)
	dir, err := os.MkdirTemp(scratch, "interrupted-")
	require.NoError(t, err)
	p, err := launch(program(t), dir, nil, "dev", "--data-dir", dir, "--http", "127.0.0.1:0")
	require.NoError(t, err)
	_, err = p.awaitOutput(p.stdout, regexp.MustCompile("exchange rates"), recoveryStart)
	require.NoError(t, err)
	code, err := p.interrupt()
	require.NoError(t, err)
	require.Zero(t, code, p.stderr)
	require.Empty(t, p.stderr.String())
	require.Contains(t, p.stdout.String(), "Stopped.")
	require.NoFileExists(t, filepath.Join(dir, "pg", "data", "postmaster.pid"))
}
