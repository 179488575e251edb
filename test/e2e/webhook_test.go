package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	reference "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/test/testkit"
)

// receiver is a customer's server that accepts webhooks.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	got    []received
	answer func(n int) int // status of the n-th delivery, from 1
}

type received struct {
	header http.Header
	body   []byte
	status int
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		r.mu.Lock()
		status := http.StatusNoContent
		if r.answer != nil {
			status = r.answer(len(r.got) + 1)
		}
		r.got = append(r.got, received{q.Header.Clone(), body, status})
		r.mu.Unlock()
		w.WriteHeader(status)
	}))
	t.Cleanup(r.Close)
	return r
}

// taken returns the deliveries that were answered with 2xx.
func (r *receiver) taken() (out []received) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range r.got {
		if d.status < 300 {
			out = append(out, d)
		}
	}
	return out
}

func (r *receiver) answering(f func(n int) int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = f
	r.got = nil
}

// allowHosts lets webhooks send to the hosts of addresses.
func allowHosts(t *testing.T, admin client, addresses ...string) {
	t.Helper()
	for _, address := range addresses {
		u, err := url.Parse(address)
		require.NoError(t, err)
		require.NoError(t, admin.want(http.StatusOK, nil, "PUT", "/api/admin/webhook-hosts/"+url.PathEscape(u.Host), ""))
	}
}

