package module

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/jsondoc"
	"github.com/erpbackbone/backbone/ports"
)

// Projector folds the events that match any of its items into one state.
type Projector struct {
	Items []concurrency.Item
	// Apply is called once for each event, by sequence. data is the payload's "data"
	// member, nil after the payload was deleted.
	Apply func(e event.Recorded, data []byte) error
	// WithoutData says that Apply needs no data: where this is true of all projectors of a decision, the payloads are not read,
	// which may be in the archive.
	WithoutData bool
}

// Project makes a Projector that folds events into *state, starting from its value.
func Project[S any](state *S, apply func(s S, e event.Recorded, data []byte) (S, error), items ...concurrency.Item) Projector {
	return Projector{Items: items, Apply: func(e event.Recorded, data []byte) error {
		next, err := apply(*state, e, data)
		if err == nil {
			*state = next
		}
		return err
	}}
}

// DecisionLog is the log that decisions read. An event store implements it.
type DecisionLog interface {
	Head(ctx context.Context, p event.PartitionID) (ports.Head, error)
	ports.MatchReader
}

// Decide brings projectors up to the newest committed event in one read and returns
// the condition under which their states are still current: no further event matches any
// of their items. An append with that condition takes effect only if the decision is still
// valid; after append.condition_failed the caller decides again with fresh states.
func Decide(ctx context.Context, log DecisionLog, p event.PartitionID, projectors ...Projector) (concurrency.AppendCondition, error) {
	var none concurrency.AppendCondition
	var items []concurrency.Item
	var owners []int // of each item
	for i, projector := range projectors {
		if len(projector.Items) == 0 {
			return none, errors.New("a projector of a decision has no items")
		}
		for range projector.Items {
			owners = append(owners, i)
		}
		items = append(items, projector.Items...)
	}
	if len(items) == 0 {
		return none, errors.New("a decision has no projectors")
	}
	// Read the head first: the search then finds every event up to it.
	head, err := log.Head(ctx, p)
	if err != nil {
		return none, err
	}
	needsData := slices.ContainsFunc(projectors, func(p Projector) bool { return !p.WithoutData })
	for m, err := range Matches(ctx, log, ports.MatchQuery{Partition: p, Items: items, Until: head.Sequence, WithoutData: !needsData}) {
		if err != nil {
			return none, err
		}
		var data []byte
		if m.Event.Payload != nil {
			if data, _, err = jsondoc.Member(m.Event.Payload, "data"); err != nil {
				return none, fmt.Errorf("payload of event %s: %w", m.Event.ID, err)
			}
		}
		last := -1 // m.Items ascend and so do their owners, so repeats are adjacent
		for _, item := range m.Items {
			if owners[item] == last {
				continue
			}
			last = owners[item]
			if err := projectors[last].Apply(m.Event, data); err != nil {
				return none, fmt.Errorf("project event %s: %w", m.Event.ID, err)
			}
		}
	}
	return concurrency.AppendCondition{Items: items, After: head.Sequence}, nil
}
