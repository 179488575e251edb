package verify_test

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"iter"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/adapters/system"
	"github.com/erpbackbone/backbone/application/verify"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

const logName = "ledger.example.org"

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// tamperedLog is a store whose rows the test has changed behind the appender.
type tamperedLog struct {
	*memory.Audit
	*memory.EventReader
	*memory.Intents
	*memory.Directory
	*memory.Appender
	*memory.SubscriptionStore
	*memory.Webhooks
	*memory.Registry
	*memory.AccessLog
	*memory.ProjectionVersions
	*memory.Papers
	former formerRows
	clock  *testkit.Clock
	ids    *system.IDs
	tamper func(p event.PartitionID, events []event.Recorded) []event.Recorded // of a whole partition
	head   func(ports.Head) ports.Head
	pages  func(after event.Sequence) error

	redactions []ports.Redaction
	personal   []ports.PersonalRow
	types      []eventtype.Registration
	keys       []ports.EventKey
	claims     []ports.ClaimedKey
	requests   []ports.RequestKey
	series     []ports.NumberSeries
	readers    []ports.LogReader
	damage     []ports.DeliveryDamage
	unlisted   []event.PartitionID
	extra      []event.Sequence // of payloads without an event
	hidden     int              // events that reading in order does not come across
	kept       int              // of streams that nothing else shows
}

func newVault() *tamperedLog {
	clock := testkit.NewClock(start)
	v := vaultOn(memory.New(memory.Config{LogName: logName, Clock: clock}))
	v.clock, v.ids = clock, system.NewIDs()
	return v
}

// FormerDecisions implements ports.FormerDecisions.
func (v *tamperedLog) FormerDecisions(ctx context.Context, tenantID string, after ports.ParkedDecision, limit int) ([]ports.ParkedDecision, error) {
	return v.former.FormerDecisions(ctx, tenantID, after, limit)
}

func vaultOn(d *memory.Database) *tamperedLog {
	return &tamperedLog{Audit: d.Audit, EventReader: d.Events, Intents: d.Intents, Directory: d.Directory, Appender: d.Appender, Registry: d.Registry, SubscriptionStore: d.Subscriptions, Webhooks: d.Webhooks, AccessLog: d.AccessLog, ProjectionVersions: d.ProjectionVersions, Papers: d.Papers}
}

func (v *tamperedLog) entity(t *testing.T, code string, events int) ports.LegalEntity {
	t.Helper()
	le, err := v.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: "acme", Code: code})
	require.NoError(t, err)
	v.grow(t, le, events)
	return le
}

func (v *tamperedLog) grow(t *testing.T, le ports.LegalEntity, events int) {
	t.Helper()
	for events > 0 {
		batch := make([]event.Prepared, min(events, 500))
		events -= len(batch)
		for i := range batch {
			batch[i] = v.prepared(le)
		}
		v.clock.Advance(time.Second)
		_, err := v.Append(t.Context(), ports.AppendRequest{Partition: le.Partition, Events: batch})
		require.NoError(t, err)
	}
}

func (v *tamperedLog) prepared(le ports.LegalEntity) event.Prepared {
	p := event.Prepared{
		Skeleton: event.Skeleton{
			Partition: le.Partition, ID: v.ids.NewID(start), Type: "till.cash.moved", SchemaVersion: 1, OccurredAt: start, EffectiveDate: 1,
			Scope: event.Scope{TenantID: le.TenantID, LegalEntity: le.Code}, ActorType: event.Human, ActorID: "p-1", CorrelationID: "c-1",
			Stream: event.StreamID{Type: "till", ID: "main"},
		},
		TypeNumber: 1, Salt: v.ids.NewSalt(), Payload: []byte(`{"data":{"amount":1.50},"dimensions":{},"entity_refs":[]}`),
	}
	p.PayloadHash, p.PayloadHashDone = event.HashPayload(p.Salt, p.Payload), true
	return p
}

