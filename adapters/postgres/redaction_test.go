package postgres_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/postgres"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

const (
	plainPayload    = `{"data":{"name" : "Ada","amount":1.50,"lines":[{"note":"call Ada"},{"note":"x"}],"email":{"$pii":"AQ","sub":"employee:E-1"}},"dimensions":{},"entity_refs":[]}`
	redactedPayload = `{"data":{"name" : "[REDACTED]","amount":1.50,"lines":[{"note":"[REDACTED]"},{"note":"x"}],"email":{"$pii":"AQ","sub":"employee:E-1"}},"dimensions":{},"entity_refs":[]}`
)

// archive is a log with one event in plain text, and those who may redact it.
type archive struct {
	*postgres.Store
	*postgres.Redactor
	dsn       string
	partition event.PartitionID
	event     event.Recorded
}

func newArchive(t *testing.T) *archive {
	t.Helper()
	a := &archive{dsn: database(t)}
	a.Store = open(t, a.dsn)
	a.partition = newBooks(t, a.Store, 1)[0]
	r := invoice(a.partition, 2)
	r.Events[1].Payload = []byte(plainPayload)
	r.Events[1].PayloadHash = event.HashPayload(r.Events[1].Salt, r.Events[1].Payload)
	_, err := a.Append(t.Context(), r)
	require.NoError(t, err)
	a.event, err = a.EventByID(t.Context(), a.partition, r.Events[1].ID)
	require.NoError(t, err)
	a.Redactor, err = postgres.OpenRedactor(t.Context(), as("backbone_eraser", a.dsn))
	require.NoError(t, err)
	t.Cleanup(a.Redactor.Close)
	return a
}

func (a *archive) request(pointers ...string) ports.RedactionRequest {
	return ports.RedactionRequest{
		ID: ulid.Make(), Partition: a.partition, Sequence: a.event.Sequence, Pointers: pointers, Reason: "migrated in clear", RequestedBy: "p-1",
	}
}

// approved is a request that a second person approved.
func (a *archive) approved(t *testing.T, pointers ...string) ports.RedactionRequest {
	t.Helper()
	r, err := a.RequestRedaction(t.Context(), a.request(pointers...))
	require.NoError(t, err)
	r, err = a.ApproveRedaction(t.Context(), a.partition, r.ID, "p-2")
	require.NoError(t, err)
	return r
}

func replacement(old event.Hash, payload string) ports.RedactedPayload {
	to := ports.RedactedPayload{OldHash: old, Salt: event.Salt(ulid.Make()), Payload: []byte(payload)}
	to.NewHash = event.HashPayload(to.Salt, to.Payload)
	return to
}

