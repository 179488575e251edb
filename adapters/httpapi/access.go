package httpapi

import (
	"cmp"
	"context"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"github.com/erpbackbone/backbone/application/disclosure"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/pipeline"
	"github.com/erpbackbone/backbone/application/tenancy"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// Access authenticates and authorizes callers, and resolves legal entities:
// tenancy.Service.
type Access interface {
	Authenticate(ctx context.Context, token string) (ports.Principal, error)
	Authorize(ctx context.Context, p ports.Principal, a tenancy.Action) error
	LegalEntity(ctx context.Context, tenantID, code string) (ports.LegalEntity, error)
	LegalEntities(ctx context.Context, tenantID string) ([]ports.LegalEntity, error)
	CreateLegalEntity(ctx context.Context, le ports.LegalEntity, by event.Actor) (ports.LegalEntity, error)
	// Sight returns which of the event types that the registry has in memory the principal sees.
	Sight(p ports.Principal) module.Sight
	// Admit enrolls a principal on behalf of an administrator and returns its new token.
	Admit(ctx context.Context, by *ports.Principal, a tenancy.Application) (p ports.Principal, token string, renewed bool, err error)
	// Principals lists the logins that the principal may see.
	Principals(ctx context.Context, p ports.Principal) ([]ports.PrincipalStatus, error)
	Revoke(ctx context.Context, by *ports.Principal, tenantID, personID, reason string) error
	Review(ctx context.Context, by *ports.Principal, tenantID, personID string, version event.Version, reason string) error
}

// rawParameter asks for events as they are stored.
const rawParameter = "raw"

// guard runs the first checks in their order: authenticated, allowed, well-formed and
// within the limits. It reads the body only of a caller whose roles allow the action.
func (s *Server) guard(op operation) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			ctx := c.Request().Context()
			current := callOf(ctx)
			current.route, current.operation = c.Path(), cmp.Or(op.id, c.Path())
			if op.action != "" {
				current.token = tokenOf(c.Request())
				p, err := s.config.Access.Authenticate(ctx, current.token)
				if err != nil {
					return err
				}
				current.principal = p
				if p.IsService() {
					ctx = module.WithSight(ctx, s.sightOfCaller(op, !routesWithoutDeadline[c.Path()]))
					c.SetRequest(c.Request().WithContext(ctx))
				}
				if err := s.config.Access.Authorize(ctx, p, actionAnywhere(op.action)); err != nil {
					if attempt := decisions[op.id]; attempt != "" && fault.KindOf(err) == fault.Forbidden {
						return s.refuseDecision(ctx, &request{c: c}, attempt, err)
					}
					return err
				}
				if err := checkAddress(c.Request().URL); err != nil {
					return err
				}
				current.reason = c.Request().Header.Get(headerAccessReason)
				if err := disclosure.CheckReason(headerAccessReason, current.reason); err != nil {
					return err
				}
				for name := range c.QueryParams() {
					if !op.skipQueryCheck && !op.hasQueryParameter(name) {
						return fault.New(fault.Invalid, "request.parameter_unknown", "there is no such parameter here; GET /api/openapi.yaml lists them").WithField(name)
					}
				}
			}
			if isFeed(c) {
				current.feedRequest = c.Request()
			}
			if op.hasQueryParameter(rawParameter) {
				r := request{c: c}
				if current.wantsRaw = r.flag(rawParameter); r.err != nil {
					return r.err
				}
			}
			if op.body == noBody {
				return next(c)
			}
			admission := s.admission
			if op.binary {
				admission = s.papers
			}
			ticket, err := admission.admit(c)
			if err != nil {
				return err
			}
			defer ticket.leave()
			buffer := bodyBuffers.Get().(*bodyBuffer)
			defer buffer.release()
			if err := s.readBody(c, buffer, op, admission.limits.BodyBytes); err != nil {
				return err
			}
			ticket.received(int64(buffer.Len()))
			current.body = buffer.Bytes()
			return next(c)
		}
	}
}

// sightOfCaller finds what the service that calls sees of the log: once for a request, or at each
// read of one that lasts (routesWithoutDeadline), during which event types may be registered and
// the service be enrolled for other modules. What reads needs the registry as it is now, because
// it would leave out events of a type that is unknown here. An append looks up the types that it
// names, and refreshes the registry before it refuses a stream or limits a condition that names no types.
func (s *Server) sightOfCaller(op operation, once bool) func(context.Context) (module.Sight, error) {
	var found *module.Sight
	return func(ctx context.Context) (module.Sight, error) {
		if found != nil {
			return *found, nil
		}
		p := callOf(ctx).principal
		if op.action != actionAppend && op.action != actionSubmitIntent {
			if err := s.config.Types.Refresh(ctx, p.TenantID); err != nil {
				return module.Sight{}, err
			}
		}
		sight := s.config.Access.Sight(p)
		if once && op.action != actionAppend {
			found = &sight
		}
		return sight, nil
	}
}

