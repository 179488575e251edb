package conformance

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// Webhooks are the endpoints and the attempts under test.
type Webhooks interface {
	ports.WebhookEndpoints
	ports.WebhookAttempts
}

// RunWebhookEndpoints checks ports.WebhookEndpoints and ports.WebhookAttempts on an empty
// store: endpoints change by revision, and a bounded number of attempts is kept for each.
func RunWebhookEndpoints(t *testing.T, s Webhooks) {
	t.Helper()
	ctx := t.Context()
	at := time.Date(2026, 3, 1, 12, 0, 0, 1000, time.UTC)
	none, err := s.WebhookEndpoints(ctx, "")
	require.NoError(t, err)
	require.NotNil(t, none)
	require.Empty(t, none)
	_, err = s.WebhookEndpoint(ctx, event.ID{1})
	require.Equal(t, "webhook.endpoint_not_found", fault.CodeOf(err))

	first := ports.WebhookEndpoint{Subscription: event.ID{2}, TenantID: "acme", URL: "https://a.example.org/", SecretNumber: 1, Revision: 1, CreatedAt: at, UpdatedAt: at}
	other := first
	other.Subscription, other.TenantID = event.ID{1}, "globex"
	require.NoError(t, s.SaveWebhookEndpoint(ctx, first))
	require.NoError(t, s.SaveWebhookEndpoint(ctx, other))
	require.Equal(t, "webhook.endpoint_changed", fault.CodeOf(s.SaveWebhookEndpoint(ctx, first)), "it is there already")
	for tenant, want := range map[string][]ports.WebhookEndpoint{"": {first, other}, "acme": {first}, "globex": {other}, "acm": {}} {
		got, err := s.WebhookEndpoints(ctx, tenant)
		require.NoError(t, err)
		require.Equal(t, want, got, "of the tenant %q", tenant)
	}

	next := first
	next.URL, next.SecretNumber, next.PreviousUntil, next.Revision, next.UpdatedAt = "https://b.example.org/", 2, at.Add(time.Hour), 2, at.Add(time.Minute)
	next.DisabledAt, next.DisabledCode, next.PersonalReason = at, "webhook.status_410", "The vendor portal greets by name."
	next.HeaderNames, next.Headers = []string{"Authorization", "X-Route"}, []byte{0, 1, 255}
	require.NoError(t, s.SaveWebhookEndpoint(ctx, next))
	got, err := s.WebhookEndpoint(ctx, first.Subscription)
	require.NoError(t, err)
	require.Equal(t, next, got)
	for _, revision := range []int64{2, 4} {
		stale := next
		stale.Revision = revision
		require.Equal(t, "webhook.endpoint_changed", fault.CodeOf(s.SaveWebhookEndpoint(ctx, stale)))
	}

	for round := range int64(races) { // one of many changes an endpoint
		oneWinner(t, race(8, func(i int) error {
			mine := next
			mine.Revision, mine.SecretNumber = 3+round, 10+i
			return s.SaveWebhookEndpoint(ctx, mine)
		}), "webhook.endpoint_changed")
	}

	last, err := s.WebhookEndpoint(ctx, first.Subscription)
	require.NoError(t, err)
	last.HeaderNames, last.Headers, last.Revision = nil, nil, last.Revision+1
	require.NoError(t, s.SaveWebhookEndpoint(ctx, last))
	got, err = s.WebhookEndpoint(ctx, first.Subscription)
	require.NoError(t, err)
	require.Equal(t, last, got, "headers are given up")

	webhookAttempts(t, s, first.Subscription, other.Subscription, at)
	require.ErrorIs(t, s.DeleteWebhookEndpoint(cancelled(), first.Subscription), context.Canceled)
	for range 2 {
		require.NoError(t, s.DeleteWebhookEndpoint(ctx, first.Subscription))
	}
	all, err := s.WebhookEndpoints(ctx, "")
	require.NoError(t, err)
	require.Equal(t, []ports.WebhookEndpoint{other}, all)
	left, err := s.WebhookAttempts(ctx, first.Subscription, 10)
	require.NoError(t, err)
	require.Empty(t, left, "attempts go with their endpoint")
	late := ports.WebhookAttempt{EventID: event.ID{9}, Partition: 5, Sequence: 1, Attempt: 1, At: at, Status: 204}
	require.NoError(t, s.AddWebhookAttempts(ctx, first.Subscription, []ports.WebhookAttempt{late}, 10))
	left, err = s.WebhookAttempts(ctx, first.Subscription, 10)
	require.NoError(t, err)
	require.Empty(t, left, "one that ends after its endpoint leaves nothing behind")
	left, err = s.WebhookAttempts(ctx, other.Subscription, 10)
	require.NoError(t, err)
	require.Len(t, left, 1)
	require.NoError(t, s.SaveWebhookEndpoint(ctx, first), "it may be made again")
}

// webhookAttempts keeps attempts of two endpoints.
func webhookAttempts(t *testing.T, s Webhooks, one, other event.ID, at time.Time) {
	t.Helper()
	ctx := t.Context()
	list, err := s.WebhookAttempts(ctx, one, 10)
	require.NoError(t, err)
	require.NotNil(t, list)
	require.Empty(t, list)
	require.NoError(t, s.AddWebhookAttempts(ctx, one, nil, 3))
	attempt := func(n int) ports.WebhookAttempt {
		return ports.WebhookAttempt{EventID: event.ID{9, byte(n)}, Partition: 5, Sequence: event.Sequence(n), Attempt: n, At: at.Add(time.Duration(n) * time.Minute), Status: 204, Duration: 12 * time.Millisecond}
	}
	failed := attempt(3)
	failed.Status, failed.Code, failed.Next = 0, "webhook.timeout", at.Add(time.Hour)
	same := failed // of another message, at the same moment
	same.Sequence, same.EventID = 7, event.ID{9, 7}
	require.NoError(t, s.AddWebhookAttempts(ctx, one, []ports.WebhookAttempt{attempt(2), attempt(1), failed, same}, 10))
	require.NoError(t, s.AddWebhookAttempts(ctx, other, []ports.WebhookAttempt{attempt(8)}, 3))
	list, err = s.WebhookAttempts(ctx, one, 3)
	require.NoError(t, err)
	require.Equal(t, []ports.WebhookAttempt{same, failed, attempt(2)}, list, "the newest first")
	require.NoError(t, s.AddWebhookAttempts(ctx, one, []ports.WebhookAttempt{attempt(4)}, 3))
	list, err = s.WebhookAttempts(ctx, one, 10)
	require.NoError(t, err)
	require.Equal(t, []ports.WebhookAttempt{attempt(4), same, failed}, list, "what is older is forgotten")
}
