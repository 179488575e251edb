package eventlog_test

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/postgres"
	"github.com/erpbackbone/backbone/adapters/postgres/eventlog"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pgtest"
	"github.com/erpbackbone/backbone/application/verify"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/conformance"
)

// tamperFixture is a database in which a superuser changes rows that no role may change, each
// time in a legal entity of its own.
type tamperFixture struct {
	*postgres.Database
	dsn      string
	redactor *eventlog.Redactor
	super    *pgx.Conn // triggers do not fire for it
}

const crimeEvents = 12

func newTamperFixture(t *testing.T) *tamperFixture {
	t.Helper()
	c := &tamperFixture{dsn: pgtest.Database(t)}
	c.Database = pgtest.Open(t, c.dsn, pgtest.WithPhysicalPartitions(3)) // attacks on tables of one legal entity, and on shared ones
	require.NoError(t, c.Directory.Bootstrap(t.Context(), ports.Installation{LogName: pgtest.LogName, Deployment: 5}))
	var err error
	c.redactor, err = eventlog.OpenRedactor(t.Context(), pgtest.As("backbone_eraser", c.dsn))
	require.NoError(t, err)
	t.Cleanup(c.redactor.Close)
	c.super = pgtest.Connect(t, c.dsn)
	c.exec(t, "SET session_replication_role = replica") // disables every trigger
	return c
}

func (c *tamperFixture) exec(t *testing.T, statement string, args ...any) int64 {
	t.Helper()
	tag, err := c.super.Exec(t.Context(), statement, args...)
	require.NoError(t, err, statement)
	return tag.RowsAffected()
}

// newLegalEntity makes a legal entity with events that fill every column.
func (c *tamperFixture) newLegalEntity(t *testing.T, code string) ports.LegalEntity {
	t.Helper()
	le, err := c.Directory.CreateLegalEntity(t.Context(), pgtest.LegalEntity(code))
	require.NoError(t, err)
	for range crimeEvents / 3 {
		_, err = c.Appender.Append(t.Context(), fullEvents(le, 3))
		require.NoError(t, err)
	}
	return le
}

// fullEvents have a value in every column of the skeleton.
func fullEvents(le ports.LegalEntity, n int) ports.AppendRequest {
	r := pgtest.Invoice(le.Partition, n)
	r.Idempotency = nil
	for i := range r.Events {
		e := &r.Events[i]
		e.Scope = event.Scope{
			TenantID: le.TenantID, LegalEntity: le.Code, Division: "d", Region: "r", Site: "s", Custom: []byte(`{"a": "b"}`),
		}
		e.ActorDetails, e.RulesEvaluated = []byte(`{"session_id":"s"}`), []byte(`[{"rule_id":"r"}]`)
		e.CausedBy, e.CausedByPartition, e.Tags = ulid.Make(), 77, []string{"x", "y"}
		e.Keys = []string{event.TagKey("x"), event.TagKey("y")}
		e.Source.Reference = "ref"
		e.Payload = []byte(`{"data":{"name":"Ada","amount":1.50},"dimensions":{},"entity_refs":[]}`)
		e.PayloadHash = event.HashPayload(e.Salt, e.Payload)
	}
	return r
}

func (c *tamperFixture) verify(t *testing.T, le ports.LegalEntity, options ...verify.Option) verify.EntityReport {
	t.Helper()
	reports, err := verify.Run(t.Context(), c.Chains(), le.TenantID, []string{le.Code}, nil, options...)
	require.NoError(t, err)
	require.Len(t, reports, 1)
	return reports[0]
}

// heads exports the heads of a legal entity and reads them back from the file's text.
func (c *tamperFixture) heads(t *testing.T, le ports.LegalEntity) verify.Heads {
	t.Helper()
	report := c.verify(t, le)
	require.True(t, report.Sound(), "%v", report.Findings)
	text, err := verify.HeadsOf(pgtest.LogName, time.Now(), []verify.EntityReport{report}, nil).Encode()
	require.NoError(t, err)
	heads, err := verify.ParseHeads(text)
	require.NoError(t, err)
	return heads
}

func (c *tamperFixture) export(t *testing.T, le ports.LegalEntity) []byte {
	t.Helper()
	var file bytes.Buffer
	_, err := verify.Export(t.Context(), c.Chains(), le, time.Now(), &file, nil)
	require.NoError(t, err)
	return file.Bytes()
}

