package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/query"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

var feedPromises = []promise{
	{"reader gets every event once while writers append", followWriters},
}

// directory lists the legal entities of a store; a feed asks for no single one.
type directory struct{ Store }

func (directory) LegalEntity(context.Context, string, string) (ports.LegalEntity, error) {
	return ports.LegalEntity{}, errors.ErrUnsupported
}

// followWriters lets eight writers write into the legal entities of one tenant, one
// of which joins on the way, while a reader follows the feed of the tenant. At the
// end it has seen each event once and in the order of its legal entity.
func followWriters(t *testing.T, s *suite) {
	const writers, batches, perBatch = 8, 25, 3
	tenant := s.unique("tenant")
	partitions := make([]*partition, 5)
	join := func(i int) {
		le, err := s.store.CreateLegalEntity(context.Background(), s.legalEntity(tenant, fmt.Sprintf("E%d", i)))
		require.NoError(t, err)
		partitions[i] = &partition{suite: s, le: le}
	}
	for i := range 4 {
		join(i)
	}
	service := query.New(query.Config{Log: s.store, Directory: directory{s.store}, Cursors: query.NewCursorSealer([]byte("a key of this suite"))})
	seen := map[event.PartitionID][]event.ID{}
	cursor, pages, empty := "0", 0, 0
	follow := func(count int) bool {
		page, err := service.Feed(context.Background(), query.FeedQuery{TenantID: tenant, Cursor: cursor, Count: count, WithoutData: pages%2 == 0})
		require.NoError(t, err)
		require.LessOrEqual(t, len(page.Events), count)
		require.NotEmpty(t, page.NextCursor)
		for _, e := range page.Events {
			seen[e.Partition] = append(seen[e.Partition], e.ID)
			require.Equal(t, event.Sequence(len(seen[e.Partition])), e.Sequence, "skipped, repeated or out of order")
		}
		cursor = page.NextCursor
		if pages++; len(page.Events) == 0 {
			empty++
		}
		return page.HasMore
	}
	follow(10) // before the first event
	require.Equal(t, 1, empty)

	var late atomic.Pointer[partition]
	done := make(chan []error, 1)
	go func() {
		done <- race(writers, func(n int) error {
			for i := range batches {
				b := partitions[(n+i*i)%4]
				if l := late.Load(); l != nil && i%3 == 0 {
					b = l
				}
				events := make([]event.Prepared, 0, perBatch)
				for range perBatch {
					events = append(events, b.event(b.changed, stream(fmt.Sprint(n))))
				}
				if _, err := b.try(b.request(events...)); err != nil {
					return err
				}
			}
			return nil
		})
	}()
	var errs []error
	for running := true; running; {
		select {
		case errs = <-done:
			running = false
		default:
			follow(1 + pages%17)
			if pages == 5 {
				join(4)
				late.Store(partitions[4])
			}
		}
	}
	for _, err := range errs {
		require.NoError(t, err)
	}
	for range 100 {
		if !follow(50) {
			break
		}
	}
	require.False(t, follow(50), "the end stays the end")
	total := 0
	for _, b := range partitions {
		if b == nil {
			continue
		}
		want := eventIDs(b.query(t, ports.EventQuery{}))
		total += len(want)
		require.Equal(t, want, append([]event.ID{}, seen[b.le.Partition]...))
	}
	require.Equal(t, writers*batches*perBatch, total)
	require.Greater(t, pages, 10)
}
