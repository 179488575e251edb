package memory

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/ports"
)

func filterParked(messages map[event.Sequence]subscription.Message, q ports.ParkedQuery) []subscription.Message {
	out := []subscription.Message{}
	for _, n := range slices.Sorted(maps.Keys(messages)) {
		m := messages[n]
		if m.State == subscription.ParkedState && n > q.After && (q.Code == "" || m.Code == q.Code) &&
			(len(q.EventIDs) == 0 || slices.Contains(q.EventIDs, m.EventID)) && !full(len(out), q.Limit) {
			out = append(out, m)
		}
	}
	return out
}

// ParkedMessages implements ports.SubscriptionDeadLetters.
func (s *Store) ParkedMessages(ctx context.Context, uid event.ID, partitions []event.PartitionID, from event.PartitionID, q ports.ParkedQuery) ([]ports.ParkedMessage, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.subs.mu.Lock()
	defer s.subs.mu.Unlock()
	out := []ports.ParkedMessage{}
	k := s.subs.byUID[uid]
	if k == nil {
		return out, nil
	}
	sorted := slices.Clone(partitions)
	slices.Sort(sorted)
	for _, p := range sorted {
		if d := k.cursors[p]; d != nil && p >= from {
			one := q
			if p > from {
				one.After = 0
			}
			for _, m := range filterParked(d.messages, one) {
				if !full(len(out), q.Limit) {
					out = append(out, ports.ParkedMessage{Partition: p, Message: m})
				}
			}
		}
	}
	return out, nil
}

// ParkedGroups implements ports.SubscriptionDeadLetters.
func (s *Store) ParkedGroups(ctx context.Context, uid event.ID, partitions []event.PartitionID) ([]ports.ParkedGroup, error) {
	all, err := s.ParkedMessages(ctx, uid, partitions, 0, ports.ParkedQuery{})
	if err != nil {
		return nil, err
	}
	groups := map[string]*ports.ParkedGroup{}
	for _, m := range all {
		g := groups[m.Code]
		if g == nil {
			g = &ports.ParkedGroup{Code: m.Code, First: m.ChangedAt, Last: m.ChangedAt}
			groups[m.Code] = g
		}
		g.Messages++
		if m.ChangedAt.Before(g.First) {
			g.First = m.ChangedAt
		}
		if m.ChangedAt.After(g.Last) {
			g.Last = m.ChangedAt
		}
	}
	out := []ports.ParkedGroup{}
	for _, g := range groups {
		out = append(out, *g)
	}
	slices.SortFunc(out, func(a, b ports.ParkedGroup) int {
		return cmp.Or(cmp.Compare(b.Messages, a.Messages), cmp.Compare(a.Code, b.Code))
	})
	return out, nil
}

// Decisions implements ports.SubscriptionDeadLetters.
func (s *Store) Decisions(ctx context.Context, tenantID, id string, partitions []event.PartitionID, limit int) ([]ports.ParkedDecision, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.subs.mu.Lock()
	defer s.subs.mu.Unlock()
	out := []ports.ParkedDecision{}
	for _, d := range s.subs.decisions {
		if d.TenantID == tenantID && d.Subscription == id && slices.Contains(partitions, d.Partition) {
			out = append(out, d)
		}
	}
	slices.SortFunc(out, func(a, b ports.ParkedDecision) int { return b.ID.Compare(a.ID) })
	if full(len(out), limit) {
		out = out[:limit]
	}
	return out, nil
}
