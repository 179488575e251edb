package fanout

import (
	"context"
	"errors"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// pageBytes bounds the payloads of one batch, unless its first event alone has more. A
// worker holds one batch.
const pageBytes = 8 << 20

// turn is the publication of one batch of one partition.
type turn struct {
	held      *heldPartition
	partition event.PartitionID
	term      uint64
	begun     bool
	through   event.Sequence
}

// result is a turn with its outcome.
type result struct {
	turn
	oldest             time.Time // recorded_at of the first event that is not published; zero: none known
	stored, duplicates int
	failures           int // in a row, as stored with the cursor when the turn began it
	err                error
}

// work publishes one batch. The cursor moves exactly over the events that the broker has
// stored, also when the batch fails in the middle.
func (d *Dispatcher) work(ctx context.Context, t turn) (r result) {
	r.turn = t
	if !t.begun {
		cursor, err := d.Cursors.BeginPublishing(ctx, d.Name, t.partition, t.term)
		if err != nil {
			r.err = err
			return r
		}
		r.begun, r.through, r.failures = true, cursor.PublishedThrough, cursor.Failures
	}
	events, err := d.Log.Events(ctx, ports.EventQuery{Partition: t.partition, After: r.through, Limit: d.Batch, Bytes: pageBytes})
	if err == nil && len(events) > 0 {
		r.oldest = events[0].RecordedAt
		err = d.publish(ctx, &r, events)
	}
	if err == nil {
		return r
	}
	r.err = err
	if code := fault.CodeOf(err); code != "publisher.fenced" && code != "publisher.cursor_moved" && ctx.Err() == nil {
		if failed := d.Cursors.RecordPublishFailure(ctx, d.Name, t.partition, t.term, code); fault.CodeOf(failed) == "publisher.fenced" {
			r.err = failed
		}
	}
	return r
}

func (d *Dispatcher) publish(ctx context.Context, r *result, events []event.Recorded) error {
	for i := range events {
		// The log has no gaps. If a page has one, the cursor must not pass the missing event.
		if want := r.through + 1 + event.Sequence(i); events[i].Sequence != want {
			return fault.New(fault.Internal, "publisher.gap", "event %d of partition %d is missing in what was read; verify the log", want, r.partition)
		}
	}
	messages, err := d.messages(ctx, events)
	if err != nil {
		return err
	}
	stored, duplicates, failure := d.send(ctx, events, messages)
	if stored > 0 {
		to := events[stored-1].Sequence
		if err := d.Cursors.MovePublished(ctx, d.Name, r.partition, r.term, r.through, to); err != nil {
			return err // the events are published again; the broker drops them within its duplicate window
		}
		r.through, r.stored, r.duplicates, r.oldest = to, stored, duplicates, time.Time{}
		if stored < len(events) {
			r.oldest = events[stored].RecordedAt
		}
	}
	return failure
}

// messages encodes events.
func (d *Dispatcher) messages(ctx context.Context, events []event.Recorded) ([]ports.Message, error) {
	bodies, err := d.Encoder.Encode(ctx, events, false)
	if err != nil {
		return nil, err
	}
	if len(bodies) != len(events) {
		return nil, fault.New(fault.Internal, "publisher.encoding", "%d events became %d documents; report this", len(events), len(bodies))
	}
	messages := make([]ports.Message, len(events))
	for i := range events {
		messages[i] = ports.Message{Skeleton: events[i].Skeleton, Body: bodies[i]}
	}
	return messages, nil
}

// send passes messages to the publisher. A message that is too large for the broker is sent
// as a reference, so that later events are not blocked; its data can be read over the API.
func (d *Dispatcher) send(ctx context.Context, events []event.Recorded, messages []ports.Message) (stored, duplicates int, err error) {
	for stored < len(messages) {
		done, err := d.Publisher.Publish(ctx, messages[stored:])
		if done.Stored < 0 || done.Stored > len(messages)-stored {
			return stored, duplicates, errors.New("publish: a publisher stored what it was not given")
		}
		stored += done.Stored
		duplicates += done.Duplicates
		switch {
		case stored == len(messages):
			return stored, duplicates, nil
		case err == nil:
			return stored, duplicates, fault.New(fault.Unavailable, "publisher.unavailable", "the broker did not confirm that it stored everything; it will be tried again")
		case fault.KindOf(err) != fault.TooLarge || messages[stored].Reference:
			return stored, duplicates, err
		}
		body, err := d.Encoder.Encode(ctx, events[stored:stored+1], true)
		if err != nil {
			return stored, duplicates, err
		}
		messages[stored].Body, messages[stored].Reference = body[0], true
	}
	return stored, duplicates, nil
}
