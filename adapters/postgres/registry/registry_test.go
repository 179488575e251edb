package registry_test

import (
	"context"
	"crypto/sha256"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/postgres"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pgtest"
	"github.com/erpbackbone/backbone/adapters/system"
	"github.com/erpbackbone/backbone/application/administration"
	"github.com/erpbackbone/backbone/application/verify"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
	backbonesql "github.com/erpbackbone/backbone/sql/backbone"
	"github.com/erpbackbone/backbone/test/typestest"
)

// olderDatabase is a database with types in the one registry of the releases before 00023: a
// built-in one, and two of administrators, of which the first is deprecated.
func olderDatabase(t *testing.T) (dsn string, s *postgres.Database) {
	t.Helper()
	dsn = pgtest.Database(t)
	s = pgtest.Open(t, dsn)
	unseal(t, dsn)
	var changes []eventtype.Change
	for i, name := range []string{"shop.order.placed", "crm.lead.won", "crm.lead.lost", "crm.lead.won"} {
		by := "p-1"
		if i == 0 {
			by = eventtype.ModuleActor("shop")
		}
		changes = append(changes, insertVersion(t, dsn, eventtype.Registration{
			Type: name, SchemaVersion: uint32(1 + i/3), Module: "crm", DataSchema: []byte(`{"type":"object","title":"<ä>"}`), RetentionClass: eventtype.Standard,
			RegisteredAt: at.Add(time.Duration(i) * time.Second), RegisteredBy: by,
		}))
	}
	changes = append(changes, eventtype.Change{Action: eventtype.ActionDeprecated, Type: "crm.lead.won", SchemaVersion: 1, Digest: changes[1].Digest, Actor: "p-2", Reason: "für „später“ 🧾", At: at})
	insertChanges(t, dsn, "", changes)
	_, err := pgtest.Connect(t, dsn).Exec(t.Context(), `SET ROLE backbone_owner;
		ALTER TABLE backbone.event_type_generation DROP COLUMN tenant_id;
		ALTER TABLE backbone.event_type_generation RENAME COLUMN last_change TO generation;
		ALTER TABLE backbone.event_type_generation ADD COLUMN singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton);
		DROP INDEX backbone.event_type_history_order;
		CREATE UNIQUE INDEX event_type_history_order ON backbone.event_type_history (change, schema_version)`)
	require.NoError(t, err)
	return dsn, s
}

var at = time.Date(2026, 3, 31, 12, 0, 0, 123456000, time.UTC)

// unseal takes 00031 back.
func unseal(t *testing.T, dsn string) {
	t.Helper()
	_, err := pgtest.Connect(t, dsn).Exec(t.Context(), `SET ROLE backbone_owner;
		DROP TRIGGER event_type_history_sealed ON backbone.event_type_history;
		DROP TRIGGER event_type_generation_sealed ON backbone.event_type_generation;
		ALTER TABLE backbone.event_type_registry DROP CONSTRAINT event_type_registry_sealed;
		ALTER TABLE backbone.event_types DROP COLUMN is_shared`)
	require.NoError(t, err)
}

// insertVersion stores a version as earlier releases did, and returns its change.
func insertVersion(t *testing.T, dsn string, r eventtype.Registration) eventtype.Change {
	t.Helper()
	document, err := r.Document()
	require.NoError(t, err)
	superuser := pgtest.Connect(t, dsn)
	_, err = superuser.Exec(t.Context(), `INSERT INTO backbone.event_types (type, number) SELECT $1, coalesce(max(number), 0) + 1 FROM backbone.event_types ON CONFLICT DO NOTHING`, r.Type)
	require.NoError(t, err)
	_, err = superuser.Exec(t.Context(), `INSERT INTO backbone.event_type_registry (tenant_id, type, schema_version, module, retention_class, is_active, document, registered_at, registered_by)
		VALUES ($1, $2, $3, $4, $5, true, $6, $7, $8)`, r.TenantID, r.Type, r.SchemaVersion, r.Module, r.RetentionClass, string(document), r.RegisteredAt, r.RegisteredBy)
	require.NoError(t, err)
	return r.Registered(sha256.Sum256(document))
}

