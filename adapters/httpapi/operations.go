package httpapi

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/labstack/echo/v4"
	"go.yaml.in/yaml/v3"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/jsondoc"
)

// operation is what the OpenAPI document requires of the requests of a route.
type operation struct {
	id, method string
	path       string // as echo writes it: "/api/events/:id"
	action     string // for the access policy; "" is open to everyone
	body       bodyUse
	batch      bool           // the body holds many events, each within the limits of one
	binary     bool           // the body is a file
	shape      *jsondoc.Shape // of the body
	// parameters are those of path, query and header, in the document's order. Other
	// parameters of the query are refused: a misspelt filter that is ignored would show more
	// than was asked for, and dry_run in the query of a request that has it in its body would write.
	parameters     []parameter
	skipQueryCheck bool // the handler checks the query itself
}

type parameter struct {
	name     string
	in       string // "path", "query" or "header"
	required bool
}

// bodyUse states whether an operation has a body.
type bodyUse uint8

const (
	noBody bodyUse = iota
	optionalBody
	requiredBody
)

// hasQueryParameter reports whether the document names a parameter of the query.
func (o operation) hasQueryParameter(name string) bool {
	return slices.ContainsFunc(o.parameters, func(p parameter) bool { return p.in == "query" && p.name == name })
}

// documentedOperation is the part of an operation in the OpenAPI document that routes
// are derived from. Limits and flags that OpenAPI has no word for are extensions.
type documentedOperation struct {
	ID          string                `yaml:"operationId"`
	Security    *[]any                `yaml:"security"` // [] opens the operation to everyone
	Action      string                `yaml:"x-action"` // of the access policy; absent: open to everyone
	Batch       bool                  `yaml:"x-batch"`
	Binary      bool                  `yaml:"x-binary"`
	Parameters  []documentedParameter `yaml:"parameters"`
	RequestBody *struct {
		Required bool `yaml:"required"`
		Content  map[string]struct {
			Schema documentedSchema `yaml:"schema"`
		} `yaml:"content"`
	} `yaml:"requestBody"`
}

type documentedParameter struct {
	Ref      string `yaml:"$ref"`
	Name     string `yaml:"name"`
	In       string `yaml:"in"`
	Required bool   `yaml:"required"`
}

// apiDocument is what the routes need of the core document.
type apiDocument struct {
	Paths      map[string]map[string]documentedOperation `yaml:"paths"`
	Components struct {
		Parameters map[string]documentedParameter `yaml:"parameters"`
		Schemas    map[string]documentedSchema    `yaml:"schemas"`
	} `yaml:"components"`
}

// readCoreDocument reads the core document once: that takes longer than the rest of a server's start.
var readCoreDocument = sync.OnceValues(func() (*apiDocument, error) {
	var d apiDocument
	if err := yaml.Unmarshal(coreDocument, &d); err != nil {
		return nil, fmt.Errorf("embedded OpenAPI document: %w", err)
	}
	return &d, nil
})

// documentedOperations derives the routes from the core document.
func documentedOperations(limits Limits) ([]operation, error) {
	d, err := readCoreDocument()
	if err != nil {
		return nil, err
	}
	bodies := shapes{schemas: d.Components.Schemas, limits: limits, named: map[string]*jsondoc.Shape{}}
	var out []operation
	for path, methods := range d.Paths {
		for method, documented := range methods {
			o := operation{
				id: documented.ID, method: strings.ToUpper(method), path: pathParameters.Replace(path), action: documented.Action, batch: documented.Batch, binary: documented.Binary,
				parameters: make([]parameter, len(documented.Parameters)),
			}
			if isOpen := documented.Security != nil && len(*documented.Security) == 0; isOpen != (o.action == "") {
				return nil, fmt.Errorf("operation %s of the OpenAPI document needs exactly one of x-action and security: []", o.id)
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
				shape, err := bodies.of(b.Content[echo.MIMEApplicationJSON].Schema)
				if err != nil {
					return nil, err
				}
				o.shape = shape
			}
			out = append(out, o)
		}
	}
	return out, nil
}

// pathParameters turns {id} of the document into :id of echo.
var pathParameters = strings.NewReplacer("{", ":", "}", "")

// handler answers one operation: with a response, or with a value that is written as
// JSON with status 200.
type handler func(s *Server, ctx context.Context, r *request) (any, error)

// handlers are those of one resource, by operation id.
type handlers map[string]handler

// resource is the handlers of one resource and the service that they need. A server
// without it answers every request for the resource with the refusal.
type resource struct {
	handlers handlers
	isServed func(c *Config) bool // nil: always
	refusal  *fault.Error
}

