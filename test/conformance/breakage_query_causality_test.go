package conformance_test

import (
	"context"
	"slices"

	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/conformance"
)

// graphBroken breaks queries of matches and descendants, and their results.
type graphBroken struct {
	*wrapper
	match func(q *ports.MatchQuery)
	page  func(q ports.MatchQuery, page *ports.MatchPage)
	cause func(q *ports.DescendantQuery)
}

func (s *graphBroken) Matches(ctx context.Context, q ports.MatchQuery) (ports.MatchPage, error) {
	if s.match != nil {
		s.match(&q)
	}
	page, err := s.wrapper.Matches(ctx, q)
	if err == nil && s.page != nil {
		s.page(q, &page)
	}
	return page, err
}

func (s *graphBroken) Descendants(ctx context.Context, q ports.DescendantQuery) ([]ports.Descendant, bool, error) {
	if s.cause != nil {
		s.cause(&q)
	}
	return s.wrapper.Descendants(ctx, q)
}

func matchFirstKey(w *wrapper) conformance.Store {
	return &graphBroken{wrapper: w, match: func(q *ports.MatchQuery) {
		q.Items = slices.Clone(q.Items)
		for i, item := range q.Items {
			q.Items[i] = concurrency.Item{Types: item.Types, Tags: item.Tags[:min(1, len(item.Tags))]}
		}
	}}
}

// matchTooFar reports one event more as covered than it has read.
func matchTooFar(w *wrapper) conformance.Store {
	return &graphBroken{wrapper: w, page: func(q ports.MatchQuery, page *ports.MatchPage) {
		page.Through = min(page.Through+1, max(q.After, q.Until))
	}}
}

func ignorePartitionOfCause(w *wrapper) conformance.Store {
	return &graphBroken{wrapper: w, cause: func(q *ports.DescendantQuery) {
		q.Causes = slices.Clone(q.Causes)
		for i := range q.Causes {
			q.Causes[i].Partition = q.Partition
		}
	}}
}

func endlessCircle(w *wrapper) conformance.Store {
	return &graphBroken{wrapper: w, cause: func(q *ports.DescendantQuery) { q.Stop = 0 }}
}

// endlessLineage answers lineages of any size.
type endlessLineage struct{ *wrapper }

func (s *endlessLineage) Lineage(ctx context.Context, p event.PartitionID, id event.ID, maxDepth, _ int) ([]event.Recorded, bool, error) {
	return s.wrapper.Lineage(ctx, p, id, maxDepth, 0)
}

func longLineage(w *wrapper) conformance.Store { return &endlessLineage{w} }
