package verify_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/verify"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// sealedEvent is an event with two values of two persons.
func (v *tamperedLog) sealedEvent(t *testing.T, le ports.LegalEntity, change func(*event.Prepared)) {
	t.Helper()
	key, err := shredding.NewKey(shredding.KeyStandard, 1, bytes.Repeat([]byte{7}, shredding.DEKSize))
	require.NoError(t, err)
	p := v.prepared(le)
	seal := func(subject shredding.Subject, pointer string) string {
		envelope, err := shredding.Seal(key, shredding.Location{Partition: le.Partition, Kind: "event", Record: p.ID, Type: p.Type, SchemaVersion: 1, Pointer: pointer}, subject, []byte(`"x"`))
		require.NoError(t, err)
		return string(shredding.Sealed{Envelope: envelope, Subject: subject}.Append(nil))
	}
	p.Payload = []byte(`{"data":{"a":` + seal("employee:E-1", "/data/a") + `,"b":[1,` + seal("employee:E-2", "/data/b/1") + `]},"dimensions":{},"entity_refs":[]}`)
	p.PII = map[string]string{"/data/a": "contact", "/data/b/1": "bank"}
	if change != nil {
		change(&p)
	}
	p.PayloadHash = event.HashPayload(p.Salt, p.Payload)
	_, err = v.Append(t.Context(), ports.AppendRequest{Partition: le.Partition, Events: []event.Prepared{p}})
	require.NoError(t, err)
}

func personalRows() []ports.PersonalRow {
	return []ports.PersonalRow{
		{Sequence: 2, Subject: "employee:E-1", Pointers: []string{"/data/a"}},
		{Sequence: 2, Subject: "employee:E-2", Pointers: []string{"/data/b/1"}},
	}
}

func TestRun_PersonalRows(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		event func(*event.Prepared)
		rows  func([]ports.PersonalRow) []ports.PersonalRow
		want  []place
	}{
		"as they must be": {},
		"a row is missing": {
			rows: func(r []ports.PersonalRow) []ports.PersonalRow { return r[:1] }, want: []place{{verify.PersonalRowMissing, 2}},
		},
		"all rows are missing": {
			rows: func([]ports.PersonalRow) []ports.PersonalRow { return nil }, want: []place{{verify.PersonalRowMissing, 2}, {verify.PersonalRowMissing, 2}},
		},
		"another person": {
			rows: func(r []ports.PersonalRow) []ports.PersonalRow { r[0].Subject = "employee:E-9"; return r },
			want: []place{{verify.PersonalRowExtra, 2}, {verify.PersonalRowMissing, 2}},
		},
		"another key class": {
			rows: func(r []ports.PersonalRow) []ports.PersonalRow { r[0].KeyClass = 1; return r },
			want: []place{{verify.PersonalRowExtra, 2}, {verify.PersonalRowMissing, 2}},
		},
		"another pointer": {
			rows: func(r []ports.PersonalRow) []ports.PersonalRow { r[1].Pointers = []string{"/data/b/0"}; return r },
			want: []place{{verify.PersonalRowExtra, 2}},
		},
		"a row for an event without sealed values": {
			rows: func(r []ports.PersonalRow) []ports.PersonalRow {
				return slices.Insert(r, 0, ports.PersonalRow{Sequence: 1, Subject: "employee:E-1"})
			},
			want: []place{{verify.PersonalRowExtra, 1}},
		},
		"rows before and after all events": {
			rows: func(r []ports.PersonalRow) []ports.PersonalRow {
				return append(slices.Insert(r, 0, ports.PersonalRow{Subject: "employee:E-1"}), ports.PersonalRow{Sequence: 4, Subject: "employee:E-1"})
			},
			want: []place{{verify.PersonalRowExtra, 0}, {verify.PersonalRowExtra, 4}},
		},
		"an envelope that is cut": {
			event: func(p *event.Prepared) {
				p.Payload = []byte(`{"data":{"a":{"$pii":"` + base64.RawURLEncoding.EncodeToString([]byte{1, 0, 0}) + `","sub":"employee:E-1"}}}`)
			},
			want: []place{{verify.SealedMalformed, 2}},
		},
		"plain text under a declared field": {
			event: func(p *event.Prepared) { p.PII["/data/c"] = "contact" }, want: []place{{verify.SealedMalformed, 2}},
		},
		"sealed under no declared field": {
			event: func(p *event.Prepared) { delete(p.PII, "/data/a") }, want: []place{{verify.SealedMalformed, 2}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := newVault()
			le := v.entity(t, "A", 1)
			v.sealedEvent(t, le, c.event)
			v.grow(t, le, 1)
			v.personal = personalRows()
			if c.rows != nil {
				v.personal = c.rows(v.personal)
			}
			r := v.run(t)[0]
			require.Equal(t, append([]place{}, c.want...), places(r), "%v", r.Findings)
			if c.want == nil {
				require.EqualValues(t, 2, r.Sealed)
			}
		})
	}
}

