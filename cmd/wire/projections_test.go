package wire

import (
	"context"
	"maps"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/modules"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// builtInHandlers are the handlers of the built-in modules' projections.
func builtInHandlers() map[string]ports.ProjectionHandler {
	handlers := map[string]ports.ProjectionHandler{}
	for _, m := range modules.BuiltIn() {
		maps.Copy(handlers, m.Projections)
	}
	return handlers
}

// TestDeclaredTables compares what handlers say about their tables with
// the database: a table that is left out would neither be compared nor removed.
func TestDeclaredTables(t *testing.T) {
	t.Parallel()
	dsn := testkit.Database(t, nil, "empty")
	require.NoError(t, Migrate(t.Context(), dsn, nil, modules.BuiltIn()...))
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	rows, err := conn.Query(t.Context(), `
		SELECT n.nspname || '.' || c.relname,
			ARRAY(SELECT a.attname::text FROM unnest(i.indkey) AS k JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k)
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary
		WHERE c.relkind = 'r' AND n.nspname IN ('gl', 'ap')`)
	require.NoError(t, err)
	keys := map[string][]string{}
	var table string
	var key []string
	_, err = pgx.ForEachRow(rows, []any{&table, &key}, func() error { keys[table] = key; return nil })
	require.NoError(t, err)
	declared := map[string][]string{}
	for _, h := range builtInHandlers() {
		for _, table := range h.(ports.ProjectionTables).Tables() {
			name := table.Schema + "." + table.Name
			require.NotContains(t, declared, name, "two projections never share a table")
			declared[name] = append([]string{"partition_id", "version"}, table.Key...)
		}
	}
	require.Len(t, tablesOf(builtInHandlers()), 8)
	require.Len(t, declared, len(keys))
	for name, key := range keys {
		require.Equal(t, slices.Sorted(slices.Values(key)), slices.Sorted(slices.Values(declared[name])), name)
	}
}

// TestDeclaredTargets compares what handlers say about parts of their
// tables with the database: rows of a table that is in no part are never recomputed, and
// copies of persons in a column that is not named outlive an erasure.
func TestDeclaredTargets(t *testing.T) {
	t.Parallel()
	dsn := testkit.Database(t, nil, "empty")
	require.NoError(t, Migrate(t.Context(), dsn, nil, modules.BuiltIn()...))
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	columns := func(table ports.ProjectionTable) (names []string) {
		rows, err := conn.Query(t.Context(), "SELECT column_name::text FROM information_schema.columns WHERE table_schema = $1 AND table_name = $2", table.Schema, table.Name)
		require.NoError(t, err)
		names, err = pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		return names
	}
	all := 0
	for _, h := range builtInHandlers() {
		personal := 0 // tables that copy personal values
		var tables []ports.ProjectionTable
		streams := map[string]bool{}
		for _, target := range h.(ports.ProjectionTargets).Targets() {
			for _, s := range target.Streams {
				require.False(t, streams[s], "an entity of %s has its rows in one part", s)
				streams[s] = true
			}
			for _, table := range target.Tables {
				tables = append(tables, table.ProjectionTable)
				names := columns(table.ProjectionTable)
				require.Contains(t, names, "sequence", table.Name)
				if table.Entity != "" {
					require.Contains(t, names, table.Entity, table.Name)
				}
				require.Equal(t, slices.Contains(names, "subject"), table.Subject == "subject", table.Name)
				if table.Subject != "" {
					personal++
				}
			}
		}
		written := slices.DeleteFunc(h.(ports.ProjectionTables).Tables(), func(t ports.ProjectionTable) bool { return t.Derived })
		require.ElementsMatch(t, written, tables, "each table is in one part")
		require.Equal(t, personal > 0, ports.HoldsSealedCopies(h))
		all += personal
	}
	require.Equal(t, 3, all)
	require.Len(t, targetsOf(builtInHandlers()), 8)
}
