package wire

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"time"

	"github.com/erpbackbone/backbone/adapters/httpapi"
	"github.com/erpbackbone/backbone/configs"
)

// Server is an App with its HTTP API.
type Server struct {
	App      *App
	keys     *keyService // nil: none is configured
	http     *httpapi.Server
	shutdown time.Duration
	close    func(context.Context) error // sends the remaining traces; nil: nothing is traced
}

// NewServer composes an App and its API.
func NewServer(ctx context.Context, config configs.Config, o Options) (*Server, error) {
	observed, err := composeObservers(ctx, config, &o)
	if err != nil {
		return nil, err
	}
	keys, err := openKeyService(ctx, config.KMS, observed.kms, auditLog(o.Audit))
	if err != nil {
		return nil, err
	}
	o.keys = keys
	app, err := Open(ctx, config, o)
	if err != nil {
		return nil, errors.Join(err, keys.stop())
	}
	if err := app.composeFanout(ctx, o.Observers.Fanout); err != nil {
		app.Close()
		return nil, errors.Join(err, keys.stop())
	}
	parts := httpapi.Config{
		Access: app.Tenancy, Intents: app.Intake, Appends: app.Append, Streams: app.Streams, Events: app.Query, Types: app.Registry, Upcaster: app.Upcaster, Reports: app.Reports,
		Entities: app.Entities, Snapshots: app.Snapshots,
		Catalog: app.Catalog, Logger: o.Logger, Metrics: observed.http, MetricsPage: observed.page, Tracing: observed.tracing, Ready: app.Ready, Projections: app.operations, Rebuilds: app.rebuilds, Targets: app.targets, CustomProjections: app.custom,
		OperatorTenant: config.Projector.OperatorTenant,
		Limits: httpapi.Limits{
			BodyBytes: int64(config.HTTP.BodyLimitBytes), EventBytes: config.Limits.EventBytes, EventNodes: config.Limits.Nodes,
			Depth: config.Limits.Depth, BatchEvents: config.Limits.BatchEvents, Body: config.HTTP.ReadTimeout, Request: config.HTTP.RequestTimeout,
		},
	}
	parts.Live = app.liveParts()
	if err := app.composeWebhooks(o.Observers.Webhooks); err != nil {
		app.Close()
		return nil, errors.Join(err, keys.stop())
	}
	parts.Subscriptions, parts.Webhooks = app.Subscriptions, app.webhooks.service
	if app.personal != nil {
		parts.Personal, parts.Erasures = app.vault, app.personal.service
	}
	api, err := httpapi.New(parts)
	if err != nil {
		app.Close()
		return nil, errors.Join(err, keys.stop())
	}
	return &Server{App: app, keys: keys, http: api, shutdown: config.HTTP.ShutdownTimeout, close: observed.close}, nil
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
	s.App.Close()
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
	if s.close != nil {
		err = errors.Join(err, s.close(stopping))
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
