package tamper

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/archive"
	"github.com/erpbackbone/backbone/application/pipeline"
	"github.com/erpbackbone/backbone/application/verify"
	"github.com/erpbackbone/backbone/configs"
	domain "github.com/erpbackbone/backbone/domain/archive"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/modules/ap"
	"github.com/erpbackbone/backbone/modules/gl"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
	"github.com/erpbackbone/backbone/test/testkit/s3test"
)

// statesAfter folds states after something happens.
type statesAfter struct {
	archive.States
	happen func()
}

func (s statesAfter) StreamState(ctx context.Context, le ports.LegalEntity, stream event.StreamID, through event.Sequence) (domain.State, bool, bool, error) {
	s.happen()
	return s.States.StreamState(ctx, le, stream, through)
}

// allowYoung lets the database archive payloads of any age. The archiver's clock is years ahead.
func (i *installation) allowYoung() {
	i.t.Helper()
	var definition string
	require.NoError(i.t, i.super.QueryRow(i.t.Context(), "SELECT pg_get_functiondef('backbone.archive_payloads'::regproc)").Scan(&definition))
	if young := strings.Replace(definition, "interval '2 years'", "interval '0'", 1); young != definition {
		i.exec(young)
	}
}

// archiver is that of the node, in three years.
func (i *installation) archiver() *archive.Archiver {
	i.t.Helper()
	a, err := i.server.App.Archiver(i.t.Context())
	require.NoError(i.t, err)
	a.Clock = testkit.NewClock(time.Now().AddDate(3, 0, 0))
	return a
}

func noProgress(ports.LegalEntity, uint64, uint64) {}

// archive archives what was recorded before a moment.
func (i *installation) archive(before time.Time) archive.Result {
	i.t.Helper()
	result, err := i.archiver().Run(i.t.Context(), archive.Selection{Before: before}, noProgress)
	require.NoError(i.t, err)
	return result
}

// payloads counts the payloads of the legal entity in the database.
func (i *installation) payloads() (n int) {
	i.t.Helper()
	require.NoError(i.t, i.super.QueryRow(i.t.Context(), "SELECT count(*) FROM backbone.event_payloads WHERE partition_id = $1", i.entity.Partition).Scan(&n))
	return n
}

// answers are the answers to what auditors ask about events and entities, without the mark of archived events.
func (i *installation) answers() (answers map[string]string) {
	i.t.Helper()
	answers = map[string]string{}
	const scope = "/api/events?stream_type=scope&stream_id=DEMF&legal_entity=DEMF&limit=200"
	for name, query := range map[string]string{
		"all": scope, "backward": scope + "&direction=backward",
		"predicate": scope + "&path=" + url.QueryEscape("$.lines[*].account") + "&operator=eq&value=%226000%22",
		"part":      scope + "&path=" + url.QueryEscape("$.description") + "&operator=contains&value=Re",
		"entity":    "/api/events?stream_type=entity&legal_entity=DEMF&limit=200&stream_id=vendor:V-000001",
		"dimension": "/api/events?stream_type=dimension&legal_entity=DEMF&limit=200&stream_id=department:PROD",
	} {
		status, body := i.ask("auditor", http.MethodGet, query, nil)
		require.Equal(i.t, http.StatusOK, status, "%s: %s", name, body)
		var page struct {
			Events []map[string]any `json:"events"`
		}
		require.NoError(i.t, json.Unmarshal(body, &page))
		require.NotEmpty(i.t, page.Events, name)
		page.Events = slices.DeleteFunc(page.Events, func(e map[string]any) bool { return strings.HasPrefix(fmt.Sprint(e["type"]), "backbone.payloads.") })
		for _, e := range page.Events {
			delete(e["metadata"].(map[string]any), "archived")
		}
		answers[name] = string(testkit.Must(json.Marshal(page.Events)))
	}
	return answers
}

// requireAnswers compares answers with those of before, one by one: their differences are long.
func (i *installation) requireAnswers(before map[string]string) {
	i.t.Helper()
	for name, answer := range i.answers() {
		if before[name] != answer {
			at := 0
			for at < min(len(answer), len(before[name])) && answer[at] == before[name][at] {
				at++
			}
			require.Fail(i.t, "answered differently", "%s: …%.300s\ninstead of …%.300s", name, answer[max(at-100, 0):], before[name][max(at-100, 0):])
		}
	}
}

