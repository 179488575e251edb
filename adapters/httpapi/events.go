package httpapi

import (
	"context"
	"encoding/hex"

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
	Process(ctx context.Context, q query.ProcessQuery) (query.Process, error)
	Match(ctx context.Context, q query.MatchQuery) (query.MatchPage, error)
}

var eventHandlers = handlers{
	"listEvents": (*Server).listEvents,
	"getEvent":   (*Server).getEvent,
	"getProof":   (*Server).getProof,
}

// listEvents answers GET /api/events.
func (s *Server) listEvents(ctx context.Context, r *request) (any, error) {
	sel, err := s.readSelection(ctx, actionReadEvents, r)
	if err != nil {
		return nil, err
	}
	if sel.Limit = r.pageLimit("limit"); r.err != nil {
		return nil, r.err
	}
	page, err := s.config.Events.Events(ctx, sel)
	if err != nil {
		return nil, err
	}
	w, err := s.renderPage(ctx, page.Events, sel.Filter.WithoutData, page.HasMore)
	if err != nil {
		return nil, err
	}
	w.optional("next_cursor", page.NextCursor)
	w.raw("}")
	return w.answer()
}

// renderPage begins a page of events with the members that all pages share.
func (s *Server) renderPage(ctx context.Context, events []event.Recorded, withoutData, hasMore bool) (*renderer, error) {
	w, err := s.render(ctx, events)
	if err != nil {
		return nil, err
	}
	w.withoutData = withoutData
	w.raw(`{"events":`)
	w.events()
	w.boolean("has_more", hasMore)
	return w, nil
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
func (s *Server) getEvent(ctx context.Context, r *request) (any, error) {
	found, err := s.eventByID(ctx, r)
	if err != nil {
		return nil, err
	}
	w, err := s.render(ctx, []event.Recorded{found})
	if err != nil {
		return nil, err
	}
	w.raw(`{"event":`)
	w.event(&w.prepared[0])
	w.raw("}")
	return w.answer()
}

// eventByID finds the event of a path that the caller may see.
func (s *Server) eventByID(ctx context.Context, r *request) (found event.Recorded, err error) {
	err = s.findByID(ctx, r, actionReadEvents, codeEventNotFound, func(le ports.LegalEntity, id event.ID) (err error) {
		found, err = s.config.Events.ByID(ctx, le, id)
		return err
	})
	return found, err
}

// getProof answers GET /api/events/{id}/proof.
func (s *Server) getProof(ctx context.Context, r *request) (any, error) {
	found, err := s.eventByID(ctx, r)
	if err != nil {
		return nil, err
	}
	proof, err := s.config.Proofs.Prove(ctx, ports.EventPosition{Partition: found.Partition, Sequence: found.Sequence}, nil)
	return api.ProofAnswer{Checksum: hex.EncodeToString(found.Checksum[:]), Proof: string(proof.Encode())}, err
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
	return convert(refs, func(r event.EntityRef) api.EntityReference {
		return api.EntityReference{EntityType: r.Type, EntityID: r.ID, Role: r.Role}
	})
}
