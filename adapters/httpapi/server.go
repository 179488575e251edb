package httpapi

import (
	"compress/gzip"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"go.opentelemetry.io/contrib/instrumentation/github.com/labstack/echo/otelecho"
	"go.opentelemetry.io/otel/trace"

	appending "github.com/erpbackbone/backbone/application/append"
	"github.com/erpbackbone/backbone/application/entities"
	application "github.com/erpbackbone/backbone/application/globallog"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/projections"
	"github.com/erpbackbone/backbone/application/projections/custom"
	"github.com/erpbackbone/backbone/application/query"
	"github.com/erpbackbone/backbone/application/registry"
	"github.com/erpbackbone/backbone/application/streams"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/globallog"
	"github.com/erpbackbone/backbone/domain/jsondoc"
	"github.com/erpbackbone/backbone/domain/paper"
	"github.com/erpbackbone/backbone/ports"
)

// Limits bound one request, and the requests in flight that have a body. All must be positive.
// Other requests are bounded by what they use: connections of the database, or feeds.
type Limits struct {
	BodyBytes   int64         // of a request
	EventBytes  int           // of one event
	EventNodes  int           // JSON values in one event
	Depth       int           // of objects and arrays inside one another, in the whole body
	BatchEvents int           // events in one append
	EntityRefs  int           // entity references of one event
	Tags        int           // tags of one event
	Body        time.Duration // for a body to arrive
	Request     time.Duration // for everything after the body

	Requests          int   // with a body, in flight on this node
	Bytes             int64 // of the bodies of requests in flight on this node
	PrincipalRequests int   // the share of one principal in Requests
	PrincipalBytes    int64 // the share of one principal in Bytes; at least BodyBytes
	PaperBytes        int64 // of papers that are received or sent; half of it is the share of one principal. At least twice paper.MaxBytes
}

// minCompressedBytes is the size in bytes from which compressing an answer pays.
const minCompressedBytes = 1400

// Positions finds events in the global log: ports.GlobalOrder.
type Positions interface {
	GlobalPositions(ctx context.Context, events []ports.EventPosition) (map[ports.EventPosition]globallog.Position, error)
}

// Config is what a Server needs.
type Config struct {
	Access    Access
	Intents   Intents
	Appends   *appending.Service // appends events that no intent plans
	Streams   *streams.Service   // deletes streams and stores their metadata
	Events    Events
	Types     *registry.Registry
	Reports   Reports
	Figures   Figures
	Catalog   Catalog
	Entities  *entities.Service        // computes states of entities
	Snapshots *streams.SnapshotService // stores states that clients computed from streams
	// Disclosures decides what personal data callers read, and records it with exports.
	Disclosures Disclosures
	// PersonalReports serves reports about persons; nil: pii.keys_missing.
	PersonalReports PersonalReports
	// PersonalSearch finds persons by name; nil: pii.keys_missing.
	PersonalSearch PersonalSearch
	// Papers keeps and shows papers; nil: pii.keys_missing.
	Papers Papers
	// Personal opens personal values in answers; nil: every caller sees "[MASKED]".
	Personal Personal
	// Upcaster converts events to the newest version of their type; nil: answers have them as
	// they are stored.
	Upcaster    Upcasts
	GlobalOrder *query.GlobalOrder
	// Positions finds events in the global log; nil: answers lack global_position.
	Positions Positions
	Proofs    *application.Prover
	// The routes of a service that is nil answer with the code named here.

	// Erasures serves erasure requests and legal holds; nil: pii.keys_missing.
	Erasures Erasures
	// Redactions serves redaction requests; nil: redaction.not_served.
	Redactions Redactions
	// Projections shows and operates projections; nil: projection.not_served.
	Projections Projections
	// CustomProjections manages projections that tenants define; nil: projection.not_served.
	CustomProjections *custom.Service
	// OperatorTenant is the tenant whose operators may change projections for all tenants;
	// "": no operator may, if the installation has several tenants.
	OperatorTenant string
	// Rebuilds builds new versions of projections; nil: projection.not_served.
	Rebuilds Rebuilds
	// Targets recomputes rows of read models; nil: projection.not_served.
	Targets *projections.Targets
	// Webhooks manages the endpoints of subscriptions; nil: webhook.not_served.
	Webhooks Webhooks
	// Names finds the names of persons.
	Names Names
	// Verifications verifies logs as jobs.
	Verifications Verifications
	// Subscriptions serves persistent subscriptions; nil: subscription.not_served.
	Subscriptions Subscriptions

	// Live serves live feeds; without its services: feed.not_served.
	Live LiveConfig

	Limits      Limits
	Logger      *slog.Logger
	Metrics     Metrics
	MetricsPage http.Handler         // answers GET /metrics
	Tracing     trace.TracerProvider // nil: no traces
	// Ready returns the error of each readiness check by name, nil if it passes. Errors are
	// logged and never answered.
	Ready func(ctx context.Context) map[string]error
}

// Server answers HTTP requests.
type Server struct {
	config    Config
	limits    Limits
	admission *admission
	papers    *admission // of papers, also of those that are sent
	log       *slog.Logger
	document  func() ([]byte, error) // assembled by the first call: most servers are never asked for it
	// fileRoutes are the routes of declared files, whose answers are not compressed.
	fileRoutes map[string]bool
	echo       *echo.Echo
	http       *http.Server
}

