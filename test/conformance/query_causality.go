package conformance

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/ports"
)

var descendantPromises = []promise{
	{"descendants are listed level by level", descendants},
	{"descendants report that the limit cut them", descendantsCut},
	{"descendants of a cause in another partition are found", descendantsElsewhere},
	{"walk through a cycle ends where it began", descendantsCircle},
}

var matchPromises = []promise{
	{"item demands one type and all keys", matchItems},
	{"matches are complete up to through", matchPages},
	{"random items agree with a simple model", matchModel},
}

// tree writes a root that leads to two events, which lead to three, one of which
// leads to a last one, with an unrelated event after each.
func (b *partition) tree(t *testing.T) (ids []event.ID) {
	t.Helper()
	for i, cause := range []int{-1, 0, 0, 1, 1, 2, 3} {
		e := b.event(b.changed, stream(b.unique("s")))
		if cause >= 0 {
			e.CausedBy = ids[cause]
		}
		b.write(t, e, b.event(b.opened, stream("noise"), tagged(fmt.Sprint("noise", i))))
		ids = append(ids, e.ID)
	}
	return ids
}

func (b *partition) descend(t *testing.T, q ports.DescendantQuery) (ids []event.ID, depths []int, more bool) {
	t.Helper()
	q.Partition = b.le.Partition
	found, more, err := b.store.Descendants(context.Background(), q)
	require.NoError(t, err)
	require.NotNil(t, found, "an empty result must not be nil")
	for _, d := range found {
		ids, depths = append(ids, d.Event.ID), append(depths, d.Depth)
		require.Equal(t, q.WithoutData, d.Event.Payload == nil)
	}
	return ids, depths, more
}

func (b *partition) cause(id event.ID) ports.Cause {
	return ports.Cause{Partition: b.le.Partition, ID: id}
}

func descendants(t *testing.T, s *suite) {
	b := s.newPartition(t)
	ids := b.tree(t)
	for name, tc := range map[string]struct {
		causes []int
		depth  int
		want   []int
		depths []int
	}{
		"of the root":         {[]int{0}, 10, []int{1, 2, 3, 4, 5, 6}, []int{1, 1, 2, 2, 2, 3}},
		"one level":           {[]int{0}, 1, []int{1, 2}, []int{1, 1}},
		"two levels":          {[]int{0}, 2, []int{1, 2, 3, 4, 5}, []int{1, 1, 2, 2, 2}},
		"of a branch":         {[]int{1}, 10, []int{3, 4, 6}, []int{1, 1, 2}},
		"of two":              {[]int{3, 2}, 10, []int{5, 6}, []int{1, 1}},
		"of one without any":  {[]int{6}, 10, nil, nil},
		"of none":             {nil, 10, nil, nil},
		"without going along": {[]int{0}, 0, nil, nil},
	} {
		for _, withoutData := range []bool{false, true} {
			q := ports.DescendantQuery{MaxDepth: tc.depth, Limit: 100, WithoutData: withoutData}
			for _, i := range tc.causes {
				q.Causes = append(q.Causes, b.cause(ids[i]))
			}
			var want []event.ID
			for _, i := range tc.want {
				want = append(want, ids[i])
			}
			got, depths, more := b.descend(t, q)
			require.Equal(t, want, got, name)
			require.Equal(t, tc.depths, depths, name)
			require.False(t, more, name)
		}
	}
	got, _, _ := b.descend(t, ports.DescendantQuery{Causes: []ports.Cause{b.cause(b.ids.next())}, MaxDepth: 5, Limit: 5})
	require.Empty(t, got)
}

