package query_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/query"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/stream"
	"github.com/erpbackbone/backbone/ports"
)

var mainStream = event.StreamID{Type: "till", ID: "main"}

// changeStream writes a lifecycle event of the stream.
func (l *logFixture) changeStream(t *testing.T, le ports.LegalEntity, a event.StreamAction, settings string) {
	t.Helper()
	l.write(t, le, func(p *event.Prepared) { p.Change = &event.StreamChange{Action: a, Settings: []byte(settings)} })
}

// readAllVersions reads the whole stream page by page.
func (l *logFixture) readAllVersions(t *testing.T, q query.StreamQuery) []event.Version {
	t.Helper()
	out := []event.Version{}
	for {
		page, err := l.Stream(t.Context(), q)
		require.NoError(t, err)
		require.NotNil(t, page.Events)
		require.LessOrEqual(t, len(page.Events), q.Count)
		for _, e := range page.Events {
			out = append(out, e.StreamVersion)
		}
		if !page.HasMore {
			require.Zero(t, page.Next)
			return out
		}
		require.Len(t, page.Events, q.Count, "there is more, so the page is full")
		q.From = page.Next
	}
}

func span(from, to event.Version) []event.Version {
	out := []event.Version{}
	for v := from; v <= to; v++ {
		out = append(out, v)
	}
	return out
}

func backwards(in []event.Version) []event.Version {
	out := make([]event.Version, len(in))
	for i, v := range in {
		out[len(in)-1-i] = v
	}
	return out
}

// TestStream_MetadataLimits reads a limited stream with every size of page, in both directions
// and from every version.
func TestStream_MetadataLimits(t *testing.T) {
	t.Parallel()
	l := newLogFixture()
	le := l.createEntity(t, "acme", "DEMF")
	l.fill(t, le, 9)
	check := func(settings string, first event.Version) {
		t.Helper()
		l.changeStream(t, le, event.DescribeStream, settings)
		status, err := l.store.Events.StreamStatus(t.Context(), le.Partition, mainStream)
		require.NoError(t, err)
		first = max(first, 1)
		last := status.Version
		for count := 1; count <= int(last)+1; count++ {
			q := query.StreamQuery{Entity: le, Stream: mainStream, Count: count}
			require.Equal(t, span(first, last), l.readAllVersions(t, q), "%s by %d", settings, count)
			q.Direction = ports.Backward
			require.Equal(t, backwards(span(first, last)), l.readAllVersions(t, q), "%s backward by %d", settings, count)
			for from := event.Version(1); from <= last+1; from++ {
				q.From, q.Direction = from, ports.Forward
				require.Equal(t, span(max(first, from), last), l.readAllVersions(t, q))
				q.Direction = ports.Backward
				require.Equal(t, backwards(span(first, min(last, from))), l.readAllVersions(t, q))
			}
		}
	}
	check(`{}`, 1)                                    // 10 events
	check(`{"max_count":4}`, 8)                       // 11 events
	check(`{"max_count":40}`, 1)                      // 12
	check(`{"max_age_seconds":4}`, 9)                 // 13, one each second
	check(`{"max_age_seconds":4,"max_count":3}`, 12)  // 14
	check(`{"max_age_seconds":3,"max_count":10}`, 12) // 15
	l.changeStream(t, le, event.DeleteStream, "")     // 16
	l.changeStream(t, le, event.RecreateStream, "")   // 17
	l.fill(t, le, 2)                                  // 19
	check(`{}`, 17)
	check(`{"max_count":2}`, 20)
	check(`{"max_count":20,"max_age_seconds":3}`, 19)

	l.changeStream(t, le, event.DescribeStream, `{"max_age_seconds":5}`)
	l.clock.Advance(time.Hour)
	page, err := l.Stream(t.Context(), query.StreamQuery{Entity: le, Stream: mainStream, Count: 5})
	require.NoError(t, err)
	require.Empty(t, page.Events, "all are too old")
	require.NotNil(t, page.Events)
	require.False(t, page.HasMore)
	require.EqualValues(t, 23, page.Version)
	facts, err := l.store.Events.EventsOfStream(t.Context(), le.Partition, mainStream, 1, 0)
	require.NoError(t, err)
	require.Len(t, facts, 23, "facts stay")
}