// states are the states of all entities, and the answers of a plan.
func (i *installation) states() (states map[string]string) {
	i.t.Helper()
	states = map[string]string{"plan": i.answerPlan(), "reversal": i.planReversal()}
	var vendor string
	require.NoError(i.t, i.super.QueryRow(i.t.Context(), "SELECT min(v.stream_id) FROM backbone.events v WHERE v.type = 'ap.vendor.registered' AND v.partition_id = $1", i.entity.Partition).Scan(&vendor))
	today := time.Now().UTC().Format(time.DateOnly)
	states["duplicate"] = i.plan("ap_clerk", "ap.submit_invoice", object{
		"invoice_number": "R-1", "vendor_id": vendor, "invoice_date": today, "currency": "EUR", "total_amount": 11,
		"lines": []object{{"line_number": 1, "amount": 11, "account": "5100", "dimensions": object{"department": "PROD"}}},
	})
	require.Contains(i.t, states["duplicate"], "ap.invoice.duplicate")
	states["due reversals"] = i.plan("gl_accountant", "gl.run_due_reversals", object{"through": today})
	for _, key := range i.entityKeys() {
		kind, id, _ := strings.Cut(strings.TrimPrefix(key, "entity:"), ":")
		status, body := i.ask("auditor", http.MethodGet, "/api/entities/"+url.PathEscape(kind)+"/"+url.PathEscape(id)+"?legal_entity=DEMF&consistency=strong", nil)
		require.Equal(i.t, http.StatusOK, status, "%s: %s", key, body)
		var read struct {
			State   json.RawMessage `json:"state"`
			Version json.RawMessage `json:"version"`
		}
		require.NoError(i.t, json.Unmarshal(body, &read))
		states[key] = string(read.Version) + " " + string(read.State)
	}
	return states
}

// planReversal plans the reversal of the first journal on a node that has no states of streams in memory.
func (i *installation) planReversal() string {
	i.t.Helper()
	var journal string
	require.NoError(i.t, i.super.QueryRow(i.t.Context(), "SELECT stream_id FROM backbone.events WHERE type = 'gl.journal.posted' ORDER BY sequence LIMIT 1").Scan(&journal))
	return i.plan("controller", "gl.reverse_journal", object{"journal_id": journal, "reason": "wrong"})
}

func (i *installation) entityKeys() (keys []string) {
	i.t.Helper()
	rows, err := i.super.Query(i.t.Context(), "SELECT DISTINCT key FROM backbone.event_keys WHERE partition_id = $1 AND key LIKE 'entity:%' ORDER BY 1", i.entity.Partition)
	require.NoError(i.t, err)
	for rows.Next() {
		var key string
		require.NoError(i.t, rows.Scan(&key))
		keys = append(keys, key)
	}
	require.NoError(i.t, rows.Err())
	return keys
}

// files are those of the archive that have a name of the legal entity.
func (i *installation) files() (paths []string) {
	i.t.Helper()
	return testkit.Must(filepath.Glob(filepath.Join(i.config.Archive.Directory, "archive", fmt.Sprint(uint32(i.entity.Partition)), "*")))
}

// ownFolders gives a copy an archive and an export folder of its own, with the files of the installation.
func (i *installation) ownFolders() {
	i.t.Helper()
	for _, folder := range []*string{&i.config.Archive.Directory, &i.config.Erasure.ExportDirectory} {
		own := filepath.Join(i.t.TempDir(), "folder")
		require.NoError(i.t, os.CopyFS(own, os.DirFS(*folder)))
		*folder = own
	}
}