func descendantsCut(t *testing.T, s *suite) {
	b := s.newPartition(t)
	ids := b.tree(t)
	for _, limit := range []int{1, 2, 5, 6, 7} {
		got, depths, more := b.descend(t, ports.DescendantQuery{Causes: []ports.Cause{b.cause(ids[0])}, MaxDepth: 10, Limit: limit})
		require.Len(t, got, min(limit, 6))
		require.Equal(t, []int{1, 1, 2, 2, 2, 3}[:min(limit, 6)], depths, "what is nearest stays")
		require.Equal(t, limit < 6, more)
	}
	_, _, more := b.descend(t, ports.DescendantQuery{Causes: []ports.Cause{b.cause(ids[0])}, MaxDepth: 2, Limit: 5})
	require.False(t, more, "the depth is no cut")
}

func descendantsElsewhere(t *testing.T, s *suite) {
	a, b := s.newPartition(t), s.newPartition(t)
	cause := a.event(s.opened, stream("1"))
	a.write(t, cause)
	first := b.event(s.opened, stream("1"), causedIn(a.le.Partition, cause.ID))
	second := b.event(s.changed, stream("1"), causedBy(first.ID))
	b.write(t, first, second)
	back := a.event(s.changed, stream("1"), causedIn(b.le.Partition, second.ID))
	a.write(t, back)
	ask := func(in *partition, c ports.Cause) []event.ID {
		ids, _, _ := in.descend(t, ports.DescendantQuery{Causes: []ports.Cause{c}, MaxDepth: 10, Limit: 10})
		return ids
	}
	require.Equal(t, []event.ID{first.ID, second.ID}, ask(b, a.cause(cause.ID)))
	require.Empty(t, ask(a, a.cause(cause.ID)), "the effect is elsewhere")
	require.Empty(t, ask(b, b.cause(cause.ID)), "a cause is an event of a certain legal entity")
	require.Equal(t, []event.ID{second.ID}, ask(b, b.cause(first.ID)))
	require.Equal(t, []event.ID{back.ID}, ask(a, b.cause(second.ID)))
}

// descendantsCircle writes three events that name each other as the cause.
func descendantsCircle(t *testing.T, s *suite) {
	b := s.newPartition(t)
	events := []event.Prepared{b.event(s.opened, stream("1")), b.event(s.changed, stream("1")), b.event(s.changed, stream("1"))}
	for i := range events {
		events[i].CausedBy = events[(i+2)%3].ID
	}
	self := b.event(s.changed, stream("1"))
	self.CausedBy = self.ID
	b.write(t, append(events, self)...)
	for i := range events {
		ids, depths, more := b.descend(t, ports.DescendantQuery{
			Causes: []ports.Cause{b.cause(events[i].ID)}, Stop: event.Sequence(i + 1), MaxDepth: 50, Limit: 100,
		})
		require.Equal(t, []event.ID{events[(i+1)%3].ID, events[(i+2)%3].ID, events[i].ID}, ids)
		require.Equal(t, []int{1, 2, 3}, depths)
		require.False(t, more)
	}
	ids, _, _ := b.descend(t, ports.DescendantQuery{Causes: []ports.Cause{b.cause(self.ID)}, Stop: 4, MaxDepth: 50, Limit: 100})
	require.Equal(t, []event.ID{self.ID}, ids)
}

// matched reads all pages and demands what a page promises.
func (b *partition) matched(t tester, q ports.MatchQuery) (out []ports.Match, pages int) {
	t.Helper()
	q.Partition = b.le.Partition
	for {
		pages++
		page, err := b.store.Matches(context.Background(), q)
		require.NoError(t, err)
		require.NotNil(t, page.Matches, "an empty result must not be nil")
		require.LessOrEqual(t, len(page.Matches), q.Limit)
		require.LessOrEqual(t, page.Through, max(q.After, q.Until))
		for _, m := range page.Matches {
			require.Greater(t, m.Event.Sequence, q.After)
			require.LessOrEqual(t, m.Event.Sequence, page.Through)
			require.Equal(t, q.WithoutData, m.Event.Payload == nil)
		}
		out = append(out, page.Matches...)
		if page.Through >= q.Until {
			return out, pages
		}
		require.Greater(t, page.Through, q.After, "a page that covers nothing would be read for ever")
		q.After = page.Through
	}
}

