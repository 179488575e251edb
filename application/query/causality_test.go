package query_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/erpbackbone/backbone/application/query"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

func TestDescendants(t *testing.T) {
	t.Parallel()
	l := newLibrary()
	us, de, jp := l.entity(t, "acme", "USMF"), l.entity(t, "acme", "DEMF"), l.entity(t, "acme", "JPMF")
	rival := l.entity(t, "rival", "USMF")
	a := l.write(t, us, nil)
	b := l.write(t, us, cause(a, us))
	c := l.write(t, de, cause(a, de))
	d := l.write(t, de, cause(c, de))
	e := l.write(t, jp, cause(c, jp))
	f := l.write(t, us, cause(e, us))
	l.write(t, rival, cause(a, rival)) // of another tenant: never heard of

	for name, tc := range map[string]struct {
		readable []string
		of       event.Recorded
		in       ports.LegalEntity
		want     []event.Recorded
		depths   []int
		left     []query.LeftOut
	}{
		"all":          {nil, a, us, []event.Recorded{b, c, d, e, f}, []int{1, 1, 2, 2, 3}, nil},
		"of a branch":  {nil, c, de, []event.Recorded{d, e, f}, []int{1, 1, 2}, nil},
		"of a leaf":    {nil, f, us, nil, nil, nil},
		"one unseen":   {[]string{"USMF", "DEMF"}, a, us, []event.Recorded{b, c, d}, []int{1, 1, 2}, []query.LeftOut{{Reason: query.ReasonLegalEntity, At: c.ID}}},
		"two unseen":   {[]string{"USMF"}, a, us, []event.Recorded{b}, []int{1}, []query.LeftOut{{Reason: query.ReasonLegalEntity, At: a.ID}}},
		"beyond a gap": {[]string{"DEMF", "USMF"}, c, de, []event.Recorded{d}, []int{1}, []query.LeftOut{{Reason: query.ReasonLegalEntity, At: c.ID}}},
	} {
		got, err := l.Descendants(t.Context(), tc.in, tc.readable, tc.of.ID, 100)
		require.NoError(t, err, name)
		require.Len(t, got.Events, len(tc.want), name)
		for i, d := range got.Events {
			require.Equal(t, tc.want[i].ID, d.Event.ID, name)
			require.Equal(t, tc.depths[i], d.Depth, name)
			require.Equal(t, d.Event.CausedBy, d.Parent, name)
		}
		require.Equal(t, tc.left, got.LeftOut, name)
	}
	_, err := l.Descendants(t.Context(), de, nil, a.ID, 100)
	require.Equal(t, "event.not_found", code(t, err))
}

func TestDescendantsAreBounded(t *testing.T) {
	t.Parallel()
	l := newLibrary()
	us, de := l.entity(t, "acme", "USMF"), l.entity(t, "acme", "DEMF")
	for name, entities := range map[string][]ports.LegalEntity{"inside one": {us}, "across two": {us, de}, "in runs": {us, us, us, us, us, us, us, de, de, de}} {
		var chain []event.Recorded
		for i := range 60 {
			var change func(*event.Prepared)
			if i > 0 {
				change = cause(chain[i-1], entities[i%len(entities)])
			}
			chain = append(chain, l.write(t, entities[i%len(entities)], change))
		}
		for _, from := range []int{0, 8, 9, 10, 59} {
			le := ports.LegalEntity{TenantID: "acme", Partition: chain[from].Partition}
			got, err := l.Descendants(t.Context(), le, nil, chain[from].ID, 1000)
			require.NoError(t, err)
			require.Len(t, got.Events, min(59-from, query.MaxLineageDepth), "%s from %d", name, from)
			var left []query.LeftOut
			if from < 9 {
				left = []query.LeftOut{{Reason: query.ReasonDepth, At: chain[from+query.MaxLineageDepth].ID}}
			}
			require.Equal(t, left, got.LeftOut, "%s from %d", name, from)
		}
	}
}

func TestManyUnseenEffectsOfOneEventHideNoOther(t *testing.T) {
	t.Parallel()
	l := newLibrary()
	us, de := l.entity(t, "acme", "USMF"), l.entity(t, "acme", "DEMF")
	a := l.write(t, us, nil)
	b := l.write(t, us, cause(a, us))
	for range query.MaxEvents + 1 {
		l.write(t, de, cause(a, de))
	}
	l.write(t, de, cause(b, de))
	got, err := l.Descendants(t.Context(), us, []string{"USMF"}, a.ID, 10)
	require.NoError(t, err)
	require.Len(t, got.Events, 1)
	require.Equal(t, []query.LeftOut{{Reason: query.ReasonLegalEntity, At: a.ID}, {Reason: query.ReasonLegalEntity, At: b.ID}}, got.LeftOut)
}

