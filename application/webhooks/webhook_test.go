package webhooks_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	reference "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/webhooks"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/ports"
)

// verify checks a delivery as its receiver does, with the reference implementation.
func verify(t *testing.T, secret string, r ports.WebhookRequest) error {
	t.Helper()
	checker, err := reference.NewWebhook(secret)
	require.NoError(t, err)
	h := http.Header{}
	h.Set("webhook-id", r.ID)
	h.Set("webhook-timestamp", fmt.Sprint(r.Timestamp.Unix()))
	h.Set("webhook-signature", r.Signature)
	return checker.Verify(r.Body, h)
}

func TestDispatcher_SignsDeliveries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newFixture()
		e := h.set(t)
		require.True(t, strings.HasPrefix(e.Secret, "whsec_"))
		stop := h.run(t, "a", nil)
		h.add("k")
		h.requireDelivered(t, 1)
		stop()
		first := h.sent[0]
		require.Equal(t, event.ID{15: 1}.String(), first.ID)
		require.NoError(t, verify(t, e.Secret, first))
		tampered := first
		tampered.Body = append([]byte(" "), first.Body...)
		require.Error(t, verify(t, e.Secret, tampered))
		var body struct {
			Type, Timestamp string
			Data            map[string]any
		}
		require.NoError(t, json.Unmarshal(first.Body, &body))
		require.Equal(t, "shop.item.sold", body.Type)
		require.Equal(t, map[string]any{"sequence": 1.0, "for": "p-1"}, body.Data)

		// Two secrets are good while the receiver learns the new one.
		next, err := h.service().Rotate(t.Context(), owner, "orders")
		require.NoError(t, err)
		require.NotEqual(t, e.Secret, next.Secret)
		pass(24*time.Hour - 1)
		both := h.test(t)
		require.NoError(t, verify(t, e.Secret, both))
		require.NoError(t, verify(t, next.Secret, both))
		pass(1)
		late := h.test(t)
		require.NotContains(t, late.Signature, " ", "one signature: the old secret is over")
		shown, err := h.service().Endpoint(t.Context(), webhooks.Caller{Principal: owner}, "orders")
		require.NoError(t, err)
		require.Empty(t, shown.Secret, "a secret is shown once")
	})
}

// test sends a test delivery and gives what was sent.
func (h *webhookFixture) test(t *testing.T) ports.WebhookRequest {
	t.Helper()
	out, err := h.service().Test(t.Context(), owner, "orders")
	require.NoError(t, err)
	require.Equal(t, 204, out.Status)
	require.Empty(t, out.Code)
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.sent[len(h.sent)-1]
	require.True(t, strings.HasPrefix(r.ID, "test_"))
	require.Contains(t, string(r.Body), `"type":"backbone.webhook.test"`)
	return r
}

// TestDispatcher_KeepsOrderOfKey fails deliveries at random; the messages of each key arrive in
// their order, and other keys do not wait.
func TestDispatcher_KeepsOrderOfKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newFixture()
		h.set(t)
		var arrived []int
		tries := map[string]int{}
		h.answer = func(r ports.WebhookRequest) (ports.WebhookAnswer, error) {
			h.mu.Lock()
			defer h.mu.Unlock()
			if tries[r.ID]++; len(r.ID)%2+tries[r.ID] < 3 {
				return ports.WebhookAnswer{Status: 500}, nil
			}
			var body struct{ Data struct{ Sequence int } }
			if err := json.Unmarshal(r.Body, &body); err != nil {
				return ports.WebhookAnswer{}, err
			}
			arrived = append(arrived, body.Data.Sequence)
			return ports.WebhookAnswer{Status: 200}, nil
		}
		h.run(t, "a", nil)
		h.run(t, "b", nil)
		for range 10 {
			h.add("x", "y", "z")
		}
		pass(5 * time.Minute) // the pauses after failures in a row
		h.requireDelivered(t, 30)
		for offset := range 3 {
			var of []int
			for _, n := range arrived {
				if (n-1)%3 == offset {
					of = append(of, n)
				}
			}
			require.Len(t, of, 10)
			require.True(t, slices.IsSorted(of), "%v", of)
		}
		require.LessOrEqual(t, h.most, 4, "concurrency of one endpoint")
	})
}

