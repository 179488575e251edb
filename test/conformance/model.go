package conformance

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

var modelPromises = []promise{
	{"random operations agree with a simple model", randomOperations},
	{"concurrent appends and reads are linearizable", linearizable},
	{"conditional appends are linearizable", linearizableConditions},
}

// modelEvent is what the model remembers of an event.
type modelEvent struct {
	id       event.ID
	typ      string
	stream   event.StreamID
	version  event.Version
	sequence event.Sequence
	keys     []string
}

// model is the simplest implementation of the log: a slice that is searched from
// the front for every query. Its sequences begin after base, so that many
// checks share one partition; prefix makes their names distinct.
type model struct {
	base   event.Sequence
	prefix string
	events []modelEvent
	claims map[event.BusinessKey]bool
	replay map[string]ports.IdempotencyOutcome
	series int
}

func (m *model) head() event.Sequence { return m.base + event.Sequence(len(m.events)) }

func (m *model) version(s event.StreamID) event.Version {
	var n event.Version
	for _, e := range m.events {
		if e.stream == s {
			n++
		}
	}
	return n
}

func (m *model) lastOf(key string) event.Sequence {
	var last event.Sequence
	for _, e := range m.events {
		if slices.Contains(e.keys, key) {
			last = e.sequence
		}
	}
	return last
}

func (m *model) matches(c concurrency.AppendCondition) bool {
	for _, e := range m.events {
		if e.sequence > c.After && slices.ContainsFunc(c.Items, e.matches) {
			return true
		}
	}
	return false
}

func (e modelEvent) matches(item concurrency.Item) bool {
	all := len(item.Types) == 0 || slices.Contains(item.Types, e.typ)
	for _, key := range item.Keys() {
		all = all && slices.Contains(e.keys, key)
	}
	return all
}

// verdict is the code of the refusal, "" for none, in the promised order.
func (m *model) verdict(r ports.AppendRequest) (code string, replayed bool) {
	if c := r.Idempotency; c != nil {
		if first, known := m.replay[c.Key]; known {
			if first.StoredHash != c.Fingerprint {
				return concurrency.CodeIdempotencyMismatch, false
			}
			return "", true
		}
	}
	for _, want := range r.Streams {
		if !want.Expected.Allows(m.version(want.Stream)) {
			return concurrency.CodeWrongExpectedVersion, false
		}
	}
	for _, want := range r.Entities {
		if m.lastOf(event.EntityKey(want.EntityType, want.EntityID)) != want.Sequence {
			return concurrency.CodeWrongExpectedVersion, false
		}
	}
	for _, c := range r.Conditions {
		if m.matches(c) {
			return concurrency.CodeConditionFailed, false
		}
	}
	claimed := map[event.BusinessKey]bool{}
	for _, e := range r.Events {
		for _, k := range e.BusinessKeys {
			if strings.Contains(k.Key, token) {
				continue // a key that contains a series number is new by construction
			}
			if m.claims[k] || claimed[k] {
				return concurrency.CodeDuplicateKey, false
			}
			claimed[k] = true
		}
	}
	return "", false
}

// accept writes the request into the model.
func (m *model) accept(r ports.AppendRequest) {
	if c := r.Idempotency; c != nil {
		o := ports.IdempotencyOutcome{StoredHash: c.Fingerprint, EventCount: len(r.Events)}
		if len(r.Events) > 0 {
			o.FirstSequence = m.head() + 1
		}
		m.replay[c.Key] = o
	}
	for _, e := range r.Events {
		if len(e.Series) > 0 {
			m.series++
			e.ReplaceToken(token, number(m.series))
		}
		for _, k := range e.BusinessKeys {
			m.claims[k] = true
		}
		m.events = append(m.events, modelEvent{
			id: e.ID, typ: e.Type, stream: e.Stream, version: m.version(e.Stream) + 1,
			sequence: m.head() + 1, keys: e.Keys,
		})
	}
}

// randomOperations checks every answer of the store against the model, and the
// whole content after each check.
func randomOperations(t *testing.T, s *suite) {
	b := s.newPartition(t)
	rapid.Check(t, func(rt *rapid.T) {
		m := &model{
			base: b.head(rt).Sequence, prefix: s.unique("m"),
			claims: map[event.BusinessKey]bool{}, replay: map[string]ports.IdempotencyOutcome{},
		}
		for range rapid.IntRange(1, 12).Draw(rt, "operations") {
			m.step(rt, b, m.draw(rt, b))
		}
		m.compare(rt, b)
	})
	b.verify(t, 500)
}

