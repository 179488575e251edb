package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

var personas = []string{
	"module", "importer", "ap_clerk", "approver", "vendor_admin", "treasurer", "gl_accountant", "controller", "cfo", "auditor",
	"compliance", "compliance_approver", "admin", "second_admin", "operator",
}

// invoice is a valid payload of ap.submit_invoice.
func invoice(vendor, number string) object {
	return object{
		"invoice_number": number, "vendor_id": vendor, "invoice_date": "2026-03-15", "due_date": "2026-04-14",
		"currency": "USD", "total_amount": 125, "tax_amount": 0,
		"lines": []object{{
			"line_number": 1, "description": "Widget", "quantity": 5, "unit_price": 25, "amount": 125, "account": "5100",
			"dimensions": object{"department": "PROD", "cost_center": "CC-5100"},
		}},
	}
}

func TestFirstStart(t *testing.T) {
	t.Parallel()
	needPostgres(t)
	s, err := seed()
	require.NoError(t, err)
	t.Logf("first start: %s", s.took)

	require.Equal(t, "demo", s.Tenant)
	require.Equal(t, []string{"USMF", "DEMF"}, s.LegalEntities)
	require.Len(t, s.Tokens, len(personas))
	require.Contains(t, s.DSN, "postgres://backbone_app:", "the application's own role")
	info, err := os.Stat(filepath.Join(s.dir, "dev.json"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), "the tokens are for the owner only")
	require.Zero(t, s.journals, "without --sample nothing is posted")

	printed := s.stdout.String()
	require.NotContains(t, printed, "SL-2026-000001", "no advice that does not work on empty books")
	require.Contains(t, printed, "Press Ctrl-C to stop.")
	require.Empty(t, s.stderr.String())

	require.Zero(t, s.exitCode, "Ctrl-C is a clean end")
	require.Contains(t, printed, "Stopped.")
	require.True(t, processGone(s.postmaster), "PostgreSQL ends with backbone")
	require.NoFileExists(t, filepath.Join(s.dir, "pg", "data", "postmaster.pid"))
}

// TestPersonas checks that each token is that of a distinct person with the role of its name.
func TestPersonas(t *testing.T) {
	t.Parallel()
	d := sharedDev(t)
	ctx := t.Context()
	connection, err := pgx.Connect(ctx, d.DSN)
	require.NoError(t, err)
	defer func() { _ = connection.Close(context.Background()) }()
	var principals, persons int
	require.NoError(t, connection.QueryRow(ctx, `SELECT count(*), count(DISTINCT p.payload->'data'->>'person_id') FROM backbone.events e
		JOIN backbone.event_payloads p USING (partition_id, sequence) WHERE e.type = 'backbone.principal.enrolled'`).Scan(&principals, &persons))
	require.Equal(t, len(personas), principals)
	require.Equal(t, len(personas), persons)
	seen := map[string]bool{}
	for _, persona := range personas {
		token := d.Tokens[persona]
		require.NotEmpty(t, token, persona)
		require.False(t, seen[token], persona)
		seen[token] = true
		require.NoError(t, d.as(t, persona).want(200, nil, "GET", "/api/admin/legal-entities", ""), persona)
	}
	var admins int
	for _, persona := range personas {
		a, err := d.as(t, persona).do("POST", "/api/admin/legal-entities", `{"code":"no good"}`)
		require.NoError(t, err)
		if a.status != 403 {
			admins++
		}
	}
	require.Equal(t, 2, admins)
}

// TestDrillLifecycle takes one data folder through starts, stops and kills of the processes,
// and finally tampers with the data, which verify must find.
func TestDrillLifecycle(t *testing.T) {
	t.Parallel()
	dir := copyOfBooks(t)
	s, err := seed()
	require.NoError(t, err)

	// A second start finds all data.
	d := startOn(t, dir, recoveryStart)
	starts := []time.Duration{d.took}
	require.Equal(t, s.Tokens, d.Tokens)
	require.Equal(t, s.LegalEntities, d.LegalEntities)
	for _, entity := range d.LegalEntities {
		head, err := d.as(t, "auditor").head(entity)
		require.NoError(t, err)
		require.Equal(t, s.heads[entity], head, "a later start writes nothing")
	}

	// A second backbone on the same folder reports the process that has it.
	refused := command(t, nil, "dev", "--data-dir", dir, "--http", "127.0.0.1:0")
	require.Equal(t, 1, refused.code)
	require.Contains(t, refused.stderr, fmt.Sprint(d.cmd.Process.Pid))

	d.as(t, "vendor_admin").must(t, "USMF", "ap.register_vendor", object{"vendor_id": "V-LIFE", "name": "Lifecycle Ltd", "country": "US"})
	var acknowledged []string
	submit := func(number string) {
		out := d.as(t, "ap_clerk").must(t, "USMF", "ap.submit_invoice", invoice("V-LIFE", number))
		acknowledged = append(acknowledged, out.event("ap.invoice.submitted"))
	}
	recovered := func() {
		t.Helper()
		for _, id := range acknowledged {
			require.NoError(t, d.as(t, "auditor").want(200, nil, "GET", "/api/events/"+id+"?legal_entity=USMF", ""))
		}
		verdict := command(t, nil, "verify", "--data-dir", dir)
		require.Zero(t, verdict.code, verdict)
		require.Contains(t, verdict.stdout, "Sound:")
	}

	// kill -9 of backbone: PostgreSQL stays behind, the next start ends it.
	submit("L-1")
	before, err := postmaster(dir)
	require.NoError(t, err)
	require.NoError(t, d.signal(syscall.SIGKILL))
	<-d.ended
	require.False(t, processGone(before), "PostgreSQL outlives its killed owner")
	d = startOn(t, dir, recoveryStart)
	starts = append(starts, d.took)
	require.Equal(t, s.Tokens, d.Tokens)
	require.True(t, processGone(before), "the PostgreSQL of the killed run")
	recovered()

	// kill -9 of PostgreSQL: backbone reports it and ends.
	submit("L-2")
	before, err = postmaster(dir)
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(before, syscall.SIGKILL))
	code, err := d.wait(endTime)
	require.NoError(t, err)
	require.Equal(t, 1, code)
	require.Regexp(t, regexp.MustCompile(`^backbone: PostgreSQL ended by itself; .*postgresql\.log.* \(dev\.postgres_died\)\n$`), d.stderr.String())
	d = startOn(t, dir, recoveryStart)
	starts = append(starts, d.took)
	recovered()
	t.Logf("later starts: %s", starts)
	if !raceDetector {
		require.Less(t, s.took, firstStart)
		require.Less(t, slices.Min(starts), laterStart, "the fastest: other starts may have met a busy machine")
	}

	tamper(t, d)
	code, err = d.interrupt()
	require.NoError(t, err)
	require.Zero(t, code)
	require.NoFileExists(t, filepath.Join(dir, "pg", "data", "postmaster.pid"))
}

