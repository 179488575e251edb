package query

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/event"
)

// Pages grow while events are small and shrink as soon as they are large: a thousand
// events of a megabyte are never in memory at once.
func TestPagesFitTheirBytes(t *testing.T) {
	t.Parallel()
	page := func(n, bytes int) []event.Recorded {
		out := make([]event.Recorded, n)
		for i := range out {
			out[i].Payload = make([]byte, bytes)
		}
		return out
	}
	var f fitting
	for _, want := range []int{16, 32, 64, 100, 100} {
		n := f.next(100)
		require.Equal(t, want, n)
		f.note(page(n, 500))
	}
	for range 10 {
		f.note(page(f.next(1000), 1<<20))
	}
	require.LessOrEqual(t, f.next(1000), 8)
	require.Positive(t, f.next(1000))
	for range 10 {
		f.note(page(f.next(1000), 500))
	}
	require.Equal(t, 1000, f.next(1000))
	last := f.events
	f.note(page(3, 500)) // the end of what there is says nothing
	require.Equal(t, last, f.events)
}
