package query_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/application/query"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

func TestDescendants(t *testing.T) {
	t.Parallel()
	l := newLogFixture()
	us, de, jp := l.createEntity(t, "acme", "USMF"), l.createEntity(t, "acme", "DEMF"), l.createEntity(t, "acme", "JPMF")
	rival := l.createEntity(t, "rival", "USMF")
	a := l.write(t, us, nil)
	b := l.write(t, us, causedBy(a, us))
	c := l.write(t, de, causedBy(a, de))
	d := l.write(t, de, causedBy(c, de))
	e := l.write(t, jp, causedBy(c, jp))
	f := l.write(t, us, causedBy(e, us))
	l.write(t, rival, causedBy(a, rival)) // of another tenant: never listed

	for name, tc := range map[string]struct {
		readable []string
		of       event.Recorded
		in       ports.LegalEntity
		want     []event.Recorded
		depths   []int
		left     []query.Omission
	}{
		"all":          {nil, a, us, []event.Recorded{b, c, d, e, f}, []int{1, 1, 2, 2, 3}, nil},
		"of a branch":  {nil, c, de, []event.Recorded{d, e, f}, []int{1, 1, 2}, nil},
		"of a leaf":    {nil, f, us, nil, nil, nil},
		"one unseen":   {[]string{"USMF", "DEMF"}, a, us, []event.Recorded{b, c, d}, []int{1, 1, 2}, []query.Omission{{Reason: query.ReasonLegalEntity, At: c.ID}}},
		"two unseen":   {[]string{"USMF"}, a, us, []event.Recorded{b}, []int{1}, []query.Omission{{Reason: query.ReasonLegalEntity, At: a.ID}}},
		"beyond a gap": {[]string{"DEMF", "USMF"}, c, de, []event.Recorded{d}, []int{1}, []query.Omission{{Reason: query.ReasonLegalEntity, At: c.ID}}},
	} {
		got, err := l.Descendants(t.Context(), tc.in, tc.readable, tc.of.ID, 100)
		require.NoError(t, err, name)
		require.Len(t, got.Events, len(tc.want), name)
		for i, d := range got.Events {
			require.Equal(t, tc.want[i].ID, d.Event.ID, name)
			require.Equal(t, tc.depths[i], d.Depth, name)
			require.Equal(t, d.Event.CausedBy, d.Parent, name)
		}
		require.Equal(t, tc.left, got.Omissions, name)
	}
	_, err := l.Descendants(t.Context(), de, nil, a.ID, 100)
	require.Equal(t, "event.not_found", code(t, err))
}

func TestDescendants_Limits(t *testing.T) {
	t.Parallel()
	l := newLogFixture()
	us, de := l.createEntity(t, "acme", "USMF"), l.createEntity(t, "acme", "DEMF")
	for name, entities := range map[string][]ports.LegalEntity{"inside one": {us}, "across two": {us, de}, "in runs": {us, us, us, us, us, us, us, de, de, de}} {
		var chain []event.Recorded
		for i := range 60 {
			var change func(*event.Prepared)
			if i > 0 {
				change = causedBy(chain[i-1], entities[i%len(entities)])
			}
			chain = append(chain, l.write(t, entities[i%len(entities)], change))
		}
		for _, from := range []int{0, 8, 9, 10, 59} {
			le := ports.LegalEntity{TenantID: "acme", Partition: chain[from].Partition}
			got, err := l.Descendants(t.Context(), le, nil, chain[from].ID, 1000)
			require.NoError(t, err)
			require.Len(t, got.Events, min(59-from, query.MaxLineageDepth), "%s from %d", name, from)
			var left []query.Omission
			if from < 9 {
				left = []query.Omission{{Reason: query.ReasonDepth, At: chain[from+query.MaxLineageDepth].ID}}
			}
			require.Equal(t, left, got.Omissions, "%s from %d", name, from)
		}
	}
}