// TestArchive archives everything that may be, and asks every reader again.
func TestArchive(t *testing.T) {
	t.Parallel()
	filled := install(t)
	open := func(t *testing.T) (i *installation, work func()) {
		t.Parallel()
		i = filled.copy(t)
		i.ownFolders()
		work, _ = i.serve()
		i.allowYoung()
		return i, work
	}

	t.Run("readers find what is archived", func(t *testing.T) {
		i, _ := open(t)
		answers, states, stored, before := i.answers(), i.states(), i.payloads(), time.Now()
		result := i.archive(before)
		require.Greater(t, result.Payloads, uint64(50))
		require.EqualValues(t, result.Segments, i.payloads()-stored+int(result.Payloads), "each segment has an event")
		i.requireAnswers(answers)
		require.Equal(t, states, i.states())
		require.Empty(t, i.findings(i.openReader()))
		var archived string
		require.NoError(t, i.super.QueryRow(t.Context(), `SELECT encode(uuid_send(e.id), 'hex') FROM backbone.events e
			LEFT JOIN backbone.event_payloads p USING (partition_id, sequence) WHERE p IS NULL AND e.partition_id = $1 ORDER BY e.sequence LIMIT 1`, i.entity.Partition).Scan(&archived))
		id := event.ID(testkit.Must(hex.DecodeString(archived)))
		_, body := i.ask("auditor", http.MethodGet, "/api/events/"+id.String()+"?legal_entity=DEMF", nil)
		require.Contains(t, string(body), `"archived":true`)

		again := i.archive(before)
		require.Zero(t, again.Payloads, "all that may leave has left")
	})
	t.Run("states and plans need no archive", func(t *testing.T) {
		i, _ := open(t)
		states := i.states()
		i.archive(time.Now())
		require.NoError(t, os.Rename(i.config.Archive.Directory, i.config.Archive.Directory+".gone"))
		require.Equal(t, states, i.states())
		status, body := i.ask("auditor", http.MethodGet, "/api/events?stream_type=scope&stream_id=DEMF&legal_entity=DEMF&limit=200", nil)
		require.Equal(t, http.StatusServiceUnavailable, status)
		require.Contains(t, string(body), "archive.unavailable")
		status, body = i.ask("auditor", http.MethodGet, "/api/events?stream_type=scope&stream_id=DEMF&legal_entity=DEMF&limit=200&include_data=false", nil)
		require.Equal(t, http.StatusOK, status, "%s", body)
		_, err := verify.Run(t.Context(), i.openReader().Chains(), "", nil, nil)
		require.Equal(t, "archive.unavailable", fault.CodeOf(err))
	})
	t.Run("it may be a bucket", func(t *testing.T) {
		t.Parallel()
		store := s3test.Start(t)
		i := filled.copy(t)
		i.ownFolders()
		before := i.payloads()
		i.serve()
		i.allowYoung()
		_, err := i.archiver().Restore(t.Context(), i.entity, 1, 1<<40, "It moves.", noProgress)
		require.NoError(t, err)
		i.config.Archive = configs.Default().Archive
		i.config.Archive.Bucket, i.config.Archive.Endpoint, i.config.Archive.Region = store.NewBucket(t, s3test.Versioned), store.Endpoint, store.Region
		i.config.Archive.CredentialsFile, i.config.Archive.Profile, i.config.Archive.Prefix = store.CredentialsFile, store.Profile, "books"
		work, _ := i.serve()
		answers := i.answers()
		work()
		i.awaitProjections()
		i.archive(time.Now())
		require.Less(t, i.payloads(), before)
		i.requireAnswers(answers)
		require.Empty(t, i.findings(i.openReader()))
		i.redact(i.firstJournal(), "/data/description")
		require.Empty(t, i.findings(i.openReader()))
	})
	t.Run("projections are built from it", func(t *testing.T) {
		i, work := open(t)
		i.archive(time.Now())
		work()
		for _, name := range []string{gl.ProjectionLedger, ap.OpenItems, spend} {
			i.call("operator", http.MethodPost, "/api/admin/projections/"+name+"/cancel", object{}, nil)
			i.rebuild(name)
			require.Equal(t, "0", i.differences(name), name)
		}
	})
	t.Run("nothing is lost when a run is killed", func(t *testing.T) {
		i, _ := open(t)
		i.killRuns()
	})
	t.Run("an erasure reaches it", func(t *testing.T) {
		i, work := open(t)
		work()
		vendor := i.personalVendor()
		require.Contains(t, i.readVendor(vendor), "Ida Lund")
		i.archive(time.Now())
		id := i.requestErasure("vendor:" + vendor)
		i.call("compliance_approver", http.MethodPost, "/api/erasure-requests/"+id+"/approve", object{}, nil)
		i.awaitCompletion("/api/erasure-requests/" + id)
		require.NotContains(t, i.readVendor(vendor), "Ida Lund")
		require.Contains(t, i.readVendor(vendor), "[REDACTED]")
		require.Empty(t, i.findings(i.openReader()))
	})
	t.Run("a redaction brings its payload back and removes it from the file", func(t *testing.T) {
		i, work := open(t)
		work()
		posted := i.postJournal("Rent of Ida").Events[0]
		i.awaitProjections()
		i.archive(time.Now())
		require.True(t, i.archiveHas("Rent of Ida"))
		i.redact(posted.ID, "/data/description")
		require.False(t, i.archiveHas("Rent of Ida"))
		require.Empty(t, i.findings(i.openReader()))
		i.awaitProjections()
		require.NotZero(t, i.archive(time.Now()).Payloads, "the others are archived again, and the redacted one with them")
		require.False(t, i.archiveHas("Rent of Ida"))
		require.Empty(t, i.findings(i.openReader()))
	})
	t.Run("a redaction leaves the states of others", func(t *testing.T) {
		i, work := open(t)
		work()
		first := i.postJournal("Rent of Ida").Events[0]
		i.awaitProjections()
		i.archive(time.Now())
		i.postJournal("Rent of Mats")
		i.awaitProjections()
		i.archive(time.Now())
		states := i.states()
		i.redact(first.ID, "/data/description")
		i.execute("gl_accountant", "gl.post_journal", i.journal("Rent of Jon")) // makes stored snapshots older
		delete(states, "reversal")
		require.NoError(t, os.Rename(i.config.Archive.Directory, i.config.Archive.Directory+".gone"))
		read := 0
		for key := range states {
			kind, id, _ := strings.Cut(strings.TrimPrefix(key, "entity:"), ":")
			if status, _ := i.ask("auditor", http.MethodGet, "/api/entities/"+url.PathEscape(kind)+"/"+url.PathEscape(id)+"?legal_entity=DEMF&consistency=strong", nil); status == http.StatusOK {
				read++
			}
		}
		require.Greater(t, read, len(states)-8, "all but the entities of the redacted event")
	})
	t.Run("states need no archive when a segment in the middle comes back", func(t *testing.T) {
		i, work := open(t)
		work()
		rename := func(vendor, name string) {
			i.execute("vendor_admin", "ap.change_vendor", object{"vendor_id": vendor, "name": name, "reason": "Renamed"})
		}
		register := func(name string) (vendor string) {
			return i.execute("vendor_admin", "ap.register_vendor", object{"natural_person": false, "country": "NL", "name": name, "registration_id": name}).Events[0].Stream.ID
		}
		first, second := register("Ida B.V."), register("Mats B.V.")
		i.awaitProjections()
		i.archive(time.Now())
		between := i.postJournal("Rent of Ida").Events[0].ID
		rename(first, "Ida Berg B.V.")
		i.awaitProjections()
		i.archive(time.Now())
		rename(second, "Mats Berg B.V.")
		i.awaitProjections()
		i.archive(time.Now())
		states, n := i.states(), i.sequence(between)
		restored, err := i.archiver().Restore(t.Context(), i.entity, n, n, "An audit.", noProgress)
		require.NoError(t, err)
		require.NotZero(t, restored)
		i.exec("DELETE FROM backbone.entity_snapshots")
		i.exec("DELETE FROM backbone.stream_snapshots")
		require.NoError(t, os.Rename(i.config.Archive.Directory, i.config.Archive.Directory+".gone"))
		require.Equal(t, states, i.states())
	})
	t.Run("a redaction that is late leaves the file of another run", func(t *testing.T) {
		i, work := open(t)
		work()
		posted := i.postJournal("Rent of Ida").Events[0].ID
		i.awaitProjections()
		i.archive(time.Now())
		late := i.archiver()
		late.Store = &listedStore{late.Store, func() {
			i.exec("UPDATE backbone.leases SET expires_at = now() - interval '1 hour' WHERE name = 'archive'")
			i.awaitProjections()
			i.archive(time.Now())
		}}
		require.Equal(t, "archive.busy", fault.CodeOf(late.Forget(t.Context(), i.entity, i.sequence(posted))))
		require.Empty(t, i.findings(i.openReader()))
		require.NoError(t, i.archiver().Forget(t.Context(), i.entity, i.sequence(posted)))
		require.False(t, i.archiveHas("Rent of Ida"))
		require.Empty(t, i.findings(i.openReader()))
	})
	t.Run("a run that is refused leaves the files of earlier ones", func(t *testing.T) {
		i, work := open(t)
		work()
		posted := i.postJournal("Rent of Ida").Events[0].ID
		i.awaitProjections()
		i.archive(time.Now())
		files, n := i.files(), i.sequence(posted)
		_, err := i.archiver().Restore(t.Context(), i.entity, n, n, "An audit.", noProgress)
		require.NoError(t, err)
		require.Equal(t, files, i.files())
		i.awaitProjections()
		refused := i.archiver()
		refused.Payloads = editedArchiver{refused.Payloads, func(l *ports.LeavingPayloads) { l.Redactions-- }}
		_, err = refused.Run(t.Context(), archive.Selection{Before: time.Now(), LegalEntities: []ports.LegalEntity{i.entity}}, noProgress)
		require.Equal(t, "archive.redacting", fault.CodeOf(err))
		require.Subset(t, i.files(), files)
	})
	t.Run("runs do not meet", func(t *testing.T) {
		i, work := open(t)
		work()
		i.redact(i.postJournal("Rent of Ida").Events[0].ID, "/data/description") // a sweep looks for files with it
		i.awaitProjections()
		before := time.Now()
		run := func(change func(a *archive.Archiver)) error {
			a := i.archiver()
			change(a)
			_, err := a.Run(t.Context(), archive.Selection{Before: before, LegalEntities: []ports.LegalEntity{i.entity}}, noProgress)
			return err
		}
		err := run(func(a *archive.Archiver) {
			a.Payloads = editedArchiver{a.Payloads, func(*ports.LeavingPayloads) {
				require.Equal(t, "archive.busy", fault.CodeOf(run(func(*archive.Archiver) {})))
				i.exec("UPDATE backbone.leases SET expires_at = now() - interval '1 hour' WHERE name = 'archive'") // the first run is paused
				require.NoError(t, run(func(*archive.Archiver) {}))
			}}
		})
		require.Equal(t, "archive.busy", fault.CodeOf(err))
		require.Empty(t, i.findings(i.openReader()))
	})
	t.Run("a database that is set back to before a redaction loses nothing else", func(t *testing.T) {
		i, work := open(t)
		work()
		redacted := i.postJournal("Rent of Ida").Events[0]
		i.awaitProjections()
		before := time.Now()
		i.archive(before)
		i.exec("CREATE SCHEMA earlier")
		tables := []string{"event_payloads", "archive_segments", "archive_states", "pii_redactions"}
		for _, table := range tables {
			i.exec("CREATE TABLE earlier." + table + " AS TABLE backbone." + table)
		}
		i.redact(redacted.ID, "/data/description")
		i.exec("SET session_replication_role = replica")
		for _, table := range tables {
			i.exec("BEGIN; DELETE FROM backbone." + table + "; INSERT INTO backbone." + table + " SELECT * FROM earlier." + table + "; COMMIT")
		}
		lost := 0
		rows, err := i.super.Query(t.Context(), "SELECT uuid_send(id) FROM earlier.archive_segments s JOIN backbone.events e ON e.partition_id = s.partition_id AND e.sequence BETWEEN s.first_sequence AND s.last_sequence WHERE e.partition_id = $1", i.entity.Partition)
		require.NoError(t, err)
		var ids []event.ID
		for rows.Next() {
			var id []byte
			require.NoError(t, rows.Scan(&id))
			ids = append(ids, event.ID(id))
		}
		for _, id := range ids {
			if _, err := i.server.App.Store.Events.EventByID(t.Context(), i.entity.Partition, id); err != nil {
				require.Equal(t, "archive.payload_lost", fault.CodeOf(err))
				lost++
			}
		}
		require.LessOrEqual(t, lost, 2, "the redacted one, and that of the installation")
		_, err = i.archiver().Restore(t.Context(), i.entity, 1, 1<<40, "Set back.", noProgress)
		require.NoError(t, err)
		require.Contains(t, i.findings(i.openReader()), verify.PayloadMissing)
	})
	t.Run("payloads of a person under a hold stay", func(t *testing.T) {
		i, work := open(t)
		work()
		vendor := i.personalVendor()
		interrupted := i.archiver()
		interrupted.States = statesAfter{interrupted.States, sync.OnceFunc(func() {
			i.call("compliance", http.MethodPost, "/api/legal-holds", object{"subject": "vendor:" + vendor, "reason": "Case 18 is before the court."}, nil)
		})}
		_, err := interrupted.Run(t.Context(), archive.Selection{Before: time.Now()}, noProgress)
		require.Equal(t, "archive.hold_placed", fault.CodeOf(err), "placed while states were folded")
		plan, err := i.archiver().Plan(t.Context(), archive.Selection{Before: time.Now(), LegalEntities: []ports.LegalEntity{i.entity}})
		require.NoError(t, err)
		require.Positive(t, plan.Entities[0].Held)
		i.archive(time.Now())
		require.Zero(t, i.exec(`SELECT FROM backbone.event_pii_subjects s LEFT JOIN backbone.event_payloads p USING (partition_id, sequence) WHERE s.subject_id = $1 AND p IS NULL`, "vendor:"+vendor))
	})
	t.Run("segments come back", func(t *testing.T) {
		i, _ := open(t)
		answers, stored, before := i.answers(), i.payloads(), time.Now()
		i.archive(before)
		_, err := i.archiver().Restore(t.Context(), i.entity, 1, 1<<40, "An audit.", noProgress)
		require.NoError(t, err)
		require.Zero(t, i.exec("SELECT FROM backbone.archive_segments"))
		require.Greater(t, i.payloads(), stored)
		i.requireAnswers(answers)
		require.Empty(t, i.findings(i.openReader()))
		_, err = i.archiver().Restore(t.Context(), i.entity, 1, 1<<40, "An audit.", noProgress)
		require.Equal(t, "archive.segment_not_found", fault.CodeOf(err))
		require.NotZero(t, i.archive(before).Payloads)
		i.requireAnswers(answers)
	})
	t.Run("verification misses files", func(t *testing.T) {
		i, _ := open(t)
		i.archive(time.Now())
		files := i.files()
		require.NoError(t, os.WriteFile(files[0]+".copy", nil, 0o600)) // an archive without any file may not be mounted
		for _, file := range files {
			content := testkit.Must(os.ReadFile(file))
			changed := bytes.Clone(content)
			changed[len(changed)/2] ^= 1
			require.NoError(t, os.Chmod(file, 0o600))
			require.NoError(t, os.WriteFile(file, changed, 0o600))
			require.Equal(t, []verify.FindingKind{verify.ArchiveDamaged}, i.findings(i.openReader()))
			require.NoError(t, os.Remove(file))
			require.Equal(t, []verify.FindingKind{verify.ArchiveDamaged}, i.findings(i.openReader()))
			require.NoError(t, os.WriteFile(file, content, 0o600))
		}
		require.Empty(t, i.findings(i.openReader()))
	})
	t.Run("the database refuses what is not proven", func(t *testing.T) {
		i, work := open(t)
		work()
		i.requireRefusals()
	})
}

