package conformance

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit/allfields"
)

var appendPromises = []promise{
	{"batch is stored in the given order", batchOrder},
	{"sequences have no gaps", noGaps},
	{"receipt names position of each event", receipts},
	{"every field is read as written", fieldsComeBack},
	{"nil and empty collections are equal", nilAndEmpty},
	{"payload is read byte for byte", payloadVerbatim},
	{"batch of 100 events is one unit", hundred},
	{"batch writes several streams", severalStreams},
	{"unknown legal entity is refused", unknownPartition},
	{"two legal entities are independent", independentPartitions},
	{"event id is stored once", eventIDOnce},
	{"store keeps no reference to slices of the caller", noAliasing},
	{"changes by a reader do not reach the store", readersCopy},
	{"request without events and side rows writes nothing", emptyRequest},
}

func batchOrder(t *testing.T, s *suite) {
	b := s.newPartition(t)
	b.write(t, b.event(s.opened, stream("1"), tagged("a")), b.event(s.changed, stream("1"), tagged("b")), b.event(s.closed, stream("1"), tagged("c")))
	b.write(t, b.event(s.changed, stream("1"), tagged("d")), b.event(s.changed, stream("1"), tagged("e")))
	require.Equal(t, []string{"a", "b", "c", "d", "e"}, tags(b.all(t)))
	require.Equal(t, []string{"a", "b", "c", "d", "e"}, tags(b.stream(t, stream("1"))))
}

func noGaps(t *testing.T, s *suite) {
	b := s.newPartition(t)
	for i := range 12 {
		r := b.request(b.event(s.changed, stream(fmt.Sprint(i%3))), b.event(s.changed, stream("x")))
		if i%4 == 3 { // refusals in between must not cost a sequence
			r.Streams = expect(stream("x"), concurrency.NoStream())
			b.refused(t, concurrency.CodeWrongExpectedVersion, r)
			continue
		}
		result := b.must(t, r)
		require.Equal(t, result.Events[1].Sequence, result.Head)
	}
	require.Equal(t, upTo(18), sequences(b.all(t)))
	require.Equal(t, event.Sequence(18), b.head(t).Sequence)
}

func receipts(t *testing.T, s *suite) {
	b := s.newPartition(t)
	b.write(t, b.event(s.opened, stream("1")))
	events := []event.Prepared{b.event(s.changed, stream("1")), b.event(s.opened, stream("2"))}
	result := b.write(t, events...)
	stored := b.all(t)[1:]
	for i, r := range result.Events {
		require.Equal(t, events[i].ID, r.ID)
		require.Equal(t, ports.AppendedEvent{
			ID: stored[i].ID, Type: stored[i].Type, Sequence: stored[i].Sequence, Stream: stored[i].Stream,
			StreamVersion: stored[i].StreamVersion, RecordedAt: r.RecordedAt, Checksum: stored[i].Checksum,
		}, r)
		require.True(t, stored[i].RecordedAt.Equal(r.RecordedAt))
	}
	require.Equal(t, event.Version(2), result.Events[0].StreamVersion)
	require.Equal(t, event.Version(1), result.Events[1].StreamVersion)
	require.Equal(t, event.Sequence(3), result.Head)
	require.False(t, result.Replayed)
}

func fieldsComeBack(t *testing.T, s *suite) {
	b := s.newPartition(t)
	cause := b.event(s.opened, stream("cause"))
	b.write(t, cause)
	want := b.event(s.changed, stream("full"), tagged("z", "a"), about("vendor", "V-1"), func(p *event.Prepared) {
		written := p.Skeleton
		allfields.Fill(&p.Skeleton)
		p.Partition, p.ID, p.Type, p.SchemaVersion, p.Stream = written.Partition, written.ID, written.Type, written.SchemaVersion, written.Stream
		p.Scope.TenantID, p.Scope.LegalEntity, p.Tags, p.PayloadHash = written.Scope.TenantID, written.Scope.LegalEntity, written.Tags, written.PayloadHash
		p.EffectiveDate = event.MustDate("1969-12-31")
		p.Scope.Custom = []byte(`{ "plant" : "P1" }`)
		p.ActorType, p.ActorDetails = event.Agent, []byte(`{"on_behalf_of":{"type":"human","id":"u-1"} }`)
		p.CausedBy, p.CausedByPartition, p.IntentID, p.CorrelationID = cause.ID, 0, b.ids.next(), "corr-é"
		p.RulesEvaluated = []byte(`[ {"rule_id":"r1"} ]`)
		p.PII = map[string]string{"/data/name": "identity", "/data/email": "contact"}
	})
	b.write(t, want)
	got, err := b.store.EventByID(context.Background(), b.le.Partition, want.ID)
	require.NoError(t, err)
	require.True(t, want.OccurredAt.Equal(got.OccurredAt))
	require.Equal(t, time.UTC, got.OccurredAt.Location())
	require.Equal(t, time.UTC, got.RecordedAt.Location())
	want.Sequence, want.StreamVersion = 2, 1
	want.RecordedAt, want.Checksum = got.RecordedAt, got.Checksum
	require.Equal(t, want.Skeleton, got.Skeleton)
	require.Equal(t, want.Salt, got.Salt)

	foreign := b.event(s.changed, stream("full"), causedIn(77, b.ids.next()))
	b.write(t, foreign)
	got, err = b.store.EventByID(context.Background(), b.le.Partition, foreign.ID)
	require.NoError(t, err)
	require.Equal(t, foreign.CausedBy, got.CausedBy)
	require.Equal(t, event.PartitionID(77), got.CausedByPartition)
}

