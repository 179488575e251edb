package conformance

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/ports"
)

var searchPromises = []promise{
	{"random filters agree with a simple model", randomFilters},
	{"predicates agree with their definition", predicates},
	{"bounded scan continues where it stopped", boundedScan},
	{"stream is read in both directions", streamBothWays},
	{"answer ends at its byte limit", answersWithinBytes},
}

// sample is what the model knows of an event.
type sample struct {
	sequence event.Sequence
	event    event.Prepared
	dims     map[string]string
}

var letters = []string{"a", "b", "c"}

// payloads are data on which predicates differ.
var payloads = []string{
	`{"n":1,"s":"abc"}`, `{"n":1.50,"s":""}`, `{"n":"1","s":null}`, `{"n":-3e2,"s":"b","o":{"b":true}}`, `{"l":[1,2,[3]],"o":{"b":"true"}}`,
	`{"l":[{"x":1},{"x":"é"},{"y":[]}],"n":[]}`, `{"l":{"x":[null,"abc\"d"]}}`, `{}`, `{"n":0,"l":[],"o":{"b":false,"c":{"d":"2026-03-01"}}}`, `{"n":123456789012345,"s":"B"}`,
}

var predicatePaths = []string{"$.n", "$.s", "$.l", "$.l[*]", "$.l.x", "$.l[*].x", "$.o.b", "$.o[*].b", "$.o.c.d", "$.l[*][*]", "$.none", "$.o"}

var predicateValues = []string{"1", `"1"`, "1.5", "-300", "true", "null", "abc", `""`, "b", "2026-02-28", "é", "3", `"true"`, "bc", `c"`, "1e0", "123456789012345.0"}

var operators = []event.Operator{
	event.Equal, event.NotEqual, event.Greater, event.GreaterOrEqual, event.Less, event.LessOrEqual, event.Contains, event.Exists,
}

func (b *partition) samples(rt *rapid.T, n int) []sample {
	out := make([]sample, 0, n)
	for range n {
		pick := func(label string) string { return rapid.SampledFrom(letters).Draw(rt, label) }
		typ := rapid.SampledFrom([]eventtype.Registration{b.opened, b.changed, b.closed}).Draw(rt, "type")
		dims := map[string]string{"place": pick("place")}
		data := rapid.SampledFrom(payloads).Draw(rt, "data")
		e := b.event(typ, stream(pick("stream")), tagged(pick("tag")), about("vendor", pick("vendor")), func(p *event.Prepared) {
			p.ActorID, p.CorrelationID = pick("actor"), pick("correlation")
			p.Scope.Division, p.Scope.Region = pick("division"), pick("region")
			p.Source = event.Source{System: pick("system"), Channel: pick("channel"), Reference: pick("reference")}
			p.SchemaVersion = uint32(rapid.IntRange(1, 2).Draw(rt, "version"))
			p.OccurredAt = b.clock.Now().Add(-time.Duration(rapid.IntRange(1, 3).Draw(rt, "age")) * time.Hour)
			p.EffectiveDate = event.MustDate("2026-03-01").AddDays(rapid.IntRange(0, 2).Draw(rt, "day"))
			p.Payload = []byte(`{"data":` + data + `,"dimensions":{"place":` + strconv.Quote(dims["place"]) + `},"entity_refs":[]}`)
		})
		out = append(out, sample{event: e, dims: dims})
	}
	return out
}

// drawQuery asks for each thing now and then.
func (b *partition) drawQuery(rt *rapid.T, base, head event.Sequence) ports.EventQuery {
	q := ports.EventQuery{Limit: rapid.IntRange(1, 4).Draw(rt, "limit"), Direction: ports.Direction(rapid.Bool().Draw(rt, "backward"))}
	maybe := func(label string) bool { return rapid.IntRange(0, 6).Draw(rt, label+"?") == 0 }
	text := func(label string, to *string) {
		if maybe(label) {
			*to = rapid.SampledFrom(letters).Draw(rt, label)
		}
	}
	text("actor", &q.ActorID)
	text("correlation", &q.CorrelationID)
	text("division", &q.Division)
	text("region", &q.Region)
	text("system", &q.Source.System)
	text("channel", &q.Source.Channel)
	text("reference", &q.Source.Reference)
	if maybe("dimension") {
		q.Dimension = ports.Dimension{Name: rapid.SampledFrom([]string{"place", "place", "other"}).Draw(rt, "name"), Value: rapid.SampledFrom(letters).Draw(rt, "value")}
	}
	if maybe("key") {
		q.Key = rapid.SampledFrom([]string{event.TagKey("a"), event.EntityKey("vendor", "b")}).Draw(rt, "key")
	}
	if maybe("types") {
		q.Types = rapid.SliceOfN(rapid.SampledFrom([]string{b.opened.Type, b.changed.Type, b.closed.Type}), 1, 3).Draw(rt, "types")
	}
	if maybe("version") {
		q.SchemaVersion = 2
	}
	if maybe("occurred") {
		q.OccurredFrom, q.OccurredTo = b.clock.Now().Add(-2*time.Hour), b.clock.Now().Add(-time.Hour)
	}
	if maybe("effective") {
		day := event.MustDate("2026-03-02")
		q.EffectiveFrom, q.EffectiveTo = &day, &day
	}
	q.From = base + 1
	if maybe("range") {
		q.From = base + event.Sequence(rapid.IntRange(1, int(head-base)).Draw(rt, "from"))
		q.To = q.From + 2
	}
	if maybe("predicate") || maybe("predicate again") {
		q.Predicate = drawPredicate(rt)
	}
	return q
}

