package httpapi

import (
	"context"
	"net/http"

	"github.com/erpbackbone/backbone/adapters/httpapi/internal/api"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

var legalEntityHandlers = handlers{
	"createLegalEntity": withBody((*Server).createLegalEntity),
	"listLegalEntities": (*Server).listLegalEntities,
}

// createLegalEntity answers POST /api/admin/legal-entities.
func (s *Server) createLegalEntity(ctx context.Context, r *request, body *api.LegalEntityRequest) (any, error) {
	principal := callOf(ctx).principal
	le, err := s.config.Access.CreateLegalEntity(ctx, ports.LegalEntity{TenantID: principal.TenantID, Code: body.Code, Name: body.Name, TimeZone: body.TimeZone}, principal.Actor())
	if fault.CodeOf(err) == "legal_entity.duplicate" && r.idempotencyKey() != "" {
		have, findErr := s.config.Access.LegalEntity(ctx, principal.TenantID, body.Code)
		if findErr == nil && (have.Name == body.Name || body.Name == "") && (have.TimeZone == body.TimeZone || body.TimeZone == "") {
			return replyReplayed(http.StatusOK, legalEntityAnswer(have), true)
		}
	}
	if err != nil {
		return nil, err
	}
	return reply(http.StatusCreated, legalEntityAnswer(le))
}

// listLegalEntities answers GET /api/admin/legal-entities.
func (s *Server) listLegalEntities(ctx context.Context, _ *request) (any, error) {
	visible, err := s.visibleLegalEntities(ctx)
	return api.LegalEntityList{LegalEntities: convert(visible, legalEntityAnswer)}, err
}

func legalEntityAnswer(le ports.LegalEntity) api.LegalEntity {
	return api.LegalEntity{
		Code: le.Code, Name: le.Name, TimeZone: le.TimeZone, Status: le.Status, PartitionID: int64(le.Partition), CreatedAt: timeText(le.CreatedAt),
	}
}
