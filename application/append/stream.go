package append

import (
	"context"
	"slices"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/stream"
	"github.com/erpbackbone/backbone/ports"
)

// checkChange keeps the events that change a stream to the log itself: they come
// with their change, and never from an intent.
func checkChange(d *event.Draft, b *module.Batch) error {
	action := event.AppendToStream
	if d.Change != nil {
		action = d.Change.Action
	}
	if action == stream.ActionOf(d.Type) && (action == event.AppendToStream || b.IntentID == event.ID{}) {
		return nil
	}
	return fault.New(fault.Forbidden, "stream.event_reserved", "events of type %s are written by the log itself; change the stream through /api/streams/{type}/{id}", d.Type).WithField("/type")
}

// recreations are the deleted streams that a batch begins anew.
type recreations struct {
	batch   module.Batch // of the recreations, in the order of streams
	allowed []event.StreamID
	streams []event.StreamID
	refused []event.StreamID // were not deleted when their recreation was tried
	left    int              // how often the batch may still be tried
}

// newRecreations allows the streams of the batch that it does not demand to exist.
// Whoever changes a stream means it as it is.
func newRecreations(b module.Batch, demands []concurrency.StreamExpectation) *recreations {
	r := &recreations{batch: b}
	r.batch.EventIDs = nil
	for i := range b.Drafts {
		id := b.Drafts[i].Stream
		if b.Drafts[i].Change != nil {
			return &recreations{}
		}
		exists := concurrency.StreamExpectation{Stream: id, Expected: concurrency.StreamExists()}
		if !slices.Contains(r.allowed, id) && !slices.Contains(demands, exists) {
			r.allowed = append(r.allowed, id)
		}
	}
	// Others may delete a stream again, or recreate it first, between two tries.
	r.left = 2*len(r.allowed) + 4
	return r
}

// before puts the recreations before the prepared events.
func (r *recreations) before(ctx context.Context, p *Preparer, events []event.Prepared) ([]event.Prepared, error) {
	if len(r.streams) == 0 {
		return events, nil
	}
	b := r.batch
	b.Drafts = make([]event.Draft, len(r.streams))
	for i, id := range r.streams {
		first := r.batch.Drafts[slices.IndexFunc(r.batch.Drafts, func(d event.Draft) bool { return d.Stream == id })]
		b.Drafts[i] = event.Draft{
			Type: stream.Recreated, Stream: id, EffectiveDate: first.EffectiveDate, Scope: first.Scope, CorrelationID: first.CorrelationID, Source: first.Source,
			Change: &event.StreamChange{Action: event.RecreateStream},
		}
	}
	out, err := p.Prepare(ctx, b)
	if err != nil {
		return nil, err
	}
	return append(out, events...), nil
}

// learn looks whether trying again with other recreations can help.
func (r *recreations) learn(err error) bool {
	f, ok := fault.As(err)
	if !ok || r.left == 0 {
		return false
	}
	name, _ := f.Attributes["stream"].(string)
	named := func(id event.StreamID) bool { return id.String() == name }
	switch f.Code {
	case concurrency.CodeStreamDeleted:
		untried := func(id event.StreamID) bool { return named(id) && !slices.Contains(r.streams, id) }
		// a/b and c is written like a and b/c: the one that was refused is not tried again
		// before the other.
		i := slices.IndexFunc(r.allowed, func(id event.StreamID) bool { return untried(id) && !slices.Contains(r.refused, id) })
		if i < 0 {
			if i = slices.IndexFunc(r.allowed, untried); i < 0 {
				return false
			}
		}
		r.streams = append(r.streams, r.allowed[i])
	case concurrency.CodeStreamNotDeleted:
		if !slices.ContainsFunc(r.streams, named) {
			return false
		}
		r.refused = append(r.refused, slices.DeleteFunc(slices.Clone(r.streams), func(id event.StreamID) bool { return !named(id) })...)
		r.streams = slices.DeleteFunc(r.streams, named)
	default:
		return false
	}
	r.left--
	return true
}

// withoutRecreations leaves the receipts of the batch's own events.
func withoutRecreations(receipts []ports.AppendedEvent) []ports.AppendedEvent {
	return slices.DeleteFunc(receipts, func(e ports.AppendedEvent) bool { return e.Type == stream.Recreated })
}
