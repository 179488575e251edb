package memory_test

import (
	"testing"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/adapters/system"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/conformance"
)

func TestWebhookEndpoints(t *testing.T) {
	t.Parallel()
	conformance.RunWebhookEndpoints(t, memory.New(memory.Config{}).Webhooks)
}

func TestPublisherCursors(t *testing.T) {
	t.Parallel()
	conformance.RunPublisherCursors(t, func(*testing.T) ports.PublisherCursors {
		return memory.New(memory.Config{Clock: system.Clock{}}).Publishers
	})
}
