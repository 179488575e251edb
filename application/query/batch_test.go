package query_test

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/query"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

// appendBatch appends n events at once, of an intent or of an actor.
func (l *logFixture) appendBatch(t *testing.T, le ports.LegalEntity, intentID event.ID, actor string, n int) (last event.Sequence) {
	t.Helper()
	events := make([]event.Prepared, n)
	for i := range events {
		events[i] = event.Prepared{
			Skeleton: event.Skeleton{
				ID: l.ids.NewID(l.clock.Now()), Type: "till.cash.moved", SchemaVersion: 1, OccurredAt: l.clock.Now(), EffectiveDate: event.MustDate("2026-01-01"),
				Scope: event.Scope{TenantID: le.TenantID, LegalEntity: le.Code}, ActorType: event.Human, ActorID: actor, CorrelationID: "c-1", IntentID: intentID,
				Stream: event.StreamID{Type: "till", ID: "main"},
			},
			Payload: []byte(`{"data":{},"dimensions":{},"entity_refs":[]}`),
		}
	}
	res, err := l.store.Appender.Append(t.Context(), ports.AppendRequest{Partition: le.Partition, Events: events})
	require.NoError(t, err)
	return res.Head
}

func headerOf(r ports.Report) map[string]any {
	out := map[string]any{}
	for _, f := range r.Header {
		out[f.Name] = f.Value
	}
	return out
}

// TestReport_KnownAtNeverCutsABatch asks at 60 random sequences of a log of batches, many of
// which the store recorded at one time.
func TestReport_KnownAtNeverCutsABatch(t *testing.T) {
	t.Parallel()
	d := newReportFixture(t, 0, time.Minute)
	random := rand.New(rand.NewPCG(3, 4))
	var ends []event.Sequence
	for i := range 120 {
		if random.IntN(3) == 0 { // else recorded at the same time as the batch before
			d.clock.Advance(time.Second)
		}
		var intentID event.ID
		if random.IntN(3) > 0 {
			intentID = d.ids.NewID(d.clock.Now())
		}
		ends = append(ends, d.appendBatch(t, d.entity, intentID, "p-"+strconv.Itoa(i), 1+random.IntN(70)))
	}
	head := ends[len(ends)-1]
	d.progress.reached = head
	endOf := func(n event.Sequence) event.Sequence {
		for _, end := range ends {
			if end >= n {
				return end
			}
		}
		return 0
	}
	for range 60 {
		n := event.Sequence(1 + random.IntN(int(head)))
		asked, want := "seq:"+strconv.Itoa(int(n)), endOf(n)
		r, err := d.query(t, func(q *query.ReportQuery) { q.KnownAt, q.Limit = asked, 7 })
		require.NoError(t, err)
		header := headerOf(r)
		require.Equal(t, asked, header["known_at"])
		require.Equal(t, strconv.Itoa(int(want)), header["sequence"])
		require.Equal(t, want, d.source.last().Known)
		if want == n {
			require.NotContains(t, header, "snapped_from")
		} else {
			require.Equal(t, strconv.Itoa(int(n)), header["snapped_from"])
		}
		if !r.HasMore {
			continue
		}
		next, err := d.query(t, func(q *query.ReportQuery) { q.KnownAt, q.Limit, q.Cursor = asked, 7, r.NextCursor })
		require.NoError(t, err)
		require.Equal(t, header, headerOf(next), "each page says so")
	}
	for _, end := range ends {
		r, err := d.query(t, func(q *query.ReportQuery) { q.KnownAt = "seq:" + strconv.Itoa(int(end)) })
		require.NoError(t, err)
		require.NotContains(t, headerOf(r), "snapped_from")
	}
}

// A projection's position may lie inside a batch. A report without known_at shows the
// batches that are read to their ends.
func TestReport_WithoutKnownAtShowsWholeBatches(t *testing.T) {
	t.Parallel()
	d := newReportFixture(t, 0, 10*time.Millisecond)
	first := d.appendBatch(t, d.entity, d.ids.NewID(d.clock.Now()), "p-1", 40)
	last := d.appendBatch(t, d.entity, d.ids.NewID(d.clock.Now()), "p-1", 40)
	for reached, want := range map[event.Sequence]event.Sequence{0: 0, 1: 0, 39: 0, first: first, first + 1: first, last - 1: first, last: last} {
		d.progress.reached = reached
		r, err := d.query(t, nil)
		require.NoError(t, err)
		require.Equal(t, strconv.Itoa(int(want)), headerOf(r)["sequence"], "reached %d", reached)
	}
	d.progress.reached = last - 1
	_, err := d.query(t, func(q *query.ReportQuery) { q.MinSequence = strconv.Itoa(int(first) + 1) })
	require.Equal(t, "read.not_caught_up", code(t, err), "an intent's answer may name an event inside its batch")
}

// Raw appends of one actor at one time cannot be told apart. The end is moved to that of the
// last one, and the sequence that min_sequence asks for is shown nevertheless.
func TestReport_RawAppendsOfOneTime(t *testing.T) {
	t.Parallel()
	d := newReportFixture(t, 0, 10*time.Millisecond)
	d.appendBatch(t, d.entity, event.ID{}, "p-1", 3)
	d.appendBatch(t, d.entity, event.ID{}, "p-1", 3)
	d.appendBatch(t, d.entity, event.ID{}, "p-2", 3)
	d.progress.reached = 9
	r, err := d.query(t, func(q *query.ReportQuery) { q.KnownAt = "seq:2" })
	require.NoError(t, err)
	require.Equal(t, "6", headerOf(r)["sequence"])
	require.Equal(t, "2", headerOf(r)["snapped_from"])
	d.progress.reached = 8
	r, err = d.query(t, func(q *query.ReportQuery) { q.MinSequence = "4" })
	require.NoError(t, err)
	require.Equal(t, "6", headerOf(r)["sequence"])
}
