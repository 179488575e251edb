package verify

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/stream"
	"github.com/erpbackbone/backbone/ports"
)

// Every append asks the row that is kept of a stream which version comes next, whether
// the stream takes events, and from whom. So the rows are compared with the events, from
// both sides: each event that begins or changes a stream with its row, and each row with
// the events at the ends of its stream and those that it refers to. Rows move on while
// this runs: what an event says of a stream is the least that its row may say later.

// streamPage is how many rows of streams are compared at a time.
const streamPage = 1000

// checkStreams compares the events of a page with the rows of their streams.
func (c *chain) checkStreams(ctx context.Context, store Store, events []event.Recorded) error {
	var marks []*event.Recorded
	var ids []event.StreamID
	for i := range events {
		e := &events[i]
		if action := stream.ActionOf(e.Type); e.StreamVersion == 1 || action == event.DescribeStream || action == event.RecreateStream {
			marks, ids = append(marks, e), append(ids, e.Stream)
		}
	}
	if len(marks) == 0 {
		return nil
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

// disagreement says what the row of a stream has against one of its events; "" is nothing.
func disagreement(e *event.Recorded, row *ports.StreamRow) string {
	if row == nil {
		return fmt.Sprintf("nothing is kept of the stream %s, to which the event belongs", e.Stream)
	}
	if e.StreamVersion == 1 && row.First != e.Sequence {
		return fmt.Sprintf("the stream %s begins here, but what is kept of it says at %d", e.Stream, row.First)
	}
	switch stream.ActionOf(e.Type) {
	case event.RecreateStream:
		if row.ReadableFrom < e.StreamVersion {
			return fmt.Sprintf("the stream %s was begun anew here, but what is kept of it shows earlier events", e.Stream)
		}
	case event.DescribeStream:
		if row.MetadataVersion < e.StreamVersion || row.MetadataVersion == e.StreamVersion && !sameSettings(e, row.Settings) {
			return fmt.Sprintf("the metadata of the stream %s are not those that were set here, or later", e.Stream)
		}
	}
	return ""
}

// sameSettings compares what the log obeys of metadata with the event that set them. An
// event that says nothing readable, or not what it said when it was recorded, is judged by
// its own checks: it may have been redacted, and the log goes on obeying what was set.
func sameSettings(e *event.Recorded, kept json.RawMessage) bool {
	if event.HashPayload(e.Salt, e.Payload) != e.PayloadHash {
		return true
	}
	var said struct {
		Metadata stream.Metadata `json:"metadata"`
	}
	if !decodeData(e, &said) {
		return true
	}
	want, _, err := said.Metadata.Settings()
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

// checkStreamRows compares all rows with the events.
func (c *chain) checkStreamRows(ctx context.Context, store Store) error {
	var after event.StreamID
	for {
		rows, err := store.StreamRowsWithEnds(ctx, c.entity.Partition, after, streamPage)
		if err != nil {
			return err
		}
		for i := range rows {
			r := &rows[i]
			if detail := contradiction(r); detail != "" {
				c.add(StreamMismatch, r.LastEvent, fmt.Sprintf("what is kept of the stream %s does not agree with its events: %s", r.Stream, detail))
			}
		}
		if len(rows) < streamPage {
			return nil
		}
		after = rows[len(rows)-1].Stream
	}
}

// contradiction says what a row has against the events of its stream; "" is nothing.
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
		return "it has none"
	case r.Version != r.LastEventVersion:
		return fmt.Sprintf("version %d is not %d", r.Version, r.LastEventVersion)
	case r.First != r.FirstEvent || r.Last != r.LastEvent:
		return fmt.Sprintf("it is said to reach from %d to %d, not from %d to %d", r.First, r.Last, r.FirstEvent, r.LastEvent)
	case r.State != state:
		return fmt.Sprintf("it is %s, not %s", r.State, state)
	case r.MetadataVersion != 0 && r.MetadataEventType != stream.MetadataChanged, r.MetadataVersion == 0 && len(r.Settings) > 0:
		return "no event has set these metadata"
	case r.ReadableFrom != 0 && r.ReadableEventType != stream.Recreated:
		return fmt.Sprintf("it was not begun anew at version %d", r.ReadableFrom)
	default:
		return ""
	}
}
