package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/postgres/migrate"
	apsql "github.com/erpbackbone/backbone/sql/ap"
	backbonesql "github.com/erpbackbone/backbone/sql/backbone"
	glsql "github.com/erpbackbone/backbone/sql/gl"
	"github.com/erpbackbone/backbone/test/testkit"
)

// schema is one of an earlier release, by the last migration of each set.
type schema struct{ backbone, gl, ap int64 }

// newest is the last migration of a set.
const newest = math.MaxInt64

// The schemas of the releases before projections had versions, and before dead letters and snapshots
// of projections had separate tables. The read models of the second are those of today, so that the
// handlers of this release continue with them.
var (
	beforeVersions = schema{backbone: 7, gl: 1, ap: 2}
	beforeParked   = schema{backbone: 15, gl: newest, ap: newest}
)

// readModels are the tables that projections write.
var readModels = regexp.MustCompile(`^(gl|ap)\.|^backbone\.projection`)

// submitInvoices submits and approves invoices of a new vendor.
func submitInvoices(t *testing.T, d *dev) {
	t.Helper()
	d.as(t, "vendor_admin").must(t, "USMF", "ap.register_vendor", object{"vendor_id": "V-UP", "name": "Upgrade Ltd", "country": "US"})
	for i := range 5 {
		paper := invoice("V-UP", fmt.Sprintf("UP-%d", i))
		amount := 100 + i // two papers alike would be held as suspects
		paper["total_amount"] = amount
		line := paper["lines"].([]object)[0]
		line["quantity"], line["unit_price"], line["amount"] = 1, amount, amount
		submitted := d.as(t, "ap_clerk").must(t, "USMF", "ap.submit_invoice", paper)
		d.as(t, "approver").must(t, "USMF", "ap.approve_invoice", object{"invoice_id": submitted.IntentID})
	}
}

// TestDrillUpgradeOfCheckpoints upgrades a database of the release before projections had versions,
// which had not read all events. Its rows and checkpoints are version 1 and unchanged; the newer
// handlers of this release build version 2 beside it, and readers are switched to that.
func TestDrillUpgradeOfCheckpoints(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	d := startOn(t, copyOfBooks(t), recoveryStart)
	readReports(t, d.as(t, "auditor"))
	source, err := pgx.Connect(ctx, superuser(t, d.dataDir))
	require.NoError(t, err)
	defer func() { _ = source.Close(context.Background()) }()
	dsn := previousDatabase(t, source, beforeVersions)
	old, err := pgx.Connect(ctx, dsn)
	require.NoError(t, err)
	defer func() { _ = old.Close(context.Background()) }()
	columns := columnsOf(t, old)
	copyTables(t, source, old, columns, true)
	_, err = old.Exec(ctx, `DELETE FROM backbone.projection_checkpoints WHERE projection NOT IN ('gl.ledger', 'ap.open-items', 'ap.vendors')`)
	require.NoError(t, err)
	_, err = old.Exec(ctx, `UPDATE backbone.projection_checkpoints SET version = 1, status = 'faulted', error = 'store.failed'`)
	require.NoError(t, err)
	submitInvoices(t, d)
	want := readReports(t, d.as(t, "auditor"))
	copyTables(t, source, old, columns, false)
	maps.DeleteFunc(columns, func(table string, _ []string) bool {
		return strings.HasPrefix(table, "backbone.") || strings.HasPrefix(table, "keystore.")
	})
	whole := rowsOf(t, source, columns, "version = 2")
	kept, checkpoints := rowsOf(t, old, columns, "true"), checkpointsOf(t, old)
	require.Len(t, checkpoints, 6, "three projections in two legal entities")
	for _, table := range []string{"gl.accounts", "gl.ledgers", "ap.ledgers"} {
		require.NotEmpty(t, kept[table], table)
	}
	for _, table := range []string{"ap.document_entries", "gl.journal_lines"} {
		require.Less(t, len(kept[table]), len(whole[table]), "some of %s are still to come", table)
	}

	migrated := command(t, nil, "migrate", "--dsn", dsn)
	require.Zero(t, migrated.code, migrated)
	require.Contains(t, migrated.stdout, "00012_projection_versions.sql")
	require.NotContains(t, migrated.stdout, "00007_registry")
	require.Equal(t, checkpoints, checkpointsOf(t, old))
	require.Equal(t, kept, rowsOf(t, old, columns, "version = 1"))
	bindRows(t, source, old)
	var waiting int
	require.NoError(t, old.QueryRow(ctx, `SELECT count(*) FROM backbone.projection_checkpoints WHERE status = 'faulted'`).Scan(&waiting))
	require.Zero(t, waiting, "a failed attempt does not halt a partition")
	untouched := writtenBy(t, old, columns, "version = 1")

	inPrevious := func(dsn string) string { return strings.Replace(dsn, "/backbone?", "/previous?", 1) }
	env := append(d.keys(), "BACKBONE_DATABASE_DSN="+inPrevious(d.DSN), "BACKBONE_DATABASE_ERASER_DSN="+inPrevious(d.EraserDSN))
	require.Contains(t, inPrevious(d.DSN), "previous")
	enrolled := command(t, env, "enroll", "--tenant", d.Tenant, "--person", "p-after", "--role", "auditor")
	require.Zero(t, enrolled.code, enrolled)
	_, server := startServe(t, inPrevious(d.DSN), env...)
	require.Equal(t, want, readReports(t, server.as(enrolled.stdout)))
	testkit.Eventually(t, endTime, func() bool { return maps.EqualFunc(whole, rowsOf(t, old, columns, "version = 2"), slices.Equal) }, "read models are those of the source")
	final := checkpointsOf(t, source)
	maps.Copy(final, checkpoints)
	testkit.Eventually(t, endTime, func() bool { return maps.Equal(final, checkpointsOf(t, old)) }, "version 1 is where it was, and all others are at the head")
	require.Equal(t, untouched, writtenBy(t, old, columns, "version = 1"), "version 1 was not rewritten")
	verdict := command(t, nil, "verify", "--dsn", dsn)
	require.Zero(t, verdict.code, verdict)
}

