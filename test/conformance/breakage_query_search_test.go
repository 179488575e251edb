package conformance_test

import (
	"context"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/conformance"
)

// searchBroken changes what searches and streams find.
type searchBroken struct {
	*wrapper
	ask   func(*ports.EventQuery)
	found func(*ports.EventScan, ports.Direction)
}

func (s *searchBroken) SearchEvents(ctx context.Context, q ports.EventQuery, scan int) (ports.EventScan, error) {
	if s.ask != nil {
		s.ask(&q)
	}
	out, err := s.wrapper.SearchEvents(ctx, q, scan)
	if s.found != nil {
		s.found(&out, q.Direction)
	}
	return out, err
}

func (s *searchBroken) Events(ctx context.Context, q ports.EventQuery) ([]event.Recorded, error) {
	out, err := s.SearchEvents(ctx, q, 0)
	return out.Events, err
}

// skipAtStop continues one event too far after the end of a scan.
func skipAtStop(w *wrapper) conformance.Store {
	return &searchBroken{wrapper: w, found: func(s *ports.EventScan, d ports.Direction) {
		switch {
		case !s.Stopped:
		case d == ports.Forward:
			s.Reached++
		case s.Reached > 1:
			s.Reached--
		}
	}}
}

func ignoreDimension(w *wrapper) conformance.Store {
	return &searchBroken{wrapper: w, ask: func(q *ports.EventQuery) { q.Dimension = ports.Dimension{} }}
}

// compareGreaterAsGreaterOrEqual finds greater what is equal.
func compareGreaterAsGreaterOrEqual(w *wrapper) conformance.Store {
	return &searchBroken{wrapper: w, ask: func(q *ports.EventQuery) {
		if q.Predicate != nil && q.Predicate.Operator == event.Greater {
			loose := *q.Predicate
			loose.Operator = event.GreaterOrEqual
			q.Predicate = &loose
		}
	}}
}

// dropEventOfPage leaves out an event in the middle of a longer page.
func dropEventOfPage(w *wrapper) conformance.Store {
	return &searchBroken{wrapper: w, found: func(s *ports.EventScan, _ ports.Direction) {
		if n := len(s.Events); n > 5 {
			s.Events = append(s.Events[:n/2], s.Events[n/2+1:]...)
		}
	}}
}

// ignoreBytes answers pages of any size.
func ignoreBytes(w *wrapper) conformance.Store {
	return &searchBroken{wrapper: w, ask: func(q *ports.EventQuery) { q.Bytes = 0 }}
}

// endlessStream never reports that bytes ended a page of a stream.
type endlessStream struct{ *wrapper }

func (s *endlessStream) ReadStream(ctx context.Context, q ports.StreamQuery) ([]event.Recorded, bool, error) {
	events, _, err := s.wrapper.ReadStream(ctx, q)
	return events, false, err
}

func hideMore(w *wrapper) conformance.Store { return &endlessStream{w} }

// onlyForward reads streams in one direction.
type onlyForward struct{ *wrapper }

func (s *onlyForward) ReadStream(ctx context.Context, q ports.StreamQuery) ([]event.Recorded, bool, error) {
	q.Direction = ports.Forward
	return s.wrapper.ReadStream(ctx, q)
}

func readForward(w *wrapper) conformance.Store { return &onlyForward{w} }
