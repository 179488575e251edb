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

// checkLifecycleEvent refuses lifecycle events of streams from intents and from callers:
// only the log itself writes them, together with the change that they record.
func checkLifecycleEvent(d *event.Draft, b *module.Batch) error {
	action := event.AppendToStream
	if d.Change != nil {
		action = d.Change.Action
	}
	if action == stream.ActionOf(d.Type) && (action == event.AppendToStream || b.IntentID == event.ID{}) {
		return nil
	}
	return fault.New(fault.Forbidden, "stream.event_reserved", "events of type %s are written by the log itself; change the stream through /api/streams/{type}/{id}", d.Type).WithField("/type")
}

// streamRecreator adds recreation events for the deleted streams that a batch writes to.
// Which streams are deleted is known under the append lock only, so it learns them from
// the faults of earlier tries.
type streamRecreator struct {
	batch       module.Batch     // that the recreation events belong to
	allowed     []event.StreamID // may be recreated
	pending     []event.StreamID // are recreated by the next try, in this order
	notDeleted  []event.StreamID // were not deleted when their recreation was tried
	retriesLeft int
}

// newStreamRecreator allows the streams of the batch that the batch does not expect to
// exist. A batch with lifecycle events recreates nothing.
func newStreamRecreator(b module.Batch, demands []concurrency.StreamExpectation) *streamRecreator {
	r := &streamRecreator{batch: b}
	r.batch.EventIDs = nil
	for i := range b.Drafts {
		id := b.Drafts[i].Stream
		if b.Drafts[i].Change != nil {
			return &streamRecreator{}
		}
		exists := concurrency.StreamExpectation{Stream: id, Expected: concurrency.StreamExists()}
		if !slices.Contains(r.allowed, id) && !slices.Contains(demands, exists) {
			r.allowed = append(r.allowed, id)
		}
	}
	// Other writers may delete a stream again, or recreate it first, between two tries.
	r.retriesLeft = 2*len(r.allowed) + 4
	return r
}

// prepend puts the pending recreation events before the prepared events.
func (r *streamRecreator) prepend(ctx context.Context, p *Preparer, events []event.Prepared) ([]event.Prepared, error) {
	if len(r.pending) == 0 {
		return events, nil
	}
	b := r.batch
	b.Drafts = make([]event.Draft, len(r.pending))
	for i, id := range r.pending {
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

// learnFrom changes the pending recreations after a fault of an append and reports whether to
// retry it with them.
func (r *streamRecreator) learnFrom(err error) (retry bool) {
	f, ok := fault.As(err)
	if !ok || r.retriesLeft == 0 {
		return false
	}
	name, _ := f.Attributes["stream"].(string)
	hasName := func(id event.StreamID) bool { return id.String() == name }
	switch f.Code {
	case concurrency.CodeStreamDeleted:
		untried := func(id event.StreamID) bool { return hasName(id) && !slices.Contains(r.pending, id) }
		// The fault names a stream as type/id, so type a/b with id c and type a with id b/c
		// have one name. The candidate that was found not deleted is tried last.
		i := slices.IndexFunc(r.allowed, func(id event.StreamID) bool { return untried(id) && !slices.Contains(r.notDeleted, id) })
		if i < 0 {
			if i = slices.IndexFunc(r.allowed, untried); i < 0 {
				return false
			}
		}
		r.pending = append(r.pending, r.allowed[i])
	case concurrency.CodeStreamNotDeleted:
		if !slices.ContainsFunc(r.pending, hasName) {
			return false
		}
		r.notDeleted = append(r.notDeleted, slices.DeleteFunc(slices.Clone(r.pending), func(id event.StreamID) bool { return !hasName(id) })...)
		r.pending = slices.DeleteFunc(r.pending, hasName)
	default:
		return false
	}
	r.retriesLeft--
	return true
}

// dropRecreations removes the receipts of recreation events.
func dropRecreations(receipts []ports.AppendedEvent) []ports.AppendedEvent {
	return slices.DeleteFunc(receipts, func(e ports.AppendedEvent) bool { return e.Type == stream.Recreated })
}