func drawPredicate(rt *rapid.T) *event.Predicate {
	path, operator := rapid.SampledFrom(predicatePaths).Draw(rt, "path"), rapid.SampledFrom(operators).Draw(rt, "operator")
	value := ""
	if operator != event.Exists {
		value = rapid.SampledFrom(predicateValues).Draw(rt, "value")
	}
	p, err := event.ParsePredicate(path, string(operator), value)
	if err != nil { // an order of truth values and the like
		return nil
	}
	return p
}

func (s *sample) selected(q *ports.EventQuery) bool {
	e := &s.event
	same := func(want, have string) bool { return want == "" || want == have }
	return s.sequence >= q.From && (q.To == 0 || s.sequence <= q.To) &&
		(q.Key == "" || slices.Contains(e.Keys, q.Key)) && (len(q.Types) == 0 || slices.Contains(q.Types, e.Type)) &&
		same(q.ActorID, e.ActorID) && same(q.CorrelationID, e.CorrelationID) && same(q.Division, e.Scope.Division) && same(q.Region, e.Scope.Region) &&
		same(q.Source.System, e.Source.System) && same(q.Source.Channel, e.Source.Channel) && same(q.Source.Reference, e.Source.Reference) &&
		(q.Dimension.Name == "" || s.dims[q.Dimension.Name] == q.Dimension.Value) && (q.SchemaVersion == 0 || q.SchemaVersion == e.SchemaVersion) &&
		(q.OccurredFrom.IsZero() || !e.OccurredAt.Before(q.OccurredFrom) && e.OccurredAt.Before(q.OccurredTo)) &&
		(q.EffectiveFrom == nil || e.EffectiveDate == *q.EffectiveFrom) && (q.Predicate == nil || q.Predicate.Matches(e.Payload))
}

// scanned reads a query to its end in bounded steps.
func (b *partition) scanned(t tester, q ports.EventQuery, scan int) []event.Sequence {
	t.Helper()
	q.Partition = b.le.Partition
	out := []event.Sequence{}
	for range 1000 {
		found, err := b.store.SearchEvents(context.Background(), q, scan)
		require.NoError(t, err)
		require.NotNil(t, found.Events)
		require.LessOrEqual(t, len(found.Events), q.Limit)
		out = append(out, sequences(found.Events)...)
		switch {
		case len(found.Events) == q.Limit:
			q.After = found.Events[q.Limit-1].Sequence
		case found.Stopped:
			if q.After != 0 {
				require.Equal(t, q.Direction == ports.Backward, found.Reached < q.After, "a scan makes progress")
				require.NotEqual(t, q.After, found.Reached)
			}
			q.After = found.Reached
		default:
			return out
		}
		if q.Direction == ports.Backward && q.After == 1 { // nothing lies before it, and 0 would be the end again
			return out
		}
	}
	t.Errorf("the scan does not end")
	t.FailNow()
	return nil
}

// randomFilters compares what random filters find in a random log, in whole and in
// bounded steps, with looking at every event.
func randomFilters(t *testing.T, s *suite) {
	b := s.newPartition(t)
	rapid.Check(t, func(rt *rapid.T) {
		base := b.head(rt).Sequence
		log := b.samples(rt, rapid.IntRange(3, 12).Draw(rt, "events"))
		events := make([]event.Prepared, len(log))
		for i := range log {
			events[i] = log[i].event
		}
		for i, r := range b.write(rt, events...).Events {
			log[i].sequence = r.Sequence
		}
		for range 4 {
			q := b.drawQuery(rt, base, base+event.Sequence(len(log)))
			want := []event.Sequence{}
			for i := range log {
				if log[i].selected(&q) {
					want = append(want, log[i].sequence)
				}
			}
			if q.Direction == ports.Backward {
				slices.Reverse(want)
			}
			require.Equal(rt, want, b.scanned(rt, q, rapid.IntRange(1, 6).Draw(rt, "scan")), "in steps")
			require.Equal(rt, want[:min(len(want), q.Limit)], sequences(b.query(rt, q)), "in whole")
		}
	})
}

