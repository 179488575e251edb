package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/test/testkit"
)

// buildingView is a version that is being built.
type buildingView struct {
	Version  int  `json:"version"`
	CaughtUp bool `json:"caught_up"`
	Faulted  int  `json:"faulted"`
}

// versionsView is the versions of a projection with their status.
type versionsView struct {
	Active        int           `json:"active"`
	Retained      int           `json:"retained"`
	Dropping      []int         `json:"dropping"`
	Building      *buildingView `json:"building"`
	LegalEntities []struct {
		LegalEntity string        `json:"legal_entity"`
		Retained    int           `json:"retained"`
		Building    *buildingView `json:"building"`
	} `json:"legal_entities"`
	Snapshots []struct {
		Version     int    `json:"version"`
		LegalEntity string `json:"legal_entity"`
		Complete    bool   `json:"complete"`
	} `json:"snapshots"`
}

// statistics is what a subscription has counted.
type statistics struct {
	Delivered    int `json:"delivered"`
	Acknowledged int `json:"acknowledged"`
	Retried      int `json:"retried"`
	Parked       int `json:"parked"`
}

// TestDrillUpgradeOfVersionsAndDeadLetters upgrades a database of the release before dead
// letters had a separate table. It has an active, a retained and a building version of a
// projection, a custom projection, and a subscription with messages in every state: all of
// them keep their state and continue.
func TestDrillUpgradeOfVersionsAndDeadLetters(t *testing.T) {
	t.Parallel()
	const entity = "USMF"
	ctx := t.Context()
	d := startOn(t, copyOfBooks(t), recoveryStart)
	registerMachines(t, d)
	cli := func(d *dev, args ...string) string { t.Helper(); return d.as(t, "admin").succeed(t, args...) }
	cli(d, "projections", "rebuild", "gl.ledger", "--switch", "--wait")
	cli(d, "projections", "rebuild", "ap.open-items", "--wait")
	own := filepath.Join(t.TempDir(), "serviced.json")
	require.NoError(t, os.WriteFile(own, []byte(`{"name":"serviced","filter":{"types":["`+machineType+`"]},"key":".stream.id","fold":"{count: ((.state.count // 0) + 1)}"}`), 0o600))
	cli(d, "projections", "create", own)
	module := d.as(t, "module")
	var events []string
	for i := range 12 {
		events = append(events, machineServiced(entity, fmt.Sprintf("M-%d", i), `{"hours":1}`))
	}
	require.NoError(t, module.want(http.StatusCreated, nil, "POST", "/api/events", batch(events...)))
	const at = "/api/subscriptions/machines"
	require.NoError(t, module.want(http.StatusCreated, nil, "POST", "/api/subscriptions", `{"id":"machines","subscriber_type":"service","subscriber_id":"machines","event_types":["`+machineType+`"],
		"settings":{"partition_by":"stream","message_timeout_ms":3600000,"retry_first_ms":3600000,"retry_longest_ms":3600000}}`))
	var got pollResult
	require.NoError(t, module.want(http.StatusOK, &got, "GET", at+"/poll?limit=10", ""))
	require.Len(t, got.Events, 10)
	quoted := func(from, to int) string { return pollResult{Events: got.Events[from:to]}.ids() }
	require.NoError(t, module.want(http.StatusOK, nil, "POST", at+"/acknowledge", `{"event_ids":`+quoted(0, 3)+`}`))
	require.NoError(t, module.want(http.StatusOK, nil, "POST", at+"/nack", `{"event_ids":`+quoted(3, 7)+`,"action":"park","code":"machine.closed","reason":"The machine is closed."}`))
	require.NoError(t, module.want(http.StatusOK, nil, "POST", at+"/nack", `{"event_ids":`+quoted(7, 8)+`,"action":"retry","code":"machine.busy","reason":"Later."}`))
	type standing struct {
		Parked     int        `json:"parked"`
		Waiting    int        `json:"waiting"`
		InFlight   int        `json:"in_flight"`
		Statistics statistics `json:"statistics"`
	}
	readStatus := func(c client) (s standing) {
		t.Helper()
		require.NoError(t, c.want(http.StatusOK, &s, "GET", at, ""))
		return s
	}
	parked := func(c client) string {
		t.Helper()
		var out struct {
			Messages json.RawMessage `json:"messages"`
		}
		require.NoError(t, c.want(http.StatusOK, &out, "GET", at+"/parked", ""))
		return string(out.Messages)
	}
	want, wantParked := readStatus(module), parked(module)
	require.Equal(t, 4, want.Parked)
	require.Equal(t, statistics{Delivered: 10, Acknowledged: 3, Retried: 1, Parked: 4}, want.Statistics)
	require.Contains(t, wantParked, "machine.closed")
	readReports(t, d.as(t, "auditor"))
	rows := func(c client) (page customRows) {
		t.Helper()
		head, err := d.as(t, "auditor").head(entity)
		require.NoError(t, err)
		require.NoError(t, c.wantCaughtUp(&page, "/api/projections/serviced?legal_entity="+entity+"&min_sequence="+head))
		return page
	}
	require.Len(t, rows(d.as(t, "auditor")).Rows, 12)

	// The state as the release before stored it.
	source, err := pgx.Connect(ctx, superuser(t, d.dataDir))
	require.NoError(t, err)
	defer func() { _ = source.Close(context.Background()) }()
	dsn := previousDatabase(t, source, beforeParked)
	old, err := pgx.Connect(ctx, dsn)
	require.NoError(t, err)
	defer func() { _ = old.Close(context.Background()) }()
	const messages, snapshots = "backbone.subscription_messages", "backbone.event_snapshots"
	columns := columnsOf(t, old)
	_, err = old.Exec(ctx, `INSERT INTO backbone.event_snapshots VALUES (1, now(), 1, 1, 2, 'gl.ledger', '{}')`) // only a trial wrote it
	require.NoError(t, err)
	for _, table := range []string{snapshots, "backbone.leases", "backbone.nodes"} { // of a node that is gone
		delete(columns, table)
	}
	copyTables(t, source, old, columns, true)
	submitInvoices(t, d)
	wantReports, wantRows := readReports(t, d.as(t, "auditor")), rows(d.as(t, "auditor"))
	copyTables(t, source, old, columns, false)
	for _, table := range registryTables {
		delete(columns, table)
	}
	kept := rowsOf(t, old, columns, "true")
	require.NotEmpty(t, kept["backbone.subscription_cursors"])
	letters := []string{"subscription", "partition_id", "sequence", "event_id", "order_key", "consumer", "attempts", "handed_at", "code", "detail", "changed_at"}
	list := strings.Join(letters, ", ")
	copyRows(t, source, old, "SELECT 'parked', "+list+" FROM backbone.subscription_parked", messages, append([]string{"state"}, letters...))
	wasParked := rowsOf(t, source, map[string][]string{"backbone.subscription_parked": letters}, "true")
	require.Len(t, wasParked["backbone.subscription_parked"], 4)
	checkpoints, processed := checkpointsOf(t, old), processedOf(t, old)

	migrated := command(t, nil, "migrate", "--dsn", dsn)
	require.Zero(t, migrated.code, migrated)
	require.Contains(t, migrated.stdout, "00019_parked_messages.sql")
	require.NotContains(t, migrated.stdout, "00015")
	delete(columns, "backbone.stream_snapshots") // a cache, which is dropped
	delete(kept, "backbone.stream_snapshots")
	require.Equal(t, kept, rowsOf(t, old, columns, "true"), "every row but the dead letters is where it was")
	require.Equal(t, wasParked, rowsOf(t, old, map[string][]string{"backbone.subscription_parked": letters}, "true"))
	require.Equal(t, checkpoints, checkpointsOf(t, old))
	bindRows(t, source, old)
	var counted int
	require.NoError(t, old.QueryRow(ctx, `SELECT sum(parked) FROM backbone.subscription_cursors`).Scan(&counted))
	require.Equal(t, 4, counted)
	maps.DeleteFunc(columns, func(table string, _ []string) bool {
		return !readModels.MatchString(table) || strings.HasPrefix(table, "backbone.") || table == "gl.line_totals"
	})
	untouched := writtenBy(t, old, columns, "true")

	// This release continues where the earlier one stopped.
	inPrevious := func(dsn string) string { return strings.Replace(dsn, "/backbone?", "/previous?", 1) }
	env := append(d.keys(), "BACKBONE_DATABASE_DSN="+inPrevious(d.DSN), "BACKBONE_DATABASE_ERASER_DSN="+inPrevious(d.EraserDSN))
	_, anonymous := startServe(t, inPrevious(d.DSN), env...)
	var owner string
	require.NoError(t, old.QueryRow(ctx, `SELECT owner FROM backbone.subscriptions`).Scan(&owner))
	after := &dev{devFile: devFile{HTTP: anonymous.server, Tokens: map[string]string{}}}
	for role, person := range map[string]string{"admin": "p-after", "auditor": "p-later", "module": owner} { // the demonstration's tokens are its own
		args := []string{"--role", role}
		if person == owner {
			args = append([]string{"--service", "--renew"}, serviceFlags("p-admin")...)
		}
		enrolled := command(t, env, append([]string{"enroll", "--tenant", d.Tenant, "--person", person}, args...)...)
		require.Zero(t, enrolled.code, enrolled)
		after.Tokens[role] = strings.TrimSpace(enrolled.stdout)
	}
	module = after.as(t, "module")
	require.Equal(t, wantReports, readReports(t, after.as(t, "auditor")))
	final := checkpointsOf(t, source)
	for place, n := range processedOf(t, old) {
		require.LessOrEqual(t, n-processed[place], final[place]-checkpoints[place], "%s processed at most the events that it had not read", place)
	}
	for table, rows := range writtenBy(t, old, columns, "true") {
		require.Subset(t, rows, untouched[table], "%s was not rewritten", table)
	}
	require.Equal(t, wantRows, rows(after.as(t, "auditor")))
	require.Equal(t, want, readStatus(module))
	require.Equal(t, wantParked, parked(module))
	require.NoError(t, module.want(http.StatusOK, &got, "GET", at+"/poll", ""))
	require.Len(t, got.Events, 2, "the two undelivered ones")
	require.NoError(t, module.want(http.StatusOK, nil, "POST", at+"/acknowledge", `{"event_ids":`+got.ids()+`}`))
	require.Contains(t, cli(after, "subscriptions", "replay", "machines", "--all"), "4 messages queued for delivery again.")
	require.NoError(t, module.want(http.StatusOK, &got, "GET", at+"/poll", ""))
	require.Len(t, got.Events, 4)

	// Versions keep their status, and new operations work on them.
	versions := func(name string) (b versionsView) {
		t.Helper()
		require.NoError(t, json.Unmarshal([]byte(cli(after, "projections", "versions", name, "--json")), &b))
		return b
	}
	ledger := versions("gl.ledger")
	require.Equal(t, ledger.Retained+1, ledger.Active)
	require.NotNil(t, versions("ap.open-items").Building)
	cli(after, "projections", "rollback", "gl.ledger")
	require.Contains(t, cli(after, "projections", "rebuild", "gl.ledger", "--legal-entity", entity, "--compare", "--switch"), ": 0 rows differ")
	cli(after, "projections", "switch", "ap.open-items")
	cli(after, "projections", "snapshot", "ap.open-items", "--wait")
	require.NoError(t, os.WriteFile(own, []byte(`{"name":"serviced","filter":{"types":["`+machineType+`"]},"key":".stream.id","fold":"{times: ((.state.times // 0) + 1)}"}`), 0o600))
	cli(after, "projections", "change", own, "--switch")
	testkit.Eventually(t, endTime, func() bool { return versions("serviced").Building == nil })
	require.JSONEq(t, `{"times":1}`, string(rows(after.as(t, "auditor")).Rows[0].State))
	require.Equal(t, wantReports, readReports(t, after.as(t, "auditor")))
	verdict := command(t, nil, "verify", "--dsn", dsn)
	require.Zero(t, verdict.code, verdict)
}
