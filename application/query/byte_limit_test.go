package query_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/query"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/ports"
)

const megabyte = 1 << 20

// withPayloadOf gives an event a payload of that many megabytes.
func withPayloadOf(megabytes int) func(*event.Prepared) {
	return func(p *event.Prepared) {
		p.Payload = []byte(`{"data":{"text":"` + strings.Repeat("x", megabytes*megabyte) + `"},"dimensions":{},"entity_refs":[]}`)
	}
}

func payloadSize(events []event.Recorded) (bytes int) {
	for i := range events {
		bytes += len(events[i].Payload)
	}
	return bytes
}

// A lineage that exceeds the limit keeps the causes nearest to the event, within a legal
// entity and across several, and reports the omission.
func TestLineage_ByteLimit(t *testing.T) {
	t.Parallel()
	l := newLogFixture()
	us, de := l.createEntity(t, "acme", "USMF"), l.createEntity(t, "acme", "DEMF")
	chain := []event.Recorded{}
	grow := func(in ports.LegalEntity, megabytes int) {
		chain = append(chain, l.write(t, in, func(p *event.Prepared) {
			withPayloadOf(megabytes)(p)
			if n := len(chain); n > 0 {
				causedBy(chain[n-1], in)(p)
			}
		}))
	}
	for range 5 {
		grow(us, 3)
	}
	for range 3 {
		grow(de, 3)
	}
	grow(de, 17)
	for _, c := range []struct{ of, first int }{{4, 0}, {5, 1}, {7, 3}, {8, 8}} {
		in := us
		if c.of > 4 {
			in = de
		}
		got, err := l.Lineage(t.Context(), in, nil, chain[c.of].ID)
		require.NoError(t, err)
		require.Len(t, got.Events, c.of-c.first+1, "of %d", c.of)
		for i := range got.Events {
			require.Equal(t, chain[c.first+i].ID, got.Events[i].ID)
		}
		require.Equal(t, c.first > 0, got.Truncated)
		if c.first > 0 {
			require.Equal(t, []query.Omission{{Reason: query.ReasonSize, At: chain[c.first].ID}}, got.Omissions)
		}
	}
}

// Large events come in short pages without loss or repetition; a page larger than the limit
// has a single event.
func TestEvents_ByteLimit(t *testing.T) {
	t.Parallel()
	l := newLogFixture()
	us, de := l.createEntity(t, "acme", "USMF"), l.createEntity(t, "acme", "DEMF")
	for i := range 12 {
		l.write(t, us, withPayloadOf(3))
		if i%3 == 0 {
			l.write(t, us, nil)
			l.write(t, de, withPayloadOf(4))
		}
	}
	l.write(t, us, withPayloadOf(17))
	l.write(t, us, nil)
	check := func(events []event.Recorded) {
		t.Helper()
		require.True(t, payloadSize(events) <= query.MaxPageBytes || len(events) == 1, "%d events of %d bytes", len(events), payloadSize(events))
	}
	pages := func(sel query.Selection) (out []event.Recorded, n int) {
		for {
			page, err := l.Events(t.Context(), sel)
			require.NoError(t, err)
			check(page.Events)
			out = append(out, page.Events...)
			n++
			if !page.HasMore {
				return out, n
			}
			require.NotEmpty(t, page.Events)
			sel.Cursor = page.NextCursor
		}
	}
	all, n := pages(byScope(1000))
	require.Equal(t, sequencesUpTo(18), sequences(all))
	require.Equal(t, 5, n)
	sel := byScope(1000)
	sel.Filter.Direction = ports.Backward
	back, _ := pages(sel)
	slices.Reverse(back)
	require.Equal(t, sequencesUpTo(18), sequences(back))
	sel.Filter.Direction, sel.Filter.WithoutData = ports.Forward, true
	bare, n := pages(sel)
	require.Equal(t, sequencesUpTo(18), sequences(bare))
	require.Equal(t, 1, n, "payloads that are not shown do not count")

	across, _ := pages(query.Selection{TenantID: "acme", Kind: query.ByCorrelation, StreamID: "c-1", Limit: 1000})
	require.Len(t, across, 18+4)
	require.True(t, slices.IsSortedFunc(across, func(a, b event.Recorded) int { return a.RecordedAt.Compare(b.RecordedAt) }))

	for _, direction := range []ports.Direction{ports.Forward, ports.Backward} {
		var versions []event.Version
		q := query.StreamQuery{Entity: us, Stream: mainStream, Count: 1000, Direction: direction}
		for more := true; more; {
			page, err := l.Stream(t.Context(), q)
			require.NoError(t, err)
			check(page.Events)
			for _, e := range page.Events {
				versions = append(versions, e.StreamVersion)
			}
			q.From, more = page.Next, page.HasMore
		}
		if direction == ports.Backward {
			versions = backwards(versions)
		}
		require.Equal(t, span(1, 18), versions)
	}

	match := query.MatchQuery{Entity: us, Items: []concurrency.Item{{Types: []string{"till.cash.moved"}}}, Limit: 1000}
	var matched []event.Recorded
	for more := true; more; {
		page, err := l.Match(t.Context(), match)
		require.NoError(t, err)
		check(page.Events)
		matched = append(matched, page.Events...)
		match.After, more = page.Condition.After, page.HasMore
	}
	require.Equal(t, sequencesUpTo(18), sequences(matched))
}