// predicates tries every operator and value on every path over all shapes of data.
func predicates(t *testing.T, s *suite) {
	b := s.newPartition(t)
	for _, data := range payloads {
		b.write(t, b.event(b.opened, stream("1"), func(p *event.Prepared) {
			p.Payload = []byte(`{"data":` + data + `,"dimensions":{},"entity_refs":[]}`)
		}))
	}
	tried := 0
	for _, path := range predicatePaths {
		for _, operator := range operators {
			values := predicateValues
			if operator == event.Exists {
				values = []string{""}
			}
			for _, value := range values {
				p, err := event.ParsePredicate(path, string(operator), value)
				if err != nil {
					continue
				}
				want := []event.Sequence{}
				for i, data := range payloads {
					if p.Matches([]byte(`{"data":` + data + `}`)) {
						want = append(want, event.Sequence(i+1))
					}
				}
				tried++
				require.Equal(t, want, sequences(b.query(t, ports.EventQuery{Predicate: p})), "%s %s %s", path, operator, value)
			}
		}
	}
	require.Greater(t, tried, 1000)
}

func boundedScan(t *testing.T, s *suite) {
	b := s.ten(t)
	ctx := context.Background()
	q := ports.EventQuery{Partition: b.le.Partition, Limit: 3, Types: []string{s.changed.Type}, SchemaVersion: 9}
	found, err := b.store.SearchEvents(ctx, q, 4)
	require.NoError(t, err)
	require.Equal(t, ports.EventScan{Events: []event.Recorded{}, Stopped: true, Reached: 4}, found)
	q.Direction = ports.Backward
	found, err = b.store.SearchEvents(ctx, q, 4)
	require.NoError(t, err)
	require.Equal(t, ports.EventScan{Events: []event.Recorded{}, Stopped: true, Reached: 7}, found)
	for _, direction := range []ports.Direction{ports.Forward, ports.Backward} {
		q := ports.EventQuery{Key: event.TagKey("odd"), SchemaVersion: 1, Limit: 2, Direction: direction}
		want := []event.Sequence{1, 3, 5, 7, 9}
		if direction == ports.Backward {
			slices.Reverse(want)
		}
		require.Equal(t, want, b.scanned(t, q, 1))
	}
}

func streamBothWays(t *testing.T, s *suite) {
	b := s.ten(t) // stream "1" has 1, 4, 7, 10
	read := func(from event.Version, direction ports.Direction, limit int, withoutData bool) []event.Sequence {
		events, _, err := b.store.ReadStream(context.Background(), ports.StreamQuery{
			Partition: b.le.Partition, Stream: stream("1"), From: from, Direction: direction, Limit: limit, WithoutData: withoutData,
		})
		require.NoError(t, err)
		require.NotNil(t, events)
		for _, e := range events {
			require.Equal(t, withoutData, e.Payload == nil)
		}
		return sequences(events)
	}
	for _, withoutData := range []bool{false, true} {
		require.Equal(t, []event.Sequence{1, 4, 7, 10}, read(0, ports.Forward, 0, withoutData))
		require.Equal(t, []event.Sequence{10, 7, 4, 1}, read(0, ports.Backward, 0, withoutData))
		require.Equal(t, []event.Sequence{4, 7}, read(2, ports.Forward, 2, withoutData))
		require.Equal(t, []event.Sequence{7, 4}, read(3, ports.Backward, 2, withoutData))
		require.Equal(t, []event.Sequence{10}, read(99, ports.Backward, 1, withoutData))
		require.Empty(t, read(99, ports.Forward, 1, withoutData))
	}
	none, _, err := b.store.ReadStream(context.Background(), ports.StreamQuery{Partition: b.le.Partition, Stream: stream("none"), Direction: ports.Backward, Limit: 1})
	require.NoError(t, err)
	require.NotNil(t, none)
	require.Empty(t, none)
}

// bounded is one way to read events up to a number of bytes of payloads: it returns the events
// after the last one read, and whether there is more.
type bounded func(after *event.Recorded, bytes int) (events []event.Recorded, more bool)

