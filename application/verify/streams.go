package verify

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/stream"
	"github.com/erpbackbone/backbone/ports"
)

// Every append reads from the row of a stream its next version, whether the stream accepts
// events, and from whom. So verification compares the rows with the events in both
// directions: each event that begins or changes a stream with its row, and each row with
// the first and last event of its stream and the events that it refers to. Appends change
// rows while a run reads them, so a row may be newer than an event, never older.
//
// A log may have nearly as many streams as events, and reading the row of each is slow. So
// for the events up to the head the run only counts those that begin a stream. Every stream
// has at most one row: if all rows agree with the first event of their stream, and there are
// as many rows as events that begin a stream, no row is missing. Otherwise findMissingRows
// reads the row of each.

// streamPage is how many rows of streams one query reads.
const streamPage = 1000

// checkStreams compares the events of a page with the rows of their streams.
func (c *chain) checkStreams(ctx context.Context, store Store, events []event.Recorded) error {
	var marks []*event.Recorded
	for i := range events {
		e := &events[i]
		action := stream.ActionOf(e.Type)
		switch {
		case e.StreamVersion == 0 || e.StreamVersion > math.MaxInt64:
			c.add(StreamMismatch, e.Sequence, fmt.Sprintf("no event of the stream %s can have this version", e.Stream))
		case action == event.DescribeStream, action == event.RecreateStream, e.StreamVersion == 1 && e.Sequence > c.head.Sequence:
			marks = append(marks, e)
		}
		if e.StreamVersion == 1 && e.Sequence <= c.head.Sequence {
			c.begun++
		}
	}
	return c.compareRows(ctx, store, marks)
}

// compareRows compares events with the rows of their streams.
func (c *chain) compareRows(ctx context.Context, store Store, marks []*event.Recorded) error {
	if len(marks) == 0 {
		return nil
	}
	ids := make([]event.StreamID, len(marks))
	for i, e := range marks {
		ids[i] = e.Stream
	}
	rows, err := store.StreamRows(ctx, c.entity.Partition, ids)
	if err != nil {
		return err
	}
	of := make(map[event.StreamID]*ports.StreamRow, len(rows))
	for i := range rows {
		of[rows[i].Stream] = &rows[i]
	}
	for _, e := range marks {
		if detail := disagreement(e, of[e.Stream]); detail != "" {
			c.add(StreamMismatch, e.Sequence, detail)
		}
	}
	return nil
}

// findMissingRows reports the events up to the head that begin a stream whose row is
// missing or does not agree.
func (c *chain) findMissingRows(ctx context.Context, store Store) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for p := range readAhead(ctx, store, c.entity.Partition, 0) {
		var marks []*event.Recorded
		for i := range p.events {
			e := &p.events[i]
			action := stream.ActionOf(e.Type) // the walk has compared events with these actions
			if e.StreamVersion == 1 && e.Sequence <= c.head.Sequence && action != event.DescribeStream && action != event.RecreateStream {
				marks = append(marks, e)
			}
		}
		if err := c.compareRows(ctx, store, marks); err != nil {
			return err
		}
		if p.err != nil {
			return p.err
		}
		if n := len(p.events); n > 0 && p.events[n-1].Sequence >= c.head.Sequence {
			return nil
		}
	}
	return ctx.Err()
}

// disagreement describes how the row of a stream disagrees with one of its events, "" if it
// agrees.
func disagreement(e *event.Recorded, row *ports.StreamRow) string {
	if row == nil {
		return fmt.Sprintf("the stream %s of the event has no row", e.Stream)
	}
	if e.StreamVersion == 1 && row.First != e.Sequence {
		return fmt.Sprintf("the stream %s begins here, but its row says at %d", e.Stream, row.First)
	}
	switch stream.ActionOf(e.Type) {
	case event.RecreateStream:
		if row.ReadableFrom < e.StreamVersion {
			return fmt.Sprintf("the stream %s was recreated here, but its row shows earlier events", e.Stream)
		}
	case event.DescribeStream:
		if row.MetadataVersion < e.StreamVersion || row.MetadataVersion == e.StreamVersion && !sameSettings(e, row.Settings) {
			return fmt.Sprintf("the metadata of the stream %s are not those that were set here, or later", e.Stream)
		}
	}
	return ""
}

// sameSettings compares the stored settings of a stream with the event that set them. It
// accepts an event whose payload is unreadable or was changed, which other checks report:
// a redaction may have changed it, and the settings stay in force.
func sameSettings(e *event.Recorded, kept json.RawMessage) bool {
	if event.HashPayload(e.Salt, e.Payload) != e.PayloadHash {
		return true
	}
	var data struct {
		Metadata stream.Metadata `json:"metadata"`
	}
	if !decodeData(e, &data) {
		return true
	}
	want, _, err := data.Metadata.Settings()
	if err != nil {
		return true
	}
	m, err := stream.ParseSettings(kept)
	if err != nil {
		return false
	}
	have, _, err := m.Settings()
	return err == nil && bytes.Equal(want, have)
}

// streamRows is the result of comparing all rows with their events.
type streamRows struct {
	begun uint64 // rows of streams that begin up to the head
	FindingList
}

// readStreamRows compares all rows with the events. It runs in parallel with the walk.
func readStreamRows(ctx context.Context, store ports.ChainAudit, p event.PartitionID, head event.Sequence) (out streamRows, err error) {
	var from event.StreamID
	for more := true; more; {
		page, err := store.StreamRowsWithEnds(ctx, p, from, streamPage)
		if err != nil {
			return out, err
		}
		for i := range page.Rows {
			r := &page.Rows[i]
			if detail := contradiction(r); detail != "" {
				detail = fmt.Sprintf("the row of the stream %s does not agree with its events: %s", r.Stream, detail)
				out.add(Finding{Kind: StreamMismatch, Sequence: r.LastEvent, Detail: detail})
			}
		}
		from = page.Next
		more = from != event.StreamID{}
	}
	out.begun, err = store.CountStreamRows(ctx, p, head)
	return out, err
}

// contradiction describes how a row contradicts the events of its stream; "" if it does not.
func contradiction(r *ports.StreamRowWithEnds) string {
	state := event.StreamActive
	switch stream.ActionOf(r.LastEventType) {
	case event.DeleteStream:
		state = event.StreamDeleted
	case event.TombstoneStream:
		state = event.StreamTombstoned
	}
	switch {
	case r.LastEvent == 0:
		return "it has no events"
	case r.Version != r.LastEventVersion:
		return fmt.Sprintf("version %d is not %d", r.Version, r.LastEventVersion)
	case r.First != r.FirstEvent || r.Last != r.LastEvent:
		return fmt.Sprintf("its row says that it reaches from %d to %d, not from %d to %d", r.First, r.Last, r.FirstEvent, r.LastEvent)
	case r.State != state:
		return fmt.Sprintf("it is %s, not %s", r.State, state)
	case r.MetadataVersion != 0 && r.MetadataEventType != stream.MetadataChanged, r.MetadataVersion == 0 && len(r.Settings) > 0:
		return "no event has set these metadata"
	case r.ReadableFrom != 0 && r.ReadableEventType != stream.Recreated:
		return fmt.Sprintf("it was not recreated at version %d", r.ReadableFrom)
	default:
		return ""
	}
}