func nilAndEmpty(t *testing.T, s *suite) {
	b := s.newPartition(t)
	bare := b.event(s.opened, stream("1"))
	empty := b.event(s.opened, stream("1"), func(p *event.Prepared) {
		p.Tags, p.Keys, p.PII = []string{}, []string{}, map[string]string{}
		p.ActorDetails, p.RulesEvaluated, p.Scope.Custom = []byte{}, []byte{}, []byte{}
		p.BusinessKeys, p.Series = []event.BusinessKey{}, []event.SeriesNumber{}
	})
	b.write(t, bare, empty)
	stored := b.all(t)
	for i := range stored {
		require.Empty(t, stored[i].Tags)
		require.Empty(t, stored[i].PII)
		require.Empty(t, stored[i].ActorDetails)
	}
	stored[1].ID, stored[1].Sequence, stored[1].StreamVersion = stored[0].ID, stored[0].Sequence, stored[0].StreamVersion
	stored[1].PayloadHash, stored[1].Checksum = stored[0].PayloadHash, stored[0].Checksum
	require.Equal(t, stored[0].Skeleton, stored[1].Skeleton)
	require.NotNil(t, b.stream(t, stream("none")))
	require.NotNil(t, b.query(t, ports.EventQuery{Key: event.TagKey("none")}))
}

func payloadVerbatim(t *testing.T, s *suite) {
	b := s.newPartition(t)
	payload := []byte("{\"data\": {\"amount\": 1.50, \"b\":1e2, \"a\":\"\\u00e9é\", \"a\": 2 },\n \"dimensions\":{}, \"entity_refs\":[] }")
	for _, done := range []bool{true, false} {
		e := b.event(s.opened, stream("1"))
		e.Payload, e.PayloadHashDone, e.PayloadHash = payload, done, event.Hash{}
		if done {
			e.PayloadHash = event.HashPayload(e.Salt, payload)
		}
		b.write(t, e)
		got, err := b.store.EventByID(context.Background(), b.le.Partition, e.ID)
		require.NoError(t, err)
		require.Equal(t, string(payload), string(got.Payload))
		require.Equal(t, event.HashPayload(e.Salt, payload), got.PayloadHash)
	}
}

func hundred(t *testing.T, s *suite) {
	b := s.newPartition(t)
	events := make([]event.Prepared, 100)
	for i := range events {
		events[i] = b.event(s.changed, stream("big"), tagged(fmt.Sprint(i)))
	}
	result := b.write(t, events...)
	require.Equal(t, upTo(100), receiptSequences(result.Events))
	for i, e := range b.stream(t, stream("big")) {
		require.Equal(t, events[i].ID, e.ID)
		require.Equal(t, event.Version(i+1), e.StreamVersion)
	}
}

func severalStreams(t *testing.T, s *suite) {
	b := s.newPartition(t)
	b.write(t, b.event(s.opened, stream("b")))
	result := b.write(t, b.event(s.opened, stream("a")), b.event(s.changed, stream("b")), b.event(s.changed, stream("a")),
		b.event(s.opened, event.StreamID{Type: "other", ID: "a"}))
	versions := make([]event.Version, len(result.Events))
	for i, e := range result.Events {
		versions[i] = e.StreamVersion
	}
	require.Equal(t, []event.Version{1, 2, 2, 1}, versions)
	require.Equal(t, []event.Sequence{2, 4}, sequences(b.stream(t, stream("a"))))
	require.Equal(t, []event.Sequence{1, 3}, sequences(b.stream(t, stream("b"))))
	require.Len(t, b.stream(t, event.StreamID{Type: "other", ID: "a"}), 1)
}

// unassigned is a partition that no store of the suite ever makes: it belongs to
// another deployment.
const unassigned = event.PartitionID((Deployment+1)<<19 | 1)

