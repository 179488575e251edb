package conformance

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/ports"
)

// partition is the log of one legal entity, which one sub-test uses alone.
type partition struct {
	*suite
	le ports.LegalEntity
}

func (s *suite) newPartition(t *testing.T) *partition {
	t.Helper()
	le, err := s.store.CreateLegalEntity(context.Background(), s.legalEntity(s.unique("tenant"), "C"+s.unique("E")))
	require.NoError(t, err)
	return &partition{suite: s, le: le}
}

func (s *suite) legalEntity(tenant, code string) ports.LegalEntity {
	return ports.LegalEntity{
		TenantID: tenant, Code: code, Name: "Company " + code,
		TimeZone: "Europe/Berlin", Status: "active", CreatedAt: s.clock.Now(),
	}
}

// option changes a prepared event.
type option func(*event.Prepared)

// event prepares an event of the type on the stream.
func (b *partition) event(typ eventtype.Registration, stream event.StreamID, options ...option) event.Prepared {
	id := b.ids.next()
	p := event.Prepared{
		Skeleton: event.Skeleton{
			Partition: b.le.Partition, ID: id, Type: typ.Type, SchemaVersion: typ.SchemaVersion,
			OccurredAt: b.clock.Now().Add(-time.Hour), EffectiveDate: event.MustDate("2026-03-02"),
			Scope:     event.Scope{TenantID: b.le.TenantID, LegalEntity: b.le.Code},
			ActorType: event.System, ActorID: "suite", CorrelationID: "corr",
			Stream: stream, Source: event.Source{System: "suite", Channel: "test"},
		},
		TypeNumber: typ.Number,
		Payload:    []byte(`{"data":{"id":"` + id.String() + `"},"dimensions":{},"entity_refs":[]}`),
	}
	copy(p.Salt[:], id[:])
	for _, o := range options {
		o(&p)
	}
	if len(p.Series) == 0 {
		p.PayloadHash, p.PayloadHashDone = event.HashPayload(p.Salt, p.Payload), true
	}
	return p
}

func stream(id string) event.StreamID { return event.StreamID{Type: "case", ID: id} }

func tagged(tags ...string) option {
	return func(p *event.Prepared) {
		p.Tags = append(p.Tags, tags...)
		for _, tag := range tags {
			p.Keys = append(p.Keys, event.TagKey(tag))
		}
	}
}

func about(entityType, id string) option {
	return func(p *event.Prepared) { p.Keys = append(p.Keys, event.EntityKey(entityType, id)) }
}

func claiming(key, document string) option {
	return func(p *event.Prepared) {
		p.BusinessKeys = append(p.BusinessKeys, event.BusinessKey{EventType: p.Type, Key: key, Document: document})
	}
}

const token = "@@number@@"

// numbered asks for a number of the series and puts its token in every place that may
// hold one.
func numbered(series string) option {
	return func(p *event.Prepared) {
		p.Series = append(p.Series, event.SeriesNumber{Series: series, Prefix: "J-", Width: 5, Token: token})
		p.Payload = []byte(`{"data":{"number":"` + token + `"},"dimensions":{},"entity_refs":[]}`)
		p.Stream.ID = series + "/" + token
		tagged("numbered:" + token)(p)
		p.Source.Reference = "ref " + token
		p.BusinessKeys = append(p.BusinessKeys, event.BusinessKey{EventType: p.Type, Key: series + ":" + token, Document: token})
	}
}

func number(n int) string { return fmt.Sprintf("J-%05d", n) }

// write appends events without any demand.
func (b *partition) write(t tester, events ...event.Prepared) ports.AppendResult {
	t.Helper()
	return b.must(t, b.request(events...))
}

func (b *partition) request(events ...event.Prepared) ports.AppendRequest {
	return ports.AppendRequest{Partition: b.le.Partition, Events: events}
}

// try appends. The last event of a write of an intent is the intent's, as the port demands.
func (b *partition) try(r ports.AppendRequest) (ports.AppendResult, error) {
	if n := len(r.Events); r.Intent != nil && n > 0 {
		r.Events = slices.Clone(r.Events)
		r.Events[n-1].IntentID = r.Intent.Intent.ID
	}
	return b.store.Append(context.Background(), r)
}

// intentRequest writes an intent with an event about it.
func (b *partition) intentRequest(s *suite, w *ports.IntentWrite) ports.AppendRequest {
	r := b.request(b.event(s.opened, stream("intent")))
	r.Intent = w
	r.Intent.EventsAbout = 1
	return r
}

func (b *partition) must(t tester, r ports.AppendRequest) ports.AppendResult {
	t.Helper()
	result, err := b.try(r)
	require.NoError(t, err)
	require.Len(t, result.Events, len(r.Events))
	return result
}