func (v *tamperedLog) ChainPage(ctx context.Context, p event.PartitionID, after event.Sequence, limit int) ([]event.Recorded, error) {
	if v.pages != nil {
		if err := v.pages(after); err != nil {
			return nil, err
		}
	}
	if v.tamper == nil {
		return v.Audit.ChainPage(ctx, p, after, limit)
	}
	all, err := v.Audit.ChainPage(ctx, p, 0, 0)
	if err != nil {
		return nil, err
	}
	// As a database would: those after the sequence, in order.
	all = v.tamper(p, all)
	slices.SortStableFunc(all, func(a, b event.Recorded) int { return int(a.Sequence) - int(b.Sequence) })
	all = slices.DeleteFunc(all, func(e event.Recorded) bool { return e.Sequence <= after })
	return all[:min(limit, len(all))], nil
}

func (v *tamperedLog) Head(ctx context.Context, p event.PartitionID) (ports.Head, error) {
	h, err := v.EventReader.Head(ctx, p)
	if v.head != nil {
		h = v.head(h)
	}
	return h, err
}

func (v *tamperedLog) Redactions(context.Context, event.PartitionID) ([]ports.Redaction, error) {
	return v.redactions, nil
}

func (v *tamperedLog) PersonalRows(context.Context, event.PartitionID, event.Sequence) iter.Seq2[ports.PersonalRow, error] {
	return func(yield func(ports.PersonalRow, error) bool) {
		for _, r := range v.personal {
			if !yield(r, nil) {
				return
			}
		}
	}
}

// PersonalKeys lists the keys of the rows in their order, which is that of persons and classes.
func (v *tamperedLog) PersonalKeys(_ context.Context, _ event.PartitionID, after ports.PersonalKey, limit int) (out []ports.PersonalKey, _ error) {
	for _, r := range v.personal {
		k := ports.PersonalKey{Subject: shredding.Subject(r.Subject), KeyClass: shredding.KeyClass(r.KeyClass), First: r.Sequence}
		if cmp.Or(cmp.Compare(k.Subject, after.Subject), cmp.Compare(k.KeyClass, after.KeyClass)) > 0 && len(out) < limit {
			out = append(out, k)
		}
	}
	return out, nil
}

// The memory store has no rows of streams, so they are computed from the events.
func (v *tamperedLog) StreamRows(ctx context.Context, p event.PartitionID, streams []event.StreamID) (out []ports.StreamRow, err error) {
	for _, id := range streams {
		events, err := v.EventsOfStream(ctx, p, id, 1, 0)
		if err != nil {
			return nil, err
		}
		if n := len(events); n > 0 {
			out = append(out, ports.StreamRow{Stream: id, First: events[0].Sequence, Last: events[n-1].Sequence, StreamStatus: ports.StreamStatus{
				State: event.StreamActive, Version: event.Version(n),
			}})
		}
	}
	return out, nil
}

func (v *tamperedLog) RegistryRecord(_ context.Context, tenantID string) (ports.RegistryRecord, error) {
	record := ports.RegistryRecord{TenantID: tenantID}
	if tenantID != "" {
		return record, nil
	}
	for i := range v.types {
		document, err := v.types[i].Document()
		if err != nil {
			return record, err
		}
		record.Versions = append(record.Versions, ports.StoredVersion{Type: v.types[i].Type, SchemaVersion: v.types[i].SchemaVersion, Document: document})
	}
	return record, nil
}

func (v *tamperedLog) EventTypeNumbers(context.Context, []string) (map[string]ports.EventTypeName, error) {
	numbers := map[string]ports.EventTypeName{}
	for i := range v.types {
		numbers[v.types[i].Type] = ports.EventTypeName{Number: v.types[i].Number, IsShared: true}
	}
	return numbers, nil
}

func (v *tamperedLog) EventKeys(_ context.Context, _ event.PartitionID, from, through event.Sequence) iter.Seq2[ports.EventKey, error] {
	return func(yield func(ports.EventKey, error) bool) {
		for _, k := range v.keys {
			if k.Sequence >= from && k.Sequence <= through && !yield(k, nil) {
				return
			}
		}
	}
}

func (v *tamperedLog) BusinessKeys(_ context.Context, _ event.PartitionID, from, through event.Sequence) iter.Seq2[ports.ClaimedKey, error] {
	return func(yield func(ports.ClaimedKey, error) bool) {
		for _, k := range v.claims {
			if k.Sequence >= from && k.Sequence <= through && !yield(k, nil) {
				return
			}
		}
	}
}

