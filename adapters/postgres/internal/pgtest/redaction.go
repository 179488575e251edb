package pgtest

import (
	"testing"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/postgres"
	"github.com/erpbackbone/backbone/adapters/postgres/eventlog"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

const (
	PlainPayload    = `{"data":{"name" : "Ada","amount":1.50,"lines":[{"note":"call Ada"},{"note":"x"}],"email":{"$pii":"AQ","sub":"employee:E-1"}},"dimensions":{},"entity_refs":[]}`
	RedactedPayload = `{"data":{"name" : "[REDACTED]","amount":1.50,"lines":[{"note":"[REDACTED]"},{"note":"x"}],"email":{"$pii":"AQ","sub":"employee:E-1"}},"dimensions":{},"entity_refs":[]}`
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
	r.Events[1].Payload = []byte(PlainPayload)
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

func (a *RedactionFixture) Request(pointers ...string) ports.RedactionRequest {
	return ports.RedactionRequest{
		ID: ulid.Make(), Partition: a.Partition, Sequence: a.Event.Sequence, Pointers: pointers, Reason: "migrated in clear", RequestedBy: "p-1",
	}
}

// Approved creates a redaction request and approves it as a second person.
func (a *RedactionFixture) Approved(t *testing.T, pointers ...string) ports.RedactionRequest {
	t.Helper()
	r, err := a.RequestRedaction(t.Context(), a.Request(pointers...))
	require.NoError(t, err)
	r, err = a.ApproveRedaction(t.Context(), a.Partition, r.ID, "p-2")
	require.NoError(t, err)
	return r
}

func Replacement(old event.Hash, payload string) ports.RedactedPayload {
	to := ports.RedactedPayload{OldHash: old, Salt: event.Salt(ulid.Make()), Payload: []byte(payload)}
	to.NewHash = event.HashPayload(to.Salt, to.Payload)
	return to
}
