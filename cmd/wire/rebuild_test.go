package wire

import (
	"context"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/modules/ap"
	appostgres "github.com/erpbackbone/backbone/modules/ap/adapters/postgres"
	"github.com/erpbackbone/backbone/modules/gl"
	glpostgres "github.com/erpbackbone/backbone/modules/gl/adapters/postgres"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// TestProjectionsDeclareTheirTables compares what handlers say about their tables with
// the database: a table that is left out would neither be compared nor removed.
func TestProjectionsDeclareTheirTables(t *testing.T) {
	t.Parallel()
	dsn := testkit.Database(t, nil, "empty")
	require.NoError(t, Migrate(t.Context(), dsn, nil))
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
	for _, h := range []ports.ProjectionHandler{glpostgres.NewProjection(), appostgres.NewProjection(), appostgres.NewVendorProjection()} {
		for _, table := range h.(ports.ProjectionTables).Tables() {
			name := table.Schema + "." + table.Name
			require.NotContains(t, declared, name, "two projections never share a table")
			declared[name] = append([]string{"partition_id", "version"}, table.Key...)
		}
	}
	require.Len(t, tablesOf(map[string]ports.ProjectionHandler{
		gl.ProjectionLedger: glpostgres.NewProjection(), ap.OpenItems: appostgres.NewProjection(), ap.Vendors: appostgres.NewVendorProjection(),
	}), 3)
	require.Len(t, declared, len(keys))
	for name, key := range keys {
		require.Equal(t, slices.Sorted(slices.Values(key)), slices.Sorted(slices.Values(declared[name])), name)
	}
}
