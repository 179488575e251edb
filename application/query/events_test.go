package query_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/adapters/system"
	"github.com/erpbackbone/backbone/application/query"
	"github.com/erpbackbone/backbone/application/tenancy"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

var start = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

var key = []byte("0123456789abcdef0123456789abcdef")

// logFixture is a log with the services that read it.
type logFixture struct {
	*query.Service
	store     *memory.Database
	directory *tenancy.Service
	clock     *testkit.Clock
	ids       *system.IDs
}

func newLogFixture() *logFixture {
	l := &logFixture{clock: testkit.NewClock(start), ids: system.NewIDs()}
	l.store = memory.New(memory.Config{LogName: "ledger.example.org", Clock: l.clock})
	l.directory = tenancy.New(tenancy.Config{LegalEntities: l.store.Directory, Clock: l.clock, IDs: l.ids})
	l.Service = query.New(query.Config{Log: l.store.Events, Directory: l.directory, Cursors: query.NewCursorSealer(key), Clock: l.clock})
	return l
}

func (l *logFixture) createEntity(t *testing.T, tenant, code string) ports.LegalEntity {
	t.Helper()
	le, err := l.directory.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: tenant, Code: code}, event.Actor{})
	require.NoError(t, err)
	return le
}

// write appends one event a second after the last one.
func (l *logFixture) write(t *testing.T, le ports.LegalEntity, change func(*event.Prepared)) event.Recorded {
	t.Helper()
	l.clock.Advance(time.Second)
	p := event.Prepared{
		Skeleton: event.Skeleton{
			ID: l.ids.NewID(l.clock.Now()), Type: "till.cash.moved", SchemaVersion: 1, OccurredAt: l.clock.Now(), EffectiveDate: event.MustDate("2026-01-01"),
			Scope: event.Scope{TenantID: le.TenantID, LegalEntity: le.Code}, ActorType: event.Human, ActorID: "p-1", CorrelationID: "c-1",
			Stream: event.StreamID{Type: "till", ID: "main"},
		},
		Payload: []byte(`{"data":{},"dimensions":{},"entity_refs":[]}`),
	}
	if change != nil {
		change(&p)
	}
	res, err := l.store.Appender.Append(t.Context(), ports.AppendRequest{Partition: le.Partition, Events: []event.Prepared{p}})
	require.NoError(t, err)
	e, err := l.store.Events.EventByID(t.Context(), le.Partition, res.Events[0].ID)
	require.NoError(t, err)
	return e
}

func (l *logFixture) fill(t *testing.T, le ports.LegalEntity, n int) {
	t.Helper()
	for range n {
		l.write(t, le, nil)
	}
}

func sequences(events []event.Recorded) []event.Sequence {
	out := make([]event.Sequence, len(events))
	for i, e := range events {
		out[i] = e.Sequence
	}
	return out
}

func code(t *testing.T, err error) string {
	t.Helper()
	require.Error(t, err)
	return fault.CodeOf(err)
}

// readAllPages reads a selection page by page and calls between after every page.
func (l *logFixture) readAllPages(t *testing.T, sel query.Selection, between func()) []event.Recorded {
	t.Helper()
	var out []event.Recorded
	for {
		page, err := l.Events(t.Context(), sel)
		require.NoError(t, err)
		require.LessOrEqual(t, len(page.Events), sel.Limit)
		require.NotNil(t, page.Events)
		out = append(out, page.Events...)
		if !page.HasMore {
			require.Empty(t, page.NextCursor)
			return out
		}
		require.NotEmpty(t, page.NextCursor)
		sel.Cursor = page.NextCursor
		if between != nil {
			between()
		}
	}
}

func byScope(limit int) query.Selection {
	return query.Selection{TenantID: "acme", Kind: query.ByScope, StreamID: "USMF", Limit: limit}
}

func sequencesUpTo(n int) []event.Sequence {
	out := make([]event.Sequence, n)
	for i := range out {
		out[i] = event.Sequence(i) + 1
	}
	return out
}