// New makes a Server. It fails if the embedded OpenAPI document cannot be read, if an operation
// has no handler or a handler no operation, and if the declared read models and files do not fit into the
// API: a path that is taken, or a parameter that is not in the path it belongs to.
func New(c Config) (*Server, error) {
	if err := fault.RequirePositive("httpapi.Config", c.Limits); err != nil {
		return nil, err
	}
	if c.Live.Live != nil {
		if err := fault.RequirePositive("httpapi.LiveConfig", c.Live.LiveLimits); err != nil {
			return nil, err
		}
	}
	s := &Server{config: c, limits: c.Limits, log: c.Logger, admission: &admission{limits: c.Limits, principals: map[admitted]usage{}}, fileRoutes: map[string]bool{}}
	papers := c.Limits
	papers.BodyBytes, papers.Bytes, papers.PrincipalBytes = paper.MaxBytes, c.Limits.PaperBytes, c.Limits.PaperBytes/2
	s.papers = &admission{limits: papers, principals: map[admitted]usage{}}
	if s.config.Personal == nil {
		s.config.Personal = maskAll{}
	}
	models, err := declaredReadModels(c.Catalog)
	if err != nil {
		return nil, err
	}
	files, err := declaredFiles(c.Catalog)
	if err != nil {
		return nil, err
	}
	s.document = sync.OnceValues(func() ([]byte, error) { return assembleDocument(models, files, c.Catalog.IntentTypes()) })
	e := echo.New()
	e.HideBanner, e.HidePort = true, true
	e.HTTPErrorHandler = s.answerProblem
	e.Use(s.observe)
	if c.Tracing != nil {
		e.Use(otelecho.Middleware("backbone", otelecho.WithTracerProvider(c.Tracing), otelecho.WithSkipper(isProbe)))
		e.Use(s.traceCodeOnly)
	}
	e.Use(middleware.GzipWithConfig(middleware.GzipConfig{MinLength: minCompressedBytes, Level: gzip.BestSpeed, Skipper: func(c echo.Context) bool { return skipsCompression(c) || s.fileRoutes[c.Path()] }}))
	e.Use(s.recoverPanic)
	if err := s.bindRoutes(e); err != nil {
		return nil, err
	}
	for _, m := range models {
		o := operation{action: actionReadModels, skipQueryCheck: true}
		e.GET(m.route, s.serve(readModelHandler(m), o), s.guard(o))
	}
	for _, f := range files {
		s.fileRoutes[f.route] = true
		o := operation{action: actionFiles, parameters: []parameter{{name: "legal_entity", in: "query", required: true}}}
		e.GET(f.route, s.serve(fileHandler(f), o), s.guard(o))
	}
	s.echo = e
	s.http = &http.Server{
		Handler: answerHeadAsGet(e), ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: headerBytes,
		WriteTimeout: s.limits.Body + s.limits.Request + 30*time.Second,
		ErrorLog:     slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
	}
	return s, nil
}

// answerHeadAsGet lets load balancers probe health by HEAD; net/http drops the body, because
// it still holds the original HEAD request.
func answerHeadAsGet(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodHead && (r.URL.Path == "/livez" || r.URL.Path == "/readyz") {
			r = r.Clone(r.Context())
			r.Method = http.MethodGet
		}
		next.ServeHTTP(w, r)
	})
}

// Handler answers requests without a listener.
func (s *Server) Handler() http.Handler { return s.http.Handler }

// Serve answers requests of the listener until Shutdown.
func (s *Server) Serve(l net.Listener) error {
	if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Shutdown first ends waiting polls and live feeds, because feeds have no end of their own.
// Then it stops accepting requests and waits for running ones. When ctx ends before they
// do, it closes their connections.
func (s *Server) Shutdown(ctx context.Context) error {
	if s.config.Subscriptions != nil {
		s.config.Subscriptions.Close()
	}
	err := errors.Join(s.closeFeeds(ctx), s.http.Shutdown(ctx))
	if err != nil {
		return errors.Join(err, s.http.Close())
	}
	return nil
}

// bodyLimits are the JSON limits for a whole body. A batch may have as many values as its
// events together; checkSizes checks each large event by itself.
func (l Limits) bodyLimits(op operation) jsondoc.Limits {
	d := jsondoc.DefaultLimits()
	d.Bytes, d.Depth, d.Nodes, d.Shape = int(l.BodyBytes), l.Depth, l.EventNodes, op.shape
	if op.batch {
		d.Nodes = l.EventNodes * l.BatchEvents
	}
	return d
}

// eventLimits are the JSON limits for the data of one event.
func (l Limits) eventLimits() jsondoc.Limits {
	d := jsondoc.DefaultLimits()
	d.Bytes, d.Depth, d.Nodes = l.EventBytes, l.Depth, l.EventNodes
	return d
}

// Catalog holds the declarations of the modules: module.Catalog.
type Catalog interface {
	ReadModels() map[string]module.ReadModel
	Files() map[string]module.File
	IntentTypes() []module.IntentType
	Owner(eventType string) string
	StreamOwner(streamType string) string
}

// Metrics observes requests. It is called on the hot path and must not block.
type Metrics interface {
	// ObserveRequest reports an answered request. The route is a pattern, "unmatched"
	// if there is none.
	ObserveRequest(method, route string, status int, duration time.Duration)
}