// Answers that are not paged report that they were truncated by size.
func TestCausality_ByteLimit(t *testing.T) {
	t.Parallel()
	l := newLogFixture()
	us, de := l.createEntity(t, "acme", "USMF"), l.createEntity(t, "acme", "DEMF")
	root := l.write(t, us, nil)
	effect := func(le ports.LegalEntity) event.Recorded {
		return l.write(t, le, func(p *event.Prepared) {
			withPayloadOf(3)(p)
			if p.CausedBy = root.ID; le.Partition != us.Partition {
				p.CausedByPartition = us.Partition
			}
		})
	}
	var want []event.Sequence
	for range 4 {
		want = append(want, effect(us).Sequence)
	}
	size := []query.Omission{{Reason: query.ReasonSize}}
	tree, err := l.Descendants(t.Context(), us, nil, root.ID, 100)
	require.NoError(t, err)
	require.Len(t, tree.Events, 2, "each of two legal entities has half of the bytes")
	require.Equal(t, want[0], tree.Events[0].Event.Sequence)
	require.Equal(t, size, tree.Omissions)
	for range 4 {
		effect(de)
	}
	tree, err = l.Descendants(t.Context(), us, nil, root.ID, 100)
	require.NoError(t, err)
	require.Equal(t, size, tree.Omissions)
	var found []event.Recorded
	for _, d := range tree.Events {
		found = append(found, d.Event)
	}
	require.LessOrEqual(t, payloadSize(found), query.MaxPageBytes)
	tree, err = l.Descendants(t.Context(), us, nil, root.ID, 1)
	require.NoError(t, err)
	require.Equal(t, []query.Omission{{Reason: query.ReasonCount}}, tree.Omissions)

	process, err := l.Process(t.Context(), query.ProcessQuery{TenantID: "acme", CorrelationID: "c-1", Limit: 100})
	require.NoError(t, err)
	require.Equal(t, size, process.Omissions)
	require.Len(t, process.Events, 3, "the first events: none after the position where one legal entity was cut")
	require.Equal(t, root.ID, process.Events[0].ID)
	process, err = l.Process(t.Context(), query.ProcessQuery{TenantID: "acme", CorrelationID: "c-1", Limit: 2})
	require.NoError(t, err)
	require.Equal(t, []query.Omission{{Reason: query.ReasonCount}}, process.Omissions)
	require.Len(t, process.Events, 2)
}

