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

func onStream(id string) event.Draft {
	return placed(func(d *event.Draft) { d.Stream.ID = id })
}

func change(id, eventType string) event.Draft {
	return event.Draft{
		Type: eventType, Stream: event.StreamID{Type: "order", ID: id}, EffectiveDate: event.MustDate("2026-03-31"),
		Change: &event.StreamChange{Action: stream.ActionOf(eventType)},
	}
}

func (b *till) types(t *testing.T, id string) []string {
	t.Helper()
	events, err := b.store.EventsOfStream(t.Context(), b.entity.Partition, event.StreamID{Type: "order", ID: id}, 1, 0)
	require.NoError(t, err)
	out := []string{}
	for _, e := range events {
		out = append(out, e.Type)
	}
	return out
}

// deleted makes streams that are deleted at version 2.
func (b *till) deleted(t *testing.T, s *eventappend.Service, ids ...string) {
	t.Helper()
	for _, id := range ids {
		_, _, err := s.Append(t.Context(), b.request("", onStream(id), change(id, stream.Deleted)))
		require.NoError(t, err)
	}
}

var recreated = []string{"shop.order.placed", stream.Deleted, stream.Recreated, "shop.order.placed"}

func TestAnAppendRecreatesADeletedStream(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.service()
	for name, e := range map[string]concurrency.Expected{"any": concurrency.Any(), "no stream": concurrency.NoStream(), "exact": concurrency.Exactly(2)} {
		b.deleted(t, s, name)
		r := b.request("key-"+name, onStream(name))
		r.Streams = []concurrency.StreamExpectation{{Stream: r.Drafts[0].Stream, Expected: e}}
		first, replayed, err := s.Append(t.Context(), r)
		require.NoError(t, err, name)
		require.False(t, replayed)
		require.Len(t, first, 1, "receipts are those of the caller's events")
		require.EqualValues(t, 4, first[0].StreamVersion)
		require.Equal(t, recreated, b.types(t, name))
		again, replayed, err := s.Append(t.Context(), r)
		require.NoError(t, err)
		require.True(t, replayed)
		require.Equal(t, first, again)
	}
	b.deleted(t, s, "other")
	for e, want := range map[concurrency.Expected]string{
		concurrency.StreamExists(): concurrency.CodeStreamDeleted, concurrency.Exactly(1): concurrency.CodeWrongExpectedVersion, concurrency.Exactly(3): concurrency.CodeWrongExpectedVersion,
	} {
		r := b.request("", onStream("other"))
		r.Streams = []concurrency.StreamExpectation{{Stream: r.Drafts[0].Stream, Expected: e}}
		_, _, err := s.Append(t.Context(), r)
		require.Equal(t, want, code(t, err))
	}
	require.Len(t, b.types(t, "other"), 2)
	_, _, err := s.Append(t.Context(), b.request("", change("other", stream.Deleted)))
	require.Equal(t, concurrency.CodeStreamDeleted, code(t, err), "a deletion recreates nothing")
	_, _, err = s.Append(t.Context(), b.request("", change("other", stream.Tombstoned)))
	require.NoError(t, err)
	_, _, err = s.Append(t.Context(), b.request("", onStream("other")))
	require.Equal(t, concurrency.CodeStreamTombstoned, code(t, err))
}

// A batch over its limit is one of the caller's events, not of the log's.
func TestABatchRecreatesAllItsStreams(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.service()
	b.deleted(t, s, "a", "b", "c")
	receipts, _, err := s.Append(t.Context(), b.request("", onStream("b"), onStream("a"), onStream("c")))
	require.NoError(t, err)
	require.Len(t, receipts, limits.BatchEvents)
	for i, id := range []string{"b", "a", "c"} {
		require.Equal(t, id, receipts[i].Stream.ID)
		require.Equal(t, recreated, b.types(t, id))
	}
	events := b.recorded(t, receipts)
	all, err := b.store.EventsOfStream(t.Context(), b.entity.Partition, events[0].Stream, 3, 1)
	require.NoError(t, err)
	require.Equal(t, events[0].CorrelationID, all[0].CorrelationID, "it is told who recreated the stream and in which process")
	require.Equal(t, clerk.ID, all[0].ActorID)
	require.Equal(t, events[0].Scope, all[0].Scope)
}

