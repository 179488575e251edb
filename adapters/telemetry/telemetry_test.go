package telemetry

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

func TestNothingIsRecordedWithoutAnEndpoint(t *testing.T) {
	t.Parallel()
	tel, err := Setup(t.Context(), Config{})
	require.NoError(t, err)
	_, span := tel.TracerProvider().Tracer("x").Start(t.Context(), "y")
	require.False(t, span.IsRecording())
	require.NoError(t, tel.Shutdown(t.Context()))
}

func TestEndpointMustBeAURL(t *testing.T) {
	t.Parallel()
	for _, endpoint := range []string{"127.0.0.1:4318", "grpc://127.0.0.1:4317", "http://"} {
		_, err := Setup(t.Context(), Config{Endpoint: endpoint})
		require.Error(t, err, endpoint)
	}
}

func TestSpansReachTheCollector(t *testing.T) {
	t.Parallel()
	received := make(chan string, 1)
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		received <- r.URL.Path + " " + string(body)
	}))
	t.Cleanup(collector.Close)
	tel, err := Setup(t.Context(), Config{Endpoint: collector.URL, Service: "backbone", Version: "test"})
	require.NoError(t, err)
	_, span := tel.TracerProvider().Tracer("x").Start(t.Context(), "POST /api/intents")
	span.SetAttributes(attribute.String("client.address", "192.0.2.7"), attribute.String("http.route", "/api/intents"))
	span.End()
	require.NoError(t, tel.Shutdown(t.Context()))
	message := <-received
	require.Contains(t, message, "/v1/traces ")
	require.Contains(t, message, "http.route")
	require.NotContains(t, message, "192.0.2.7")
}

func TestOnlyListedAttributesLeave(t *testing.T) {
	t.Parallel()
	kept := tracetest.NewInMemoryExporter()
	tel := newTelemetry(Config{}, kept)
	_, span := tel.TracerProvider().Tracer("x").Start(t.Context(), "append")
	span.SetAttributes(
		attribute.String("http.route", "/api/events/:id"), attribute.String("url.path", "/api/events/01J"),
		attribute.String("enduser.id", "p-1"), attribute.String("db.statement", "SELECT 'x'"), attribute.Int("backbone.events", 3),
	)
	span.RecordError(errors.New("value x"))
	span.SetStatus(codes.Error, "value x")
	span.End()
	provider, ok := tel.TracerProvider().(interface{ ForceFlush(context.Context) error })
	require.True(t, ok)
	require.NoError(t, provider.ForceFlush(t.Context()))
	spans := kept.GetSpans()
	require.Len(t, spans, 1)
	require.Equal(t, []attribute.KeyValue{attribute.String("http.route", "/api/events/:id"), attribute.Int("backbone.events", 3)}, spans[0].Attributes)
	require.Empty(t, spans[0].Events)
	require.Empty(t, spans[0].Status.Description)
}
