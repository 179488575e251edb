package eventlog_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/postgres/eventlog"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pgtest"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

func TestRedaction(t *testing.T) {
	t.Parallel()
	a := pgtest.NewRedactionFixture(t)
	ctx := t.Context()
	r := a.Approved(t, "/data/name", "/data/lines/0/note")
	require.Equal(t, "p-1", r.RequestedBy)
	require.Equal(t, "p-2", r.ApprovedBy)
	require.Equal(t, []string{"/data/name", "/data/lines/0/note"}, r.Pointers)
	require.False(t, r.ApprovedAt.Before(r.RequestedAt))

	again, err := a.ApproveRedaction(ctx, a.Partition, r.ID, "p-3")
	require.NoError(t, err)
	require.Equal(t, r, again, "the approval that holds is kept")

	to := pgtest.Replacement(a.Event.PayloadHash, pgtest.RedactedPayload)
	done, err := a.RedactPayload(ctx, r, to)
	require.NoError(t, err)
	require.Equal(t, r.ID, done.ID)
	require.Equal(t, a.Event.ID, done.EventID)
	require.Equal(t, a.Event.PayloadHash, done.OldPayloadHash)
	require.Equal(t, to.NewHash, done.NewPayloadHash)

	got, err := a.Events.EventByID(ctx, a.Partition, a.Event.ID)
	require.NoError(t, err)
	require.Equal(t, pgtest.RedactedPayload, string(got.Payload), "byte for byte")
	require.Equal(t, to.Salt, got.Salt)
	require.Equal(t, a.Event.Skeleton, got.Skeleton)

	// A repeat, such as after a crash, answers the first one and changes nothing.
	same, err := a.RedactPayload(ctx, r, pgtest.Replacement(to.NewHash, pgtest.RedactedPayload))
	require.NoError(t, err)
	require.Equal(t, done, same)
	got, err = a.Events.EventByID(ctx, a.Partition, a.Event.ID)
	require.NoError(t, err)
	require.Equal(t, to.Salt, got.Salt)
	for _, reader := range []ports.RedactionReader{a.Audit, a.Redactor} {
		list, err := reader.Redactions(ctx, a.Partition)
		require.NoError(t, err)
		require.Equal(t, []ports.Redaction{done}, list)
	}

	// A second redaction goes on from the hash that the first one left.
	r2 := a.Approved(t, "/data/lines/1/note")
	second := pgtest.Replacement(to.NewHash, string(bytes.Replace([]byte(pgtest.RedactedPayload), []byte(`"x"`), []byte(`"[REDACTED]"`), 1)))
	done2, err := a.RedactPayload(ctx, r2, second)
	require.NoError(t, err)
	require.Equal(t, done.NewPayloadHash, done2.OldPayloadHash)
	requests, err := a.RedactionRequests(ctx, a.Partition)
	require.NoError(t, err)
	require.Equal(t, []ports.RedactionRequest{r, r2}, requests)

	superuser := pgtest.Connect(t, a.Dsn)
	for _, attack := range []string{"UPDATE backbone.pii_redactions SET reason = ''", "DELETE FROM backbone.pii_redactions", "TRUNCATE backbone.pii_redactions"} {
		_, err := superuser.Exec(ctx, attack)
		require.Equal(t, "42501", pgtest.SQLState(err), attack)
	}
}