func TestDescendants_ManyHiddenEffects(t *testing.T) {
	t.Parallel()
	l := newLogFixture()
	us, de := l.createEntity(t, "acme", "USMF"), l.createEntity(t, "acme", "DEMF")
	a := l.write(t, us, nil)
	b := l.write(t, us, causedBy(a, us))
	for range query.MaxEvents + 1 {
		l.write(t, de, causedBy(a, de))
	}
	l.write(t, de, causedBy(b, de))
	got, err := l.Descendants(t.Context(), us, []string{"USMF"}, a.ID, 10)
	require.NoError(t, err)
	require.Len(t, got.Events, 1)
	require.Equal(t, []query.Omission{{Reason: query.ReasonLegalEntity, At: a.ID}, {Reason: query.ReasonLegalEntity, At: b.ID}}, got.Omissions)
}

func TestCausality_Cycles(t *testing.T) {
	t.Parallel()
	l := newLogFixture()
	us, de := l.createEntity(t, "acme", "USMF"), l.createEntity(t, "acme", "DEMF")
	for name, other := range map[string]ports.LegalEntity{"across legal entities": de, "inside one": us} {
		first, second := l.ids.NewID(l.clock.Now()), l.ids.NewID(l.clock.Now())
		at := func(self event.ID, of event.Recorded, in ports.LegalEntity) func(*event.Prepared) {
			return func(p *event.Prepared) { causedBy(of, in)(p); p.ID = self }
		}
		a := l.write(t, us, at(first, event.Recorded{Skeleton: event.Skeleton{ID: second, Partition: other.Partition}}, us))
		b := l.write(t, other, at(second, a, other))
		c := l.write(t, us, causedBy(b, us))
		ids := func(events []event.Recorded) (out []event.ID) {
			for _, e := range events {
				out = append(out, e.ID)
			}
			return out
		}

		lineage, err := l.Lineage(t.Context(), us, nil, c.ID)
		require.NoError(t, err, name)
		require.Equal(t, ids([]event.Recorded{a, b, c}), ids(lineage.Events), name)
		require.Equal(t, []query.Omission{{Reason: query.ReasonCycle, At: a.ID}}, lineage.Omissions, name)

		tree, err := l.Descendants(t.Context(), us, nil, a.ID, 100)
		require.NoError(t, err, name)
		require.Len(t, tree.Events, 2, name)
		require.Equal(t, b.ID, tree.Events[0].Event.ID, name)
		require.Equal(t, c.ID, tree.Events[1].Event.ID, name)
		require.Equal(t, []query.Omission{{Reason: query.ReasonCycle, At: b.ID}}, tree.Omissions, name)
	}
}

