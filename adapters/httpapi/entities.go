package httpapi

import (
	"context"

	"github.com/erpbackbone/backbone/adapters/httpapi/internal/api"
	"github.com/erpbackbone/backbone/application/entities"
)

var entityHandlers = handlers{
	"getEntity": (*Server).getEntity,
}

const actionReadEntities = "entities.read"

// getEntity answers GET /api/entities/{type}/{id}.
func (s *Server) getEntity(ctx context.Context, r *request) (any, error) {
	le, err := s.authorizeIn(ctx, actionReadEntities, r.query("legal_entity"))
	if err != nil {
		return nil, err
	}
	q := entities.Query{LegalEntity: le, Type: r.path("type"), ID: r.path("id"), KnownAt: r.query("known_at")}
	var ok bool
	if q.Consistency, ok = entities.ParseConsistency(r.query("consistency")); !ok {
		return nil, invalidParameter("consistency", "strong, verified or eventual")
	}
	if q.AsOf = r.date("as_of"); r.err != nil {
		return nil, r.err
	}
	found, err := s.config.Entities.Read(ctx, q)
	if err != nil {
		return nil, err
	}
	// Only the state holds values of events, so only the state is opened.
	state, err := s.openSealedValues(ctx, le.Partition, found.State)
	if err != nil {
		return nil, err
	}
	out := api.EntityState{
		Entity: api.EntityIdentity{Type: r.path("type"), ID: r.path("id")}, LegalEntity: le.Code, State: state,
		Version: numberText(found.Version), AsOfSequence: numberText(found.AsOf), HeadVersion: numberText(found.Head),
		EventCount: found.EventCount, EventsFolded: found.Folded, Consistency: string(found.Reached), AsOf: r.query("as_of"), KnownAt: found.KnownAt,
	}
	if b := found.Snapshot; b != nil {
		out.Snapshot = &api.EntitySnapshot{
			Version: numberText(b.Version), AsOfSequence: numberText(b.AsOf), EventCount: b.EventCount,
			EffectiveThrough: b.EffectiveThrough.String(), CreatedAt: timeText(b.CreatedAt), SizeBytes: len(b.State),
		}
	}
	return out, nil
}
