package query

import (
	"context"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// MatchQuery asks for the events that a decision depends on.
type MatchQuery struct {
	Entity ports.LegalEntity
	Items  []concurrency.Item
	After  event.Sequence // events up to here were read before
	Limit  int
}

// MatchPage is a page of events and the condition that guards them.
type MatchPage struct {
	Events  []event.Recorded
	HasMore bool
	// Condition states that no event matches except those already read. Its After is the
	// sequence that the search has reached (on the last page the head) and is the After of
	// the next page's query. An append with the condition of an earlier page is refused if
	// later pages have events, so a reader that stops early cannot decide on part of them.
	Condition concurrency.AppendCondition
}

// LimitItems limits items of a query or an append condition to the event types that the
// caller sees. Items that select none of them are left out, so that neither a query nor a
// condition tells whether other events exist.
func LimitItems(sight module.Sight, items []concurrency.Item) []concurrency.Item {
	if sight.IsFull() {
		return items
	}
	var out []concurrency.Item
	for _, item := range items {
		if item.Types = sight.Limit(item.Types); len(item.Types) > 0 {
			out = append(out, item)
		}
	}
	return out
}

// Match reads a page of events that match any of the items. Faults:
// query.after_beyond_head, legal_entity.not_found.
func (s *Service) Match(ctx context.Context, q MatchQuery) (MatchPage, error) {
	// The head is read first, so that the search sees everything up to it.
	head, err := s.events.Head(ctx, q.Entity.Partition)
	if err != nil {
		return MatchPage{}, err
	}
	if q.After > head.Sequence {
		return MatchPage{}, fault.New(fault.Invalid, "query.after_beyond_head",
			"after lies beyond the last event, as after a failover that lost the end of the log; query again without it").WithField("/after")
	}
	sight, err := module.SightOf(ctx)
	if err != nil {
		return MatchPage{}, err
	}
	visible := LimitItems(sight, q.Items)
	if len(visible) == 0 {
		return MatchPage{Events: []event.Recorded{}, Condition: concurrency.AppendCondition{Items: q.Items, After: head.Sequence}}, nil
	}
	found, err := s.events.Matches(ctx, ports.MatchQuery{
		Partition: q.Entity.Partition, Items: visible, After: q.After, Until: head.Sequence, Limit: q.Limit, Bytes: MaxPageBytes,
	})
	if err != nil {
		return MatchPage{}, err
	}
	page := MatchPage{
		Events: make([]event.Recorded, len(found.Matches)), HasMore: found.Through < head.Sequence,
		Condition: concurrency.AppendCondition{Items: q.Items, After: found.Through},
	}
	for i := range found.Matches {
		page.Events[i] = found.Matches[i].Event
	}
	return page, nil
}
