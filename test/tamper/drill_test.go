package tamper

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/postgres"
	"github.com/erpbackbone/backbone/application/verify"
	"github.com/erpbackbone/backbone/cmd/wire"
	"github.com/erpbackbone/backbone/modules"
	"github.com/erpbackbone/backbone/test/moduletest"
	"github.com/erpbackbone/backbone/test/testkit"
)

// catalogColumn is a column as the catalog has it.
type catalogColumn struct {
	name, kind string // kind is the name of its type
	isKey      bool   // it is part of the primary key
}

// readCatalog lists the tables of the schemas and their columns, physical partitions left out.
func readCatalog(t *testing.T, conn *pgx.Conn) map[string][]catalogColumn {
	t.Helper()
	rows, err := conn.Query(t.Context(), `
		SELECT n.nspname || '.' || c.relname, a.attname::text, format_type(a.atttypid, NULL),
		       EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary AND a.attnum = ANY (i.indkey))
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
		WHERE n.nspname NOT IN ('information_schema', 'saved') AND n.nspname !~ '^pg_' AND c.relkind IN ('r', 'p') AND NOT c.relispartition
		ORDER BY 1, a.attnum`)
	require.NoError(t, err)
	defer rows.Close()
	out := map[string][]catalogColumn{}
	for rows.Next() {
		var of string
		var c catalogColumn
		require.NoError(t, rows.Scan(&of, &c.name, &c.kind, &c.isKey))
		out[of] = append(out[of], c)
	}
	require.NoError(t, rows.Err())
	return out
}

// TestVerdicts_CoverCatalog demands a verdict for each table and column that the migrations
// make, and none for others.
func TestVerdicts_CoverCatalog(t *testing.T) {
	t.Parallel()
	catalog := readCatalog(t, connect(t, moduletest.Database(t, modules.BuiltIn()...)))
	unjudged := maps.Clone(catalog)
	judged := map[string]bool{} // by table and target
	for _, v := range verdicts {
		columns, exists := catalog[v.name]
		require.True(t, exists, "there is no table %s", v.name)
		require.False(t, judged[v.name+v.target], "%s has two verdicts about the same rows", v.name)
		judged[v.name+v.target] = true
		delete(unjudged, v.name)
		left := map[string]bool{}
		for _, c := range columns {
			left[c.name] = true
		}
		for _, j := range v.columns {
			for _, name := range strings.Fields(j.columns) {
				require.True(t, left[name], "%s has no column %s (or it has two verdicts)", v.name, name)
				delete(left, name)
			}
			v.requireReason(t, j)
		}
		require.Empty(t, slices.Sorted(maps.Keys(left)), "columns of %s without a verdict: what finds an edit, what heals it, or why can it not matter?", v.name)
		v.requireReason(t, v.deleted)
		v.requireReason(t, v.invented)
	}
	require.Empty(t, slices.Sorted(maps.Keys(unjudged)), "tables without a verdict")
}

func (v *table) requireReason(t *testing.T, j verdict) {
	t.Helper()
	switch j.effect {
	case proof:
		require.NotEmpty(t, j.finds, v.name)
	case compared:
		require.NotEmpty(t, j.projection, v.name)
	case healed:
		require.NotNil(t, j.probe.answer, v.name)
	default:
		require.NotEmpty(t, j.why, "%s needs a reason", v.name)
	}
}

// otherValue is another valid value of a column, by its type.
func otherValue(c catalogColumn) string {
	switch c.kind {
	case "bigint", "integer", "smallint", "numeric", "date":
		return fmt.Sprintf("coalesce(%s + 1, %s)", c.name, map[bool]string{true: "current_date", false: "1"}[c.kind == "date"])
	case "timestamp with time zone", "timestamp without time zone":
		return c.name + " + interval '1 microsecond'"
	case "boolean":
		return "NOT " + c.name
	case "uuid":
		return "gen_random_uuid()"
	case "bytea":
		return "sha256(" + c.name + ")"
	case "text[]":
		return "array_append(" + c.name + ", '/x')"
	case "json", "jsonb":
		return `'{"x":1}'`
	default:
		return "coalesce(" + c.name + ", '') || 'x'"
	}
}

// attack is one statement of a superuser.
type attack struct {
	name      string
	table     string
	statement string
	verdict   verdict
}

