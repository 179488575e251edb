package httpapi_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/httpapi"
	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/adapters/system"
	sender "github.com/erpbackbone/backbone/adapters/webhook"
	"github.com/erpbackbone/backbone/application/subscriptions"
	"github.com/erpbackbone/backbone/application/webhooks"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/conformance"
	"github.com/erpbackbone/backbone/test/testkit"
)

// derivedSecrets makes keys out of one secret.
type derivedSecrets struct{}

func (derivedSecrets) Derive(_ context.Context, tenant, purpose, label string) (shredding.Secret, error) {
	mac := hmac.New(sha256.New, []byte(tenant+"/"+purpose))
	mac.Write([]byte(label))
	return shredding.NewSecret(mac.Sum(nil)), nil
}

// failingEndpoints fails saves as if another request had changed the endpoint.
type failingEndpoints struct {
	endpointStore
	stale bool
}

// endpointStore are endpoints in memory.
type endpointStore = *memory.Webhooks

func (t *failingEndpoints) SaveWebhookEndpoint(ctx context.Context, e ports.WebhookEndpoint) error {
	if t.stale {
		e.Revision++
	}
	return t.endpointStore.SaveWebhookEndpoint(ctx, e)
}

// lateWebhooks serves webhooks over the store of a running server.
type lateWebhooks struct{ httpapi.Webhooks }

