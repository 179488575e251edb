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

// composeObservers creates the metrics, which the API always serves, and traces if
// telemetry.otlp_endpoint is set. It adds both to the options.
func composeObservers(ctx context.Context, config configs.Config, o *Options) (observed, error) {
	metrics := prometheus.New()
	o.Observers = observers{
		Append: metrics, Projection: metrics, Personal: metrics, Feeds: metrics, Fanout: metrics, Webhooks: metrics, Subscriptions: metrics, Entities: metrics,
		Tracer: o.Observers.Tracer,
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
	// The tracer records statements without their arguments, so that values stay in the process.
	o.Observers.Tracer = otelpgx.NewTracer(otelpgx.WithTracerProvider(traces.TracerProvider()))
	return out, nil
}
