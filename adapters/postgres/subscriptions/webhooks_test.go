package subscriptions_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/pgtest"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// TestAddWebhookAttempts_DeletedEndpoint writes one down while the endpoint is being removed.
func TestAddWebhookAttempts_DeletedEndpoint(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	s := pgtest.Open(t, dsn)
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	uid := event.ID{1}
	require.NoError(t, s.Webhooks.SaveWebhookEndpoint(t.Context(), ports.WebhookEndpoint{
		Subscription: uid, TenantID: "acme", URL: "https://a.example.org/", SecretNumber: 1, Revision: 1, CreatedAt: at, UpdatedAt: at,
	}))
	removing, err := pgtest.Connect(t, dsn).Begin(t.Context())
	require.NoError(t, err)
	_, err = removing.Exec(t.Context(), "DELETE FROM backbone.webhook_endpoints")
	require.NoError(t, err)
	written := make(chan error, 1)
	go func() {
		written <- s.Webhooks.AddWebhookAttempts(context.Background(), uid, []ports.WebhookAttempt{{EventID: event.ID{9}, Partition: 5, Sequence: 1, Attempt: 1, At: at, Status: 204}}, 10)
	}()
	watcher := pgtest.Connect(t, dsn)
	testkit.Eventually(t, pgtest.WaitLimit, func() bool {
		var waiting int
		require.NoError(t, watcher.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'").Scan(&waiting))
		return waiting == 1
	}, "it waits for the transaction that removes the endpoint")
	require.NoError(t, removing.Commit(t.Context()))
	require.NoError(t, <-written)
	left, err := s.Webhooks.WebhookAttempts(t.Context(), uid, 10)
	require.NoError(t, err)
	require.Empty(t, left)
}
