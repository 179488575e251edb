package eventlog_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/pgtest"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

// taken is a projection that notes what it is given.
type taken struct {
	sequences []event.Sequence
	batches   [][]int // bytes of payloads
}

// Apply implements ports.ProjectionHandler.
func (h *taken) Apply(_ context.Context, _ ports.ProjectionTx, b ports.ProjectionBatch) error {
	var sizes []int
	for i := range b.Events {
		h.sequences = append(h.sequences, b.Events[i].Sequence)
		sizes = append(sizes, len(b.Events[i].Payload))
	}
	h.batches = append(h.batches, sizes)
	return nil
}

// TestEventsOf_Pages goes through logs by pages of every kind: each event of the
// projection's types comes once and in order, every other one is passed, and no batch
// is larger than allowed, unless it is one event.
func TestEventsOf_Pages(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t, pgtest.Database(t))
	books := pgtest.NewPartitions(t, s, 2)
	const events, small, large = 60, 100, 3000
	all := map[string][]event.Sequence{}
	for i, p := range books {
		r := pgtest.Invoice(p, events)
		for n := range r.Events {
			kind, size := []string{"shop.a", "shop.b", "shop.b", "shop.c"}[n%4], small
			if i == 1 && n >= 20 && n < 40 { // large ones in the middle of the second log
				size = large
			}
			e := &r.Events[n]
			e.Type, e.Payload = kind, fmt.Appendf(nil, `{"data":{"n":%d,"x":%q},"dimensions":{},"entity_refs":[]}`, n, strings.Repeat("x", size))
			e.PayloadHashDone = false
			if i == 0 {
				all[kind] = append(all[kind], event.Sequence(n+1))
			}
			all[""] = append(all[""], event.Sequence(n+1))
		}
		_, err := s.Appender.Append(t.Context(), r)
		require.NoError(t, err)
	}
	all[""] = all[""][:events]
	for made, c := range []struct {
		types        []string
		limit, bytes int
		want         []event.Sequence
	}{
		{nil, 7, 0, all[""]},
		{nil, 500, 4 * large, all[""]},
		{[]string{"shop.a"}, 7, 0, all["shop.a"]},
		{[]string{"shop.a"}, 500, 0, all["shop.a"]},
		{[]string{"shop.a"}, 500, 2*large + 500, all["shop.a"]},
		{[]string{"shop.a"}, 7, 2*large + 500, all["shop.a"]},
		{[]string{"shop.c"}, 9, 500, all["shop.c"]},
		{[]string{"shop.none"}, 500, 500, nil},
		{[]string{"shop.none"}, 1, 500, nil},
		{[]string{"shop.a"}, 0, 0, all["shop.a"]},
	} {
		for _, p := range books {
			name := fmt.Sprintf("case %d, partition %d", made, p)
			h := &taken{}
			advance := ports.ProjectionAdvance{
				ProjectionWork: ports.ProjectionWork{Projection: fmt.Sprintf("pages-%d", made), Version: 1, Partition: p}, Types: c.types, Limit: c.limit, Bytes: c.bytes,
			}
			through := 0
			for {
				checkpoint, passed, err := s.Projections.Advance(t.Context(), advance, h)
				require.NoError(t, err, name)
				if passed == 0 {
					require.EqualValues(t, events, checkpoint.Sequence, name)
					break
				}
				through += passed
				require.EqualValues(t, through, checkpoint.Sequence, name)
				require.True(t, c.limit == 0 || passed <= c.limit, name)
				require.NotZero(t, checkpoint.LastEventAt, name)
			}
			require.Equal(t, c.want, h.sequences, name)
			for _, sizes := range h.batches {
				total := 0
				for _, size := range sizes {
					total += size
				}
				require.True(t, c.bytes == 0 || len(sizes) == 1 || total <= c.bytes, "%s: %d bytes", name, total)
			}
		}
	}
	// A bound that cuts is used to the full.
	h := &taken{}
	_, passed, err := s.Projections.Advance(t.Context(), ports.ProjectionAdvance{
		ProjectionWork: ports.ProjectionWork{Projection: "pages-full", Version: 1, Partition: books[1]}, Types: []string{"shop.a"}, Limit: 500, Bytes: 5*(small+100) + 2*(large+100),
	}, h)
	require.NoError(t, err)
	require.Equal(t, []event.Sequence{1, 5, 9, 13, 17, 21, 25}, h.sequences)
	require.GreaterOrEqual(t, passed, 25)
	require.Less(t, passed, 29, "the next one of its types comes next time")
}