// firstJournal is the event of the first journal that nothing has redacted.
func (i *installation) firstJournal() (id event.ID) {
	i.t.Helper()
	var bytes []byte
	require.NoError(i.t, i.super.QueryRow(i.t.Context(), "SELECT uuid_send(id) FROM backbone.events WHERE type = 'gl.journal.posted' AND partition_id = $1 AND actor_id = 'person-gl_accountant' ORDER BY sequence LIMIT 1", i.entity.Partition).Scan(&bytes))
	return event.ID(bytes)
}

func (i *installation) sequence(id event.ID) (n event.Sequence) {
	i.t.Helper()
	require.NoError(i.t, i.super.QueryRow(i.t.Context(), "SELECT sequence FROM backbone.events WHERE uuid_send(id) = $1", id[:]).Scan(&n))
	return n
}

func (i *installation) journal(description string) object {
	return object{"description": description, "posting_date": time.Now().UTC().Format(time.DateOnly), "lines": []object{
		{"account": "6000", "debit_credit": "debit", "amount": 3}, {"account": "2200", "debit_credit": "credit", "amount": 3},
	}}
}

func (i *installation) postJournal(description string) pipeline.Outcome {
	i.t.Helper()
	return i.execute("gl_accountant", "gl.post_journal", i.journal(description))
}

