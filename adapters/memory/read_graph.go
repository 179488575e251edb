package memory

import (
	"context"

	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

var _ ports.MatchReader = (*Store)(nil)

// Descendants implements ports.CausalityReader. A limit of 0 reads to the end.
func (s *Store) Descendants(ctx context.Context, q ports.DescendantQuery) (found []ports.Descendant, more bool, err error) {
	found = []ports.Descendant{}
	err = s.read(ctx, q.Partition, func(p *partition) error {
		if p == nil {
			return nil
		}
		effects, bytes := p.effects(q.Partition), 0
		level := map[event.Sequence]bool{}
		for _, c := range q.Causes {
			for _, n := range effects[c] {
				level[n] = true
			}
		}
		for depth := 1; depth <= q.MaxDepth && len(level) > 0; depth++ {
			next := map[event.Sequence]bool{}
			for n := event.Sequence(1); n <= event.Sequence(len(p.events)); n++ {
				if !level[n] {
					continue
				}
				if full(len(found), q.Limit) {
					more = true
					return nil
				}
				e := cloneRecorded(p.at(n), !q.WithoutData)
				if bytes += len(e.Payload); q.Bytes > 0 && bytes > q.Bytes && len(found) > 0 {
					more = true
					return nil
				}
				found = append(found, ports.Descendant{Event: e, Depth: depth})
				if n != q.Stop {
					for _, effect := range effects[ports.Cause{Partition: q.Partition, ID: e.ID}] {
						next[effect] = true
					}
				}
			}
			level = next
		}
		return nil
	})
	return found, more, err
}

// effects lists what each cause led to in this partition.
func (p *partition) effects(own event.PartitionID) map[ports.Cause][]event.Sequence {
	out := map[ports.Cause][]event.Sequence{}
	for i := range p.events {
		e := &p.events[i]
		if e.CausedBy == (event.ID{}) {
			continue
		}
		c := ports.Cause{Partition: own, ID: e.CausedBy}
		if e.CausedByPartition != 0 {
			c.Partition = e.CausedByPartition
		}
		out[c] = append(out[c], e.Sequence)
	}
	return out
}

// Matches implements ports.MatchReader.
func (s *Store) Matches(ctx context.Context, q ports.MatchQuery) (ports.MatchPage, error) {
	page := ports.MatchPage{Matches: []ports.Match{}, Through: max(q.After, q.Until)}
	err := s.read(ctx, q.Partition, func(p *partition) error {
		if p == nil {
			return nil
		}
		bytes := 0
		lists := make([][][]event.Sequence, len(q.Items))
		for i := range q.Items {
			for _, key := range q.Items[i].Keys() {
				lists[i] = append(lists[i], p.byKey[key])
			}
		}
		for n := q.After + 1; n <= min(q.Until, event.Sequence(len(p.events))); n++ {
			items := p.matching(q.Items, lists, n)
			if len(items) == 0 {
				continue
			}
			if full(len(page.Matches), max(q.Limit, 1)) {
				page.Through = page.Matches[len(page.Matches)-1].Event.Sequence
				return nil
			}
			e := cloneRecorded(p.at(n), !q.WithoutData)
			if bytes += len(e.Payload); q.Bytes > 0 && bytes > q.Bytes && len(page.Matches) > 0 {
				page.Through = page.Matches[len(page.Matches)-1].Event.Sequence
				return nil
			}
			page.Matches = append(page.Matches, ports.Match{Event: e, Items: items})
		}
		return nil
	})
	return page, err
}

// matching are the places of the items that the event matches.
func (p *partition) matching(items []concurrency.Item, lists [][][]event.Sequence, n event.Sequence) []int {
	var out []int
	for i := range items {
		if p.hasType(n, items[i].Types) && inAll(lists[i], n) {
			out = append(out, i)
		}
	}
	return out
}
