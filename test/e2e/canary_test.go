package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/awskms"
	"github.com/erpbackbone/backbone/adapters/kmsd"
	domain "github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

// canaries are unique values of personal fields, named for their field.
type canaries struct {
	name, birthName, email, phone, iban, taxID, note, letter string
	street, city, hint                                       string    // of a nested object
	diagnoses                                                [2]string // of an array
	relativeName, relativeEmail, relativePhone               string    // of elements of an array
	vendorName, vendorAddress, vendorVAT                     string
	contactName                                              string
}

func newCanaries() canaries {
	word := func() string { // a unique word
		var b [6]byte
		_, _ = rand.Read(b[:]) // never fails
		return hex.EncodeToString(b[:])
	}
	digits := func(n int) string {
		limit := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil)
		d, err := rand.Int(rand.Reader, limit)
		if err != nil {
			panic(err) // never
		}
		return fmt.Sprintf("%0*d", n, d)
	}
	account := digits(18)
	whole, _ := new(big.Int).SetString(account+"131400", 10) // D is 13, E is 14
	check := 98 - new(big.Int).Mod(whole, big.NewInt(97)).Int64()
	return canaries{
		name: "Alma Kestrel " + word(), birthName: "Żółć Ångström-" + word() + " Ñuñez", email: "alma." + word() + "@canary.example.org",
		phone: "+49 30 " + digits(11), iban: fmt.Sprintf("DE%02d%s", check, account), taxID: "TAX-" + digits(14),
		note:   "Called on Monday about " + word() + "; wants the letter sent to the \"other\" flat.\nSecond line, tab\there, " + word() + ".",
		letter: "手紙 " + word() + " – für dich süß 🦜 " + word(),
		street: "Nachtigallenweg " + word() + " 12b", city: "Świnoujście " + word(), hint: "behind the blue gate " + word(),
		diagnoses:    [2]string{"J45.0 asthma " + word(), "M54.5 Rückenschmerz " + word()},
		relativeName: "Bertram Siskin " + word(), relativeEmail: word() + ".siskin@canary.example.net", relativePhone: "+45 70" + digits(10),
		vendorName: "Carla Bunting " + word(), vendorAddress: "Dompfaffgasse " + word() + ", 8001 Zürich", vendorVAT: "CHE-" + digits(12),
		contactName: "Dorte Finch " + word(),
	}
}

// values are the canaries by their names in reports of the scan.
func (c canaries) values() map[string]string {
	return map[string]string{
		"name": c.name, "birth name": c.birthName, "email": c.email, "phone": c.phone, "iban": c.iban, "tax id": c.taxID, "note": c.note, "letter": c.letter,
		"street": c.street, "city": c.city, "hint": c.hint, "first diagnosis": c.diagnoses[0], "second diagnosis": c.diagnoses[1],
		"relative's name": c.relativeName, "relative's email": c.relativeEmail, "relative's phone": c.relativePhone,
		"vendor's name": c.vendorName, "vendor's address": c.vendorAddress, "vendor's VAT id": c.vendorVAT, "contact's name": c.contactName,
	}
}

// canaryServer is a dev server and a second server on the same data, with everything that they
// write.
type canaryServer struct {
	canaries
	control string // value of a field that is not personal
	dir     string // of the dev server
	outside string // folder of what is recorded outside the data folder
	dev     *dev
	serve   *process
	second  client            // without a token
	tokens  map[string]string // for the second server
	tap     *trafficRecorder
	super   *pgx.Conn
}