// previousDatabase makes a second database of the source's cluster with an earlier schema.
func previousDatabase(t *testing.T, source *pgx.Conn, of schema) (dsn string) {
	t.Helper()
	ctx := t.Context()
	_, err := source.Exec(ctx, "CREATE DATABASE previous")
	require.NoError(t, err)
	config := source.Config().Copy()
	config.Database = "previous"
	db := stdlib.OpenDB(*config, stdlib.OptionAfterConnect(func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, "SET ROLE backbone_owner")
		return err
	}))
	defer func() { _ = db.Close() }()
	_, err = source.Exec(ctx, "GRANT CREATE ON DATABASE previous TO backbone_owner")
	require.NoError(t, err)
	_, err = db.ExecContext(ctx, "CREATE SCHEMA backbone")
	require.NoError(t, err)
	for _, set := range []struct {
		versions string // table
		files    fs.FS
		version  int64
	}{
		{"backbone.migrations_backbone", backbonesql.Migrations, of.backbone}, {"backbone.migrations_gl", glsql.FS, of.gl}, {"backbone.migrations_ap", apsql.FS, of.ap},
	} {
		files, err := fs.Sub(set.files, "migrations")
		require.NoError(t, err)
		provider, err := goose.NewProvider(goose.DialectPostgres, db, files, goose.WithTableName(set.versions), goose.WithDisableGlobalRegistry(true), goose.WithLogger(goose.NopLogger()))
		require.NoError(t, err)
		_, err = provider.UpTo(ctx, set.version)
		require.NoError(t, err)
	}
	dsn = strings.Replace(source.Config().ConnString(), "/backbone?", "/previous?", 1)
	require.NoError(t, migrate.KeyStore(ctx, dsn, nil), "it has not changed since")
	return dsn
}

// copyTables copies the tables of read models, or all others, as the releases before stored them. What
// is appended in between, their projections have not read.
func copyTables(t *testing.T, source, old *pgx.Conn, columns map[string][]string, ofReadModels bool) {
	t.Helper()
	for table, names := range columns {
		if readModels.MatchString(table) == ofReadModels {
			copyRows(t, source, old, earlierRows(table, names), table, names)
		}
	}
}

