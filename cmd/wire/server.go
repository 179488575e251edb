package wire

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"time"

	"github.com/exaring/otelpgx"

	"github.com/erpbackbone/backbone/adapters/httpapi"
	"github.com/erpbackbone/backbone/adapters/plugin"
	"github.com/erpbackbone/backbone/adapters/prometheus"
	"github.com/erpbackbone/backbone/adapters/telemetry"
	"github.com/erpbackbone/backbone/application/globallog"
	"github.com/erpbackbone/backbone/application/query"
	"github.com/erpbackbone/backbone/configs"
	"github.com/erpbackbone/backbone/domain/fault"
)

// Serve runs a node until ctx ends: it composes the server, opens the port, and starts the
// background work and the API. When ctx ends, background work stops at once, while requests in
// flight have http.shutdown_timeout before the API closes their connections. The key service
// and the connections to the databases are closed last. Only the requests have a time limit.
func Serve(ctx context.Context, config configs.Config, modules []plugin.Module) (err error) {
	if config.Database.DSN == "" {
		return fault.New(fault.Invalid, "config.dsn_missing", "no database; set database.dsn or BACKBONE_DATABASE_DSN")
	}
	if err := requireKeys(config); err != nil {
		return err
	}
	logger := newLogger(config.Log)
	server, err := NewServer(ctx, config, Options{Modules: modules, Logger: logger, Audit: os.Stderr})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	listener, err := net.Listen("tcp", config.HTTP.Listen)
	if err != nil {
		return fmt.Errorf("http.listen: %w", err)
	}
	background, stop := context.WithCancel(ctx)
	running := make(chan struct{})
	go func() {
		defer close(running)
		server.App.Run(background)
	}()
	logger.InfoContext(ctx, "serving", "address", listener.Addr().String(), "version", configs.Version)
	err = server.Serve(ctx, listener)
	stop()
	<-running
	return err
}

// Server is an App with its HTTP API.
type Server struct {
	App      *App
	keys     *keyService // nil: none is configured
	http     *httpapi.Server
	shutdown time.Duration
	traces   *telemetry.Telemetry // nil: nothing is traced
}

// NewServer composes an App and its API, with metrics, and with traces if telemetry.otlp_endpoint
// is set.
func NewServer(ctx context.Context, config configs.Config, o Options) (_ *Server, err error) {
	o.metrics, o.serves = prometheus.New(), true
	s := &Server{shutdown: config.HTTP.ShutdownTimeout}
	parts := httpapi.Config{
		Metrics: o.metrics, MetricsPage: o.metrics.Handler(), OperatorTenant: config.Projector.OperatorTenant,
		Limits: httpapi.Limits{
			BodyBytes: int64(config.HTTP.BodyLimitBytes), EventBytes: config.Limits.EventBytes, EventNodes: config.Limits.Nodes,
			Depth: config.Limits.Depth, BatchEvents: config.Limits.BatchEvents, EntityRefs: config.Limits.EntityRefs, Tags: config.Limits.Tags, Body: config.HTTP.ReadTimeout, Request: config.HTTP.RequestTimeout,
			Requests: config.HTTP.RequestsInFlight, Bytes: int64(config.HTTP.BytesInFlight), PrincipalRequests: config.HTTP.PrincipalRequests, PrincipalBytes: int64(config.HTTP.PrincipalBytes), PaperBytes: int64(config.HTTP.PaperBytes),
		},
	}
	if endpoint := config.Telemetry.OTLPEndpoint; endpoint != "" {
		if s.traces, err = telemetry.Setup(ctx, telemetry.Config{Endpoint: "http://" + endpoint, Service: "backbone", Version: configs.Version}); err != nil {
			return nil, err
		}
		parts.Tracing = s.traces.TracerProvider()
		// The tracer records statements without their arguments, so that values stay in the process.
		o.Tracer = otelpgx.NewTracer(otelpgx.WithTracerProvider(parts.Tracing))
	}
	if s.keys, err = openKeyService(ctx, config.KMS, o.metrics.ObserveKMS, auditLog(o.Audit)); err != nil {
		return nil, err
	}
	o.keys = s.keys
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if s.App, err = Open(ctx, config, o); err != nil {
		return nil, err
	}
	app := s.App
	if err := app.composeFanout(ctx); err != nil {
		return nil, err
	}
	if err := app.DeliverWith(newSender(config.Webhook)); err != nil {
		return nil, err
	}
	if err := app.OfferVerifications(ctx); err != nil {
		return nil, err
	}
	parts.Verifications, parts.Names = app.verifications, app.Principals
	if err := app.RecoverDecided(ctx); err != nil {
		return nil, err
	}
	parts.Access, parts.Intents, parts.Appends, parts.Streams = app.Tenancy, app.Pipeline, app.appends, app.streams
	parts.Figures = app.Figures
	parts.Events, parts.Reports, parts.Entities, parts.Snapshots, parts.Live = app.Query, app.Reports, app.entities, app.snapshots, app.liveParts()
	parts.Types, parts.Upcaster, parts.Catalog = app.Registry, app.Upcaster, app.Catalog
	parts.GlobalOrder, parts.Positions = query.NewGlobalOrder(app.Query, app.Store.GlobalLog), app.Store.GlobalLog
	parts.Proofs = globallog.NewProver(app.Store.GlobalLog)
	parts.Projections, parts.Rebuilds, parts.Targets, parts.CustomProjections = app.operations, app.rebuilds, app.targets, app.custom
	parts.Subscriptions, parts.Webhooks = app.Subscriptions, app.webhooks.service
	parts.Disclosures = app.disclosures
	parts.Logger, parts.Ready = app.logger, app.Ready
	if app.personal != nil {
		parts.Personal, parts.Erasures, parts.PersonalReports, parts.PersonalSearch = app.vault, app.personal.service, app.personal.reports, app.personal.index
		parts.Papers = app.papers
		if app.personal.redactions != nil {
			parts.Redactions = app.personal.redactions
		}
	}
	if s.http, err = httpapi.New(parts); err != nil {
		return nil, err
	}
	return s, nil
}

// KeyService returns the address of the key service and the path of its credentials file.
// Both are empty when none is configured.
func (s *Server) KeyService() (endpoint, credentials string) {
	if s.keys == nil {
		return "", ""
	}
	return s.keys.endpoint, s.keys.credentials
}

// Close closes the App and stops an embedded key server.
func (s *Server) Close() error {
	if s.App != nil {
		s.App.Close()
	}
	return s.keys.stop()
}

// Serve answers requests until ctx ends. Then it accepts no more, waits at most
// http.shutdown_timeout for the requests in flight, and sends the remaining traces.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	served := make(chan error, 1)
	go func() { served <- s.http.Serve(l) }()
	// Compiling policies and schemas leaves 50 MB of garbage beside the 7 MB that an idle
	// node keeps, and an idle node collects every two minutes only. One collection costs
	// 10 ms.
	debug.FreeOSMemory()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.shutdown)
	defer cancel()
	err := errors.Join(s.http.Shutdown(stopping), <-served)
	if s.traces != nil {
		err = errors.Join(err, s.traces.Shutdown(stopping))
	}
	return err
}

func newLogger(c configs.Log) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(c.Level)) // configs.Load has checked it
	options := &slog.HandlerOptions{Level: level}
	if c.Format == "text" {
		return slog.New(slog.NewTextHandler(os.Stderr, options))
	}
	return slog.New(slog.NewJSONHandler(os.Stderr, options))
}
