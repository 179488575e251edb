package testkit

import (
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

// WriteIntent is the append that stores an intent: its row and an event about it. The event holds
// no digest of the row.
func WriteIntent(w ports.IntentWrite) ports.AppendRequest {
	in := w.Intent
	about := event.Prepared{
		Skeleton: event.Skeleton{
			Partition: in.Partition, ID: in.ID, Type: "backbone.intent.refused", SchemaVersion: 1, OccurredAt: in.UpdatedAt,
			Scope: event.Scope{TenantID: "acme", LegalEntity: in.LegalEntity}, ActorType: in.Actor.Type, ActorID: in.Actor.ID, CorrelationID: in.ID.String(), IntentID: in.ID,
			Stream: event.StreamID{Type: "backbone.intent", ID: in.ID.String()},
		},
		Payload: []byte(`{"data":{},"dimensions":{},"entity_refs":[]}`),
	}
	about.PayloadHash, about.PayloadHashDone = event.HashPayload(about.Salt, about.Payload), true
	w.EventsAbout = 1
	return ports.AppendRequest{Partition: in.Partition, Events: []event.Prepared{about}, Intent: &w}
}
