package httpapi

import (
	"context"
	"net/http"
	"strconv"

	"github.com/erpbackbone/backbone/adapters/httpapi/internal/api"
	"github.com/erpbackbone/backbone/application/tenancy"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

var principalHandlers = handlers{
	"enrollPrincipal": withBody((*Server).enrollPrincipal),
}

// The kinds of principals.
const (
	kindPerson  = "person"
	kindService = "service"
)

// enrollPrincipal answers POST /api/admin/principals.
func (s *Server) enrollPrincipal(ctx context.Context, _ *request, body *api.PrincipalRequest) (any, error) {
	by := callOf(ctx).principal
	kind := event.Human
	switch body.Kind {
	case kindPerson:
	case kindService:
		kind = event.System
	default:
		return nil, fault.New(fault.Invalid, "principal.kind_unknown", "kind is person or service; correct it").WithField("/kind")
	}
	if body.PersonID == "" {
		return nil, missingMember("/person_id")
	}
	if len(body.LegalEntities) > 0 && body.AllLegalEntities {
		return nil, fault.New(fault.Invalid, "principal.legal_entities_ambiguous", "name legal entities, or all of them, and not both").WithField("/all_legal_entities")
	}
	for i, code := range body.LegalEntities {
		if _, err := s.config.Access.LegalEntity(ctx, by.TenantID, code); err != nil {
			return nil, pointAtMember(err, "/legal_entities/"+strconv.Itoa(i))
		}
	}
	p, token, renewed, err := s.config.Access.Admit(ctx, &by, tenancy.Application{
		Principal: ports.Principal{
			TenantID: by.TenantID, PersonID: body.PersonID, ActorType: kind, Roles: body.Roles, LegalEntities: body.LegalEntities,
			Binding: ports.Binding{
				ResponsiblePerson: body.ResponsiblePerson, Modules: body.Modules, ContractedTypes: body.ContractedTypes,
				PIIClasses: convert(body.PiiClasses, func(class string) shredding.Class { return shredding.Class(class) }), TrustLevel: ports.TrustLevel(body.TrustLevel),
			},
		},
		Renew: body.Renew, Everywhere: body.AllLegalEntities, KindGiven: true,
	})
	if err != nil {
		return nil, err
	}
	// The log keeps who granted what to whom; the token and its hash are in none.
	s.log.InfoContext(ctx, "a principal was enrolled", "person_id", p.PersonID, "kind", body.Kind, "roles", p.Roles, "legal_entities", p.LegalEntities,
		"modules", p.Binding.Modules, "contracted_types", p.Binding.ContractedTypes, "pii_classes", p.Binding.PIIClasses,
		"responsible_person", p.Binding.ResponsiblePerson, "renewed", renewed, "tenant", by.TenantID, "by", by.PersonID)
	return reply(http.StatusCreated, api.EnrolledPrincipal{
		PersonID: p.PersonID, Kind: body.Kind, Roles: nonNil(p.Roles), LegalEntities: nonNil(p.LegalEntities), ExpiresAt: timeText(p.ExpiresAt), Renewed: renewed, Token: token,
	})
}
