package eventlog_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/postgres/eventlog"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pgtest"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/conformance"
)

func TestRedactions(t *testing.T) {
	t.Parallel()
	conformance.RunRedactions(t, func(t *testing.T) conformance.RedactionStore { return pgtest.NewRedactionFixture(t).Store() })
}

func TestRedaction_the_database_refuses(t *testing.T) {
	t.Parallel()
	a := pgtest.NewRedactionFixture(t)
	ctx := t.Context()
	refused := func(code string, r ports.RedactionRequest, payload string) {
		t.Helper()
		_, err := a.RedactPayload(ctx, r, conformance.Replacement(a.Event.PayloadHash, payload))
		require.Equal(t, "redaction."+code, fault.CodeOf(err), "%v", err)
		require.NotContains(t, fmt.Sprintf("%+v", err), "Ada")
	}
	both := conformance.RedactedPointers()
	r := a.Store().Approved(t, both...)
	for _, payload := range []string{
		`{"data":{"name":"[REDACTED]","amount":1.5,"lines":[{"note":"[REDACTED]"},{"note":"x"}],"email":{"$pii":"AQ","sub":"employee:E-1"},"parts":[{"prices":[-2]}]},"dimensions":{},"entity_refs":[]}`,
		`{"data":{"name":"[REDACTED]","amount":1.50,"lines":[{"note":"[REDACTED]"},{"note":"x"}],"email":"[REDACTED]","parts":[{"prices":[-2]}]},"dimensions":{},"entity_refs":[]}`,
		// The last of two members counts for the comparison, the first for most readers.
		`{"data":{"name":"Bob","name":"[REDACTED]","amount":1.50,"lines":[{"note":"[REDACTED]"},{"note":"x"}],"email":{"$pii":"AQ","sub":"employee:E-1"},"parts":[{"prices":[-2]}]},"dimensions":{},"entity_refs":[]}`,
		`{"data":{"name":"[REDACTED]","amount":1.50,"lines":[{"note":"[REDACTED]"},{"note":"forged","n\u006fte":"x"}],"email":{"$pii":"AQ","sub":"employee:E-1"},"parts":[{"prices":[-2]}]},"dimensions":{},"entity_refs":[]}`,
		`null`,
	} {
		refused("payload_refused", r, payload)
	}
	for _, p := range []string{"/data/email/$pii", "/data/email/sub"} {
		refused("sealed", a.Store().Approved(t, p), conformance.RedactedPayload)
	}
	refused("sealed", a.Store().Approved(t, "/data/lines/0", "/data/email"), conformance.RedactedPayload)
	refused("repeated", a.Store().Approved(t, "/data/name", "/data/name"), conformance.RedactedPayload)
	got, err := a.Events.EventByID(ctx, a.Partition, a.Event.ID)
	require.NoError(t, err)
	require.Equal(t, a.Event, got)

	// An approval grows old.
	pgtest.Execute(t, a.Dsn, `UPDATE backbone.redaction_requests SET approved_at = now() - interval '73 hours', requested_at = now() - interval '74 hours' WHERE approved_at IS NOT NULL`)
	refused("approval_expired", r, conformance.RedactedPayload)

	// A payload that was changed by hand cannot be covered up.
	r = a.Store().Approved(t, both...)
	pgtest.Execute(t, a.Dsn, `SET session_replication_role = replica; UPDATE backbone.event_payloads SET payload = replace(payload::text, '1.50', '9.50')::json`)
	refused("event_changed", r, string(bytes.Replace([]byte(conformance.RedactedPayload), []byte("1.50"), []byte("9.50"), 1)))
}

// TestRedaction_transitions compares the moves that the database allows with those of the domain.
func TestRedaction_transitions(t *testing.T) {
	t.Parallel()
	conn := pgtest.Connect(t, pgtest.Database(t))
	for _, from := range shredding.RedactionStates() {
		for _, to := range shredding.RedactionStates() {
			var can bool
			require.NoError(t, conn.QueryRow(t.Context(), "SELECT backbone.redaction_can_become($1, $2)", from, to).Scan(&can))
			require.Equal(t, from.CanBecome(to), can, "%s to %s", from, to)
		}
	}
}

