package query_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/application/query"
	"github.com/erpbackbone/backbone/application/tenancy"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

// writeProcess writes a correlation across three legal entities, with unrelated events in
// between.
func (l *logFixture) writeProcess(t *testing.T, n int) []event.Recorded {
	t.Helper()
	var out []event.Recorded
	entities := []ports.LegalEntity{l.createEntity(t, "acme", "DEMF"), l.createEntity(t, "acme", "FRMF"), l.createEntity(t, "acme", "USMF")}
	for i := range n {
		le := entities[(i*i+i/3)%3]
		l.write(t, le, func(p *event.Prepared) { p.CorrelationID = "noise" })
		out = append(out, l.write(t, le, func(p *event.Prepared) {
			p.CorrelationID = "c-9"
			p.SchemaVersion = uint32(1 + i%3)
		}))
	}
	return out
}

func ids(events []event.Recorded) []event.ID {
	out := []event.ID{}
	for _, e := range events {
		out = append(out, e.ID)
	}
	return out
}

// A process across legal entities is read completely, without repetition and in order of
// recording, with any size of pages and scans.
func TestEvents_CorrelationPaging(t *testing.T) {
	t.Parallel()
	l := newLogFixture()
	written := l.writeProcess(t, 40)
	rapid.Check(t, func(rt *rapid.T) {
		l.SetScan(rapid.IntRange(1, 9).Draw(rt, "scan"))
		sel := query.Selection{TenantID: "acme", Kind: query.ByCorrelation, StreamID: "c-9", Limit: rapid.IntRange(1, 12).Draw(rt, "limit")}
		sel.Filter.Direction = ports.Direction(rapid.Bool().Draw(rt, "backward"))
		sel.Filter.SchemaVersion = uint32(rapid.IntRange(0, 4).Draw(rt, "version"))
		sel.Readable = rapid.SampledFrom([][]string{nil, {"DEMF", "USMF"}, {"FRMF"}}).Draw(rt, "readable")
		var want []event.Recorded
		for _, e := range written {
			if (sel.Filter.SchemaVersion == 0 || e.SchemaVersion == sel.Filter.SchemaVersion) && (sel.Readable == nil || slices.Contains(sel.Readable, e.Scope.LegalEntity)) {
				want = append(want, e)
			}
		}
		if sel.Filter.Direction == ports.Backward {
			slices.Reverse(want)
		}
		require.Equal(rt, ids(want), ids(l.readAllPages(t, sel, nil)))
	})
}

// A page that ends at the limit of a scan reports more, and the pages together equal one
// large page.
func TestEvents_ScanLimit(t *testing.T) {
	t.Parallel()
	l := newLogFixture()
	le := l.createEntity(t, "acme", "USMF")
	for i := range 30 {
		l.write(t, le, func(p *event.Prepared) { p.Source.Reference = fmt.Sprint(i % 11) })
	}
	l.SetScan(4)
	for _, direction := range []ports.Direction{ports.Forward, ports.Backward} {
		sel := byScope(2)
		sel.Filter.Source.Reference, sel.Filter.Direction = "7", direction
		page, err := l.Events(t.Context(), sel)
		require.NoError(t, err)
		require.True(t, page.HasMore)
		require.NotEmpty(t, page.NextCursor)
		want := []event.Sequence{8, 19, 30}
		if direction == ports.Backward {
			slices.Reverse(want)
		}
		require.Equal(t, want, sequences(l.readAllPages(t, sel, func() { l.fill(t, le, 1) })), "pinned: events written between the pages are not listed")
	}
}

