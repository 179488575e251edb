package cli

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/fault"
)

func TestScheduleText(t *testing.T) {
	t.Parallel()
	require.Equal(t, "never; a failure is a dead letter at once", scheduleText(nil))
	require.Equal(t, "0s, 10s, 1m, 1m20s, 1h, 1h10m, 2h0m5s; then a dead letter, 4h12m35s after the first attempt", scheduleText([]int64{0, 10, 60, 80, 3600, 4200, 7205}))
}

// TestWebhookCreateRefused: a refused address removes the subscription that was made for it,
// and leaves one that existed before.
func TestWebhookCreateRefused(t *testing.T) {
	t.Parallel()
	existing := map[string]bool{"old": true}
	answer := func(w http.ResponseWriter, r *http.Request) {
		say := func(status int, text string) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, text)
		}
		id := r.PathValue("id")
		switch {
		case r.Pattern == "PUT /api/subscriptions/{id}/endpoint":
			say(400, `{"status":400,"code":"webhook.url_invalid","detail":"no; correct it"}`)
		case r.Method == http.MethodPost:
			existing["new"] = true
			say(201, `{"id":"new"}`)
		case r.Method == http.MethodDelete:
			delete(existing, id)
			say(200, `{"deleted":true}`)
		case existing[id]:
			say(200, `{"id":"old"}`)
		default:
			say(404, `{"status":404,"code":"subscription.not_found","detail":"no; make it"}`)
		}
	}
	mux := http.NewServeMux()
	for _, pattern := range []string{"PUT /api/subscriptions/{id}/endpoint", "POST /api/subscriptions", "/api/subscriptions/{id}"} {
		mux.HandleFunc(pattern, answer)
	}
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	for _, id := range []string{"old", "new"} {
		d := &terminal{server: server.URL, token: "x"}
		require.Equal(t, "webhook.url_invalid", fault.CodeOf(d.run(t, "webhooks", "create", id, "--url", "odd")), id)
	}
	require.Equal(t, map[string]bool{"old": true}, existing)
}