func (v *tamperedLog) RequestKeys(context.Context, event.PartitionID) iter.Seq2[ports.RequestKey, error] {
	return func(yield func(ports.RequestKey, error) bool) {
		for _, k := range v.requests {
			if !yield(k, nil) {
				return
			}
		}
	}
}

func (v *tamperedLog) NumberSeries(context.Context, event.PartitionID) ([]ports.NumberSeries, error) {
	return v.series, nil
}

func (v *tamperedLog) Readers(context.Context, event.PartitionID) ([]ports.LogReader, error) {
	return v.readers, nil
}

func (v *tamperedLog) DeliveryDamage(context.Context, event.PartitionID, int) ([]ports.DeliveryDamage, error) {
	return v.damage, nil
}

func (v *tamperedLog) UnlistedPartitions(context.Context) ([]event.PartitionID, error) {
	return v.unlisted, nil
}

func (v *tamperedLog) StreamRowsWithEnds(context.Context, event.PartitionID, event.StreamID, int) (ports.StreamRowPage, error) {
	return ports.StreamRowPage{}, nil
}

func (v *tamperedLog) CountStreamRows(ctx context.Context, p event.PartitionID, until event.Sequence) (n uint64, err error) {
	events, err := v.Audit.ChainPage(ctx, p, 0, 0)
	for _, e := range events {
		if e.StreamVersion == 1 && e.Sequence <= until {
			n++
		}
	}
	return n + uint64(v.kept), err
}

func (v *tamperedLog) ExtraPayloads(context.Context, event.PartitionID, int) ([]event.Sequence, error) {
	return v.extra, nil
}

func (v *tamperedLog) CountEvents(ctx context.Context, p event.PartitionID, until event.Sequence) (uint64, error) {
	events, err := v.Audit.ChainPage(ctx, p, 0, 0)
	if v.tamper != nil {
		events = v.tamper(p, events)
	}
	n := uint64(v.hidden)
	for _, e := range events {
		if e.Sequence <= until {
			n++
		}
	}
	return n, err
}

func (v *tamperedLog) run(t *testing.T) []verify.EntityReport {
	t.Helper()
	reports, err := verify.Run(t.Context(), v, "acme", nil, nil)
	require.NoError(t, err)
	return reports
}

// place is a finding without its text.
type place struct {
	Kind     verify.FindingKind
	Sequence event.Sequence
}

func places(r verify.EntityReport) []place {
	out := make([]place, len(r.Findings))
	for i, f := range r.Findings {
		out[i] = place{f.Kind, f.Sequence}
	}
	return out
}

// rechain recomputes checksums from an index on, as an attacker would who can write
// everywhere and knows the format.
func rechain(events []event.Recorded, from int, previous event.Hash) {
	for i := from; i < len(events); i++ {
		events[i].Checksum, _ = events[i].ChainChecksum(previous, nil)
		previous = events[i].Checksum
	}
}

func TestRun_SoundLog(t *testing.T) {
	t.Parallel()
	v := newVault()
	v.entity(t, "A", 2500) // more than two pages
	v.entity(t, "B", 1000) // exactly one
	v.entity(t, "C", 0)
	type step struct {
		entity      string
		done, total uint64
	}
	var progress []step
	reports, err := verify.Run(t.Context(), v, "acme", nil, func(entity string, done, total uint64) {
		progress = append(progress, step{entity, done, total})
	})
	require.NoError(t, err)
	require.Len(t, reports, 3)
	for i, events := range []uint64{2500, 1000, 0} {
		r := reports[i]
		require.True(t, r.Sound(), "%v", r.Findings)
		require.Equal(t, events, r.Events)
		require.EqualValues(t, events, r.Head)
		require.Equal(t, "acme", r.Tenant)
		require.Zero(t, r.Suppressed)
		head, err := v.EventReader.Head(t.Context(), r.Partition)
		require.NoError(t, err)
		if events > 0 {
			require.Equal(t, hex.EncodeToString(head.Checksum[:]), r.Checksum)
		}
	}
	require.Equal(t, []step{
		{"A", 0, 2500}, {"A", 1000, 2500}, {"A", 2000, 2500}, {"A", 2500, 2500}, {"B", 0, 1000}, {"B", 1000, 1000}, {"C", 0, 0},
	}, progress)

	text, err := json.Marshal(reports[0])
	require.NoError(t, err)
	require.Contains(t, string(text), `"findings":[]`, "empty, not null")
}

