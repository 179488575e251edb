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

// handed is a projection that remembers the last payload that it was handed.
type handed struct{ payloads []string }

func (h *handed) Apply(_ context.Context, _ ports.ProjectionTx, b ports.ProjectionBatch) error {
	h.payloads = nil
	for _, e := range b.Events {
		h.payloads = append(h.payloads, string(e.Payload))
	}
	return nil
}

func TestProjection_SeesRedactedEvents(t *testing.T) {
	t.Parallel()
	r := setup(t)
	var events []event.Recorded
	var sealed []string
	for _, text := range []string{couple, `{"data":{"id":"E-3"}}`, strings.ReplaceAll(couple, "E-1", "E-2")} {
		document := []byte(text)
		if strings.Contains(text, "partner") {
			document = r.seal(t, r.document(text))
		}
		events = append(events, event.Recorded{Skeleton: event.Skeleton{Partition: 7}, Payload: document})
		sealed = append(sealed, string(document))
	}
	h := &handed{}
	node := r.node() // whose memory is empty
	shown := vault.Projection(h, node)
	apply := func() error {
		return shown.Apply(t.Context(), nil, ports.ProjectionBatch{Partition: 7, Events: events})
	}
	before, _ := r.store.counts()
	require.NoError(t, apply())
	require.Equal(t, sealed, h.payloads, "every byte as it was")
	after, _ := r.store.counts()
	require.Equal(t, 1, after-before, "one question for all")
	_, unwrapped := r.service.counts()
	require.Zero(t, unwrapped, "nothing is opened")

	node.Evict(r.store.set(employee("E-1"), destroy))
	require.NoError(t, apply())
	require.Equal(t, sealed[1:], h.payloads[1:])
	require.NotContains(t, h.payloads[0], "employee:E-1")
	require.Contains(t, h.payloads[0], `{"data":{"iban" : "[REDACTED]" ,"id":"E-1","email":"[REDACTED]","partner":{"id":"P-9","name":{"$pii"`)
	require.Equal(t, sealed[0], string(events[0].Payload), "what the log holds is not touched")
	require.Equal(t, 2, r.tally.redacted)

	// A fence stops appends alone: the person is not erased yet.
	node.Evict(r.store.set(ports.SubjectKeyID{Partition: 7, Subject: "person:P-9", Class: shredding.KeyStandard}, fence))
	require.NoError(t, apply())
	require.Equal(t, sealed[2], h.payloads[2])

	// What cannot be asked is tried again later; nobody writes what may be erased.
	node.EvictAll()
	r.store.break_(fault.New(fault.Unavailable, "keys.unavailable", "away"))
	h.payloads = nil
	require.Equal(t, "keys.unavailable", fault.CodeOf(apply()))
	require.Empty(t, h.payloads)
	closed := r.node(func(c *vault.Config) {
		c.Gate = func() error { return fault.New(fault.Unavailable, "pii.receipts_behind", "restored") }
	})
	_, err := closed.Redact(t.Context(), events)
	require.Equal(t, "pii.receipts_behind", fault.CodeOf(err))
	without, err := closed.Redact(t.Context(), events[1:2])
	require.NoError(t, err, "events without personal values go on")
	require.Equal(t, events[1:2], without)
	keyless, err := testkit.Must(vault.New(vault.Config{Manifests: r.types})).Redact(t.Context(), events)
	require.NoError(t, err)
	require.Equal(t, events, keyless)
}
