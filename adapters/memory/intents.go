package memory

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// Intents reads intents and the outcomes of idempotency keys.
type Intents struct{ *state }

// Intent implements ports.IntentReader.
func (s *Intents) Intent(ctx context.Context, partitionID event.PartitionID, id event.ID) (intent.Intent, error) {
	return readPartition(ctx, s.state, partitionID, func(p *partition) (intent.Intent, error) {
		in, ok := p.intents[id]
		if !ok {
			return in, intent.NotFound(id)
		}
		return cloneIntent(in), nil
	})
}

// WaitingIntents implements ports.IntentReader.
func (s *Intents) WaitingIntents(ctx context.Context, id event.PartitionID, limit int) ([]intent.Intent, error) {
	return readPartition(ctx, s.state, id, func(p *partition) ([]intent.Intent, error) {
		waiting := list(maps.Values(p.intents), func(in intent.Intent) bool { return in.Status == intent.PendingApproval }, func(a, b intent.Intent) int {
			return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), a.ID.Compare(b.ID))
		})
		for i := range waiting {
			waiting[i] = cloneIntent(waiting[i])
		}
		return first(waiting, limit), nil
	})
}

// ListIntents implements ports.IntentReader.
func (s *Intents) ListIntents(ctx context.Context, q ports.IntentQuery) ([]intent.Intent, error) {
	return readPartition(ctx, s.state, q.Partition, func(p *partition) ([]intent.Intent, error) {
		found := list(maps.Values(p.intents), func(in intent.Intent) bool {
			return (q.Status == "" || in.Status == q.Status) && in.ID.Compare(q.After) > 0 && (q.Before == event.ID{} || in.ID.Compare(q.Before) < 0)
		}, func(a, b intent.Intent) int { return a.ID.Compare(b.ID) })
		if q.Direction == ports.Backward {
			slices.Reverse(found)
		}
		found = first(found, q.Limit)
		for i := range found {
			found[i] = cloneIntent(found[i])
			found[i].Payload, found[i].Rules = nil, nil
		}
		return found, nil
	})
}

// HasRedactions implements ports.IntentReader.
func (s *Intents) HasRedactions(ctx context.Context, in *intent.Intent) (bool, error) {
	return get(ctx, s.state, func() (bool, error) {
		last := in.FirstSequence + event.Sequence(in.EventCount) - 1
		return in.EventCount > 0 && s.entityRedactions(in.Partition, last) > s.entityRedactions(in.Partition, in.FirstSequence-1), nil
	})
}

// IntentSequences implements ports.IntentAudit.
func (s *Intents) IntentSequences(ctx context.Context, p event.PartitionID, ids []event.ID) (map[event.ID]event.Sequence, error) {
	return readPartition(ctx, s.state, p, func(p *partition) (map[event.ID]event.Sequence, error) {
		out := map[event.ID]event.Sequence{}
		for _, id := range ids {
			if in, ok := p.intents[id]; ok {
				out[id] = in.LastSequence
			}
		}
		return out, nil
	})
}

// PersonalIntentRows implements ports.IntentAudit.
func (s *Intents) PersonalIntentRows(ctx context.Context, in event.PartitionID, subjects []string, ids []event.ID) ([]ports.PersonalIntent, error) {
	return readPartition(ctx, s.state, in, func(p *partition) (out []ports.PersonalIntent, err error) {
		for i, subject := range subjects {
			for noted := range p.intentSubjects[shredding.Subject(subject)] {
				row := ports.PersonalIntent{IntentID: ids[i], Subject: subject, KeyClass: uint8(noted.class)}
				if noted.id == ids[i] && !slices.Contains(out, row) {
					out = append(out, row)
				}
			}
		}
		return out, nil
	})
}

// BoundIntents implements ports.IntentAudit.
func (s *Intents) BoundIntents(ctx context.Context, p event.PartitionID, after event.ID, limit int) ([]ports.BoundIntent, error) {
	return readPartition(ctx, s.state, p, func(p *partition) ([]ports.BoundIntent, error) {
		page := first(list(maps.Values(p.intents), func(in intent.Intent) bool { return in.ID.Compare(after) > 0 }, func(a, b intent.Intent) int {
			return a.ID.Compare(b.ID)
		}), limit)
		out := make([]ports.BoundIntent, len(page))
		for i, in := range page {
			out[i].Intent = cloneIntent(in)
			if n := in.LastSequence; n > 0 && n <= p.head().Sequence {
				e := p.at(n)
				out[i].EventIntent, out[i].EventType, out[i].EventPayload = e.IntentID, e.Type, clone(e.Payload)
			}
		}
		return out, nil
	})
}

// IdempotencyOutcome implements ports.IdempotencyReader.
func (s *Intents) IdempotencyOutcome(ctx context.Context, id event.PartitionID, key string, now time.Time) (o ports.IdempotencyOutcome, found bool, err error) {
	err = s.read(ctx, id, func(p *partition) error {
		row, known := p.idempotency[key]
		if found = known && now.Before(row.expiresAt); found {
			o = row.outcome
		}
		return nil
	})
	return o, found, err
}

// checkIntent is the first check that the port promises; subject keys come second.
func (p *partition) checkIntent(w *ports.IntentWrite) error {
	// The zero intent of an unknown id has revision 0, which is what an insert expects.
	if w != nil && p.intents[w.Intent.ID].Revision != w.ExpectedRevision {
		return concurrency.IntentChanged(w.Intent.ID)
	}
	return nil
}

func storedIntent(partition event.PartitionID, w *ports.IntentWrite, made ports.IdempotencyOutcome) intent.Intent {
	in := cloneIntent(w.Intent)
	in.Partition = partition
	in.Revision = w.ExpectedRevision + 1
	in.CreatedAt, in.UpdatedAt = event.Micros(in.CreatedAt), event.Micros(in.UpdatedAt)
	in.LastSequence = 0
	if made.EventCount > 0 {
		in.LastSequence = made.FirstSequence + event.Sequence(made.EventCount) - 1
	}
	if n := made.EventCount - w.EventsAbout; n > 0 {
		in.FirstSequence, in.EventCount = made.FirstSequence, n
	}
	return in
}

// DeleteExpiredIdempotencyKeys removes the keys that have no effect any more, and returns their
// number.
func (s *Intents) DeleteExpiredIdempotencyKeys(ctx context.Context, now time.Time) (deleted int64, err error) {
	err = s.do(ctx, func() error {
		for _, p := range s.partitions {
			maps.DeleteFunc(p.idempotency, func(_ string, row idempotencyRow) bool {
				expired := !now.Before(row.expiresAt)
				if expired {
					deleted++
				}
				return expired
			})
		}
		return nil
	})
	return deleted, err
}
