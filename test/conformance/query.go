package conformance

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

var readPromises = []promise{
	{"empty result is not nil", emptyResults},
	{"pages forward neither overlap nor skip", forwardPages},
	{"pages backward neither overlap nor skip", backwardPages},
	{"until is inclusive in both directions", untilInclusive},
	{"after is exclusive in both directions", afterExclusive},
	{"stream is read ascending from a version", streamFrom},
	{"key selects entities and tags", byKey},
	{"entity named twice on an event is listed once", keyTwice},
	{"key is paged like the whole log", keyPages},
	{"types, correlation and actor filter", byEnvelope},
	{"filters are combined", combined},
	{"dates filter by their bounds", byDates},
	{"query without data omits payloads", withoutData},
	{"head of an empty partition is the genesis", genesisHead},
	{"partition heads list every partition", partitionHeads},
	{"recorded_at finds events of several partitions", recordedTimes},
	{"types_of finds events of several partitions", typesOfEvents},
	{"unknown event is not found", unknownEvent},
}

func emptyResults(t *testing.T, s *suite) {
	b := s.newPartition(t)
	ctx := context.Background()
	check := func() {
		require.Empty(t, b.query(t, ports.EventQuery{Types: []string{s.closed.Type}}))
		require.Empty(t, b.query(t, ports.EventQuery{Key: event.TagKey("none")}))
		require.Empty(t, b.query(t, ports.EventQuery{After: 1}))
		require.Empty(t, b.query(t, ports.EventQuery{After: 1, Direction: ports.Backward}))
		require.Empty(t, b.stream(t, stream("none")))
		page, err := b.store.ChainPage(ctx, b.le.Partition, 1, 10)
		require.NoError(t, err)
		require.NotNil(t, page)
		require.Empty(t, page)
	}
	check()
	require.Empty(t, b.all(t))
	b.write(t, b.event(s.opened, stream("1")))
	check()
	past, err := b.store.EventsOfStream(ctx, b.le.Partition, stream("1"), 2, 10)
	require.NoError(t, err)
	require.NotNil(t, past)
	require.Empty(t, past)
	checkpoints, err := b.store.Checkpoints(ctx, b.unique("projection"), 1)
	require.NoError(t, err)
	require.NotNil(t, checkpoints)
	require.Empty(t, checkpoints)
	les, err := b.store.LegalEntities(ctx, b.unique("unknown"))
	require.NoError(t, err)
	require.NotNil(t, les)
	require.Empty(t, les)
}

// ten events 1..10, odd ones tagged "odd".
func (s *suite) ten(t *testing.T) *partition {
	t.Helper()
	b := s.newPartition(t)
	for i := 1; i <= 10; i++ {
		options := []option{tagged(fmt.Sprint(i))}
		if i%2 == 1 {
			options = append(options, tagged("odd"))
		}
		b.write(t, b.event(s.changed, stream(fmt.Sprint(i%3)), options...))
	}
	return b
}

// pages reads page by page until an empty one.
func (b *partition) pages(t *testing.T, q ports.EventQuery) [][]event.Sequence {
	t.Helper()
	out := [][]event.Sequence{}
	for range 20 {
		page := b.query(t, q)
		if len(page) == 0 {
			return out
		}
		out = append(out, sequences(page))
		q.After = page[len(page)-1].Sequence
	}
	t.Fatal("paging does not end")
	return nil
}

func forwardPages(t *testing.T, s *suite) {
	b := s.ten(t)
	require.Equal(t, [][]event.Sequence{{1, 2, 3, 4, 5}, {6, 7, 8, 9, 10}}, b.pages(t, ports.EventQuery{Limit: 5}))
	require.Equal(t, [][]event.Sequence{{1, 2, 3, 4}, {5, 6, 7, 8}, {9, 10}}, b.pages(t, ports.EventQuery{Limit: 4}))
	require.Equal(t, [][]event.Sequence{{3, 4, 5}, {6, 7}}, b.pages(t, ports.EventQuery{Limit: 3, After: 2, Until: 7}))
	require.Equal(t, upTo(10), sequences(b.query(t, ports.EventQuery{Limit: 10})))
	require.Equal(t, upTo(10), sequences(b.query(t, ports.EventQuery{Limit: 11})))
}

func backwardPages(t *testing.T, s *suite) {
	b := s.ten(t)
	q := ports.EventQuery{Direction: ports.Backward, Limit: 4}
	require.Equal(t, [][]event.Sequence{{10, 9, 8, 7}, {6, 5, 4, 3}, {2, 1}}, b.pages(t, q))
	q.Until = 8
	require.Equal(t, [][]event.Sequence{{8, 7, 6, 5}, {4, 3, 2, 1}}, b.pages(t, q))
}

