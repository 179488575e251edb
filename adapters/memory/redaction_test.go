package memory_test

import (
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/conformance"
)

func TestRedactions(t *testing.T) {
	t.Parallel()
	conformance.RunRedactions(t, func(t *testing.T) conformance.RedactionStore {
		all := conformance.NewMemoryStore(memory.Config{LogName: conformance.LogName})
		db := all.Database
		le, err := db.Directory.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: "acme", Code: "A", TimeZone: "UTC"})
		require.NoError(t, err)
		e := event.Prepared{
			Skeleton: event.Skeleton{
				Partition: le.Partition, ID: ulid.Make(), Type: "hr.person.hired", SchemaVersion: 1, OccurredAt: time.Now(), EffectiveDate: event.MustDate("2026-03-02"),
				Scope: event.Scope{TenantID: "acme", LegalEntity: "A"}, ActorType: event.Human, ActorID: "p-9", CorrelationID: "c", Stream: event.StreamID{Type: "person", ID: "1"},
			},
			TypeNumber: 1, Salt: event.Salt{1}, Payload: []byte(conformance.PlainPayload),
		}
		_, err = db.Appender.Append(t.Context(), ports.AppendRequest{Partition: le.Partition, Events: []event.Prepared{e}})
		require.NoError(t, err)
		stored, err := db.Events.EventByID(t.Context(), le.Partition, e.ID)
		require.NoError(t, err)
		return conformance.RedactionStore{Redactions: db.Redactions, Events: db.Events, Snapshots: db.Snapshots, Intents: db.Intents, ReadModels: all, Event: stored, TenantID: "acme"}
	})
}