// attacks are those on a table: one for each column, a deleted row and an invented one.
func (v *table) attacks(columns []catalogColumn) (out []attack) {
	of := map[string]verdict{}
	for _, j := range v.columns {
		for _, name := range strings.Fields(j.columns) {
			of[name] = j
		}
	}
	where := v.target
	if where == "" {
		where = "true"
	}
	row := fmt.Sprintf("(t.tableoid, t.ctid) = (SELECT x.tableoid, x.ctid FROM %s x WHERE %s LIMIT 1)", v.name, where)
	var names, values []string
	for _, c := range columns {
		value := otherValue(c)
		if own, ok := v.edits[c.name]; ok {
			value = own
		}
		out = append(out, attack{v.name + "." + c.name, v.name, fmt.Sprintf("UPDATE %s t SET %s = %s WHERE %s", v.name, c.name, value, row), of[c.name]})
		names = append(names, c.name)
		value, ok := v.invents[c.name]
		switch {
		case ok:
		case c.isKey && c.name != "partition_id" && c.name != "tenant_id":
			value = otherValue(c)
		default:
			value = c.name
		}
		values = append(values, value)
	}
	return append(out,
		attack{v.name + ": a row deleted", v.name, fmt.Sprintf("DELETE FROM %s t WHERE %s", v.name, row), v.deleted},
		attack{v.name + ": a row invented", v.name, fmt.Sprintf("INSERT INTO %s (%s) SELECT %s FROM %s t WHERE %s", v.name, strings.Join(names, ", "), strings.Join(values, ", "), v.name, row), v.invented})
}

// TestTampering attacks every column that has a proof, is compared or heals, as a superuser for whom no
// trigger fires, and restores the table after each attack. The attacks are shared out between two copies
// of one installation: those that a node heals or compares go to the one that has a node, and each takes
// the next of the others. A third copy has the events of a complete tile of the global log.
func TestTampering(t *testing.T) {
	t.Parallel()
	filled := install(t)
	conn := connect(t, filled.dsn)
	catalog := readCatalog(t, conn)
	require.NoError(t, conn.Close(t.Context())) // or the database cannot be copied
	done := map[effect]int{}
	var onNode, onAny, onTile []attack
	for n := range verdicts {
		v := &verdicts[n]
		for _, a := range v.attacks(catalog[v.name]) {
			done[a.verdict.effect]++
			switch {
			case a.verdict.effect == harmless:
			case a.table == tilesTable:
				onTile = append(onTile, a)
			case a.verdict.effect == proof:
				onAny = append(onAny, a)
			default:
				onNode = append(onNode, a)
			}
		}
	}
	shared := queue(onAny)
	t.Run("with a node", func(t *testing.T) {
		t.Parallel()
		i := filled.copy(t)
		i.serve() // it does no other work, so that it does not read what an attack invents
		i.withstand(queue(onNode), shared)
	})
	t.Run("without a node", func(t *testing.T) {
		t.Parallel()
		filled.copy(t).withstand(shared)
	})
	t.Run("with a complete tile", func(t *testing.T) {
		t.Parallel()
		i := filled.copy(t)
		i.completeTile()
		t.Run("and a perfect attacker", func(t *testing.T) { i.withstandPerfection(t) })
		i.withstand(queue(onTile))
		t.Run("and a database that was set back", func(t *testing.T) { filled.copy(t).beginIncarnation() }) // to where filled is
	})
	t.Logf("%d attacks are found by verification, %d by comparing a rebuild; %d heal; %d are harmless", done[proof], done[compared], done[healed], done[harmless])
}

// queue lets each attack be taken once.
func queue(attacks []attack) <-chan attack {
	q := make(chan attack, len(attacks))
	for _, a := range attacks {
		q <- a
	}
	close(q)
	return q
}

// withstand takes the attacks of one queue after the other, and restores the installation after each.
func (i *installation) withstand(queues ...<-chan attack) {
	t := i.t
	reader := i.openReader()
	require.Empty(t, i.findings(reader))
	require.False(t, i.receiptsDiffer())
	i.exec("SET session_replication_role = replica")
	i.exec("CREATE SCHEMA saved")
	answers := map[string]string{}
	for _, q := range queues {
		for a := range q {
			if p := a.verdict.probe; p.answer != nil && answers[p.name] == "" {
				answers[p.name] = p.answer(i)
			}
			t.Run(a.name, func(t *testing.T) {
				i.t = t
				i.withstandOne(a, reader, answers)
			})
			i.t = t
		}
	}
	require.Empty(t, i.findings(reader), "everything was restored")
}