func unknownPartition(t *testing.T, s *suite) {
	b := s.newPartition(t)
	ctx := context.Background()
	r := b.request(b.event(s.opened, stream("1")))
	r.Partition = unassigned
	_, err := b.try(r)
	require.Equal(t, "legal_entity.not_found", fault.CodeOf(err))
	_, err = b.store.Head(ctx, unassigned)
	require.Equal(t, "legal_entity.not_found", fault.CodeOf(err))
	b.write(t, b.event(s.opened, stream("known")))
	head, err := b.store.Head(ctx, b.le.Partition)
	require.NoError(t, err)
	known, err := b.store.Heads(ctx, []event.PartitionID{unassigned, b.le.Partition})
	require.NoError(t, err)
	require.Equal(t, map[event.PartitionID]ports.Head{b.le.Partition: head}, known)
	_, err = b.store.Heads(cancelled(), []event.PartitionID{b.le.Partition})
	require.ErrorIs(t, err, context.Canceled)
	_, err = b.store.EventByID(ctx, unassigned, r.Events[0].ID)
	require.Equal(t, "event.not_found", fault.CodeOf(err))
	heads, err := b.store.PartitionHeads(ctx)
	require.NoError(t, err)
	require.NotContains(t, heads, unassigned)
}

func independentPartitions(t *testing.T, s *suite) {
	a, b := s.newPartition(t), s.newPartition(t)
	require.NotEqual(t, a.le.Partition, b.le.Partition)
	for _, each := range []*partition{a, b} {
		r := each.request(each.event(s.opened, stream("same"), tagged("same"), about("vendor", "V-1"), claiming("same", "")))
		r.Streams = expect(stream("same"), concurrency.NoStream())
		r.Entities = []concurrency.EntityExpectation{{EntityType: "vendor", EntityID: "V-1"}}
		r.Conditions = absent(0, "same")
		r.Idempotency = each.claim("same", each.le.Code)
		r.Events = append(r.Events, each.event(s.opened, stream("n"), numbered("shared")))
		result := each.must(t, r)
		require.False(t, result.Replayed)
		require.Equal(t, upTo(2), receiptSequences(result.Events))
		require.Equal(t, "shared/"+number(1), result.Events[1].Stream.ID)
	}
	a.write(t, a.event(s.changed, stream("same")))
	require.Len(t, a.all(t), 3)
	require.Len(t, b.all(t), 2)
	_, err := b.store.EventByID(context.Background(), b.le.Partition, a.all(t)[0].ID)
	require.Equal(t, "event.not_found", fault.CodeOf(err))
}

func eventIDOnce(t *testing.T, s *suite) {
	b := s.newPartition(t)
	first := b.event(s.opened, stream("1"))
	b.write(t, first)
	again := b.event(s.changed, stream("2"))
	again.ID = first.ID
	before := b.head(t)
	_, err := b.try(b.request(b.event(s.opened, stream("2")), again))
	require.Error(t, err)
	require.Equal(t, before, b.head(t))
	require.Empty(t, b.stream(t, stream("2")))
}

func noAliasing(t *testing.T, s *suite) {
	b := s.newPartition(t)
	e := b.event(s.opened, stream("1"), tagged("kept"), func(p *event.Prepared) {
		p.Scope.Custom = []byte(`{"a":"b"}`)
		p.PII = map[string]string{"/data/a": "x"}
	})
	payload := string(e.Payload)
	b.write(t, e)
	e.Payload[2], e.Tags[0], e.Keys[0], e.Scope.Custom[2], e.PII["/data/a"] = '!', "lost", "tag:lost", '!', "y"
	got := b.query(t, ports.EventQuery{Key: event.TagKey("kept")})
	require.Len(t, got, 1)
	require.Equal(t, payload, string(got[0].Payload))
	require.Equal(t, []string{"kept"}, got[0].Tags)
	require.Equal(t, `{"a":"b"}`, string(got[0].Scope.Custom))
	require.Equal(t, "x", got[0].PII["/data/a"])
}

func readersCopy(t *testing.T, s *suite) {
	b := s.newPartition(t)
	e := b.event(s.opened, stream("1"), tagged("kept"))
	b.write(t, e)
	first := b.all(t)
	first[0].Payload[2], first[0].Tags[0], first[0].Type = '!', "lost", "lost"
	again := b.all(t)
	require.Equal(t, string(e.Payload), string(again[0].Payload))
	require.Equal(t, []string{"kept"}, again[0].Tags)
	require.Equal(t, s.opened.Type, again[0].Type)
}

func emptyRequest(t *testing.T, s *suite) {
	b := s.newPartition(t)
	b.write(t, b.event(s.opened, stream("1")))
	before := b.head(t)
	result, err := b.try(b.request())
	require.NoError(t, err)
	require.Empty(t, result.Events)
	require.NotNil(t, result.Events)
	require.Equal(t, before.Sequence, result.Head)
	require.Equal(t, before, b.head(t))
}