func TestRun_NamedLegalEntities(t *testing.T) {
	t.Parallel()
	v := newVault()
	v.entity(t, "A", 1)
	v.entity(t, "B", 1)
	reports, err := verify.Run(t.Context(), v, "acme", []string{"B"}, nil)
	require.NoError(t, err)
	require.Len(t, reports, 1)
	require.Equal(t, "B", reports[0].LegalEntity)
	_, err = verify.Run(t.Context(), v, "acme", []string{"B", "X"}, nil)
	require.ErrorContains(t, err, `"X"`)
	reports, err = verify.Run(t.Context(), v, "rival", nil, nil)
	require.NoError(t, err)
	require.Empty(t, reports)
	reports, err = verify.Run(t.Context(), v, "", nil, nil)
	require.NoError(t, err)
	require.Len(t, reports, 2, "without a tenant, all of them")

	_, err = verify.Run(t.Context(), vaultOn(memory.New(memory.Config{})), "", nil, nil)
	require.Equal(t, "installation.not_bootstrapped", fault.CodeOf(err))
}

// TestRun_Tampering changes ten events in every way that a database owner could.
func TestRun_Tampering(t *testing.T) {
	t.Parallel()
	type events = []event.Recorded
	for name, c := range map[string]struct {
		tamper func(events) events
		want   []place
	}{
		"payload": {func(e events) events {
			e[4].Payload = []byte(`{"data":{"amount":9.50},"dimensions":{},"entity_refs":[]}`)
			return e
		}, []place{{verify.PayloadMismatch, 5}}},
		"number spelled otherwise": {func(e events) events {
			e[4].Payload = []byte(`{"data":{"amount":1.5},"dimensions":{},"entity_refs":[]}`)
			return e
		}, []place{{verify.PayloadMismatch, 5}}},
		"salt": {func(e events) events { e[4].Salt[0]++; return e }, []place{{verify.PayloadMismatch, 5}}},
		"payload and its hash": {func(e events) events {
			e[4].Payload = []byte(`{"data":{}}`)
			e[4].PayloadHash = event.HashPayload(e[4].Salt, e[4].Payload)
			return e
		}, []place{{verify.ChecksumMismatch, 5}}},
		"payload deleted":  {func(e events) events { e[4].Payload = nil; return e }, []place{{verify.PayloadMissing, 5}}},
		"payload emptied":  {func(e events) events { e[4].Payload = []byte{}; return e }, []place{{verify.PayloadMismatch, 5}}},
		"payloads swapped": {func(e events) events { e[3].Payload, e[4].Payload = []byte(`{}`), e[3].Payload; return e }, []place{{verify.PayloadMismatch, 4}}},
		"actor":            {func(e events) events { e[4].ActorID = "p-2"; return e }, []place{{verify.ChecksumMismatch, 5}}},
		"effective date":   {func(e events) events { e[4].EffectiveDate--; return e }, []place{{verify.ChecksumMismatch, 5}}},
		"type":             {func(e events) events { e[4].Type = "till.cash.counted"; return e }, []place{{verify.ChecksumMismatch, 5}}},
		"recorded later":   {func(e events) events { e[4].RecordedAt = e[4].RecordedAt.Add(time.Hour); return e }, []place{{verify.ChecksumMismatch, 5}, {verify.TimeBackwards, 6}}},
		"recorded earlier": {func(e events) events { e[4].RecordedAt = e[4].RecordedAt.Add(-time.Hour); return e }, []place{{verify.TimeBackwards, 5}, {verify.ChecksumMismatch, 5}}},
		"legal entity":     {func(e events) events { e[4].Scope.LegalEntity = "B"; return e }, []place{{verify.ForeignScope, 5}, {verify.ChecksumMismatch, 5}}},
		"tenant":           {func(e events) events { e[4].Scope.TenantID = "rival"; return e }, []place{{verify.ForeignScope, 5}, {verify.ChecksumMismatch, 5}}},
		"checksum":         {func(e events) events { e[4].Checksum[0]++; return e }, []place{{verify.ChecksumMismatch, 5}, {verify.ChecksumMismatch, 6}}},
		"deleted":          {func(e events) events { return slices.Delete(e, 4, 5) }, []place{{verify.SequenceGap, 6}, {verify.ChecksumMismatch, 6}}},
		"first deleted":    {func(e events) events { return e[1:] }, []place{{verify.SequenceGap, 2}, {verify.ChecksumMismatch, 2}}},
		"deleted and closed up": {func(e events) events {
			e = slices.Delete(e, 4, 5)
			for i := 4; i < len(e); i++ {
				e[i].Sequence--
			}
			return e
		}, []place{{verify.ChecksumMismatch, 5}, {verify.ChecksumMismatch, 6}, {verify.ChecksumMismatch, 7}, {verify.ChecksumMismatch, 8}, {verify.ChecksumMismatch, 9}, {verify.SequenceGap, 10}}},
		"inserted": {func(e events) events {
			forged := e[4]
			forged.ID[15]++
			return slices.Insert(e, 5, forged)
		}, []place{{verify.SequenceGap, 5}, {verify.ChecksumMismatch, 5}}},
		"inserted with a checksum that fits": {func(e events) events {
			forged := e[4]
			forged.ID[15]++
			forged.Checksum, _ = forged.ChainChecksum(e[4].Checksum, nil)
			return slices.Insert(e, 5, forged)
		}, []place{{verify.SequenceGap, 5}, {verify.ChecksumMismatch, 6}}},
		"reordered": {func(e events) events {
			e[3].Sequence, e[4].Sequence = e[4].Sequence, e[3].Sequence
			return e
		}, []place{{verify.ChecksumMismatch, 4}, {verify.ChecksumMismatch, 5}, {verify.ChecksumMismatch, 6}}},
		"tail cut":         {func(e events) events { return e[:7] }, []place{{verify.SequenceGap, 8}}},
		"everything cut":   {func(events) events { return nil }, []place{{verify.SequenceGap, 1}}},
		"appended without": {func(e events) events { more := e[9]; more.Sequence++; return append(e, more) }, []place{{verify.ChecksumMismatch, 11}}},
		"rewritten up to the middle": {func(e events) events {
			e[2].ActorID = "p-2"
			rechain(e[:6], 2, e[1].Checksum)
			return e
		}, []place{{verify.ChecksumMismatch, 7}}},
		"another log": {func(e events) events {
			rechain(e, 0, event.GenesisChecksum("other.example.org", e[0].Partition))
			return e
		}, []place{{verify.ChecksumMismatch, 1}, {verify.ChecksumMismatch, 10}}},
		"rewritten to the end": {func(e events) events {
			e[2].ActorID = "p-2"
			rechain(e, 2, e[1].Checksum)
			return e
		}, []place{{verify.ChecksumMismatch, 10}}}, // only the head that was read knows better
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := newVault()
			v.entity(t, "A", 10)
			v.tamper = func(_ event.PartitionID, e events) events { return c.tamper(e) }
			r := v.run(t)[0]
			require.False(t, r.Sound())
			require.Equal(t, c.want, places(r), "%v", r.Findings)
			for _, f := range r.Findings {
				require.NotEmpty(t, f.Detail)
				require.NotContains(t, f.Detail, "p-2", "no values")
			}
		})
	}
}

