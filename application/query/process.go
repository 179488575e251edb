package query

import (
	"context"
	"slices"
	"time"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// Process is all events with one correlation id.
type Process struct {
	CorrelationID string
	Events        []event.Recorded // in order of recording
	Steps         []Step           // one per event
	Duration      time.Duration    // from the first event to the last
	Actors        []string         // ids, in order of appearance
	Entities      []event.EntityRef
	Omissions     []Omission
}

// ProcessQuery asks for the events of a correlation id.
type ProcessQuery struct {
	TenantID       string
	Readable       []string // legal entities the caller may see; empty: all of the tenant
	Administrative bool     // the caller may read the administrative log too
	CorrelationID  string
	Limit          int
}

// Step is the time of an event since the first event and since the previous one.
type Step struct {
	SinceStart, SincePrevious time.Duration
}

// Process reads a business process from the logs that the caller may see: its first events, at
// most q.Limit and MaxPageBytes of payloads. It reports that a hidden legal entity has further
// events, but not that the administrative log has: who may not read that log learns nothing of it.
// Faults: process.not_found.
func (s *Service) Process(ctx context.Context, q ProcessQuery) (Process, error) {
	all, err := s.readablePartitions(ctx, q.TenantID, nil, q.Administrative)
	if err != nil {
		return Process{}, err
	}
	sight, err := module.SightOf(ctx)
	if err != nil {
		return Process{}, err
	}
	types := sight.Limit(nil)
	if types != nil && len(types) == 0 {
		return Process{}, processNotFound()
	}
	out := Process{CorrelationID: q.CorrelationID, Actors: []string{}, Entities: []event.EntityRef{}}
	var omitted omissions
	var hidden []ports.LegalEntity
	var cut *event.Recorded // events recorded after it may be missing, because a legal entity was not read further
	for _, le := range all {
		if !isReadable(q.Readable, le.Code) {
			hidden = append(hidden, le)
			continue
		}
		found, err := s.events.SearchEvents(ctx, ports.EventQuery{
			Partition: le.Partition, CorrelationID: q.CorrelationID, Types: types, Limit: q.Limit + 1, Bytes: pageBytesPerEntity(len(all)),
		}, 0)
		if err != nil {
			return Process{}, err
		}
		part := found.Events
		if last := len(part) - 1; found.Stopped && (cut == nil || compareRecording(&part[last], cut, ports.Forward) < 0) {
			e := part[last]
			cut = &e
		}
		if len(out.Events) == 0 {
			out.Events = part // no copy for the usual case, a process in one legal entity
		} else {
			out.Events = append(out.Events, part...)
		}
	}
	if len(out.Events) == 0 {
		return Process{}, processNotFound()
	}
	sortByRecording(out.Events, ports.Forward)
	n := len(truncateToBytes(out.Events, MaxPageBytes))
	if cut != nil {
		n = min(n, slices.IndexFunc(out.Events, func(e event.Recorded) bool { return e.ID == cut.ID && e.Partition == cut.Partition })+1)
	}
	if cut != nil || n < len(out.Events) {
		if out.Events = slices.Clip(out.Events[:n]); n <= q.Limit {
			omitted.add(ReasonSize, event.ID{})
		}
	}
	if len(out.Events) > q.Limit {
		out.Events = slices.Clip(out.Events[:q.Limit])
		omitted.add(ReasonCount, event.ID{})
	}
	for _, le := range hidden {
		part, err := s.events.Events(ctx, ports.EventQuery{Partition: le.Partition, CorrelationID: q.CorrelationID, Types: types, Limit: 1, WithoutData: true})
		if err != nil {
			return Process{}, err
		}
		if len(part) > 0 {
			omitted.add(ReasonLegalEntity, event.ID{})
			break
		}
	}
	out.Omissions = omitted
	return out, out.summarize()
}

func processNotFound() error {
	return fault.New(fault.NotFound, "process.not_found", "no event that you may see has this correlation id; use the one that the write or an event gave you")
}

// summarize derives steps, duration, actors and entities from the events.
func (p *Process) summarize() error {
	first, previous := p.Events[0].RecordedAt, p.Events[0].RecordedAt
	actors := map[string]bool{}
	p.Steps = make([]Step, 0, len(p.Events))
	var entities entityRefs
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