func TestDispatcher_StatusGoneDisablesEndpoint(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newFixture()
		h.set(t)
		h.answer = func(r ports.WebhookRequest) (ports.WebhookAnswer, error) {
			if r.URL == "https://example.org/new" {
				return ports.WebhookAnswer{Status: 200}, nil
			}
			return ports.WebhookAnswer{Status: 410}, nil
		}
		h.run(t, "a", func(c *webhooks.Config) { c.Concurrency = 1 })
		h.add("k")
		caller := webhooks.Caller{Principal: owner}
		synctest.Wait()
		e, err := h.service().Endpoint(t.Context(), caller, "orders")
		require.NoError(t, err)
		require.Equal(t, "webhook.status_410", e.DisabledCode)
		require.False(t, e.DisabledAt.IsZero())
		reconcile()
		attempts, err := h.service().Attempts(t.Context(), caller, "orders", 10)
		require.NoError(t, err)
		require.Len(t, attempts, 1)
		require.Equal(t, 410, attempts[0].Status)
		require.Zero(t, attempts[0].Next, "no next attempt is promised")
		require.Zero(t, h.delivered(), "the message waits")
		h.mu.Lock()
		require.Equal(t, 1, h.paused)
		h.stuck = fault.New(fault.Unavailable, "storage.unavailable", "away; try again")
		h.mu.Unlock()
		_, _, err = h.service().Set(t.Context(), owner, "orders", webhooks.EndpointSettings{URL: "https://example.org/new"})
		require.Equal(t, "storage.unavailable", fault.CodeOf(err))
		h.mu.Lock()
		h.stuck = nil
		h.mu.Unlock()
		// The owner gives another address, and it goes on.
		e, created, err := h.service().Set(t.Context(), owner, "orders", webhooks.EndpointSettings{URL: "https://example.org/new"})
		require.NoError(t, err)
		require.False(t, created)
		require.Empty(t, e.Secret)
		require.True(t, e.DisabledAt.IsZero())
		reconcile()
		h.requireDelivered(t, 1)
		require.Equal(t, "https://example.org/new", h.sent[len(h.sent)-1].URL)
		// What its owner has paused stays paused.
		require.NoError(t, h.Pause(t.Context(), owner, "orders"))
		_, _, err = h.service().Set(t.Context(), owner, "orders", webhooks.EndpointSettings{URL: "https://example.org/newer"})
		require.NoError(t, err)
		h.mu.Lock()
		defer h.mu.Unlock()
		require.Equal(t, 2, h.resumed)
		require.Equal(t, subscription.Paused, h.sub.Status)
	})
}

func TestDispatcher_RetryAfter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newFixture()
		h.set(t)
		h.answer = func(ports.WebhookRequest) (ports.WebhookAnswer, error) {
			return ports.WebhookAnswer{Status: 429, RetryAfter: time.Hour}, nil
		}
		h.run(t, "a", func(c *webhooks.Config) { c.Concurrency = 1 })
		h.add("x", "y")
		synctest.Wait()
		h.add("z")
		pass(time.Hour - 1)
		sent, refusals := h.attempts()
		require.Equal(t, 1, sent)
		require.Equal(t, []string{"webhook.status_429"}, refusals)
		pass(1)
		sent, _ = h.attempts()
		require.Equal(t, 2, sent)
	})
}

func TestDispatcher_RefusesFailuresByCode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newFixture()
		h.set(t)
		outcomes := []func() (ports.WebhookAnswer, error){
			func() (ports.WebhookAnswer, error) { return ports.WebhookAnswer{Status: 302}, nil },
			func() (ports.WebhookAnswer, error) { return ports.WebhookAnswer{Status: 500}, nil },
			func() (ports.WebhookAnswer, error) {
				return ports.WebhookAnswer{}, fault.New(fault.Unavailable, "webhook.timeout", "slow; wait")
			},
			func() (ports.WebhookAnswer, error) {
				return ports.WebhookAnswer{}, fault.New(fault.Unavailable, "webhook.dns", "no; change it")
			},
		}
		h.answer = func(ports.WebhookRequest) (ports.WebhookAnswer, error) {
			h.mu.Lock()
			defer h.mu.Unlock()
			if n := len(h.sent) - 1; n < len(outcomes) {
				return outcomes[n]()
			}
			return ports.WebhookAnswer{Status: 202}, nil
		}
		h.run(t, "a", func(c *webhooks.Config) { c.Concurrency = 1 })
		h.add("k")
		pass(3*time.Second - 1) // one second after the third failure in a row and two after the fourth
		h.requireDelivered(t, 0)
		pass(1)
		h.requireDelivered(t, 1)
		require.Equal(t, []string{"webhook.status_302", "webhook.status_500", "webhook.timeout", "webhook.dns"}, h.refusals)
		ids := map[string]bool{}
		for _, r := range h.sent {
			ids[r.ID] = true
		}
		require.Len(t, ids, 1, "every attempt has the same id")
	})
}

