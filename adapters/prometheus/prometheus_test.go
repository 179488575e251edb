package prometheus_test

import (
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/prometheus"
	"github.com/erpbackbone/backbone/domain/concurrency"
)

func TestEverythingReportedIsOnThePage(t *testing.T) {
	t.Parallel()
	m := prometheus.New()
	m.ObserveAppend(3*time.Millisecond, 2, "")
	m.ObserveAppend(time.Millisecond, 1, concurrency.CodeDuplicateKey)
	m.ObserveAppend(time.Millisecond, 1, "append.rejected_by_store")
	m.ObserveGroup(64, 128, 4*time.Millisecond)
	m.ObserveQueue(1, 7, 4096)
	m.ProjectionLag("gl_balances", 12, 5, 1.5)
	m.ProjectionFailed("gl_balances", 12)
	m.ObserveRequest("POST", "/api/intents", 201, 2*time.Millisecond)
	m.ObserveRequest("BREW", "unmatched", 405, time.Millisecond)

	answer := httptest.NewRecorder()
	m.Handler().ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	require.Equal(t, 200, answer.Code)
	page := answer.Body.String()
	for _, line := range []string{
		`backbone_append_duration_seconds_count{outcome="appended"} 1`,
		`backbone_append_duration_seconds_count{outcome="conflict"} 1`,
		`backbone_append_duration_seconds_count{outcome="refused"} 1`,
		`backbone_append_events_total 2`,
		`backbone_append_conflicts_total{code="append.duplicate_business_key"} 1`,
		`backbone_append_group_size_sum 64`,
		`backbone_append_queue_depth{appender="1"} 7`,
		`backbone_projection_lag_events{partition="12",projection="gl_balances"} 5`,
		`backbone_projection_lag_seconds{partition="12",projection="gl_balances"} 1.5`,
		`backbone_projection_failures_total{projection="gl_balances"} 1`,
		`backbone_http_request_duration_seconds_count{method="POST",route="/api/intents",status="201"} 1`,
		`backbone_http_request_duration_seconds_count{method="other",route="unmatched",status="405"} 1`,
		`go_goroutines`,
	} {
		require.Contains(t, page, line)
	}
}