// columnsOf empties the tables of an earlier release and returns their columns.
func columnsOf(t *testing.T, old *pgx.Conn) map[string][]string {
	t.Helper()
	ctx := t.Context()
	_, err := old.Exec(ctx, "SET session_replication_role = replica") // triggers guard these tables
	require.NoError(t, err)
	rows, err := old.Query(ctx, `SELECT n.nspname || '.' || c.relname, array_agg(a.attname ORDER BY a.attnum)
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
		WHERE n.nspname IN ('backbone', 'ap', 'gl', 'keystore') AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relname NOT LIKE '%migration%'
		GROUP BY 1`)
	require.NoError(t, err)
	columns := map[string][]string{}
	for rows.Next() {
		var table string
		var names []string
		require.NoError(t, rows.Scan(&table, &names))
		columns[table] = names
	}
	require.NoError(t, rows.Err())
	for table := range columns {
		_, err := old.Exec(ctx, "TRUNCATE "+table+" CASCADE") // migrations left rows in some
		require.NoError(t, err, table)
	}
	return columns
}

// earlierRows selects the rows of a table as the releases before stored them: one registry of
// event types for all tenants, callers in a table, and no administrative log.
func earlierRows(table string, columns []string) string {
	selected := strings.Join(columns, ", ")
	switch table {
	case "backbone.event_type_generation":
		return "SELECT true, count(*) FROM (" + earlierTypes + ") v WHERE true"
	case "backbone.event_type_registry":
		return "SELECT " + selected + " FROM (" + earlierTypes + ") v WHERE true"
	case "backbone.event_type_history":
		return "SELECT " + selected + ` FROM (SELECT registered_at AS changed_at, row_number() OVER (ORDER BY registered_at, type, schema_version) AS change, schema_version,
			'' AS tenant_id, type, 'registry.type.registered' AS action, registered_by AS actor, '' AS reason, sha256(convert_to(document::text, 'UTF8')) AS digest
			FROM (` + earlierTypes + ") v) h WHERE true"
	case "backbone.principals":
		return `SELECT r.tenant_id, r.data->>'principal_id', r.data->>'person_id', r.data->>'kind', '', r.data->>'label',
			ARRAY(SELECT json_array_elements_text(r.data->'roles')), ARRAY(SELECT json_array_elements_text(r.data->'legal_entities')),
			decode(t.data->>'token_sha256', 'hex'), coalesce((t.data->>'development')::boolean, false), (t.data->>'expires_at')::timestamptz, r.recorded_at
			FROM (` + latestAbout("backbone.principal.enrolled", "backbone.principal.granted") + ") r JOIN (" + latestAbout("backbone.token.issued", "backbone.token.rotated") + ") t USING (stream_id) WHERE true"
	}
	condition := "true"
	if slices.Contains(columns, "partition_id") {
		condition = "partition_id NOT IN (SELECT l.partition_id FROM backbone.legal_entities l WHERE l.code = '_ADMIN')"
	}
	return "SELECT " + selected + " FROM " + table + " WHERE " + condition
}

// earlierTypes are the registered versions, which of tenants are events of the administrative log.
const earlierTypes = `SELECT '' AS tenant_id, type, schema_version, module, retention_class, is_active, document, registered_at, registered_by FROM backbone.event_type_registry
	UNION ALL
	SELECT '', d->>'type', (d->>'schema_version')::int, (d->>'document')::json->>'module', (d->>'document')::json->>'retention_class', true, (d->>'document')::json, recorded_at, actor_id
	FROM (SELECT e.recorded_at, e.actor_id, p.payload->'data' AS d FROM backbone.events e JOIN backbone.event_payloads p USING (partition_id, sequence)
		WHERE e.type = 'backbone.event_type.registered') r
	WHERE d->>'document' IS NOT NULL`

// bindRows gives the rows of intents, idempotency keys and number series what the copied events bind,
// and the releases before did not have: the sequences of these events, columns that their digests
// cover, and that no key or number is from before.
func bindRows(t *testing.T, source, old *pgx.Conn) {
	t.Helper()
	_, err := old.Exec(t.Context(), "CREATE TEMPORARY TABLE bound (partition_id integer, id uuid, last_sequence bigint, documents text[], caused_by_partition integer)")
	require.NoError(t, err)
	columns := []string{"partition_id", "id", "last_sequence", "documents", "caused_by_partition"}
	copyRows(t, source, old, "SELECT "+strings.Join(columns, ", ")+" FROM backbone.intents", "bound", columns)
	_, err = old.Exec(t.Context(), `UPDATE backbone.intents i SET last_sequence = b.last_sequence, documents = b.documents, caused_by_partition = b.caused_by_partition
		FROM bound b WHERE b.partition_id = i.partition_id AND b.id = i.id`)
	require.NoError(t, err)
	_, err = old.Exec(t.Context(), "UPDATE backbone.idempotency_keys SET bound = true")
	require.NoError(t, err)
	_, err = old.Exec(t.Context(), "UPDATE backbone.number_series SET unbound_through = 0")
	require.NoError(t, err)
}