func found(matches []ports.Match) (sequences []event.Sequence, items [][]int) {
	for _, m := range matches {
		sequences, items = append(sequences, m.Event.Sequence), append(items, m.Items)
	}
	return sequences, items
}

func matchItems(t *testing.T, s *suite) {
	b := s.newPartition(t)
	b.write(t,
		b.event(s.opened, stream("1"), tagged("a")),
		b.event(s.opened, stream("2"), tagged("a", "b"), about("vendor", "V-1")),
		b.event(s.changed, stream("1"), tagged("b")),
		b.event(s.closed, stream("1"), tagged("a", "b", "c"), about("vendor", "V-1"), about("vendor", "V-2")),
		b.event(s.changed, stream("2")),
	)
	other := s.newPartition(t)
	other.write(t, other.event(s.opened, stream("1"), tagged("a")))
	vendor := func(id string) []concurrency.Entity { return []concurrency.Entity{{Type: "vendor", ID: id}} }
	for name, tc := range map[string]struct {
		items []concurrency.Item
		want  []event.Sequence
		by    [][]int
	}{
		"a tag":            {[]concurrency.Item{{Tags: []string{"a"}}}, []event.Sequence{1, 2, 4}, [][]int{{0}, {0}, {0}}},
		"all tags":         {[]concurrency.Item{{Tags: []string{"b", "a"}}}, []event.Sequence{2, 4}, [][]int{{0}, {0}}},
		"a tag twice":      {[]concurrency.Item{{Tags: []string{"c", "c"}}}, []event.Sequence{4}, [][]int{{0}}},
		"an unused tag":    {[]concurrency.Item{{Tags: []string{"a", "z"}}}, nil, nil},
		"an entity":        {[]concurrency.Item{{Entities: vendor("V-1")}}, []event.Sequence{2, 4}, [][]int{{0}, {0}}},
		"entity and tag":   {[]concurrency.Item{{Entities: vendor("V-1"), Tags: []string{"c"}}}, []event.Sequence{4}, [][]int{{0}}},
		"one of the types": {[]concurrency.Item{{Types: []string{s.changed.Type, s.closed.Type, s.closed.Type}}}, []event.Sequence{3, 4, 5}, [][]int{{0}, {0}, {0}}},
		"type and tag":     {[]concurrency.Item{{Types: []string{s.opened.Type}, Tags: []string{"b"}}}, []event.Sequence{2}, [][]int{{0}}},
		"an unknown type":  {[]concurrency.Item{{Types: []string{"conformance.never.registered"}}, {Types: []string{"conformance.never.registered"}, Tags: []string{"a"}}}, nil, nil},
		"everything":       {[]concurrency.Item{{}}, upTo(5), [][]int{{0}, {0}, {0}, {0}, {0}}},
		"nothing":          {nil, nil, nil},
		"any item": {
			[]concurrency.Item{{Tags: []string{"c"}}, {Types: []string{s.changed.Type}}, {Tags: []string{"b"}}},
			[]event.Sequence{2, 3, 4, 5}, [][]int{{2}, {1, 2}, {0, 2}, {1}},
		},
	} {
		for _, limit := range []int{1, 2, 100} {
			got, _ := b.matched(t, ports.MatchQuery{Items: tc.items, Until: 5, Limit: limit, WithoutData: limit == 2})
			sequences, items := found(got)
			require.Equal(t, tc.want, sequences, name)
			require.Equal(t, tc.by, items, name)
		}
	}
}