// TestRedaction_RefusedWithoutApproval tries everything that is not exactly what two persons
// agreed on; the payload stays as it was.
func TestRedaction_RefusedWithoutApproval(t *testing.T) {
	t.Parallel()
	a := pgtest.NewRedactionFixture(t)
	ctx := t.Context()
	good := func() ports.RedactedPayload { return pgtest.Replacement(a.Event.PayloadHash, pgtest.RedactedPayload) }
	refused := func(code string, r ports.RedactionRequest, to ports.RedactedPayload) {
		t.Helper()
		_, err := a.RedactPayload(ctx, r, to)
		require.Equal(t, "redaction."+code, fault.CodeOf(err), "%v", err)
		require.NotContains(t, fmt.Sprintf("%+v", err), "Ada")
	}
	both := []string{"/data/name", "/data/lines/0/note"}

	// Requests and approvals.
	unknown := a.Request(both...)
	unknown.Sequence = 99
	for code, r := range map[string]ports.RedactionRequest{"event_not_found": unknown, "pointer_invalid": a.Request("/entity_refs/0"), "invalid": a.Request()} {
		_, err := a.RequestRedaction(ctx, r)
		require.Equal(t, "redaction."+code, fault.CodeOf(err), "%v", err)
	}
	for _, change := range []func(*ports.RedactionRequest){
		func(r *ports.RedactionRequest) { r.Reason = "" }, func(r *ports.RedactionRequest) { r.RequestedBy = "" }, func(r *ports.RedactionRequest) { r.RequestedBy = "p-1 " },
	} {
		r := a.Request(both...)
		change(&r)
		_, err := a.RequestRedaction(ctx, r)
		require.Equal(t, "redaction.invalid", fault.CodeOf(err), "%v", err)
	}
	_, err := a.ApproveRedaction(ctx, a.Partition, ulid.Make(), "p-2")
	require.Equal(t, "redaction.not_found", fault.CodeOf(err))
	r, err := a.RequestRedaction(ctx, a.Request(both...))
	require.NoError(t, err)
	refused("not_approved", r, good())
	for _, person := range []string{"p-1", "P-1"} {
		_, err = a.ApproveRedaction(ctx, a.Partition, r.ID, person)
		require.Equal(t, "redaction.same_person", fault.CodeOf(err))
	}
	for _, person := range []string{"", "p-1 ", "p\t1"} {
		_, err = a.ApproveRedaction(ctx, a.Partition, r.ID, person)
		require.Equal(t, "redaction.invalid", fault.CodeOf(err))
	}
	refused("not_approved", r, good())
	refused("not_found", a.Request(both...), good())

	// Not what was approved.
	r = a.Approved(t, both...)
	other := r
	other.Sequence = 1
	refused("scope_changed", other, good())
	other = r
	other.Pointers = []string{"/data/name"}
	refused("scope_changed", other, good())

	// A payload that is not the stored one with the pointers redacted.
	for _, payload := range []string{
		pgtest.PlainPayload,
		`{"data":{"name":"[REDACTED]","amount":1.5,"lines":[{"note":"[REDACTED]"},{"note":"x"}],"email":{"$pii":"AQ","sub":"employee:E-1"}},"dimensions":{},"entity_refs":[]}`,
		`{"data":{"name":"[REDACTED]","amount":9.50,"lines":[{"note":"[REDACTED]"},{"note":"x"}],"email":{"$pii":"AQ","sub":"employee:E-1"}},"dimensions":{},"entity_refs":[]}`,
		`{"data":{"name":"[REDACTED]","amount":1.50,"lines":[{"note":"[REDACTED]"},{"note":"x"}],"email":"[REDACTED]"},"dimensions":{},"entity_refs":[]}`,
		`{"data":{"name":"Bob","amount":1.50,"lines":[{"note":"[REDACTED]"},{"note":"x"}],"email":{"$pii":"AQ","sub":"employee:E-1"}},"dimensions":{},"entity_refs":[]}`,
		// The last of two members counts for the comparison, the first for most readers.
		`{"data":{"name":"Bob","name":"[REDACTED]","amount":1.50,"lines":[{"note":"[REDACTED]"},{"note":"x"}],"email":{"$pii":"AQ","sub":"employee:E-1"}},"dimensions":{},"entity_refs":[]}`,
		`{"data":{"name":"[REDACTED]","amount":1.50,"lines":[{"note":"[REDACTED]"},{"note":"forged","n\u006fte":"x"}],"email":{"$pii":"AQ","sub":"employee:E-1"}},"dimensions":{},"entity_refs":[]}`,
		`{}`, `null`,
	} {
		refused("payload_refused", r, pgtest.Replacement(a.Event.PayloadHash, payload))
	}
	to := good()
	to.NewHash[0]++
	refused("payload_refused", r, to)
	to = good()
	to.Salt, to.NewHash = a.Event.Salt, event.HashPayload(a.Event.Salt, to.Payload)
	refused("payload_refused", r, to)
	to = good()
	to.OldHash[0]++
	refused("event_changed", r, to)

	// Pointers that lead nowhere or to what is sealed.
	for _, p := range []string{"/data/nothing", "/data/lines/2", "/data/name/x"} {
		refused("pointer_invalid", a.Approved(t, p), good())
	}
	for _, p := range []string{"/data/email", "/data/email/$pii", "/data/email/sub"} {
		refused("sealed", a.Approved(t, p), good())
	}
	refused("sealed", a.Approved(t, "/data/lines/0", "/data/email"), good())
	refused("repeated", a.Approved(t, "/data/name", "/data/name"), good())

	got, err := a.Events.EventByID(ctx, a.Partition, a.Event.ID)
	require.NoError(t, err)
	require.Equal(t, a.Event, got)
	list, err := a.Redactions(ctx, a.Partition)
	require.NoError(t, err)
	require.Empty(t, list)

	// An approval grows old; a new one revives the request.
	pgtest.Execute(t, a.Dsn, `UPDATE backbone.redaction_requests SET approved_at = now() - interval '73 hours', requested_at = now() - interval '74 hours' WHERE approved_at IS NOT NULL`)
	refused("approval_expired", r, good())
	_, err = a.ApproveRedaction(ctx, a.Partition, r.ID, "p-3")
	require.NoError(t, err)

	// Who changed the payload by hand cannot have it covered up.
	pgtest.Execute(t, a.Dsn, `SET session_replication_role = replica; UPDATE backbone.event_payloads SET payload = replace(payload::text, '1.50', '9.50')::json`)
	refused("event_changed", r, pgtest.Replacement(a.Event.PayloadHash, string(bytes.Replace([]byte(pgtest.RedactedPayload), []byte("1.50"), []byte("9.50"), 1))))
}

