package memory

import (
	"context"
	"slices"
	"sort"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/ports"
)

// read runs f under the read lock with the partition, nil if it is unknown.
func (s *Store) read(ctx context.Context, id event.PartitionID, f func(p *partition) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return f(s.partitions[id])
}

func eventNotFound(id event.ID) error {
	return fault.New(fault.NotFound, "event.not_found", "there is no event %s in this legal entity; check the id and the legal entity", id)
}

// IdempotencyOutcome implements ports.IdempotencyReader.
func (s *Store) IdempotencyOutcome(ctx context.Context, id event.PartitionID, key string, now time.Time) (o ports.IdempotencyOutcome, found bool, err error) {
	err = s.read(ctx, id, func(p *partition) error {
		if p == nil {
			return nil
		}
		if row, known := p.idempotency[key]; known && now.Before(row.expiresAt) {
			o, found = row.outcome, true
		}
		return nil
	})
	return o, found, err
}

// EventByID implements ports.EventReader.
func (s *Store) EventByID(ctx context.Context, partitionID event.PartitionID, id event.ID) (out event.Recorded, err error) {
	err = s.read(ctx, partitionID, func(p *partition) error {
		if p == nil || p.byID[id] == 0 {
			return eventNotFound(id)
		}
		out = cloneRecorded(p.at(p.byID[id]), true)
		return nil
	})
	return out, err
}

// EventsOfStream implements ports.EventReader. A limit of 0 reads to the end.
func (s *Store) EventsOfStream(ctx context.Context, id event.PartitionID, stream event.StreamID, from event.Version, limit int) ([]event.Recorded, error) {
	out := []event.Recorded{}
	err := s.read(ctx, id, func(p *partition) error {
		if p == nil {
			return nil
		}
		sequences := p.byStream[stream]
		for v := max(from, 1); v <= event.Version(len(sequences)) && !full(len(out), limit); v++ {
			out = append(out, cloneRecorded(p.at(sequences[v-1]), true))
		}
		return nil
	})
	return out, err
}

func full(n, limit int) bool { return limit > 0 && n >= limit }

// candidates are the ascending sequences inside the query's bounds, through the
// key index when a key is asked for.
func (p *partition) candidates(q *ports.EventQuery) []event.Sequence {
	low, high := event.Sequence(0), event.Sequence(len(p.events)) // low < n <= high
	if q.Until != 0 {
		high = min(high, q.Until)
	}
	switch {
	case q.Direction == ports.Forward:
		low = q.After
	case q.After != 0:
		high = min(high, q.After-1)
	}
	if q.From != 0 {
		low = max(low, q.From-1)
	}
	if q.To != 0 {
		high = min(high, q.To)
	}
	if low >= high {
		return nil
	}
	if q.Key != "" {
		list := following(p.byKey[q.Key], low)
		end, _ := slices.BinarySearch(list, high+1)
		return list[:end]
	}
	list := make([]event.Sequence, 0, high-low)
	for n := low + 1; n <= high; n++ {
		list = append(list, n)
	}
	return list
}

func selects(q *ports.EventQuery, e *event.Recorded) bool {
	return (len(q.Types) == 0 || slices.Contains(q.Types, e.Type)) &&
		(q.CorrelationID == "" || q.CorrelationID == e.CorrelationID) &&
		(q.ActorID == "" || q.ActorID == e.ActorID) &&
		within(e.OccurredAt, q.OccurredFrom, q.OccurredTo) &&
		within(e.RecordedAt, q.RecordedFrom, q.RecordedTo) &&
		(q.EffectiveFrom == nil || e.EffectiveDate >= *q.EffectiveFrom) &&
		(q.EffectiveTo == nil || e.EffectiveDate <= *q.EffectiveTo) &&
		selectsMore(q, e)
}

// within reports from <= t < to; a zero bound is open.
func within(t, from, to time.Time) bool {
	return (from.IsZero() || !t.Before(from)) && (to.IsZero() || t.Before(to))
}

