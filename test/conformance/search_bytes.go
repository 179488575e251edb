package conformance

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

// bounded is one way to read events up to a number of bytes of payloads: it gives what
// follows an event, the last one shown, and whether there is more.
type bounded func(after *event.Recorded, bytes int) (events []event.Recorded, more bool)

// answersWithinBytes reads events, of which every third is large, in all ways that take
// bytes. An answer ends before the event that exceeds them, but not before the first, and
// says that there is more; what goes on behind it leaves nothing out and repeats nothing.
// Every way is read twice: a store may learn from the first time that events are large.
func answersWithinBytes(t *testing.T, s *suite) {
	const large = 100_000
	b := s.newBook(t)
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

func (b *book) waysWithinBytes(t tester) map[string]bounded {
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