func TestRun_PartitionsSwapped(t *testing.T) {
	t.Parallel()
	v := newVault()
	a, b := v.entity(t, "A", 3), v.entity(t, "B", 3)
	other := map[event.PartitionID]event.PartitionID{a.Partition: b.Partition, b.Partition: a.Partition}
	v.tamper = func(p event.PartitionID, _ []event.Recorded) []event.Recorded {
		events, err := v.Audit.ChainPage(t.Context(), other[p], 0, 0)
		require.NoError(t, err)
		for i := range events { // the scope was thought of, the partition is a column
			events[i].Partition = p
			events[i].Scope.LegalEntity = map[event.PartitionID]string{a.Partition: "A", b.Partition: "B"}[p]
		}
		return events
	}
	for _, r := range v.run(t) {
		require.Contains(t, places(r), place{verify.ChecksumMismatch, 1}, r.LegalEntity)
		require.Contains(t, places(r), place{verify.ChecksumMismatch, 3}, r.LegalEntity)
	}
	v.tamper = func(p event.PartitionID, _ []event.Recorded) []event.Recorded {
		events, err := v.Audit.ChainPage(t.Context(), other[p], 0, 0)
		require.NoError(t, err)
		return events
	}
	for _, r := range v.run(t) {
		require.Contains(t, places(r), place{verify.ForeignScope, 1}, r.LegalEntity)
		require.Contains(t, places(r), place{verify.ChecksumMismatch, 1}, r.LegalEntity)
	}
}