// answersWithinBytes reads events, of which every third is large, in all ways that take
// bytes. An answer ends before the event that exceeds them, but not before the first, and
// reports that there is more; the next read neither skips nor repeats an event.
// Every way is read twice: a store may learn from the first time that events are large.
func answersWithinBytes(t *testing.T, s *suite) {
	const large = 100_000
	b := s.newPartition(t)
	cause := b.event(b.opened, stream("cause"))
	events := []event.Prepared{cause}
	for i := range 12 {
		events = append(events, b.event(b.changed, stream("1"), tagged("many"), causedBy(cause.ID), func(p *event.Prepared) {
			p.CorrelationID, p.ActorID = "many", "writer"
			if i%3 == 1 {
				p.Payload = []byte(`{"data":{"text":"` + strings.Repeat("x", large) + `"},"dimensions":{},"entity_refs":[]}`)
			}
		}))
	}
	for one := range slices.Chunk(events, 1) {
		b.write(t, one...)
	}
	for name, way := range b.waysWithinBytes(t) {
		want := b.all(t)[1:]
		if strings.HasSuffix(name, "backward") {
			slices.Reverse(want)
		}
		for _, bytes := range []int{1, large / 2, large + 10_000, 2*large + 10_000, 100 * large, 0, large + 10_000} {
			var last *event.Recorded
			left := want
			for more := true; more; {
				var page []event.Recorded
				page, more = way(last, bytes)
				n, total := 0, 0
				for ; n < len(left); n++ {
					if total += len(left[n].Payload); bytes > 0 && total > bytes && n > 0 {
						break
					}
				}
				require.Equal(t, sequences(left[:n]), sequences(page), "%s within %d bytes", name, bytes)
				for i := range page {
					require.Equal(t, left[i].Payload, page[i].Payload, "%s within %d bytes", name, bytes)
				}
				require.Equal(t, n < len(left), more, "%s within %d bytes", name, bytes)
				left, last = left[n:], &page[n-1]
			}
		}
	}
	for range 2 { // effects are not paged: what is nearest stays
		for bytes, n := range map[int]int{1: 1, large + 10_000: 4, 0: 12} {
			effects, more, err := b.store.Descendants(context.Background(), ports.DescendantQuery{
				Partition: b.le.Partition, Causes: []ports.Cause{b.cause(cause.ID)}, MaxDepth: 1, Limit: 100, Bytes: bytes,
			})
			require.NoError(t, err)
			require.Len(t, effects, n, "effects within %d bytes", bytes)
			require.Equal(t, n < 12, more)
		}
	}
}

func (b *partition) waysWithinBytes(t tester) map[string]bounded {
	ctx := context.Background()
	ways := map[string]bounded{
		"matches": func(after *event.Recorded, bytes int) (events []event.Recorded, more bool) {
			q := ports.MatchQuery{Partition: b.le.Partition, Items: []concurrency.Item{{Tags: []string{"many"}}}, Until: b.head(t).Sequence, Limit: 100, Bytes: bytes}
			if after != nil {
				q.After = after.Sequence
			}
			page, err := b.store.Matches(ctx, q)
			require.NoError(t, err)
			for _, m := range page.Matches {
				events = append(events, m.Event)
			}
			return events, page.Through < q.Until
		},
	}
	for name, q := range map[string]ports.EventQuery{
		"key": {Key: event.TagKey("many")}, "correlation": {CorrelationID: "many"}, "actor": {ActorID: "writer"},
		"types": {Types: []string{b.changed.Type}}, "log": {From: 2}, "filter": {Key: event.TagKey("many"), SchemaVersion: b.changed.SchemaVersion},
	} {
		for direction, d := range map[string]ports.Direction{"forward": ports.Forward, "backward": ports.Backward} {
			ways[name+" "+direction] = func(after *event.Recorded, bytes int) ([]event.Recorded, bool) {
				q.Partition, q.Direction, q.Limit, q.Bytes, q.After = b.le.Partition, d, 100, bytes, 0
				if after != nil {
					q.After = after.Sequence
				}
				found, err := b.store.SearchEvents(ctx, q, 0)
				require.NoError(t, err)
				if found.Stopped {
					require.Equal(t, found.Events[len(found.Events)-1].Sequence, found.Reached)
				}
				return found.Events, found.Stopped
			}
		}
	}
	today := event.MustDate("2026-03-02")
	for name, asOf := range map[string]*event.Date{"stream": nil, "stream as of a day": &today} {
		for direction, d := range map[string]ports.Direction{"forward": ports.Forward, "backward": ports.Backward} {
			ways[name+" "+direction] = func(after *event.Recorded, bytes int) ([]event.Recorded, bool) {
				q := ports.StreamQuery{Partition: b.le.Partition, Stream: stream("1"), EffectiveTo: asOf, Direction: d, Limit: 100, Bytes: bytes}
				switch {
				case after != nil && d == ports.Forward:
					q.From = after.StreamVersion + 1
				case after != nil:
					q.From = after.StreamVersion - 1
				}
				events, more, err := b.store.ReadStream(ctx, q)
				require.NoError(t, err)
				return events, more
			}
		}
	}
	return ways
}
