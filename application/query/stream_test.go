package query_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/query"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/stream"
	"github.com/erpbackbone/backbone/ports"
)

var mainTill = event.StreamID{Type: "till", ID: "main"}

// act writes an event that changes the stream.
func (l *library) act(t *testing.T, le ports.LegalEntity, a event.StreamAction, settings string) {
	t.Helper()
	l.write(t, le, func(p *event.Prepared) { p.Change = &event.StreamChange{Action: a, Settings: []byte(settings)} })
}

// versions reads the whole stream in pages of the size.
func (l *library) versions(t *testing.T, q query.StreamQuery) []event.Version {
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

// TestLimitsOfAStream reads through limits with every size of page, in both
// directions and from every version.
func TestLimitsOfAStream(t *testing.T) {
	t.Parallel()
	l := newLibrary()
	le := l.entity(t, "acme", "DEMF")
	l.fill(t, le, 9)
	check := func(settings string, first event.Version) {
		t.Helper()
		l.act(t, le, event.DescribeStream, settings)
		status, err := l.store.StreamStatus(t.Context(), le.Partition, mainTill)
		require.NoError(t, err)
		first = max(first, 1)
		last := status.Version
		for count := 1; count <= int(last)+1; count++ {
			q := query.StreamQuery{Entity: le, Stream: mainTill, Count: count}
			require.Equal(t, span(first, last), l.versions(t, q), "%s by %d", settings, count)
			q.Direction = ports.Backward
			require.Equal(t, backwards(span(first, last)), l.versions(t, q), "%s backward by %d", settings, count)
			for from := event.Version(1); from <= last+1; from++ {
				q.From, q.Direction = from, ports.Forward
				require.Equal(t, span(max(first, from), last), l.versions(t, q))
				q.Direction = ports.Backward
				require.Equal(t, backwards(span(first, min(last, from))), l.versions(t, q))
			}
		}
	}
	check(`{}`, 1)                                    // 10 events
	check(`{"max_count":4}`, 8)                       // 11 events
	check(`{"max_count":40}`, 1)                      // 12
	check(`{"max_age_seconds":4}`, 9)                 // 13, one each second
	check(`{"max_age_seconds":4,"max_count":3}`, 12)  // 14
	check(`{"max_age_seconds":3,"max_count":10}`, 12) // 15
	l.act(t, le, event.DeleteStream, "")              // 16
	l.act(t, le, event.RecreateStream, "")            // 17
	l.fill(t, le, 2)                                  // 19
	check(`{}`, 17)
	check(`{"max_count":2}`, 20)
	check(`{"max_count":20,"max_age_seconds":3}`, 19)

	l.act(t, le, event.DescribeStream, `{"max_age_seconds":5}`)
	l.clock.Advance(time.Hour)
	page, err := l.Stream(t.Context(), query.StreamQuery{Entity: le, Stream: mainTill, Count: 5})
	require.NoError(t, err)
	require.Empty(t, page.Events, "all are too old")
	require.NotNil(t, page.Events)
	require.False(t, page.HasMore)
	require.EqualValues(t, 23, page.Version)
	facts, err := l.store.EventsOfStream(t.Context(), le.Partition, mainTill, 1, 0)
	require.NoError(t, err)
	require.Len(t, facts, 23, "facts stay")
}

func TestStreamsThatAreNotShown(t *testing.T) {
	t.Parallel()
	l := newLibrary()
	le := l.entity(t, "acme", "DEMF")
	ask := func(roles ...string) error {
		_, err := l.Stream(t.Context(), query.StreamQuery{Entity: le, Stream: mainTill, Count: 5, Roles: roles})
		return err
	}
	require.Equal(t, "stream.not_found", code(t, ask("cfo")))
	l.act(t, le, event.DescribeStream, `{"acl":{"read":["controller"]},"cache_control":"max-age=5"}`)
	require.NoError(t, ask("cfo", "controller"))
	require.NoError(t, ask("auditor"))
	require.Equal(t, "stream.access_denied", code(t, ask("cfo")))
	page, err := l.Stream(t.Context(), query.StreamQuery{Entity: le, Stream: mainTill, Count: 5})
	require.NoError(t, err)
	require.Equal(t, "private, max-age=5", page.CacheControl)
	l.act(t, le, event.DeleteStream, "")
	require.Equal(t, "stream.access_denied", code(t, ask("cfo")), "who may not read is not told more")
	require.Equal(t, "stream.deleted", code(t, ask("controller")))
	require.Equal(t, fault.NotFound, fault.KindOf(ask("controller")))
	l.act(t, le, event.TombstoneStream, "")
	require.Equal(t, "stream.tombstoned", code(t, ask("controller")))
	require.Equal(t, fault.Gone, fault.KindOf(ask("controller")))
}

// A live feed of a stream shows what may be read of it, and ends with the right to.
func TestAFeedOfAStreamObeysItsMetadata(t *testing.T) {
	t.Parallel()
	l := newLibrary()
	le := l.entity(t, "acme", "DEMF")
	l.fill(t, le, 5)
	l.act(t, le, event.DescribeStream, `{"max_count":3}`)
	feeds := query.NewFeeds(l.Service, l.store, l.clock)
	read := func(f *query.StreamFeed) (out []event.Version, err error) {
		heads, err := l.store.PartitionHeads(t.Context())
		require.NoError(t, err)
		events, _, _, err := f.Read(t.Context(), heads, 100)
		for _, e := range events {
			out = append(out, e.StreamVersion)
		}
		return out, err
	}
	follow := func(roles ...string) (*query.StreamFeed, error) {
		f := feeds.Stream(query.StreamFollowQuery{Entity: le, Stream: mainTill, Roles: append([]string{}, roles...)})
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
	l.act(t, le, event.TombstoneStream, "")
	_, err = follow("chief")
	require.Equal(t, "stream.tombstoned", code(t, err))
}

// TestAStreamAsKnownIsTheSameForEver: an event that is being written may yet be recorded
// at the moment that is asked for, so the answer waits until none can be.
func TestAStreamAsKnownIsTheSameForEver(t *testing.T) {
	t.Parallel()
	l := newLibrary()
	le := l.entity(t, "demo", "USMF")
	l.write(t, le, nil)
	patient := query.New(l.store, l.store, l.directory, query.NewCursors(key), query.WithClock(l.clock), query.WithSettle(time.Hour))
	q := query.StreamQuery{Entity: le, Stream: mainTill, Count: 9, KnownAt: l.clock.Now().Format(time.RFC3339Nano)}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := patient.Stream(ctx, q)
	require.ErrorIs(t, err, context.DeadlineExceeded, "the moment is not over")
	l.clock.Advance(time.Hour)
	page, err := patient.Stream(t.Context(), q)
	require.NoError(t, err)
	require.Len(t, page.Events, 1)
	q.KnownAt = l.clock.Now().Add(time.Second).Format(time.RFC3339Nano)
	_, err = patient.Stream(t.Context(), q)
	require.Equal(t, "report.known_at_in_future", fault.CodeOf(err))
}
