package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/kmsd"
	"github.com/erpbackbone/backbone/adapters/postgres/migrate"
	"github.com/erpbackbone/backbone/adapters/postgres/monitor"
	"github.com/erpbackbone/backbone/cmd/wire"
	"github.com/erpbackbone/backbone/configs"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/modules"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/moduletest"
	"github.com/erpbackbone/backbone/test/testkit"
	"github.com/erpbackbone/backbone/test/typestest"
)

func as(t *testing.T, role, dsn string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	q := u.Query()
	q.Set("role", role)
	u.RawQuery = q.Encode()
	return u.String()
}

// migratedLog is a migrated log with one legal entity.
func migratedLog(t *testing.T) string {
	t.Helper()
	dsn := moduletest.Database(t, modules.BuiltIn()...)
	s, err := wire.OpenReader(t.Context(), as(t, "backbone_app", dsn), configs.Archive{})
	require.NoError(t, err)
	defer s.Close()
	require.NoError(t, s.Directory.Bootstrap(t.Context(), ports.Installation{LogName: "test.example.org"}))
	_, err = s.Directory.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: "demo", Code: "USMF", TimeZone: "UTC", Status: "active"})
	require.NoError(t, err)
	return dsn
}

// doctorUntil runs the command until its answer is enough: a busy machine may not answer a question in
// the few seconds that an operator's may take.
func doctorUntil(t *testing.T, o doctorOptions, enough func(text string) bool) (sound bool, text string) {
	t.Helper()
	testkit.Eventually(t, 2*time.Minute, func() bool {
		var out strings.Builder
		o.out = &out
		var err error
		if sound, err = runDoctor(t.Context(), o); fault.CodeOf(err) == "store.unavailable" {
			return false
		}
		require.NoError(t, err)
		text = out.String()
		return enough(text)
	}, "the questions are answered")
	return sound, text
}

func doctor(t *testing.T, o doctorOptions) (d diagnosis, text string) {
	t.Helper()
	answered := func(text string) bool { return !strings.Contains(text, "store.question_too_slow") }
	reported, text := doctorUntil(t, o, answered)
	o.json = true
	sound, encoded := doctorUntil(t, o, answered)
	require.NoError(t, json.Unmarshal([]byte(encoded), &d))
	require.Equal(t, reported, sound)
	require.Equal(t, d.Sound, sound)
	return d, text
}

func TestDoctorOfTwoDatabases(t *testing.T) {
	t.Parallel()
	dsn, keys := migratedLog(t), testkit.Database(t, nil, "empty")
	require.NoError(t, migrate.KeyStore(t.Context(), keys, nil))
	o := doctorOptions{DSN: as(t, "backbone_app", dsn), KeyStoreDSN: as(t, "backbone_app", keys), EraserDSN: as(t, "backbone_eraser", keys), PhysicalPartitions: 32}
	d, text := doctor(t, o)
	require.NotNil(t, d.Throughput)
	require.NotNil(t, d.Distribution)
	require.NotNil(t, d.Contention)
	require.NotNil(t, d.Storage)
	require.NotNil(t, d.Delivery.Erasures)
	require.NotNil(t, d.KeyStore.Contention)
	require.NotNil(t, d.KeyStore.Storage)
	subjects := map[string]bool{}
	for _, f := range d.Findings {
		subjects[f.Section+"/"+f.Subject] = true
	}
	for _, want := range []string{"contention/oldest snapshot", "contention/key store: oldest snapshot", "storage/partitions", "delivery/erasures", "throughput/appends", "distribution/events"} {
		require.Contains(t, subjects, want)
	}
	require.NotContains(t, subjects, "storage/key store: partitions")
	first, _, _ := strings.Cut(text, "\n")
	require.Regexp(t, `^(OK|WARN|FAIL) +[a-z]+: `, first, "findings come first")
	for _, table := range []string{"\nSettings\n", "\nThroughput by hour", "\nTables, ", "\nKey store: Tables, ", "demo/USMF"} {
		require.Contains(t, text, table)
	}
}

func TestDoctorSection(t *testing.T) {
	t.Parallel()
	o := doctorOptions{DSN: as(t, "backbone_app", migratedLog(t)), Section: "throughput", LegalEntity: "USMF", PhysicalPartitions: 32}
	d, text := doctor(t, o)
	require.NotNil(t, d.Throughput)
	require.Len(t, d.Findings, 1)
	require.Nil(t, d.Settings)
	require.Nil(t, d.Storage)
	require.NotContains(t, text, "Tables")

	o.LegalEntity, o.TenantID = "", "unknown"
	_, err := runDoctor(t.Context(), o)
	require.Equal(t, "legal_entity.not_found", fault.CodeOf(err), "no events is another answer")
	o.LegalEntity, o.TenantID = "NONE", ""
	_, err = runDoctor(t.Context(), o)
	require.Equal(t, "legal_entity.not_found", fault.CodeOf(err))
	o.Section = "feelings"
	_, err = runDoctor(t.Context(), o)
	require.Equal(t, "doctor.section_unknown", fault.CodeOf(err))
	require.ErrorContains(t, err, "throughput")
	o.Section, o.DSN = "distribution", as(t, "backbone_app", testkit.Database(t, nil, "empty"))
	_, err = runDoctor(t.Context(), o)
	require.Equal(t, "store.not_migrated", fault.CodeOf(err))
}