// recompute writes every checksum again from an event on, as an attacker would who
// knows the format.
func (c *tamperFixture) recompute(t *testing.T, le ports.LegalEntity, from event.Sequence) {
	t.Helper()
	events, err := c.Audit.ChainPage(t.Context(), le.Partition, 0, 0)
	require.NoError(t, err)
	previous := event.GenesisChecksum(pgtest.LogName, le.Partition)
	for _, e := range events {
		if e.Sequence >= from {
			e.PayloadHash = event.HashPayload(e.Salt, e.Payload)
			e.Checksum, _ = e.ChainChecksum(previous, nil)
			c.exec(t, "UPDATE backbone.events SET payload_hash = $3, checksum = $4 WHERE partition_id = $1 AND sequence = $2",
				int32(le.Partition), int64(e.Sequence), e.PayloadHash[:], e.Checksum[:])
		}
		previous = e.Checksum
	}
}

// insertPayload invents a payload without an event.
func (c *tamperFixture) insertPayload(t *testing.T, p event.PartitionID, n int64) {
	t.Helper()
	c.exec(t, "INSERT INTO backbone.event_payloads (sequence, partition_id, salt, payload) VALUES ($2, $1, sha256('x'), '{}')", int32(p), n)
}

// cut deletes everything after an event.
func (c *tamperFixture) cut(t *testing.T, le ports.LegalEntity, after int) {
	t.Helper()
	for _, table := range []string{"events", "event_payloads", "event_keys"} {
		c.exec(t, "DELETE FROM backbone."+table+" WHERE partition_id = $1 AND sequence > $2", int32(le.Partition), after)
	}
	c.exec(t, "DELETE FROM backbone.stream_versions WHERE partition_id = $1 AND last_sequence > $2", int32(le.Partition), after)
}

func (c *tamperFixture) redact(t *testing.T, le ports.LegalEntity, n event.Sequence) ports.Redaction {
	t.Helper()
	return c.redactAt(t, le, n, "/data/name")
}

// redactAt redacts the name at its place in the payload.
func (c *tamperFixture) redactAt(t *testing.T, le ports.LegalEntity, n event.Sequence, pointer string) ports.Redaction {
	t.Helper()
	r := ports.RedactionRequest{ID: ulid.Make(), Partition: le.Partition, Sequence: n, Pointers: []string{pointer}, Reason: "x", RequestedBy: "p-1"}
	events, err := c.Audit.ChainPage(t.Context(), le.Partition, n-1, 1)
	require.NoError(t, err)
	r.Scope = event.HashPayload(events[0].Salt, events[0].Payload)
	_, err = c.redactor.AddRedaction(t.Context(), r)
	require.NoError(t, err)
	_, err = c.redactor.ApproveRedaction(t.Context(), le.Partition, r.ID, "p-2", r.Scope)
	require.NoError(t, err)
	x, err := c.redactor.RedactPayload(t.Context(), r, conformance.Replacement(events[0].PayloadHash, strings.Replace(string(events[0].Payload), "Ada", "[REDACTED]", 1)))
	require.NoError(t, err)
	return x
}

// announce appends the event of a redaction.
func (c *tamperFixture) announce(t *testing.T, le ports.LegalEntity, x ports.Redaction) {
	t.Helper()
	r := fullEvents(le, 1)
	e := &r.Events[0]
	e.Type = "pii.payload.redacted"
	e.Payload = fmt.Appendf(nil, `{"data":{"redaction_id":%q,"event_id":%q,"sequence":%d,"pointers":[%q],"reason":"x","old_payload_hash":"%x","new_payload_hash":"%x","requested_by":"p-1","approved_by":"p-2"},"dimensions":{},"entity_refs":[]}`,
		x.ID.String(), x.EventID.String(), x.Sequence, x.Pointers[0], x.OldPayloadHash, x.NewPayloadHash)
	e.PayloadHash = event.HashPayload(e.Salt, e.Payload)
	_, err := c.Appender.Append(t.Context(), r)
	require.NoError(t, err)
}

const at = " WHERE partition_id = $1 AND sequence = 5"

