package subscriptions_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/postgres/eventlog"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pgtest"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/test/conformance"
)

// TestOutbox_TailBySequence reads like a tool that polls the view.
func TestOutbox_TailBySequence(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	s := pgtest.Open(t, dsn)
	partitions := pgtest.NewPartitions(t, s, 2)
	reader := pgtest.Connect(t, dsn)
	_, err := reader.Exec(t.Context(), "SET ROLE backbone_outbox_reader")
	require.NoError(t, err)
	type row struct {
		ID            event.ID
		AggregateType string
		AggregateID   string
		Type          string
		Payload       []byte
		Sequence      int64
	}
	after := map[event.PartitionID]int64{}
	tail := func(p event.PartitionID, limit int) []row {
		rows, err := reader.Query(t.Context(), `
			SELECT id, aggregatetype, aggregateid, type, payload, sequence FROM backbone.outbox
			WHERE partition_id = $1 AND sequence > $2 ORDER BY sequence LIMIT $3`, int32(p), after[p], limit)
		require.NoError(t, err)
		out, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (o row, err error) {
			var id [16]byte
			err = r.Scan(&id, &o.AggregateType, &o.AggregateID, &o.Type, &o.Payload, &o.Sequence)
			o.ID = id
			return o, err
		})
		require.NoError(t, err)
		if n := len(out); n > 0 {
			after[p] = out[n-1].Sequence
		}
		return out
	}
	for _, p := range partitions {
		var got []row
		for n := range 5 {
			_, err := s.Appender.Append(t.Context(), pgtest.Invoice(p, n+1))
			require.NoError(t, err)
			got = append(got, tail(p, 2)...)
		}
		for {
			more := tail(p, 2)
			if len(more) == 0 {
				break
			}
			got = append(got, more...)
		}
		want, err := s.Audit.ChainPage(t.Context(), p, 0, 0)
		require.NoError(t, err)
		require.Len(t, got, len(want))
		for i, e := range want {
			require.Equal(t, row{e.ID, e.Stream.Type, e.Stream.ID, e.Type, e.Payload, int64(e.Sequence)}, got[i], "stored bytes, sealed values included")
		}
	}

	for _, denied := range []string{"SELECT FROM backbone.events", "SELECT FROM backbone.event_payloads", "INSERT INTO backbone.outbox (id) VALUES (NULL)", "DELETE FROM backbone.outbox"} {
		_, err := reader.Exec(t.Context(), denied)
		require.Contains(t, []string{"42501", "55000"}, pgtest.SQLState(err), denied)
	}
}

// TestOutbox_ShowsRedactions reads an event of the view before and after its redaction.
func TestOutbox_ShowsRedactions(t *testing.T) {
	t.Parallel()
	f := pgtest.NewRedactionFixture(t)
	reader := pgtest.Connect(t, f.Dsn)
	_, err := reader.Exec(t.Context(), "SET ROLE backbone_outbox_reader")
	require.NoError(t, err)
	read := func() (payload string, redactions *string) {
		t.Helper()
		require.NoError(t, reader.QueryRow(t.Context(), "SELECT payload::text, redactions::text FROM backbone.outbox WHERE id = $1",
			[16]byte(f.Event.ID)).Scan(&payload, &redactions))
		return payload, redactions
	}
	payload, redactions := read()
	require.Equal(t, conformance.PlainPayload, payload)
	require.Nil(t, redactions)

	request := f.Store().Approved(t, conformance.RedactedPointers()...)
	done, err := f.RedactPayload(t.Context(), request, conformance.Replacement(event.HashPayload(f.Event.Salt, f.Event.Payload), conformance.RedactedPayload))
	require.NoError(t, err)
	payload, redactions = read()
	require.Equal(t, conformance.RedactedPayload, payload)
	require.NotNil(t, redactions)
	marks, err := eventlog.DecodeRedactions([]byte(*redactions))
	require.NoError(t, err)
	require.Len(t, marks, 1)
	require.Equal(t, []any{request.ID, request.Pointers}, []any{marks[0].RequestID, marks[0].Pointers})
	require.WithinDuration(t, done.RedactedAt, marks[0].At, 0)
}

// TestOutbox_DebeziumDefaultColumns holds the view against "Outbox Event Router",
// section "Expected outbox table", of Debezium's documentation
// (https://debezium.io/documentation/reference/stable/transformations/outbox-event-router.html):
//
//	Column        |          Type          | Modifiers
//	--------------+------------------------+-----------
//	id            | uuid                   | not null
//	aggregatetype | character varying(255) | not null
//	aggregateid   | character varying(255) | not null
//	type          | character varying(255) | not null
//	payload       | jsonb                  |
//
// The router takes the columns by these names unless table.field.event.id,
// route.by.field, table.field.event.key, table.field.event.type and table.field.event.payload say
// otherwise. Debezium's PostgreSQL connector maps text as character varying, to STRING,
// and json as jsonb, to a STRING named io.debezium.data.Json.
func TestOutbox_DebeziumDefaultColumns(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	conn := pgtest.Connect(t, dsn)
	require.Equal(t, []string{"id uuid", "aggregatetype text", "aggregateid text", "type text", "payload json"}, pgtest.Column(t, conn, `
		SELECT column_name || ' ' || data_type FROM information_schema.columns
		WHERE table_schema = 'backbone' AND table_name = 'outbox' ORDER BY ordinal_position LIMIT 5`))
	require.Equal(t, []string{"timestamp timestamp with time zone", "partition_id integer", "sequence bigint"}, pgtest.Column(t, conn, `
		SELECT column_name || ' ' || data_type FROM information_schema.columns
		WHERE table_schema = 'backbone' AND table_name = 'outbox' ORDER BY ordinal_position LIMIT 3 OFFSET 5`), "what readers go on by")
	require.Equal(t, []string{"redactions json"}, pgtest.Column(t, conn, `
		SELECT column_name || ' ' || data_type FROM information_schema.columns
		WHERE table_schema = 'backbone' AND table_name = 'outbox' ORDER BY ordinal_position OFFSET 18`), "a migration appends columns only")
	require.Equal(t, []string{"id", "stream_id", "stream_type", "type"}, pgtest.Column(t, conn, `
		SELECT attname::text FROM pg_attribute WHERE attrelid = 'backbone.events'::regclass AND attnotnull
		AND attname IN ('id', 'stream_type', 'stream_id', 'type') ORDER BY 1`), "none of these is ever absent")
}
