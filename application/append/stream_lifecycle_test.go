package append_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	eventappend "github.com/erpbackbone/backbone/application/append"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/stream"
	"github.com/erpbackbone/backbone/ports"
)

func draftOnStream(id string) event.Draft {
	return orderPlaced(func(d *event.Draft) { d.Stream.ID = id })
}

func lifecycleDraft(id, eventType string) event.Draft {
	return event.Draft{
		Type: eventType, Stream: event.StreamID{Type: "order", ID: id}, EffectiveDate: event.MustDate("2026-03-31"),
		Change: &event.StreamChange{Action: stream.ActionOf(eventType)},
	}
}

func (b *appendFixture) eventTypesOf(t *testing.T, id string) []string {
	t.Helper()
	events, err := b.store.Events.EventsOfStream(t.Context(), b.entity.Partition, event.StreamID{Type: "order", ID: id}, 1, 0)
	require.NoError(t, err)
	out := []string{}
	for _, e := range events {
		out = append(out, e.Type)
	}
	return out
}

// deleteStreams creates streams and deletes them at version 2.
func (b *appendFixture) deleteStreams(t *testing.T, s *eventappend.Service, ids ...string) {
	t.Helper()
	for _, id := range ids {
		_, _, err := s.Append(t.Context(), b.request("", draftOnStream(id), lifecycleDraft(id, stream.Deleted)))
		require.NoError(t, err)
	}
}

var recreatedStreamTypes = []string{"shop.order.placed", stream.Deleted, stream.Recreated, "shop.order.placed"}

func TestAppend_RecreatesDeletedStream(t *testing.T) {
	t.Parallel()
	b := newAppendFixture(t)
	s := b.service()
	for name, e := range map[string]concurrency.Expected{"any": concurrency.Any(), "no stream": concurrency.NoStream(), "exact": concurrency.Exactly(2)} {
		b.deleteStreams(t, s, name)
		r := b.request("key-"+name, draftOnStream(name))
		r.Streams = []concurrency.StreamExpectation{{Stream: r.Drafts[0].Stream, Expected: e}}
		first, replayed, err := s.Append(t.Context(), r)
		require.NoError(t, err, name)
		require.False(t, replayed)
		require.Len(t, first, 1, "receipts are those of the caller's events")
		require.EqualValues(t, 4, first[0].StreamVersion)
		require.Equal(t, recreatedStreamTypes, b.eventTypesOf(t, name))
		again, replayed, err := s.Append(t.Context(), r)
		require.NoError(t, err)
		require.True(t, replayed)
		require.Equal(t, first, again)
	}
	b.deleteStreams(t, s, "other")
	for e, want := range map[concurrency.Expected]string{
		concurrency.StreamExists(): concurrency.CodeStreamDeleted, concurrency.Exactly(1): concurrency.CodeWrongExpectedVersion, concurrency.Exactly(3): concurrency.CodeWrongExpectedVersion,
	} {
		r := b.request("", draftOnStream("other"))
		r.Streams = []concurrency.StreamExpectation{{Stream: r.Drafts[0].Stream, Expected: e}}
		_, _, err := s.Append(t.Context(), r)
		require.Equal(t, want, code(t, err))
	}
	require.Len(t, b.eventTypesOf(t, "other"), 2)
	_, _, err := s.Append(t.Context(), b.request("", lifecycleDraft("other", stream.Deleted)))
	require.Equal(t, concurrency.CodeStreamDeleted, code(t, err), "a deletion recreates nothing")
	_, _, err = s.Append(t.Context(), b.request("", lifecycleDraft("other", stream.Tombstoned)))
	require.NoError(t, err)
	_, _, err = s.Append(t.Context(), b.request("", draftOnStream("other")))
	require.Equal(t, concurrency.CodeStreamTombstoned, code(t, err))
}

// Recreation events do not count towards the limit of a batch.
func TestAppend_RecreatesAllStreamsOfBatch(t *testing.T) {
	t.Parallel()
	b := newAppendFixture(t)
	s := b.service()
	b.deleteStreams(t, s, "a", "b", "c")
	receipts, _, err := s.Append(t.Context(), b.request("", draftOnStream("b"), draftOnStream("a"), draftOnStream("c")))
	require.NoError(t, err)
	require.Len(t, receipts, limits.BatchEvents)
	for i, id := range []string{"b", "a", "c"} {
		require.Equal(t, id, receipts[i].Stream.ID)
		require.Equal(t, recreatedStreamTypes, b.eventTypesOf(t, id))
	}
	events := b.readBack(t, receipts)
	all, err := b.store.Events.EventsOfStream(t.Context(), b.entity.Partition, events[0].Stream, 3, 1)
	require.NoError(t, err)
	require.Equal(t, events[0].CorrelationID, all[0].CorrelationID, "a recreation has the actor and the correlation id of the batch")
	require.Equal(t, clerk.ID, all[0].ActorID)
	require.Equal(t, events[0].Scope, all[0].Scope)
}

