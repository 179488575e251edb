package httpapi_test

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/httpapi"
	"github.com/erpbackbone/backbone/adapters/system"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/subscriptions"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/conformance"
	"github.com/erpbackbone/backbone/test/testkit"
)

// entitlements may read everything of its tenant.
type entitlements struct{ ports.LegalEntities }

func (a entitlements) Readable(ctx context.Context, p ports.Principal) ([]ports.LegalEntity, error) {
	return a.LegalEntities.LegalEntities(ctx, p.TenantID)
}

func (a entitlements) Visible(ctx context.Context, p ports.Principal) ([]ports.LegalEntity, error) {
	return a.Readable(ctx, p)
}

func (a entitlements) Sight(context.Context, ports.Principal) (module.Sight, error) {
	return module.FullSight(), nil
}

func (a entitlements) Owner(_ context.Context, tenantID, personID string) (ports.Principal, error) {
	return ports.Principal{TenantID: tenantID, PersonID: personID}, nil
}

// failingUpcaster fails while a service that it needs is unavailable.
type failingUpcaster struct {
	httpapi.Upcasts
	away atomic.Pointer[fault.Error]
}

func (c *failingUpcaster) UpcastForDisplay(_ context.Context, events []event.Recorded) ([]event.Recorded, error) {
	if f := c.away.Load(); f != nil {
		return nil, f
	}
	return events, nil
}

// lateSubscriptions are subscriptions over the store of a running server.
type lateSubscriptions struct{ httpapi.Subscriptions }

// subscriptionsOf makes subscriptions over the store of a server.
func subscriptionsOf(h *apiFixture) *subscriptions.Service {
	return testkit.Must(subscriptions.New(subscriptions.Config{
		Store: h.store.Subscriptions, Log: h.store.Events, Decisions: testkit.Must(conformance.NewAdministrativeLog(system.Clock{})).Subscriptions(), Access: entitlements{h.store.Directory}, Heads: testkit.Must(subscriptions.NewHeadWatcher(subscriptions.HeadWatcherConfig{Heads: h.store.Events, Clock: system.Clock{}, Poll: 500 * time.Millisecond})), IDs: system.NewIDs(), Clock: system.Clock{}, Limits: conformance.DeliveryLimits(),
	}))
}

// startSubscriptions starts an API that serves subscriptions.
func startSubscriptions(t *testing.T, change ...func(*httpapi.Config)) *apiFixture {
	t.Helper()
	service := &lateSubscriptions{}
	h := startAPI(t, append(change, func(c *httpapi.Config) { c.Subscriptions = service })...)
	service.Subscriptions = subscriptionsOf(h)
	return h
}

func TestPollRequeuesUnrendered(t *testing.T) {
	t.Parallel()
	needed := &failingUpcaster{}
	h := startSubscriptions(t, func(c *httpapi.Config) { c.Upcaster = needed })
	h.machineType(t)
	h.appendMachines(t, "USMF", 2)
	const at = "/api/subscriptions"
	made := h.do(t, testRequest{method: "POST", path: at, token: "module", body: `{"id":"s","subscriber_type":"service","subscriber_id":"x"}`})
	require.Equal(t, http.StatusCreated, made.status, string(made.body))
	attempts := func() (out []float64) {
		for _, e := range h.do(t, testRequest{method: "GET", path: at + "/s/poll", token: "module"}).json(t)["events"].([]any) {
			out = append(out, e.(map[string]any)["delivery"].(map[string]any)["attempt"].(float64))
		}
		return out
	}
	needed.away.Store(fault.New(fault.Unavailable, "kms.unavailable", "the keys are away; try again"))
	for range 3 {
		require.Equal(t, "kms.unavailable", h.do(t, testRequest{method: "GET", path: at + "/s/poll", token: "module"}).json(t)["code"])
	}
	needed.away.Store(nil)
	require.Equal(t, []float64{1, 1}, attempts(), "no attempt was lost, and none has to wait for the end of a lease")
	require.Empty(t, attempts())
}

// TestSubscriptionSettingsRefused expects that no setting is silently ignored.
func TestSubscriptionSettingsRefused(t *testing.T) {
	t.Parallel()
	service := &lateSubscriptions{}
	h := startAPI(t, func(c *httpapi.Config) { c.Subscriptions = service })
	service.Subscriptions = subscriptionsOf(h)
	const at = "/api/subscriptions"
	post := func(path, body string) (status int, code, field any) {
		a := h.do(t, testRequest{method: "POST", path: path, token: "module", body: body})
		answer := a.json(t)
		return a.status, answer["code"], answer["field"]
	}
	definition := func(id, settings string) string {
		return `{"id":"` + id + `","subscriber_type":"service","subscriber_id":"x","settings":` + settings + `}`
	}
	for settings, field := range map[string]string{
		`{"max_retry_count":-1}`:                              "max_retry_count",
		`{"max_retry_count":1001}`:                            "max_retry_count",
		`{"breaker_after":-1}`:                                "breaker_after",
		`{"start_positions":{"USMF":"3"}}`:                    "start_positions",
		`{"start_from":"end","start_positions":{"USMF":"3"}}`: "start_positions",
		`{"start_time":"2026-01-01"}`:                         "start_time",
		`{"start_from":"position","start_positions":{"USMF":"1"},"start_time":"2026-01-01"}`: "start_time",
		`{"start_cursor":"x"}`:        "start_cursor",
		`{"start_from":"time"}`:       "start_time",
		`{"start_from":"position"}`:   "start_positions",
		`{"message_timeout_ms":5}`:    "message_timeout_ms",
		`{"consumer_strategy":"all"}`: "consumer_strategy",
	} {
		status, code, named := post(at, definition("s", settings))
		require.Equal(t, []any{http.StatusBadRequest, "subscription.settings_invalid", "/settings/" + field}, []any{status, code, named}, settings)
	}
	status, code, field := post(at, `{"id":"s","subscriber_type":"service","subscriber_id":"x","event_types":["note.page.added","note.page.aded"]}`)
	require.Equal(t, []any{http.StatusBadRequest, "query.event_type_unknown", "/event_types"}, []any{status, code, field}, "as of live feeds")
	status, _, _ = post(at, definition("s", `{"max_retry_count":0,"breaker_after":0}`))
	require.Equal(t, http.StatusCreated, status)
	settings := h.do(t, testRequest{method: "GET", path: at + "/s", token: "module"}).json(t)["subscription"].(map[string]any)["settings"].(map[string]any)
	require.Equal(t, []any{0.0, 0.0}, []any{settings["max_retry_count"], settings["breaker_after"]}, "none, as was asked for")
	for _, to := range []string{
		`{"to":"beginning","positions":{"USMF":"1"}}`, `{"to":"end","time":"2026-01-01"}`, `{"to":"beginning","cursor":"x"}`,
		`{"to":"position"}`, `{"to":"time"}`, `{"to":"cursor"}`, `{"to":"position","positions":{"USMF":"1"},"time":"2026-01-01"}`, `{"to":"elsewhere"}`,
	} {
		status, code, named := post(at+"/s/reset", to)
		require.Equal(t, []any{http.StatusBadRequest, "subscription.position_invalid", "/to"}, []any{status, code, named}, to)
	}
	for _, to := range []string{`{"to":"beginning"}`, `{"to":"end"}`, `{"to":"time","time":"2026-01-01"}`} {
		status, _, _ := post(at+"/s/reset", to)
		require.Equal(t, http.StatusOK, status, to)
	}
}
