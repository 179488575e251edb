package erasure_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/jsonschema"
	"github.com/erpbackbone/backbone/application/erasure"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

func TestModule_EventTypes(t *testing.T) {
	t.Parallel()
	catalog, err := module.Build(jsonschema.New(), erasure.Module{})
	require.NoError(t, err)
	require.Len(t, catalog.EventTypes, 2)
	for _, e := range catalog.EventTypes {
		require.Equal(t, "pii", catalog.Owner(e.Type))
		require.Equal(t, eventtype.Regulatory, e.RetentionClass)
		require.Positive(t, e.MinRetentionYears)
		require.Empty(t, e.PIIFields)
		schema, err := jsonschema.New().Compile(e.DataSchema)
		require.NoError(t, err)
		for _, example := range e.Examples {
			violations, err := schema.Validate(example)
			require.NoError(t, err)
			require.Empty(t, violations, e.Type)
		}
	}
}

// TestErasure_Intents counts and verifies the values that stored intents hold.
func TestErasure_Intents(t *testing.T) {
	t.Parallel()
	b := newErasureFixture(t)
	id := b.ids.NewID(start)
	payload, used, err := b.vault.Seal(t.Context(), module.SealRequest{
		TenantID: "acme", Document: []byte(`{"email":"ada@example.org"}`),
		At:     shredding.Location{Partition: b.de.Partition, Kind: shredding.KindIntent, Record: id, Type: "hr.contact", SchemaVersion: module.IntentSchemaVersion},
		Fields: []shredding.Field{{Pointer: "/email", Class: shredding.Contact, Subject: subject}},
	})
	require.NoError(t, err)
	_, err = b.store.Appender.Append(t.Context(), testkit.WriteIntent(ports.IntentWrite{
		Sealed: used,
		Intent: intent.Intent{
			ID: id, Partition: b.de.Partition, LegalEntity: "DEMF", Type: "hr.contact", Payload: payload, Actor: event.Actor{Type: event.Human, ID: "p-1", Name: "hr"},
			PersonID: "p-1", Status: intent.Executed, Revision: 1, CreatedAt: start, UpdatedAt: start,
		},
	}))
	require.NoError(t, err)
	s := b.createApprovedRequest(t)
	require.EqualValues(t, 1, s.Preview.Intents)
	require.Equal(t, []erasure.TypeCount{{Type: "hr.contact", LegalEntity: "DEMF", Intent: true, Events: 1, Fields: 1}}, s.Preview.Types)
	b.runNewWorker(t)
	c, _ := b.readCertificate(t, s.ID)
	require.EqualValues(t, 1, c.Counts.Intents)
	require.EqualValues(t, 1, c.Counts.Redacted)
}

// TestWorker_ClosedGateAndUnsoundChain: nothing is destroyed if the gate has closed since the
// fence, and no certificate is issued while the log is unsound.
func TestWorker_ClosedGateAndUnsoundChain(t *testing.T) {
	t.Parallel()
	b := newErasureFixture(t)
	s := b.createApprovedRequest(t)
	b.runWorkerUntil(t, shredding.ErasureFenced)
	gate := b.config.Gate
	b.config.Gate = closedGate{}
	b.runNewWorker(t)
	require.Equal(t, "fenced", b.getStatus(t, s.ID).State)
	require.Equal(t, "pii.receipts_behind", b.storedRequest(t, s.ID).LastError)

	sound := b.config.Chains
	b.config.Gate, b.config.Chains = gate, unsoundChains{}
	b.runNewWorker(t)
	require.Equal(t, "rebuilt", b.getStatus(t, s.ID).State)
	require.Equal(t, "erasure.chain_unsound", b.storedRequest(t, s.ID).LastError)
	b.config.Chains = sound
	b.clock.Advance(time.Hour)
	b.runNewWorker(t)
	require.Equal(t, "completed", b.getStatus(t, s.ID).State)
}

type closedGate struct{}

func (closedGate) Check(context.Context) error {
	return fault.New(fault.Unavailable, "pii.receipts_behind", "restored")
}

type unsoundChains struct{}

func (unsoundChains) VerifyChain(_ context.Context, le ports.LegalEntity) (erasure.ChainVerdict, error) {
	return erasure.ChainVerdict{LegalEntity: le.Code, Findings: 1}, nil
}