// tamper changes stored events with rights that only the superuser of the database has, and
// requires that verify finds the place.
func tamper(t *testing.T, d *dev) {
	t.Helper()
	ctx := t.Context()
	app, err := pgx.Connect(ctx, d.DSN)
	require.NoError(t, err)
	defer func() { _ = app.Close(context.Background()) }()
	_, err = app.Exec(ctx, "UPDATE backbone.event_payloads SET payload = payload")
	require.ErrorContains(t, err, "permission denied", "the application cannot rewrite anything")

	victims, err := d.as(t, "auditor").events(url.Values{"stream_type": {"type"}, "stream_id": {"ap.invoice.submitted"}, "legal_entity": {"USMF"}})
	require.NoError(t, err)
	require.NotEmpty(t, victims)
	victim := victims[0]
	super, err := pgx.Connect(ctx, superuser(t, d.dataDir))
	require.NoError(t, err)
	defer func() { _ = super.Close(context.Background()) }()
	const rewrite = `UPDATE backbone.event_payloads p SET payload = replace(p.payload::text, '"total_amount":125', '"total_amount":925')::json
		FROM backbone.events e WHERE e.legal_entity = 'USMF' AND e.sequence = $1 AND p.partition_id = e.partition_id AND p.sequence = e.sequence`
	_, err = super.Exec(ctx, rewrite, victim.Sequence)
	require.Error(t, err, "the trigger refuses the superuser too")
	_, err = super.Exec(ctx, "SET session_replication_role = replica")
	require.NoError(t, err)
	changed, err := super.Exec(ctx, rewrite, victim.Sequence)
	require.NoError(t, err)
	require.EqualValues(t, 1, changed.RowsAffected())

	verdict := command(t, nil, "verify", "--dsn", d.DSN)
	require.Equal(t, 1, verdict.code, verdict)
	require.Contains(t, verdict.stdout, "TAMPERED")
	require.Contains(t, verdict.stdout, "USMF sequence "+victim.Sequence+" (event "+victim.ID+")")
	require.Regexp(t, `(?m)^DEMF .* sound$`, verdict.stdout)
	require.Zero(t, command(t, nil, "verify", "--dsn", d.DSN, "--legal-entity", "DEMF").code, "the other books are sound")

	verdict = command(t, nil, "verify", "--dsn", d.DSN, "--json")
	require.Equal(t, 1, verdict.code, verdict)
	var report struct {
		Sound    bool `json:"sound"`
		Finished bool `json:"finished"`
	}
	require.NoError(t, json.Unmarshal([]byte(verdict.stdout), &report))
	require.False(t, report.Sound)
	require.True(t, report.Finished)
}

func TestVerifyWithoutVerdict(t *testing.T) {
	t.Parallel()
	d := sharedDev(t)
	for name, args := range map[string][]string{
		"no server":            {"--dsn", "postgres://backbone_app@127.0.0.1:1/backbone"},
		"wrong password":       {"--dsn", strings.Replace(d.DSN, "backbone_app:", "backbone_app:not", 1)},
		"no such database":     {"--dsn", strings.Replace(d.DSN, "/backbone?", "/nothing?", 1)},
		"not a DSN":            {"--dsn", "nonsense"},
		"no data folder":       {},
		"unknown legal entity": {"--dsn", d.DSN, "--legal-entity", "XXXX"},
		"unknown tenant":       {"--dsn", d.DSN, "--tenant", "unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			verdict := command(t, nil, append([]string{"verify"}, args...)...)
			require.Equal(t, 2, verdict.code, verdict)
			require.Regexp(t, `^backbone: \S.*\n$`, verdict.stderr, "one line with the reason")
			require.NotContains(t, verdict.stdout, "Sound")
			require.NotContains(t, verdict.stderr, "password=")
		})
	}
}
