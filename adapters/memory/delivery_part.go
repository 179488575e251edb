package memory

import (
	"context"
	"maps"
	"slices"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/subscription"
)

// filterOpen lists the open messages that something holds for, by sequence.
func (d *deliveryTx) filterOpen(holds func(*subscription.Message) bool) []subscription.Message {
	out := []subscription.Message{}
	for _, n := range slices.Sorted(maps.Keys(d.messages)) {
		if m := d.messages[n]; m.State != subscription.ParkedState && holds(&m) {
			out = append(out, m)
		}
	}
	return out
}

func (d *deliveryTx) OpenByEvent(_ context.Context, events []event.ID) ([]subscription.Message, error) {
	return d.filterOpen(func(m *subscription.Message) bool { return slices.Contains(events, m.EventID) }), nil
}

func (d *deliveryTx) Delivered(context.Context) ([]subscription.Message, error) {
	return d.filterOpen(func(m *subscription.Message) bool { return m.State != subscription.Waiting }), nil
}

func (d *deliveryTx) Waiting(_ context.Context, after event.Sequence, except []subscription.HeldKey, limit int) ([]subscription.Message, error) {
	out := d.filterOpen(func(m *subscription.Message) bool {
		held := func(k subscription.HeldKey) bool { return k.Key == m.Key && m.Sequence > k.After }
		return m.State == subscription.Waiting && m.Sequence > after && !slices.ContainsFunc(except, held)
	})
	return out[:min(limit, len(out))], nil
}

func (d *deliveryTx) CountWaiting(context.Context) (int, error) {
	return len(d.filterOpen(func(m *subscription.Message) bool { return m.State == subscription.Waiting })), nil
}

func (d *deliveryTx) LowestOpen(_ context.Context, limit int) ([]event.Sequence, error) {
	out := []event.Sequence{}
	for _, m := range d.filterOpen(func(*subscription.Message) bool { return true }) {
		if len(out) < limit {
			out = append(out, m.Sequence)
		}
	}
	return out, nil
}

// PartitionsWithOpen implements ports.Deliveries.
func (s *Store) PartitionsWithOpen(ctx context.Context, uid event.ID, in []event.PartitionID, events []event.ID) ([]event.PartitionID, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.subs.mu.Lock()
	defer s.subs.mu.Unlock()
	out := []event.PartitionID{}
	k := s.subs.byUID[uid]
	if k == nil {
		return out, nil
	}
	for p, d := range k.cursors {
		if len(in) > 0 && !slices.Contains(in, p) {
			continue
		}
		for _, m := range d.messages {
			if m.State != subscription.ParkedState && slices.Contains(events, m.EventID) {
				out = append(out, p)
				break
			}
		}
	}
	slices.Sort(out)
	return out, nil
}