func TestRedaction(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	ctx := t.Context()
	r := a.approved(t, "/data/name", "/data/lines/0/note")
	require.Equal(t, "p-1", r.RequestedBy)
	require.Equal(t, "p-2", r.ApprovedBy)
	require.Equal(t, []string{"/data/name", "/data/lines/0/note"}, r.Pointers)
	require.False(t, r.ApprovedAt.Before(r.RequestedAt))

	again, err := a.ApproveRedaction(ctx, a.partition, r.ID, "p-3")
	require.NoError(t, err)
	require.Equal(t, r, again, "the approval that holds is kept")

	to := replacement(a.event.PayloadHash, redactedPayload)
	done, err := a.RedactPayload(ctx, r, to)
	require.NoError(t, err)
	require.Equal(t, r.ID, done.ID)
	require.Equal(t, a.event.ID, done.EventID)
	require.Equal(t, a.event.PayloadHash, done.OldPayloadHash)
	require.Equal(t, to.NewHash, done.NewPayloadHash)

	got, err := a.EventByID(ctx, a.partition, a.event.ID)
	require.NoError(t, err)
	require.Equal(t, redactedPayload, string(got.Payload), "byte for byte")
	require.Equal(t, to.Salt, got.Salt)
	require.Equal(t, a.event.Skeleton, got.Skeleton)

	// A repeat, such as after a crash, answers the first one and changes nothing.
	same, err := a.RedactPayload(ctx, r, replacement(to.NewHash, redactedPayload))
	require.NoError(t, err)
	require.Equal(t, done, same)
	got, err = a.EventByID(ctx, a.partition, a.event.ID)
	require.NoError(t, err)
	require.Equal(t, to.Salt, got.Salt)
	for _, reader := range []ports.RedactionReader{a.Store, a.Redactor} {
		list, err := reader.Redactions(ctx, a.partition)
		require.NoError(t, err)
		require.Equal(t, []ports.Redaction{done}, list)
	}

	// A second redaction goes on from the hash that the first one left.
	r2 := a.approved(t, "/data/lines/1/note")
	second := replacement(to.NewHash, string(bytes.Replace([]byte(redactedPayload), []byte(`"x"`), []byte(`"[REDACTED]"`), 1)))
	done2, err := a.RedactPayload(ctx, r2, second)
	require.NoError(t, err)
	require.Equal(t, done.NewPayloadHash, done2.OldPayloadHash)
	requests, err := a.RedactionRequests(ctx, a.partition)
	require.NoError(t, err)
	require.Equal(t, []ports.RedactionRequest{r, r2}, requests)

	superuser := connect(t, a.dsn)
	for _, attack := range []string{"UPDATE backbone.pii_redactions SET reason = ''", "DELETE FROM backbone.pii_redactions", "TRUNCATE backbone.pii_redactions"} {
		_, err := superuser.Exec(ctx, attack)
		require.Equal(t, "42501", sqlstate(err), attack)
	}
}

