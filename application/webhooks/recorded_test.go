package webhooks_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/application/administration"
	"github.com/erpbackbone/backbone/application/webhooks"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/conformance"
	"github.com/erpbackbone/backbone/test/testkit"
)

// recorded lists the types of the events about endpoints.
func (h *webhookFixture) recorded(t *testing.T) (types []string, last event.Recorded) {
	t.Helper()
	all, err := h.log.Events(t.Context(), "acme")
	require.NoError(t, err)
	for _, e := range all {
		if e.Stream.Type == "backbone.webhook" {
			types, last = append(types, e.Type), e
		}
	}
	return types, last
}

// edit changes the stored row behind the service's back.
func (h *webhookFixture) edit(t *testing.T, change func(e *ports.WebhookEndpoint)) {
	t.Helper()
	e, err := h.endpoints.WebhookEndpoint(t.Context(), h.sub.UID)
	require.NoError(t, err)
	change(&e)
	e.Revision++
	require.NoError(t, h.endpoints.SaveWebhookEndpoint(t.Context(), e))
}

// TestRecorded has an event for every change of an endpoint, without secret and address.
func TestRecorded(t *testing.T) {
	t.Parallel()
	h := newFixture()
	h.discloses = true
	s := h.service()
	made := h.set(t)
	_, last := h.recorded(t)
	require.Equal(t, "p-1", last.ActorID)
	require.NotContains(t, string(last.Payload), "/hook")
	require.NotContains(t, string(last.Payload), made.Secret)
	require.Contains(t, string(last.Payload), `"origin":"https://example.org"`)
	_, _, err := s.Set(t.Context(), owner, "orders", webhooks.EndpointSettings{URL: "https://example.org/hook"})
	require.NoError(t, err, "the same again")
	_, _, err = s.Set(t.Context(), owner, "orders", webhooks.EndpointSettings{URL: "https://example.org:8443/?code=hidden", PersonalReason: "The portal greets by name."})
	require.NoError(t, err)
	_, last = h.recorded(t)
	require.NotContains(t, string(last.Payload), "hidden")
	require.Contains(t, string(last.Payload), "The portal greets by name.")
	rotated, err := s.Rotate(t.Context(), owner, "orders")
	require.NoError(t, err)
	require.NotEqual(t, made.Secret, rotated.Secret)
	require.NoError(t, s.Delete(t.Context(), owner, "orders"))
	again := h.set(t)
	require.Equal(t, 3, again.SecretNumber)
	types, _ := h.recorded(t)
	require.Equal(t, []string{
		administration.WebhookCreated, administration.WebhookChanged, administration.WebhookChanged, administration.WebhookDeleted, administration.WebhookCreated,
	}, types)
}

// TestEditedEndpoint sends nothing to an endpoint whose row the log does not support.
func TestEditedEndpoint(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(e *ports.WebhookEndpoint){
		"address":         func(e *ports.WebhookEndpoint) { e.URL = "https://evil.example.org/" },
		"disclosure":      func(e *ports.WebhookEndpoint) { e.PersonalReason = "x" },
		"former secret":   func(e *ports.WebhookEndpoint) { e.SecretNumber = 1 },
		"revision alone":  func(*ports.WebhookEndpoint) {},
		"headers removed": func(e *ports.WebhookEndpoint) { e.Headers = nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := newFixture()
				s := h.service()
				h.set(t)
				_, err := s.Rotate(t.Context(), owner, "orders")
				require.NoError(t, err)
				h.edit(t, change)
				h.add("a")
				stop := h.run(t, "one", nil)
				synctest.Wait()
				stop()
				require.NotEmpty(t, h.refusals)
				require.Equal(t, "webhook.endpoint_unrecorded", h.refusals[0])
				require.Empty(t, h.sent)
				require.Empty(t, h.encoding, "nothing is opened that is not sent")
				tested, err := s.Test(t.Context(), owner, "orders")
				require.NoError(t, err)
				require.Equal(t, "webhook.endpoint_unrecorded", tested.Code)
				_, err = s.Rotate(t.Context(), owner, "orders")
				require.Equal(t, "webhook.endpoint_unrecorded", fault.CodeOf(err), "a rotation would take the edit over")

				made := h.set(t)
				require.Equal(t, 3, made.SecretNumber, "no secret from before")
				h.add("b") // the node that stopped may have the other message
				h.run(t, "two", nil)
				synctest.Wait()
				require.Positive(t, h.delivered())
				require.Equal(t, "https://example.org/hook", h.sent[0].URL)
			})
		})
	}
}