// insertChanges stores the chain of a registry as earlier releases did.
func insertChanges(t *testing.T, dsn, tenantID string, changes []eventtype.Change) {
	t.Helper()
	superuser := pgtest.Connect(t, dsn)
	link := eventtype.ChainStart(tenantID)
	for i, c := range changes {
		c.Number = int64(i) + 1
		link = c.ChainChecksum(link)
		_, err := superuser.Exec(t.Context(), `INSERT INTO backbone.event_type_history (tenant_id, change, action, type, schema_version, digest, actor, reason, changed_at, checksum)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`, tenantID, c.Number, c.Action, c.Type, c.SchemaVersion, c.Digest[:], c.Actor, c.Reason, c.At, link[:])
		require.NoError(t, err)
	}
	_, err := superuser.Exec(t.Context(), `INSERT INTO backbone.event_type_generation (tenant_id, last_change) VALUES ($1, $2)
		ON CONFLICT (tenant_id) DO UPDATE SET last_change = excluded.last_change`, tenantID, len(changes))
	require.NoError(t, err)
}

// typesOf are the registries of a node.
func typesOf(t *testing.T, s *postgres.Database) *administration.EventTypes {
	t.Helper()
	return typestest.New(t, typestest.Store{Appender: s.Appender, Events: s.Events, Idempotency: s.Intents, Entities: s.Directory, Chains: s.Audit, Types: s.Registry}, pgtest.LogName, system.Clock{})
}

func migrate(t *testing.T, dsn, name string, before ...string) {
	t.Helper()
	migration, err := backbonesql.Migrations.ReadFile("migrations/" + name + ".sql")
	require.NoError(t, err)
	superuser := pgtest.Connect(t, dsn)
	for _, sql := range append(before, string(migration)) {
		_, err = superuser.Exec(t.Context(), "SET ROLE backbone_owner; "+sql)
		require.NoError(t, err)
	}
}

// The migrations 00007 and 00021 compute the same history and chain as the program, for any
// content.
func TestMigrate_HistoryAndChain(t *testing.T) {
	t.Parallel()
	dsn, s := olderDatabase(t)
	history := func() []eventtype.Change {
		out, err := s.Registry.RegistryRecord(t.Context(), "")
		require.NoError(t, err)
		return out.Changes
	}
	upgradeGenerations(t, dsn)
	want := history()
	require.Len(t, want, 5)
	migrate(t, dsn, "00021_registry_chain", `DROP TRIGGER event_type_history_append_only ON backbone.event_type_history;
		ALTER TABLE backbone.event_type_history DROP COLUMN checksum; DROP INDEX backbone.event_type_history_order`)
	require.Equal(t, want, history())
	migrate(t, dsn, "00007_registry_history", `DROP TABLE backbone.event_type_history`)
	migrate(t, dsn, "00021_registry_chain")
	require.Equal(t, want[:4], history(), "deprecations came with the history")
}