// personalVendor registers a vendor who is a person.
func (i *installation) personalVendor() (id string) {
	i.t.Helper()
	id = i.execute("vendor_admin", "ap.register_vendor", object{
		"natural_person": true, "country": "SE", "person": object{"name": "Ida Lund", "address": "Birkenweg 10", "vat_id": "SE 123456-7897 02"}, "party_id": "P8",
	}).Events[0].Stream.ID
	i.awaitProjections()
	return id
}

// readVendor reads the first event of a vendor as a person who may see it.
func (i *installation) readVendor(id string) string {
	i.t.Helper()
	status, body := i.ask("vendor_admin", http.MethodGet, "/api/events?stream_type=entity&legal_entity=DEMF&stream_id=vendor:"+id, nil)
	require.Equal(i.t, http.StatusOK, status, "%s", body)
	return string(body)
}

// awaitProjections waits until no projection is behind the legal entity.
func (i *installation) awaitProjections() {
	i.t.Helper()
	testkit.Eventually(i.t, time.Minute, func() bool {
		head := testkit.Must(i.server.App.Store.Events.Head(i.t.Context(), i.entity.Partition))
		return len(testkit.Must(i.server.App.Store.Archive.ProjectionsBehind(i.t.Context(), i.entity.Partition, head.Sequence))) == 0
	})
}