// Head implements ports.EventReader.
func (s *Store) Head(ctx context.Context, id event.PartitionID) (h ports.Head, err error) {
	err = s.read(ctx, id, func(p *partition) error {
		if p == nil {
			return unknownLegalEntity()
		}
		h = p.head()
		return nil
	})
	return h, err
}

// Heads implements ports.EventReader.
func (s *Store) Heads(ctx context.Context, partitions []event.PartitionID) (map[event.PartitionID]ports.Head, error) {
	out := make(map[event.PartitionID]ports.Head, len(partitions))
	for _, id := range partitions {
		if err := s.read(ctx, id, func(p *partition) error {
			if p != nil {
				out[id] = p.head()
			}
			return nil
		}); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// SequenceAt implements ports.EventReader.
func (s *Store) SequenceAt(ctx context.Context, id event.PartitionID, t time.Time) (n event.Sequence, err error) {
	err = s.read(ctx, id, func(p *partition) error {
		if p == nil {
			return nil
		}
		// recorded_at never goes backwards, so the events are sorted by it.
		n = event.Sequence(sort.Search(len(p.events), func(i int) bool { return p.events[i].RecordedAt.After(t) }))
		return nil
	})
	return n, err
}

// Lineage implements ports.CausalityReader. maxDepth counts the causes that are
// followed; the event itself is always there.
func (s *Store) Lineage(ctx context.Context, partitionID event.PartitionID, id event.ID, maxDepth, bytes int) (chain []event.Recorded, truncated bool, err error) {
	err = s.read(ctx, partitionID, func(p *partition) error {
		if p == nil || p.byID[id] == 0 {
			return eventNotFound(id)
		}
		for n := p.byID[id]; ; {
			e := p.at(n)
			chain = append(chain, cloneRecorded(e, true))
			cause := p.byID[e.CausedBy]
			// A cause is older than its effect; anything else would be a circle.
			if e.CausedByPartition != 0 || cause == 0 || cause >= n {
				break
			}
			if len(chain) > maxDepth {
				truncated = true
				break
			}
			n = cause
		}
		kept := withinBytes(chain, bytes, nil)
		truncated = truncated || len(kept) < len(chain)
		chain = kept
		slices.Reverse(chain)
		return nil
	})
	return chain, truncated, err
}

// Intent implements ports.IntentReader.
func (s *Store) Intent(ctx context.Context, partitionID event.PartitionID, id event.ID) (out intent.Intent, err error) {
	err = s.read(ctx, partitionID, func(p *partition) error {
		if p != nil {
			if in, ok := p.intents[id]; ok {
				out = cloneIntent(in)
				return nil
			}
		}
		return fault.New(fault.NotFound, "intent.not_found", "there is no intent %s in this legal entity; check the id and the legal entity", id)
	})
	return out, err
}

// WaitingIntents implements ports.IntentReader. A limit of 0 lists all.
func (s *Store) WaitingIntents(ctx context.Context, id event.PartitionID, limit int) ([]intent.Intent, error) {
	out := []intent.Intent{}
	err := s.read(ctx, id, func(p *partition) error {
		if p == nil {
			return nil
		}
		for _, in := range p.intents {
			if in.Status == intent.PendingApproval {
				out = append(out, cloneIntent(in))
			}
		}
		slices.SortFunc(out, func(a, b intent.Intent) int {
			if c := a.CreatedAt.Compare(b.CreatedAt); c != 0 {
				return c
			}
			return a.ID.Compare(b.ID)
		})
		if full(len(out), limit) {
			out = out[:limit]
		}
		return nil
	})
	return out, err
}

// ChainPage implements ports.ChainReader. A limit of 0 reads to the end.
func (s *Store) ChainPage(ctx context.Context, id event.PartitionID, after event.Sequence, limit int) ([]event.Recorded, error) {
	return s.Events(ctx, ports.EventQuery{Partition: id, After: after, Limit: limit})
}