// Types that administrators registered go to the tenants that use them, with all their changes;
// the chain from before stays as it is.
func TestMigrate_TypesOfTenants(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		tenants []string // the first one has events of crm.lead.won
		admin   string   // the tenant of the person who registered them
		want    map[string][]string
	}{
		"one tenant":                     {[]string{"acme"}, "", map[string][]string{"acme": {"crm.lead.lost", "crm.lead.won", "crm.lead.won"}}},
		"by events":                      {[]string{"acme", "globex"}, "", map[string][]string{"acme": {"crm.lead.won", "crm.lead.won"}, "globex": nil}},
		"by events, and the registrar's": {[]string{"acme", "globex"}, "globex", map[string][]string{"acme": {"crm.lead.won", "crm.lead.won"}, "globex": {"crm.lead.lost", "crm.lead.won", "crm.lead.won"}}},
		"no tenant":                      {nil, "", map[string][]string{"acme": nil}},
	} {
		dsn, s := olderDatabase(t)
		require.NoError(t, s.Directory.Bootstrap(t.Context(), ports.Installation{LogName: pgtest.LogName, Deployment: 5}))
		for i, tenant := range c.tenants {
			le, err := s.Directory.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: tenant, Code: "DEMF", Name: "D", TimeZone: "UTC", Status: "active", CreatedAt: time.Now()})
			require.NoError(t, err)
			if i == 0 {
				e := pgtest.Invoice(le.Partition, 1)
				e.Events[0].Type = "crm.lead.won"
				_, err = s.Appender.Append(t.Context(), e)
				require.NoError(t, err)
			}
		}
		if c.admin != "" {
			_, err := pgtest.Connect(t, dsn).Exec(t.Context(), `INSERT INTO backbone.principals
				(tenant_id, principal_id, person_id, actor_type, display_name, role_label, roles, legal_entities, token_hash, development, created_at)
				VALUES ($1, 'l-1', 'p-1', 'human', '', 'admin', '{admin}', '{}', '', false, now())`, c.admin)
			require.NoError(t, err)
		}
		migrate(t, dsn, "00023_registry_tenants", `ALTER TABLE backbone.event_type_history DROP CONSTRAINT event_type_history_action_check;
			ALTER TABLE backbone.event_type_history ADD CONSTRAINT event_type_history_action_check CHECK (action <> '')`)

		exported, err := verify.Registries(t.Context(), s.Registry, "")
		require.NoError(t, err)
		heads := verify.Against(verify.HeadsOf(pgtest.LogName, time.Now(), nil, exported))
		migrate(t, dsn, "00031_event_type_log")

		types := typesOf(t, s)
		shared, _, err := types.EventTypes(t.Context(), "")
		require.NoError(t, err)
		require.Len(t, shared, 1, name)
		require.Equal(t, "shop.order.placed", shared[0].Type)
		for tenant, want := range c.want {
			_, err := types.RegisterEventType(t.Context(), eventtype.Registration{TenantID: tenant, Type: "shop.order.placed", SchemaVersion: 1}) // begins the log
			require.Equal(t, "event_type.owned_by_module", fault.CodeOf(err))
			_, err = types.ChangeEventType(t.Context(), eventtype.Change{TenantID: tenant, Type: "crm.lead.gone", Action: eventtype.ActionRejected, Actor: "p-1"})
			require.Equal(t, "event_type.not_found", fault.CodeOf(err))
			listed, _, err := types.EventTypes(t.Context(), tenant)
			require.NoError(t, err)
			var got []string
			for _, r := range listed {
				got = append(got, r.Type)
				require.Equal(t, r.Type == "crm.lead.lost" || r.SchemaVersion == 2, r.Active)
				require.Equal(t, "p-1", r.RegisteredBy)
			}
			require.Equal(t, want, got, "%s: %s", name, tenant)
		}
		after, err := s.Registry.RegistryRecord(t.Context(), "")
		require.NoError(t, err)
		require.Len(t, after.Changes, 5+3, "the chain from before, and the moves")
		// The registries go on, in the log.
		_, err = types.RegisterEventType(t.Context(), eventtype.Registration{
			TenantID: "acme", Type: "crm.lead.won", SchemaVersion: 3, Module: "crm", DataSchema: []byte(`{"type":"object"}`), RegisteredBy: "p-1",
		})
		require.NoError(t, err)
		listed, generation, err := typesOf(t, s).EventTypes(t.Context(), "acme")
		require.NoError(t, err)
		require.Len(t, listed, len(c.want["acme"])+1)
		history, err := types.EventTypeHistory(t.Context(), "acme", "")
		require.NoError(t, err)
		require.Len(t, history, int(generation))
		if len(c.want["acme"]) > 0 {
			change := eventtype.Change{TenantID: "acme", Type: "crm.lead.won", SchemaVersion: 2, Action: eventtype.ActionDeprecationProposed, Actor: "p-1"}
			_, err = types.ChangeEventType(t.Context(), change)
			require.NoError(t, err)
			change.Action, change.Actor = eventtype.ActionDeprecated, "p-2"
			_, err = types.ChangeEventType(t.Context(), change)
			require.NoError(t, err)
		}
		reports, err := verify.Registries(t.Context(), s.Registry, "", heads)
		require.NoError(t, err)
		for _, r := range reports {
			require.True(t, r.Sound(), "%s: %s: %v", name, r.Tenant, r.Findings)
		}
		logs, err := verify.Run(t.Context(), s.Chains(), "acme", []string{ports.AdministrativeCode}, nil)
		require.NoError(t, err)
		require.True(t, logs[0].Sound(), "%s: %v", name, logs[0].Findings)
	}
}