func TestStream_Refusals(t *testing.T) {
	t.Parallel()
	l := newLogFixture()
	le := l.createEntity(t, "acme", "DEMF")
	ask := func(roles ...string) error {
		_, err := l.Stream(t.Context(), query.StreamQuery{Entity: le, Stream: mainStream, Count: 5, Roles: roles})
		return err
	}
	require.Equal(t, "stream.not_found", code(t, ask("cfo")))
	l.changeStream(t, le, event.DescribeStream, `{"acl":{"read":["controller"]},"cache_control":"max-age=5"}`)
	require.NoError(t, ask("cfo", "controller"))
	require.NoError(t, ask("auditor"))
	require.Equal(t, "stream.access_denied", code(t, ask("cfo")))
	page, err := l.Stream(t.Context(), query.StreamQuery{Entity: le, Stream: mainStream, Count: 5})
	require.NoError(t, err)
	require.Equal(t, "private, max-age=5", page.CacheControl)
	l.changeStream(t, le, event.DeleteStream, "")
	require.Equal(t, "stream.access_denied", code(t, ask("cfo")), "a caller without access learns nothing about the stream")
	require.Equal(t, "stream.deleted", code(t, ask("controller")))
	require.Equal(t, fault.NotFound, fault.KindOf(ask("controller")))
	l.changeStream(t, le, event.TombstoneStream, "")
	require.Equal(t, "stream.tombstoned", code(t, ask("controller")))
	require.Equal(t, fault.Gone, fault.KindOf(ask("controller")))
}

// A live feed of a stream delivers what the metadata allow, and ends when access is revoked.
func TestStreamFeed_ObeysMetadata(t *testing.T) {
	t.Parallel()
	l := newLogFixture()
	le := l.createEntity(t, "acme", "DEMF")
	l.fill(t, le, 5)
	l.changeStream(t, le, event.DescribeStream, `{"max_count":3}`)
	feeds := query.NewFeeds(l.Service, l.store.Events, nil)
	read := func(f *query.StreamFeed) (out []event.Version, err error) {
		heads, err := l.store.Events.PartitionHeads(t.Context())
		require.NoError(t, err)
		events, _, _, err := f.Read(t.Context(), heads, 100)
		for _, e := range events {
			out = append(out, e.StreamVersion)
		}
		return out, err
	}
	follow := func(roles ...string) (*query.StreamFeed, error) {
		f := feeds.Stream(query.StreamFollowQuery{Entity: le, Stream: mainStream, Roles: append([]string{}, roles...)})
		_, err := f.Start(t.Context())
		return f, err
	}
	clerk, err := follow("clerk")
	require.NoError(t, err)
	shown, err := read(clerk)
	require.NoError(t, err)
	require.Equal(t, span(4, 6), shown)
	l.fill(t, le, 1)
	shown, err = read(clerk)
	require.NoError(t, err)
	require.Equal(t, span(7, 7), shown)
	describe := func(p *event.Prepared) {
		p.Type, p.Change = stream.MetadataChanged, &event.StreamChange{Action: event.DescribeStream, Settings: []byte(`{"acl":{"read":["chief"]}}`)}
	}
	l.write(t, le, describe)
	l.fill(t, le, 1)
	_, err = read(clerk)
	require.Equal(t, "stream.access_denied", code(t, err))
	_, err = follow("clerk")
	require.Equal(t, "stream.access_denied", code(t, err))
	chief, err := follow("chief")
	require.NoError(t, err)
	shown, err = read(chief)
	require.NoError(t, err)
	require.Equal(t, span(1, 9), shown)
	l.changeStream(t, le, event.TombstoneStream, "")
	_, err = follow("chief")
	require.Equal(t, "stream.tombstoned", code(t, err))
}

// TestStream_KnownAtWaitsUntilSettled: an event that is being appended may still be recorded
// at known_at, so the read waits until none can be.
func TestStream_KnownAtWaitsUntilSettled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLogFixture()
		le := l.createEntity(t, "demo", "USMF")
		l.write(t, le, nil)
		service := query.New(query.Config{Log: l.store.Events, Directory: l.directory, Cursors: query.NewCursorSealer(key), Clock: l.clock, SettleDelay: time.Hour})
		q := query.StreamQuery{Entity: le, Stream: mainStream, Count: 9, KnownAt: l.clock.Now().Format(time.RFC3339Nano)}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour-1)
		defer cancel()
		_, err := service.Stream(ctx, q)
		require.ErrorIs(t, err, context.DeadlineExceeded, "the time is not settled")
		begun := time.Now()
		page, err := service.Stream(t.Context(), q)
		require.NoError(t, err)
		require.Len(t, page.Events, 1)
		require.Equal(t, time.Hour, time.Since(begun))
		l.clock.Advance(time.Hour)
		_, err = service.Stream(t.Context(), q)
		require.NoError(t, err)
		require.Equal(t, time.Hour, time.Since(begun), "it was settled")
		q.KnownAt = l.clock.Now().Add(time.Second).Format(time.RFC3339Nano)
		_, err = service.Stream(t.Context(), q)
		require.Equal(t, "report.known_at_in_future", fault.CodeOf(err))
	})
}