func TestWrittenCirclesAreReported(t *testing.T) {
	t.Parallel()
	l := newLibrary()
	us, de := l.entity(t, "acme", "USMF"), l.entity(t, "acme", "DEMF")
	for name, other := range map[string]ports.LegalEntity{"across legal entities": de, "inside one": us} {
		first, second := l.ids.NewID(l.clock.Now()), l.ids.NewID(l.clock.Now())
		at := func(self event.ID, of event.Recorded, in ports.LegalEntity) func(*event.Prepared) {
			return func(p *event.Prepared) { cause(of, in)(p); p.ID = self }
		}
		a := l.write(t, us, at(first, event.Recorded{Skeleton: event.Skeleton{ID: second, Partition: other.Partition}}, us))
		b := l.write(t, other, at(second, a, other))
		c := l.write(t, us, cause(b, us))
		ids := func(events []event.Recorded) (out []event.ID) {
			for _, e := range events {
				out = append(out, e.ID)
			}
			return out
		}

		lineage, err := l.Lineage(t.Context(), us, nil, c.ID)
		require.NoError(t, err, name)
		require.Equal(t, ids([]event.Recorded{a, b, c}), ids(lineage.Events), name)
		require.Equal(t, []query.LeftOut{{Reason: query.ReasonCycle, At: a.ID}}, lineage.LeftOut, name)

		tree, err := l.Descendants(t.Context(), us, nil, a.ID, 100)
		require.NoError(t, err, name)
		require.Len(t, tree.Events, 2, name)
		require.Equal(t, b.ID, tree.Events[0].Event.ID, name)
		require.Equal(t, c.ID, tree.Events[1].Event.ID, name)
		require.Equal(t, []query.LeftOut{{Reason: query.ReasonCycle, At: b.ID}}, tree.LeftOut, name)
	}
}

// TestRandomTrees holds trees over three legal entities against a plain search.
func TestRandomTrees(t *testing.T) {
	t.Parallel()
	l := newLibrary()
	entities := []ports.LegalEntity{l.entity(t, "acme", "USMF"), l.entity(t, "acme", "DEMF"), l.entity(t, "acme", "JPMF")}
	rapid.Check(t, func(rt *rapid.T) {
		var all []event.Recorded
		for i := range rapid.IntRange(1, 25).Draw(rt, "events") {
			le := entities[rapid.IntRange(0, 2).Draw(rt, "entity")]
			var change func(*event.Prepared)
			if i > 0 {
				change = cause(all[rapid.IntRange(max(0, i-6), i-1).Draw(rt, "cause")], le)
			}
			all = append(all, l.write(t, le, change))
		}
		readable := []string{"USMF", "DEMF", "JPMF"}[:rapid.IntRange(1, 3).Draw(rt, "readable")]
		seen := func(e event.Recorded) bool { return slices.Contains(readable, e.Scope.LegalEntity) }
		root := all[rapid.IntRange(0, len(all)-1).Draw(rt, "root")]
		if !seen(root) {
			return
		}
		limit := rapid.IntRange(1, 12).Draw(rt, "limit")
		depths := map[event.ID]int{root.ID: 0}
		var want []event.Recorded
		for _, e := range all { // causes come first
			if above, known := depths[e.CausedBy]; known && e.ID != root.ID && seen(e) {
				depths[e.ID] = above + 1
				want = append(want, e)
			}
		}
		slices.SortStableFunc(want, func(a, b event.Recorded) int { return cmp.Compare(depths[a.ID], depths[b.ID]) })
		cut := len(want) > limit
		want = want[:min(limit, len(want))]

		le := ports.LegalEntity{TenantID: "acme", Partition: root.Partition}
		got, err := l.Descendants(t.Context(), le, readable, root.ID, limit)
		require.NoError(rt, err)
		require.Len(rt, got.Events, len(want))
		shown := map[event.ID]bool{root.ID: true}
		for i, d := range got.Events {
			require.Equal(rt, want[i].ID, d.Event.ID)
			require.Equal(rt, depths[d.Event.ID], d.Depth)
			require.True(rt, shown[d.Parent], "a parent comes before its effects")
			shown[d.Event.ID] = true
		}
		var left []query.LeftOut
		for _, e := range all {
			if at := (query.LeftOut{Reason: query.ReasonLegalEntity, At: e.CausedBy}); shown[e.CausedBy] && !seen(e) && !slices.Contains(left, at) {
				left = append(left, at)
			}
		}
		if cut {
			left = append(left, query.LeftOut{Reason: query.ReasonCount})
		}
		require.ElementsMatch(rt, left, got.LeftOut)
	})
}