// TestCanaryScan sends twenty unique values through every path and then searches, in every
// spelling, all that was written and sent: files
// of PostgreSQL, WAL, logs, statistics, traces, metrics, tables, exports, answers to
// readers without the entitlement, and the traffic between server and database. It also
// searches for the keys.
func TestCanaryScan(t *testing.T) {
	t.Parallel()
	c := startCanaryServer(t)
	require.Len(t, c.values(), 20)
	registerPersons(t, c.dev.as(t, "admin"))
	var keys [][]byte
	for _, m := range []*canaryScenario{
		c.newScenario(t, "USMF", "D", func(persona string) client { return c.dev.as(t, persona) }),
		c.newScenario(t, "DEMF", "S", func(persona string) client { return c.second.as(c.tokens[persona]) }),
	} {
		m.appendEvents(t)
		m.appendRefused(t)
		m.changeVendors(t)
		m.importDocuments(t)
		m.readEverywhere(t)
		keys = append(keys, c.keys(t)...)
		m.eraseSubjects(t)
	}
	c.commands(t)
	keys = append(keys, c.keys(t)...)
	c.dump(t)
	c.stop(t)
	c.scan(t, keys)
}

// startCanaryServer starts the servers and keeps everything that they write.
func startCanaryServer(t *testing.T) *canaryServer {
	t.Helper()
	c := &canaryServer{canaries: newCanaries(), control: "plain " + rand.Text() + " remark", dir: copyOfBooks(t), outside: t.TempDir(), tokens: map[string]string{}}
	for _, folder := range []string{"tap", "traces", "answers", "files", "tables"} {
		require.NoError(t, os.Mkdir(filepath.Join(c.outside, folder), 0o700))
	}
	// `backbone doctor` runs here, which wants fsync.
	configurePostgres(t, c.dir, `
fsync = 'on'
wal_keep_size = '4GB'
shared_preload_libraries = 'pg_stat_statements'
pg_stat_statements.track = 'all'
pg_stat_statements.track_utility = 'on'
track_activity_query_size = '64kB'
log_connections = 'on'
log_checkpoints = 'on'
`)
	c.dev = startOn(t, c.dir, recoveryStart)
	var err error
	c.super, err = pgx.Connect(t.Context(), superuser(t, c.dir))
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.super.Close(context.Background()) })
	_, err = c.super.Exec(t.Context(), "CREATE EXTENSION pg_stat_statements SCHEMA public")
	require.NoError(t, err)

	c.tap = startTrafficRecorder(t, c.dev.DSN, filepath.Join(c.outside, "tap"))
	keys := c.dev.keys()
	for _, persona := range []string{"module", "admin", "ap_clerk", "vendor_admin", "approver", "controller", "importer", "auditor", "compliance", "compliance_approver"} {
		person := "p-second-" + strings.ReplaceAll(persona, "_", "-")
		if persona != "module" && persona != "importer" {
			c.tokens[persona] = c.dev.as(t, "admin").enroll(t, person, persona)
			continue
		}
		r := command(t, append(keys, "BACKBONE_DATABASE_DSN="+c.dev.DSN),
			append([]string{"enroll", "--tenant", c.dev.Tenant, "--person", person, "--role", persona, "--service"}, serviceFlags("p-admin")...)...)
		require.Zero(t, r.code, r)
		c.tokens[persona] = r.stdout
	}
	c.serve, c.second = startServe(t, c.tap.dsnThrough(t, c.dev.DSN), append(keys,
		"BACKBONE_DATABASE_ERASER_DSN="+c.tap.dsnThrough(t, c.dev.EraserDSN), "BACKBONE_LOG_LEVEL=debug",
		"BACKBONE_TELEMETRY_OTLP_ENDPOINT="+startCollector(t, filepath.Join(c.outside, "traces")))...)
	return c
}

// saveFile saves an answer for the scan.
func (c *canaryServer) saveFile(t *testing.T, folder, name string, content []byte) {
	t.Helper()
	f, err := os.CreateTemp(filepath.Join(c.outside, folder), strings.NewReplacer("/", "_", " ", "_").Replace(name)+"-")
	require.NoError(t, err)
	_, err = f.Write(content)
	require.NoError(t, errors.Join(err, f.Close()))
}