// A megabyte may be read of each legal entity, and a page of all of them still has at most
// MaxPageBytes.
func TestEvents_ByteLimitAcrossEntities(t *testing.T) {
	t.Parallel()
	l := newLogFixture()
	const entities = 20
	for i := range entities {
		l.write(t, l.createEntity(t, "acme", fmt.Sprintf("E%02d", i)), withPayloadOf(1))
	}
	sel := query.Selection{TenantID: "acme", Kind: query.ByCorrelation, StreamID: "c-1", Limit: 1000}
	var found []event.Recorded
	for more := true; more; {
		page, err := l.Events(t.Context(), sel)
		require.NoError(t, err)
		require.NotEmpty(t, page.Events)
		require.LessOrEqual(t, payloadSize(page.Events), query.MaxPageBytes)
		found = append(found, page.Events...)
		sel.Cursor, more = page.NextCursor, page.HasMore
	}
	require.Len(t, found, entities)
	require.True(t, slices.IsSortedFunc(found, func(a, b event.Recorded) int { return a.RecordedAt.Compare(b.RecordedAt) }))

	process, err := l.Process(t.Context(), query.ProcessQuery{TenantID: "acme", CorrelationID: "c-1", Limit: 100})
	require.NoError(t, err)
	require.LessOrEqual(t, payloadSize(process.Events), query.MaxPageBytes)
	require.Equal(t, sequencesIn(found[:len(process.Events)]), sequencesIn(process.Events), "the first ones")
	require.Equal(t, []query.Omission{{Reason: query.ReasonSize}}, process.Omissions)
	process, err = l.Process(t.Context(), query.ProcessQuery{TenantID: "acme", CorrelationID: "c-1", Limit: 3})
	require.NoError(t, err)
	require.Equal(t, []query.Omission{{Reason: query.ReasonCount}}, process.Omissions)
}

// sequencesIn lists events of several legal entities as partition and sequence.
func sequencesIn(events []event.Recorded) (out []string) {
	for i := range events {
		out = append(out, fmt.Sprint(events[i].Partition, "/", events[i].Sequence))
	}
	return out
}

// Pages of live feeds are bounded on every path: the end of the log, the index of types, and
// a stream by its versions.
func TestFeed_ByteLimit(t *testing.T) {
	t.Parallel()
	l := newLogFixture()
	us, de := l.createEntity(t, "acme", "USMF"), l.createEntity(t, "acme", "DEMF")
	other := func(p *event.Prepared) { p.Type, p.Stream = "till.opened", event.StreamID{Type: "till", ID: "side"} }
	const small = 600 // enough that the types are searched by their index
	for i := range small {
		l.write(t, us, other)
		l.write(t, de, other)
		if i%120 == 0 {
			l.write(t, us, withPayloadOf(3))
			l.write(t, de, withPayloadOf(3))
		}
	}
	feeds := query.NewFeeds(l.Service, l.store.Events, nil)
	heads, err := l.store.Events.PartitionHeads(t.Context())
	require.NoError(t, err)
	type source interface {
		Read(ctx context.Context, heads map[event.PartitionID]ports.Head, count int) ([]event.Recorded, []string, bool, error)
	}
	all, err := feeds.All(query.AllQuery{TenantID: "acme"})
	require.NoError(t, err)
	typed, err := feeds.All(query.AllQuery{TenantID: "acme", Filter: subscription.Filter{EventTypes: []string{"till.cash.moved"}}})
	require.NoError(t, err)
	for name, c := range map[string]struct {
		source
		events int
		most   int
	}{"all": {all, 10 + 2*small, 8 + 3}, "of a type": {typed, 10, 8 + 3}, "of a stream": {feeds.Stream(query.StreamFollowQuery{Entity: us, Stream: mainStream}), 5, 8}} {
		n := 0
		for more := true; more; {
			var events []event.Recorded
			events, _, more, err = c.Read(t.Context(), heads, 1000)
			require.NoError(t, err, name)
			require.LessOrEqual(t, payloadSize(events), c.most*megabyte+small*100, name)
			n += len(events)
		}
		require.Equal(t, c.events, n, name)
	}
}
