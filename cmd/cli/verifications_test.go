package cli

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/client"
)

// TestVerifyOnServer_Interrupted cancels the run although the read of it was interrupted.
func TestVerifyOnServer_Interrupted(t *testing.T) {
	t.Parallel()
	const run = "/api/verifications/01JQ8E6Z6G3V5T8C9N2M4K7R1P"
	ctx, interrupt := context.WithCancel(t.Context())
	cancelled := make(chan struct{}, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Method + " " + r.URL.Path {
		case "GET " + run:
			interrupt()
			<-r.Context().Done() // of the client
			return
		case "POST " + run + "/cancel":
			cancelled <- struct{}{}
		}
		_ = json.NewEncoder(w).Encode(client.Verification{ID: "01JQ8E6Z6G3V5T8C9N2M4K7R1P", Status: "running"})
	}))
	t.Cleanup(server.Close)
	d := &terminal{server: server.URL, token: "bbk_x"}
	require.Error(t, d.runWithin(ctx, "verify"))
	require.Len(t, cancelled, 1)
}