// TestRun_Erasures reads the events that announce them.
func TestRun_Erasures(t *testing.T) {
	t.Parallel()
	v := newVault()
	le := v.entity(t, "A", 1)
	announce := func(data string) {
		p := v.prepared(le)
		p.Type, p.Payload = "pii.subject.erased", []byte(`{"data":`+data+`,"dimensions":{},"entity_refs":[]}`)
		p.PayloadHash = event.HashPayload(p.Salt, p.Payload)
		_, err := v.Append(t.Context(), ports.AppendRequest{Partition: le.Partition, Events: []event.Prepared{p}})
		require.NoError(t, err)
	}
	announce(`{"request_id":"01JQ8E6Z6G3V5T8C9N2M4K7R1P","subject":"employee:E-1","classes":["standard"],"refused_classes":[],"receipt_number":7,"receipt_sha256":"63b2"}`)
	r := v.run(t)[0]
	require.True(t, r.Sound(), "%v", r.Findings)
	require.Equal(t, []verify.Erasure{{
		Sequence: 2, RequestID: "01JQ8E6Z6G3V5T8C9N2M4K7R1P", Subject: "employee:E-1", Classes: []string{"standard"}, ReceiptNumber: 7, ReceiptSHA256: "63b2",
	}}, r.Erasures)
	announce(`[]`)
	require.Equal(t, []place{{verify.AnnouncementUnreadable, 3}}, places(v.run(t)[0]))
}

func TestRun_HiddenEvents(t *testing.T) {
	t.Parallel()
	v := newVault()
	v.entity(t, "A", 3)
	v.hidden = 1
	require.Equal(t, []place{{verify.HiddenEvents, 0}}, places(v.run(t)[0]))
}

func TestRun_ExtraPayloads(t *testing.T) {
	t.Parallel()
	v := newVault()
	v.entity(t, "A", 3)
	before := int64(-5)
	v.extra = []event.Sequence{4, event.Sequence(before)}
	require.Equal(t, []place{{verify.PayloadExtra, 0}, {verify.PayloadExtra, 4}}, places(v.run(t)[0]))
}

// TestRun_UnreadableEvents are passed over; an outage is not taken for tampering.
func TestRun_UnreadableEvents(t *testing.T) {
	t.Parallel()
	v := newVault()
	v.entity(t, "A", 2500)
	unreadable := fault.New(fault.Internal, "store.failed", "broken")
	broken := &brokenPages{tamperedLog: v, bad: map[event.Sequence]bool{7: true, 8: true, 1900: true}, err: unreadable}
	reports, err := verify.Run(t.Context(), broken, "acme", nil, nil)
	require.NoError(t, err)
	require.Equal(t, []place{{verify.EventUnreadable, 7}, {verify.EventUnreadable, 8}, {verify.EventUnreadable, 1900}}, places(reports[0]))
	require.EqualValues(t, 2500, reports[0].Events)

	broken.bad, broken.all = nil, true
	reports, err = verify.Run(t.Context(), broken, "acme", nil, nil)
	require.ErrorIs(t, err, unreadable)
	require.True(t, reports[0].Sound(), "a store that reads nothing proves nothing")

	broken.all, broken.bad, broken.err = false, map[event.Sequence]bool{7: true}, fault.New(fault.Unavailable, "store.unavailable", "away")
	reports, err = verify.Run(t.Context(), broken, "acme", nil, nil)
	require.Equal(t, "store.unavailable", fault.CodeOf(err))
	require.True(t, reports[0].Sound())
}

// brokenPages cannot give pages with certain events.
type brokenPages struct {
	*tamperedLog
	bad map[event.Sequence]bool
	all bool
	err error
}

func (b *brokenPages) ChainPage(ctx context.Context, p event.PartitionID, after event.Sequence, limit int) ([]event.Recorded, error) {
	events, err := b.tamperedLog.ChainPage(ctx, p, after, limit)
	for _, e := range events {
		if b.all || b.bad[e.Sequence] {
			return nil, b.err
		}
	}
	return events, err
}

