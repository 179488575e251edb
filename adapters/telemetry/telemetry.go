// Package telemetry sends OpenTelemetry traces to an endpoint, if one is
// configured. Spans leave the process with the attributes of a closed list only:
// no ids of persons, no addresses, no paths with ids, no payloads.
package telemetry

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// Config names the collector of traces.
type Config struct {
	// Endpoint is the URL of an OTLP/HTTP collector, "http://127.0.0.1:4318"; "" is
	// no tracing at all. Without a path, /v1/traces is added.
	Endpoint string
	// Service and Version name the process in the traces.
	Service string
	Version string
}

// Telemetry holds the tracing of a process.
type Telemetry struct {
	provider trace.TracerProvider
	stop     func(context.Context) error
}

// Setup prepares tracing. Without an endpoint nothing is recorded, sent or
// started. An endpoint that cannot be reached costs spans, never requests.
func Setup(ctx context.Context, c Config) (*Telemetry, error) {
	if c.Endpoint == "" {
		return &Telemetry{provider: noop.NewTracerProvider(), stop: func(context.Context) error { return nil }}, nil
	}
	u, err := url.Parse(c.Endpoint)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, fmt.Errorf("tracing endpoint is not an http or https URL; give one such as http://127.0.0.1:4318")
	}
	if strings.Trim(u.Path, "/") == "" {
		u.Path = "/v1/traces"
	}
	exporter, err := otlptrace.New(ctx, newCollector(u.String()))
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	return newTelemetry(c, exporter), nil
}

func newTelemetry(c Config, exporter sdk.SpanExporter) *Telemetry {
	provider := sdk.NewTracerProvider(
		sdk.WithBatcher(redactor{exporter}),
		sdk.WithSampler(sdk.ParentBased(sdk.AlwaysSample())),
		sdk.WithResource(resource.NewSchemaless(attribute.String("service.name", c.Service), attribute.String("service.version", c.Version))),
	)
	return &Telemetry{provider: provider, stop: provider.Shutdown}
}

// TracerProvider gives instrumented code its tracers.
func (t *Telemetry) TracerProvider() trace.TracerProvider { return t.provider }

// Shutdown sends the spans that are not sent yet, until ctx ends.
func (t *Telemetry) Shutdown(ctx context.Context) error { return t.stop(ctx) }

// allowed are the attributes that leave the process: names that end in a dot stand
// for all that begin with them.
var allowed = []string{
	"http.request.method", "http.route", "http.response.status_code", "http.method", "http.status_code",
	"network.protocol.", "server.address", "server.port", "url.scheme", "error.type",
	"db.system", "db.system.name", "db.operation", "db.operation.name", "db.namespace", "db.collection.name", "db.query.summary",
	"backbone.",
}

func isAllowed(a attribute.KeyValue) bool {
	name := string(a.Key)
	return slices.ContainsFunc(allowed, func(s string) bool {
		return name == s || strings.HasSuffix(s, ".") && strings.HasPrefix(name, s)
	})
}

// redactor passes spans on without the attributes that are not allowed, and without
// events, which quote the texts of errors.
type redactor struct{ sdk.SpanExporter }

func (r redactor) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	out := make([]sdk.ReadOnlySpan, len(spans))
	for i, s := range spans {
		out[i] = redactedSpan{s}
	}
	return r.SpanExporter.ExportSpans(ctx, out)
}

type redactedSpan struct{ sdk.ReadOnlySpan }

func (s redactedSpan) Attributes() []attribute.KeyValue {
	var out []attribute.KeyValue
	for _, a := range s.ReadOnlySpan.Attributes() {
		if isAllowed(a) {
			out = append(out, a)
		}
	}
	return out
}

func (s redactedSpan) Events() []sdk.Event { return nil }

func (s redactedSpan) Status() sdk.Status {
	status := s.ReadOnlySpan.Status()
	status.Description = ""
	return status
}
