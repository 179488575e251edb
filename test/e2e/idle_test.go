//go:build bench

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/embeddedpg"
)

// What an idle node may use. A missed aim is printed, not failed.
const (
	idleSettle     = 70 * time.Second // a node polls more often in its first minute
	idlePeriod     = time.Minute      // of the measurement
	idleStatements = 4.0              // a second
	idleCPU        = 1.0              // percent of a core
	idleMemory     = 60.0             // MB resident
)

// TestReport prints what the binary uses while it has no clients: the demonstration's
// books (two legal entities) and the default projections.
func TestReport(t *testing.T) {
	needPostgres(t)
	t.Run("idle", func(t *testing.T) {
		t.Run("dev", func(t *testing.T) {
			t.Parallel()
			dir := copyOfBooks(t)
			settings, err := os.OpenFile(filepath.Join(dir, "pg", "data", "postgresql.auto.conf"), os.O_APPEND|os.O_WRONLY, 0)
			require.NoError(t, err)
			_, err = fmt.Fprintln(settings, "shared_preload_libraries = pg_stat_statements")
			require.NoError(t, err)
			require.NoError(t, settings.Close())
			d := startOn(t, dir, recoveryStart)
			reportIdle(t, "backbone dev", d.process, superuser(t, dir))
		})
		t.Run("serve", func(t *testing.T) {
			t.Parallel()
			dir := copyOfBooks(t)
			cluster, err := embeddedpg.Start(t.Context(), embeddedpg.Config{DataDir: dir, Settings: map[string]string{"shared_preload_libraries": "pg_stat_statements"}})
			require.NoError(t, err)
			t.Cleanup(func() {
				ctx, cancel := context.WithTimeout(context.Background(), endTime)
				defer cancel()
				require.NoError(t, cluster.Stop(ctx))
			})
			dsn := cluster.SuperuserDSN("backbone")
			p, _ := startServe(t, asApplication(t, dsn), "BACKBONE_DATABASE_ERASER_DSN="+asEraser(t, dsn),
				"BACKBONE_KMS_LOCAL_DIRECTORY="+filepath.Join(dir, "kms"), "BACKBONE_KMS_ALLOW_LOCAL=true",
				"BACKBONE_ERASURE_EXPORT_DIRECTORY="+filepath.Join(dir, "exports"))
			reportIdle(t, "backbone serve", p, dsn)
		})
	})
}

// reportIdle lets a server settle and prints what it uses in the period after that, with
// the statements that its PostgreSQL counted.
func reportIdle(t *testing.T, name string, p *process, superuserDSN string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), superuserDSN)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) }) // nothing is lost with it
	_, err = conn.Exec(t.Context(), "CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
	require.NoError(t, err)
	awaitAlive(t, p, idleSettle)
	memory, cpu, started := residentMB(t, p), cpuSeconds(t, p), time.Now()
	_, err = conn.Exec(t.Context(), "SELECT pg_stat_statements_reset()")
	require.NoError(t, err)
	awaitAlive(t, p, idlePeriod)
	seconds := time.Since(started).Seconds()
	cpu = 100 * (cpuSeconds(t, p) - cpu) / seconds
	rows, err := conn.Query(t.Context(), `SELECT query, sum(calls)::float8 FROM pg_stat_statements
		WHERE query NOT LIKE '%pg_stat_statements%' GROUP BY query ORDER BY 2 DESC, 1`)
	require.NoError(t, err)
	var lines strings.Builder
	var query string
	var calls, all float64
	_, err = pgx.ForEachRow(rows, []any{&query, &calls}, func() error {
		all += calls
		fmt.Fprintf(&lines, "%8.2f  %.140s\n", calls/seconds, strings.Join(strings.Fields(query), " "))
		return nil
	})
	require.NoError(t, err)
	fmt.Printf("\nIdle %s:\n%s%s%s%8s  statement\n%s", name,
		idleFigure("statements a second", all/seconds, idleStatements), idleFigure("% of a core", cpu, idleCPU), idleFigure("MB resident", memory, idleMemory),
		"a second", &lines)
}

// awaitAlive waits, and fails if the process ends in this time.
func awaitAlive(t *testing.T, p *process, period time.Duration) {
	t.Helper()
	select {
	case <-time.After(period):
	case <-p.ended:
		require.Fail(t, "backbone has ended", "%s", p.stderr)
	}
}

func idleFigure(unit string, value, aim float64) string {
	verdict := "ok"
	if value > aim {
		verdict = "MISSED"
	}
	return fmt.Sprintf("%8.2f  %s, at most %.0f: %s\n", value, unit, aim, verdict)
}

// residentMB reads /proc: the benchmark needs Linux.
func residentMB(t *testing.T, p *process) float64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.cmd.Process.Pid))
	require.NoError(t, err)
	var size, resident int
	_, err = fmt.Sscan(string(text), &size, &resident)
	require.NoError(t, err)
	return float64(resident*os.Getpagesize()) / 1e6
}

// cpuSeconds is the processor time of the server alone, without its PostgreSQL.
func cpuSeconds(t *testing.T, p *process) float64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	require.NoError(t, err)
	_, rest, _ := strings.Cut(string(text), ") ") // the command ends there; the state is next
	fields := strings.Fields(rest)
	require.Greater(t, len(fields), 12)
	user, err := strconv.Atoi(fields[11])
	require.NoError(t, err)
	system, err := strconv.Atoi(fields[12])
	require.NoError(t, err)
	const ticksPerSecond = 100 // USER_HZ, the same on every Linux
	return float64(user+system) / ticksPerSecond
}