func untilInclusive(t *testing.T, s *suite) {
	b := s.ten(t)
	require.Equal(t, []event.Sequence{1, 2, 3}, sequences(b.query(t, ports.EventQuery{Until: 3})))
	require.Equal(t, []event.Sequence{3, 2, 1}, sequences(b.query(t, ports.EventQuery{Until: 3, Direction: ports.Backward})))
	require.Equal(t, []event.Sequence{10}, sequences(b.query(t, ports.EventQuery{Until: 99, After: 9})))
	require.Equal(t, []event.Sequence{10, 9}, sequences(b.query(t, ports.EventQuery{Until: 99, Limit: 2, Direction: ports.Backward})))
}

func afterExclusive(t *testing.T, s *suite) {
	b := s.ten(t)
	require.Equal(t, []event.Sequence{9, 10}, sequences(b.query(t, ports.EventQuery{After: 8})))
	require.Equal(t, []event.Sequence{2, 1}, sequences(b.query(t, ports.EventQuery{After: 3, Direction: ports.Backward})))
	require.Empty(t, b.query(t, ports.EventQuery{After: 10}))
	require.Empty(t, b.query(t, ports.EventQuery{After: 1, Direction: ports.Backward}))
	require.Empty(t, b.query(t, ports.EventQuery{After: 5, Until: 5}))
	require.Equal(t, []event.Sequence{4, 3, 2, 1}, sequences(b.query(t, ports.EventQuery{After: 5, Until: 9, Direction: ports.Backward})))
	require.Equal(t, []event.Sequence{5, 4, 3, 2, 1}, sequences(b.query(t, ports.EventQuery{After: 9, Until: 5, Direction: ports.Backward})))
}

func streamFrom(t *testing.T, s *suite) {
	b := s.ten(t)
	read := func(from event.Version, limit int) []event.Sequence {
		events, err := b.store.EventsOfStream(context.Background(), b.le.Partition, stream("1"), from, limit)
		require.NoError(t, err)
		require.NotNil(t, events)
		return sequences(events)
	}
	require.Equal(t, []event.Sequence{1, 4, 7, 10}, read(1, 10))
	require.Equal(t, []event.Sequence{1, 4, 7, 10}, read(0, 10))
	require.Equal(t, []event.Sequence{4, 7}, read(2, 2))
	require.Equal(t, []event.Sequence{10}, read(4, 1))
	require.Empty(t, read(5, 10))
	for _, beyond := range []event.Version{math.MaxInt64, math.MaxInt64 + 1, math.MaxUint64} { // no stream gets there
		require.Empty(t, read(beyond, 10))
		events, more, err := b.store.ReadStream(context.Background(), ports.StreamQuery{Partition: b.le.Partition, Stream: stream("1"), From: beyond, Limit: 10})
		require.NoError(t, err)
		require.Empty(t, events)
		require.False(t, more)
	}
}

func byKey(t *testing.T, s *suite) {
	b := s.newPartition(t)
	b.write(t,
		b.event(s.opened, stream("1"), tagged("V-1"), about("vendor", "V-1")),
		b.event(s.opened, stream("2"), about("vendor", "V-1"), about("vendor", "V-2")),
		b.event(s.opened, stream("3"), about("customer", "V-1")))
	read := func(key string) []event.Sequence { return sequences(b.query(t, ports.EventQuery{Key: key})) }
	require.Equal(t, []event.Sequence{1, 2}, read(event.EntityKey("vendor", "V-1")))
	require.Equal(t, []event.Sequence{2}, read(event.EntityKey("vendor", "V-2")))
	require.Equal(t, []event.Sequence{3}, read(event.EntityKey("customer", "V-1")))
	require.Equal(t, []event.Sequence{1}, read(event.TagKey("V-1")))
	require.Empty(t, read(event.EntityKey("vendor", "V-")))
}

// keyTwice is one party in two roles, such as buyer and payer.
func keyTwice(t *testing.T, s *suite) {
	b := s.newPartition(t)
	b.write(t, b.event(s.opened, stream("1"), about("vendor", "V-1"), tagged("x"), about("vendor", "V-1")), b.event(s.opened, stream("1"), about("vendor", "V-1")))
	require.Equal(t, []event.Sequence{1, 2}, sequences(b.query(t, ports.EventQuery{Key: event.EntityKey("vendor", "V-1")})))
	require.Equal(t, []event.Sequence{2, 1}, sequences(b.query(t, ports.EventQuery{Key: event.EntityKey("vendor", "V-1"), Direction: ports.Backward, Limit: 2})))
}

