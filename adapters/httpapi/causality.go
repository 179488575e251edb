package httpapi

import (
	"context"
	"net/http"
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
}

// getLineage answers GET /api/events/{id}/lineage.
func (s *Server) getLineage(ctx context.Context, r request) (response, error) {
	id, err := parseID(r.path("id"), codeEventNotFound)
	if err != nil {
		return nil, err
	}
	var found query.Lineage
	err = s.inLegalEntities(ctx, actionReadEvents, r.query("legal_entity"), codeEventNotFound, func(le ports.LegalEntity) (err error) {
		found, err = s.config.Events.Lineage(ctx, le, callOf(ctx).principal.LegalEntities, id)
		return err
	})
	if err != nil {
		return nil, err
	}
	w, shown, err := s.render(ctx, found.Events)
	if err != nil {
		return nil, err
	}
	w.raw(`{"lineage":`)
	if err := w.events(shown); err != nil {
		return nil, err
	}
	w.raw(`,"depth":`)
	w.b = strconv.AppendInt(w.b, int64(len(found.Events)), 10)
	w.writeLeftOut(found.Omissions)
	w.raw("}")
	return answer{status: http.StatusOK, body: w.b}, nil
}

// getDescendants answers GET /api/events/{id}/descendants.
func (s *Server) getDescendants(ctx context.Context, r request) (response, error) {
	id, err := parseID(r.path("id"), codeEventNotFound)
	if err != nil {
		return nil, err
	}
	limit, err := parseGraphLimit(r.query("limit"))
	if err != nil {
		return nil, err
	}
	var found query.Descendants
	err = s.inLegalEntities(ctx, actionReadEvents, r.query("legal_entity"), codeEventNotFound, func(le ports.LegalEntity) (err error) {
		found, err = s.config.Events.Descendants(ctx, le, callOf(ctx).principal.LegalEntities, id, limit)
		return err
	})
	if err != nil {
		return nil, err
	}
	events := make([]event.Recorded, len(found.Events))
	for i := range found.Events {
		events[i] = found.Events[i].Event
	}
	w, shown, err := s.render(ctx, events)
	if err != nil {
		return nil, err
	}
	w.raw(`{"descendants":[`)
	for i, d := range found.Events {
		if i > 0 {
			w.raw(",")
		}
		w.raw(`{"event":`)
		if err := w.event(&shown[i]); err != nil {
			return nil, err
		}
		w.member("parent", d.Parent.String())
		w.raw(`,"depth":`)
		w.b = strconv.AppendInt(w.b, int64(d.Depth), 10)
		w.raw("}")
	}
	w.raw(`],"count":`)
	w.b = strconv.AppendInt(w.b, int64(len(shown)), 10)
	w.writeLeftOut(found.Omissions)
	w.raw("}")
	return answer{status: http.StatusOK, body: w.b}, nil
}

// getProcess answers GET /api/events/process/{correlation_id}.
func (s *Server) getProcess(ctx context.Context, r request) (response, error) {
	limit, err := parseGraphLimit(r.query("limit"))
	if err != nil {
		return nil, err
	}
	p := callOf(ctx).principal
	found, err := s.config.Events.Process(ctx, p.TenantID, p.LegalEntities, r.path("correlation_id"), limit)
	if err != nil {
		return nil, err
	}
	w, shown, err := s.render(ctx, found.Events)
	if err != nil {
		return nil, err
	}
	w.raw(`{"correlation_id":`)
	w.text(found.CorrelationID)
	w.raw(`,"events":`)
	if err := w.events(shown); err != nil {
		return nil, err
	}
	w.raw(`,"steps":[`)
	for i, step := range found.Steps {
		if i > 0 {
			w.raw(",")
		}
		w.raw(`{"event_id":`)
		w.text(found.Events[i].ID.String())
		w.writeMilliseconds("since_start_ms", step.SinceStart)
		w.writeMilliseconds("since_previous_ms", step.SincePrevious)
		w.raw("}")
	}
	w.raw("]")
	w.writeMilliseconds("process_duration_ms", found.Duration)
	w.raw(`,"actors_involved":`)
	actors, err := encode(found.Actors)
	if err != nil {
		return nil, err
	}
	w.bytes(actors)
	w.raw(`,"entities_involved":`)
	entities, err := encode(entityAnswers(found.Entities))
	if err != nil {
		return nil, err
	}
	w.bytes(entities)
	w.writeLeftOut(found.Omissions)
	w.raw("}")
	return answer{status: http.StatusOK, body: w.b}, nil
}

// parseGraphLimit reads the limit of an answer that has no pages.
func parseGraphLimit(text string) (int, error) {
	if text == "" {
		return query.MaxEvents, nil
	}
	return parsePageLimit(text)
}

// writeLeftOut writes where and why the answer stops before its end.
func (r *renderer) writeLeftOut(left []query.Omission) {
	r.raw(`,"truncated":`)
	r.b = strconv.AppendBool(r.b, len(left) > 0)
	if len(left) == 0 {
		return
	}
	r.raw(`,"left_out":[`)
	for i, l := range left {
		if i > 0 {
			r.raw(",")
		}
		r.raw(`{"reason":`)
		r.text(string(l.Reason))
		r.optional("event_id", idText(l.At))
		r.raw("}")
	}
	r.raw("]")
}

// writeMilliseconds writes a duration in milliseconds, to the microsecond.
func (r *renderer) writeMilliseconds(name string, d time.Duration) {
	r.raw(`,"`)
	r.raw(name)
	r.raw(`":`)
	r.b = strconv.AppendFloat(r.b, float64(d.Microseconds())/1000, 'f', -1, 64)
}