// upgradeGenerations gives the generation its tenant, as 00023 does.
func upgradeGenerations(t *testing.T, dsn string) {
	t.Helper()
	_, err := pgtest.Connect(t, dsn).Exec(t.Context(), `SET ROLE backbone_owner;
		ALTER TABLE backbone.event_type_generation DROP COLUMN singleton;
		ALTER TABLE backbone.event_type_generation RENAME COLUMN generation TO last_change;
		ALTER TABLE backbone.event_type_generation ADD COLUMN tenant_id text NOT NULL DEFAULT ''`)
	require.NoError(t, err)
}

// formerRegistry gives a tenant the registry of an earlier release: a version, and the proposal
// to deprecate it.
func formerRegistry(t *testing.T, dsn string) {
	t.Helper()
	unseal(t, dsn)
	registered := insertVersion(t, dsn, eventtype.Registration{
		TenantID: "acme", Type: "crm.lead.won", SchemaVersion: 1, Module: "crm", DataSchema: []byte(`{"type":"object"}`), RetentionClass: eventtype.Standard, RegisteredAt: at, RegisteredBy: "p-1",
	})
	proposed := registered
	proposed.Action, proposed.Actor = eventtype.ActionDeprecationProposed, "p-2"
	insertChanges(t, dsn, "acme", []eventtype.Change{registered, proposed})
	migrate(t, dsn, "00031_event_type_log")
}

// What a node of this release may write is no registry of a tenant, and no history.
func TestStore_FormerRegistriesAreSealed(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	s := pgtest.Open(t, dsn)
	_, err := s.Registry.RegisterEventType(t.Context(), eventtype.Registration{Type: "shop.order.placed", SchemaVersion: 1, Module: "shop", DataSchema: []byte(`{"type":"object"}`), RegisteredBy: "module:shop"})
	require.NoError(t, err)
	for role, want := range map[string][2]string{"": {"42501", "23514"}, "backbone_app": {"42501", "23514"}} {
		session := pgtest.Connect(t, dsn)
		if role != "" {
			session = pgtest.Connect(t, pgtest.As(role, dsn))
		}
		for statement, code := range map[string]string{
			"INSERT INTO backbone.event_type_history DEFAULT VALUES":        want[0],
			"UPDATE backbone.event_type_generation SET tenant_id = 'acme'":  want[0],
			"INSERT INTO backbone.event_type_generation VALUES (1, 'acme')": want[0],
			"INSERT INTO backbone.event_type_registry SELECT 'acme', type, 7, module, retention_class, is_active, document, registered_at, registered_by FROM backbone.event_type_registry": want[1],
		} {
			_, err := session.Exec(t.Context(), statement)
			require.Equal(t, code, pgtest.SQLState(err), "%s: %s", role, statement)
		}
	}
}

// A row of an earlier registry that is not as the log sealed it holds up its tenant, and an
// invented one gives it no type.
func TestEventTypes_FormerRegistryTampered(t *testing.T) {
	t.Parallel()
	for _, attack := range []string{
		"UPDATE backbone.event_type_registry SET document = '{}'",
		"DELETE FROM backbone.event_type_registry",
		"DELETE FROM backbone.event_type_history WHERE change = 2",
		"UPDATE backbone.event_type_history SET actor = 'p-9' WHERE change = 2",
		"INSERT INTO backbone.event_type_registry SELECT tenant_id, type, 7, module, retention_class, is_active, document, registered_at, registered_by FROM backbone.event_type_registry",
	} {
		dsn := pgtest.Database(t)
		s := pgtest.Open(t, dsn)
		require.NoError(t, s.Directory.Bootstrap(t.Context(), ports.Installation{LogName: pgtest.LogName, Deployment: 5}))
		formerRegistry(t, dsn)
		made, err := typesOf(t, s).ChangeEventType(t.Context(), eventtype.Change{TenantID: "acme", Type: "crm.lead.won", SchemaVersion: 1, Action: eventtype.ActionDeprecated, Actor: "p-1"})
		require.NoError(t, err, "what was proposed before is confirmed in the log")
		require.Len(t, made, 1)
		_, err = pgtest.Connect(t, dsn).Exec(t.Context(), "ALTER TABLE backbone.event_type_registry DROP CONSTRAINT event_type_registry_sealed; SET session_replication_role = replica; "+attack)
		require.NoError(t, err)
		listed, _, err := typesOf(t, s).EventTypes(t.Context(), "acme")
		if strings.HasPrefix(attack, "INSERT") {
			require.NoError(t, err)
			require.Len(t, listed, 1, "no change registered the other")
			require.False(t, listed[0].Active)
		} else {
			require.Equal(t, "event_type.record_broken", fault.CodeOf(err), attack)
		}
		reports, err := verify.Registries(t.Context(), s.Registry, "")
		require.NoError(t, err)
		require.True(t, slices.ContainsFunc(reports, func(r verify.RegistryReport) bool { return !r.Sound() }), attack)
		if strings.Contains(attack, "DELETE FROM backbone.event_type_history") {
			logs, err := verify.Run(t.Context(), s.Chains(), "acme", nil, nil)
			require.NoError(t, err)
			require.Equal(t, verify.RegistrationMismatch, logs[0].Findings[0].Kind)
		}
	}
}

