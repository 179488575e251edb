package httpapi_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/httpapi"
)

// TestReadinessDegraded: a load balancer keeps sending requests, and the answer names
// the failing check.
func TestReadinessDegraded(t *testing.T) {
	t.Parallel()
	h := startAPI(t)
	checks := map[string]error{"kms": fmt.Errorf("asked: %w", httpapi.Degraded{Err: errors.New("away")}), "database": nil}
	h.ready = func() map[string]error { return checks }
	a := h.do(t, testRequest{method: "GET", path: "/readyz"})
	require.Equal(t, http.StatusOK, a.status)
	require.Equal(t, `{"checks":{"database":"ok","kms":"degraded"},"status":"degraded"}`, string(a.body))
	require.Contains(t, h.log.String(), `"check":"kms","status":"degraded","error":"asked: away"`)

	checks["database"] = errors.New("down")
	a = h.do(t, testRequest{method: "GET", path: "/readyz"})
	require.Equal(t, http.StatusServiceUnavailable, a.status)
	require.Equal(t, `{"checks":{"database":"failing","kms":"degraded"},"status":"failing"}`, string(a.body))
}