// archiveHas reports whether a file of the archive has a text.
func (i *installation) archiveHas(text string) (has bool) {
	i.t.Helper()
	for _, file := range i.files() {
		object := testkit.Must(os.ReadFile(file))
		records, err := domain.Decode(object, sha256.Sum256(object))
		require.NoError(i.t, err)
		for _, r := range records {
			has = has || bytes.Contains(r.Payload, []byte(text))
		}
	}
	return has
}

// killRuns lets runs and restorations die before and after each of their steps. It requires that the log is whole each
// time, and that another attempt completes.
func (i *installation) killRuns() {
	t := i.t
	answers, before := i.answers(), time.Now()
	attempt := func(points []string, do func(a *archive.Archiver) error) {
		for _, point := range append(points, "") {
			a := i.archiver()
			k := &killer{at: point}
			a.Store, a.Payloads, a.Append = killedStore{a.Store, k}, killedArchiver{a.Payloads, k}, k.append(a.Append)
			if err := do(a); point == "" {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, errKilled, point)
			}
			require.Empty(t, i.findings(i.openReader()), point)
			i.requireAnswers(answers)
		}
	}
	attempt([]string{"before put", "after put", "before append", "after append", "before archive", "after archive"}, func(a *archive.Archiver) error {
		_, err := a.Run(t.Context(), archive.Selection{Before: before, LegalEntities: []ports.LegalEntity{i.entity}}, noProgress)
		return err
	})
	require.NotZero(t, i.exec("SELECT FROM backbone.archive_segments"))
	segments := i.exec("SELECT FROM backbone.archive_segments")
	attempt([]string{"before append", "after append", "before restore"}, func(a *archive.Archiver) error {
		_, err := a.Restore(t.Context(), i.entity, 1, 1<<40, "An audit.", noProgress)
		return err
	})
	require.Zero(t, i.exec("SELECT FROM backbone.archive_segments"))
	require.NotZero(t, segments)
}