// TestVerify_FindsUnusualValues writes what no append could have written. test/tamper changes
// each column in turn.
func TestVerify_FindsUnusualValues(t *testing.T) {
	t.Parallel()
	c := newTamperFixture(t)
	statements := map[string]string{
		"payload": `UPDATE backbone.event_payloads SET payload = replace(payload::text, '1.50', '9.50')::json`, "spelling": `UPDATE backbone.event_payloads SET payload = replace(payload::text, '1.50', '1.5')::json`,
		"salt": `UPDATE backbone.event_payloads SET salt = sha256(salt)`, "shorter salt": `UPDATE backbone.event_payloads SET salt = substr(salt, 1, 15)`,
		"longer salt": `UPDATE backbone.event_payloads SET salt = salt || '\x00'`, "longer payload hash": `UPDATE backbone.events SET payload_hash = payload_hash || '\x00'`,
		"longer checksum": `UPDATE backbone.events SET checksum = checksum || '\x00'`, "endless time": `UPDATE backbone.events SET occurred_at = 'infinity'`,
		"personal map that cannot be read": `UPDATE backbone.events SET pii = '[]'`, "payload deleted": `DELETE FROM backbone.event_payloads`,
	}
	for i, name := range slices.Sorted(maps.Keys(statements)) {
		le := c.newLegalEntity(t, fmt.Sprintf("E%d", i))
		require.EqualValues(t, 1, c.exec(t, statements[name]+at, int32(le.Partition)), name)
		report := c.verify(t, le)
		require.False(t, report.Sound(), name)
		for _, f := range report.Findings {
			require.NotContains(t, f.Detail, "Ada", name)
		}
	}
}