func TestRun_Genesis(t *testing.T) {
	t.Parallel()
	v := newVault()
	v.entity(t, "A", 2)
	v.head = func(h ports.Head) ports.Head { h.Genesis[0]++; return h }
	require.Equal(t, []place{{verify.GenesisMismatch, 0}}, places(v.run(t)[0]))

	// A log that was moved under another name is another log.
	v = newVault()
	v.entity(t, "A", 2)
	moved := &renamed{v}
	reports, err := verify.Run(t.Context(), moved, "acme", nil, nil)
	require.NoError(t, err)
	require.Equal(t, []place{{verify.GenesisMismatch, 0}, {verify.ChecksumMismatch, 1}}, places(reports[0]))
}

type renamed struct{ *tamperedLog }

func (renamed) Installation(context.Context) (ports.Installation, error) {
	return ports.Installation{LogName: "other.example.org"}, nil
}

func TestRun_FindingsLimit(t *testing.T) {
	t.Parallel()
	v := newVault()
	v.entity(t, "A", 100)
	v.tamper = func(_ event.PartitionID, e []event.Recorded) []event.Recorded {
		for i := range e {
			e[i].Salt[0]++
		}
		return e
	}
	r := v.run(t)[0]
	require.Len(t, r.Findings, verify.MaxFindings)
	require.Equal(t, 100-verify.MaxFindings, r.Suppressed)
	require.EqualValues(t, 100, r.Events, "the rest is looked at all the same")
}

func TestRun_LogGrowsDuringRun(t *testing.T) {
	t.Parallel()
	v := newVault()
	le := v.entity(t, "A", 1500)
	v.pages = func(after event.Sequence) error {
		if after == 1000 {
			v.grow(t, le, 7)
		}
		return nil
	}
	var totals []uint64
	reports, err := verify.Run(t.Context(), v, "acme", nil, func(_ string, _, total uint64) { totals = append(totals, total) })
	require.NoError(t, err)
	require.True(t, reports[0].Sound(), "%v", reports[0].Findings)
	require.EqualValues(t, 1507, reports[0].Events)
	require.Equal(t, []uint64{1500, 1500, 1507}, totals)
}

func TestRun_ErrorKeepsFindings(t *testing.T) {
	t.Parallel()
	v := newVault()
	v.entity(t, "A", 2500)
	v.entity(t, "B", 1)
	broken := errors.New("broken")
	v.tamper = func(_ event.PartitionID, e []event.Recorded) []event.Recorded { e[0].Salt[0]++; return e }
	v.pages = func(after event.Sequence) error {
		if after == 2000 {
			return broken
		}
		return nil
	}
	reports, err := verify.Run(t.Context(), v, "acme", nil, nil)
	require.ErrorIs(t, err, broken)
	require.ErrorContains(t, err, "legal entity A")
	require.Len(t, reports, 1)
	require.Equal(t, []place{{verify.PayloadMismatch, 1}}, places(reports[0]))
	require.EqualValues(t, 2000, reports[0].Events)
}

func TestRun_Cancelled(t *testing.T) {
	t.Parallel()
	v := newVault()
	v.entity(t, "A", 2500)
	ctx, cancel := context.WithCancel(t.Context())
	reports, err := verify.Run(ctx, v, "acme", nil, func(_ string, done, _ uint64) {
		if done > 0 {
			cancel()
		}
	})
	require.ErrorIs(t, err, context.Canceled)
	require.Len(t, reports, 1)
	require.Positive(t, reports[0].Events)
	_, err = verify.Run(ctx, v, "acme", nil, nil)
	require.ErrorIs(t, err, context.Canceled, "never a clean report")
}