// A superuser can bypass the triggers; verification finds the changed row.
func TestVerify_FindsTamperedRegistry(t *testing.T) {
	t.Parallel()
	for attack, kind := range map[string]verify.FindingKind{
		"UPDATE backbone.event_type_history SET actor = 'p-9' WHERE change = 2":        verify.ChecksumMismatch,
		"UPDATE backbone.event_type_history SET tenant_id = 'globex' WHERE change = 2": verify.SequenceGap, // and the type would take events again
		"UPDATE backbone.event_type_registry SET tenant_id = 'globex'":                 verify.RegistrationMismatch,
		"DELETE FROM backbone.event_type_history WHERE change = 2":                     verify.SequenceGap,
		"UPDATE backbone.event_type_registry SET document = '{}'":                      verify.RegistrationMismatch,
		"UPDATE backbone.event_type_registry SET is_active = false":                    verify.RegistrationMismatch,
		"UPDATE backbone.event_type_registry SET registered_by = 'p-9'":                verify.RegistrationMismatch,
		"INSERT INTO backbone.event_type_registry SELECT tenant_id, type, 7, module, retention_class, is_active, document, registered_at, registered_by FROM backbone.event_type_registry": verify.RegistrationMismatch,
	} {
		dsn := pgtest.Database(t)
		formerRegistry(t, dsn)
		reader := pgtest.Open(t, dsn, func(c *postgres.Config) { c.DSN = pgtest.As("backbone_reader", dsn) })
		findings := func() (all []verify.Finding) {
			reports, err := verify.Registries(t.Context(), reader.Registry, "")
			require.NoError(t, err)
			for _, r := range reports {
				all = append(all, r.Findings...)
			}
			return all
		}
		require.Empty(t, findings())
		superuser := pgtest.Connect(t, dsn)
		_, err := superuser.Exec(t.Context(), "ALTER TABLE backbone.event_type_registry DROP CONSTRAINT event_type_registry_sealed; SET session_replication_role = replica; "+attack)
		require.NoError(t, err)
		found := findings()
		require.NotEmpty(t, found, attack)
		require.Equal(t, kind, found[0].Kind, attack)
	}
}

// TestEventTypes_WaitForConnectionIsBounded reads the registry while all connections are in
// use, as when the transactions of projections each read an event of a version that their
// node does not know: without a bound they would wait for each other for ever.
func TestEventTypes_WaitForConnectionIsBounded(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t, pgtest.Database(t), func(c *postgres.Config) { pgtest.SetLockTimeout(c, 20*time.Millisecond) })
	ctx, cancel := context.WithTimeout(t.Context(), pgtest.WaitLimit)
	defer cancel()
	for range s.Pool().Config().MaxConns {
		conn, err := s.Pool().Acquire(ctx)
		require.NoError(t, err)
		t.Cleanup(conn.Release)
	}
	_, err := s.Registry.SharedGeneration(ctx)
	require.Equal(t, "store.unavailable", fault.CodeOf(err), "%v", err)
	_, _, err = s.Registry.SharedEventTypes(ctx)
	require.Equal(t, "store.unavailable", fault.CodeOf(err), "%v", err)
}
