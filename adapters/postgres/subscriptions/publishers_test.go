package subscriptions_test

import (
	"testing"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/pgtest"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/conformance"
)

func TestWebhookEndpoints(t *testing.T) {
	t.Parallel()
	conformance.RunWebhookEndpoints(t, pgtest.Open(t, pgtest.Database(t)).Webhooks)
}

func TestPublisherCursors(t *testing.T) {
	t.Parallel()
	conformance.RunPublisherCursors(t, func(t *testing.T) ports.PublisherCursors { return pgtest.Open(t, pgtest.Database(t)).Publishers })
}
