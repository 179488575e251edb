package query_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/query"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/globallog"
	"github.com/erpbackbone/backbone/ports"
)

// globalFixture is a log whose events are taken into the global log.
type globalFixture struct {
	*logFixture
	*query.GlobalOrder
	entities []ports.LegalEntity
}

func newGlobalFixture(t *testing.T, tenants ...string) *globalFixture {
	t.Helper()
	l := newLogFixture()
	f := &globalFixture{logFixture: l, GlobalOrder: query.NewGlobalOrder(l.Service, l.store.GlobalLog)}
	for i, tenant := range tenants {
		f.entities = append(f.entities, l.createEntity(t, tenant, fmt.Sprintf("E%d", i)))
	}
	return f
}

// extend takes events into the global log.
func (f *globalFixture) extend(t *testing.T, most int) {
	t.Helper()
	var partitions []event.PartitionID
	for _, le := range f.entities {
		partitions = append(partitions, le.Partition)
	}
	rand.Shuffle(len(partitions), func(i, j int) { partitions[i], partitions[j] = partitions[j], partitions[i] })
	_, err := f.store.GlobalLog.ExtendGlobalLog(t.Context(), partitions, most)
	require.NoError(t, err)
}

// order lists the ids of a tenant's events in the global order.
func (f *globalFixture) order(t *testing.T, tenant string) (ids []event.ID) {
	t.Helper()
	q := ports.GlobalRangeQuery{Limit: 1 << 20}
	for _, le := range f.entities {
		if le.TenantID == tenant {
			q.Partitions = append(q.Partitions, le.Partition)
		}
	}
	ranges, err := f.store.GlobalLog.GlobalRanges(t.Context(), q)
	require.NoError(t, err)
	for _, r := range ranges {
		events, err := f.store.Events.Events(t.Context(), ports.EventQuery{Partition: r.Partition, From: r.Sequence, Until: r.NextSequence() - 1, Limit: int(r.Count)})
		require.NoError(t, err)
		ids = append(ids, idsOf(events)...)
	}
	return ids
}

func idsOf(events []event.Recorded) (ids []event.ID) {
	for i := range events {
		ids = append(ids, events[i].ID)
	}
	return ids
}

// TestGlobalOrder reads all events of a tenant forward and backward in pages of any size, from any position, and
// goes on with the feed where the global log ends: each event comes once.
func TestGlobalOrder(t *testing.T) {
	t.Parallel()
	for round := range 20 {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			t.Parallel()
			f := newGlobalFixture(t, "acme", "other", "acme", "acme", "other")
			for range 12 {
				f.fill(t, f.entities[rand.IntN(5)], rand.IntN(6))
				if rand.IntN(2) == 0 {
					f.extend(t, 1+rand.IntN(4))
				}
			}
			want := f.order(t, "acme")
			var forward []event.ID
			q, cursor := query.GlobalQuery{TenantID: "acme"}, ""
			for more := true; more; {
				q.Count = 1 + rand.IntN(5)
				page, err := f.Read(t.Context(), q)
				require.NoError(t, err)
				require.LessOrEqual(t, len(page.Events), q.Count)
				require.Equal(t, page.HasMore, page.NextCursor == "")
				forward = append(forward, idsOf(page.Events)...)
				q.From, cursor, more = page.Next, page.NextCursor, page.HasMore
			}
			require.Equal(t, want, forward)

			var backward []event.ID
			back := query.GlobalQuery{TenantID: "acme", Direction: ports.Backward, From: globallog.End}
			for more := true; more; {
				back.Count = 1 + rand.IntN(5)
				page, err := f.Read(t.Context(), back)
				require.NoError(t, err)
				require.Empty(t, page.NextCursor)
				backward = append(backward, idsOf(page.Events)...)
				back.From, more = page.Next, page.HasMore
			}
			slices.Reverse(backward)
			require.Equal(t, want, backward)

			f.extend(t, 3)
			all := slices.Clone(forward)
			for more := true; more; {
				page, err := f.Feed(t.Context(), query.FeedQuery{TenantID: "acme", Cursor: cursor, Count: 3})
				require.NoError(t, err)
				all = append(all, idsOf(page.Events)...)
				cursor, more = page.NextCursor, page.HasMore
			}
			var stored []event.ID
			for _, le := range f.entities {
				if le.TenantID == "acme" {
					events, err := f.store.Events.Events(t.Context(), ports.EventQuery{Partition: le.Partition, Limit: 1000})
					require.NoError(t, err)
					stored = append(stored, idsOf(events)...)
				}
			}
			require.ElementsMatch(t, stored, all)

			late, err := f.Read(t.Context(), query.GlobalQuery{TenantID: "acme", From: q.From, Count: 100})
			require.NoError(t, err)
			require.Equal(t, f.order(t, "acme"), append(want, idsOf(late.Events)...), "what has come since the last page")
		})
	}
}

