package telemetry

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

func TestSetup(t *testing.T) {
	t.Parallel()
	t.Run("without endpoint nothing is recorded", func(t *testing.T) {
		t.Parallel()
		tel, err := Setup(t.Context(), Config{})
		require.NoError(t, err)
		_, span := tel.TracerProvider().Tracer("x").Start(t.Context(), "y")
		require.False(t, span.IsRecording())
		require.NoError(t, tel.Shutdown(t.Context()))
	})
	t.Run("endpoint that is no URL is refused", func(t *testing.T) {
		t.Parallel()
		for _, endpoint := range []string{"127.0.0.1:4318", "grpc://127.0.0.1:4317", "http://"} {
			_, err := Setup(t.Context(), Config{Endpoint: endpoint})
			require.Error(t, err, endpoint)
		}
	})
	t.Run("spans reach the collector", func(t *testing.T) {
		t.Parallel()
		received := make(chan *http.Request, 1)
		bodies := make(chan []byte, 1)
		server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			received <- r
			bodies <- body
		}))
		t.Cleanup(server.Close)
		tel, err := Setup(t.Context(), Config{Endpoint: server.URL, Service: "backbone", Version: "test"})
		require.NoError(t, err)
		_, span := tel.TracerProvider().Tracer("x").Start(t.Context(), "POST /api/intents")
		span.SetAttributes(attribute.String("client.address", "192.0.2.7"), attribute.String("http.route", "/api/intents"))
		span.End()
		require.NoError(t, tel.Shutdown(t.Context()))
		request, body := <-received, <-bodies
		require.Equal(t, "/v1/traces", request.URL.Path)
		require.Equal(t, "application/x-protobuf", request.Header.Get("Content-Type"))
		require.NotContains(t, string(body), "192.0.2.7")
		var data tracepb.TracesData
		require.NoError(t, proto.Unmarshal(body, &data))
		require.Len(t, data.GetResourceSpans(), 1)
		require.Equal(t, "backbone", data.GetResourceSpans()[0].GetResource().GetAttributes()[0].GetValue().GetStringValue())
		sent := data.GetResourceSpans()[0].GetScopeSpans()[0].GetSpans()[0]
		require.Equal(t, "POST /api/intents", sent.GetName())
		require.Len(t, sent.GetAttributes(), 1)
		require.Equal(t, "http.route", sent.GetAttributes()[0].GetKey())
	})
	t.Run("only listed attributes leave the process", func(t *testing.T) {
		t.Parallel()
		exporter := tracetest.NewInMemoryExporter()
		tel := newTelemetry(Config{}, exporter)
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
		spans := exporter.GetSpans()
		require.Len(t, spans, 1)
		require.Equal(t, []attribute.KeyValue{attribute.String("http.route", "/api/events/:id"), attribute.Int("backbone.events", 3)}, spans[0].Attributes)
		require.Empty(t, spans[0].Events)
		require.Empty(t, spans[0].Status.Description)
	})
}

func TestCollectorUpload(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answers  []int // the last is repeated
		requests int
		fails    bool
	}{
		"busy collector is asked again":        {[]int{http.StatusServiceUnavailable, http.StatusTooManyRequests, http.StatusOK}, 3, false},
		"refused batch is dropped at once":     {[]int{http.StatusBadRequest}, 1, true},
		"collector that stays busy is left":    {[]int{http.StatusBadGateway}, maxAttempts, true},
		"answer without content is acceptance": {[]int{http.StatusNoContent}, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requests := 0
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(c.answers[min(requests, len(c.answers)-1)])
				requests++
			}))
			t.Cleanup(server.Close)
			client := newCollector(server.URL)
			client.pause = time.Millisecond
			err := client.UploadTraces(t.Context(), []*tracepb.ResourceSpans{{}})
			require.Equal(t, c.fails, err != nil, err)
			require.Equal(t, c.requests, requests)
		})
	}
}

func TestAddHeaders(t *testing.T) {
	t.Parallel()
	header := http.Header{}
	addHeaders(header, "authorization=Bearer%20x, x-team=erp,nonsense,=y,bad=%zz")
	require.Equal(t, http.Header{"Authorization": {"Bearer x"}, "X-Team": {"erp"}}, header)
}