// keys are the data keys in clear, opened with the application's rights at the key service.
func (c *canaryServer) keys(t *testing.T) (out [][]byte) {
	t.Helper()
	service, err := awskms.New(t.Context(), awskms.Config{Endpoint: c.dev.KMS.Endpoint, Region: kmsd.Region, CredentialsFile: c.dev.KMS.Credentials, Profile: kmsd.App, Signer: kmsd.Signer{}, Limits: awskms.Limits{Timeout: 2 * time.Second, Tries: 3, Backoff: 100 * time.Millisecond}})
	require.NoError(t, err)
	rows, err := c.super.Query(t.Context(), `
		SELECT s.partition_id, s.key_ref::text, k.version, k.wrapped, e.kms_key_id
		FROM keystore.data_subject_keys k JOIN keystore.data_subjects s USING (partition_id, subject_id, class) JOIN keystore.tenant_keks e ON e.tenant_id = k.tenant_id AND e.epoch = k.kek_epoch
		UNION ALL SELECT 0, s.secret_ref::text, s.version, s.wrapped, e.kms_key_id
		FROM keystore.tenant_secrets s JOIN keystore.tenant_keks e ON e.tenant_id = s.tenant_id AND e.epoch = s.kek_epoch`)
	require.NoError(t, err)
	type wrapped struct {
		Partition int32
		Reference string
		Version   int32
		Wrapped   []byte
		KEK       string
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[wrapped])
	require.NoError(t, err)
	require.NotEmpty(t, all)
	for _, w := range all {
		secret, err := service.Unwrap(t.Context(), w.KEK, w.Wrapped, ports.Bound(domain.PartitionID(w.Partition), w.Reference, uint32(w.Version)))
		require.NoError(t, err, "partition %d", w.Partition)
		require.NoError(t, secret.Use(func(b []byte) error {
			out = append(out, bytes.Clone(b))
			return nil
		}))
	}
	return out
}

// commands runs the operator's commands and saves their output and files.
func (c *canaryServer) commands(t *testing.T) {
	t.Helper()
	keys := append(c.dev.keys(), "BACKBONE_DATABASE_DSN="+c.dev.DSN)
	officer := c.dev.as(t, "compliance").environment()
	files := filepath.Join(c.outside, "files")
	run := func(env []string, args ...string) {
		t.Helper()
		r := command(t, env, args...)
		require.Zero(t, r.code, "%s: %s", args, r)
		c.saveFile(t, "files", strings.Join(args[:min(2, len(args))], " "), []byte(r.stdout+r.stderr))
	}
	run(keys, "keys", "rotate")
	run(keys, "keys", "export")
	run(keys, "keys", "list", "--json")
	run(keys, "verify", "--json")
	run(keys, "verify", "--export-head", filepath.Join(files, "heads.json"))
	run(nil, "doctor", "--dsn", c.dev.DSN)
	for _, entity := range c.dev.LegalEntities {
		run(keys, "export-log", "--legal-entity", entity, filepath.Join(files, entity+".jsonl"))
		run(nil, "verify", "--dump", filepath.Join(files, entity+".jsonl"))
	}
	run(officer, "erasure", "list")
	var all struct {
		Requests []erasureRequest `json:"erasure_requests"`
	}
	require.NoError(t, c.dev.as(t, "compliance").want(200, &all, "GET", "/api/erasure-requests?limit=1000", ""))
	for _, r := range all.Requests {
		run(officer, "erasure", "status", r.ID)
		if r.Status == "completed" {
			certificate := filepath.Join(files, r.ID+".json")
			run(officer, "erasure", "certificate", r.ID, "--out", certificate)
			run(nil, "verify-certificate", certificate, "--key", receiptKey(t, c.dev.Exports))
		}
	}
	for _, server := range []client{c.dev.as(t, "auditor"), c.second} {
		a, err := server.do("GET", "/metrics", "")
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, a.status)
		c.saveFile(t, "files", "metrics", a.body)
	}
}

