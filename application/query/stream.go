package query

import (
	"context"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// StreamQuery asks for a part of one stream.
type StreamQuery struct {
	Entity      ports.LegalEntity
	Stream      event.StreamID
	From        event.Version // the first to be read; 0: the beginning, backward the end
	Direction   ports.Direction
	Count       int
	WithoutData bool
}

// StreamPage is a part of a stream.
type StreamPage struct {
	Version event.Version // of the stream now
	Events  []event.Recorded
	HasMore bool
	Next    event.Version // the From to go on with, when there is more
}

// Stream reads a stream by version. Faults: request.*, stream.not_found.
func (s *Service) Stream(ctx context.Context, q StreamQuery) (StreamPage, error) {
	if q.Count < 1 {
		return StreamPage{}, fault.New(fault.Invalid, "request.parameter_invalid", "a page holds at least one event; correct the count").WithField("count")
	}
	ask := ports.StreamQuery{Partition: q.Entity.Partition, Stream: q.Stream, Direction: ports.Backward, Limit: 1, WithoutData: true}
	last, err := s.events.ReadStream(ctx, ask)
	if err != nil {
		return StreamPage{}, err
	}
	if len(last) == 0 {
		return StreamPage{}, fault.New(fault.NotFound, "stream.not_found", "this legal entity has no such stream; check type, id and legal entity")
	}
	ask.From, ask.Direction, ask.Limit, ask.WithoutData = q.From, q.Direction, q.Count+1, q.WithoutData
	events, err := s.events.ReadStream(ctx, ask)
	if err != nil {
		return StreamPage{}, err
	}
	page := StreamPage{Version: last[0].StreamVersion, Events: events}
	if len(events) > q.Count {
		page.Events, page.HasMore, page.Next = events[:q.Count], true, events[q.Count].StreamVersion
	}
	if n := len(page.Events); n > 0 { // written since
		page.Version = max(page.Version, page.Events[0].StreamVersion, page.Events[n-1].StreamVersion)
	}
	return page, nil
}
