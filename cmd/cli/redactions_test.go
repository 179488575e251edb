package cli

import (
	"bytes"
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/client"
	"github.com/erpbackbone/backbone/adapters/postgres/eventlog"
	"github.com/erpbackbone/backbone/adapters/system"
	"github.com/erpbackbone/backbone/cmd/wire"
	"github.com/erpbackbone/backbone/configs"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/modules"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/moduletest"
)

// auditedBooks is a migrated database with a legal entity and one event in clear.
type auditedBooks struct {
	superuser string
	event     event.ID
	dir       string
}

func newAuditedBooks(t *testing.T) *auditedBooks {
	t.Helper()
	b := &auditedBooks{dir: t.TempDir()}
	b.superuser = moduletest.Database(t, modules.BuiltIn()...)
	store, err := wire.OpenReader(t.Context(), b.as("backbone_app"), configs.Archive{})
	require.NoError(t, err)
	t.Cleanup(store.Close)
	require.NoError(t, store.Directory.Bootstrap(t.Context(), ports.Installation{LogName: "books.example.org"}))
	le, err := store.Directory.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: "acme", Code: "A", TimeZone: "UTC"})
	require.NoError(t, err)
	ids, now := system.NewIDs(), time.Now()
	b.event = ids.NewID(now)
	p := event.Prepared{
		Skeleton: event.Skeleton{
			Partition: le.Partition, ID: b.event, Type: "till.cash.moved", SchemaVersion: 1, OccurredAt: now, EffectiveDate: event.DateOf(now),
			Scope: event.Scope{TenantID: "acme", LegalEntity: "A"}, ActorType: event.Human, ActorID: "p-9", CorrelationID: "c", Stream: event.StreamID{Type: "till", ID: "1"},
		},
		TypeNumber: 1, Salt: ids.NewSalt(), Payload: []byte(`{"data":{"remark":"Ada Lovelace","amount":1.50},"dimensions":{},"entity_refs":[]}`),
	}
	p.PayloadHash, p.PayloadHashDone = event.HashPayload(p.Salt, p.Payload), true
	_, err = store.Appender.Append(t.Context(), ports.AppendRequest{Partition: le.Partition, Events: []event.Prepared{p}})
	require.NoError(t, err)
	return b
}

// as is the database as another role sees it.
func (b *auditedBooks) as(role string) string {
	u, err := url.Parse(b.superuser)
	if err != nil {
		panic(err)
	}
	q := u.Query()
	q.Set("role", role)
	u.RawQuery = q.Encode()
	return u.String()
}

func (b *auditedBooks) file(name string) string { return filepath.Join(b.dir, name) }

func (b *auditedBooks) verify(t *testing.T, change func(*verifyOptions)) (sound bool, printed string, err error) {
	t.Helper()
	var out, progress bytes.Buffer
	o := verifyOptions{DSN: b.as("backbone_reader"), output: output{out: &out, err: &progress}}
	if change != nil {
		change(&o)
	}
	sound, err = verifyLog(t.Context(), o)
	return sound, out.String(), err
}

func (b *auditedBooks) export(t *testing.T, name string) {
	t.Helper()
	var note bytes.Buffer
	require.NoError(t, exportLog(t.Context(), exportLogOptions{DSN: b.as("backbone_reader"), LegalEntity: "A", File: b.file(name), output: output{err: &note}}))
	require.Contains(t, note.String(), " up to ")
}

// redact redacts the remark as the server does and announces it.
func (b *auditedBooks) redact(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	redactor, err := eventlog.OpenRedactor(ctx, b.as("backbone_eraser"))
	require.NoError(t, err)
	defer redactor.Close()
	store, err := wire.OpenReader(ctx, b.as("backbone_app"), configs.Archive{})
	require.NoError(t, err)
	defer store.Close()
	entities, err := store.Directory.LegalEntities(ctx, "acme")
	require.NoError(t, err)
	ids, p := system.NewIDs(), entities[0].Partition
	e, err := store.Events.EventByID(ctx, p, b.event)
	require.NoError(t, err)
	r, err := redactor.AddRedaction(ctx, ports.RedactionRequest{
		ID: ids.NewID(time.Now()), Partition: p, Sequence: e.Sequence, Pointers: []string{"/data/remark"}, Reason: "free text with a name", RequestedBy: "p-1", Scope: e.PayloadHash,
	})
	require.NoError(t, err)
	_, err = redactor.ApproveRedaction(ctx, p, r.ID, "p-2", r.Scope)
	require.NoError(t, err)
	to := ports.RedactedPayload{OldHash: r.Scope, Salt: ids.NewSalt(), Payload: bytes.Replace(e.Payload, []byte("Ada Lovelace"), []byte("[REDACTED]"), 1)}
	to.NewHash = event.HashPayload(to.Salt, to.Payload)
	x, err := redactor.RedactPayload(ctx, r, to)
	require.NoError(t, err)
	announced := event.Prepared{Skeleton: e.Skeleton, TypeNumber: 1, Salt: ids.NewSalt(), Payload: fmt.Appendf(nil,
		`{"data":{"redaction_id":%q,"event_id":%q,"sequence":%d,"pointers":["/data/remark"],"reason":"free text with a name","old_payload_hash":"%x","new_payload_hash":"%x","requested_by":"p-1","approved_by":"p-2"},"dimensions":{},"entity_refs":[]}`,
		x.ID, x.EventID, x.Sequence, x.OldPayloadHash, x.NewPayloadHash)}
	announced.ID, announced.Type, announced.Stream = ids.NewID(time.Now()), "pii.payload.redacted", event.StreamID{Type: "pii.redaction", ID: x.ID.String()}
	announced.PayloadHash, announced.PayloadHashDone = event.HashPayload(announced.Salt, announced.Payload), true
	_, err = store.Appender.Append(ctx, ports.AppendRequest{Partition: p, Events: []event.Prepared{announced}})
	require.NoError(t, err)
}