// dump saves every table and the statistics of PostgreSQL as text.
func (c *canaryServer) dump(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	var statements int
	require.NoError(t, c.super.QueryRow(ctx, "SELECT count(*) FROM public.pg_stat_statements").Scan(&statements))
	require.Greater(t, statements, 100)
	rows, err := c.super.Query(ctx, `SELECT quote_ident(nspname) || '.' || quote_ident(relname) FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
		WHERE relkind IN ('r', 'm') AND NOT relisshared OR oid(c) IN ('public.pg_stat_statements'::regclass, 'pg_stat_activity'::regclass, 'pg_stats'::regclass) ORDER BY 1`)
	require.NoError(t, err)
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Greater(t, len(tables), 100)
	for _, table := range tables {
		f, err := os.Create(filepath.Join(c.outside, "tables", table))
		require.NoError(t, err)
		_, err = c.super.PgConn().CopyTo(ctx, f, fmt.Sprintf("COPY (SELECT t::text FROM %s t) TO STDOUT", table))
		require.NoError(t, errors.Join(err, f.Close()), table)
	}
}

// stop ends both servers; the clean end writes all pages of the database.
func (c *canaryServer) stop(t *testing.T) {
	t.Helper()
	require.NoError(t, c.super.Close(t.Context()))
	require.NoError(t, c.serve.signal(syscall.SIGTERM))
	code, err := c.serve.wait(endTime)
	require.NoError(t, err)
	require.Zero(t, code, c.serve.stderr)
	require.NoError(t, c.tap.stop())
	code, err = c.dev.interrupt()
	require.NoError(t, err)
	require.Zero(t, code, c.dev.stderr)
	for name, p := range map[string]*process{"dev": c.dev.process, "serve": c.serve} {
		c.saveFile(t, "files", name+" stdout", []byte(p.stdout.String()))
		c.saveFile(t, "files", name+" stderr", []byte(p.stderr.String()))
	}
	require.Greater(t, len(c.serve.stderr.String()), 10_000, "the log is not empty")
}

func (c *canaryServer) scan(t *testing.T, keys [][]byte) {
	t.Helper()
	var needles []needle
	for name, value := range c.values() {
		require.GreaterOrEqual(t, len(value), 16, name)
		needles = append(needles, spellings("canary: "+name, value)...)
	}
	slices.SortFunc(keys, bytes.Compare)
	keys = slices.CompactFunc(keys, bytes.Equal)
	for _, k := range keys {
		require.Len(t, k, 32)
		needles = append(needles, needle{"key: as bytes", k})
		for _, n := range encoded(k) {
			needles = append(needles, needle{"key: as " + n.name, n.text})
		}
	}
	controls := spellings("control", c.control)
	s := newScanner(t, append(needles, controls...))
	started := time.Now()
	require.NoError(t, s.folder(c.dir))
	inside, insideBytes := s.files, s.bytes
	require.NoError(t, s.folder(c.outside))
	took := time.Since(started)

	// The scan finds the control value, which is stored in clear.
	for _, place := range []string{"/pg/data/base/", "/pg/data/pg_wal/", "/tap/sent-", "/tables/backbone.event_payloads", "/files/USMF.jsonl", "/files/DEMF.jsonl"} {
		require.Contains(t, s.names(place), "control as text", place)
	}
	for _, place := range []string{"/traces/", "/tables/public.pg_stat_statements", "/pg/postgresql.log", "/backbone.log", "/kms-audit.log", "/files/metrics", "/exports/receipts", "/answers/"} {
		require.True(t, slices.ContainsFunc(s.seen, func(p string) bool { return strings.HasPrefix(p, place) }), "%s was scanned", place)
	}
	for _, n := range controls {
		for place := range s.where {
			delete(s.where[place], n.name)
		}
	}
	for place, names := range s.where {
		if len(names) == 0 {
			delete(s.where, place)
		}
	}
	require.Empty(t, s.found())
	t.Logf("%d needles (%d canaries, %d keys) in %d files with %d MiB of the data folder and %d other files with %d MiB, in %s: none found",
		len(needles), len(c.values()), len(keys), inside, insideBytes>>20, s.files-inside, (s.bytes-insideBytes)>>20, took.Round(time.Millisecond))
}