func matchPages(t *testing.T, s *suite) {
	b := s.newPartition(t)
	for i := range 20 {
		b.write(t, b.event(s.opened, stream(fmt.Sprint(i)), tagged("all", fmt.Sprint("third", i%3))))
	}
	items := []concurrency.Item{{Tags: []string{"third0"}}, {Tags: []string{"third1", "all"}}}
	for _, tc := range []struct {
		after, until event.Sequence
		want         []event.Sequence
	}{
		{0, 20, []event.Sequence{1, 2, 4, 5, 7, 8, 10, 11, 13, 14, 16, 17, 19, 20}},
		{4, 11, []event.Sequence{5, 7, 8, 10, 11}},
		{19, 20, []event.Sequence{20}},
		{20, 20, nil},
		{20, 4, nil},
	} {
		for _, limit := range []int{1, 3, 5, 14} {
			got, pages := b.matched(t, ports.MatchQuery{Items: items, After: tc.after, Until: tc.until, Limit: limit})
			sequences, _ := found(got)
			require.Equal(t, tc.want, sequences)
			require.LessOrEqual(t, pages, len(tc.want)/limit+1)
		}
	}
	page, err := s.store.Matches(context.Background(), ports.MatchQuery{Partition: 1 << 18, Items: items, Until: 3, Limit: 3})
	require.NoError(t, err)
	require.Empty(t, page.Matches)
}

// matchModel holds random items against a search of the whole log.
func matchModel(t *testing.T, s *suite) {
	b := s.newPartition(t)
	types := []eventtype.Registration{s.opened, s.changed, s.closed}
	rapid.Check(t, func(rt *rapid.T) {
		m := &model{base: b.head(rt).Sequence, prefix: s.unique("q")}
		for range rapid.IntRange(1, 3).Draw(rt, "batches") {
			r := b.request()
			for range rapid.IntRange(1, 5).Draw(rt, "events") {
				var options []option
				for tag := range 3 {
					if rapid.Bool().Draw(rt, "tagged") {
						options = append(options, tagged(m.name("t", tag)))
					}
				}
				if rapid.Bool().Draw(rt, "about") {
					options = append(options, about("vendor", m.name("v", 1)))
				}
				r.Events = append(r.Events, b.event(rapid.SampledFrom(types).Draw(rt, "type"), m.drawStream(rt), options...))
			}
			b.must(rt, r)
			m.accept(r)
		}
		var items []concurrency.Item
		for range rapid.IntRange(1, 4).Draw(rt, "items") {
			var item concurrency.Item
			for _, typ := range types {
				if rapid.IntRange(0, 3).Draw(rt, "of type") == 0 {
					item.Types = append(item.Types, typ.Type)
				}
			}
			for tag := range 3 {
				if rapid.IntRange(0, 2).Draw(rt, "with tag") == 0 {
					item.Tags = append(item.Tags, m.name("t", tag))
				}
			}
			if rapid.IntRange(0, 3).Draw(rt, "with vendor") == 0 {
				item.Entities = []concurrency.Entity{{Type: "vendor", ID: m.name("v", 1)}}
			}
			items = append(items, item)
		}
		q := ports.MatchQuery{
			Items: items, Limit: rapid.IntRange(1, 6).Draw(rt, "limit"),
			After: m.base + event.Sequence(rapid.IntRange(0, len(m.events)).Draw(rt, "after")),
			Until: m.base + event.Sequence(rapid.IntRange(0, len(m.events)).Draw(rt, "until")),
		}
		var want []event.Sequence
		var by [][]int
		for _, e := range m.events {
			var places []int
			for i, item := range items {
				if e.matches(item) {
					places = append(places, i)
				}
			}
			if len(places) > 0 && e.sequence > q.After && e.sequence <= q.Until {
				want, by = append(want, e.sequence), append(by, places)
			}
		}
		got, _ := b.matched(rt, q)
		sequences, places := found(got)
		require.Equal(rt, want, sequences)
		require.Equal(rt, by, places)
		// A condition made of the items agrees with what was read.
		r := b.request(b.event(s.opened, stream(m.name("s", 9))))
		r.Conditions = []concurrency.AppendCondition{{Items: items, After: q.After}}
		_, err := b.try(r)
		broken := slices.ContainsFunc(m.events, func(e modelEvent) bool {
			return e.sequence > q.After && slices.ContainsFunc(items, e.matches)
		})
		require.Equal(rt, broken, err != nil, "%v", err)
	})
}