var errKilled = errors.New("killed")

// killer ends a run at a point.
type killer struct{ at string }

func (k *killer) call(name string, do func() error) error {
	if k.at == "before "+name {
		return errKilled
	}
	err := do()
	if err == nil && k.at == "after "+name {
		return errKilled
	}
	return err
}

func (k *killer) append(do appendEvent) appendEvent {
	return func(ctx context.Context, le ports.LegalEntity, d event.Draft, at event.Version) (n event.Sequence, err error) {
		err = k.call("append", func() error { n, err = do(ctx, le, d, at); return err })
		return n, err
	}
}

type appendEvent = func(context.Context, ports.LegalEntity, event.Draft, event.Version) (event.Sequence, error)

// listedStore does something when it is listed for the first time.
type listedStore struct {
	ports.ExportStore
	do func()
}

func (s *listedStore) List(ctx context.Context, prefix string) ([]string, error) {
	if do := s.do; do != nil {
		s.do = nil
		do()
	}
	return s.ExportStore.List(ctx, prefix)
}

type killedStore struct {
	ports.ExportStore
	k *killer
}

func (s killedStore) PutIfAbsent(ctx context.Context, name string, content []byte) error {
	return s.k.call("put", func() error { return s.ExportStore.PutIfAbsent(ctx, name, content) })
}

type killedArchiver struct {
	ports.Archiver
	k *killer
}

func (a killedArchiver) ArchivePayloads(ctx context.Context, l ports.LeavingPayloads) error {
	return a.k.call("archive", func() error { return a.Archiver.ArchivePayloads(ctx, l) })
}

func (a killedArchiver) RestorePayloads(ctx context.Context, s ports.ArchivedSegment, records []domain.Record) (missing int, err error) {
	err = a.k.call("restore", func() error { missing, err = a.Archiver.RestorePayloads(ctx, s, records); return err })
	return missing, err
}

