package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/erpbackbone/backbone/adapters/httpapi/internal/api"
	"github.com/erpbackbone/backbone/application/query"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// Upcasts converts events to the newest schema version of their type:
// upcasting.Service.
type Upcasts interface {
	UpcastForDisplay(ctx context.Context, events []event.Recorded) ([]event.Recorded, error)
}

// Events reads the log: query.Service.
type Events interface {
	ByID(ctx context.Context, le ports.LegalEntity, id event.ID) (event.Recorded, error)
	Events(ctx context.Context, sel query.Selection) (query.Page, error)
	Stream(ctx context.Context, q query.StreamQuery) (query.StreamPage, error)
	Feed(ctx context.Context, q query.FeedQuery) (query.Page, error)
	Lineage(ctx context.Context, le ports.LegalEntity, readableCodes []string, id event.ID) (query.Lineage, error)
	Descendants(ctx context.Context, le ports.LegalEntity, readableCodes []string, id event.ID, limit int) (query.Descendants, error)
	Process(ctx context.Context, tenantID string, readableCodes []string, correlationID string, limit int) (query.Process, error)
	Match(ctx context.Context, q query.MatchQuery) (query.MatchPage, error)
}

var eventHandlers = handlers{
	"listEvents": (*Server).listEvents,
	"getEvent":   (*Server).getEvent,
}

// listEvents answers GET /api/events.
func (s *Server) listEvents(ctx context.Context, r request) (response, error) {
	sel, err := s.readSelection(ctx, actionReadEvents, r)
	if err != nil {
		return nil, err
	}
	if sel.Limit, err = parsePageLimit(r.query("limit")); err != nil {
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
	w.withoutData = sel.Filter.WithoutData
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

// parseID reads the id of an event or an intent. A malformed id is not found.
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

// getEvent answers GET /api/events/{id}.
func (s *Server) getEvent(ctx context.Context, r request) (response, error) {
	id, err := parseID(r.path("id"), codeEventNotFound)
	if err != nil {
		return nil, err
	}
	var found event.Recorded
	err = s.inLegalEntities(ctx, actionReadEvents, r.query("legal_entity"), codeEventNotFound, func(le ports.LegalEntity) (err error) {
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
