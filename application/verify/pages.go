package verify

import (
	"context"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

const (
	pageSize  = 1000
	pageBytes = 16 << 20 // approximate limit of the payloads of a page
	// maxUnreadable bounds the unreadable events of a run, which fails beyond it: so many
	// have another cause than tampering.
	maxUnreadable = 100
)

type page struct {
	unreadable []event.Sequence // before the events
	events     []event.Recorded
	err        error // after both
}

// readAhead reads pages while the caller checks earlier ones: one waits, another is being
// read.
func readAhead(ctx context.Context, store ports.ChainReader, p event.PartitionID, after event.Sequence) <-chan page {
	out := make(chan page, 1)
	go func() {
		defer close(out)
		r := pager{store: store, partition: p, after: after, limit: pageSize}
		for more := true; more; {
			var next page
			next, more = r.next(ctx)
			select {
			case out <- next:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

// pager reads a partition page by page. It finds an unreadable event by reading events one
// by one, and skips it.
type pager struct {
	store     ports.ChainReader
	partition event.PartitionID
	after     event.Sequence
	limit     int
	single    int // how many further events are read one by one
	skipped   int
}

func (r *pager) next(ctx context.Context) (next page, more bool) {
	for {
		events, err := r.store.ChainPage(ctx, r.partition, r.after, r.limit)
		f, _ := fault.As(err)
		switch {
		case err == nil:
			next.events, more = events, len(events) == r.limit
			if len(events) > 0 {
				r.after = events[len(events)-1].Sequence
				r.single = max(r.single-len(events), 0)
			}
			if r.single == 0 && more {
				r.limit = nextLimit(events)
			}
			return next, more
		case f != nil && f.Kind == fault.Internal && r.limit > 1:
			r.limit, r.single = 1, r.limit
		case f != nil && f.Kind == fault.Internal && r.skipped < maxUnreadable:
			r.skipped++
			r.after++
			// It is reported together with the next readable event. If none follows, the run
			// fails with the store's error.
			next.unreadable = append(next.unreadable, r.after)
		default:
			return page{err: err}, false
		}
	}
}

// nextLimit keeps pages of large events small.
func nextLimit(events []event.Recorded) int {
	bytes := 0
	for i := range events {
		bytes += len(events[i].Payload) + 1000
	}
	return max(min(pageSize, pageBytes/max(bytes/len(events), 1)), 10)
}
