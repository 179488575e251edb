package httpapi

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/erpbackbone/backbone/adapters/httpapi/internal/api"
	"github.com/erpbackbone/backbone/application/tenancy"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

var principalHandlers = handlers{
	"enrollPrincipal": withBody((*Server).enrollPrincipal),
	"listPrincipals":  (*Server).listPrincipals,
	"revokePrincipal": withBody((*Server).revokePrincipal),
	"reviewPrincipal": withBody((*Server).reviewPrincipal),
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
			TenantID: by.TenantID, PersonID: body.PersonID, Name: body.Name, ActorType: kind, Roles: body.Roles, LegalEntities: body.LegalEntities,
			Binding: ports.Binding{
				ResponsiblePerson: body.ResponsiblePerson, Modules: body.Modules, ContractedTypes: body.ContractedTypes,
				PIIClasses: convert(body.PiiClasses, func(class string) shredding.Class { return shredding.Class(class) }), TrustLevel: ports.TrustLevel(body.TrustLevel),
			},
		},
		Renew: body.Renew, Everywhere: body.AllLegalEntities, KindGiven: true, Reason: body.Reason,
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

// listPrincipals answers GET /api/admin/principals.
func (s *Server) listPrincipals(ctx context.Context, r *request) (any, error) {
	list, err := s.visiblePrincipals(ctx, r.query("person_id"))
	if err != nil {
		return nil, err
	}
	page, next, err := listPage(r, list, func(p ports.PrincipalStatus) string { return p.PrincipalID }, func(id string) int {
		at, found := slices.BinarySearchFunc(list, id, func(p ports.PrincipalStatus, id string) int { return strings.Compare(p.PrincipalID, id) })
		if found {
			at++
		}
		return at // also behind a login that the caller sees no longer
	})
	if err != nil {
		return nil, err
	}
	out, err := s.principalList(ctx, page)
	out.HasMore, out.NextCursor = next != "", next
	return out, err
}

// principalsOf lists the logins of a person that the caller may see.
func (s *Server) principalsOf(ctx context.Context, personID string) (any, error) {
	list, err := s.visiblePrincipals(ctx, personID)
	if err != nil {
		return nil, err
	}
	return s.principalList(ctx, list)
}

// visiblePrincipals lists the principals that the caller may see, by login; personID "" lists all.
func (s *Server) visiblePrincipals(ctx context.Context, personID string) ([]ports.PrincipalStatus, error) {
	list, err := s.config.Access.Principals(ctx, callOf(ctx).principal)
	return slices.DeleteFunc(list, func(p ports.PrincipalStatus) bool { return personID != "" && p.PersonID != personID }), err
}

func (s *Server) principalList(ctx context.Context, list []ports.PrincipalStatus) (api.PrincipalList, error) {
	names, err := s.namesOf(ctx, convert(list, func(p ports.PrincipalStatus) string { return p.PersonID }))
	now := time.Now()
	return api.PrincipalList{Principals: convert(list, func(p ports.PrincipalStatus) api.Principal {
		out := principalAnswer(p, now)
		out.Name = names[p.PersonID]
		return out
	})}, err
}

// revokePrincipal answers POST /api/admin/principals/{person_id}/revoke.
func (s *Server) revokePrincipal(ctx context.Context, r *request, body *api.PrincipalReason) (any, error) {
	by := callOf(ctx).principal
	if err := s.config.Access.Revoke(ctx, &by, by.TenantID, r.path("person_id"), body.Reason); err != nil {
		return nil, err
	}
	s.log.InfoContext(ctx, "access was revoked", "person_id", r.path("person_id"), "tenant", by.TenantID, "by", by.PersonID)
	return s.principalsOf(ctx, r.path("person_id"))
}

// reviewPrincipal answers POST /api/admin/principals/{person_id}/review.
func (s *Server) reviewPrincipal(ctx context.Context, r *request, body *api.PrincipalReview) (any, error) {
	by := callOf(ctx).principal
	var version uint64
	if body.Version != "" {
		var err error
		if version, err = strconv.ParseUint(body.Version, 10, 63); err != nil || version == 0 {
			return nil, fault.New(fault.Invalid, "principal.version_invalid", "a version is a number from 1, as in the list of principals; correct it").WithField("/version")
		}
	}
	if err := s.config.Access.Review(ctx, &by, by.TenantID, r.path("person_id"), event.Version(version), body.Reason); err != nil {
		return nil, err
	}
	return s.principalsOf(ctx, r.path("person_id"))
}

func principalAnswer(p ports.PrincipalStatus, now time.Time) api.Principal {
	out := api.Principal{
		PrincipalID: p.PrincipalID, PersonID: p.PersonID, Kind: kindPerson, Roles: nonNil(p.Roles), LegalEntities: nonNil(p.LegalEntities),
		ResponsiblePerson: p.Binding.ResponsiblePerson, Modules: p.Binding.Modules, ContractedTypes: p.Binding.ContractedTypes,
		PiiClasses: convert(p.Binding.PIIClasses, func(c shredding.Class) string { return string(c) }), TrustLevel: string(p.Binding.TrustLevel),
		Version: numberText(p.Version), Status: "active", CreatedAt: timeText(p.CreatedAt), ExpiresAt: optionalTime(p.ExpiresAt),
		RevokedAt: optionalTime(p.RevokedAt), ReviewedAt: optionalTime(p.ReviewedAt), ReviewedBy: p.ReviewedBy,
	}
	if p.IsService() {
		out.Kind = kindService
	}
	switch {
	case !p.RevokedAt.IsZero():
		out.Status = "revoked"
	case p.Expired(now):
		out.Status = "expired"
	}
	return out
}
