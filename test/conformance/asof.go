package conformance

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

var asOfPromises = []promise{
	{"AStreamIsReadAsItWas", streamAsOf},
}

// streamAsOf compares every page of a stream, on both axes and in both directions,
// with what a reader would pick out by hand.
func streamAsOf(t *testing.T, s *suite) {
	b := s.newBook(t)
	first := event.MustDate("2026-03-01")
	days := []int{0, 8, 1, 2, 9, 3, 3, 0, 12, 4}
	var all []event.Version
	for i, day := range days {
		e := b.event(s.opened, stream("A"))
		e.EffectiveDate = first.AddDays(day)
		b.write(t, e)
		b.write(t, b.event(s.opened, stream("other")))
		all = append(all, event.Version(i+1))
	}
	sequence := func(v event.Version) event.Sequence { return event.Sequence(2*v - 1) }
	for until := range event.Sequence(21) {
		for _, through := range []int{-2, -1, 0, 3, 9, 20} {
			for from := range event.Version(12) {
				for _, limit := range []int{0, 1, 2} {
					for _, direction := range []ports.Direction{ports.Forward, ports.Backward} {
						q := ports.StreamQuery{Partition: b.le.Partition, Stream: stream("A"), From: from, Direction: direction, Until: until, Limit: limit, WithoutData: limit == 1}
						if through > -2 {
							d := first.AddDays(through)
							q.EffectiveTo = &d
						}
						if (int(until)+through+int(from)+limit)%3 != 0 {
							continue // a third of them is enough
						}
						want := slices.DeleteFunc(slices.Clone(all), func(v event.Version) bool {
							return until != 0 && sequence(v) > until || through > -2 && days[v-1] > through ||
								direction == ports.Forward && v < from || direction == ports.Backward && from != 0 && v > from
						})
						if direction == ports.Backward {
							slices.Reverse(want)
						}
						if limit > 0 {
							want = want[:min(limit, len(want))]
						}
						events, more, err := b.store.ReadStream(context.Background(), q)
						require.NoError(t, err)
						require.False(t, more)
						require.NotNil(t, events)
						got := []event.Version{}
						for i := range events {
							got = append(got, events[i].StreamVersion)
							require.Equal(t, q.WithoutData, events[i].Payload == nil)
						}
						require.Equal(t, want, got, "%+v", q)
					}
				}
			}
		}
	}
}