func (m *model) name(kind string, n int) string { return fmt.Sprintf("%s-%s%d", m.prefix, kind, n) }

func (m *model) drawStream(rt *rapid.T) event.StreamID {
	return stream(m.name("s", rapid.IntRange(1, 3).Draw(rt, "stream")))
}

func (m *model) drawItem(rt *rapid.T, b *partition) concurrency.Item {
	var item concurrency.Item
	switch rapid.IntRange(0, 3).Draw(rt, "item") {
	case 0:
		item.Types = []string{b.opened.Type}
	case 1:
		item.Tags = []string{m.name("t", rapid.IntRange(1, 2).Draw(rt, "tag"))}
	case 2:
		item.Entities = []concurrency.Entity{{Type: "vendor", ID: m.name("v", 1)}}
		item.Types = []string{b.changed.Type, b.closed.Type}
	case 3:
		item.Tags = []string{m.name("t", 1), m.name("t", 2)}
	}
	return item
}

// draw makes a request. About half of its demands are right.
func (m *model) draw(rt *rapid.T, b *partition) ports.AppendRequest {
	r := b.request()
	for range rapid.IntRange(0, 3).Draw(rt, "events") {
		typ := rapid.SampledFrom([]eventtype.Registration{b.opened, b.changed, b.closed}).Draw(rt, "type")
		var options []option
		for tag := 1; tag <= 2; tag++ {
			if rapid.Bool().Draw(rt, "tagged") {
				options = append(options, tagged(m.name("t", tag)))
			}
		}
		if rapid.Bool().Draw(rt, "about") {
			options = append(options, about("vendor", m.name("v", 1)))
		}
		if n := rapid.IntRange(0, 9).Draw(rt, "claim"); n > 5 {
			options = append(options, claiming(m.name("k", n), ""))
		}
		if rapid.IntRange(0, 3).Draw(rt, "numbered") == 0 {
			options = append(options, numbered(m.prefix))
		}
		r.Events = append(r.Events, b.event(typ, m.drawStream(rt), options...))
	}
	switch id := m.drawStream(rt); rapid.IntRange(0, 7).Draw(rt, "expect") {
	case 0, 1:
		r.Streams = expect(id, concurrency.Exactly(m.version(id)))
	case 2:
		r.Streams = expect(id, concurrency.Exactly(m.version(id)+1))
	case 3:
		r.Streams = expect(id, concurrency.NoStream())
	case 4:
		r.Streams = expect(id, concurrency.StreamExists())
	}
	last := m.lastOf(event.EntityKey("vendor", m.name("v", 1)))
	switch rapid.IntRange(0, 5).Draw(rt, "entity") {
	case 0:
		r.Entities = []concurrency.EntityExpectation{{EntityType: "vendor", EntityID: m.name("v", 1), Sequence: last}}
	case 1:
		r.Entities = []concurrency.EntityExpectation{{EntityType: "vendor", EntityID: m.name("v", 1), Sequence: last + 1}}
	}
	if rapid.IntRange(0, 2).Draw(rt, "conditions") == 0 {
		after := rapid.IntRange(max(0, len(m.events)-4), len(m.events)).Draw(rt, "after")
		r.Conditions = []concurrency.AppendCondition{{After: m.base + event.Sequence(after), Items: []concurrency.Item{m.drawItem(rt, b)}}}
	}
	if n := rapid.IntRange(0, 5).Draw(rt, "idempotency"); n > 3 {
		r.Idempotency = b.claim(m.name("i", n), rapid.SampledFrom([]string{"x", "x", "y"}).Draw(rt, "content"))
	}
	return r
}

func (m *model) step(rt *rapid.T, b *partition, r ports.AppendRequest) {
	code, replayed := m.verdict(r)
	result, err := b.try(r)
	require.Equal(rt, code, fault.CodeOf(err), "error: %v", err)
	switch {
	case err != nil:
	case replayed:
		require.True(rt, result.Replayed)
		require.Equal(rt, m.replay[r.Idempotency.Key], result.Outcome)
	default:
		require.False(rt, result.Replayed)
		m.accept(r)
		require.Len(rt, result.Events, len(r.Events))
		for i, e := range m.events[len(m.events)-len(r.Events):] {
			got := result.Events[i]
			require.Equal(rt, e.id, got.ID)
			require.Equal(rt, e.stream, got.Stream)
			require.Equal(rt, e.version, got.StreamVersion)
			require.Equal(rt, e.sequence, got.Sequence)
		}
	}
	require.Equal(rt, m.head(), b.head(rt).Sequence)
	m.page(rt, b)
}