// withstandOne attacks an installation and restores it. answers are those of the probes before any attack.
func (i *installation) withstandOne(a attack, reader *postgres.Database, answers map[string]string) {
	t := i.t
	saved := "saved." + strings.ReplaceAll(a.table, ".", "_")
	i.exec("CREATE TABLE IF NOT EXISTS " + saved + " AS TABLE " + a.table)
	if a.verdict.effect == healed { // the node may just store the row again
		testkit.Eventually(t, time.Minute, func() bool { return i.exec(a.statement) == 1 })
	} else {
		require.EqualValues(t, 1, i.exec(a.statement), "the attack needs a row: %s", a.statement)
	}
	defer func() {
		// The node may just store a snapshot.
		i.exec("BEGIN; LOCK TABLE " + a.table + " IN EXCLUSIVE MODE; DELETE FROM " + a.table + "; INSERT INTO " + a.table + " SELECT * FROM " + saved + "; COMMIT")
	}()
	if a.verdict.effect == compared && a.table == "backbone.projections" {
		require.False(t, i.comparesEqual(a.verdict.projection), a.statement)
		return
	}
	if a.verdict.effect == compared {
		require.NotEqual(t, "0", i.differences(a.verdict.projection), a.statement)
		return
	}
	if a.verdict.effect == healed {
		require.Equal(t, answers[a.verdict.probe.name], a.verdict.probe.answer(i), a.statement)
		return
	}
	store := reader
	if a.table == "backbone.installation" {
		store = i.openReader()
	}
	found := i.findings(store)
	if strings.HasPrefix(a.table, "keystore.") && i.receiptsDiffer() {
		found = append(found, receiptsDiffer)
	}
	require.Contains(t, found, a.verdict.finds[0], a.statement)
	for _, kind := range found {
		require.Contains(t, a.verdict.finds, kind, a.statement)
	}
}

func (i *installation) exec(statement string, values ...any) int64 {
	i.t.Helper()
	tag, err := i.super.Exec(context.Background(), statement, values...)
	require.NoError(i.t, err, statement)
	return tag.RowsAffected()
}

// openReader opens the database as `backbone verify` does. Of what it reads it keeps only the row of
// backbone.installation in memory.
func (i *installation) openReader() *postgres.Database {
	i.t.Helper()
	store, err := wire.OpenReader(i.t.Context(), as(i.t, "backbone_reader", i.dsn).Reveal(), i.config.Archive)
	require.NoError(i.t, err)
	i.t.Cleanup(store.Close)
	return store
}

// findings are the kinds of all findings of a verification of everything.
func (i *installation) findings(store *postgres.Database) (kinds []verify.FindingKind) {
	i.t.Helper()
	reports, err := verify.Run(i.t.Context(), store.Chains(), "", nil, nil, verify.WithKeyStore(i.keys), verify.OpenKeys(i.keys.DataKeys))
	registries, registryErr := verify.Registries(i.t.Context(), store.Registry, "")
	require.NoError(i.t, registryErr)
	globalLog, globalErr := verify.GlobalLog(i.t.Context(), store.GlobalLog, i.anchors(), nil)
	require.NoError(i.t, globalErr)
	add := func(l verify.FindingList) {
		for _, f := range l.Findings {
			if !slices.Contains(kinds, f.Kind) {
				kinds = append(kinds, f.Kind)
			}
		}
	}
	for _, r := range reports {
		add(r.FindingList)
	}
	for _, r := range registries {
		add(r.FindingList)
	}
	add(globalLog.FindingList)
	if len(kinds) == 0 {
		require.NoError(i.t, err)
	}
	return kinds
}

// receiptsDiffer compares the receipts in the export folder with the key store, as `backbone
// verify` does. An error says that they could not be compared, which it reports too.
func (i *installation) receiptsDiffer() bool {
	i.t.Helper()
	finding, _, err := i.keys.CompareErased(i.t.Context(), "")
	return err != nil || finding != ""
}

// differences counts the rows in which the active version of a projection differs from the one
// that was rebuilt from the log.
func (i *installation) differences(projection string) string {
	i.t.Helper()
	var comparison struct {
		Rows        string   `json:"rows"`
		NotCompared []string `json:"not_compared"`
	}
	testkit.Eventually(i.t, time.Minute, func() bool { // the version that is built may not have begun everywhere
		comparison.NotCompared = nil
		i.call("operator", http.MethodPost, "/api/admin/projections/"+projection+"/compare", object{}, &comparison)
		return len(comparison.NotCompared) == 0
	})
	return comparison.Rows
}

// comparesEqual reports whether the active version of a projection is the same as the one that was
// rebuilt, in all legal entities: a version that is not there, not where the log is, or of one legal
// entity alone is not.
func (i *installation) comparesEqual(projection string) bool {
	i.t.Helper()
	var comparison struct {
		Rows        string   `json:"rows"`
		NotCompared []string `json:"not_compared"`
		OnlyLeft    []string `json:"only_left"`
		OnlyRight   []string `json:"only_right"`
	}
	status, answer := i.ask("operator", http.MethodPost, "/api/admin/projections/"+projection+"/compare", object{})
	if status >= 300 {
		return false
	}
	require.NoError(i.t, json.Unmarshal(answer, &comparison))
	return comparison.Rows == "0" && len(comparison.NotCompared)+len(comparison.OnlyLeft)+len(comparison.OnlyRight) == 0
}
