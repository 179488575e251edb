package wire_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/embeddedpg"
	"github.com/erpbackbone/backbone/adapters/system"
	"github.com/erpbackbone/backbone/cmd/wire"
	"github.com/erpbackbone/backbone/configs"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/modules"
	"github.com/erpbackbone/backbone/ports"
)

// TestDrillOutboxByLogicalReplication decodes what PostgreSQL's own output plugin
// sends to a subscriber such as Debezium. A view is never in the write-ahead log, so the
// two tables behind the outbox are published: as their roots, whatever the physical
// partitions, and with one row of each per event.
func TestDrillOutboxByLogicalReplication(t *testing.T) {
	cluster, err := embeddedpg.Start(t.Context(), embeddedpg.Config{
		DataDir: t.TempDir(), Ephemeral: true, Settings: map[string]string{"wal_level": "logical", "max_wal_senders": "4", "max_replication_slots": "4", "synchronous_commit": "on"},
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = cluster.Stop(context.WithoutCancel(t.Context())) })
	dsn := cluster.SuperuserDSN("postgres")
	require.NoError(t, wire.Migrate(t.Context(), dsn, nil, modules.BuiltIn()...))
	super, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer super.Close(t.Context())
	for _, statement := range []string{
		"CREATE PUBLICATION backbone_outbox FOR TABLE backbone.events, backbone.event_payloads WITH (publish = 'insert', publish_via_partition_root = true)",
		"SELECT pg_create_logical_replication_slot('tail', 'pgoutput')",
	} {
		_, err := super.Exec(t.Context(), statement)
		require.NoError(t, err)
	}
	_, err = super.Exec(t.Context(), "CREATE PUBLICATION view FOR TABLE backbone.outbox")
	require.ErrorContains(t, err, "outbox", "a view cannot be published")

	u, err := url.Parse(dsn)
	require.NoError(t, err)
	q := u.Query()
	q.Set("role", "backbone_app")
	u.RawQuery = q.Encode()
	config := configs.Default()
	config.Database.DSN, config.Database.PhysicalPartitions = configs.DSN(u.String()), 1
	store, err := wire.OpenStore(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(store.Close)
	require.NoError(t, store.Directory.Bootstrap(t.Context(), ports.Installation{LogName: "books.example.org"}))
	ids, now := system.NewIDs(), time.Now()
	want := map[string]string{} // partition and sequence → payload
	for _, code := range []string{"OWN", "DEFAULT"} {
		le, err := store.Directory.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: "acme", Code: code, TimeZone: "UTC"})
		require.NoError(t, err)
		for n := 1; n <= 3; n++ {
			p := event.Prepared{
				Skeleton: event.Skeleton{
					Partition: le.Partition, ID: ids.NewID(now), Type: "till.cash.moved", SchemaVersion: 1, OccurredAt: now, EffectiveDate: event.DateOf(now),
					Scope: event.Scope{TenantID: "acme", LegalEntity: code}, ActorType: event.Human, ActorID: "p-9", CorrelationID: "c", Stream: event.StreamID{Type: "till", ID: "1"},
				},
				TypeNumber: 1, Salt: ids.NewSalt(), Payload: fmt.Appendf(nil, `{"data":{"n":%d},"dimensions":{},"entity_refs":[]}`, n),
			}
			p.PayloadHash, p.PayloadHashDone = event.HashPayload(p.Salt, p.Payload), true
			_, err := store.Appender.Append(t.Context(), ports.AppendRequest{Partition: le.Partition, Events: []event.Prepared{p}})
			require.NoError(t, err)
			want[fmt.Sprintf("%d/%d", le.Partition, n)] = string(p.Payload)
		}
	}
	rows, err := super.Query(t.Context(), "SELECT data FROM pg_logical_slot_get_binary_changes('tail', NULL, NULL, 'proto_version', '1', 'publication_names', 'backbone_outbox')")
	require.NoError(t, err)
	messages, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
	require.NoError(t, err)
	got := decode(t, messages)
	skeletons, payloads := got["backbone.events"], got["backbone.event_payloads"]
	require.Len(t, got, 2, "roots only: %v", got)
	require.Len(t, skeletons, len(want))
	require.Len(t, payloads, len(want))
	joined := map[string]string{}
	for i, p := range payloads {
		key := p["partition_id"] + "/" + p["sequence"]
		joined[key] = p["payload"]
		require.Equal(t, key, skeletons[i]["partition_id"]+"/"+skeletons[i]["sequence"], "both rows of an event come in the order of commits")
		require.Equal(t, "till", skeletons[i]["stream_type"])
	}
	require.Equal(t, want, joined)
}

// decode reads the messages of pgoutput: the inserted rows of each relation.
func decode(t *testing.T, messages [][]byte) map[string][]map[string]string {
	t.Helper()
	type relation struct {
		name    string
		columns []string
	}
	relations := map[uint32]relation{}
	out := map[string][]map[string]string{}
	text := func(b []byte) (string, []byte) {
		end := bytes.IndexByte(b, 0)
		require.GreaterOrEqual(t, end, 0)
		return string(b[:end]), b[end+1:]
	}
	for _, m := range messages {
		kind, b := m[0], m[1:]
		switch kind {
		case 'R': // oid, schema, name, replica identity, columns: flags, name, type, modifier
			oid := binary.BigEndian.Uint32(b)
			schema, b := text(b[4:])
			name, b := text(b)
			r := relation{name: schema + "." + name}
			count := binary.BigEndian.Uint16(b[1:])
			b = b[3:]
			for range count {
				var column string
				column, b = text(b[1:])
				b = b[8:]
				r.columns = append(r.columns, column)
			}
			relations[oid] = r
		case 'I': // oid, 'N', columns: kind and, for text, its length and bytes
			r := relations[binary.BigEndian.Uint32(b)]
			row := map[string]string{}
			b = b[7:]
			for _, column := range r.columns {
				kind := b[0]
				b = b[1:]
				if kind != 't' {
					continue
				}
				length := binary.BigEndian.Uint32(b)
				row[column] = string(b[4 : 4+length])
				b = b[4+length:]
			}
			out[r.name] = append(out[r.name], row)
		}
	}
	return out
}
