package pgtest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/postgres"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

// Invoice is a request of one event of about 1 KB with everything on: an
// idempotency key, an expected stream version, two keys and the chain.
func Invoice(p event.PartitionID, events int) ports.AppendRequest {
	r := ports.AppendRequest{Partition: p}
	for range events {
		id := ulid.Make()
		document := id.String()
		payload := []byte(`{"data":{"invoice_id":"` + document + `","vendor_id":"V-1042","number":"2026-` + document +
			`","lines":[` + strings.Repeat(`{"account":"6000","amount":125.50,"description":"services as agreed","tax_group":"STD"},`, 8) +
			`{"account":"1400","amount":190.76}],"total":1194.76,"currency":"USD"},"dimensions":{"department":"ENG","cost_center":"CC-1100"},"entity_refs":[{"entity_type":"vendor","entity_id":"V-1042","role":"payee"},{"entity_type":"invoice","entity_id":"` + document + `","role":"subject"}]}`)
		e := event.Prepared{
			Skeleton: event.Skeleton{
				Partition: p, ID: id, Type: "ap.invoice.received", SchemaVersion: 1,
				OccurredAt: time.Now(), EffectiveDate: event.MustDate("2026-03-02"),
				Scope: event.Scope{TenantID: "demo", LegalEntity: "USMF"}, ActorType: event.Human, ActorID: "u-17", ActorName: "ap_clerk",
				IntentID: id, CorrelationID: document, Stream: event.StreamID{Type: "invoice", ID: document},
				Source: event.Source{System: "erp", Channel: "api"},
			},
			TypeNumber: 1, Payload: payload,
			Keys: []string{event.EntityKey("vendor", "V-1042"), event.EntityKey("invoice", document)},
		}
		copy(e.Salt[:], id[:])
		e.PayloadHash, e.PayloadHashDone = event.HashPayload(e.Salt, e.Payload), true
		r.Events = append(r.Events, e)
		r.Streams = append(r.Streams, concurrency.StreamExpectation{Stream: e.Stream, Expected: concurrency.NoStream()})
	}
	r.Idempotency = &ports.IdempotencyClaim{Key: "person/append/" + r.Events[0].ID.String(), ExpiresAt: time.Now().Add(time.Hour)}
	return r
}

func NewPartitions(t testing.TB, s *postgres.Database, n int) []event.PartitionID {
	t.Helper()
	require.NoError(t, s.Directory.Bootstrap(t.Context(), ports.Installation{LogName: LogName, Deployment: 5}))
	out := make([]event.PartitionID, n)
	for i := range out {
		le, err := s.Directory.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: "demo", Code: fmt.Sprintf("LE%d", i), TimeZone: "UTC"})
		require.NoError(t, err)
		out[i] = le.Partition
	}
	return out
}