// TestWebhookProblems expects a problem document for everything that endpoints refuse.
func TestWebhookProblems(t *testing.T) {
	t.Parallel()
	lateSubscriptions, service, endpoints := &lateSubscriptions{}, &lateWebhooks{}, &failingEndpoints{endpointStore: memory.New(memory.Config{}).Webhooks}
	h := startAPI(t, func(c *httpapi.Config) { c.Subscriptions, c.Webhooks = lateSubscriptions, service })
	lateSubscriptions.Subscriptions = testkit.Must(subscriptions.New(subscriptions.Config{
		Store: h.store.Subscriptions, Log: h.store.Events, Decisions: testkit.Must(conformance.NewAdministrativeLog(system.Clock{})).Subscriptions(), Access: entitlements{h.store.Directory}, Heads: testkit.Must(subscriptions.NewHeadWatcher(subscriptions.HeadWatcherConfig{Heads: h.store.Events, Clock: system.Clock{}, Poll: 500 * time.Millisecond})), IDs: system.NewIDs(), Clock: system.Clock{}, Limits: conformance.DeliveryLimits(),
	}))
	log := testkit.Must(conformance.NewAdministrativeLog(system.Clock{}))
	for _, host := range []string{"example.org", "example.net"} {
		require.NoError(t, log.Webhooks().DecideHost(t.Context(), "demo", host, true, "", ports.Principal{PersonID: "p-admin", ActorType: event.Human, RoleLabel: "admin"}))
	}
	service.Webhooks = testkit.Must(webhooks.NewService(webhooks.ServiceConfig{
		Endpoints: endpoints, Attempts: endpoints, Decisions: log.Webhooks(), Entities: h.store.Directory, Subscriptions: h.store.Subscriptions, Principals: h.principals, Secrets: derivedSecrets{}, Clock: system.Clock{}, IDs: system.NewIDs(),
		Sender: sender.New(sender.Config{Clock: system.Clock{}}), Timeout: 15 * time.Second, Overlap: 24 * time.Hour,
	}))
	const at = "/api/subscriptions"
	for _, body := range []string{`{"id":"hook","subscriber_type":"webhook","subscriber_id":"x"}`, `{"id":"polled","subscriber_type":"service","subscriber_id":"x"}`} {
		made := h.do(t, testRequest{method: "POST", path: at, token: "module", body: body})
		require.Equal(t, http.StatusCreated, made.status, string(made.body))
	}
	put := func(id, body string) testRequest {
		return testRequest{method: "PUT", path: at + "/" + id + "/endpoint", token: "module", body: body}
	}
	check := func(name string, status int, a testRequest) {
		t.Helper()
		got := h.do(t, a)
		require.Equal(t, status, got.status, "%s: %s", name, got.body)
		expect(t, name, got)
	}
	check("webhook_not_a_webhook", 422, put("polled", `{"url":"https://example.org/"}`))
	check("webhook_endpoint_not_found", 404, testRequest{method: "GET", path: at + "/hook/endpoint", token: "module"})
	check("webhook_delete_not_found", 404, testRequest{method: "DELETE", path: at + "/hook/endpoint", token: "module"})
	check("webhook_url_not_https", 400, put("hook", `{"url":"http://example.org/"}`))
	check("webhook_url_private", 400, put("hook", `{"url":"https://10.0.0.1/"}`))
	check("webhook_url_missing", 400, put("hook", `{}`))
	check("webhook_member_unknown", 400, put("hook", `{"url":"https://example.org/","secret":"x"}`))
	check("webhook_header_own", 400, put("hook", `{"url":"https://example.org/","headers":{"Webhook-Signature":"v1,x"}}`))
	check("webhook_header_hop", 400, put("hook", `{"url":"https://example.org/","headers":{"Connection":"close"}}`))
	check("webhook_header_value", 400, put("hook", `{"url":"https://example.org/","headers":{"X-Key":"hidden\r\nHost: evil"}}`))
	check("webhook_of_another", 404, testRequest{method: "PUT", path: at + "/hook/endpoint", token: "german_module", body: `{"url":"https://example.org/"}`})
	check("webhook_by_auditor", 403, testRequest{method: "PUT", path: at + "/hook/endpoint", token: "auditor", body: `{"url":"https://example.org/"}`})
	check("webhook_host_not_allowed", 403, put("hook", `{"url":"https://example.com/"}`))
	const hosts = "/api/admin/webhook-hosts"
	check("webhook_host_by_owner", 403, testRequest{method: "PUT", path: hosts + "/example.com", token: "module"})
	check("webhook_reason_personal", 400, testRequest{method: "PUT", path: hosts + "/example.com?reason=ask+ann@example.org", token: "admin"})
	check("webhook_host_invalid", 400, testRequest{method: "PUT", path: hosts + "/*.example.com", token: "admin"})
	for _, change := range []string{"PUT", "DELETE"} {
		got := h.do(t, testRequest{method: change, path: hosts + "/example.com:8443?reason=vendor+portal", token: "admin"})
		require.Equal(t, http.StatusOK, got.status, string(got.body))
		require.Equal(t, change == "PUT", strings.Contains(string(got.body), `"host":"example.com:8443","reason":"vendor portal"`), string(got.body))
	}
	require.Len(t, h.do(t, testRequest{method: "GET", path: hosts, token: "module"}).json(t)["hosts"], 2)
	check("webhook_attempts_limit", 400, testRequest{method: "GET", path: at + "/hook/attempts?limit=0", token: "module"})

	made := h.do(t, put("hook", `{"url":"https://example.org/","headers":{"Authorization":"Bearer hidden","X-Route":"eu"}}`))
	require.Equal(t, http.StatusCreated, made.status, string(made.body))
	require.Contains(t, made.json(t)["secret"], "whsec_")
	for name, a := range map[string]testRequest{
		"its owner":   {method: "GET", path: at + "/hook/endpoint", token: "module"},
		"an operator": {method: "GET", path: at + "/hook/endpoint", token: "operator"},
		"the list":    {method: "GET", path: "/api/webhooks", token: "module"},
		"operators'":  {method: "GET", path: "/api/webhooks", token: "operator"},
	} {
		got := h.do(t, a)
		require.Equal(t, http.StatusOK, got.status, "%s: %s", name, got.body)
		require.Contains(t, string(got.body), `"header_names":["Authorization","X-Route"]`, name)
		require.NotContains(t, string(got.body), "hidden", name)
		require.NotContains(t, string(got.body), "whsec_", name)
	}
	require.Empty(t, h.do(t, testRequest{method: "GET", path: "/api/webhooks", token: "german_module"}).json(t)["webhooks"])
	require.Empty(t, h.do(t, testRequest{method: "GET", path: at + "/hook/attempts", token: "operator"}).json(t)["attempts"])
	check("webhook_rotate_by_operator", 404, testRequest{method: "POST", path: at + "/hook/rotate-secret", token: "operator"})
	check("webhook_headers_missing", 400, put("hook", `{"url":"https://example.net/"}`))
	endpoints.stale = true
	check("webhook_endpoint_changed", 409, put("hook", `{"url":"https://example.org/other"}`))
	endpoints.stale = false
	gone := h.do(t, testRequest{method: "DELETE", path: at + "/hook/endpoint", token: "module"})
	require.Equal(t, http.StatusOK, gone.status, string(gone.body))

	without := startAPI(t)
	got := without.do(t, testRequest{method: "GET", path: "/api/webhooks", token: "module"})
	require.Equal(t, http.StatusUnprocessableEntity, got.status)
	expect(t, "webhook_not_served", got)
}