func TestProcess(t *testing.T) {
	t.Parallel()
	l := newLibrary()
	us, de := l.entity(t, "acme", "USMF"), l.entity(t, "acme", "DEMF")
	step := func(actor, payload string) func(*event.Prepared) {
		return func(p *event.Prepared) {
			p.CorrelationID, p.ActorID, p.Payload = "process-1", actor, []byte(payload)
		}
	}
	about := func(refs string) string { return `{"data":{},"dimensions":{},"entity_refs":[` + refs + `]}` }
	vendor, invoice := `{"entity_type":"vendor","entity_id":"V-1","role":"payee"}`, `{"entity_type":"invoice","entity_id":"I-1","role":"subject"}`
	a := l.write(t, us, step("p-1", about(vendor+","+invoice)))
	l.write(t, us, nil)
	b := l.write(t, de, step("p-2", about(vendor)))
	c := l.write(t, us, step("p-1", about(invoice)))

	got, err := l.Process(t.Context(), "acme", nil, "process-1", 10)
	require.NoError(t, err)
	require.Len(t, got.Events, 3)
	for i, e := range []event.Recorded{a, b, c} {
		require.Equal(t, e.ID, got.Events[i].ID)
	}
	require.Equal(t, []string{"p-1", "p-2"}, got.Actors)
	require.Equal(t, []event.EntityRef{{Type: "vendor", ID: "V-1", Role: "payee"}, {Type: "invoice", ID: "I-1", Role: "subject"}}, got.Entities)
	require.Equal(t, 3*time.Second, got.Duration)
	require.Equal(t, []query.Step{{}, {2 * time.Second, 2 * time.Second}, {3 * time.Second, time.Second}}, got.Steps)
	require.Empty(t, got.LeftOut)

	got, err = l.Process(t.Context(), "acme", []string{"USMF"}, "process-1", 10)
	require.NoError(t, err)
	require.Len(t, got.Events, 2)
	require.Equal(t, []query.LeftOut{{Reason: query.ReasonLegalEntity}}, got.LeftOut)

	got, err = l.Process(t.Context(), "acme", nil, "process-1", 2)
	require.NoError(t, err)
	require.Len(t, got.Events, 2)
	require.Equal(t, b.ID, got.Events[1].ID)
	require.Equal(t, []query.LeftOut{{Reason: query.ReasonCount}}, got.LeftOut)

	for _, readable := range [][]string{nil, {"JPMF"}} {
		id := "process-1"
		if readable == nil {
			id = "process-2"
		}
		_, err = l.Process(t.Context(), "acme", readable, id, 10)
		require.Equal(t, "process.not_found", code(t, err), "what is out of sight is as unknown as what does not exist")
	}
}

func TestMatch(t *testing.T) {
	t.Parallel()
	l := newLibrary()
	us := l.entity(t, "acme", "USMF")
	tag := func(tags ...string) func(*event.Prepared) {
		return func(p *event.Prepared) {
			for _, t := range tags {
				p.Tags, p.Keys = append(p.Tags, t), append(p.Keys, event.TagKey(t))
			}
		}
	}
	for i := range 7 {
		l.write(t, us, tag(fmt.Sprint("parity-", i%2)))
	}
	q := query.MatchQuery{Entity: us, Items: []concurrency.Item{{Tags: []string{"parity-0"}}}, Limit: 3}
	write := func(c concurrency.AppendCondition) error {
		e := event.Prepared{Skeleton: event.Skeleton{
			ID: l.ids.NewID(l.clock.Now()), Type: "till.cash.moved", SchemaVersion: 1, EffectiveDate: event.MustDate("2026-01-01"),
			Scope: event.Scope{TenantID: "acme", LegalEntity: "USMF"}, ActorType: event.Human, ActorID: "p-1", CorrelationID: "c",
			Stream: event.StreamID{Type: "till", ID: "side"},
		}, Payload: []byte(`{"data":{},"dimensions":{},"entity_refs":[]}`)}
		_, err := l.store.Append(t.Context(), ports.AppendRequest{Partition: us.Partition, Events: []event.Prepared{e}, Conditions: []concurrency.AppendCondition{c}})
		return err
	}

	page, err := l.Match(t.Context(), q)
	require.NoError(t, err)
	require.Equal(t, []event.Sequence{1, 3, 5}, sequences(page.Events))
	require.True(t, page.HasMore)
	require.Equal(t, concurrency.AppendCondition{Items: q.Items, After: 5}, page.Condition, "never beyond what was read")
	require.Equal(t, concurrency.CodeConditionFailed, code(t, write(page.Condition)))

	q.After = page.Condition.After
	page, err = l.Match(t.Context(), q)
	require.NoError(t, err)
	require.Equal(t, []event.Sequence{7}, sequences(page.Events))
	require.False(t, page.HasMore)
	require.Equal(t, event.Sequence(7), page.Condition.After)
	require.NoError(t, write(page.Condition), "the last page's condition guards all")

	l.write(t, us, tag("parity-0", "late"))
	f, ok := fault.As(write(page.Condition))
	require.True(t, ok)
	require.Equal(t, concurrency.CodeConditionFailed, f.Code)
	require.Equal(t, "9", f.Holder.Sequence)

	q.After = 9
	page, err = l.Match(t.Context(), q)
	require.NoError(t, err)
	require.Empty(t, page.Events)
	require.NotNil(t, page.Events)
	require.Equal(t, event.Sequence(9), page.Condition.After)
	q.After = 10
	_, err = l.Match(t.Context(), q)
	require.Equal(t, "query.after_beyond_head", code(t, err))
	q.Entity.Partition = 1 << 18
	_, err = l.Match(t.Context(), q)
	require.Equal(t, "legal_entity.not_found", code(t, err))
}