// TestVerify_FindsTampering is the list of changes by an attacker who may write
// everywhere. With headOnly the log is consistent, and only a head from outside
// reveals the change.
func TestVerify_FindsTampering(t *testing.T) {
	t.Parallel()
	c := newTamperFixture(t)
	type crime struct {
		name     string
		headOnly bool
		want     verify.FindingKind
		do       func(t *testing.T, le ports.LegalEntity)
	}
	one := func(statement string) func(*testing.T, ports.LegalEntity) {
		return func(t *testing.T, le ports.LegalEntity) {
			require.EqualValues(t, 1, c.exec(t, statement, int32(le.Partition)))
		}
	}
	insert := func(sequence, version string) string {
		columns := pgtest.Column(t, c.super, `SELECT attname::text FROM pg_attribute WHERE attrelid = 'backbone.events'::regclass AND attnum > 0 AND NOT attisdropped`)
		values := slices.Clone(columns)
		for i, name := range columns {
			switch name {
			case "sequence":
				values[i] = sequence
			case "id":
				values[i] = "gen_random_uuid()"
			case "stream_version":
				values[i] = version
			}
		}
		return "INSERT INTO backbone.events (" + strings.Join(columns, ",") + ") SELECT " + strings.Join(values, ",") + " FROM backbone.events" + at
	}
	swap := func(t *testing.T, table string, le ports.LegalEntity) {
		for _, step := range []string{"-1 WHERE sequence = 5", "5 WHERE sequence = 6", "6 WHERE sequence = -1"} {
			require.EqualValues(t, 1, c.exec(t, "UPDATE backbone."+table+" SET sequence = "+step+" AND partition_id = $1", int32(le.Partition)))
		}
	}
	for i, x := range []crime{
		{"delete an event", false, verify.SequenceGap, one("DELETE FROM backbone.events" + at)},
		{"delete the first event", false, verify.SequenceGap, one("DELETE FROM backbone.events WHERE partition_id = $1 AND sequence = 1")},
		{"insert an event after the last", false, verify.ChecksumMismatch, one(insert("13", "2"))},
		{"insert an event before the first, where no reader pages", false, verify.HiddenEvents, one(insert("0", "2"))},
		{"insert an event far before the first", false, verify.HiddenEvents, one(insert("-7", "2"))},
		{"insert a payload after the last event, which blocks appends", false, verify.PayloadExtra, func(t *testing.T, le ports.LegalEntity) {
			c.insertPayload(t, le.Partition, crimeEvents+1)
			_, err := c.Appender.Append(t.Context(), fullEvents(le, 1))
			require.Error(t, err)
		}},
		{"insert a payload far after the last event", false, verify.PayloadExtra, func(t *testing.T, le ports.LegalEntity) { c.insertPayload(t, le.Partition, 1<<40) }},
		{"insert a payload before the first event", false, verify.PayloadExtra, func(t *testing.T, le ports.LegalEntity) { c.insertPayload(t, le.Partition, 0) }},
		{"reorder two events", false, verify.ChecksumMismatch, func(t *testing.T, le ports.LegalEntity) { swap(t, "events", le); swap(t, "event_payloads", le) }},
		{"exchange two payloads", false, verify.PayloadMismatch, func(t *testing.T, le ports.LegalEntity) { swap(t, "event_payloads", le) }},
		{"cut the tail", true, verify.HeadBeyondEnd, func(t *testing.T, le ports.LegalEntity) { c.cut(t, le, 8) }},
		{"cut everything", true, verify.HeadBeyondEnd, func(t *testing.T, le ports.LegalEntity) { c.cut(t, le, 0) }},
		{"rewind and go on", true, verify.HeadMismatch, func(t *testing.T, le ports.LegalEntity) {
			c.cut(t, le, 8)
			for range 3 {
				_, err := c.Appender.Append(t.Context(), fullEvents(le, 3))
				require.NoError(t, err)
			}
		}},
		{"edit and compute every hash again to the end", true, verify.HeadMismatch, func(t *testing.T, le ports.LegalEntity) {
			c.exec(t, "UPDATE backbone.event_payloads SET payload = replace(payload::text, '1.50', '9.50')::json"+at, int32(le.Partition))
			c.recompute(t, le, 5)
		}},
		{"delete an event, close the gap and compute again", true, verify.HeadBeyondEnd, func(t *testing.T, le ports.LegalEntity) {
			for _, table := range []string{"events", "event_payloads", "event_keys"} {
				c.exec(t, "DELETE FROM backbone."+table+at, int32(le.Partition))
				for n := 6; n <= crimeEvents; n++ {
					c.exec(t, "UPDATE backbone."+table+" SET sequence = sequence - 1 WHERE partition_id = $1 AND sequence = $2", int32(le.Partition), n)
				}
			}
			for _, name := range []string{"first_sequence", "last_sequence"} {
				c.exec(t, "DELETE FROM backbone.stream_versions WHERE partition_id = $1 AND "+name+" = 5", int32(le.Partition))
				c.exec(t, "UPDATE backbone.stream_versions SET "+name+" = "+name+" - 1 WHERE partition_id = $1 AND "+name+" > 5", int32(le.Partition))
			}
			c.recompute(t, le, 5)
		}},
		{"remove the legal entity", true, verify.LegalEntityMissing, func(t *testing.T, le ports.LegalEntity) {
			c.cut(t, le, 0)
			c.exec(t, "DELETE FROM backbone.legal_entities WHERE partition_id = $1", int32(le.Partition))
		}},
		{"another genesis", false, verify.GenesisMismatch, one("UPDATE backbone.partition_heads SET genesis = sha256('x') WHERE partition_id = $1")},
		{"redact without a record", false, verify.PayloadMismatch, one("UPDATE backbone.event_payloads SET payload = replace(payload::text, 'Ada', '[REDACTED]')::json" + at)},
		{"a redaction without an event", false, verify.RedactionUnannounced, func(t *testing.T, le ports.LegalEntity) { c.redact(t, le, 5) }},
		{"a forged record for an edit", false, verify.RedactionUnannounced, func(t *testing.T, le ports.LegalEntity) {
			c.exec(t, "UPDATE backbone.event_payloads SET payload = replace(payload::text, 'Ada', 'Eve')::json"+at, int32(le.Partition))
			c.exec(t, `INSERT INTO backbone.pii_redactions SELECT now(), 5, $1, gen_random_uuid(), e.id, '{/data/name}', 'x', 'p-1', 'p-2', e.payload_hash,
				sha256(int4send(19) || convert_to('backbone/payload/v1', 'UTF8') || p.salt || convert_to(p.payload::text, 'UTF8'))
				FROM backbone.events e JOIN backbone.event_payloads p USING (partition_id, sequence) WHERE e.partition_id = $1 AND e.sequence = 5`, int32(le.Partition))
		}},
		{"an event of a redaction without record", false, verify.RedactionUnrecorded, func(t *testing.T, le ports.LegalEntity) {
			x := c.redact(t, le, 5)
			c.announce(t, le, x)
			c.exec(t, "DELETE FROM backbone.pii_redactions WHERE partition_id = $1", int32(le.Partition))
		}},
		{"an edit behind an authorised redaction", false, verify.PayloadMismatch, func(t *testing.T, le ports.LegalEntity) {
			c.announce(t, le, c.redact(t, le, 5))
			c.exec(t, "UPDATE backbone.event_payloads SET payload = replace(payload::text, '1.50', '9.50')::json"+at, int32(le.Partition))
		}},
		{"a record that was changed", false, verify.RedactionMismatch, func(t *testing.T, le ports.LegalEntity) {
			c.announce(t, le, c.redact(t, le, 5))
			c.exec(t, "UPDATE backbone.pii_redactions SET new_payload_hash = sha256('x') WHERE partition_id = $1", int32(le.Partition))
		}},
		{"a redaction without a request", false, verify.RedactionUnapproved, func(t *testing.T, le ports.LegalEntity) {
			c.announce(t, le, c.redact(t, le, 5))
			c.exec(t, "DELETE FROM backbone.redaction_requests WHERE partition_id = $1", int32(le.Partition))
		}},
		{"a redaction that another person approved", false, verify.RedactionUnapproved, func(t *testing.T, le ports.LegalEntity) {
			c.announce(t, le, c.redact(t, le, 5))
			c.exec(t, "UPDATE backbone.redaction_requests SET approved_by = 'p-3' WHERE partition_id = $1", int32(le.Partition))
		}},
		{"a redaction of other values than requested", false, verify.RedactionUnapproved, func(t *testing.T, le ports.LegalEntity) {
			c.announce(t, le, c.redact(t, le, 5))
			c.exec(t, "UPDATE backbone.redaction_requests SET pointers = '{/data/other}' WHERE partition_id = $1", int32(le.Partition))
		}},
		{"a redaction whose request was withdrawn", false, verify.RedactionUnapproved, func(t *testing.T, le ports.LegalEntity) {
			c.announce(t, le, c.redact(t, le, 5))
			c.exec(t, "UPDATE backbone.redaction_requests SET state = 'withdrawn' WHERE partition_id = $1", int32(le.Partition))
		}},
		{"a redaction that readers are not told of", false, verify.RedactionMismatch, func(t *testing.T, le ports.LegalEntity) {
			c.announce(t, le, c.redact(t, le, 5))
			c.exec(t, "UPDATE backbone.event_payloads SET redactions = NULL WHERE sequence = 5 AND partition_id = $1", int32(le.Partition))
		}},
		{"readers are told of a redaction that was not", false, verify.RedactionUnrecorded,
			one(`UPDATE backbone.event_payloads SET redactions = '[{"request":"00000000-0000-0000-0000-000000000001","pointers":["/data/name"],"at":"2026-03-01T00:00:00Z"}]'` + at)},
		{"a record put on another event", false, verify.RedactionMismatch, func(t *testing.T, le ports.LegalEntity) {
			c.announce(t, le, c.redact(t, le, 5))
			c.exec(t, "UPDATE backbone.pii_redactions SET sequence = 6 WHERE partition_id = $1", int32(le.Partition))
		}},
		{"a row about a person that is not there", false, verify.PersonalRowExtra,
			one("INSERT INTO backbone.event_pii_subjects VALUES (5, $1, 0, 'employee:E-1', '{/data/name}')")},
	} {
		t.Run(x.name, func(t *testing.T) {
			le := c.newLegalEntity(t, fmt.Sprintf("C%d", i))
			heads := c.heads(t, le)
			x.do(t, le)
			if x.want != verify.LegalEntityMissing {
				require.Equal(t, x.headOnly, c.verify(t, le).Sound(), "%v", c.verify(t, le).Findings)
			}
			report := c.verify(t, le, verify.Against(heads))
			require.Contains(t, kinds(report), x.want, "%v", report.Findings)
			if strings.Contains(x.name, "legal entity") {
				return
			}
			dumped, _, err := verify.Dump(bytes.NewReader(c.export(t, le)), verify.Against(heads))
			require.NoError(t, err)
			if x.want == verify.HiddenEvents || x.want == verify.PayloadExtra { // they are not in the file, which is sound
				return
			}
			require.Contains(t, kinds(dumped), x.want, "%v", dumped.Findings)
		})
	}

	t.Run("exchange the rows of two partitions", func(t *testing.T) {
		a, b := c.newLegalEntity(t, "SA"), c.newLegalEntity(t, "SB")
		var heads verify.Heads
		for _, le := range []ports.LegalEntity{a, b} {
			h := c.heads(t, le)
			heads.LogName, heads.Partitions = h.LogName, append(heads.Partitions, h.Partitions...)
		}
		for _, table := range []string{"events", "event_payloads", "stream_versions"} {
			for _, step := range [][2]int32{{int32(a.Partition), 1}, {int32(b.Partition), int32(a.Partition)}, {1, int32(b.Partition)}} {
				require.EqualValues(t, crimeEvents, c.exec(t, "UPDATE backbone."+table+" SET partition_id = $2 WHERE partition_id = $1", step[0], step[1]))
			}
		}
		for _, le := range []ports.LegalEntity{a, b} {
			require.Contains(t, kinds(c.verify(t, le)), verify.ForeignScope)
			require.Contains(t, kinds(c.verify(t, le)), verify.ChecksumMismatch)
			// With everything written again only the head reveals it.
			c.exec(t, "UPDATE backbone.events SET legal_entity = $2 WHERE partition_id = $1", int32(le.Partition), le.Code)
			c.recompute(t, le, 1)
			require.True(t, c.verify(t, le).Sound())
			require.Contains(t, kinds(c.verify(t, le, verify.Against(heads))), verify.HeadMismatch)
		}
	})

	t.Run("a payload of a partition without a legal entity", func(t *testing.T) {
		c.insertPayload(t, 7, 1)
		unlisted, err := c.Audit.UnlistedPartitions(t.Context())
		require.NoError(t, err)
		require.Contains(t, unlisted, event.PartitionID(7))
		c.exec(t, "DELETE FROM backbone.event_payloads WHERE partition_id = 7")
	})

	t.Run("another log name", func(t *testing.T) {
		le := c.newLegalEntity(t, "LN")
		heads := c.heads(t, le)
		heads.LogName = "other.example.org"
		require.Contains(t, kinds(c.verify(t, le, verify.Against(heads))), verify.LogNameChanged)
	})

	t.Run("an authorised redaction is none", func(t *testing.T) {
		le := c.newLegalEntity(t, "OK")
		heads := c.heads(t, le)
		x := c.redact(t, le, 5)
		c.announce(t, le, x)
		y := c.redact(t, le, 7)
		c.announce(t, le, y)
		report := c.verify(t, le, verify.Against(heads))
		require.True(t, report.Sound(), "%v", report.Findings)
		require.Len(t, report.Redactions, 2)
		require.Equal(t, x.ID.String(), report.Redactions[0].ID)
		require.EqualValues(t, 5, report.Redactions[0].Sequence)
		require.EqualValues(t, 13, report.Redactions[0].AnnouncedIn)
		require.Equal(t, []string{"/data/name"}, report.Redactions[0].Pointers)
		dumped, name, err := verify.Dump(bytes.NewReader(c.export(t, le)), verify.Against(heads))
		require.NoError(t, err)
		require.Equal(t, pgtest.LogName, name)
		require.Equal(t, report, dumped, "verification of the file reports the same")
	})
}

