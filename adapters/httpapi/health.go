package httpapi

import (
	"context"
	"errors"
	"net/http"

	"github.com/erpbackbone/backbone/adapters/httpapi/internal/api"
	"github.com/erpbackbone/backbone/domain/fault"
)

var healthHandlers = handlers{
	"getLiveness":  (*Server).getLiveness,
	"getReadiness": (*Server).getReadiness,
	"getMetrics":   (*Server).getMetrics,
	"getDocument":  (*Server).getDocument,
}

const (
	healthOK       = "ok"
	healthDegraded = "degraded"
	healthFailing  = "failing"
)

// Degraded is the error of a check that the server can serve without, at reduced
// function: it stays ready.
type Degraded struct{ Err error }

// Error implements error.
func (d Degraded) Error() string { return d.Err.Error() }

// Unwrap returns the cause.
func (d Degraded) Unwrap() error { return d.Err }

// getLiveness answers GET /livez.
func (s *Server) getLiveness(_ context.Context, _ *request) (any, error) {
	return api.Health{Status: healthOK, Checks: map[string]string{}}, nil
}

// getReadiness answers GET /readyz, with 200 also while the server is degraded. The errors of
// checks are in the log only.
func (s *Server) getReadiness(ctx context.Context, _ *request) (any, error) {
	out, status := api.Health{Status: healthOK, Checks: map[string]string{}}, http.StatusOK
	for name, err := range s.config.Ready(ctx) {
		switch {
		case err == nil:
			out.Checks[name] = healthOK
			continue
		case isDegraded(err):
			out.Checks[name] = healthDegraded
			if f, ok := fault.As(err); ok { // a fault's text is written for callers
				if out.Reasons == nil {
					out.Reasons = map[string]string{}
				}
				out.Reasons[name] = f.Code + ": " + f.Detail
			}
			if out.Status == healthOK {
				out.Status = healthDegraded
			}
		default:
			out.Checks[name], out.Status, status = healthFailing, healthFailing, http.StatusServiceUnavailable
		}
		s.log.WarnContext(ctx, "not ready", "check", name, "status", out.Checks[name], "error", err.Error())
	}
	return reply(status, out)
}

func isDegraded(err error) bool {
	_, ok := errors.AsType[Degraded](err)
	return ok
}

// responseFunc writes a response by itself.
type responseFunc func(w http.ResponseWriter) error

func (f responseFunc) write(w http.ResponseWriter) error { return f(w) }

// getMetrics answers GET /metrics.
func (s *Server) getMetrics(ctx context.Context, _ *request) (any, error) {
	return responseFunc(func(w http.ResponseWriter) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "/metrics", http.NoBody)
		if err == nil {
			s.config.MetricsPage.ServeHTTP(w, r)
		}
		return err
	}), nil
}

// getDocument answers GET /api/openapi.yaml.
func (s *Server) getDocument(_ context.Context, _ *request) (any, error) {
	document, err := s.document()
	return answer{status: http.StatusOK, contentType: "application/yaml", body: document}, err
}