func TestDispatcher_KeyServiceUnavailable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newFixture()
		h.set(t)
		h.keys = fault.New(fault.Unavailable, "kms.unavailable", "away; wait")
		h.run(t, "a", func(c *webhooks.Config) { c.Concurrency = 1 })
		h.add("k")
		pass(2 * time.Second)
		sent, refusals := h.attempts()
		require.Zero(t, sent)
		require.Empty(t, refusals, "no attempt is lost")
		_, err := h.service().Test(t.Context(), owner, "orders")
		require.Equal(t, "kms.unavailable", fault.CodeOf(err))
		h.mu.Lock()
		require.Equal(t, 3, h.given, "an attempt each second")
		h.keys = nil
		h.mu.Unlock()
		pass(time.Second)
		h.requireDelivered(t, 1)
	})
}

func TestDispatcher_OwnerExpired(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newFixture()
		h.set(t)
		h.expires = h.clock.Now()
		h.run(t, "a", nil)
		h.add("x", "y")
		pass(time.Minute)
		sent, refusals := h.attempts()
		require.Zero(t, sent)
		require.Empty(t, refusals, "no attempt was made")
		h.mu.Lock()
		h.expires = h.clock.Now().Add(time.Hour)
		h.mu.Unlock()
		pass(time.Minute - 1)
		h.requireDelivered(t, 0)
		pass(1)
		h.requireDelivered(t, 2)
	})
}

func TestService_Permissions(t *testing.T) {
	t.Parallel()
	h := newFixture()
	s := h.service()
	_, _, err := s.Set(t.Context(), owner, "orders", webhooks.EndpointSettings{URL: "http://example.org"})
	require.Equal(t, "webhook.url_invalid", fault.CodeOf(err))
	_, err = s.Endpoint(t.Context(), webhooks.Caller{Principal: owner}, "orders")
	require.Equal(t, "webhook.endpoint_not_found", fault.CodeOf(err))
	h.set(t)
	stranger := ports.Principal{TenantID: "acme", PersonID: "p-2"}
	_, _, err = s.Set(t.Context(), stranger, "orders", webhooks.EndpointSettings{URL: "https://evil.example.org"})
	require.Equal(t, "subscription.not_found", fault.CodeOf(err))
	_, err = s.Rotate(t.Context(), stranger, "orders")
	require.Equal(t, "subscription.not_found", fault.CodeOf(err))
	_, err = s.Test(t.Context(), stranger, "orders")
	require.Equal(t, "subscription.not_found", fault.CodeOf(err))
	again, created, err := s.Set(t.Context(), owner, "orders", webhooks.EndpointSettings{URL: "https://example.org/hook"})
	require.NoError(t, err)
	require.False(t, created)
	require.Equal(t, int64(1), again.Revision, "the same address changes nothing")

	_, _, err = s.Set(t.Context(), owner, "orders", webhooks.EndpointSettings{URL: "https://example.org/hook?code=hidden"})
	require.NoError(t, err)
	for want, c := range map[string]webhooks.Caller{
		"https://example.org/hook?code=hidden": {Principal: owner},
		"https://example.org/hook?...":         {Principal: stranger, Operator: true},
	} {
		e, err := s.Endpoint(t.Context(), c, "orders")
		require.NoError(t, err)
		require.Equal(t, want, e.URL, "a key in the address is its owner's")
		list, err := s.List(t.Context(), c)
		require.NoError(t, err)
		require.Equal(t, want, list[0].URL)
	}
	h.sub.SubscriberType = "service"
	_, err = s.Endpoint(t.Context(), webhooks.Caller{Principal: owner}, "orders")
	require.Equal(t, "webhook.not_a_webhook", fault.CodeOf(err))
}

func TestDispatcher_DeletesEndpointOfDeletedSubscription(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newFixture()
		h.set(t)
		h.run(t, "a", nil)
		h.add("k")
		h.requireDelivered(t, 1)
		h.mu.Lock()
		h.gone = true
		h.mu.Unlock()
		reconcile()
		all, err := h.endpoints.WebhookEndpoints(t.Context(), "")
		require.NoError(t, err)
		require.Empty(t, all)
	})
}

func TestDispatcher_TakeoverFromStoppedNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newFixture()
		h.set(t)
		stop := h.run(t, "a", nil)
		h.add("k")
		h.requireDelivered(t, 1)
		stop()
		h.run(t, "b", nil)
		h.add("k")
		h.requireDelivered(t, 2)
	})
}