// TestVerify_redaction goes the whole way of an auditor: heads and an export first,
// a redaction by two persons, then both again.
func TestVerify_redaction(t *testing.T) {
	t.Parallel()
	b := newAuditedBooks(t)
	ctx := t.Context()
	sound, printed, err := b.verify(t, func(o *verifyOptions) { o.ExportHead = b.file("heads.json") })
	require.NoError(t, err)
	require.True(t, sound, printed)
	b.export(t, "before.jsonl")
	b.redact(t)

	b.export(t, "after.jsonl")
	for _, dumps := range [][]string{nil, {b.file("after.jsonl")}} {
		sound, printed, err = b.verify(t, func(o *verifyOptions) { o.Dumps, o.Head = dumps, b.file("heads.json") })
		require.NoError(t, err)
		require.True(t, sound, printed)
		require.Contains(t, printed, "requested by p-1, approved by p-2")
	}
	text, err := os.ReadFile(b.file("after.jsonl"))
	require.NoError(t, err)
	require.NotContains(t, string(text), "Lovelace")
	sound, printed, err = b.verify(t, func(o *verifyOptions) { o.Dumps = []string{b.file("before.jsonl")} })
	require.NoError(t, err)
	require.True(t, sound, printed)

	// An edit in the file, and a set-back log.
	require.NoError(t, os.WriteFile(b.file("forged.jsonl"), bytes.Replace(text, []byte(`"p-9"`), []byte(`"p-8"`), 1), 0o600))
	sound, printed, err = b.verify(t, func(o *verifyOptions) { o.Dumps = []string{b.file("forged.jsonl")} })
	require.NoError(t, err)
	require.False(t, sound)
	require.Contains(t, printed, "checksum_mismatch")
	require.Contains(t, printed, "export_digest")
	_, _, err = b.verify(t, func(o *verifyOptions) { o.ExportHead = b.file("heads.json") })
	require.NoError(t, err)
	super, err := pgx.Connect(ctx, b.superuser)
	require.NoError(t, err)
	defer func() { _ = super.Close(context.Background()) }()
	_, err = super.Exec(ctx, "SET session_replication_role = replica; DELETE FROM backbone.events WHERE sequence > 1; DELETE FROM backbone.event_payloads WHERE sequence > 1")
	require.NoError(t, err)
	sound, printed, err = b.verify(t, func(o *verifyOptions) { o.Head = b.file("heads.json") })
	require.NoError(t, err)
	require.False(t, sound)
	require.Contains(t, printed, "head_beyond_end")
	_, _, err = b.verify(t, func(o *verifyOptions) { o.ExportHead = b.file("never.json") })
	require.NoError(t, err)
	require.NoFileExists(t, b.file("never.json"), "only of a sound log")
}

// TestVerifyMissingInputs are no verdict.
func TestVerifyMissingInputs(t *testing.T) {
	t.Parallel()
	b := newAuditedBooks(t)
	require.NoError(t, os.WriteFile(b.file("nonsense"), []byte("{}\n"), 0o600))
	for code, change := range map[string]func(*verifyOptions){
		"verify.heads_missing": func(o *verifyOptions) { o.Head = b.file("nothing") },
		"verify.heads_invalid": func(o *verifyOptions) { o.Head = b.file("nonsense") },
		"verify.dump_missing":  func(o *verifyOptions) { o.Dumps = []string{b.file("nothing")} },
		"verify.not_an_export": func(o *verifyOptions) { o.Dumps = []string{b.file("nonsense")} },
		"verify.nothing":       func(o *verifyOptions) { o.Tenant = "unknown" },
		"file.not_written":     func(o *verifyOptions) { o.ExportHead = b.file("no/such/folder") },
	} {
		sound, printed, err := b.verify(t, change)
		require.Equal(t, code, fault.CodeOf(err))
		require.True(t, sound, "nothing was found")
		require.NotContains(t, printed, "TAMPERED")
	}
	_, err := os.Stat(b.file("no"))
	require.Error(t, err)
	err = exportLog(t.Context(), exportLogOptions{DSN: b.as("backbone_reader"), LegalEntity: "Z", File: b.file("z")})
	require.Equal(t, "legal_entity.not_found", fault.CodeOf(err))
	require.NoFileExists(t, b.file("z"))
}

// TestRedactionWaitNewApproval ends when the request was approved and needs another approval since.
func TestRedactionWaitNewApproval(t *testing.T) {
	t.Parallel()
	at := func(status, scope string) client.RedactionRequest {
		return client.RedactionRequest{ID: erasureID, Status: status, Preview: client.RedactionPreview{Scope: scope}}
	}
	for name, answers := range map[string][]any{
		"approved before a read":     {at("previewed", "aa"), at("approved", "aa"), at("previewed", "bb"), at("completed", "bb")},
		"approved between two reads": {at("previewed", "aa"), at("previewed", "bb"), at("completed", "bb")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := serveAnswers(t, answers...)
			require.Equal(t, "redaction.ended", fault.CodeOf(o.run(t, "redactions", "show", erasureID, "--wait")))
			require.Len(t, o.requests(), len(answers)-1)
		})
	}
}
