package wire

import (
	"context"
	"net/http"
	"strings"

	"github.com/exaring/otelpgx"
	"go.opentelemetry.io/otel/trace"

	"github.com/erpbackbone/backbone/adapters/awskms"
	"github.com/erpbackbone/backbone/adapters/httpapi"
	"github.com/erpbackbone/backbone/adapters/prometheus"
	"github.com/erpbackbone/backbone/adapters/telemetry"
	"github.com/erpbackbone/backbone/configs"
)

// observed are the metrics and traces of a server.
type observed struct {
	http    httpapi.Metrics
	kms     awskms.Observer
	page    http.Handler
	tracing trace.TracerProvider
	close   func(context.Context) error
}

// composeObservers makes metrics, and traces when a collector is configured, and puts them into
// the options.
func composeObservers(ctx context.Context, config configs.Config, o *Options) (observed, error) {
	metrics := prometheus.New()
	if o.Observers.Append == nil {
		o.Observers.Append = metrics
	}
	if o.Observers.Personal == nil {
		o.Observers.Personal = metrics
	}
	if o.Observers.Projection == nil {
		o.Observers.Projection = metrics
	}
	if o.Observers.Webhooks == nil {
		o.Observers.Webhooks = metrics
	}
	if o.Observers.Fanout == nil {
		o.Observers.Fanout = metrics
	}
	if o.Observers.Subscriptions == nil {
		o.Observers.Subscriptions = metrics
	}
	if o.Observers.Entities == nil {
		o.Observers.Entities = metrics
	}
	if o.Observers.Feeds == nil {
		o.Observers.Feeds = metrics
	}
	out := observed{http: metrics, kms: metrics.ObserveKMS, page: metrics.Handler()}
	if config.Telemetry.OTLPEndpoint == "" {
		return out, nil
	}
	endpoint := config.Telemetry.OTLPEndpoint
	if !strings.Contains(endpoint, "://") {
		endpoint = "http://" + endpoint
	}
	traces, err := telemetry.Setup(ctx, telemetry.Config{Endpoint: endpoint, Service: "backbone", Version: configs.Version})
	if err != nil {
		return observed{}, err
	}
	out.tracing, out.close = traces.TracerProvider(), traces.Shutdown
	// Statements without arguments: values never leave the process.
	o.Observers.Tracer = otelpgx.NewTracer(otelpgx.WithTracerProvider(traces.TracerProvider()))
	return out, nil
}