func TestEvents_PageBoundaries(t *testing.T) {
	t.Parallel()
	l := newLogFixture()
	le := l.createEntity(t, "acme", "USMF")
	page, err := l.Events(t.Context(), byScope(5))
	require.NoError(t, err)
	require.Equal(t, query.Page{Events: []event.Recorded{}}, page, "an empty log")

	l.fill(t, le, 10)
	for limit, pages := range map[int]int{1: 10, 3: 4, 5: 2, 9: 2, 10: 1, 11: 1} {
		n := 1
		require.Equal(t, sequencesUpTo(10), sequences(l.readAllPages(t, byScope(limit), func() { n++ })), "limit %d", limit)
		require.Equal(t, pages, n, "limit %d: a full last page promises no more", limit)
	}
	for _, limit := range []int{0, -1} {
		_, err := l.Events(t.Context(), byScope(limit))
		require.Equal(t, "request.parameter_invalid", code(t, err), "%d", limit)
	}
}

func TestEvents_Backward(t *testing.T) {
	t.Parallel()
	l := newLogFixture()
	le := l.createEntity(t, "acme", "USMF")
	l.fill(t, le, 7)
	sel := byScope(3)
	sel.Filter.Direction = ports.Backward
	got := sequences(l.readAllPages(t, sel, func() { l.fill(t, le, 1) }))
	require.Equal(t, []event.Sequence{7, 6, 5, 4, 3, 2, 1}, got)
}

func TestEvents_PinnedHead(t *testing.T) {
	t.Parallel()
	l := newLogFixture()
	le := l.createEntity(t, "acme", "USMF")
	l.fill(t, le, 6)
	writers := func() { l.fill(t, le, 2) }
	first := l.readAllPages(t, byScope(2), writers)
	require.Equal(t, sequencesUpTo(6), sequences(first))

	// A cursor gives the same page each time it is used.
	page, err := l.Events(t.Context(), byScope(4))
	require.NoError(t, err)
	second := byScope(4)
	second.Cursor = page.NextCursor
	once, err := l.Events(t.Context(), second)
	require.NoError(t, err)
	writers()
	again, err := l.Events(t.Context(), second)
	require.NoError(t, err)
	require.Equal(t, once, again)

	// The limit may change from page to page.
	second.Limit = 1
	page, err = l.Events(t.Context(), second)
	require.NoError(t, err)
	require.Equal(t, []event.Sequence{5}, sequences(page.Events))
}

func TestEvents_CursorBinding(t *testing.T) {
	t.Parallel()
	l := newLogFixture()
	le := l.createEntity(t, "acme", "USMF")
	l.createEntity(t, "acme", "DEMF")
	l.createEntity(t, "rival", "USMF")
	l.fill(t, le, 5)
	sel := byScope(2)
	sel.Filter.Types = []string{"till.cash.moved"}
	page, err := l.Events(t.Context(), sel)
	require.NoError(t, err)
	cursor := page.NextCursor
	require.NotEmpty(t, cursor)

	date := event.MustDate("2026-01-01")
	for name, change := range map[string]func(*query.Selection){
		"tenant":      func(s *query.Selection) { s.TenantID = "rival" },
		"entity":      func(s *query.Selection) { s.StreamID = "DEMF" },
		"kind":        func(s *query.Selection) { s.Kind, s.LegalEntity, s.StreamID = query.ByActor, "USMF", "p-1" },
		"types":       func(s *query.Selection) { s.Filter.Types = nil },
		"direction":   func(s *query.Selection) { s.Filter.Direction = ports.Backward },
		"dates":       func(s *query.Selection) { s.Filter.EffectiveFrom = &date },
		"times":       func(s *query.Selection) { s.Filter.RecordedFrom = start },
		"another key": nil,
	} {
		s, service := sel, l.Service
		s.Cursor = cursor
		if change != nil {
			change(&s)
		} else {
			service = query.New(query.Config{Log: l.store.Events, Directory: l.directory, Cursors: query.NewCursorSealer([]byte("another key of another deployment")), Clock: l.clock})
		}
		_, err := service.Events(t.Context(), s)
		require.Equal(t, "cursor.foreign", code(t, err), name)
		require.Equal(t, fault.Invalid, fault.KindOf(err))
	}
	// Access is not part of the cursor's binding, because roles change.
	sel.Cursor, sel.Readable = cursor, []string{"USMF"}
	_, err = l.Events(t.Context(), sel)
	require.NoError(t, err)

	for i := range cursor {
		flipped := []byte(cursor)
		flipped[i] ^= 1
		sel.Cursor = string(flipped)
		_, err := l.Events(t.Context(), sel)
		require.Contains(t, []string{"cursor.foreign", "cursor.malformed"}, code(t, err), "byte %d", i)
	}
	for _, garbage := range []string{"x", "????", cursor[:43], cursor + "AA", cursor + "=", " " + cursor, "AAAA"} {
		sel.Cursor = garbage
		_, err := l.Events(t.Context(), sel)
		f, _ := fault.As(err)
		require.NotNil(t, f, garbage)
		require.Equal(t, []string{"cursor.malformed", "cursor"}, []string{f.Code, f.Field}, garbage)
	}
}

