package module

import (
	"context"
	"iter"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

// Bounds of one page of a stream.
const (
	streamPage  = 500
	streamBytes = 8 << 20
)

// StreamLog is the log that Events reads. An event store implements it.
type StreamLog interface {
	Head(ctx context.Context, p event.PartitionID) (ports.Head, error)
	ports.EventSearcher
}

// Events streams the events that a query selects. It reads a page when the page's first event
// is consumed, so a slow consumer holds one page in memory and no resource of the store. A
// forward stream without an Until ends at the head as of its beginning. A limit of 0
// is none. An error, also the context's, is the last element of the stream.
func Events(ctx context.Context, log StreamLog, q ports.EventQuery) iter.Seq2[event.Recorded, error] {
	return func(yield func(event.Recorded, error) bool) {
		if q.Until == 0 {
			head, err := log.Head(ctx, q.Partition)
			if err != nil {
				yield(event.Recorded{}, err)
				return
			}
			if q.Until = head.Sequence; q.Until == 0 {
				return
			}
		}
		left, unlimited := q.Limit, q.Limit == 0
		q.Bytes = streamBytes
		for unlimited || left > 0 {
			if q.Limit = streamPage; !unlimited {
				q.Limit = min(left, streamPage)
			}
			scan, err := log.SearchEvents(ctx, q, 0)
			if err != nil {
				yield(event.Recorded{}, err)
				return
			}
			page := scan.Events
			for i := range page {
				if err := ctx.Err(); err != nil {
					yield(event.Recorded{}, err)
					return
				}
				if !yield(page[i], nil) {
					return
				}
			}
			if len(page) < q.Limit && !scan.Stopped {
				return
			}
			left -= len(page)
			q.After = page[len(page)-1].Sequence
		}
	}
}

// Matches streams the events that match the query's items up to its Until, page by page
// like Events. A limit of 0 is no limit.
func Matches(ctx context.Context, log ports.MatchReader, q ports.MatchQuery) iter.Seq2[ports.Match, error] {
	return func(yield func(ports.Match, error) bool) {
		left, unlimited := q.Limit, q.Limit == 0
		q.Bytes = streamBytes
		for (unlimited || left > 0) && q.After < q.Until {
			if q.Limit = streamPage; !unlimited {
				q.Limit = min(left, streamPage)
			}
			page, err := log.Matches(ctx, q)
			if err != nil {
				yield(ports.Match{}, err)
				return
			}
			for i := range page.Matches {
				if err := ctx.Err(); err != nil {
					yield(ports.Match{}, err)
					return
				}
				if !yield(page.Matches[i], nil) {
					return
				}
			}
			left -= len(page.Matches)
			q.After = page.Through
		}
	}
}