// TestWebhooks delivers events to a receiver that verifies them with the reference library.
func TestWebhooks(t *testing.T) {
	t.Parallel()
	i := install(t)
	owner := i.enroll(t, "s-machines", "module", "--service")

	// Private addresses are refused by default.
	const at = "/api/subscriptions/hooks"
	r := newReceiver(t)
	endpoint := fmt.Sprintf(`{"url":%q}`, r.URL+"/hook")
	strict, server := i.serve(t)
	admin, module := server.as(i.admin), server.as(owner)
	require.NoError(t, admin.want(201, nil, "POST", "/api/admin/legal-entities", `{"code":"FRMF","name":"Manufacturing France","time_zone":"Europe/Paris"}`))
	i.machines(t, server.server)
	require.NoError(t, module.want(201, nil, "POST", "/api/subscriptions",
		`{"id":"hooks","subscriber_type":"webhook","subscriber_id":"crm","event_types":["`+machineType+`"],"settings":{"partition_by":"stream","max_retry_count":3,"retry_first_ms":1,"retry_longest_ms":1}}`))
	// Settings that are replaced have the defaults of webhooks too, not those of polls.
	for body, want := range map[string][]int{`{"partition_by":"stream"}`: {14, 0}, `{"partition_by":"stream","max_retry_count":3,"retry_first_ms":1,"retry_longest_ms":1,"breaker_after":7}`: {3, 7}} {
		var changed struct {
			Settings struct {
				Retries int `json:"max_retry_count"`
				Breaker int `json:"breaker_after"`
			} `json:"settings"`
		}
		require.NoError(t, module.want(200, &changed, "PUT", at+"/settings", body))
		require.Equal(t, want, []int{changed.Settings.Retries, changed.Settings.Breaker}, body)
	}
	require.NoError(t, module.want(200, nil, "PUT", at+"/settings", `{"partition_by":"stream","max_retry_count":3,"retry_first_ms":1,"retry_longest_ms":1}`))
	for _, url := range []string{endpoint, `{"url":"https://127.0.0.1/"}`, `{"url":"https://169.254.169.254/latest/meta-data"}`, `{"url":"https://[::ffff:10.0.0.1]/"}`} {
		a, err := module.do("PUT", at+"/endpoint", url)
		require.NoError(t, err)
		require.Equal(t, "webhook.url_invalid", a.code(), a)
	}
	require.NoError(t, strict.end())

	_, server = i.serve(t, "BACKBONE_WEBHOOK_ALLOW_PRIVATE_NETWORKS=true", "BACKBONE_WEBHOOK_ALLOW_HTTP=true")
	admin, module = server.as(i.admin), server.as(owner)
	unlisted, err := module.do("PUT", at+"/endpoint", endpoint)
	require.NoError(t, err)
	require.Equal(t, "webhook.host_not_allowed", unlisted.code(), unlisted)
	allowHosts(t, admin, r.URL)
	var e struct {
		Secret       string `json:"secret"`
		DisabledCode string `json:"disabled_code"`
	}
	require.NoError(t, module.want(201, &e, "PUT", at+"/endpoint", endpoint))
	secret := e.Secret
	require.Contains(t, secret, "whsec_")
	e.Secret = ""
	require.NoError(t, module.want(200, &e, "GET", at+"/endpoint", ""))
	require.Empty(t, e.Secret)
	stranger, err := admin.do("POST", at+"/rotate-secret", "")
	require.NoError(t, err)
	require.Equal(t, "subscription.not_found", stranger.code(), stranger)

	var tested struct {
		Delivered bool `json:"delivered"`
		Status    int  `json:"status"`
	}
	require.NoError(t, module.want(200, &tested, "POST", at+"/test", ""))
	require.True(t, tested.Delivered)
	require.Equal(t, 204, tested.Status)
	require.NoError(t, checked(secret, r.taken()[0]))

	write := func(n int) (ids []string) {
		for range n {
			var receipt receipts
			require.NoError(t, module.want(201, &receipt, "POST", "/api/events", batch(machineServiced("FRMF", "M-1", `{"hours":1}`))))
			ids = append(ids, receipt.Events[0].ID)
		}
		return ids
	}
	// The first attempts fail; the order is kept.
	r.answering(func(n int) int { return map[bool]int{true: 500, false: 204}[n <= 2] })
	ids := write(4)
	testkit.Eventually(t, time.Minute, func() bool { return len(r.taken()) == 4 })
	for i, d := range r.taken() {
		require.Equal(t, ids[i], d.header.Get("webhook-id"))
		require.NoError(t, checked(secret, d))
		var body struct {
			Type string         `json:"type"`
			Data map[string]any `json:"data"`
		}
		require.NoError(t, json.Unmarshal(d.body, &body))
		require.Equal(t, machineType, body.Type)
		require.Equal(t, ids[i], body.Data["id"])
		require.Equal(t, map[string]any{"hours": 1.0}, body.Data["data"])
	}

	require.NoError(t, module.want(200, &e, "POST", at+"/rotate-secret", ""))
	require.NotEqual(t, secret, e.Secret)
	r.answering(nil)
	write(1)
	testkit.Eventually(t, time.Minute, func() bool { return len(r.taken()) == 1 })
	require.NoError(t, checked(secret, r.taken()[0]), "the old secret")
	require.NoError(t, checked(e.Secret, r.taken()[0]), "the new secret")

	r.answering(func(int) int { return http.StatusGone })
	write(1)
	testkit.Eventually(t, time.Minute, func() bool {
		return module.want(200, &e, "GET", at+"/endpoint", "") == nil && e.DisabledCode == "webhook.status_410"
	})
	var status struct {
		Subscription struct {
			Status string `json:"status"`
		} `json:"subscription"`
	}
	testkit.Eventually(t, time.Minute, func() bool {
		return module.want(200, &status, "GET", at, "") == nil && status.Subscription.Status == "paused"
	})
	r.answering(nil)
	require.NoError(t, module.want(200, nil, "PUT", at+"/endpoint", endpoint))
	require.NoError(t, module.want(200, nil, "POST", at+"/resume", ""))
	testkit.Eventually(t, time.Minute, func() bool { return len(r.taken()) == 1 }, "what waited")
}

// checked verifies a delivery by the Standard Webhooks specification.
func checked(secret string, d received) error {
	w, err := reference.NewWebhook(secret)
	if err != nil {
		return err
	}
	return w.Verify(d.body, d.header)
}