func TestEvents_ByStreamKind(t *testing.T) {
	t.Parallel()
	l := newLogFixture()
	le := l.createEntity(t, "acme", "USMF")
	l.createEntity(t, "acme", "DEMF")
	l.write(t, le, func(p *event.Prepared) { p.Keys = []string{"entity:vendor:V-1", "tag:q1"} })
	l.write(t, le, func(p *event.Prepared) { p.Type, p.ActorID, p.CorrelationID = "till.opened", "p-2", "c-2" })
	l.write(t, le, func(p *event.Prepared) { p.Keys, p.ActorID = []string{"entity:vendor:V-1"}, "p-2" })
	l.write(t, le, func(p *event.Prepared) { p.Keys = []string{"entity:vendor:V-12", "tag:q1"} })
	for name, c := range map[string]struct {
		kind       query.StreamKind
		id, entity string
		want       []event.Sequence
		types      []string
	}{
		"entity":             {kind: query.ByEntity, id: "vendor:V-1", entity: "USMF", want: []event.Sequence{1, 3}},
		"entity with types":  {kind: query.ByEntity, id: "vendor:V-1", entity: "USMF", types: []string{"till.opened"}, want: []event.Sequence{}},
		"unknown entity":     {kind: query.ByEntity, id: "vendor:V-9", entity: "USMF", want: []event.Sequence{}},
		"tag":                {kind: query.ByTag, id: "q1", entity: "USMF", want: []event.Sequence{1, 4}},
		"tag like an entity": {kind: query.ByTag, id: "vendor:V-1", entity: "USMF", want: []event.Sequence{}},
		"type":               {kind: query.ByType, id: "till.opened", entity: "USMF", want: []event.Sequence{2}},
		"actor":              {kind: query.ByActor, id: "p-2", entity: "USMF", want: []event.Sequence{2, 3}},
		"correlation":        {kind: query.ByCorrelation, id: "c-2", entity: "USMF", want: []event.Sequence{2}},
		"scope":              {kind: query.ByScope, id: "USMF", want: sequencesUpTo(4)},
		"scope, named twice": {kind: query.ByScope, id: "USMF", entity: "USMF", want: sequencesUpTo(4)},
		"scope by entity":    {kind: query.ByScope, entity: "USMF", want: sequencesUpTo(4)},
		"another entity":     {kind: query.ByTag, id: "q1", entity: "DEMF", want: []event.Sequence{}},
	} {
		page, err := l.Events(t.Context(), query.Selection{TenantID: "acme", Kind: c.kind, StreamID: c.id, LegalEntity: c.entity, Limit: 10, Filter: ports.EventQuery{Types: c.types}})
		require.NoError(t, err, name)
		require.Equal(t, c.want, sequences(page.Events), name)
	}
	for name, c := range map[string]struct {
		kind       query.StreamKind
		id, entity string
		code       string
	}{
		"unknown kind":   {"stream", "x", "USMF", "query.stream_type_unknown"},
		"no kind":        {"", "x", "USMF", "query.stream_type_unknown"},
		"two scopes":     {query.ByScope, "USMF", "DEMF", "query.scope_mismatch"},
		"unknown scope":  {query.ByScope, "NONE", "", "legal_entity.not_found"},
		"no entity":      {query.ByTag, "q1", "", "legal_entity.not_found"},
		"no entity id":   {query.ByEntity, "", "USMF", "request.parameter_missing"},
		"only an id":     {query.ByEntity, "V-1", "USMF", "request.parameter_invalid"},
		"only a type":    {query.ByEntity, "vendor:", "USMF", "request.parameter_invalid"},
		"no actor":       {query.ByActor, "", "USMF", "request.parameter_missing"},
		"no correlation": {query.ByCorrelation, "", "USMF", "request.parameter_missing"},
		"nor anywhere":   {query.ByCorrelation, "", "", "request.parameter_missing"},
		"no type":        {query.ByType, "", "USMF", "request.parameter_missing"},
		"no tag":         {query.ByTag, "", "USMF", "request.parameter_missing"},
	} {
		_, err := l.Events(t.Context(), query.Selection{TenantID: "acme", Kind: c.kind, StreamID: c.id, LegalEntity: c.entity, Limit: 10})
		require.Equal(t, c.code, code(t, err), name)
	}
	_, err := l.Events(t.Context(), query.Selection{TenantID: "rival", Kind: query.ByScope, StreamID: "USMF", Limit: 1})
	require.Equal(t, "legal_entity.not_found", code(t, err), "of another tenant")
}