// TestAppend_RecreatesStreamsWithEqualNames covers a stream type with a slash: faults then
// give two streams the same name, of which only one is deleted.
func TestAppend_RecreatesStreamsWithEqualNames(t *testing.T) {
	t.Parallel()
	b := newAppendFixture(t)
	s := b.service()
	one, other := event.StreamID{Type: "a/b", ID: "c"}, event.StreamID{Type: "a", ID: "b/c"}
	on := func(id event.StreamID) event.Draft { return orderPlaced(func(d *event.Draft) { d.Stream = id }) }
	deletion := lifecycleDraft("", stream.Deleted)
	for deletion.Stream = range map[event.StreamID]bool{one: true, other: true} {
		_, _, err := s.Append(t.Context(), b.request("", on(deletion.Stream), deletion))
		require.NoError(t, err)
		for _, drafts := range [][]event.Draft{{on(one), on(other)}, {on(other), on(one)}} {
			_, _, err = s.Append(t.Context(), b.request("", drafts...))
			require.NoError(t, err)
			_, _, err = s.Append(t.Context(), b.request("", deletion))
			require.NoError(t, err)
		}
		_, _, err = s.Append(t.Context(), b.request("", on(deletion.Stream)))
		require.NoError(t, err)
	}
	deletion.Stream = one
	_, _, err := s.Append(t.Context(), b.request("", deletion))
	require.NoError(t, err)
	deletion.Stream = other
	_, _, err = s.Append(t.Context(), b.request("", deletion))
	require.NoError(t, err)
	_, _, err = s.Append(t.Context(), b.request("", on(other), on(one)))
	require.NoError(t, err, "both are deleted")
}

// interleavingAppender runs a function between preparing and writing, one per request.
type interleavingAppender struct {
	ports.EventAppender
	mu     sync.Mutex
	before []func()
}

func (m *interleavingAppender) Append(ctx context.Context, r ports.AppendRequest) (ports.AppendResult, error) {
	m.mu.Lock()
	if len(m.before) > 0 {
		next := m.before[0]
		m.before = m.before[1:]
		next()
	}
	m.mu.Unlock()
	return m.EventAppender.Append(ctx, r)
}

func TestAppend_RecreationWithConcurrentWriters(t *testing.T) {
	t.Parallel()
	b := newAppendFixture(t)
	plain := b.service()
	act := func(drafts ...event.Draft) func() {
		return func() {
			_, _, err := plain.Append(context.Background(), b.request("", drafts...))
			require.NoError(t, err)
		}
	}
	nothing := func() {}
	service := func(before ...func()) *eventappend.Service {
		return eventappend.NewService(eventappend.Config{Preparer: b.preparer, Appender: &interleavingAppender{EventAppender: b.store.Appender, before: before}, Events: b.store.Events, Idempotency: b.store.Intents, Clock: b.clock, IDs: b.ids, KeyTTL: 0})
	}
	b.deleteStreams(t, plain, "faster", "again", "ended", "fought")
	_, _, err := service(nothing, act(draftOnStream("faster"))).Append(t.Context(), b.request("", draftOnStream("faster")))
	require.NoError(t, err)
	require.Equal(t, append(append([]string{}, recreatedStreamTypes...), "shop.order.placed"), b.eventTypesOf(t, "faster"), "recreated once")

	_, _, err = service(nothing, act(draftOnStream("again")), act(lifecycleDraft("again", stream.Deleted))).Append(t.Context(), b.request("", draftOnStream("again")))
	require.NoError(t, err)
	require.Equal(t, []string{"shop.order.placed", stream.Deleted, stream.Recreated, "shop.order.placed", stream.Deleted, stream.Recreated, "shop.order.placed"}, b.eventTypesOf(t, "again"))

	_, _, err = service(nothing, act(lifecycleDraft("ended", stream.Tombstoned))).Append(t.Context(), b.request("", draftOnStream("ended")))
	require.Equal(t, concurrency.CodeStreamTombstoned, code(t, err))

	var fight []func()
	for range 50 {
		fight = append(fight, nothing, act(draftOnStream("fought")), act(lifecycleDraft("fought", stream.Deleted)))
	}
	_, _, err = service(fight[:len(fight)-1]...).Append(t.Context(), b.request("", draftOnStream("fought")))
	if err != nil { // the retries are used up, unless a try falls between two deletions
		require.Contains(t, []string{concurrency.CodeStreamDeleted, concurrency.CodeStreamNotDeleted}, code(t, err))
	}
}

func TestAppend_ConcurrentRecreation(t *testing.T) {
	t.Parallel()
	b := newAppendFixture(t)
	s := b.service()
	for round := range 20 {
		id := fmt.Sprint("S-", round)
		b.deleteStreams(t, s, id)
		var wg sync.WaitGroup
		errs := make([]error, 8)
		for i := range errs {
			wg.Go(func() { _, _, errs[i] = s.Append(context.Background(), b.request("", draftOnStream(id))) })
		}
		wg.Wait()
		for _, err := range errs {
			require.NoError(t, err)
		}
		types := b.eventTypesOf(t, id)
		require.Len(t, types, 2+1+len(errs))
		require.Equal(t, recreatedStreamTypes, types[:4])
		require.NotContains(t, types[4:], stream.Recreated)
	}
}

// Only the log itself writes lifecycle events of streams.
func TestPrepare_LifecycleEventsReserved(t *testing.T) {
	t.Parallel()
	b := newAppendFixture(t)
	for _, eventType := range []string{stream.MetadataChanged, stream.Deleted, stream.Tombstoned, stream.Recreated} {
		d := lifecycleDraft("O-1", eventType)
		fromIntent := b.batch(d)
		fromIntent.IntentID = b.ids.NewID(b.clock.Now())
		_, err := b.preparer.Prepare(t.Context(), fromIntent)
		require.Equal(t, "stream.event_reserved", code(t, err))
		d.Change = nil
		d.Data = json.RawMessage(`{}`)
		_, err = b.preparer.Prepare(t.Context(), b.batch(d))
		require.Equal(t, "stream.event_reserved", code(t, err))
	}
	disguised := orderPlaced(nil)
	disguised.Change = &event.StreamChange{Action: event.TombstoneStream}
	_, err := b.preparer.Prepare(t.Context(), b.batch(disguised))
	require.Equal(t, "stream.event_reserved", code(t, err))
}