func keyPages(t *testing.T, s *suite) {
	b := s.ten(t)
	q := ports.EventQuery{Key: event.TagKey("odd"), Limit: 2}
	require.Equal(t, [][]event.Sequence{{1, 3}, {5, 7}, {9}}, b.pages(t, q))
	q.Until = 7
	require.Equal(t, [][]event.Sequence{{1, 3}, {5, 7}}, b.pages(t, q))
	q.Direction = ports.Backward
	require.Equal(t, [][]event.Sequence{{7, 5}, {3, 1}}, b.pages(t, q))
	q.Until, q.After = 0, 8
	require.Equal(t, [][]event.Sequence{{7, 5}, {3, 1}}, b.pages(t, q))
}

func byEnvelope(t *testing.T, s *suite) {
	b := s.newPartition(t)
	by := func(actor, correlation string) option {
		return func(p *event.Prepared) { p.ActorID, p.CorrelationID = actor, correlation }
	}
	b.write(t,
		b.event(s.opened, stream("1"), by("u-1", "c-1")),
		b.event(s.changed, stream("1"), by("u-2", "c-1")),
		b.event(s.closed, stream("1"), by("u-1", "c-2")))
	read := func(q ports.EventQuery) []event.Sequence { return sequences(b.query(t, q)) }
	require.Equal(t, []event.Sequence{1, 2}, read(ports.EventQuery{CorrelationID: "c-1"}))
	require.Equal(t, []event.Sequence{1, 3}, read(ports.EventQuery{ActorID: "u-1"}))
	require.Equal(t, []event.Sequence{2}, read(ports.EventQuery{Types: []string{s.changed.Type}}))
	require.Equal(t, []event.Sequence{3, 1}, read(ports.EventQuery{Types: []string{s.closed.Type, s.opened.Type}, Direction: ports.Backward}))
	require.Empty(t, read(ports.EventQuery{Types: []string{"conformance.never.registered"}}))
}

func combined(t *testing.T, s *suite) {
	b := s.newPartition(t)
	for i := range 20 {
		typ := s.opened
		if i%2 == 1 {
			typ = s.changed
		}
		b.write(t, b.event(typ, stream("1"), tagged(fmt.Sprint(i%3)), func(p *event.Prepared) {
			p.ActorID = fmt.Sprint(i % 5)
			p.EffectiveDate = event.MustDate("2026-03-01").AddDays(i)
		}))
	}
	from := event.MustDate("2026-03-04")
	for _, direction := range []ports.Direction{ports.Forward, ports.Backward} {
		got := b.query(t, ports.EventQuery{
			Key: event.TagKey("1"), Types: []string{s.changed.Type}, ActorID: "3", CorrelationID: "corr",
			EffectiveFrom: &from, Direction: direction, Limit: 5,
		})
		require.Equal(t, []event.Sequence{14}, sequences(got)) // i = 13: 13%3=1, odd, 13%5=3
	}
	require.Equal(t, []event.Sequence{2, 8}, sequences(b.query(t, ports.EventQuery{Key: event.TagKey("1"), Types: []string{s.changed.Type}, Limit: 2})))
}

func byDates(t *testing.T, s *suite) {
	b := s.newPartition(t)
	start := b.clock.Now()
	day := event.MustDate("2026-03-01")
	for i := range 4 {
		b.write(t, b.event(s.changed, stream("1"), func(p *event.Prepared) {
			p.OccurredAt = start.Add(time.Duration(-i) * time.Hour) // occurred runs against recorded
			p.EffectiveDate = day.AddDays(i)
		}))
		b.clock.Advance(time.Minute)
	}
	read := func(q ports.EventQuery) []event.Sequence { return sequences(b.query(t, q)) }
	require.Equal(t, []event.Sequence{1, 2}, read(ports.EventQuery{OccurredFrom: start.Add(-time.Hour)}))
	require.Equal(t, []event.Sequence{3, 4}, read(ports.EventQuery{OccurredTo: start.Add(-time.Hour)}))
	require.Equal(t, []event.Sequence{2}, read(ports.EventQuery{OccurredFrom: start.Add(-time.Hour), OccurredTo: start}))
	require.Equal(t, []event.Sequence{2, 3, 4}, read(ports.EventQuery{RecordedFrom: start.Add(time.Minute)}))
	require.Equal(t, []event.Sequence{1, 2}, read(ports.EventQuery{RecordedTo: start.Add(2 * time.Minute)}))
	second, third := day.AddDays(1), day.AddDays(2)
	require.Equal(t, []event.Sequence{2, 3}, read(ports.EventQuery{EffectiveFrom: &second, EffectiveTo: &third}))
	require.Equal(t, []event.Sequence{4, 3, 2}, read(ports.EventQuery{EffectiveFrom: &second, Direction: ports.Backward}))
	require.Equal(t, []event.Sequence{1}, read(ports.EventQuery{EffectiveTo: &day}))
}