func TestDoctorOfAdministration(t *testing.T) {
	t.Parallel()
	dsn := migratedLog(t)
	o := doctorOptions{DSN: as(t, "backbone_app", dsn), Section: "administration", PhysicalPartitions: 32, Modules: modules.BuiltIn()}
	d, _ := doctor(t, o)
	require.Equal(t, monitor.FindingOK, d.Findings[0].Status)
	require.Empty(t, d.Administration.ReservedTypes)
	require.Empty(t, d.Administration.UnclaimedTypes)

	config := configs.Default()
	config.Database.DSN = configs.DSN(as(t, "backbone_app", dsn))
	server, err := wire.NewServer(t.Context(), config, wire.Options{Modules: modules.BuiltIn()})
	require.NoError(t, err)
	types := logTypes(t, server)
	for _, name := range []string{"crm.quote.sent", "crm.quote.lost"} {
		_, err := types.RegisterEventType(t.Context(), unclaimable(name))
		require.NoError(t, err)
	}
	deprecate(t, types, "crm.quote.lost")
	require.NoError(t, server.Close())
	super, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = super.Close(t.Context()) })
	for _, statement := range []string{
		`ALTER TABLE backbone.event_type_registry DROP CONSTRAINT event_type_registry_sealed`, // these rows are from before it
		`INSERT INTO backbone.event_types (type, number, is_shared) VALUES ('intent.guess', 9001, false), ('crm.lead.won', 9002, false), ('crm.offer.made', 9003, false)`,
		`INSERT INTO backbone.event_type_registry SELECT 'demo', t.type, 1, 'crm', 'standard', true, CASE t.type WHEN 'crm.offer.made' THEN
			'{"type": "crm.offer.made", "schema_version": 1, "data_schema": {"properties": {"number": {"type": "object"}}}, "business_keys": [{"name": "quote", "fields": ["number"]}]}'::json
			ELSE '{}' END, now(), 'p-1' FROM backbone.event_types t WHERE t.number > 9000`,
	} {
		_, err = super.Exec(t.Context(), statement)
		require.NoError(t, err)
	}
	d, text := doctor(t, o)
	require.Len(t, d.Administration.Policies, 1)
	require.Equal(t, "demo", d.Administration.Policies[0].TenantID)
	require.Len(t, d.Findings, 3, "the policies are those of this program")
	require.Contains(t, text, "intent.guess")
	require.Equal(t, []monitor.UnclaimedType{{TenantID: "demo", Type: "crm.offer.made", SchemaVersion: 1}, {TenantID: "demo", Type: "crm.quote.sent", SchemaVersion: 1}}, d.Administration.UnclaimedTypes)
	require.Contains(t, text, "event type crm.quote.sent version 1 of tenant demo")
	require.NotContains(t, text, "crm.lead.won")

	o.Modules = nil
	d, text = doctor(t, o)
	require.Len(t, d.Findings, 4)
	require.Contains(t, text, "policies of tenant demo")
}

// logTypes are the event types of tenants in the log of a server, without the checks of a
// registration.
func logTypes(t *testing.T, s *wire.Server) ports.EventTypes {
	t.Helper()
	store := s.App.Store
	installed, err := store.Directory.Installation(t.Context())
	require.NoError(t, err)
	return typestest.New(t, typestest.Store{
		Appender: store.Appender, Events: store.Events, Idempotency: store.Intents, Entities: store.Directory, Chains: store.Audit, Types: store.Registry,
	}, installed.LogName, testkit.NewClock(time.Now()))
}

// unclaimable is a version whose business key no event can claim.
func unclaimable(name string) eventtype.Registration {
	by := event.Actor{Type: event.Human, ID: "p-admin"}
	return eventtype.Registration{
		TenantID: "demo", Type: name, SchemaVersion: 1, Module: "crm", DataSchema: json.RawMessage(`{"type":"object","properties":{"number":{"type":"object"}}}`),
		BusinessKeys: []eventtype.BusinessKeyRule{{Name: "quote", Fields: []string{"number"}}}, Active: true, RegisteredAt: time.Now(), RegisteredBy: by.ID, By: by,
	}
}

