package httpapi

import (
	"context"
	"strconv"
	"time"

	"github.com/erpbackbone/backbone/application/query"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

var causalityHandlers = handlers{
	"getLineage":     (*Server).getLineage,
	"getDescendants": (*Server).getDescendants,
	"getProcess":     (*Server).getProcess,
	"traceFigure":    (*Server).traceFigure,
}

// getLineage answers GET /api/events/{id}/lineage.
func (s *Server) getLineage(ctx context.Context, r *request) (any, error) {
	var found query.Lineage
	if err := s.findByID(ctx, r, actionReadEvents, codeEventNotFound, func(le ports.LegalEntity, id event.ID) (err error) {
		found, err = s.config.Events.Lineage(ctx, le, callOf(ctx).principal.LegalEntities, id)
		return err
	}); err != nil {
		return nil, err
	}
	names, err := s.namesOf(ctx, actorsOf(found.Events))
	if err != nil {
		return nil, err
	}
	w, err := s.render(ctx, found.Events)
	if err != nil {
		return nil, err
	}
	w.raw(`{"lineage":`)
	w.events()
	w.number("depth", uint64(len(found.Events)))
	if len(names) > 0 {
		w.document("names", names)
	}
	w.omissions(found.Omissions)
	w.raw("}")
	return w.answer()
}

// getDescendants answers GET /api/events/{id}/descendants.
func (s *Server) getDescendants(ctx context.Context, r *request) (any, error) {
	var found query.Descendants
	limit := r.graphLimit()
	if err := s.findByID(ctx, r, actionReadEvents, codeEventNotFound, func(le ports.LegalEntity, id event.ID) (err error) {
		found, err = s.config.Events.Descendants(ctx, le, callOf(ctx).principal.LegalEntities, id, limit)
		return err
	}); err != nil {
		return nil, err
	}
	events := convert(found.Events, func(d query.Descendant) event.Recorded { return d.Event })
	names, err := s.namesOf(ctx, actorsOf(events))
	if err != nil {
		return nil, err
	}
	w, err := s.render(ctx, events)
	if err != nil {
		return nil, err
	}
	w.raw(`{"descendants":[`)
	for i, d := range found.Events {
		if i > 0 {
			w.raw(",")
		}
		w.raw(`{"event":`)
		w.event(&w.prepared[i])
		w.member("parent", d.Parent.String())
		w.number("depth", uint64(d.Depth))
		w.raw("}")
	}
	w.raw(`]`)
	w.number("count", uint64(len(found.Events)))
	if len(names) > 0 {
		w.document("names", names)
	}
	w.omissions(found.Omissions)
	w.raw("}")
	return w.answer()
}

// getProcess answers GET /api/events/process/{correlation_id}.
func (s *Server) getProcess(ctx context.Context, r *request) (any, error) {
	limit := r.graphLimit()
	if r.err != nil {
		return nil, r.err
	}
	administrative, err := s.canReadAdministrativeLog(ctx, actionReadEvents)
	if err != nil {
		return nil, err
	}
	p := callOf(ctx).principal
	found, err := s.config.Events.Process(ctx, query.ProcessQuery{
		TenantID: p.TenantID, Readable: p.LegalEntities, Administrative: administrative, CorrelationID: r.path("correlation_id"), Limit: limit,
	})
	if err != nil {
		return nil, err
	}
	names, err := s.namesOf(ctx, found.Actors)
	if err != nil {
		return nil, err
	}
	w, err := s.render(ctx, found.Events)
	if err != nil {
		return nil, err
	}
	w.raw(`{"correlation_id":`)
	w.text(found.CorrelationID)
	w.raw(`,"events":`)
	w.events()
	w.raw(`,"steps":[`)
	for i, step := range found.Steps {
		if i > 0 {
			w.raw(",")
		}
		w.raw(`{"event_id":`)
		w.text(found.Events[i].ID.String())
		w.milliseconds("since_start_ms", step.SinceStart)
		w.milliseconds("since_previous_ms", step.SincePrevious)
		w.raw("}")
	}
	w.raw("]")
	w.milliseconds("process_duration_ms", found.Duration)
	w.document("actors_involved", found.Actors)
	if len(names) > 0 {
		w.document("names", names)
	}
	w.document("entities_involved", entityAnswers(found.Entities))
	w.omissions(found.Omissions)
	w.raw("}")
	return w.answer()
}

// actorsOf returns the ids of those who caused the events; they may repeat.
func actorsOf(events []event.Recorded) []string {
	return convert(events, func(e event.Recorded) string { return e.ActorID })
}

// graphLimit is the number of events in an answer that has no further pages.
func (r *request) graphLimit() int {
	return r.integer("limit", 1, maxPage, query.MaxEvents, wantedPage)
}

// omissions lists the events at which the answer was cut off, with the reasons.
func (r *renderer) omissions(all []query.Omission) {
	r.boolean("truncated", len(all) > 0)
	if len(all) == 0 {
		return
	}
	r.raw(`,"left_out":[`)
	for i, omission := range all {
		if i > 0 {
			r.raw(",")
		}
		r.raw(`{"reason":`)
		r.text(string(omission.Reason))
		r.optional("event_id", idText(omission.At))
		r.raw("}")
	}
	r.raw("]")
}

// milliseconds writes a duration in milliseconds, to the microsecond.
func (r *renderer) milliseconds(name string, d time.Duration) {
	r.name(name)
	r.b = strconv.AppendFloat(r.b, float64(d.Microseconds())/1000, 'f', -1, 64)
}