// page reads a random page and looks it up in the model.
func (m *model) page(rt *rapid.T, b *partition) {
	q := ports.EventQuery{
		After:     m.base + event.Sequence(rapid.IntRange(0, len(m.events)).Draw(rt, "page after")),
		Direction: ports.Direction(rapid.Bool().Draw(rt, "backward")),
		Limit:     rapid.IntRange(1, 4).Draw(rt, "limit"),
		Key:       event.TagKey(m.name("t", rapid.IntRange(1, 2).Draw(rt, "key"))),
	}
	var want []event.Sequence
	for _, e := range m.events {
		inside := e.sequence > q.After
		if q.Direction == ports.Backward {
			inside = e.sequence < q.After || q.After == 0
		}
		if inside && slices.Contains(e.keys, q.Key) {
			want = append(want, e.sequence)
		}
	}
	if q.Direction == ports.Backward {
		slices.Reverse(want)
	}
	want = want[:min(len(want), q.Limit)]
	require.Equal(rt, append([]event.Sequence{}, want...), sequences(b.query(rt, q)))
}

func (m *model) compare(rt *rapid.T, b *partition) {
	stored := b.query(rt, ports.EventQuery{After: m.base})
	require.Len(rt, stored, len(m.events))
	streams := map[event.StreamID][]event.ID{}
	for i, e := range m.events {
		require.Equal(rt, e, modelEvent{
			id: stored[i].ID, typ: stored[i].Type, stream: stored[i].Stream,
			version: stored[i].StreamVersion, sequence: stored[i].Sequence, keys: e.keys,
		})
		streams[e.stream] = append(streams[e.stream], e.id)
	}
	for id, want := range streams {
		require.Equal(rt, want, eventIDs(b.stream(rt, id)))
	}
}

// The operations of a linearizability history: what a client requested of one
// stream, and what the store answered.
type streamInput struct {
	read     bool
	expected concurrency.Expected
}

type streamOutput struct {
	accepted bool
	version  event.Version // after an append, found by a read, or named by a refusal
}

var streamModel = porcupine.Model{
	Init: func() any { return event.Version(0) },
	Step: func(state, input, output any) (bool, any) {
		at, in, out := state.(event.Version), input.(streamInput), output.(streamOutput)
		switch {
		case in.read:
			return out.version == at, at
		case out.accepted:
			return in.expected.Allows(at) && out.version == at+1, at + 1
		default:
			return !in.expected.Allows(at) && out.version == at, at
		}
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
}

// linearizable lets clients read a stream and append with the version they last
// saw, and looks for one order of all operations that explains every answer.
func linearizable(t *testing.T, s *suite) {
	const clients, operations, histories = 6, 14, 8
	b := s.newPartition(t)
	for h := range histories {
		id := stream(fmt.Sprint("history", h))
		recorded := make([][]porcupine.Operation, clients)
		start := time.Now()
		errs := race(clients, func(client int) error {
			var seen event.Version
			for n := range operations {
				op := porcupine.Operation{ClientId: client, Call: time.Since(start).Nanoseconds()}
				in := streamInput{read: n%3 == 2, expected: concurrency.Exactly(seen)}
				if n%7 == 6 {
					in.expected = concurrency.Any()
				}
				out, err := b.operate(id, in)
				if err != nil {
					return err
				}
				seen = out.version
				op.Return, op.Input, op.Output = time.Since(start).Nanoseconds(), in, out
				recorded[client] = append(recorded[client], op)
			}
			return nil
		})
		for _, err := range errs {
			require.NoError(t, err)
		}
		result := porcupine.CheckOperationsTimeout(streamModel, slices.Concat(recorded...), maxWait)
		require.Equal(t, porcupine.Ok, result, "no order of the operations explains the answers")
	}
	b.verify(t, 1000)
}

func (b *partition) operate(id event.StreamID, in streamInput) (streamOutput, error) {
	if in.read {
		events, err := b.store.EventsOfStream(context.Background(), b.le.Partition, id, 1, 1000)
		return streamOutput{version: event.Version(len(events))}, err
	}
	r := b.request(b.event(b.changed, id))
	r.Streams = expect(id, in.expected)
	result, err := b.try(r)
	if fault.CodeOf(err) == concurrency.CodeWrongExpectedVersion {
		f, _ := fault.As(err)
		actual, ok := f.Actual.(uint64)
		if !ok {
			return streamOutput{}, fmt.Errorf("the refusal names no actual version: %w", err)
		}
		return streamOutput{version: event.Version(actual)}, nil
	}
	if err != nil {
		return streamOutput{}, err
	}
	return streamOutput{accepted: true, version: result.Events[0].StreamVersion}, nil
}