// TestRedaction_OtherRolesAreRefused tries as the roles that may not, and around the function as
// the one that may, with and without triggers.
func TestRedaction_OtherRolesAreRefused(t *testing.T) {
	t.Parallel()
	a := pgtest.NewRedactionFixture(t)
	r := a.Approved(t, "/data/name", "/data/lines/0/note")
	app, err := eventlog.OpenRedactor(t.Context(), pgtest.As("backbone_app", a.Dsn))
	require.NoError(t, err)
	t.Cleanup(app.Close)
	_, err = app.RequestRedaction(t.Context(), a.Request("/data/name"))
	require.Equal(t, "redaction.role_refused", fault.CodeOf(err))
	_, err = app.ApproveRedaction(t.Context(), a.Partition, r.ID, "p-2")
	require.Equal(t, "redaction.role_refused", fault.CodeOf(err))
	_, err = app.RedactPayload(t.Context(), r, pgtest.Replacement(a.Event.PayloadHash, pgtest.RedactedPayload))
	require.Equal(t, "redaction.role_refused", fault.CodeOf(err))

	attacks := append(pgtest.Attacks(a.Partition),
		"UPDATE backbone.event_payloads SET salt = salt, payload = payload", "UPDATE backbone.events SET actor_id = 'x'",
		"INSERT INTO backbone.pii_redactions SELECT * FROM backbone.pii_redactions", "UPDATE backbone.pii_redactions SET reason = ''",
		"DELETE FROM backbone.pii_redactions", "TRUNCATE backbone.pii_redactions",
		"INSERT INTO backbone.redaction_requests SELECT * FROM backbone.redaction_requests", "UPDATE backbone.redaction_requests SET approved_by = 'p-9', approved_at = now()",
		"DELETE FROM backbone.redaction_requests", "SET ROLE backbone_redactor", "SET ROLE backbone_owner", "ALTER TABLE backbone.pii_redactions DISABLE TRIGGER ALL",
		"CREATE OR REPLACE FUNCTION backbone.approve_redaction(integer, uuid, text) RETURNS backbone.redaction_requests LANGUAGE sql AS 'SELECT NULL'",
		"ALTER FUNCTION backbone.approve_redaction(integer, uuid, text) SECURITY INVOKER", "SET session_replication_role = replica")
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
	_, err = a.RedactPayload(t.Context(), r, pgtest.Replacement(a.Event.PayloadHash, pgtest.RedactedPayload))
	require.NoError(t, err)
	_, err = pgtest.Connect(t, a.Dsn).Exec(t.Context(), "UPDATE backbone.redaction_requests SET approved_by = requested_by")
	require.Equal(t, "23514", pgtest.SQLState(err), "not even by the superuser's own hand")
}