func withoutData(t *testing.T, s *suite) {
	b := s.ten(t)
	for _, key := range []string{"", event.TagKey("odd")} {
		full := b.query(t, ports.EventQuery{Key: key})
		bare := b.query(t, ports.EventQuery{Key: key, WithoutData: true})
		require.Len(t, bare, len(full))
		for i := range bare {
			require.Nil(t, bare[i].Payload)
			require.NotNil(t, full[i].Payload)
			require.Equal(t, full[i].Skeleton, bare[i].Skeleton)
		}
	}
}

func genesisHead(t *testing.T, s *suite) {
	b := s.newPartition(t)
	genesis := event.GenesisChecksum(LogName, b.le.Partition)
	h := b.head(t)
	require.Equal(t, ports.Head{Checksum: genesis, Genesis: genesis}, h)
	b.write(t, b.event(s.opened, stream("1")))
	last := b.all(t)[0]
	h = b.head(t)
	require.Equal(t, event.Sequence(1), h.Sequence)
	require.Equal(t, last.Checksum, h.Checksum)
	require.Equal(t, genesis, h.Genesis)
	require.True(t, last.RecordedAt.Equal(h.RecordedAt))
}

func unknownEvent(t *testing.T, s *suite) {
	b := s.ten(t)
	_, err := b.store.EventByID(context.Background(), b.le.Partition, b.ids.next())
	require.Equal(t, "event.not_found", fault.CodeOf(err))
	require.Equal(t, fault.NotFound, fault.KindOf(err))
}

var causalityPromises = []promise{
	{"lineage runs from the root to the event", lineage},
	{"lineage reports that it was cut", lineageCut},
	{"lineage ends at a cause in another partition", lineageElsewhere},
	{"lineage ends at its byte limit", lineageWithinBytes},
}

func causedBy(id event.ID) option { return func(p *event.Prepared) { p.CausedBy = id } }

// causedIn sets a cause in a partition.
func causedIn(partition event.PartitionID, id event.ID) option {
	return func(p *event.Prepared) { p.CausedBy, p.CausedByPartition = id, partition }
}

// causes writes a chain of five events, each caused by the one before, the last
// two in one batch, with unrelated events in between.
func (b *partition) causes(t *testing.T) []event.ID {
	t.Helper()
	var ids []event.ID
	var cause event.ID
	for range 3 {
		e := b.event(b.changed, stream(b.unique("s")), causedBy(cause))
		b.write(t, b.event(b.opened, stream("noise"), causedBy(cause)), e)
		cause = e.ID
		ids = append(ids, e.ID)
	}
	fourth := b.event(b.changed, stream("x"), causedBy(cause))
	fifth := b.event(b.closed, stream("x"), causedBy(fourth.ID))
	b.write(t, fourth, fifth)
	return append(ids, fourth.ID, fifth.ID)
}

func eventIDs(events []event.Recorded) []event.ID {
	out := make([]event.ID, len(events))
	for i, e := range events {
		out[i] = e.ID
	}
	return out
}

func lineage(t *testing.T, s *suite) {
	b := s.newPartition(t)
	ids := b.causes(t)
	for i, id := range ids {
		chain, truncated, err := b.store.Lineage(context.Background(), b.le.Partition, id, 100, 0)
		require.NoError(t, err)
		require.False(t, truncated)
		require.Equal(t, ids[:i+1], eventIDs(chain))
		require.NotNil(t, chain[0].Payload)
	}
	_, _, err := b.store.Lineage(context.Background(), b.le.Partition, b.ids.next(), 100, 0)
	require.Equal(t, "event.not_found", fault.CodeOf(err))
}

func lineageCut(t *testing.T, s *suite) {
	b := s.newPartition(t)
	ids := b.causes(t)
	chain, truncated, err := b.store.Lineage(context.Background(), b.le.Partition, ids[4], 2, 0)
	require.NoError(t, err)
	require.True(t, truncated)
	require.NotEmpty(t, chain)
	require.Less(t, len(chain), len(ids))
	require.Equal(t, ids[len(ids)-len(chain):], eventIDs(chain))
}