// TestGlobalOrder_Limits: rights, the end of the log, and large payloads.
func TestGlobalOrder_Limits(t *testing.T) {
	t.Parallel()
	f := newGlobalFixture(t, "acme", "acme")
	empty, err := f.Read(t.Context(), query.GlobalQuery{TenantID: "acme", Direction: ports.Backward, From: globallog.End, Count: 5})
	require.NoError(t, err)
	require.Equal(t, query.GlobalPage{Events: []event.Recorded{}}, empty)
	large := func(p *event.Prepared) {
		p.Payload = []byte(`{"data":{"text":"` + strings.Repeat("x", 1<<20-200) + `"},"dimensions":{},"entity_refs":[]}`)
	}
	for range 8 {
		for _, le := range f.entities {
			f.write(t, le, large)
		}
		f.extend(t, 10)
	}
	want := f.order(t, "acme")
	for _, direction := range []ports.Direction{ports.Forward, ports.Backward} {
		q := query.GlobalQuery{TenantID: "acme", Direction: direction, Count: 100}
		if direction == ports.Backward {
			q.From = globallog.End
			slices.Reverse(want)
		}
		var got []event.ID
		pages := 0
		for more := true; more; pages++ {
			page, err := f.Read(t.Context(), q)
			require.NoError(t, err)
			require.NotEmpty(t, page.Events)
			got = append(got, idsOf(page.Events)...)
			q.From, more = page.Next, page.HasMore
		}
		require.Equal(t, want, got)
		require.Greater(t, pages, 1, "16 MB are more than a page")
	}
	one, err := f.Read(t.Context(), query.GlobalQuery{TenantID: "acme", Readable: []string{"E0"}, Count: 100, WithoutData: true})
	require.NoError(t, err)
	require.Len(t, one.Events, 8)
	foreign, err := f.Read(t.Context(), query.GlobalQuery{TenantID: "other", Count: 100})
	require.NoError(t, err)
	require.Empty(t, foreign.Events)
	_, err = f.Read(t.Context(), query.GlobalQuery{TenantID: "acme", From: 17, Count: 100})
	require.Equal(t, "global_log.beyond_end", fault.CodeOf(err))
	_, err = f.Read(t.Context(), query.GlobalQuery{TenantID: "acme"})
	require.Equal(t, "request.parameter_invalid", fault.CodeOf(err))
}

// TestAllFeed_FromPosition follows the global order from a position, then what is not in it, and what comes: each event
// once. The cursor after any event goes on with the rest.
func TestAllFeed_FromPosition(t *testing.T) {
	t.Parallel()
	for round := range 20 {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			t.Parallel()
			f := newGlobalFixture(t, "acme", "other", "acme", "acme", "other")
			for range 12 {
				f.fill(t, f.entities[rand.IntN(5)], rand.IntN(6))
				if rand.IntN(2) == 0 {
					f.extend(t, 1+rand.IntN(4))
				}
			}
			size, err := f.store.GlobalLog.GlobalSize(t.Context())
			require.NoError(t, err)
			position := rand.Uint64N(size + 1)
			var before []event.ID // of the tenant
			back := query.GlobalQuery{TenantID: "acme", Direction: ports.Backward, From: globallog.Position(position) - 1, Count: 1000}
			if position > 0 {
				page, err := f.Read(t.Context(), back)
				require.NoError(t, err)
				before = idsOf(page.Events)
			}
			ordered := f.order(t, "acme")[len(before):]
			feeds := query.NewFeeds(f.Service, f.store.Events, f.GlobalOrder)
			follow := func(from string, isLate func()) (seen []event.ID, cursors []string) {
				feed, err := feeds.All(query.AllQuery{TenantID: "acme", From: from})
				require.NoError(t, err)
				heads, err := feed.Start(t.Context())
				require.NoError(t, err)
				for more := true; more; {
					var events []event.Recorded
					var after []string
					events, after, more, err = feed.Read(t.Context(), heads, 1+rand.IntN(4))
					require.NoError(t, err)
					seen, cursors = append(seen, idsOf(events)...), append(cursors, after...)
					if isLate != nil && !more {
						isLate()
						heads, err = f.store.Events.PartitionHeads(t.Context())
						require.NoError(t, err)
						isLate, more = nil, true
					}
				}
				return seen, cursors
			}
			seen, cursors := follow(fmt.Sprintf("%s%d", query.FromPosition, position), func() { f.fill(t, f.entities[2], 3) })
			require.Equal(t, ordered, append([]event.ID{}, seen[:len(ordered)]...))
			var stored []event.ID
			for _, le := range f.entities {
				if le.TenantID == "acme" {
					events, err := f.store.Events.Events(t.Context(), ports.EventQuery{Partition: le.Partition, Limit: 1000})
					require.NoError(t, err)
					stored = append(stored, idsOf(events)...)
				}
			}
			require.ElementsMatch(t, stored, append(before, seen...))
			at := rand.IntN(len(seen))
			rest, _ := follow(cursors[at], nil)
			require.ElementsMatch(t, seen[at+1:], rest)
		})
	}
}

// TestAllFeed_FromPosition_Refuses positions that there are not.
func TestAllFeed_FromPosition_Refuses(t *testing.T) {
	t.Parallel()
	f := newGlobalFixture(t, "acme")
	feeds := query.NewFeeds(f.Service, f.store.Events, f.GlobalOrder)
	for _, from := range []string{"position:", "position:-1", "position:x", "position:9223372036854775808"} {
		_, err := feeds.All(query.AllQuery{TenantID: "acme", From: from})
		require.Equal(t, "request.parameter_invalid", fault.CodeOf(err), from)
	}
	feed, err := feeds.All(query.AllQuery{TenantID: "acme", From: "position:1"})
	require.NoError(t, err)
	require.Empty(t, feed.Cursor())
	_, err = feed.Start(t.Context())
	require.Equal(t, "global_log.beyond_end", fault.CodeOf(err))
}