// requireRefusals asks the database to remove payloads that it has to keep.
func (i *installation) requireRefusals() {
	t, ctx := i.t, i.t.Context()
	run := func(change func(a *archive.Archiver)) string {
		i.awaitProjections()
		a := i.archiver()
		change(a)
		_, err := a.Run(ctx, archive.Selection{Before: time.Now(), LegalEntities: []ports.LegalEntity{i.entity}}, noProgress)
		return fault.CodeOf(err)
	}
	lost := func() int64 { // payloads that the database and the archive lack
		return i.exec(`SELECT FROM backbone.events e WHERE e.partition_id = $1
			AND NOT EXISTS (SELECT FROM backbone.event_payloads p WHERE p.partition_id = e.partition_id AND p.sequence = e.sequence)
			AND NOT EXISTS (SELECT FROM backbone.archive_segments s WHERE s.partition_id = e.partition_id AND e.sequence BETWEEN s.first_sequence AND s.last_sequence)`, i.entity.Partition)
	}
	segments := i.exec("SELECT FROM backbone.archive_segments")
	require.Equal(t, "archive.content_changed", run(func(a *archive.Archiver) {
		a.Payloads = editedArchiver{a.Payloads, func(l *ports.LeavingPayloads) { l.Sequences = l.Sequences[1:] }}
	}), "a payload less than in the manifest")
	require.Equal(t, "archive.content_changed", run(func(a *archive.Archiver) {
		a.Payloads = editedArchiver{a.Payloads, func(l *ports.LeavingPayloads) { l.Sequences = append(l.Sequences, l.Sequences[0]) }}
	}))
	require.Equal(t, "archive.snapshot_missing", run(func(a *archive.Archiver) {
		a.Payloads = editedArchiver{a.Payloads, func(l *ports.LeavingPayloads) {
			l.StateKeys = slices.DeleteFunc(l.StateKeys, func(k string) bool { return strings.HasPrefix(k, "entity:vendor:") })
		}}
	}))
	require.Equal(t, "archive.redacting", run(func(a *archive.Archiver) {
		a.Payloads = editedArchiver{a.Payloads, func(l *ports.LeavingPayloads) { l.Redactions-- }}
	}))
	i.awaitProjections()
	young := i.archiver()
	definition := ""
	require.NoError(t, i.super.QueryRow(ctx, "SELECT pg_get_functiondef('backbone.archive_payloads'::regproc)").Scan(&definition))
	i.exec(strings.Replace(definition, "interval '0'", "interval '2 years'", 1))
	_, err := young.Run(ctx, archive.Selection{Before: time.Now(), LegalEntities: []ports.LegalEntity{i.entity}}, noProgress)
	require.Equal(t, "archive.too_young", fault.CodeOf(err), "the database does not go by the clock of its caller")
	young.Clock = testkit.NewClock(time.Now())
	_, err = young.Run(ctx, archive.Selection{Before: time.Now()}, noProgress)
	require.Equal(t, "archive.too_young", fault.CodeOf(err))
	require.Zero(t, lost())
	require.Equal(t, segments, i.exec("SELECT FROM backbone.archive_segments"))

	i.allowYoung()
	require.Equal(t, "archive.projection_behind", run(func(a *archive.Archiver) {
		a.Payloads = editedArchiver{a.Payloads, func(*ports.LeavingPayloads) {
			i.exec("UPDATE backbone.projection_checkpoints SET sequence = 3 WHERE partition_id = $1", i.entity.Partition)
		}}
	}))

	node := connect(t, as(t, "backbone_app", i.dsn).Reveal())
	for _, statement := range []string{
		"SELECT backbone.archive_payloads(1, 1, 1, '{1}', 0, '{}', '{}', '{}', '{}')", "SELECT backbone.restore_payloads(1, 1, '{1}', '{}', '{}')", "SELECT backbone.replace_states(1, 1, '', '', '{}', '{}', '{}')", "SELECT backbone.await_archiving()",
		"DELETE FROM backbone.event_payloads", "DELETE FROM backbone.archive_states", "INSERT INTO backbone.archive_segments DEFAULT VALUES",
	} {
		_, err := node.Exec(ctx, statement)
		require.ErrorContains(t, err, "permission denied", statement)
	}
}

// editedArchiver changes which payloads the database is asked to remove.
type editedArchiver struct {
	ports.Archiver
	edit func(*ports.LeavingPayloads)
}

func (a editedArchiver) ArchivePayloads(ctx context.Context, l ports.LeavingPayloads) error {
	a.edit(&l)
	return a.Archiver.ArchivePayloads(ctx, l)
}
