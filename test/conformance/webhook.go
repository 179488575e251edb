package conformance

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// RunWebhookEndpoints runs the suite on an empty store.
func RunWebhookEndpoints(t *testing.T, s ports.WebhookEndpoints) {
	t.Helper()
	ctx := t.Context()
	at := time.Date(2026, 3, 1, 12, 0, 0, 1000, time.UTC)
	none, err := s.WebhookEndpoints(ctx)
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
	all, err := s.WebhookEndpoints(ctx)
	require.NoError(t, err)
	require.Equal(t, []ports.WebhookEndpoint{first, other}, all)

	next := first
	next.URL, next.SecretNumber, next.PreviousUntil, next.Revision, next.UpdatedAt = "https://b.example.org/", 2, at.Add(time.Hour), 2, at.Add(time.Minute)
	next.DisabledAt, next.DisabledCode = at, "webhook.status_410"
	require.NoError(t, s.SaveWebhookEndpoint(ctx, next))
	got, err := s.WebhookEndpoint(ctx, first.Subscription)
	require.NoError(t, err)
	require.Equal(t, next, got)
	for _, revision := range []int64{2, 4} {
		stale := next
		stale.Revision = revision
		require.Equal(t, "webhook.endpoint_changed", fault.CodeOf(s.SaveWebhookEndpoint(ctx, stale)))
	}

	var won int
	var mu sync.Mutex
	var racing sync.WaitGroup
	for i := range 8 {
		racing.Go(func() {
			mine := next
			mine.Revision, mine.SecretNumber = 3, 10+i
			if s.SaveWebhookEndpoint(ctx, mine) == nil {
				mu.Lock()
				won++
				mu.Unlock()
			}
		})
	}
	racing.Wait()
	require.Equal(t, 1, won, "one of many changes an endpoint")

	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, s.DeleteWebhookEndpoint(cancelled, first.Subscription), context.Canceled)
	for range 2 {
		require.NoError(t, s.DeleteWebhookEndpoint(ctx, first.Subscription))
	}
	all, err = s.WebhookEndpoints(ctx)
	require.NoError(t, err)
	require.Equal(t, []ports.WebhookEndpoint{other}, all)
	require.NoError(t, s.SaveWebhookEndpoint(ctx, first), "it may be made again")
}
