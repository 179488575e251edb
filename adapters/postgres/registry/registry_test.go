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
	backbonesql "github.com/erpbackbone/backbone/sql/backbone"
)

// The migration adds registrations from before the history to it.
func TestMigrate_HistoryOfExistingRegistrations(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	s := pgtest.Open(t, dsn)
	at := time.Date(2026, 3, 31, 12, 0, 0, 0, time.UTC)
	for i, name := range []string{"crm.lead.won", "crm.lead.lost", "crm.lead.won"} {
		_, err := s.Registry.RegisterEventType(t.Context(), eventtype.Registration{
			Type: name, SchemaVersion: uint32(1 + i/2), Module: "crm", DataSchema: []byte(`{"type":"object","title":"<ä>"}`), RetentionClass: eventtype.Standard,
			Active: true, RegisteredAt: at.Add(time.Duration(i) * time.Second), RegisteredBy: "p-1",
		})
		require.NoError(t, err)
	}
	want, err := s.Registry.EventTypeHistory(t.Context(), "crm.lead.won")
	require.NoError(t, err)
	require.Len(t, want, 2)
	before, generation, err := s.Registry.EventTypes(t.Context())
	require.NoError(t, err)

	superuser := pgtest.Connect(t, dsn)
	_, err = superuser.Exec(t.Context(), `SET ROLE backbone_owner; DROP TABLE backbone.event_type_history`)
	require.NoError(t, err)
	for _, name := range []string{"00007_registry_history", "00021_registry_chain"} { // alone: what else follows is there already
		migration, err := backbonesql.Migrations.ReadFile("migrations/" + name + ".sql")
		require.NoError(t, err)
		_, err = superuser.Exec(t.Context(), string(migration))
		require.NoError(t, err)
	}
	got, err := s.Registry.EventTypeHistory(t.Context(), "crm.lead.won")
	require.NoError(t, err)
	require.Equal(t, want, got)
	after, _, err := s.Registry.EventTypes(t.Context())
	require.NoError(t, err)
	require.Equal(t, before, after)
	for _, c := range got {
		require.LessOrEqual(t, c.Number, generation)
	}
	report, err := verify.Registry(t.Context(), s.Registry)
	require.NoError(t, err)
	require.True(t, report.Sound(), "%v", report.Findings)
}

// The migration computes the same chain as the program, for any content of the history.
func TestMigrate_ChainsExistingHistory(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	s := pgtest.Open(t, dsn)
	for _, version := range []uint32{1, 2} {
		_, err := s.Registry.RegisterEventType(t.Context(), eventtype.Registration{
			Type: "crm.lead.won", SchemaVersion: version, Module: "crm", DataSchema: []byte(`{"type":"object"}`), RetentionClass: eventtype.Standard,
			Active: true, RegisteredAt: time.Date(2026, 3, 31, 12, 0, 0, 123456000, time.UTC), RegisteredBy: "p-1",
		})
		require.NoError(t, err)
	}
	for _, action := range []eventtype.Action{eventtype.ActionDeprecated, eventtype.ActionReactivated} {
		_, err := s.Registry.ChangeEventType(t.Context(), eventtype.Change{Action: action, Type: "crm.lead.won", Actor: "p-2", Reason: "für „später“ 🧾"})
		require.NoError(t, err)
	}
	want, err := s.Registry.RegistryRecord(t.Context())
	require.NoError(t, err)
	superuser := pgtest.Connect(t, dsn)
	migration, err := backbonesql.Migrations.ReadFile("migrations/00021_registry_chain.sql")
	require.NoError(t, err)
	_, err = superuser.Exec(t.Context(), `SET ROLE backbone_owner; DROP TRIGGER event_type_history_append_only ON backbone.event_type_history;
		ALTER TABLE backbone.event_type_history DROP COLUMN checksum; DROP INDEX backbone.event_type_history_order; `+string(migration))
	require.NoError(t, err)
	got, err := s.Registry.RegistryRecord(t.Context())
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// A superuser can bypass the triggers; verification finds the changed row.
func TestVerify_FindsTamperedRegistry(t *testing.T) {
	t.Parallel()
	for attack, kind := range map[string]verify.FindingKind{
		"UPDATE backbone.event_type_history SET actor = 'p-9' WHERE change = 2":      verify.ChecksumMismatch,
		"UPDATE backbone.event_type_history SET tenant_id = 'acme' WHERE change = 2": verify.SequenceGap, // and the type would take events again
		"DELETE FROM backbone.event_type_history WHERE change = 2":                   verify.SequenceGap,
		"UPDATE backbone.event_type_registry SET document = '{}'":                    verify.RegistrationMismatch,
		"UPDATE backbone.event_type_registry SET is_active = false":                  verify.RegistrationMismatch,
		"UPDATE backbone.event_type_registry SET registered_by = 'p-9'":              verify.RegistrationMismatch,
		"INSERT INTO backbone.event_type_registry SELECT tenant_id, type, 7, module, retention_class, is_active, document, registered_at, registered_by FROM backbone.event_type_registry": verify.RegistrationMismatch,
	} {
		dsn := pgtest.Database(t)
		s := pgtest.Open(t, dsn)
		_, err := s.Registry.RegisterEventType(t.Context(), eventtype.Registration{
			Type: "crm.lead.won", SchemaVersion: 1, Module: "crm", DataSchema: []byte(`{"type":"object"}`), RetentionClass: eventtype.Standard, Active: true, RegisteredBy: "p-1",
		})
		require.NoError(t, err)
		_, err = s.Registry.ChangeEventType(t.Context(), eventtype.Change{Action: eventtype.ActionDeprecated, Type: "crm.lead.won", Actor: "p-2"})
		require.NoError(t, err)
		reader := pgtest.Open(t, dsn, func(c *postgres.Config) { c.DSN = pgtest.As("backbone_reader", dsn) })
		report, err := verify.Registry(t.Context(), reader.Registry)
		require.NoError(t, err)
		require.True(t, report.Sound(), "%v", report.Findings)
		superuser := pgtest.Connect(t, dsn)
		_, err = superuser.Exec(t.Context(), "SET session_replication_role = replica; "+attack)
		require.NoError(t, err)
		report, err = verify.Registry(t.Context(), reader.Registry)
		require.NoError(t, err)
		require.NotEmpty(t, report.Findings, attack)
		require.Equal(t, kind, report.Findings[0].Kind, attack)
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
	_, err := s.Registry.EventTypesGeneration(ctx)
	require.Equal(t, "store.unavailable", fault.CodeOf(err), "%v", err)
	_, _, err = s.Registry.EventTypes(ctx)
	require.Equal(t, "store.unavailable", fault.CodeOf(err), "%v", err)
}
