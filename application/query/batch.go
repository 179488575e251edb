package query

import (
	"context"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

// batchEnd returns the last sequence of the append that wrote the event at n, so that a
// report never shows a part of an atomic batch: a document that is posted beside a control
// account that is not. n is at most the head.
//
// The log does not store where an append ends. Its events follow one another, have one
// recorded_at, and one intent or, for raw appends, one actor; events that agree in all of
// these are taken for one batch. Two raw appends of one actor in one microsecond are thus
// taken for one, which moves the end too far but cuts nothing.
func (s *Service) batchEnd(ctx context.Context, p event.PartitionID, n event.Sequence) (event.Sequence, error) {
	if n == 0 {
		return 0, nil
	}
	return s.walkBatch(ctx, ports.EventQuery{Partition: p, From: n, Direction: ports.Forward}, n)
}

// wholeBatches returns the last sequence up to n at which a batch ends, at least floor. It
// is for the position of a projection, which may have read a part of a batch.
func (s *Service) wholeBatches(ctx context.Context, p event.PartitionID, n, floor event.Sequence) (event.Sequence, error) {
	if n <= floor {
		return n, nil
	}
	end, err := s.batchEnd(ctx, p, n)
	if err != nil || end == n {
		return n, err
	}
	first, err := s.walkBatch(ctx, ports.EventQuery{Partition: p, Until: n, Direction: ports.Backward}, n)
	return max(first-1, floor), err
}

// batchPage is how many events walkBatch reads at once. Most batches have fewer.
const batchPage = 32

// walkBatch follows the events of a batch from n in the query's direction to the last one.
func (s *Service) walkBatch(ctx context.Context, q ports.EventQuery, n event.Sequence) (event.Sequence, error) {
	q.Limit, q.WithoutData = batchPage, true
	var first *event.Recorded
	for {
		events, err := s.events.Events(ctx, q)
		if err != nil {
			return n, err
		}
		for i := range events {
			e := &events[i]
			if first == nil {
				first = e
			}
			if !isOneBatch(first, e) {
				return n, nil
			}
			n = e.Sequence
		}
		if len(events) < batchPage {
			return n, nil
		}
		if q.Direction == ports.Forward {
			q.From = n + 1
		} else if q.Until = n - 1; q.Until == 0 {
			return n, nil
		}
	}
}

func isOneBatch(a, b *event.Recorded) bool {
	if !a.RecordedAt.Equal(b.RecordedAt) || a.IntentID != b.IntentID {
		return false
	}
	// The events of an intent may have two actors: the requester and the approver.
	return !a.IntentID.IsZero() || a.ActorType == b.ActorType && a.ActorID == b.ActorID
}
