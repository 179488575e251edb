package httpapi_test

import (
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/erpbackbone/backbone/adapters/httpapi"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/fault"
)

func TestRequestsAreTracedByRoute(t *testing.T) {
	t.Parallel()
	catalog, err := module.Build(nil)
	require.NoError(t, err)
	spans := tracetest.NewSpanRecorder()
	s, err := httpapi.New(httpapi.Config{
		Access: nobody{err: fault.New(fault.Unauthenticated, "auth.token_missing", "send one")}, Catalog: catalog,
		Tracing: sdk.NewTracerProvider(sdk.WithSpanProcessor(spans)),
	})
	require.NoError(t, err)
	answer := httptest.NewRecorder()
	s.Handler().ServeHTTP(answer, httptest.NewRequest("GET", "/api/events/01J", nil))
	require.Equal(t, 401, answer.Code)
	s.Handler().ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/livez", nil))
	require.Len(t, spans.Ended(), 1)
	require.Contains(t, spans.Ended()[0].Name(), "/api/events/:id")
}
