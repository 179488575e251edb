package httpapi_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/erpbackbone/backbone/adapters/httpapi"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/fault"
)

func TestTraceRoute(t *testing.T) {
	t.Parallel()
	catalog, err := module.Build(nil)
	require.NoError(t, err)
	spans := tracetest.NewSpanRecorder()
	s := newServer(t, httpapi.Config{
		Access: failingAccess{err: fault.New(fault.Unauthenticated, "auth.token_missing", "send one")}, Catalog: catalog, Limits: limitsOf(nil),
		Tracing: sdk.NewTracerProvider(sdk.WithSpanProcessor(spans)),
	})
	answer := httptest.NewRecorder()
	s.Handler().ServeHTTP(answer, httptest.NewRequest("GET", "/api/events/01J", nil))
	require.Equal(t, 401, answer.Code)
	s.Handler().ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/livez", nil))
	require.Len(t, spans.Ended(), 1)
	require.Contains(t, spans.Ended()[0].Name(), "/api/events/:id")
}

// Details may quote the request; a trace would show them to its readers.
func TestTraceHasNoContents(t *testing.T) {
	t.Parallel()
	catalog, err := module.Build(nil)
	require.NoError(t, err)
	const canary = "ada-canary"
	for name, cause := range map[string]error{
		"refused": fault.New(fault.Invalid, "demo.refused", "%s came too late; ask later", canary).WithField("/" + canary),
		"failed":  errors.New("no handler for " + canary),
		"panic":   nil,
	} {
		spans := tracetest.NewSpanRecorder()
		log := &strings.Builder{}
		s := newServer(t, httpapi.Config{
			Access: failingAccess{err: cause}, Catalog: catalog, Limits: limitsOf(nil), Tracing: sdk.NewTracerProvider(sdk.WithSpanProcessor(spans)), Logger: slog.New(slog.NewTextHandler(log, nil)),
		})
		answer := httptest.NewRecorder()
		s.Handler().ServeHTTP(answer, httptest.NewRequest("GET", "/api/events/01J?legal_entity="+canary, nil))
		require.Equal(t, map[string]int{"refused": 400, "failed": 500, "panic": 500}[name], answer.Code)
		require.Equal(t, name == "refused", strings.Contains(answer.Body.String(), canary), "only the refusal quotes the request")
		require.Len(t, spans.Ended(), 1, name)
		span := spans.Ended()[0]
		require.NotContains(t, fmt.Sprint(span.Name(), span.Attributes(), span.Events(), span.Status()), canary, name)
		if name == "panic" {
			require.NotContains(t, fmt.Sprint(span.Attributes(), span.Events(), span.Status(), log), "secret")
			require.Contains(t, log.String(), "request panicked")
		}
	}
}
