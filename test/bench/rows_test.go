//go:build bench

package bench

import (
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

// rawTable is a table that the baselines write as the engine does: the same
// columns, the same rows.
type rawTable struct {
	name    string
	columns []rawColumn
}

type rawColumn struct {
	name string
	kind string
	cast string // what the array's text elements are
}

func columns(specs ...string) []rawColumn {
	var out []rawColumn
	for _, spec := range specs {
		name, kind, _ := strings.Cut(spec, " ")
		c := rawColumn{name: name, kind: kind}
		if kind == "json" || kind == "text[]" {
			c.kind, c.cast = "text", "::"+kind
		}
		out = append(out, c)
	}
	return out
}

// rawTables are the tables of one event with all side rows.
var rawTables = []rawTable{
	{"events", columns(
		"partition_id int4", "sequence int8", "id uuid", "type text", "schema_version int4", "occurred_at timestamptz", "recorded_at timestamptz",
		"effective_date date", "tenant_id text", "legal_entity text", "actor_type text", "actor_id text", "actor_name text", "correlation_id text",
		"stream_type text", "stream_id text", "stream_version int8", "tags text[]", "source_system text", "source_channel text",
		"rules_evaluated json", "payload_hash bytea", "checksum bytea")},
	{"event_payloads", columns("partition_id int4", "sequence int8", "salt bytea", "payload json")},
	{"event_keys", columns("partition_id int4", "key text", "sequence int8", "type_no int4")},
	{"stream_versions", columns("partition_id int4", "stream_type text", "stream_id text", "version int8", "first_sequence int8", "last_sequence int8")},
	{"business_keys", columns("partition_id int4", "event_type text", "key text", "sequence int8", "event_id uuid", "document text")},
	{"idempotency_keys", columns("partition_id int4", "key text", "fingerprint bytea", "first_sequence int8", "event_count int4", "expires_at timestamptz")},
}

// rawRows returns the rows of an event, in the order of rawTables.
func rawRows(e *event.Prepared, c *ports.IdempotencyClaim) [][][]any {
	p, seq := int32(e.Partition), int64(e.Sequence)
	keys := make([][]any, len(e.Keys))
	for i, k := range e.Keys {
		keys[i] = []any{p, k, seq, e.TypeNumber}
	}
	b := e.BusinessKeys[0]
	return [][][]any{
		{{
			p, seq, e.ID[:], e.Type, int32(e.SchemaVersion), e.OccurredAt, e.RecordedAt,
			e.EffectiveDate, e.Scope.TenantID, e.Scope.LegalEntity, string(e.ActorType), e.ActorID, e.ActorName, e.CorrelationID,
			e.Stream.Type, e.Stream.ID, int64(1), `{"` + strings.Join(e.Tags, `","`) + `"}`, e.Source.System, e.Source.Channel,
			[]byte(e.RulesEvaluated), e.PayloadHash[:], e.PayloadHash[:], // the checksum's place; this bench does not chain
		}},
		{{p, seq, e.Salt[:], e.Payload}},
		keys,
		{{p, e.Stream.Type, e.Stream.ID, int64(1), seq, seq}},
		{{p, b.EventType, b.Key, seq, e.ID[:], b.Document}},
		{{p, c.Key, c.Fingerprint[:], seq, int32(1), c.ExpiresAt}},
	}
}

// insertMany writes any number of rows, given as one array per column.
func (t rawTable) insertMany() string {
	var names, values []string
	for i, c := range t.columns {
		names = append(names, c.name)
		values = append(values, fmt.Sprintf("unnest($%d::%s[])%s", i+1, c.kind, c.cast))
	}
	return fmt.Sprintf("INSERT INTO bench.%s (%s) SELECT %s", t.name, strings.Join(names, ", "), strings.Join(values, ", "))
}

// insertOne writes rows given value by value.
func (t rawTable) insertOne(rows int) string {
	var names, tuples []string
	for _, c := range t.columns {
		names = append(names, c.name)
	}
	n := 0
	for range rows {
		var values []string
		for _, c := range t.columns {
			n++
			values = append(values, fmt.Sprintf("$%d::%s%s", n, c.kind, c.cast))
		}
		tuples = append(tuples, "("+strings.Join(values, ", ")+")")
	}
	return fmt.Sprintf("INSERT INTO bench.%s (%s) VALUES %s", t.name, strings.Join(names, ", "), strings.Join(tuples, ", "))
}

var elementTypes = map[string]uint32{
	"int4": pgtype.Int4OID, "int8": pgtype.Int8OID, "uuid": pgtype.UUIDOID, "text": pgtype.TextOID,
	"timestamptz": pgtype.TimestamptzOID, "date": pgtype.DateOID, "bytea": pgtype.ByteaOID,
}

// appendArray encodes one column of the rows in PostgreSQL's binary array format,
// so that the ceiling is PostgreSQL's and not that of a client's encoder.
func (c rawColumn) appendArray(dst []byte, rows [][]any, column int) []byte {
	for _, n := range [...]uint32{1, 0, elementTypes[c.kind], uint32(len(rows)), 1} {
		dst = binary.BigEndian.AppendUint32(dst, n)
	}
	for _, row := range rows {
		dst = appendValue(dst, row[column], true)
	}
	return dst
}

// Microseconds and days from 1970 to PostgreSQL's epoch, the year 2000.
const (
	epochMicros = 946_684_800_000_000
	epochDays   = 10957
)

// appendValue encodes a value in PostgreSQL's binary format.
func appendValue(dst []byte, v any, sized bool) []byte {
	size := func(n int) {
		if sized {
			dst = binary.BigEndian.AppendUint32(dst, uint32(n))
		}
	}
	switch v := v.(type) {
	case int32:
		size(4)
		return binary.BigEndian.AppendUint32(dst, uint32(v))
	case int64:
		size(8)
		return binary.BigEndian.AppendUint64(dst, uint64(v))
	case time.Time:
		size(8)
		return binary.BigEndian.AppendUint64(dst, uint64(v.UnixMicro()-epochMicros))
	case event.Date:
		size(4)
		return binary.BigEndian.AppendUint32(dst, uint32(int32(v.Time().Unix()/86400)-epochDays))
	case string:
		size(len(v))
		return append(dst, v...)
	case []byte:
		size(len(v))
		return append(dst, v...)
	default:
		panic(fmt.Sprintf("no encoding for %T", v))
	}
}