// TestRedaction_OtherRolesAreRefused tries as the roles that may not, and around the function as
// the one that may, with and without triggers.
func TestRedaction_OtherRolesAreRefused(t *testing.T) {
	t.Parallel()
	a := pgtest.NewRedactionFixture(t)
	r := a.Store().Approved(t, conformance.RedactedPointers()...)
	app, err := eventlog.OpenRedactor(t.Context(), pgtest.As("backbone_app", a.Dsn))
	require.NoError(t, err)
	t.Cleanup(app.Close)
	_, err = app.AddRedaction(t.Context(), a.Store().NewRequest("/data/name"))
	require.Equal(t, "redaction.role_refused", fault.CodeOf(err))
	_, err = app.ApproveRedaction(t.Context(), a.Partition, r.ID, "p-2", r.Scope)
	require.Equal(t, "redaction.role_refused", fault.CodeOf(err))
	moved := r
	moved.State = shredding.RedactionAnnounced
	_, err = app.MoveRedaction(t.Context(), moved)
	require.Equal(t, "redaction.role_refused", fault.CodeOf(err))
	_, err = app.NoteRedactionFailure(t.Context(), a.Partition, r.ID, "x")
	require.Equal(t, "redaction.role_refused", fault.CodeOf(err))
	_, err = app.RedactPayload(t.Context(), r, conformance.Replacement(a.Event.PayloadHash, conformance.RedactedPayload))
	require.Equal(t, "redaction.role_refused", fault.CodeOf(err))

	attacks := append(pgtest.Attacks(a.Partition),
		"UPDATE backbone.event_payloads SET salt = salt, payload = payload", "UPDATE backbone.events SET actor_id = 'x'",
		"INSERT INTO backbone.pii_redactions SELECT * FROM backbone.pii_redactions", "UPDATE backbone.pii_redactions SET reason = ''",
		"DELETE FROM backbone.pii_redactions", "TRUNCATE backbone.pii_redactions",
		"INSERT INTO backbone.redaction_requests SELECT * FROM backbone.redaction_requests", "UPDATE backbone.redaction_requests SET approved_by = 'p-9', approved_at = now()",
		"DELETE FROM backbone.redaction_requests", "SET ROLE backbone_redactor", "SET ROLE backbone_owner", "ALTER TABLE backbone.pii_redactions DISABLE TRIGGER ALL",
		"CREATE OR REPLACE FUNCTION backbone.approve_redaction(integer, uuid, text, bytea) RETURNS SETOF backbone.redaction_requests LANGUAGE sql AS 'SELECT NULL'",
		"ALTER FUNCTION backbone.approve_redaction(integer, uuid, text, bytea) SECURITY INVOKER", "UPDATE backbone.event_payloads SET redactions = NULL", "SET session_replication_role = replica")
	for _, triggers := range []string{"with", "without"} {
		for _, role := range []string{"backbone_app", "backbone_reader", "backbone_eraser"} {
			// As a user with that role and no other.
			conn := pgtest.Connect(t, a.Dsn)
			_, err := conn.Exec(t.Context(), "SET SESSION AUTHORIZATION "+role)
			require.NoError(t, err)
			for _, attack := range attacks {
				_, err := conn.Exec(t.Context(), attack)
				require.Equal(t, "42501", pgtest.SQLState(err), "%s %s triggers: %s", role, triggers, attack)
			}
		}
		if triggers == "with" {
			pgtest.Execute(t, a.Dsn, `DROP TRIGGER events_append_only ON backbone.events; DROP TRIGGER payloads_append_only ON backbone.event_payloads;
				DROP TRIGGER events_no_truncate ON backbone.events; DROP TRIGGER payloads_no_truncate ON backbone.event_payloads;
				DROP TRIGGER pii_redactions_append_only ON backbone.pii_redactions; DROP TRIGGER pii_redactions_no_truncate ON backbone.pii_redactions`)
		}
	}
	got, err := a.Events.EventByID(t.Context(), a.Partition, a.Event.ID)
	require.NoError(t, err)
	require.Equal(t, a.Event, got)

	// What two persons agreed on works without the triggers too.
	_, err = a.RedactPayload(t.Context(), r, conformance.Replacement(a.Event.PayloadHash, conformance.RedactedPayload))
	require.NoError(t, err)
	superuser := pgtest.Connect(t, a.Dsn)
	for _, attack := range []string{"UPDATE backbone.redaction_requests SET approved_by = requested_by", "UPDATE backbone.redaction_requests SET approved_by = NULL, approved_at = NULL"} {
		_, err = superuser.Exec(t.Context(), attack)
		require.Equal(t, "23514", pgtest.SQLState(err), "not even by the superuser's own hand")
	}
}