// resources lists the handlers of every resource. New fails for an operation of the OpenAPI
// document whose handler is in none of them.
var resources = []resource{
	{handlers: appendHandlers},
	{handlers: eventHandlers},
	{handlers: queryHandlers},
	{handlers: exportHandlers},
	{handlers: causalityHandlers},
	{handlers: streamHandlers},
	{feedHandlers, func(c *Config) bool { return c.Live.Feeds != nil && c.Live.Live != nil },
		fault.New(fault.Unavailable, "feed.not_served", "this server has no live feeds; read GET /api/streams/$all and come back with its cursors")},
	{handlers: entityHandlers},
	{handlers: snapshotHandlers},
	{handlers: eventTypeHandlers},
	{handlers: intentHandlers},
	{projectionHandlers, func(c *Config) bool { return c.Projections != nil }, projectionsNotServed},
	{customProjectionHandlers, func(c *Config) bool { return c.CustomProjections != nil }, projectionsNotServed},
	{rebuildHandlers, func(c *Config) bool { return c.Rebuilds != nil }, projectionsNotServed},
	{rowRebuildHandlers, func(c *Config) bool { return c.Targets != nil }, projectionsNotServed},
	{deadLetterHandlers, func(c *Config) bool { return c.Projections != nil }, projectionsNotServed},
	{subscriptionHandlers, hasSubscriptions, subscriptionsNotServed},
	{subscriptionMessageHandlers, hasSubscriptions, subscriptionsNotServed},
	{webhookHandlers, func(c *Config) bool { return c.Webhooks != nil },
		fault.New(fault.FailedPrecondition, "webhook.not_served", "this server sends nothing to webhooks; ask another one")},
	{erasureHandlers, hasErasures, keysMissing},
	{legalHoldHandlers, hasErasures, keysMissing},
	{redactionHandlers, func(c *Config) bool { return c.Redactions != nil },
		fault.New(fault.FailedPrecondition, "redaction.not_served", "this server redacts nothing; ask an operator to set database.eraser_dsn and a key service")},
	{handlers: disclosureHandlers},
	{personalReportHandlers, func(c *Config) bool { return c.PersonalReports != nil }, keysMissing},
	{paperHandlers, func(c *Config) bool { return c.Papers != nil }, keysMissing},
	{personalSearchHandlers, func(c *Config) bool { return c.PersonalSearch != nil }, keysMissing},
	{handlers: legalEntityHandlers},
	{handlers: principalHandlers},
	{handlers: verificationHandlers},
	{handlers: healthHandlers},
}

var (
	projectionsNotServed   = fault.New(fault.FailedPrecondition, "projection.not_served", "this server runs no projections; ask another one")
	subscriptionsNotServed = fault.New(fault.FailedPrecondition, "subscription.not_served", "this server keeps no subscriptions; ask another one")
	keysMissing            = fault.New(fault.FailedPrecondition, "pii.keys_missing", "this server has no key service and nothing to erase; ask an operator to configure one")
)

func hasSubscriptions(c *Config) bool { return c.Subscriptions != nil }

func hasErasures(c *Config) bool { return c.Erasures != nil }

// withBody decodes the body for a handler that takes one. An optional body that is
// absent is an empty one.
func withBody[T any](handle func(s *Server, ctx context.Context, r *request, body *T) (any, error)) handler {
	return func(s *Server, ctx context.Context, r *request) (any, error) {
		body := new(T)
		if err := decodeBody(callOf(ctx).body, body); err != nil {
			return nil, err
		}
		if err := ctx.Err(); err != nil { // the caller has left
			return nil, err
		}
		return handle(s, ctx, r, body)
	}
}

// bindRoutes binds every operation of the document to its handler.
func (s *Server) bindRoutes(e *echo.Echo) error {
	operations, err := documentedOperations(s.limits)
	if err != nil {
		return err
	}
	bound := handlers{}
	for _, resource := range resources {
		for id, handle := range resource.handlers {
			if bound[id] = handle; resource.isServed != nil && !resource.isServed(&s.config) {
				bound[id] = func(*Server, context.Context, *request) (any, error) { return nil, resource.refusal }
			}
		}
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
		r := &request{c: c}
		if err := r.checkParameters(o); err != nil {
			return err
		}
		value, err := handle(s, c.Request().Context(), r)
		if err != nil {
			return err
		}
		answered, isResponse := value.(response)
		if !isResponse {
			if answered, err = reply(http.StatusOK, value); err != nil {
				return err
			}
		}
		return answered.write(c.Response())
	}
}
