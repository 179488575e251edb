package pgtest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/postgres"
	"github.com/erpbackbone/backbone/adapters/postgres/eventlog"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/test/conformance"
)

// RedactionFixture is a log with one event in plain text and a Redactor.
type RedactionFixture struct {
	*postgres.Database
	*eventlog.Redactor
	Dsn       string
	Partition event.PartitionID
	Event     event.Recorded
}

func NewRedactionFixture(t *testing.T) *RedactionFixture {
	t.Helper()
	a := &RedactionFixture{Dsn: Database(t)}
	a.Database = Open(t, a.Dsn)
	a.Partition = NewPartitions(t, a.Database, 1)[0]
	r := Invoice(a.Partition, 2)
	r.Events[1].Payload = []byte(conformance.PlainPayload)
	r.Events[1].PayloadHash = event.HashPayload(r.Events[1].Salt, r.Events[1].Payload)
	_, err := a.Appender.Append(t.Context(), r)
	require.NoError(t, err)
	a.Event, err = a.Events.EventByID(t.Context(), a.Partition, r.Events[1].ID)
	require.NoError(t, err)
	a.Redactor, err = eventlog.OpenRedactor(t.Context(), As("backbone_eraser", a.Dsn))
	require.NoError(t, err)
	t.Cleanup(a.Redactor.Close)
	return a
}

// Store is the fixture as the conformance suite takes it.
func (a *RedactionFixture) Store() conformance.RedactionStore {
	return conformance.RedactionStore{Redactions: a.Redactor, Events: a.Events, Snapshots: a.Snapshots, Intents: a.Intents, ReadModels: Combine(a.Database), Event: a.Event, TenantID: "demo"}
}
