package httpapi

import (
	"context"

	"github.com/erpbackbone/backbone/adapters/httpapi/internal/api"
	"github.com/erpbackbone/backbone/application/erasure"
	"github.com/erpbackbone/backbone/domain/fault"
)

var legalHoldHandlers = handlers{
	"placeLegalHold":   withBody((*Server).placeLegalHold),
	"listLegalHolds":   (*Server).listLegalHolds,
	"releaseLegalHold": (*Server).releaseLegalHold,
}

func holdAnswer(h erasure.Hold) api.LegalHold {
	return api.LegalHold{
		ID: h.ID.String(), Subject: h.Subject, LegalEntity: h.LegalEntity, Reason: h.Reason, PlacedBy: h.PlacedBy,
		PlacedAt: timeText(h.PlacedAt), Until: dateText(h.Until), ReleasedBy: h.ReleasedBy, ReleasedAt: optionalTime(h.ReleasedAt),
	}
}

// placeLegalHold answers POST /api/legal-holds.
func (s *Server) placeLegalHold(ctx context.Context, r *request, body *api.NewLegalHold) (any, error) {
	switch {
	case body.Subject == "":
		return nil, missingMember("/subject")
	case body.Reason == "":
		return nil, missingMember("/reason")
	}
	if err := checkLegalEntities(body.LegalEntities); err != nil {
		return nil, err
	}
	until, err := parseOptionalDate("/until", body.Until)
	if err != nil {
		return nil, err
	}
	placed, replayed, err := s.config.Erasures.PlaceHold(ctx, callOf(ctx).principal, erasure.NewHold{
		Subject: body.Subject, LegalEntities: body.LegalEntities, Reason: body.Reason, Until: until, IdempotencyKey: r.idempotencyKey(),
	})
	if err != nil {
		return nil, err
	}
	return replyReplayed(createdStatus(!replayed), api.LegalHoldList{LegalHolds: convert(placed, holdAnswer)}, replayed)
}

// listLegalHolds answers GET /api/legal-holds.
func (s *Server) listLegalHolds(ctx context.Context, r *request) (any, error) {
	if r.query("subject") == "" {
		return nil, fault.New(fault.Invalid, "request.parameter_missing", "subject is required; add it").WithField("subject")
	}
	all, err := s.config.Erasures.Holds(ctx, callOf(ctx).principal, r.query("subject"))
	return api.LegalHoldList{LegalHolds: convert(all, holdAnswer)}, err
}

// releaseLegalHold answers POST /api/legal-holds/{id}/release.
func (s *Server) releaseLegalHold(ctx context.Context, r *request) (any, error) {
	id, err := parseID(r.path("id"), codeErasureNotFound)
	if err != nil {
		return nil, err
	}
	released, err := s.config.Erasures.ReleaseHold(ctx, callOf(ctx).principal, id)
	return holdAnswer(released), err
}