func TestEvents_CorrelationAcrossEntities(t *testing.T) {
	t.Parallel()
	l := newLogFixture()
	us, de, rival := l.createEntity(t, "acme", "USMF"), l.createEntity(t, "acme", "DEMF"), l.createEntity(t, "rival", "USMF")
	for range 3 {
		l.write(t, us, nil)
		l.write(t, rival, nil)
		l.write(t, de, nil)
		l.write(t, de, func(p *event.Prepared) { p.CorrelationID = "c-2" })
	}
	sel := query.Selection{TenantID: "acme", Kind: query.ByCorrelation, StreamID: "c-1", Limit: 10}
	codes := func(sel query.Selection) (out []string, more bool) {
		page, err := l.Events(t.Context(), sel)
		require.NoError(t, err)
		for _, e := range page.Events {
			require.Equal(t, "acme", e.Scope.TenantID)
			out = append(out, fmt.Sprint(e.Scope.LegalEntity, e.Sequence))
		}
		return out, page.HasMore
	}
	got, more := codes(sel)
	require.False(t, more)
	require.Equal(t, []string{"USMF1", "DEMF1", "USMF2", "DEMF3", "USMF3", "DEMF5"}, got, "in order of recording")

	sel.Filter.Direction = ports.Backward
	got, _ = codes(sel)
	require.Equal(t, []string{"DEMF5", "USMF3", "DEMF3", "USMF2", "DEMF1", "USMF1"}, got)
	sel.Limit = 2
	got, more = codes(sel)
	require.True(t, more)
	require.Equal(t, []string{"DEMF5", "USMF3"}, got)

	sel.Limit, sel.Readable = 10, []string{"DEMF"}
	got, _ = codes(sel)
	require.Equal(t, []string{"DEMF5", "DEMF3", "DEMF1"}, got, "only what the caller may see")
	sel.Readable = []string{"NONE"}
	got, _ = codes(sel)
	require.Empty(t, got)

	sel.Cursor = "x"
	_, err := l.Events(t.Context(), sel)
	require.Equal(t, "cursor.malformed", code(t, err), "one page has no cursor")
}