// checkAddress refuses a path or query that cannot be parsed completely: a filter that
// is silently dropped would show more than was asked for. No stored id, code or name
// holds U+0000 or bytes that are not UTF-8.
func checkAddress(u *url.URL) error {
	if !isStorableText(u.Path) {
		return fault.New(fault.Invalid, "request.path_invalid", "the path holds U+0000 or bytes that are not UTF-8; correct it")
	}
	params, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return fault.New(fault.Invalid, "request.query_malformed",
			"the query cannot be read; percent-encode values and join parameters by &")
	}
	for name, values := range params {
		if !isStorableText(name) {
			return fault.New(fault.Invalid, "request.query_malformed",
				"the name of a parameter holds U+0000 or bytes that are not UTF-8; correct it")
		}
		if slices.ContainsFunc(values, func(v string) bool { return !isStorableText(v) }) {
			return invalidParameter(name, "text in UTF-8 without U+0000")
		}
	}
	return nil
}

func isStorableText(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsRune(text, 0)
}

// actionAnywhere is the action without a legal entity, for which the access policy checks
// the caller's roles. A raw append is checked for an event type that no built-in module
// owns. Handlers check the legal entity and the types when they have read them
// (authorizeIn).
func actionAnywhere(action string) tenancy.Action {
	a := tenancy.Action{Name: action}
	if action == actionAppend {
		a.EventTypes = []tenancy.TypeAccess{{}}
	}
	return a
}

const (
	actionAppend       = "events.append"
	actionSubmitIntent = "intents.submit"
)

// bearer returns the token of an Authorization header; "" if it has none.
func bearer(header string) string {
	scheme, token, found := strings.Cut(header, " ")
	if !found || !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// authorizeIn checks that the caller may do the action in a legal entity, and finds it.
// One that the caller may not see is not found, like one that does not exist.
func (s *Server) authorizeIn(ctx context.Context, action, code string, types ...tenancy.TypeAccess) (ports.LegalEntity, error) {
	p := callOf(ctx).principal
	if err := s.config.Access.Authorize(ctx, p, tenancy.Action{Name: action, LegalEntity: code, EventTypes: types}); err != nil {
		return ports.LegalEntity{}, err
	}
	return s.config.Access.LegalEntity(ctx, p.TenantID, code)
}

// canReadAdministrativeLog reports whether the access policy allows the caller an action in the
// administrative log of the tenant.
func (s *Server) canReadAdministrativeLog(ctx context.Context, action string) (bool, error) {
	err := s.config.Access.Authorize(ctx, callOf(ctx).principal, tenancy.Action{Name: action, LegalEntity: ports.AdministrativeCode})
	switch fault.KindOf(err) {
	case fault.Forbidden, fault.NotFound:
		return false, nil
	default:
		return err == nil, err
	}
}

// findByID calls find with the id in the path, in the legal entity that the request names
// or in each that the caller may see, until find returns anything but the code notFound.
func (s *Server) findByID(ctx context.Context, r *request, action, notFound string, find func(le ports.LegalEntity, id event.ID) error) error {
	id, err := parseID(r.path("id"), notFound)
	if err == nil {
		err = r.err
	}
	if err != nil {
		return err
	}
	if code := r.query("legal_entity"); code != "" {
		le, err := s.authorizeIn(ctx, action, code)
		if err != nil {
			return err
		}
		return find(le, id)
	}
	visible, err := s.visibleLegalEntities(ctx)
	if err != nil {
		return err
	}
	last := error(fault.New(fault.NotFound, notFound, "nothing you may see has this id; check the id, or ask for the right to see its legal entity"))
	for _, le := range visible {
		if last = find(le, id); fault.CodeOf(last) != notFound {
			return last
		}
	}
	return last
}

// visibleLegalEntities lists the legal entities that the caller may see: all of the tenant
// if the principal names none.
func (s *Server) visibleLegalEntities(ctx context.Context) ([]ports.LegalEntity, error) {
	p := callOf(ctx).principal
	all, err := s.config.Access.LegalEntities(ctx, p.TenantID)
	if err != nil || len(p.LegalEntities) == 0 {
		return all, err
	}
	return slices.DeleteFunc(slices.Clone(all), func(le ports.LegalEntity) bool { return !slices.Contains(p.LegalEntities, le.Code) }), nil
}

// rolesOf returns the caller's roles for access lists. They are never nil,
// because services take nil for the server itself.
func rolesOf(ctx context.Context) []string {
	return append([]string{}, callOf(ctx).principal.Roles...)
}

func callerOf(ctx context.Context) pipeline.Caller {
	p := callOf(ctx).principal
	return pipeline.Caller{Principal: p, Actor: p.Actor()}
}
