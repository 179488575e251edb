package verify_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/verify"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/conformance"
	"github.com/erpbackbone/backbone/test/testkit"
)

// administered is a tenant's administrative log with the rows that are compared with it.
func administered(t *testing.T) (*conformance.AdministrativeLog, *tamperedLog) {
	t.Helper()
	log := testkit.Must(conformance.NewAdministrativeLog(testkit.NewClock(start)))
	_, err := log.Of(t.Context(), "acme")
	require.NoError(t, err)
	return log, vaultOn(log.Database)
}

// kinds verifies the administrative log and lists the kinds of its findings.
func kinds(t *testing.T, v *tamperedLog) (found []verify.FindingKind) {
	t.Helper()
	reports, err := verify.Run(t.Context(), v, "acme", []string{ports.AdministrativeCode}, nil)
	require.NoError(t, err)
	require.Len(t, reports, 1)
	for _, f := range reports[0].Findings {
		found = append(found, f.Kind)
	}
	return found
}

// TestRun_Webhooks compares the rows of endpoints with the administrative log.
func TestRun_Webhooks(t *testing.T) {
	t.Parallel()
	log, v := administered(t)
	by := ports.Principal{TenantID: "acme", PersonID: "p-1", ActorType: event.Human, RoleLabel: "module"}
	one := ports.WebhookEndpoint{Subscription: event.ID{1}, TenantID: "acme", URL: "https://a.example.org/", SecretNumber: 1, Revision: 1, CreatedAt: start, UpdatedAt: start}
	two := one
	two.Subscription = event.ID{2}
	for _, e := range []ports.WebhookEndpoint{one, two} {
		sub := subscription.Subscription{UID: e.Subscription, TenantID: "acme", ID: e.Subscription.String(), Owner: "p-1", SubscriberType: "webhook", SubscriberID: "x", Revision: 1, CreatedAt: start}
		require.NoError(t, log.Subscriptions().Decide(t.Context(), ports.SubscriptionDecision{Action: ports.SubscriptionCreated, Subscription: sub, By: by}))
		_, _, err := log.Database.Subscriptions.CreateSubscription(t.Context(), sub, nil, 0)
		require.NoError(t, err)
		require.NoError(t, log.Webhooks().DecideEndpoint(t.Context(), ports.WebhookDecision{Endpoint: e, SubscriptionID: "hook", By: by}))
		require.NoError(t, log.Database.Webhooks.SaveWebhookEndpoint(t.Context(), e))
	}
	require.Empty(t, kinds(t, v))

	// A change while the log is verified, after its last event was read.
	during := one
	during.URL = "https://c.example.org/"
	before := ports.WebhookRecord{Version: 1, Digest: one.Digest()}
	v.head = func(h ports.Head) ports.Head {
		v.head = nil
		require.NoError(t, log.Webhooks().DecideEndpoint(t.Context(), ports.WebhookDecision{Endpoint: during, SubscriptionID: "hook", By: by, Before: before}))
		require.NoError(t, log.Database.Webhooks.DeleteWebhookEndpoint(t.Context(), one.Subscription))
		require.NoError(t, log.Database.Webhooks.SaveWebhookEndpoint(t.Context(), during))
		return h
	}
	require.Empty(t, kinds(t, v))
	one = during

	save := func(change func(e *ports.WebhookEndpoint)) {
		e, err := log.Database.Webhooks.WebhookEndpoint(context.Background(), one.Subscription)
		require.NoError(t, err)
		change(&e)
		require.NoError(t, log.Database.Webhooks.DeleteWebhookEndpoint(context.Background(), one.Subscription))
		e.Revision = 1 // the row is edited in place
		require.NoError(t, log.Database.Webhooks.SaveWebhookEndpoint(context.Background(), e))
	}
	mismatch := []verify.FindingKind{verify.WebhookMismatch}
	for name, change := range map[string]func(e *ports.WebhookEndpoint){
		"address":    func(e *ports.WebhookEndpoint) { e.URL = "https://b.example.org/" },
		"disclosure": func(e *ports.WebhookEndpoint) { e.PersonalReason = "x" },
		"secret":     func(e *ports.WebhookEndpoint) { e.SecretNumber = 2 },
		"overlap":    func(e *ports.WebhookEndpoint) { e.PreviousUntil = start.Add(time.Hour) },
		"created":    func(e *ports.WebhookEndpoint) { e.CreatedAt = start.Add(time.Second) },
		"state":      func(e *ports.WebhookEndpoint) { e.DisabledAt, e.DisabledCode = start, "webhook.status_410" },
		"headers":    func(e *ports.WebhookEndpoint) { e.HeaderNames, e.Headers = []string{"X"}, []byte{1} },
	} {
		save(change)
		require.Equal(t, mismatch, kinds(t, v), name)
		save(func(e *ports.WebhookEndpoint) { *e = one })
		require.Empty(t, kinds(t, v))
	}
	invented := one
	invented.Subscription = event.ID{3}
	require.NoError(t, log.Database.Webhooks.SaveWebhookEndpoint(t.Context(), invented))
	require.Equal(t, mismatch, kinds(t, v), "invented")
	require.NoError(t, log.Database.Webhooks.DeleteWebhookEndpoint(t.Context(), invented.Subscription))
	require.NoError(t, log.Database.Webhooks.DeleteWebhookEndpoint(t.Context(), one.Subscription))
	require.Equal(t, mismatch, kinds(t, v), "removed")

	require.NoError(t, log.Database.Subscriptions.DeleteSubscription(t.Context(), one.Subscription))
	require.NotContains(t, kinds(t, v), verify.WebhookMismatch, "it goes with its subscription")
}
