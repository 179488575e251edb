package query_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/application/query"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

// rewritten is a log whose stored payloads are others now.
type rewritten struct {
	*memory.Store
	payload string
}

func (r *rewritten) Events(ctx context.Context, q ports.EventQuery) ([]event.Recorded, error) {
	events, err := r.Store.Events(ctx, q)
	for i := range events {
		if r.payload != "" {
			events[i].Payload = []byte(r.payload)
		}
	}
	return events, err
}

func (l *library) feeds(log query.Log) *query.Feeds {
	return query.NewFeeds(query.New(log, l.store, l.directory, query.NewCursors(key)), l.store, l.clock)
}

// What was redacted is not shown two seconds later, also where others read the same
// part of a log that keeps growing all the time.
func TestFeedsForgetWhatWasRedacted(t *testing.T) {
	t.Parallel()
	l := newLibrary()
	le := l.entity(t, "acme", "USMF")
	l.fill(t, le, 3)
	log := &rewritten{Store: l.store}
	feeds := l.feeds(log)
	follow := func(from string) (*query.AllFeed, map[event.PartitionID]ports.Head) {
		feed, err := feeds.All(query.AllQuery{TenantID: "acme", From: from})
		require.NoError(t, err)
		heads, err := feed.Start(t.Context())
		require.NoError(t, err)
		return feed, heads
	}
	first, heads := follow("")
	events, cursors, _, err := first.Read(t.Context(), heads, 10)
	require.NoError(t, err)
	require.Len(t, events, 3)

	log.payload = `{"data":{"$redacted":true},"dimensions":{},"entity_refs":[]}`
	for range 5 { // each write takes a second
		l.fill(t, le, 1)
		heads, err = l.store.PartitionHeads(t.Context())
		require.NoError(t, err)
		_, _, _, err = first.Read(t.Context(), heads, 10)
		require.NoError(t, err)
	}
	second, heads := follow(cursors[0])
	events, _, _, err = second.Read(t.Context(), heads, 10)
	require.NoError(t, err)
	require.Equal(t, event.Sequence(2), events[0].Sequence)
	require.JSONEq(t, log.payload, string(events[0].Payload))
}

// After a failover that lost the end of the log the heads may promise, for a moment,
// what is not there. Whoever has not seen it waits, and does not ask over and over.
func TestAFeedWaitsForWhatIsNotThere(t *testing.T) {
	t.Parallel()
	l := newLibrary()
	le := l.entity(t, "acme", "USMF")
	l.fill(t, le, 3)
	feed, err := l.feeds(l.store).All(query.AllQuery{TenantID: "acme"})
	require.NoError(t, err)
	heads, err := feed.Start(t.Context())
	require.NoError(t, err)
	heads[le.Partition] = ports.Head{Sequence: 7, RecordedAt: l.clock.Now().Add(time.Second)}
	events, _, _, err := feed.Read(t.Context(), heads, 10)
	require.NoError(t, err)
	require.Len(t, events, 3)
	events, _, more, err := feed.Read(t.Context(), heads, 10)
	require.NoError(t, err)
	require.Empty(t, events)
	require.False(t, more)

	l.fill(t, le, 5)
	heads, err = l.store.PartitionHeads(t.Context())
	require.NoError(t, err)
	events, _, more, err = feed.Read(t.Context(), heads, 10)
	require.NoError(t, err)
	require.Equal(t, []event.Sequence{4, 5, 6, 7, 8}, sequences(events))
	require.False(t, more)
}

// Whoever reads everything once leaves nothing behind in memory, however many legal
// entities there are.
func TestEndsThatNobodyReadsAreLetGo(t *testing.T) {
	t.Parallel()
	l := newLibrary()
	feeds := l.feeds(l.store)
	for _, code := range []string{"A", "B", "C"} {
		l.fill(t, l.entity(t, "acme", code), 5)
		feed, err := feeds.All(query.AllQuery{TenantID: "acme", LegalEntities: []string{code}})
		require.NoError(t, err)
		heads, err := feed.Start(t.Context())
		require.NoError(t, err)
		_, _, _, err = feed.Read(t.Context(), heads, 10)
		require.NoError(t, err)
		require.Equal(t, 5, feeds.Kept())
	}
}

// A feed from now has no position until it knows where now is: one that begins at the
// beginning would show its reader the whole log after a failed start.
func TestAFeedFromNowBeginsWithoutAPosition(t *testing.T) {
	t.Parallel()
	l := newLibrary()
	le := l.entity(t, "acme", "USMF")
	l.fill(t, le, 3)
	all, err := l.feeds(l.store).All(query.AllQuery{TenantID: "acme", From: query.FromNow})
	require.NoError(t, err)
	require.Empty(t, all.Cursor())
	_, err = all.Start(t.Context())
	require.NoError(t, err)
	again, err := l.feeds(l.store).All(query.AllQuery{TenantID: "acme", From: all.Cursor()})
	require.NoError(t, err)
	heads, err := again.Start(t.Context())
	require.NoError(t, err)
	events, _, _, err := again.Read(t.Context(), heads, 10)
	require.NoError(t, err)
	require.Empty(t, events)

	stream := l.feeds(l.store).Stream(query.StreamFollowQuery{Entity: le, Stream: mainTill, Now: true})
	require.Empty(t, stream.Cursor())
	_, err = stream.Start(t.Context())
	require.NoError(t, err)
	require.Equal(t, "3", stream.Cursor())
}