// TestStreamsThatAreWrittenAlike: a type with a slash makes two streams that a fault
// names alike, and only one of them is deleted.
func TestStreamsThatAreWrittenAlike(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.service()
	one, other := event.StreamID{Type: "a/b", ID: "c"}, event.StreamID{Type: "a", ID: "b/c"}
	on := func(id event.StreamID) event.Draft { return placed(func(d *event.Draft) { d.Stream = id }) }
	deletion := change("", stream.Deleted)
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

// meddling lets something happen between the preparing and the writing of the first
// requests.
type meddling struct {
	ports.EventAppender
	mu     sync.Mutex
	before []func()
}

func (m *meddling) Append(ctx context.Context, r ports.AppendRequest) (ports.AppendResult, error) {
	m.mu.Lock()
	if len(m.before) > 0 {
		next := m.before[0]
		m.before = m.before[1:]
		next()
	}
	m.mu.Unlock()
	return m.EventAppender.Append(ctx, r)
}

func TestRecreationsMeetOthers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	plain := b.service()
	act := func(drafts ...event.Draft) func() {
		return func() {
			_, _, err := plain.Append(context.Background(), b.request("", drafts...))
			require.NoError(t, err)
		}
	}
	nothing := func() {}
	service := func(before ...func()) *eventappend.Service {
		return eventappend.NewService(b.preparer, &meddling{EventAppender: b.store, before: before}, b.store, b.store, b.clock, b.ids, 0)
	}
	b.deleted(t, plain, "faster", "again", "ended", "fought")
	_, _, err := service(nothing, act(onStream("faster"))).Append(t.Context(), b.request("", onStream("faster")))
	require.NoError(t, err)
	require.Equal(t, append(append([]string{}, recreated...), "shop.order.placed"), b.types(t, "faster"), "recreated once")

	_, _, err = service(nothing, act(onStream("again")), act(change("again", stream.Deleted))).Append(t.Context(), b.request("", onStream("again")))
	require.NoError(t, err)
	require.Equal(t, []string{"shop.order.placed", stream.Deleted, stream.Recreated, "shop.order.placed", stream.Deleted, stream.Recreated, "shop.order.placed"}, b.types(t, "again"))

	_, _, err = service(nothing, act(change("ended", stream.Tombstoned))).Append(t.Context(), b.request("", onStream("ended")))
	require.Equal(t, concurrency.CodeStreamTombstoned, code(t, err))

	var fight []func()
	for range 50 {
		fight = append(fight, nothing, act(onStream("fought")), act(change("fought", stream.Deleted)))
	}
	_, _, err = service(fight[:len(fight)-1]...).Append(t.Context(), b.request("", onStream("fought")))
	if err != nil { // it gives up, or has found a gap
		require.Contains(t, []string{concurrency.CodeStreamDeleted, concurrency.CodeStreamNotDeleted}, code(t, err))
	}
}

func TestRacersRecreateAStreamOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.service()
	for round := range 20 {
		id := fmt.Sprint("S-", round)
		b.deleted(t, s, id)
		var wg sync.WaitGroup
		errs := make([]error, 8)
		for i := range errs {
			wg.Go(func() { _, _, errs[i] = s.Append(context.Background(), b.request("", onStream(id))) })
		}
		wg.Wait()
		for _, err := range errs {
			require.NoError(t, err)
		}
		types := b.types(t, id)
		require.Len(t, types, 2+1+len(errs))
		require.Equal(t, recreated, types[:4])
		require.NotContains(t, types[4:], stream.Recreated)
	}
}

// Events that change streams come from the log itself alone.
func TestNobodyElseWritesLifecycleEvents(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, eventType := range []string{stream.MetadataChanged, stream.Deleted, stream.Tombstoned, stream.Recreated} {
		d := change("O-1", eventType)
		fromIntent := b.batch(d)
		fromIntent.IntentID = b.ids.NewID(b.clock.Now())
		_, err := b.preparer.Prepare(t.Context(), fromIntent)
		require.Equal(t, "stream.event_reserved", code(t, err))
		d.Change = nil
		d.Data = json.RawMessage(`{}`)
		_, err = b.preparer.Prepare(t.Context(), b.batch(d))
		require.Equal(t, "stream.event_reserved", code(t, err))
	}
	disguised := placed(nil)
	disguised.Change = &event.StreamChange{Action: event.TombstoneStream}
	_, err := b.preparer.Prepare(t.Context(), b.batch(disguised))
	require.Equal(t, "stream.event_reserved", code(t, err))
}
