package postgres_test

import (
	"testing"

	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/conformance"
)

func TestWebhookEndpoints(t *testing.T) {
	t.Parallel()
	conformance.RunWebhookEndpoints(t, open(t, database(t)))
}

func TestPublisherCursors(t *testing.T) {
	t.Parallel()
	conformance.RunPublisherCursors(t, func(t *testing.T) ports.PublisherCursors { return open(t, database(t)) })
}