// TestDescendants_RandomTrees compares trees across three legal entities with a simple
// search.
func TestDescendants_RandomTrees(t *testing.T) {
	t.Parallel()
	l := newLogFixture()
	entities := []ports.LegalEntity{l.createEntity(t, "acme", "USMF"), l.createEntity(t, "acme", "DEMF"), l.createEntity(t, "acme", "JPMF")}
	rapid.Check(t, func(rt *rapid.T) {
		var all []event.Recorded
		for i := range rapid.IntRange(1, 25).Draw(rt, "events") {
			le := entities[rapid.IntRange(0, 2).Draw(rt, "entity")]
			var change func(*event.Prepared)
			if i > 0 {
				change = causedBy(all[rapid.IntRange(max(0, i-6), i-1).Draw(rt, "cause")], le)
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
		var left []query.Omission
		for _, e := range all {
			if at := (query.Omission{Reason: query.ReasonLegalEntity, At: e.CausedBy}); shown[e.CausedBy] && !seen(e) && !slices.Contains(left, at) {
				left = append(left, at)
			}
		}
		if cut {
			left = append(left, query.Omission{Reason: query.ReasonCount})
		}
		require.ElementsMatch(rt, left, got.Omissions)
	})
}

func TestProcess(t *testing.T) {
	t.Parallel()
	l := newLogFixture()
	us, de := l.createEntity(t, "acme", "USMF"), l.createEntity(t, "acme", "DEMF")
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

	got, err := l.Process(t.Context(), query.ProcessQuery{TenantID: "acme", CorrelationID: "process-1", Limit: 10})
	require.NoError(t, err)
	require.Len(t, got.Events, 3)
	for i, e := range []event.Recorded{a, b, c} {
		require.Equal(t, e.ID, got.Events[i].ID)
	}
	require.Equal(t, []string{"p-1", "p-2"}, got.Actors)
	require.Equal(t, []event.EntityRef{{Type: "vendor", ID: "V-1", Role: "payee"}, {Type: "invoice", ID: "I-1", Role: "subject"}}, got.Entities)
	require.Equal(t, 3*time.Second, got.Duration)
	require.Equal(t, []query.Step{{}, {2 * time.Second, 2 * time.Second}, {3 * time.Second, time.Second}}, got.Steps)
	require.Empty(t, got.Omissions)

	got, err = l.Process(t.Context(), query.ProcessQuery{TenantID: "acme", Readable: []string{"USMF"}, CorrelationID: "process-1", Limit: 10})
	require.NoError(t, err)
	require.Len(t, got.Events, 2)
	require.Equal(t, []query.Omission{{Reason: query.ReasonLegalEntity}}, got.Omissions)

	got, err = l.Process(t.Context(), query.ProcessQuery{TenantID: "acme", CorrelationID: "process-1", Limit: 2})
	require.NoError(t, err)
	require.Len(t, got.Events, 2)
	require.Equal(t, b.ID, got.Events[1].ID)
	require.Equal(t, []query.Omission{{Reason: query.ReasonCount}}, got.Omissions)

	for _, readable := range [][]string{nil, {"JPMF"}} {
		id := "process-1"
		if readable == nil {
			id = "process-2"
		}
		_, err = l.Process(t.Context(), query.ProcessQuery{TenantID: "acme", Readable: readable, CorrelationID: id, Limit: 10})
		require.Equal(t, "process.not_found", code(t, err), "a process that the caller may not see is reported as missing")
	}
}

func TestMatch(t *testing.T) {
	t.Parallel()
	l := newLogFixture()
	us := l.createEntity(t, "acme", "USMF")
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
		_, err := l.store.Appender.Append(t.Context(), ports.AppendRequest{Partition: us.Partition, Events: []event.Prepared{e}, Conditions: []concurrency.AppendCondition{c}})
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

// causedBy sets the cause of an event.
func causedBy(of event.Recorded, in ports.LegalEntity) func(*event.Prepared) {
	return func(p *event.Prepared) {
		p.CausedBy = of.ID
		if of.Partition != in.Partition {
			p.CausedByPartition = of.Partition
		}
	}
}

func TestLineage(t *testing.T) {
	t.Parallel()
	l := newLogFixture()
	us, de, jp := l.createEntity(t, "acme", "USMF"), l.createEntity(t, "acme", "DEMF"), l.createEntity(t, "acme", "JPMF")
	a := l.write(t, us, nil)
	b := l.write(t, us, causedBy(a, us))
	c := l.write(t, de, causedBy(b, de))
	d := l.write(t, de, causedBy(c, de))
	e := l.write(t, jp, causedBy(d, jp))
	f := l.write(t, us, causedBy(e, us)) // in the legal entity of the first event again

	ids := func(events []event.Recorded) (out []event.ID) {
		for _, e := range events {
			out = append(out, e.ID)
		}
		return out
	}
	for name, tc := range map[string]struct {
		readable  []string
		of        event.Recorded
		in        ports.LegalEntity
		want      []event.Recorded
		truncated bool
	}{
		"root":          {nil, a, us, []event.Recorded{a}, false},
		"one entity":    {nil, b, us, []event.Recorded{a, b}, false},
		"all":           {nil, f, us, []event.Recorded{a, b, c, d, e, f}, false},
		"all, named":    {[]string{"USMF", "DEMF", "JPMF"}, f, us, []event.Recorded{a, b, c, d, e, f}, false},
		"out of sight":  {[]string{"USMF", "JPMF"}, f, us, []event.Recorded{e, f}, true},
		"only its own":  {[]string{"DEMF"}, d, de, []event.Recorded{c, d}, true},
		"not the other": {[]string{"USMF"}, f, us, []event.Recorded{f}, true},
	} {
		got, err := l.Lineage(t.Context(), tc.in, tc.readable, tc.of.ID)
		require.NoError(t, err, name)
		require.Equal(t, ids(tc.want), ids(got.Events), name)
		require.Equal(t, tc.truncated, got.Truncated, name)
	}
	_, err := l.Lineage(t.Context(), de, nil, a.ID)
	require.Equal(t, "event.not_found", code(t, err))
}

func TestLineage_DepthLimit(t *testing.T) {
	t.Parallel()
	l := newLogFixture()
	us, de := l.createEntity(t, "acme", "USMF"), l.createEntity(t, "acme", "DEMF")
	chain := func(entities ...ports.LegalEntity) []event.Recorded {
		var out []event.Recorded
		for i := range 80 {
			le := entities[i%len(entities)]
			var change func(*event.Prepared)
			if i > 0 {
				change = causedBy(out[i-1], le)
			}
			out = append(out, l.write(t, le, change))
		}
		return out
	}
	for name, entities := range map[string][]ports.LegalEntity{"inside one": {us}, "across two": {us, de}, "in runs": {us, us, us, us, us, us, us, de, de, de}} {
		events := chain(entities...)
		for _, n := range []int{1, 2, query.MaxLineageDepth - 1, query.MaxLineageDepth, query.MaxLineageDepth + 1, query.MaxLineageDepth + 2, 80} {
			last := events[n-1]
			got, err := l.Lineage(t.Context(), ports.LegalEntity{TenantID: "acme", Partition: last.Partition}, nil, last.ID)
			require.NoError(t, err)
			// The event itself and MaxLineageDepth causes.
			want := min(n, query.MaxLineageDepth+1)
			require.Len(t, got.Events, want, "%s, %d", name, n)
			require.Equal(t, last.ID, got.Events[want-1].ID)
			require.Equal(t, n > want, got.Truncated, "%s, %d", name, n)
		}
	}
}

func TestLineage_MissingCause(t *testing.T) {
	t.Parallel()
	l := newLogFixture()
	us, de := l.createEntity(t, "acme", "USMF"), l.createEntity(t, "acme", "DEMF")
	rival := l.createEntity(t, "rival", "USMF")
	for name, change := range map[string]func(*event.Prepared){
		"in another entity": func(p *event.Prepared) { p.CausedBy, p.CausedByPartition = event.ID{1}, de.Partition },
		"in its own":        func(p *event.Prepared) { p.CausedBy = event.ID{1} },
		"of another tenant": causedBy(l.write(t, rival, nil), us),
		"in no entity":      func(p *event.Prepared) { p.CausedBy, p.CausedByPartition = event.ID{1}, 12345 },
	} {
		e := l.write(t, us, change)
		got, err := l.Lineage(t.Context(), us, nil, e.ID)
		require.NoError(t, err, name)
		require.Len(t, got.Events, 1, name)
		require.True(t, got.Truncated, name)
	}
}

// brokenCausality is a store whose causality cannot be read.
type brokenCausality struct{ *memory.EventReader }

func (brokenCausality) Lineage(context.Context, event.PartitionID, event.ID, int, int) ([]event.Recorded, bool, error) {
	return nil, false, fault.New(fault.Unavailable, "store.unavailable", "the store is unavailable; try again")
}

func TestLineage_StoreError(t *testing.T) {
	t.Parallel()
	l := newLogFixture()
	us := l.createEntity(t, "acme", "USMF")
	e := l.write(t, us, nil)
	_, err := query.New(query.Config{Log: brokenCausality{l.store.Events}, Directory: l.directory, Cursors: query.NewCursorSealer(key), Clock: l.clock}).Lineage(t.Context(), us, nil, e.ID)
	require.Equal(t, "store.unavailable", code(t, err))
}