func TestByID(t *testing.T) {
	t.Parallel()
	l := newLogFixture()
	us, de := l.createEntity(t, "acme", "USMF"), l.createEntity(t, "acme", "DEMF")
	e := l.write(t, us, nil)
	got, err := l.ByID(t.Context(), us, e.ID)
	require.NoError(t, err)
	require.Equal(t, e, got)
	_, err = l.ByID(t.Context(), de, e.ID)
	require.Equal(t, "event.not_found", code(t, err), "in another legal entity")
}

func TestResolveKnownAt(t *testing.T) {
	t.Parallel()
	l := newLogFixture()
	le := l.createEntity(t, "acme", "USMF")
	known := func(at string) (event.Sequence, string) {
		n, text, err := l.ResolveKnownAt(t.Context(), le.Partition, at)
		require.NoError(t, err, at)
		return n, text
	}
	n, text := known("")
	require.Equal(t, []any{event.Sequence(0), "seq:0"}, []any{n, text})
	l.fill(t, le, 3) // at 12:00:01 and on
	for at, want := range map[string]event.Sequence{
		"seq:0": 0, "seq:2": 2, "seq:3": 3,
		"2026-01-01T12:00:00Z": 0, "2026-01-01T12:00:02Z": 2, "2026-01-01T12:00:02.999999Z": 2, "2026-01-01T13:00:03+01:00": 3, "2030-01-01T00:00:00Z": 3,
	} {
		n, text := known(at)
		require.Equal(t, want, n, at)
		require.Equal(t, at, text, "the report states the known_at of the request")
	}
	n, text = known("")
	require.Equal(t, []any{event.Sequence(3), "seq:3"}, []any{n, text})

	for at, want := range map[string]string{
		"seq:4": "report.known_at_in_future", "seq:9223372036854775807": "report.known_at_in_future",
		"seq:": "report.known_at_invalid", "seq:-1": "report.known_at_invalid", "seq:1.5": "report.known_at_invalid", "seq:18446744073709551616": "report.known_at_invalid",
		"now": "report.known_at_invalid", "2026-01-01": "report.known_at_invalid", "2026-01-01T12:00:00": "report.known_at_invalid", " ": "report.known_at_invalid",
	} {
		_, _, err := l.ResolveKnownAt(t.Context(), le.Partition, at)
		f, _ := fault.As(err)
		require.NotNil(t, f, at)
		require.Equal(t, []string{want, "known_at"}, []string{f.Code, f.Field}, at)
	}
	_, _, err := l.ResolveKnownAt(t.Context(), 1, "")
	require.Equal(t, "legal_entity.not_found", code(t, err))
}

// After a failover that lost the end of the log, other events get its sequences. A cursor
// from before the failover must be refused.
func TestEvents_DivergedLog(t *testing.T) {
	t.Parallel()
	before := newLogFixture()
	le := before.createEntity(t, "acme", "USMF")
	before.fill(t, le, 5)
	page, err := before.Events(t.Context(), byScope(2))
	require.NoError(t, err)

	for name, events := range map[string]int{"other events": 5, "the end is gone": 3, "everything is gone": 0} {
		after := newLogFixture()
		other := after.createEntity(t, "acme", "USMF")
		after.fill(t, other, events)
		sel := byScope(2)
		sel.Cursor = page.NextCursor
		_, err = after.Events(t.Context(), sel)
		require.Equal(t, "cursor.diverged", code(t, err), name)
	}

	// Events after the pinned head change nothing.
	before.fill(t, le, 3)
	sel := query.Selection{TenantID: "acme", Kind: query.ByScope, StreamID: "USMF", Limit: 2, Cursor: page.NextCursor}
	next, err := before.Events(t.Context(), sel)
	require.NoError(t, err)
	require.Equal(t, []event.Sequence{3, 4}, sequences(next.Events))
}