// cutOff fails to write rows.
type cutOff struct {
	*memory.Webhooks
	err error
}

func (c *cutOff) SaveWebhookEndpoint(ctx context.Context, e ports.WebhookEndpoint) error {
	if c.err != nil {
		return c.err
	}
	return c.Webhooks.SaveWebhookEndpoint(ctx, e)
}

// TestCutOff writes no row after its event: what was there sends nothing, and the owner's next call
// completes the change.
func TestCutOff(t *testing.T) {
	t.Parallel()
	h := newFixture()
	rows := &cutOff{Webhooks: h.endpoints, err: errors.New("connection lost")}
	s := h.serviceWith(rows)
	to := webhooks.EndpointSettings{URL: "https://example.org/hook"}
	_, _, err := s.Set(t.Context(), owner, "orders", to)
	require.ErrorIs(t, err, rows.err)
	_, err = s.Test(t.Context(), owner, "orders")
	require.Equal(t, "webhook.endpoint_not_found", fault.CodeOf(err))
	rows.err = nil
	_, created, err := s.Set(t.Context(), owner, "orders", to)
	require.NoError(t, err)
	require.True(t, created)

	rows.err = errors.New("connection lost")
	require.ErrorIs(t, s.Delete(t.Context(), owner, "orders"), rows.err)
	tested, err := s.Test(t.Context(), owner, "orders")
	require.NoError(t, err)
	require.Equal(t, "webhook.endpoint_unrecorded", tested.Code, "the deletion counts")
	rows.err = nil
	require.NoError(t, s.Delete(t.Context(), owner, "orders"))
	_, err = s.Endpoint(t.Context(), webhooks.Caller{Principal: owner}, "orders")
	require.Equal(t, "webhook.endpoint_not_found", fault.CodeOf(err))
}

// TestRecordedRace lets one of several changes win, and its row is the one that was recorded last.
func TestRecordedRace(t *testing.T) {
	t.Parallel()
	h := newFixture()
	h.set(t)
	var running sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		s := h.service()
		running.Go(func() { _, errs[i] = s.Rotate(context.Background(), owner, "orders") })
	}
	running.Wait()
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
		} else {
			require.Contains(t, []string{"webhook.endpoint_changed", "webhook.endpoint_unrecorded"}, fault.CodeOf(err))
		}
	}
	require.Positive(t, won)
	types, _ := h.recorded(t)
	require.Len(t, types, 1+won)
	tested, err := h.service().Test(t.Context(), owner, "orders")
	require.NoError(t, err)
	require.Empty(t, tested.Code)
}

// TestAdoption takes over what an earlier release stored, and nothing that appears later.
func TestAdoption(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	endpoint := ports.WebhookEndpoint{Subscription: event.ID{7}, TenantID: "acme", URL: "https://example.org/hook", SecretNumber: 2, Revision: 5, CreatedAt: at, UpdatedAt: at}
	hosts := []ports.WebhookHost{{TenantID: "acme", Host: "example.org", AddedBy: "p-2", AddedAt: at}}
	log := testkit.Must(conformance.NewAdministrativeLog(testkit.NewClock(at.Add(time.Hour)), administration.AdoptWebhooks(
		func(context.Context, string) ([]ports.WebhookHost, error) { return hosts, nil },
		func(context.Context, string) ([]ports.WebhookDecision, error) {
			return []ports.WebhookDecision{{Endpoint: endpoint, SubscriptionID: "orders"}}, nil
		})))
	for range 2 { // also on another node
		w := log.Webhooks()
		got, err := w.Hosts(t.Context(), "acme")
		require.NoError(t, err)
		require.Equal(t, []ports.WebhookHost{{TenantID: "acme", Host: "example.org", AddedBy: "p-2", AddedAt: at}}, got)
		record, err := w.Endpoint(t.Context(), "acme", endpoint.Subscription)
		require.NoError(t, err)
		require.Equal(t, ports.WebhookRecord{Version: 1, Digest: endpoint.Digest(), SecretNumber: 2}, record)
		hosts = append(hosts, ports.WebhookHost{TenantID: "acme", Host: "evil.example.org", AddedBy: "p-2", AddedAt: at})
		log.Log = log.Node()
	}
	all, err := log.Events(t.Context(), "acme")
	require.NoError(t, err)
	data, err := all[len(all)-1].Data()
	require.NoError(t, err)
	require.Equal(t, administration.Adopted, all[len(all)-1].Type)
	require.True(t, json.Valid(data))
	require.JSONEq(t, `{"concern":"webhooks","rows":2}`, string(data))
}