func TestEvents_CorrelationCursorBinding(t *testing.T) {
	t.Parallel()
	l := newLogFixture()
	le := l.createEntity(t, "acme", "USMF")
	l.fill(t, l.createEntity(t, "other", "USMF"), 5)
	l.fill(t, le, 5)
	sel := byScope(2)
	sel.Filter.Source.System = ""
	page, err := l.Events(t.Context(), sel)
	require.NoError(t, err)
	for name, change := range map[string]func(*query.Selection){
		"tenant":    func(s *query.Selection) { s.TenantID = "other" },
		"direction": func(s *query.Selection) { s.Filter.Direction = ports.Backward },
		"site":      func(s *query.Selection) { s.Filter.Site = "S" },
		"range":     func(s *query.Selection) { s.Filter.To = 4 },
		"source":    func(s *query.Selection) { s.Filter.Source.Channel = "c" },
		"modules":   func(s *query.Selection) { s.Modules, s.ModuleTypes = []string{"till"}, []string{"till.cash.moved"} },
		"predicate": func(s *query.Selection) { s.Filter.Predicate, _ = event.ParsePredicate("$.a", "exists", "") },
		"data":      func(s *query.Selection) { s.Filter.WithoutData = true },
	} {
		other := sel
		other.Cursor = page.NextCursor
		change(&other)
		_, err := l.Events(t.Context(), other)
		require.Equal(t, "cursor.foreign", code(t, err), name)
	}
	// A cursor stays valid when a module registers another type.
	sel.Modules, sel.ModuleTypes = []string{"till"}, []string{"till.cash.moved"}
	page, err = l.Events(t.Context(), sel)
	require.NoError(t, err)
	sel.Cursor, sel.ModuleTypes = page.NextCursor, []string{"till.cash.moved", "till.cash.counted"}
	page, err = l.Events(t.Context(), sel)
	require.NoError(t, err)
	require.Equal(t, []event.Sequence{3, 4}, sequences(page.Events))
	sel.Cursor, sel.ModuleTypes = "", nil
	page, err = l.Events(t.Context(), sel)
	require.NoError(t, err)
	require.Empty(t, page.Events, "a module without types has no events")
}

// newLogFixtureWithFixedPartitions makes fixtures whose legal entities have equal partitions.
func newLogFixtureWithFixedPartitions() *logFixture {
	l := newLogFixture()
	l.store = memory.New(memory.Config{LogName: "ledger.example.org", Deployment: 1, Clock: l.clock, Random: strings.NewReader("abcdefgh")})
	l.directory = tenancy.New(tenancy.Config{LegalEntities: l.store.Directory, Clock: l.clock, IDs: l.ids})
	l.Service = query.New(query.Config{Log: l.store.Events, Directory: l.directory, Cursors: query.NewCursorSealer(key), Clock: l.clock})
	return l
}

func TestFeed_DivergedLog(t *testing.T) {
	t.Parallel()
	before := newLogFixtureWithFixedPartitions()
	before.fill(t, before.createEntity(t, "acme", "USMF"), 5)
	follow := func(l *logFixture, cursor string) (query.Page, error) {
		return l.Feed(t.Context(), query.FeedQuery{TenantID: "acme", Cursor: cursor, Count: 5})
	}
	page, err := follow(before, "0")
	require.NoError(t, err)
	require.Len(t, page.Events, 5)
	for name, events := range map[string]int{"other events": 5, "more of other events": 9, "the end is gone": 3, "everything is gone": 0} {
		after := newLogFixtureWithFixedPartitions()
		after.fill(t, after.createEntity(t, "acme", "USMF"), events)
		_, err = follow(after, page.NextCursor)

		require.Equal(t, "cursor.diverged", code(t, err), name)
	}
	other := newLogFixture()
	other.createEntity(t, "other", "USMF")
	_, err = other.Feed(t.Context(), query.FeedQuery{TenantID: "other", Cursor: page.NextCursor, Count: 5})
	require.Equal(t, "cursor.foreign", code(t, err))
}

// A busy legal entity does not delay other legal entities, and a page is full if enough events exist.
func TestFeed_Fairness(t *testing.T) {
	t.Parallel()
	l := newLogFixture()
	sizes := map[string]int{"A": 100, "B": 1, "C": 7, "D": 60, "E": 2}
	for _, name := range []string{"A", "B", "C", "D", "E"} {
		l.fill(t, l.createEntity(t, "acme", name), sizes[name])
	}
	cursor := ""
	seen := map[string]int{}
	for pages := 0; ; pages++ {
		page, err := l.Feed(t.Context(), query.FeedQuery{TenantID: "acme", Cursor: cursor, Count: 3})
		require.NoError(t, err)
		cursor = page.NextCursor
		for _, e := range page.Events {
			seen[e.Scope.LegalEntity]++
		}
		if pages == 2 {
			require.Len(t, seen, 5, "every legal entity was served")
		}
		if !page.HasMore {
			break
		}
		require.Len(t, page.Events, 3)
	}
	require.Equal(t, sizes, seen)
}