// lineageWithinBytes follows a chain whose second event is large. Every way is read
// twice: a store may learn from the first time that events are large.
func lineageWithinBytes(t *testing.T, s *suite) {
	const large = 100_000
	b := s.newPartition(t)
	var ids []event.ID
	var cause event.ID
	for i := range 12 {
		e := b.event(b.changed, stream(b.unique("s")), causedBy(cause), func(p *event.Prepared) {
			if i == 1 {
				p.Payload = []byte(`{"data":{"text":"` + strings.Repeat("x", large) + `"},"dimensions":{},"entity_refs":[]}`)
			}
		})
		b.write(t, e)
		cause = e.ID
		ids = append(ids, e.ID)
	}
	for range 2 {
		for _, c := range []struct{ of, bytes, first int }{
			{11, 1, 11}, {11, large, 2}, {11, 2 * large, 0}, {11, 0, 0}, {1, 1, 1}, {1, large + 10_000, 0}, {0, 1, 0},
		} {
			chain, truncated, err := b.store.Lineage(context.Background(), b.le.Partition, ids[c.of], 100, c.bytes)
			require.NoError(t, err)
			require.Equal(t, ids[c.first:c.of+1], eventIDs(chain), "lineage of %d within %d bytes", c.of, c.bytes)
			require.Equal(t, c.first > 0, truncated)
			require.NotEmpty(t, chain[0].Payload)
		}
	}
}

func lineageElsewhere(t *testing.T, s *suite) {
	a, b := s.newPartition(t), s.newPartition(t)
	cause := a.event(s.opened, stream("1"))
	a.write(t, cause)
	first := b.event(s.opened, stream("1"), causedIn(a.le.Partition, cause.ID))
	second := b.event(s.changed, stream("1"), causedBy(first.ID))
	b.write(t, first, second)
	chain, truncated, err := b.store.Lineage(context.Background(), b.le.Partition, second.ID, 100, 0)
	require.NoError(t, err)
	require.False(t, truncated)
	require.Equal(t, []event.ID{first.ID, second.ID}, eventIDs(chain))
	require.Equal(t, a.le.Partition, chain[0].CausedByPartition)
}

func partitionHeads(t *testing.T, s *suite) {
	a, b, empty := s.ten(t), s.newPartition(t), s.newPartition(t)
	b.write(t, b.event(s.opened, stream("1")))
	heads, err := s.store.PartitionHeads(context.Background())
	require.NoError(t, err)
	require.Equal(t, event.Sequence(10), heads[a.le.Partition].Sequence)
	require.Equal(t, event.Sequence(1), heads[b.le.Partition].Sequence)
	require.Zero(t, heads[empty.le.Partition].Sequence)
}

func typesOfEvents(t *testing.T, s *suite) {
	a, b := s.ten(t), s.newPartition(t)
	written := b.write(t, b.event(s.opened, stream("1"))).Events[0]
	cause := func(p *partition, id event.ID) ports.Cause { return ports.Cause{Partition: p.le.Partition, ID: id} }
	third := a.all(t)[2]
	got, err := s.store.TypesOf(context.Background(), []ports.Cause{
		cause(a, third.ID), cause(b, written.ID), cause(a, third.ID), // one of them twice
		cause(a, written.ID), cause(b, b.ids.next()), {Partition: 4_000_000, ID: third.ID},
	})
	require.NoError(t, err)
	require.Equal(t, map[ports.Cause]string{cause(a, third.ID): third.Type, cause(b, written.ID): s.opened.Type}, got)
	none, err := s.store.TypesOf(context.Background(), nil)
	require.NoError(t, err)
	require.Empty(t, none)
}

func recordedTimes(t *testing.T, s *suite) {
	a, b := s.ten(t), s.newPartition(t)
	b.write(t, b.event(s.opened, stream("1")))
	at := func(p event.PartitionID, n event.Sequence) ports.EventPosition {
		return ports.EventPosition{Partition: p, Sequence: n}
	}
	got, err := s.store.RecordedAt(context.Background(), []ports.EventPosition{
		at(a.le.Partition, 3), at(b.le.Partition, 1), at(a.le.Partition, 10), at(a.le.Partition, 3), // one of them twice
		at(a.le.Partition, 0), at(a.le.Partition, 11), at(b.le.Partition, 2), at(4_000_000, 1),
	})
	require.NoError(t, err)
	want := map[ports.EventPosition]time.Time{}
	for _, partition := range []*partition{a, b} {
		for _, e := range partition.all(t) {
			if n := e.Sequence; partition == b || n == 3 || n == 10 {
				want[at(partition.le.Partition, n)] = e.RecordedAt
			}
		}
	}
	require.Len(t, want, 3)
	require.Equal(t, want, got)
	none, err := s.store.RecordedAt(context.Background(), nil)
	require.NoError(t, err)
	require.Empty(t, none)
}