func TestRun_Heads(t *testing.T) {
	t.Parallel()
	v := newVault()
	a := v.entity(t, "A", 10)
	b := v.entity(t, "B", 0)
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	text, err := verify.HeadsOf(logName, at, v.run(t), nil).Encode()
	require.NoError(t, err)
	heads, err := verify.ParseHeads(text)
	require.NoError(t, err)
	require.Equal(t, logName, heads.LogName)
	require.Equal(t, at, heads.Time)
	require.Len(t, heads.Partitions, 2)
	require.Equal(t, verify.Head{Tenant: "acme", LegalEntity: "B", Partition: b.Partition, Checksum: heads.Partitions[1].Checksum}, heads.Partitions[1])
	require.Len(t, heads.Partitions[1].Checksum, 64, "the genesis")

	against := func() []verify.EntityReport {
		reports, err := verify.Run(t.Context(), v, "acme", nil, nil, verify.Against(heads))
		require.NoError(t, err)
		return reports
	}
	v.grow(t, a, 5)
	v.grow(t, b, 5)
	v.entity(t, "C", 1) // newer than the heads
	for i, r := range against() {
		require.True(t, r.Sound(), "%v", r.Findings)
		require.Equal(t, i < 2, r.Reference != nil)
	}
	v.tamper = func(p event.PartitionID, e []event.Recorded) []event.Recorded {
		e[0].ActorID = "p-2"
		rechain(e, 0, event.GenesisChecksum(logName, p))
		return e
	}
	v.head = func(h ports.Head) ports.Head { h.Sequence = 0; return h } // the database reports a head that fits
	require.Equal(t, []place{{verify.HeadMismatch, 10}}, places(against()[0]))
	v.tamper = func(_ event.PartitionID, e []event.Recorded) []event.Recorded { return e[:min(9, len(e))] }
	require.Equal(t, []place{{verify.HeadBeyondEnd, 10}}, places(against()[0]))
	v.tamper = nil

	// A missing legal entity is found, also if it is selected by its code; other codes are unknown.
	heads.Partitions = append(heads.Partitions, verify.Head{Tenant: "acme", LegalEntity: "Z", Partition: 99, Sequence: 3, Checksum: strings.Repeat("0", 64)})
	require.Equal(t, []place{{verify.LegalEntityMissing, 3}}, places(against()[0]))
	reports, err := verify.Run(t.Context(), v, "acme", []string{"Z"}, nil, verify.Against(heads))
	require.NoError(t, err)
	require.Len(t, reports, 1)
	_, err = verify.Run(t.Context(), v, "acme", []string{"Y"}, nil, verify.Against(heads))
	require.ErrorContains(t, err, `"Y"`)
	reports, err = verify.Run(t.Context(), v, "acme", []string{"A"}, nil, verify.Against(heads))
	require.NoError(t, err)
	require.Len(t, reports, 1, "no other legal entity was selected")
}

func TestParseHeads_Refusals(t *testing.T) {
	t.Parallel()
	sum := strings.Repeat("ab", 32)
	good := `{"log_name":"l","time":"2026-01-01T00:00:00Z","partitions":[{"tenant":"t","legal_entity":"A","partition_id":7,"sequence":1,"checksum":"` + sum + `"}]}`
	_, err := verify.ParseHeads([]byte(good))
	require.NoError(t, err)
	for _, text := range []string{
		"", "{}", "[]", good + good, good[:len(good)-1], strings.Replace(good, `"l"`, `""`, 1), strings.Replace(good, `:7`, `:0`, 1), strings.Replace(good, sum, "ab", 1),
		strings.Replace(good, sum, strings.Repeat("zz", 32), 1), strings.Replace(good, `"tenant"`, `"tenants"`, 1), strings.Replace(good, `"A"`, `""`, 1),
		`{"log_name":"l","time":"2026-01-01T00:00:00Z","partitions":[]}`,
	} {
		_, err := verify.ParseHeads([]byte(text))
		require.Equal(t, "verify.heads_invalid", fault.CodeOf(err), text)
	}
}

// TestExport_LargeLog goes through several pages and gives what the log gives.
func TestExport_LargeLog(t *testing.T) {
	t.Parallel()
	v := newVault()
	le := v.entity(t, "A", 1)
	v.sealedEvent(t, le, nil)
	v.grow(t, le, 2400)
	v.personal = personalRows()
	var file bytes.Buffer
	summary, err := verify.Export(t.Context(), v, le, start, &file, nil)
	require.NoError(t, err)
	require.EqualValues(t, 2402, summary.Events)
	report, name, err := verify.Dump(bytes.NewReader(file.Bytes()))
	require.NoError(t, err)
	require.Equal(t, logName, name)
	require.True(t, report.Sound(), "%v", report.Findings)
	require.Equal(t, v.run(t)[0], report)

	// Side rows are compared in the file too.
	v.personal = v.personal[:1]
	file.Reset()
	_, err = verify.Export(t.Context(), v, le, start, &file, nil)
	require.NoError(t, err)
	report, _, err = verify.Dump(bytes.NewReader(file.Bytes()))
	require.NoError(t, err)
	require.Equal(t, []place{{verify.PersonalRowMissing, 2}}, places(report))

	// A file that cannot be read further keeps what was found.
	broken := errors.New("broken")
	report, _, err = verify.Dump(&failing{bytes.NewReader(file.Bytes()[:file.Len()/2]), broken})
	require.ErrorIs(t, err, broken)
	require.Equal(t, []place{{verify.PersonalRowMissing, 2}}, places(report))
	_, err = verify.Export(t.Context(), v, le, start, failing{}, nil)
	require.Error(t, err)

	empty := v.entity(t, "E", 0)
	file.Reset()
	_, err = verify.Export(t.Context(), v, empty, start, &file, nil)
	require.NoError(t, err)
	v.personal = nil
	report, _, err = verify.Dump(bytes.NewReader(file.Bytes()))
	require.NoError(t, err)
	require.True(t, report.Sound(), "%v", report.Findings)
}

type failing struct {
	*bytes.Reader
	err error
}

func (f failing) Read(b []byte) (int, error) {
	n, err := f.Reader.Read(b)
	if err != nil {
		err = f.err
	}
	return n, err
}

func (failing) Write([]byte) (int, error) { return 0, errors.New("full") }
