package cli

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/httpclient"
	"github.com/erpbackbone/backbone/domain/fault"
)

func TestRetrySchedulesAreReadable(t *testing.T) {
	t.Parallel()
	require.Equal(t, "never; a failure is a dead letter at once", scheduleText(nil))
	require.Equal(t, "0s, 10s, 1m, 1m20s, 1h, 1h10m, 2h0m5s; then a dead letter, 4h12m35s after the first attempt", scheduleText([]int64{0, 10, 60, 80, 3600, 4200, 7205}))
}

// TestAWebhookThatIsRefusedLeavesNothingBehind has an address refused, of a subscription
// that was made for it and of one that was there before.
func TestAWebhookThatIsRefusedLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	there := map[string]bool{"old": true}
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
			there["new"] = true
			say(201, `{"id":"new"}`)
		case r.Method == http.MethodDelete:
			delete(there, id)
			say(200, `{"deleted":true}`)
		case there[id]:
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
		err := CreateWebhook(t.Context(), ClientOptions{Server: server.URL, Token: "x", Out: io.Discard}, NewWebhook{Subscription: httpclient.NewSubscription{ID: id}, URL: "odd"})
		require.Equal(t, "webhook.url_invalid", fault.CodeOf(err), id)
	}
	require.Equal(t, map[string]bool{"old": true}, there)
}
