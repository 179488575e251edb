package vault_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/vault"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// recordingHandler records the payloads of the last batch.
type recordingHandler struct{ payloads []string }

func (h *recordingHandler) Apply(_ context.Context, _ ports.ProjectionTx, b ports.ProjectionBatch) error {
	h.payloads = nil
	for _, e := range b.Events {
		h.payloads = append(h.payloads, string(e.Payload))
	}
	return nil
}

func TestProjection_ReadsRedactedEvents(t *testing.T) {
	t.Parallel()
	r := newVaultFixture(t)
	var events []event.Recorded
	var sealed []string
	for _, text := range []string{twoPersons, `{"data":{"id":"E-3"}}`, strings.ReplaceAll(twoPersons, "E-1", "E-2")} {
		document := []byte(text)
		if strings.Contains(text, "partner") {
			document = r.seal(t, r.sealRequest(text))
		}
		events = append(events, event.Recorded{Skeleton: event.Skeleton{Partition: 7}, Payload: document})
		sealed = append(sealed, string(document))
	}
	h := &recordingHandler{}
	node := r.newNode() // with an empty cache
	handler := vault.Projection(h, node)
	apply := func() error {
		return handler.Apply(t.Context(), nil, ports.ProjectionBatch{Partition: 7, Events: events})
	}
	before, _ := r.store.counts()
	require.NoError(t, apply())
	require.Equal(t, sealed, h.payloads, "no byte is changed")
	after, _ := r.store.counts()
	require.Equal(t, 1, after-before, "one read for all keys")
	_, unwrapped := r.service.counts()
	require.Zero(t, unwrapped, "nothing is opened")

	node.Evict(r.store.set(employeeKey("E-1"), destroy))
	require.NoError(t, apply())
	require.Equal(t, sealed[1:], h.payloads[1:])
	require.NotContains(t, h.payloads[0], "employee:E-1")
	require.Contains(t, h.payloads[0], `{"data":{"iban" : "[REDACTED]" ,"id":"E-1","email":"[REDACTED]","partner":{"id":"P-9","name":{"$pii"`)
	require.Equal(t, sealed[0], string(events[0].Payload), "the events of the log are unchanged")
	require.Equal(t, 2, r.counters.redacted)

	// A fence refuses appends only: the person is not erased yet.
	node.Evict(r.store.set(ports.SubjectKeyID{Partition: 7, Subject: "person:P-9", Class: shredding.KeyStandard}, fence))
	require.NoError(t, apply())
	require.Equal(t, sealed[2], h.payloads[2])

	// Without the key store the batch fails, and the projection gets no events.
	node.EvictAll()
	r.store.setFailure(fault.New(fault.Unavailable, "keys.unavailable", "down"))
	h.payloads = nil
	require.Equal(t, "keys.unavailable", fault.CodeOf(apply()))
	require.Empty(t, h.payloads)
	closed := r.newNode(func(c *vault.Config) {
		c.Gate = func() error { return fault.New(fault.Unavailable, "pii.receipts_behind", "restored") }
	})
	_, err := closed.Redact(t.Context(), events)
	require.Equal(t, "pii.receipts_behind", fault.CodeOf(err))
	without, err := closed.Redact(t.Context(), events[1:2])
	require.NoError(t, err, "events without personal values need no key")
	require.Equal(t, events[1:2], without)
	keyless, err := testkit.Must(vault.New(vault.Config{Manifests: r.types})).Redact(t.Context(), events)
	require.NoError(t, err)
	require.Equal(t, events, keyless)
}
