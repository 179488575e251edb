package registry_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/postgres"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pgtest"
	"github.com/erpbackbone/backbone/application/verify"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
	backbonesql "github.com/erpbackbone/backbone/sql/backbone"
)

// olderDatabase is a database with types in the one registry of the releases before 00023: a
// built-in one, and two of administrators, of which the first is deprecated.
func olderDatabase(t *testing.T) (dsn string, s *postgres.Database) {
	t.Helper()
	dsn = pgtest.Database(t)
	s = pgtest.Open(t, dsn)
	at := time.Date(2026, 3, 31, 12, 0, 0, 123456000, time.UTC)
	for i, name := range []string{"shop.order.placed", "crm.lead.won", "crm.lead.lost", "crm.lead.won"} {
		by := "p-1"
		if i == 0 {
			by = eventtype.ModuleActor("shop")
		}
		_, err := s.Registry.RegisterEventType(t.Context(), eventtype.Registration{
			Type: name, SchemaVersion: uint32(1 + i/3), Module: "crm", DataSchema: []byte(`{"type":"object","title":"<ä>"}`), RetentionClass: eventtype.Standard,
			RegisteredAt: at.Add(time.Duration(i) * time.Second), RegisteredBy: by,
		})
		require.NoError(t, err)
	}
	records, err := s.Registry.RegistryRecords(t.Context())
	require.NoError(t, err)
	deprecated := eventtype.Change{
		Number: 5, Action: eventtype.ActionDeprecated, Type: "crm.lead.won", SchemaVersion: 1, Digest: records[0].Changes[1].Digest, Actor: "p-2", Reason: "für „später“ 🧾", At: at,
	}
	link := deprecated.ChainChecksum(records[0].Changes[3].Checksum)
	superuser := pgtest.Connect(t, dsn)
	_, err = superuser.Exec(t.Context(), `INSERT INTO backbone.event_type_history (tenant_id, change, action, type, schema_version, digest, actor, reason, changed_at, checksum)
		VALUES ('', $1, $2, $3, $4, $5, $6, $7, $8, $9)`, deprecated.Number, deprecated.Action, deprecated.Type, deprecated.SchemaVersion,
		deprecated.Digest[:], deprecated.Actor, deprecated.Reason, deprecated.At, link[:])
	require.NoError(t, err)
	_, err = superuser.Exec(t.Context(), `UPDATE backbone.event_type_generation SET last_change = 5;
		SET ROLE backbone_owner;
		ALTER TABLE backbone.event_type_generation DROP COLUMN tenant_id;
		ALTER TABLE backbone.event_type_generation RENAME COLUMN last_change TO generation;
		ALTER TABLE backbone.event_type_generation ADD COLUMN singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton);
		DROP INDEX backbone.event_type_history_order;
		CREATE UNIQUE INDEX event_type_history_order ON backbone.event_type_history (change, schema_version)`)
	require.NoError(t, err)
	return dsn, s
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
		out, err := s.Registry.EventTypeHistory(t.Context(), "", "")
		require.NoError(t, err)
		return out
	}
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
		before, err := s.Registry.EventTypeHistory(t.Context(), "", "")
		require.NoError(t, err)
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

		shared, _, err := s.Registry.EventTypes(t.Context(), "")
		require.NoError(t, err)
		require.Len(t, shared, 1, name)
		require.Equal(t, "shop.order.placed", shared[0].Type)
		for tenant, want := range c.want {
			types, _, err := s.Registry.EventTypes(t.Context(), tenant)
			require.NoError(t, err)
			var got []string
			for _, r := range types {
				got = append(got, r.Type)
				require.Equal(t, r.Type == "crm.lead.lost" || r.SchemaVersion == 2, r.Active)
				require.Equal(t, "p-1", r.RegisteredBy)
			}
			require.Equal(t, want, got, "%s: %s", name, tenant)
		}
		after, err := s.Registry.EventTypeHistory(t.Context(), "", "")
		require.NoError(t, err)
		require.Equal(t, before, after[:len(before)], "the chain from before")
		require.Len(t, after, len(before)+3)
		reports, err := verify.Registries(t.Context(), s.Registry)
		require.NoError(t, err)
		for _, r := range reports {
			require.True(t, r.Sound(), "%s: %s: %v", name, r.Tenant, r.Findings)
		}
		// The registries go on.
		_, err = s.Registry.RegisterEventType(t.Context(), eventtype.Registration{
			TenantID: "acme", Type: "crm.lead.won", SchemaVersion: 3, Module: "crm", DataSchema: []byte(`{"type":"object"}`), RegisteredBy: "p-1",
		})
		require.NoError(t, err)
		reports, err = verify.Registries(t.Context(), s.Registry)
		require.NoError(t, err)
		require.True(t, reports[1].Sound(), reports[1].Findings)
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
		s := pgtest.Open(t, dsn)
		_, err := s.Registry.RegisterEventType(t.Context(), eventtype.Registration{
			TenantID: "acme", Type: "crm.lead.won", SchemaVersion: 1, Module: "crm", DataSchema: []byte(`{"type":"object"}`), RetentionClass: eventtype.Standard, RegisteredBy: "p-1",
		})
		require.NoError(t, err)
		_, err = s.Registry.ChangeEventType(t.Context(), eventtype.Change{TenantID: "acme", Action: eventtype.ActionDeprecationProposed, Type: "crm.lead.won", Actor: "p-2"})
		require.NoError(t, err)
		reader := pgtest.Open(t, dsn, func(c *postgres.Config) { c.DSN = pgtest.As("backbone_reader", dsn) })
		findings := func() (all []verify.Finding) {
			reports, err := verify.Registries(t.Context(), reader.Registry)
			require.NoError(t, err)
			for _, r := range reports {
				all = append(all, r.Findings...)
			}
			return all
		}
		require.Empty(t, findings())
		superuser := pgtest.Connect(t, dsn)
		_, err = superuser.Exec(t.Context(), "SET session_replication_role = replica; "+attack)
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
	_, err := s.Registry.EventTypeGenerations(ctx)
	require.Equal(t, "store.unavailable", fault.CodeOf(err), "%v", err)
	_, _, err = s.Registry.EventTypes(ctx, "")
	require.Equal(t, "store.unavailable", fault.CodeOf(err), "%v", err)
}