// registryTables are those whose rows the upgrade gives to tenants.
var registryTables = []string{"backbone.event_type_generation", "backbone.event_type_registry", "backbone.event_type_history"}

// latestAbout selects the newest event of each principal among those of some types.
func latestAbout(types ...string) string {
	return `SELECT DISTINCT ON (e.stream_id) e.stream_id, e.tenant_id, e.recorded_at, p.payload->'data' AS data
		FROM backbone.events e JOIN backbone.event_payloads p USING (partition_id, sequence)
		WHERE e.type IN ('` + strings.Join(types, "', '") + `') ORDER BY e.stream_id, e.sequence DESC`
}

// copyRows copies what a query finds to a table.
func copyRows(t *testing.T, source, old *pgx.Conn, selected, table string, columns []string) {
	t.Helper()
	ctx := t.Context()
	read, write := io.Pipe()
	go func() {
		_, err := source.PgConn().CopyTo(ctx, write, "COPY ("+selected+") TO STDOUT")
		write.CloseWithError(err)
	}()
	_, err := old.PgConn().CopyFrom(ctx, read, "COPY "+table+" ("+strings.Join(columns, ", ")+") FROM STDIN")
	require.NoError(t, err, table)
}

// rowsOf returns the rows of the tables that meet a condition, as text.
func rowsOf(t *testing.T, c *pgx.Conn, columns map[string][]string, condition string) map[string][]string {
	t.Helper()
	return selected(t, c, columns, "", condition)
}

// writtenBy returns the rows with the transactions that wrote them.
func writtenBy(t *testing.T, c *pgx.Conn, columns map[string][]string, condition string) map[string][]string {
	t.Helper()
	return selected(t, c, columns, "xmin, ", condition)
}

func selected(t *testing.T, c *pgx.Conn, columns map[string][]string, first, condition string) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for table, names := range columns {
		rows, err := c.Query(t.Context(), "SELECT ROW("+first+strings.Join(names, ", ")+")::text FROM "+table+" WHERE "+condition+" ORDER BY 1")
		require.NoError(t, err)
		out[table], err = pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
	}
	return out
}

func checkpointsOf(t *testing.T, c *pgx.Conn) map[string]int {
	t.Helper()
	return placed(t, c, "sequence")
}

func processedOf(t *testing.T, c *pgx.Conn) map[string]int {
	t.Helper()
	return placed(t, c, "processed")
}

// placed returns a column of each checkpoint.
func placed(t *testing.T, c *pgx.Conn, column string) map[string]int {
	t.Helper()
	rows, err := c.Query(t.Context(), `SELECT projection || ' ' || version || ' in ' || partition_id, `+column+` FROM backbone.projection_checkpoints`)
	require.NoError(t, err)
	out := map[string]int{}
	var place string
	var n int
	_, err = pgx.ForEachRow(rows, []any{&place, &n}, func() error { out[place] = n; return nil })
	require.NoError(t, err)
	return out
}

// readReports returns the reports once the read models are at the heads.
func readReports(t *testing.T, auditor client) (out []string) {
	t.Helper()
	for _, entity := range []string{"USMF", "DEMF"} {
		head, err := auditor.head(entity)
		require.NoError(t, err)
		for _, path := range []string{"gl/trial-balance", "ap/open-items", "ap/vendors"} {
			var report map[string]json.RawMessage
			require.NoError(t, auditor.wantCaughtUp(&report, "/api/"+path+"?legal_entity="+entity+"&min_sequence="+head))
			out = append(out, string(report["accounts"])+string(report["rows"]))
			require.NotEmpty(t, out[len(out)-1], path)
		}
	}
	return out
}
