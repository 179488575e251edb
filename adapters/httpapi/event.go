package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/erpbackbone/backbone/adapters/httpapi/internal/api"
	"github.com/erpbackbone/backbone/application/query"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

const (
	defaultPage = 100
	largestPage = 1000
)

// ListEvents answers GET /api/events.
func (s *Server) ListEvents(ctx context.Context, r api.ListEventsRequestObject) (api.ListEventsResponseObject, error) {
	p := callOf(ctx).principal
	sel := query.Selection{
		TenantID: p.TenantID, Kind: query.StreamKind(r.Params.StreamType), StreamID: r.Params.StreamID, LegalEntity: r.Params.LegalEntity,
		Readable: p.LegalEntities, Cursor: r.Params.Cursor,
	}
	entity := sel.LegalEntity
	if sel.Kind == query.ByScope && entity == "" {
		entity = sel.StreamID
	}
	switch {
	case entity != "":
		if _, err := s.enter(ctx, "events.read", entity); err != nil {
			return nil, err
		}
	case sel.Kind != query.ByCorrelation:
		return nil, fault.New(fault.Invalid, "request.parameter_missing", "legal_entity is required for this stream_type; add it").WithField("legal_entity")
	}
	var err error
	if sel.Filter, err = eventFilter(r.Params); err != nil {
		return nil, err
	}
	if sel.Limit, err = pageLimit(r.Params.Limit); err != nil {
		return nil, err
	}
	page, err := s.config.Events.Events(ctx, sel)
	if err != nil {
		return nil, err
	}
	w, shown, err := s.render(ctx, page.Events)
	if err != nil {
		return nil, err
	}
	w.raw(`{"events":`)
	if err := w.events(shown); err != nil {
		return nil, err
	}
	w.raw(`,"has_more":`)
	w.b = strconv.AppendBool(w.b, page.HasMore)
	w.optional("next_cursor", page.NextCursor)
	w.raw("}")
	return answer{status: http.StatusOK, body: w.b}, nil
}

func eventFilter(p api.ListEventsParams) (ports.EventQuery, error) {
	var q ports.EventQuery
	switch p.Direction {
	case "", "forward":
	case "backward":
		q.Direction = ports.Backward
	default:
		return q, badParameter("direction", "forward or backward")
	}
	if p.EventTypes != "" {
		q.Types = strings.Split(p.EventTypes, ",")
		if p.StreamType == string(query.ByType) {
			return q, badParameter("event_types", "not taken with stream_type=type, which names the type itself")
		}
	}
	for _, t := range [...]struct {
		name, text string
		until      bool
		to         *time.Time
	}{
		{"from_date", p.FromDate, false, &q.OccurredFrom}, {"to_date", p.ToDate, true, &q.OccurredTo},
		{"recorded_from", p.RecordedFrom, false, &q.RecordedFrom}, {"recorded_to", p.RecordedTo, true, &q.RecordedTo},
	} {
		if t.text == "" {
			continue
		}
		at, ok := moment(t.text, t.until)
		if !ok {
			return q, badParameter(t.name, "a date such as 2026-03-31 or an RFC 3339 time such as 2026-03-31T12:00:00Z")
		}
		*t.to = at
	}
	for _, d := range [...]struct {
		name, text string
		to         **event.Date
	}{
		{"effective_from", p.EffectiveFrom, &q.EffectiveFrom}, {"effective_to", p.EffectiveTo, &q.EffectiveTo},
	} {
		if d.text == "" {
			continue
		}
		parsed, err := event.ParseDate(d.text)
		if err != nil {
			return q, badParameter(d.name, "an ISO date such as 2026-03-31")
		}
		*d.to = &parsed
	}
	return q, nil
}

// moment reads a bound in time: a time, or a date for the UTC day. An upper bound
// is inclusive to the caller and exclusive to the store, so it is the end of the
// day, or the microsecond after the time.
func moment(text string, until bool) (time.Time, bool) {
	if d, err := event.ParseDate(text); err == nil {
		if until {
			d = d.AddDays(1)
		}
		return d.Time(), true
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return t, false
	}
	t = event.Micros(t)
	if until {
		t = t.Add(time.Microsecond)
	}
	return t, true
}

func badParameter(name, want string) error {
	return fault.New(fault.Invalid, "request.parameter_invalid", "this parameter is %s; correct it", want).WithField(name)
}

func pageLimit(text string) (int, error) {
	if text == "" {
		return defaultPage, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > largestPage {
		return 0, badParameter("limit", "a number from 1 to 1000")
	}
	return n, nil
}

// parseID reads the id of an event or an intent. What is no id is not found.
func parseID(text, notFound string) (event.ID, error) {
	id, err := event.ParseID(text)
	if err != nil {
		return id, fault.New(fault.NotFound, notFound, "this is not an id of 26 characters; use the one that the write or a list gave you")
	}
	return id, nil
}

const (
	codeEventNotFound  = "event.not_found"
	codeIntentNotFound = "intent.not_found"
)

// GetEvent answers GET /api/events/{id}.
func (s *Server) GetEvent(ctx context.Context, r api.GetEventRequestObject) (api.GetEventResponseObject, error) {
	id, err := parseID(r.ID, codeEventNotFound)
	if err != nil {
		return nil, err
	}
	var found event.Recorded
	err = s.within(ctx, "events.read", r.Params.LegalEntity, codeEventNotFound, func(le ports.LegalEntity) (err error) {
		found, err = s.config.Events.ByID(ctx, le, id)
		return err
	})
	if err != nil {
		return nil, err
	}
	w, shown, err := s.render(ctx, []event.Recorded{found})
	if err != nil {
		return nil, err
	}
	w.raw(`{"event":`)
	if err := w.event(&shown[0]); err != nil {
		return nil, err
	}
	w.raw("}")
	return answer{status: http.StatusOK, body: w.b}, nil
}

// GetLineage answers GET /api/events/{id}/lineage.
func (s *Server) GetLineage(ctx context.Context, r api.GetLineageRequestObject) (api.GetLineageResponseObject, error) {
	id, err := parseID(r.ID, codeEventNotFound)
	if err != nil {
		return nil, err
	}
	var found query.Lineage
	err = s.within(ctx, "events.read", r.Params.LegalEntity, codeEventNotFound, func(le ports.LegalEntity) (err error) {
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
	w.raw(`,"truncated":`)
	w.b = strconv.AppendBool(w.b, found.Truncated)
	w.raw("}")
	return answer{status: http.StatusOK, body: w.b}, nil
}

func rulesAnswer(stored json.RawMessage) json.RawMessage {
	if len(stored) == 0 {
		return json.RawMessage("[]")
	}
	return stored
}

func idText(id event.ID) string {
	if id == (event.ID{}) {
		return ""
	}
	return id.String()
}

func actorAnswer(a event.Actor) api.Actor {
	out := api.Actor{Type: string(a.Type), ID: a.ID, Name: a.Name, SessionID: a.Details.SessionID, TrustLevel: a.Details.TrustLevel}
	if d := a.Details.OnBehalfOf; d != nil {
		out.OnBehalfOf = api.Delegate{Type: d.Type, ID: d.ID, Name: d.Name}
	}
	return out
}

func entityAnswers(refs []event.EntityRef) []api.EntityReference {
	out := make([]api.EntityReference, len(refs))
	for i, r := range refs {
		out[i] = api.EntityReference{EntityType: r.Type, EntityID: r.ID, Role: r.Role}
	}
	return out
}
