package memory

import (
	"context"
	"slices"

	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/ports"
)

// Intent implements ports.IntentReader.
func (s *Intents) Intent(ctx context.Context, partitionID event.PartitionID, id event.ID) (out intent.Intent, err error) {
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
func (s *Intents) WaitingIntents(ctx context.Context, id event.PartitionID, limit int) ([]intent.Intent, error) {
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

// checkIntent comes first of what the port promises to check, subject keys second.
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
	if made.EventCount > 0 {
		in.FirstSequence, in.EventCount = made.FirstSequence, made.EventCount
	}
	return in
}