// refused requires that an append is refused with the code and writes nothing.
func (b *partition) refused(t tester, code string, r ports.AppendRequest) fault.Error {
	t.Helper()
	before := b.head(t)
	_, err := b.try(r)
	require.Equal(t, code, fault.CodeOf(err), "error: %v", err)
	f, ok := fault.As(err)
	require.True(t, ok, "the refusal is no fault: %v", err)
	require.Equal(t, before, b.head(t), "a refused request moved the head")
	return *f
}

func (b *partition) head(t tester) ports.Head {
	t.Helper()
	h, err := b.store.Head(context.Background(), b.le.Partition)
	require.NoError(t, err)
	return h
}

// query reads with the partition filled in.
func (b *partition) query(t tester, q ports.EventQuery) []event.Recorded {
	t.Helper()
	q.Partition = b.le.Partition
	if q.Limit == 0 {
		q.Limit = 1000
	}
	events, err := b.store.Events(context.Background(), q)
	require.NoError(t, err)
	require.NotNil(t, events, "an empty result must not be nil")
	return events
}

func (b *partition) all(t tester) []event.Recorded {
	t.Helper()
	return b.query(t, ports.EventQuery{})
}

func (b *partition) stream(t tester, id event.StreamID) []event.Recorded {
	t.Helper()
	events, err := b.store.EventsOfStream(context.Background(), b.le.Partition, id, 1, 1000)
	require.NoError(t, err)
	require.NotNil(t, events, "an empty result must not be nil")
	return events
}

// tags gives the tags of each event, by which sub-tests identify the events.
func tags(events []event.Recorded) []string {
	out := make([]string, len(events))
	for i, e := range events {
		out[i] = strings.Join(e.Tags, "+")
	}
	return out
}

func sequences(events []event.Recorded) []event.Sequence {
	out := make([]event.Sequence, len(events))
	for i, e := range events {
		out[i] = e.Sequence
	}
	return out
}

func receiptSequences(events []ports.AppendedEvent) []event.Sequence {
	out := make([]event.Sequence, len(events))
	for i, e := range events {
		out[i] = e.Sequence
	}
	return out
}

func upTo(n int) []event.Sequence {
	out := make([]event.Sequence, n)
	for i := range out {
		out[i] = event.Sequence(i + 1)
	}
	return out
}

func expect(id event.StreamID, e concurrency.Expected) []concurrency.StreamExpectation {
	return []concurrency.StreamExpectation{{Stream: id, Expected: e}}
}

// absent is the condition that no event with the tag follows the sequence.
func absent(after event.Sequence, tag string, types ...string) []concurrency.AppendCondition {
	return []concurrency.AppendCondition{{After: after, Items: []concurrency.Item{{Types: types, Tags: []string{tag}}}}}
}

func fingerprint(text string) event.Hash { return event.HashPayload(event.Salt{}, []byte(text)) }

func (b *partition) claim(key, content string) *ports.IdempotencyClaim {
	return &ports.IdempotencyClaim{Key: key, Fingerprint: fingerprint(content), ExpiresAt: b.clock.Now().Add(24 * time.Hour)}
}

// intent is a stored intent at its first revision.
func (b *partition) intent(status intent.Status) intent.Intent {
	return intent.Intent{
		ID: b.ids.next(), Partition: b.le.Partition, LegalEntity: b.le.Code, Type: "conformance.open_case",
		Payload:  []byte(`{"case": 1.50}`),
		Actor:    event.Actor{Type: event.Human, ID: "u-1", Name: "clerk", Details: event.ActorDetails{SessionID: "s-1"}},
		PersonID: "person-1", Roles: []string{"clerk", "approver"},
		EffectiveDate: event.MustDate("2026-03-02"), HasEffectiveDate: true, CorrelationID: "corr",
		Source: event.Source{System: "suite", Channel: "test", Reference: "doc-1"},
		Status: status, PlanHash: "plan-1",
		Needs:    []intent.ApprovalNeed{{Roles: []string{"controller"}, Reason: "over the limit", RuleID: "limit"}},
		Rules:    []byte(`[{"rule_id":"limit"}]`),
		Revision: 1, CreatedAt: b.clock.Now(), UpdatedAt: b.clock.Now(),
	}
}

func insert(in intent.Intent) *ports.IntentWrite { return &ports.IntentWrite{Intent: in} }

// update is the compare-and-set that takes the intent from its revision to the
// next one.
func update(in intent.Intent, status intent.Status) *ports.IntentWrite {
	from := in.Revision
	in.Status, in.Revision = status, from+1
	return &ports.IntentWrite{Intent: in, ExpectedRevision: from}
}

func deepCopy(events []event.Prepared) []event.Prepared {
	out := slices.Clone(events)
	for i := range out {
		e := &out[i]
		e.Payload = slices.Clone(e.Payload)
		e.Keys, e.Tags = slices.Clone(e.Keys), slices.Clone(e.Tags)
		e.BusinessKeys, e.Series = slices.Clone(e.BusinessKeys), slices.Clone(e.Series)
	}
	return out
}

// tester is what both testing.T and rapid.T offer.
type tester interface {
	require.TestingT
	Helper()
}
