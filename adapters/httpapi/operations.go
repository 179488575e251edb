package httpapi

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/labstack/echo/v4"
	"go.yaml.in/yaml/v3"

	"github.com/erpbackbone/backbone/application/pipeline"
	"github.com/erpbackbone/backbone/application/tenancy"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// operation is what a route demands of a request, as the OpenAPI document says.
type operation struct {
	id, method string
	path       string // as echo writes it: "/api/events/:id"
	action     string // for the access policy; "" is open to everyone
	body       bodyUse
	batch      bool // the body holds many events, each within the limits of one
	// parameters are those of path, query and header, in the document's order. Others in
	// the query are refused: a misspelt filter that is ignored would show more than was
	// asked for, and dry_run in the query of a request that has it in its body would write.
	parameters []parameter
	checks     bool // the handler checks the query itself
}

type parameter struct {
	name     string
	in       string // "path", "query" or "header"
	required bool
}

// bodyUse tells whether an operation has a body.
type bodyUse uint8

const (
	noBody bodyUse = iota
	optionalBody
	requiredBody
)

// has tells whether the document names a parameter of the query.
func (o operation) has(name string) bool {
	return slices.ContainsFunc(o.parameters, func(p parameter) bool { return p.in == "query" && p.name == name })
}

// documentedOperation is the part of an operation in the OpenAPI document that routes
// are derived from. Limits and flags that OpenAPI has no word for are extensions.
type documentedOperation struct {
	ID          string                `yaml:"operationId"`
	Security    *[]any                `yaml:"security"` // [] says that everyone may call it
	Action      string                `yaml:"x-action"` // of the access policy; absent: open to everyone
	Batch       bool                  `yaml:"x-batch"`
	Parameters  []documentedParameter `yaml:"parameters"`
	RequestBody *struct {
		Required bool `yaml:"required"`
	} `yaml:"requestBody"`
}

type documentedParameter struct {
	Ref      string `yaml:"$ref"`
	Name     string `yaml:"name"`
	In       string `yaml:"in"`
	Required bool   `yaml:"required"`
}

// documentedOperations derives the routes from the core document.
func documentedOperations() ([]operation, error) {
	var d struct {
		Paths      map[string]map[string]documentedOperation `yaml:"paths"`
		Components struct {
			Parameters map[string]documentedParameter `yaml:"parameters"`
		} `yaml:"components"`
	}
	if err := yaml.Unmarshal(coreDocument, &d); err != nil {
		return nil, fmt.Errorf("embedded OpenAPI document: %w", err)
	}
	var out []operation
	for path, methods := range d.Paths {
		for method, documented := range methods {
			o := operation{
				id: documented.ID, method: strings.ToUpper(method), path: pathParameters.Replace(path), action: documented.Action, batch: documented.Batch,
				parameters: make([]parameter, len(documented.Parameters)),
			}
			if isOpen := documented.Security != nil && len(*documented.Security) == 0; isOpen != (o.action == "") {
				return nil, fmt.Errorf("operation %s of the OpenAPI document has either an x-action or security: []", o.id)
			}
			for i, p := range documented.Parameters {
				if p.Ref != "" {
					p = d.Components.Parameters[strings.TrimPrefix(p.Ref, "#/components/parameters/")]
				}
				o.parameters[i] = parameter{name: p.Name, in: p.In, required: p.Required}
			}
			if b := documented.RequestBody; b != nil {
				o.body = optionalBody
				if b.Required {
					o.body = requiredBody
				}
			}
			out = append(out, o)
		}
	}
	return out, nil
}

// pathParameters turns {id} of the document into :id of echo.
var pathParameters = strings.NewReplacer("{", ":", "}", "")

// handler answers one operation.
type handler func(s *Server, ctx context.Context, r request) (response, error)

// handlers are those of one resource, by operation id.
type handlers map[string]handler

// resources are all of them. A new operation is written into the OpenAPI document and
// into the file of its resource.
var resources = []handlers{
	appendHandlers,
	eventHandlers,
	queryHandlers,
	exportHandlers,
	causalityHandlers,
	streamHandlers,
	feedHandlers,
	entityHandlers,
	snapshotHandlers,
	eventTypeHandlers,
	intentHandlers,
	projectionHandlers,
	customProjectionHandlers,
	rebuildHandlers,
	deadLetterHandlers,
	subscriptionHandlers,
	subscriptionMessageHandlers,
	webhookHandlers,
	erasureHandlers,
	legalHoldHandlers,
	legalEntityHandlers,
	healthHandlers,
}

// withBody decodes the body for a handler that takes one. An optional body that is
// absent is an empty one.
func withBody[T any](handle func(s *Server, ctx context.Context, r request, body *T) (response, error)) handler {
	return func(s *Server, ctx context.Context, r request) (response, error) {
		body := new(T)
		if err := decodeBody(callOf(ctx).body, body); err != nil {
			return nil, err
		}
		return handle(s, ctx, r, body)
	}
}

// route binds every operation of the document to its handler.
func (s *Server) route(e *echo.Echo) error {
	operations, err := documentedOperations()
	if err != nil {
		return err
	}
	bound := handlers{}
	for _, resource := range resources {
		maps.Copy(bound, resource)
	}
	for _, o := range operations {
		handle, found := bound[o.id]
		if !found {
			return fmt.Errorf("operation %s of the OpenAPI document has no handler", o.id)
		}
		delete(bound, o.id)
		e.Add(o.method, o.path, s.serve(handle, o), s.guard(o))
	}
	if len(bound) > 0 {
		return fmt.Errorf("handlers without an operation in the OpenAPI document: %v", slices.Sorted(maps.Keys(bound)))
	}
	return nil
}