// TestRedactionIsRefused tries everything that is not exactly what two persons
// agreed on; the payload stays as it was.
func TestRedactionIsRefused(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	ctx := t.Context()
	good := func() ports.RedactedPayload { return replacement(a.event.PayloadHash, redactedPayload) }
	refused := func(code string, r ports.RedactionRequest, to ports.RedactedPayload) {
		t.Helper()
		_, err := a.RedactPayload(ctx, r, to)
		require.Equal(t, "redaction."+code, fault.CodeOf(err), "%v", err)
		require.NotContains(t, fmt.Sprintf("%+v", err), "Ada")
	}
	both := []string{"/data/name", "/data/lines/0/note"}

	// Requests and approvals.
	unknown := a.request(both...)
	unknown.Sequence = 99
	for code, r := range map[string]ports.RedactionRequest{"event_not_found": unknown, "pointer_invalid": a.request("/entity_refs/0"), "invalid": a.request()} {
		_, err := a.RequestRedaction(ctx, r)
		require.Equal(t, "redaction."+code, fault.CodeOf(err), "%v", err)
	}
	for _, change := range []func(*ports.RedactionRequest){
		func(r *ports.RedactionRequest) { r.Reason = "" }, func(r *ports.RedactionRequest) { r.RequestedBy = "" }, func(r *ports.RedactionRequest) { r.RequestedBy = "p-1 " },
	} {
		r := a.request(both...)
		change(&r)
		_, err := a.RequestRedaction(ctx, r)
		require.Equal(t, "redaction.invalid", fault.CodeOf(err), "%v", err)
	}
	_, err := a.ApproveRedaction(ctx, a.partition, ulid.Make(), "p-2")
	require.Equal(t, "redaction.not_found", fault.CodeOf(err))
	r, err := a.RequestRedaction(ctx, a.request(both...))
	require.NoError(t, err)
	refused("not_approved", r, good())
	for _, person := range []string{"p-1", "P-1"} {
		_, err = a.ApproveRedaction(ctx, a.partition, r.ID, person)
		require.Equal(t, "redaction.same_person", fault.CodeOf(err))
	}
	for _, person := range []string{"", "p-1 ", "p\t1"} {
		_, err = a.ApproveRedaction(ctx, a.partition, r.ID, person)
		require.Equal(t, "redaction.invalid", fault.CodeOf(err))
	}
	refused("not_approved", r, good())
	refused("not_found", a.request(both...), good())

	// Not what was approved.
	r = a.approved(t, both...)
	other := r
	other.Sequence = 1
	refused("scope_changed", other, good())
	other = r
	other.Pointers = []string{"/data/name"}
	refused("scope_changed", other, good())

	// A payload that is not the stored one with the pointers redacted.
	for _, payload := range []string{
		plainPayload,
		`{"data":{"name":"[REDACTED]","amount":1.5,"lines":[{"note":"[REDACTED]"},{"note":"x"}],"email":{"$pii":"AQ","sub":"employee:E-1"}},"dimensions":{},"entity_refs":[]}`,
		`{"data":{"name":"[REDACTED]","amount":9.50,"lines":[{"note":"[REDACTED]"},{"note":"x"}],"email":{"$pii":"AQ","sub":"employee:E-1"}},"dimensions":{},"entity_refs":[]}`,
		`{"data":{"name":"[REDACTED]","amount":1.50,"lines":[{"note":"[REDACTED]"},{"note":"x"}],"email":"[REDACTED]"},"dimensions":{},"entity_refs":[]}`,
		`{"data":{"name":"Bob","amount":1.50,"lines":[{"note":"[REDACTED]"},{"note":"x"}],"email":{"$pii":"AQ","sub":"employee:E-1"}},"dimensions":{},"entity_refs":[]}`,
		// The last of two members counts for the comparison, the first for most readers.
		`{"data":{"name":"Bob","name":"[REDACTED]","amount":1.50,"lines":[{"note":"[REDACTED]"},{"note":"x"}],"email":{"$pii":"AQ","sub":"employee:E-1"}},"dimensions":{},"entity_refs":[]}`,
		`{"data":{"name":"[REDACTED]","amount":1.50,"lines":[{"note":"[REDACTED]"},{"note":"forged","n\u006fte":"x"}],"email":{"$pii":"AQ","sub":"employee:E-1"}},"dimensions":{},"entity_refs":[]}`,
		`{}`, `null`,
	} {
		refused("payload_refused", r, replacement(a.event.PayloadHash, payload))
	}
	to := good()
	to.NewHash[0]++
	refused("payload_refused", r, to)
	to = good()
	to.Salt, to.NewHash = a.event.Salt, event.HashPayload(a.event.Salt, to.Payload)
	refused("payload_refused", r, to)
	to = good()
	to.OldHash[0]++
	refused("event_changed", r, to)

	// Pointers that lead nowhere or to what is sealed.
	for _, p := range []string{"/data/nothing", "/data/lines/2", "/data/name/x"} {
		refused("pointer_invalid", a.approved(t, p), good())
	}
	for _, p := range []string{"/data/email", "/data/email/$pii", "/data/email/sub"} {
		refused("sealed", a.approved(t, p), good())
	}
	refused("sealed", a.approved(t, "/data/lines/0", "/data/email"), good())
	refused("repeated", a.approved(t, "/data/name", "/data/name"), good())

	got, err := a.EventByID(ctx, a.partition, a.event.ID)
	require.NoError(t, err)
	require.Equal(t, a.event, got)
	list, err := a.Redactor.Redactions(ctx, a.partition)
	require.NoError(t, err)
	require.Empty(t, list)

	// An approval grows old; a new one revives the request.
	execute(t, a.dsn, `UPDATE backbone.redaction_requests SET approved_at = now() - interval '73 hours', requested_at = now() - interval '74 hours' WHERE approved_at IS NOT NULL`)
	refused("approval_expired", r, good())
	_, err = a.ApproveRedaction(ctx, a.partition, r.ID, "p-3")
	require.NoError(t, err)

	// Who changed the payload by hand cannot have it covered up.
	execute(t, a.dsn, `SET session_replication_role = replica; UPDATE backbone.event_payloads SET payload = replace(payload::text, '1.50', '9.50')::json`)
	refused("event_changed", r, replacement(a.event.PayloadHash, string(bytes.Replace([]byte(redactedPayload), []byte("1.50"), []byte("9.50"), 1))))
}

