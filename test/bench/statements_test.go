//go:build bench

package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/embeddedpg"
)

// statistics are the times of PostgreSQL by statement.
// It is there only when profiles are wanted, since it costs a few percent.
type statistics struct {
	conn *pgx.Conn
	dir  string
}

func newStatistics(t *testing.T, cluster *embeddedpg.Cluster, o options) *statistics {
	t.Helper()
	if o.profile == "" {
		return nil
	}
	s := &statistics{conn: connect(t, cluster.SuperuserDSN("postgres")), dir: o.profile}
	if _, err := s.conn.Exec(t.Context(), "CREATE EXTENSION IF NOT EXISTS pg_stat_statements"); err != nil {
		printLine("no statistics of statements: %v", err)
		return nil
	}
	return s
}

func (s *statistics) reset(t *testing.T) {
	t.Helper()
	if s != nil {
		_, err := s.conn.Exec(t.Context(), "SELECT pg_stat_statements_reset()")
		require.NoError(t, err)
	}
}

// write lists the statements that took most time since the reset.
func (s *statistics) write(t *testing.T, measurement string) {
	t.Helper()
	if s == nil {
		return
	}
	rows, err := s.conn.Query(t.Context(), `SELECT calls, rows, total_exec_time, mean_exec_time, wal_bytes::bigint, query
		FROM pg_stat_statements ORDER BY total_exec_time DESC LIMIT 40`)
	require.NoError(t, err)
	var out strings.Builder
	fmt.Fprintf(&out, "%10s %10s %12s %12s %14s  %s\n", "CALLS", "ROWS", "TOTAL ms", "MEAN us", "WAL bytes", "STATEMENT")
	var calls, count, wal int64
	var total, mean float64
	var query string
	_, err = pgx.ForEachRow(rows, []any{&calls, &count, &total, &mean, &wal, &query}, func() error {
		query = strings.Join(strings.Fields(query), " ")
		fmt.Fprintf(&out, "%10d %10d %12.0f %12.1f %14d  %.160s\n", calls, count, total, mean*1e3, wal, query)
		return nil
	})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, strings.NewReplacer(" ", "-", ",", "").Replace(measurement)+"-statements.txt"), []byte(out.String()), 0o644))
}
