package httpapi

import (
	"context"
	"net/http"

	"github.com/erpbackbone/backbone/adapters/httpapi/internal/api"
	"github.com/erpbackbone/backbone/application/erasure"
	"github.com/erpbackbone/backbone/domain/fault"
)

var legalHoldHandlers = handlers{
	"placeLegalHold":   withBody((*Server).placeLegalHold),
	"listLegalHolds":   (*Server).listLegalHolds,
	"releaseLegalHold": (*Server).releaseLegalHold,
}

func holdAnswers(all []erasure.Hold) []api.LegalHold {
	out := make([]api.LegalHold, len(all))
	for i := range all {
		out[i] = holdAnswer(all[i])
	}
	return out
}

func holdAnswer(h erasure.Hold) api.LegalHold {
	return api.LegalHold{
		ID: h.ID.String(), Subject: h.Subject, LegalEntity: h.LegalEntity, Reason: h.Reason, PlacedBy: h.PlacedBy,
		PlacedAt: timeText(h.PlacedAt), Until: dateText(h.Until), ReleasedBy: h.ReleasedBy, ReleasedAt: optionalTime(h.ReleasedAt),
	}
}

// placeLegalHold answers POST /api/legal-holds.
func (s *Server) placeLegalHold(ctx context.Context, _ request, body *api.NewLegalHold) (response, error) {
	switch {
	case body.Subject == "":
		return nil, missingMember("/subject")
	case body.Reason == "":
		return nil, missingMember("/reason")
	}
	if err := checkLegalEntities(body.LegalEntities); err != nil {
		return nil, err
	}
	hold := erasure.NewHold{Subject: body.Subject, LegalEntities: body.LegalEntities, Reason: body.Reason}
	var err error
	if hold.Until, err = optionalDate("/until", body.Until); err != nil {
		return nil, err
	}
	service, err := s.erasures()
	if err != nil {
		return nil, err
	}
	placed, err := service.PlaceHold(ctx, callOf(ctx).principal, hold)
	if err != nil {
		return nil, err
	}
	return reply(http.StatusCreated, api.LegalHoldList{LegalHolds: holdAnswers(placed)})
}

// listLegalHolds answers GET /api/legal-holds.
func (s *Server) listLegalHolds(ctx context.Context, r request) (response, error) {
	if r.query("subject") == "" {
		return nil, fault.New(fault.Invalid, "request.parameter_missing", "subject is required; add it").WithField("subject")
	}
	service, err := s.erasures()
	if err != nil {
		return nil, err
	}
	all, err := service.Holds(ctx, callOf(ctx).principal, r.query("subject"))
	if err != nil {
		return nil, err
	}
	return reply(http.StatusOK, api.LegalHoldList{LegalHolds: holdAnswers(all)})
}

// releaseLegalHold answers POST /api/legal-holds/{id}/release.
func (s *Server) releaseLegalHold(ctx context.Context, r request) (response, error) {
	id, err := parseID(r.path("id"), codeErasureNotFound)
	if err != nil {
		return nil, err
	}
	service, err := s.erasures()
	if err != nil {
		return nil, err
	}
	released, err := service.ReleaseHold(ctx, callOf(ctx).principal, id)
	if err != nil {
		return nil, err
	}
	return reply(http.StatusOK, holdAnswer(released))
}