// serve checks the parameters and writes what the handler answers.
func (s *Server) serve(handle handler, o operation) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := request{c}
		if err := r.check(o); err != nil {
			return err
		}
		answered, err := handle(s, c.Request().Context(), r)
		if err != nil {
			return err
		}
		return answered.write(c.Response())
	}
}

// rawParameter asks for events as they are stored.
const rawParameter = "raw"

// guard is the first half of the order of checks: authenticated, allowed,
// well-formed and within the limits. Nothing of a body is read before its sender
// is known and may do such a thing at all.
func (s *Server) guard(op operation) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			ctx := c.Request().Context()
			this := callOf(ctx)
			this.route = c.Path()
			if op.action != "" {
				this.token = tokenOf(c.Request())
				p, err := s.config.Access.Authenticate(ctx, this.token)
				if err != nil {
					return err
				}
				this.principal = p
				if err := s.config.Access.Authorize(ctx, p, actionAnywhere(op.action)); err != nil {
					return err
				}
			}
			if op.action != "" {
				if err := checkAddress(c.Request().URL); err != nil {
					return err
				}
			}
			if op.action != "" && !op.checks {
				for name := range c.QueryParams() {
					if !op.has(name) {
						return fault.New(fault.Invalid, "request.parameter_unknown", "there is no such parameter here; GET /api/openapi.yaml lists them").WithField(name)
					}
				}
			}
			if isFeed(c) {
				this.request = c.Request()
			}
			if op.has(rawParameter) {
				switch c.QueryParam(rawParameter) {
				case "", "false":
				case "true":
					this.wantsRaw = true
				default:
					return invalidParameter(rawParameter, "true or false")
				}
			}
			if op.body == noBody {
				return next(c)
			}
			buffer := buffers.Get().(*bodyBuffer)
			defer buffer.release()
			if err := s.readBody(c, buffer, op); err != nil {
				return err
			}
			this.body = buffer.Bytes()
			return next(c)
		}
	}
}

// checkAddress refuses a path and query that cannot be read, before anybody acts
// on the part that can: a filter that is silently dropped would show more than was
// asked for. No id, code or name that is stored holds U+0000 or bytes that are not
// UTF-8.
func checkAddress(u *url.URL) error {
	if !isReadable(u.Path) {
		return fault.New(fault.Invalid, "request.path_invalid", "the path holds U+0000 or bytes that are not UTF-8; correct it")
	}
	params, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return fault.New(fault.Invalid, "request.query_malformed",
			"the query cannot be read; percent-encode values and join parameters by &")
	}
	for name, values := range params {
		if !isReadable(name) {
			return fault.New(fault.Invalid, "request.query_malformed",
				"the name of a parameter holds U+0000 or bytes that are not UTF-8; correct it")
		}
		if slices.ContainsFunc(values, func(v string) bool { return !isReadable(v) }) {
			return invalidParameter(name, "text in UTF-8 without U+0000")
		}
	}
	return nil
}

func isReadable(text string) bool { return utf8.ValidString(text) && !strings.ContainsRune(text, 0) }

// actionAnywhere asks whether the caller may do such a thing anywhere. For raw
// appends that is: an event of a type that no built-in module owns. The legal
// entity and the types follow once the body has been read.
func actionAnywhere(action string) tenancy.Action {
	a := tenancy.Action{Name: action}
	if action == actionAppend {
		a.EventTypes = []tenancy.TypeAccess{{}}
	}
	return a
}

const actionAppend = "events.append"

// bearer takes the token out of the header; "" if there is none.
func bearer(header string) string {
	scheme, token, found := strings.Cut(header, " ")
	if !found || !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// authorizeIn checks that the caller may do the action in a legal entity and finds it.
// One that the caller may not see is as unknown as one that does not exist.
func (s *Server) authorizeIn(ctx context.Context, action, code string, types ...tenancy.TypeAccess) (ports.LegalEntity, error) {
	p := callOf(ctx).principal
	if err := s.config.Access.Authorize(ctx, p, tenancy.Action{Name: action, LegalEntity: code, EventTypes: types}); err != nil {
		return ports.LegalEntity{}, err
	}
	return s.config.Access.LegalEntity(ctx, p.TenantID, code)
}

// inLegalEntities calls f with the legal entity that is named, or with those that the
// caller may see, one after the other, until f does not answer with the code that
// says it has no such thing.
func (s *Server) inLegalEntities(ctx context.Context, action, code, notFound string, f func(ports.LegalEntity) error) error {
	if code != "" {
		le, err := s.authorizeIn(ctx, action, code)
		if err != nil {
			return err
		}
		return f(le)
	}
	visible, err := s.visibleLegalEntities(ctx)
	if err != nil {
		return err
	}
	last := error(fault.New(fault.NotFound, notFound, "nothing you may see has this id; check the id, or ask for the right to see its legal entity"))
	for _, le := range visible {
		if last = f(le); fault.CodeOf(last) != notFound {
			return last
		}
	}
	return last
}

// visibleLegalEntities lists the legal entities that the caller may see.
func (s *Server) visibleLegalEntities(ctx context.Context) ([]ports.LegalEntity, error) {
	p := callOf(ctx).principal
	all, err := s.config.Access.LegalEntities(ctx, p.TenantID)
	if err != nil || len(p.LegalEntities) == 0 {
		return all, err
	}
	entitled := make(map[string]bool, len(p.LegalEntities))
	for _, code := range p.LegalEntities {
		entitled[code] = true
	}
	out := make([]ports.LegalEntity, 0, len(p.LegalEntities))
	for _, le := range all {
		if entitled[le.Code] {
			out = append(out, le)
		}
	}
	return out, nil
}

func callerOf(ctx context.Context) pipeline.Caller {
	p := callOf(ctx).principal
	return pipeline.Caller{Principal: p, Actor: tenancy.Actor(p)}
}
