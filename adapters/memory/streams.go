package memory

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/stream"
	"github.com/erpbackbone/backbone/ports"
)

// changedStream is a stream with a state of its own or metadata.
type changedStream struct {
	state           event.StreamState // of a stream that exists
	readableFrom    event.Version
	settings        json.RawMessage
	access          json.RawMessage
	metadataVersion event.Version
}

func (p *partition) streamState(id event.StreamID) event.StreamState {
	if changed, ok := p.streams[id]; ok {
		return changed.state
	}
	if len(p.byStream[id]) == 0 {
		return event.StreamAbsent
	}
	return event.StreamActive
}

// contentVersion is the version of a stream after which all events are changes of metadata.
func (p *partition) contentVersion(sequences []event.Sequence) event.Version {
	n := len(sequences)
	for last := n - concurrency.MaxMetadataRun - 1; n > 0 && n > last && p.at(sequences[n-1]).Type == stream.MetadataChanged; {
		n--
	}
	return event.Version(n)
}

// checkAccess holds the caller's roles against the access lists of what is written.
func (p *partition) checkAccess(r *ports.AppendRequest) error {
	for i := range r.Events {
		e := &r.Events[i]
		if f := stream.CheckAccess(p.streams[e.Stream].access, stream.RightFor(e.Action()), r.Roles); f != nil {
			return f
		}
	}
	return nil
}

// checkStates looks whether every event may go into its stream as the events before
// it leave the stream.
func (p *partition) checkStates(events []event.Prepared) error {
	moved := map[event.StreamID]event.StreamState{}
	for i := range events {
		e := &events[i]
		state, own := moved[e.Stream]
		if !own {
			state = p.streamState(e.Stream)
		}
		next, possible := state.After(e.Action())
		if !possible {
			f := concurrency.ActionRefused(e.Stream, state, e.Action())
			if h := p.lastHolder(p.byStream[e.Stream]); h != nil && !own {
				f = f.WithHolder(*h)
			}
			return f
		}
		moved[e.Stream] = next
	}
	return nil
}

// changeStream follows an event that is in its stream already.
func (p *partition) changeStream(e *event.Prepared) {
	if e.Change == nil {
		return
	}
	changed, known := p.streams[e.Stream]
	if !known {
		changed.state = event.StreamActive
	}
	if e.Change.Action != event.DescribeStream { // which may be the stream's first event
		changed.state, _ = changed.state.After(e.Change.Action)
	}
	switch e.Change.Action {
	case event.RecreateStream:
		changed.readableFrom = e.StreamVersion
	case event.DescribeStream:
		changed.settings, changed.access = slices.Clone(e.Change.Settings), slices.Clone(e.Change.Access)
		changed.metadataVersion = e.StreamVersion
	}
	p.streams[e.Stream] = changed
}

// StreamStatus implements ports.StreamReader.
func (s *EventReader) StreamStatus(ctx context.Context, id event.PartitionID, of event.StreamID) (ports.StreamStatus, error) {
	return readPartition(ctx, s.state, id, func(p *partition) (ports.StreamStatus, error) {
		changed := p.streams[of]
		return ports.StreamStatus{
			State: p.streamState(of), Version: event.Version(len(p.byStream[of])), ReadableFrom: changed.readableFrom,
			Settings: slices.Clone(changed.settings), MetadataVersion: changed.metadataVersion,
		}, nil
	})
}