// TestNobodyElseRedacts tries as the roles that may not, and around the function as
// the one that may, with and without triggers.
func TestNobodyElseRedacts(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	r := a.approved(t, "/data/name", "/data/lines/0/note")
	app, err := postgres.OpenRedactor(t.Context(), as("backbone_app", a.dsn))
	require.NoError(t, err)
	t.Cleanup(app.Close)
	_, err = app.RequestRedaction(t.Context(), a.request("/data/name"))
	require.Equal(t, "redaction.role_refused", fault.CodeOf(err))
	_, err = app.ApproveRedaction(t.Context(), a.partition, r.ID, "p-2")
	require.Equal(t, "redaction.role_refused", fault.CodeOf(err))
	_, err = app.RedactPayload(t.Context(), r, replacement(a.event.PayloadHash, redactedPayload))
	require.Equal(t, "redaction.role_refused", fault.CodeOf(err))

	attacks := append(attacks(a.partition),
		"UPDATE backbone.event_payloads SET salt = salt, payload = payload", "UPDATE backbone.events SET actor_id = 'x'",
		"INSERT INTO backbone.pii_redactions SELECT * FROM backbone.pii_redactions", "UPDATE backbone.pii_redactions SET reason = ''",
		"DELETE FROM backbone.pii_redactions", "TRUNCATE backbone.pii_redactions",
		"INSERT INTO backbone.redaction_requests SELECT * FROM backbone.redaction_requests", "UPDATE backbone.redaction_requests SET approved_by = 'p-9', approved_at = now()",
		"DELETE FROM backbone.redaction_requests", "SET ROLE backbone_redactor", "SET ROLE backbone_owner", "ALTER TABLE backbone.pii_redactions DISABLE TRIGGER ALL",
		"CREATE OR REPLACE FUNCTION backbone.approve_redaction(integer, uuid, text) RETURNS backbone.redaction_requests LANGUAGE sql AS 'SELECT NULL'",
		"ALTER FUNCTION backbone.approve_redaction(integer, uuid, text) SECURITY INVOKER", "SET session_replication_role = replica")
	for _, triggers := range []string{"with", "without"} {
		for _, role := range []string{"backbone_app", "backbone_reader", "backbone_eraser"} {
			// As somebody who logs in with that role and no other.
			conn := connect(t, a.dsn)
			_, err := conn.Exec(t.Context(), "SET SESSION AUTHORIZATION "+role)
			require.NoError(t, err)
			for _, attack := range attacks {
				_, err := conn.Exec(t.Context(), attack)
				require.Equal(t, "42501", sqlstate(err), "%s %s triggers: %s", role, triggers, attack)
			}
		}
		if triggers == "with" {
			execute(t, a.dsn, `DROP TRIGGER events_append_only ON backbone.events; DROP TRIGGER payloads_append_only ON backbone.event_payloads;
				DROP TRIGGER events_no_truncate ON backbone.events; DROP TRIGGER payloads_no_truncate ON backbone.event_payloads;
				DROP TRIGGER pii_redactions_append_only ON backbone.pii_redactions; DROP TRIGGER pii_redactions_no_truncate ON backbone.pii_redactions`)
		}
	}
	got, err := a.EventByID(t.Context(), a.partition, a.event.ID)
	require.NoError(t, err)
	require.Equal(t, a.event, got)

	// What two persons agreed on works without the triggers too.
	_, err = a.RedactPayload(t.Context(), r, replacement(a.event.PayloadHash, redactedPayload))
	require.NoError(t, err)
	_, err = connect(t, a.dsn).Exec(t.Context(), "UPDATE backbone.redaction_requests SET approved_by = requested_by")
	require.Equal(t, "23514", sqlstate(err), "not even by the superuser's own hand")
}
