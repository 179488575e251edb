package query

import (
	"context"
	"slices"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// Process is everything that happened under one correlation id.
type Process struct {
	CorrelationID string
	Events        []event.Recorded // in order of recording
	Steps         []Step           // of each event
	Duration      time.Duration    // from the first event to the last
	Actors        []string         // ids, in order of appearance
	Entities      []event.EntityRef
	LeftOut       []LeftOut
}

// Step tells when an event was recorded: after the first one, and after the one
// before it.
type Step struct {
	SinceStart, SincePrevious time.Duration
}

// Process gathers a business process from the legal entities that the caller may
// see, at most limit events, of the bytes of a page: the first ones. Faults: process.not_found.
func (s *Service) Process(ctx context.Context, tenantID string, readableCodes []string, correlationID string, limit int) (Process, error) {
	all, err := s.readableEntities(ctx, tenantID, nil)
	if err != nil {
		return Process{}, err
	}
	out := Process{CorrelationID: correlationID, Actors: []string{}, Entities: []event.EntityRef{}}
	var left leftOut
	var hidden []ports.LegalEntity
	var cut *event.Recorded // what was recorded behind it has not been looked at everywhere
	for _, le := range all {
		if !readable(readableCodes, le.Code) {
			hidden = append(hidden, le)
			continue
		}
		found, err := s.events.SearchEvents(ctx, ports.EventQuery{
			Partition: le.Partition, CorrelationID: correlationID, Limit: limit + 1, Bytes: shareOfPage(len(all)),
		}, 0)
		if err != nil {
			return Process{}, err
		}
		part := found.Events
		if last := len(part) - 1; found.Stopped && (cut == nil || byRecording(&part[last], cut, ports.Forward) < 0) {
			e := part[last]
			cut = &e
		}
		if len(out.Events) == 0 {
			out.Events = part // most processes run in one legal entity
		} else {
			out.Events = append(out.Events, part...)
		}
	}
	if len(out.Events) == 0 {
		return Process{}, fault.New(fault.NotFound, "process.not_found", "no event that you may see has this correlation id; use the one that the write or an event gave you")
	}
	sortByRecording(out.Events, ports.Forward)
	n := len(within(out.Events, MaxPageBytes))
	if cut != nil {
		n = min(n, slices.IndexFunc(out.Events, func(e event.Recorded) bool { return e.ID == cut.ID && e.Partition == cut.Partition })+1)
	}
	if cut != nil || n < len(out.Events) {
		if out.Events = slices.Clip(out.Events[:n]); n <= limit {
			left.add(ReasonSize, event.ID{})
		}
	}
	if len(out.Events) > limit {
		out.Events = slices.Clip(out.Events[:limit])
		left.add(ReasonCount, event.ID{})
	}
	for _, le := range hidden {
		part, err := s.events.Events(ctx, ports.EventQuery{Partition: le.Partition, CorrelationID: correlationID, Limit: 1, WithoutData: true})
		if err != nil {
			return Process{}, err
		}
		if len(part) > 0 {
			left.add(ReasonLegalEntity, event.ID{})
			break
		}
	}
	out.LeftOut = left
	return out, out.measure()
}

// measure fills in what the events say together.
func (p *Process) measure() error {
	first, previous := p.Events[0].RecordedAt, p.Events[0].RecordedAt
	actors := map[string]bool{}
	p.Steps = make([]Step, 0, len(p.Events))
	var entities refs
	for i := range p.Events {
		e := &p.Events[i]
		p.Steps = append(p.Steps, Step{SinceStart: e.RecordedAt.Sub(first), SincePrevious: e.RecordedAt.Sub(previous)})
		previous = e.RecordedAt
		if !actors[e.ActorID] {
			actors[e.ActorID] = true
			p.Actors = append(p.Actors, e.ActorID)
		}
		if err := entities.add(e); err != nil {
			return err
		}
	}
	p.Entities = append(p.Entities, entities.found...)
	p.Duration = previous.Sub(first)
	return nil
}