// deprecate proposes and confirms the deprecation of a type.
func deprecate(t *testing.T, types ports.EventTypes, name string) {
	t.Helper()
	for i, action := range []eventtype.Action{eventtype.ActionDeprecationProposed, eventtype.ActionDeprecated} {
		by := event.Actor{Type: event.Human, ID: fmt.Sprintf("p-%d", i)}
		_, err := types.ChangeEventType(t.Context(), eventtype.Change{TenantID: "demo", Action: action, Type: name, Actor: by.ID, By: by, At: time.Now()})
		require.NoError(t, err)
	}
}

// TestDoctorWithoutKeyStore: a key store that cannot be reached keeps
// nothing else from being answered.
func TestDoctorWithoutKeyStore(t *testing.T) {
	t.Parallel()
	u, err := url.Parse(migratedLog(t))
	require.NoError(t, err)
	dsn := as(t, "backbone_app", u.String())
	u.Path = "/" + u.Path[1:] + "_is_not_there"
	d, text := doctor(t, doctorOptions{DSN: dsn, EraserDSN: u.String(), Section: "delivery"})
	require.True(t, d.Sound)
	require.NotNil(t, d.Delivery)
	require.Contains(t, text, "waiting intents: none")
	require.Contains(t, text, "WARN  delivery: erasures: not answered (store.")
	require.NotContains(t, text, "not asked")
}

// TestDoctorOrder checks that a wrong setting fails, and that a locked table keeps one query from
// its answer while the rest are answered.
func TestDoctorOrder(t *testing.T) {
	t.Parallel()
	dsn := migratedLog(t)
	config, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	_, err = conn.Exec(t.Context(), "ALTER DATABASE "+pgx.Identifier{config.Database}.Sanitize()+" SET synchronous_commit = off")
	require.NoError(t, err)
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "LOCK TABLE backbone.projection_checkpoints IN ACCESS EXCLUSIVE MODE")
	require.NoError(t, err)
	sound, text := doctorUntil(t, doctorOptions{DSN: as(t, "backbone_app", dsn), PhysicalPartitions: 32, Now: func() time.Time { return time.Now() }},
		func(text string) bool { return strings.Contains(text, "distribution: events") })
	require.NoError(t, tx.Rollback(t.Context()))
	require.False(t, sound)
	lines := strings.Split(text, "\n")
	require.True(t, strings.HasPrefix(lines[0], "FAIL  settings: "), lines[0])
	require.Contains(t, lines[1], "      -> ")
	require.Contains(t, text, "WARN  delivery: delivery: not answered (store.question_too_slow)")
}

func TestDoctorCredentials(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	keys, out := filepath.Join(root, "keys"), filepath.Join(root, "credentials")
	require.NoError(t, kmsd.IssueTo(keys, out))
	examine := func(path string) (bool, string) {
		t.Helper()
		return doctorUntil(t, doctorOptions{Section: "credentials", KMSCredentials: path}, func(string) bool { return true })
	}
	sound, text := examine(out)
	require.True(t, sound, text)
	require.Contains(t, text, "OK")
	_, text = examine(filepath.Join(root, "none"))
	require.Contains(t, text, "WARN")
	// A setting that names a file: break-glass credentials beside it are found by name and by content.
	file := filepath.Join(t.TempDir(), "kms.credentials")
	app, err := os.ReadFile(filepath.Join(out, "app"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, app, 0o600))
	sound, text = examine(file)
	require.True(t, sound, text)
	for _, name := range []string{"breakglass", "emergency"} {
		beside := filepath.Join(filepath.Dir(file), name)
		issued := filepath.Join(t.TempDir(), name)
		require.NoError(t, kmsd.IssueBreakGlass(keys, issued))
		require.NoError(t, os.Rename(issued, beside))
		sound, text = examine(file)
		require.False(t, sound)
		require.Contains(t, text, beside+" has break-glass rights")
		require.NoError(t, os.Remove(beside))
	}
	for want, spoil := range map[string]func(){
		"app is open to other users":         func() { require.NoError(t, os.Chmod(filepath.Join(out, "app"), 0o644)) },
		"credentials is open to other users": func() { require.NoError(t, os.Chmod(out, 0o755)) },
		"signer has break-glass rights": func() {
			require.NoError(t, os.WriteFile(filepath.Join(out, "signer"), []byte("[breakglass]\n"), 0o600))
		},
		"credentials is the folder of the keys": func() { require.NoError(t, os.WriteFile(filepath.Join(out, "principals"), nil, 0o600)) },
	} {
		spoil()
		sound, text := examine(out)
		require.False(t, sound)
		require.Contains(t, text, want)
	}
}
