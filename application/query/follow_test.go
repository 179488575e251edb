package query_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/application/query"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/ports"
)

// rewrittenLog is a log whose stored payloads have been replaced.
type rewrittenLog struct {
	*memory.EventReader
	payload string
}

func (r *rewrittenLog) Events(ctx context.Context, q ports.EventQuery) ([]event.Recorded, error) {
	events, err := r.EventReader.Events(ctx, q)
	for i := range events {
		if r.payload != "" {
			events[i].Payload = []byte(r.payload)
		}
	}
	return events, err
}

func (l *logFixture) feeds(log query.Log) *query.Feeds {
	return query.NewFeeds(query.New(query.Config{Log: log, Directory: l.directory, Cursors: query.NewCursorSealer(key), Clock: l.clock}), l.store.Events, nil)
}

// A redacted payload is not delivered after two seconds, even if other readers read the same
// part of a log that keeps growing.
func TestFeed_AfterRedaction(t *testing.T) {
	t.Parallel()
	l := newLogFixture()
	le := l.createEntity(t, "acme", "USMF")
	l.fill(t, le, 3)
	log := &rewrittenLog{EventReader: l.store.Events}
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
		heads, err = l.store.Events.PartitionHeads(t.Context())
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

// Shortly after a failover that lost the end of the log, the heads may be ahead of the log.
// A reader that has not seen the lost events waits without polling.
func TestFeed_HeadBeyondLog(t *testing.T) {
	t.Parallel()
	l := newLogFixture()
	le := l.createEntity(t, "acme", "USMF")
	l.fill(t, le, 3)
	feed, err := l.feeds(l.store.Events).All(query.AllQuery{TenantID: "acme"})
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
	heads, err = l.store.Events.PartitionHeads(t.Context())
	require.NoError(t, err)
	events, _, more, err = feed.Read(t.Context(), heads, 10)
	require.NoError(t, err)
	require.Equal(t, []event.Sequence{4, 5, 6, 7, 8}, sequences(events))
	require.False(t, more)
}

// A reader that reads every log once leaves no tails in memory.
func TestFeed_TailCacheExpires(t *testing.T) {
	t.Parallel()
	l := newLogFixture()
	feeds := l.feeds(l.store.Events)
	for _, code := range []string{"A", "B", "C"} {
		l.fill(t, l.createEntity(t, "acme", code), 5)
		feed, err := feeds.All(query.AllQuery{TenantID: "acme", Filter: subscription.Filter{LegalEntities: []string{code}}})
		require.NoError(t, err)
		heads, err := feed.Start(t.Context())
		require.NoError(t, err)
		_, _, _, err = feed.Read(t.Context(), heads, 10)
		require.NoError(t, err)
		require.Equal(t, 5, feeds.CachedEvents())
	}
}

// A feed from now has no cursor until it has read the heads. A cursor of the beginning would
// deliver the whole log to a reader that reconnects after a failed start.
func TestFeed_FromNow(t *testing.T) {
	t.Parallel()
	l := newLogFixture()
	le := l.createEntity(t, "acme", "USMF")
	l.fill(t, le, 3)
	all, err := l.feeds(l.store.Events).All(query.AllQuery{TenantID: "acme", From: query.FromNow})
	require.NoError(t, err)
	require.Empty(t, all.Cursor())
	_, err = all.Start(t.Context())
	require.NoError(t, err)
	again, err := l.feeds(l.store.Events).All(query.AllQuery{TenantID: "acme", From: all.Cursor()})
	require.NoError(t, err)
	heads, err := again.Start(t.Context())
	require.NoError(t, err)
	events, _, _, err := again.Read(t.Context(), heads, 10)
	require.NoError(t, err)
	require.Empty(t, events)

	stream := l.feeds(l.store.Events).Stream(query.StreamFollowQuery{Entity: le, Stream: mainStream, OnlyNew: true})
	require.Empty(t, stream.Cursor())
	_, err = stream.Start(t.Context())
	require.NoError(t, err)
	require.Equal(t, "3", stream.Cursor())
}
