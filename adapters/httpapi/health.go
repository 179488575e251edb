package httpapi

import (
	"context"
	"net/http"

	"github.com/erpbackbone/backbone/adapters/httpapi/internal/api"
)

const (
	healthOK      = "ok"
	healthFailing = "failing"
)

// GetLiveness answers GET /livez.
func (s *Server) GetLiveness(context.Context, api.GetLivenessRequestObject) (api.GetLivenessResponseObject, error) {
	return reply(http.StatusOK, api.Health{Status: healthOK, Checks: map[string]string{}})
}

// GetReadiness answers GET /readyz. What is wrong with a check is in the log.
func (s *Server) GetReadiness(ctx context.Context, _ api.GetReadinessRequestObject) (api.GetReadinessResponseObject, error) {
	out, status := api.Health{Status: healthOK, Checks: map[string]string{}}, http.StatusOK
	if s.config.Ready == nil {
		return reply(status, out)
	}
	for name, err := range s.config.Ready(ctx) {
		out.Checks[name] = healthOK
		if err != nil {
			out.Checks[name], out.Status, status = healthFailing, healthFailing, http.StatusServiceUnavailable
			s.log.WarnContext(ctx, "not ready", "check", name, "error", err.Error())
		}
	}
	return reply(status, out)
}

// metricsPage lets the metrics' own handler write.
type metricsPage struct {
	page http.Handler
	ctx  context.Context
}

func (m metricsPage) VisitGetMetricsResponse(w http.ResponseWriter) error {
	r, err := http.NewRequestWithContext(m.ctx, http.MethodGet, "/metrics", http.NoBody)
	if err != nil {
		return err
	}
	m.page.ServeHTTP(w, r)
	return nil
}

// GetMetrics answers GET /metrics.
func (s *Server) GetMetrics(ctx context.Context, _ api.GetMetricsRequestObject) (api.GetMetricsResponseObject, error) {
	return metricsPage{page: s.config.MetricsPage, ctx: ctx}, nil
}

// GetDocument answers GET /api/openapi.yaml.
func (s *Server) GetDocument(context.Context, api.GetDocumentRequestObject) (api.GetDocumentResponseObject, error) {
	return answer{status: http.StatusOK, media: "application/yaml", body: s.document}, nil
}