func kinds(r verify.EntityReport) []verify.FindingKind {
	out := make([]verify.FindingKind, len(r.Findings))
	for i, f := range r.Findings {
		out[i] = f.Kind
	}
	return out
}

// TestVerify_FindsFlippedBytesOfExport flips every byte of an export file in turn.
func TestVerify_FindsFlippedBytesOfExport(t *testing.T) {
	t.Parallel()
	c := newTamperFixture(t)
	le, err := c.Directory.CreateLegalEntity(t.Context(), pgtest.LegalEntity("X"))
	require.NoError(t, err)
	_, err = c.Appender.Append(t.Context(), fullEvents(le, 2))
	require.NoError(t, err)
	c.announce(t, le, c.redact(t, le, 2))
	file := c.export(t, le)
	report, _, err := verify.Dump(bytes.NewReader(file))
	require.NoError(t, err)
	require.True(t, report.Sound(), "%v", report.Findings)
	for i := range file {
		for _, bit := range []byte{1, 0x20, 0x80} {
			forged := slices.Clone(file)
			forged[i] ^= bit
			report, _, err := verify.Dump(bytes.NewReader(forged))
			require.False(t, err == nil && report.Sound(), "byte %d of %d, bit %x: %q", i, len(file), bit, context20(file, i))
		}
	}
	for i := range file {
		report, _, err := verify.Dump(bytes.NewReader(file[:i]))
		require.False(t, err == nil && report.Sound(), "cut at %d", i)
	}
	lines := bytes.SplitAfter(file, []byte("\n"))
	for i := 1; i < len(lines)-1; i++ { // also those whose digest an attacker would compute again
		report, _, err := verify.Dump(bytes.NewReader(bytes.Join(append(slices.Clone(lines[:i]), lines[i+1:]...), nil)))
		require.False(t, err == nil && report.Sound(), "without line %d", i)
	}
	_, _, err = verify.Dump(bytes.NewReader(append(slices.Clone(file), '\n')))
	require.NoError(t, err)
	_, _, err = verify.Dump(io.LimitReader(strings.NewReader("{}"), 2))
	require.Error(t, err)
}

func context20(b []byte, i int) []byte { return b[max(0, i-20):min(len(b), i+20)] }
