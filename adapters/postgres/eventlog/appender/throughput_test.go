package appender_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/pgtest"
	"github.com/erpbackbone/backbone/domain/event"
)

func BenchmarkAppend(b *testing.B) {
	for _, c := range []struct{ callers, partitions, batch int }{
		{1, 1, 1}, {8, 1, 1}, {64, 1, 1}, {64, 16, 1}, {64, 32, 1}, {8, 1, 100}, {8, 16, 100},
	} {
		b.Run(fmt.Sprintf("callers=%d/partitions=%d/batch=%d", c.callers, c.partitions, c.batch), func(b *testing.B) {
			s := pgtest.Open(b, pgtest.Database(b))
			books := pgtest.NewPartitions(b, s, c.partitions)
			var next atomic.Int64
			var wg sync.WaitGroup
			b.ResetTimer()
			for caller := range c.callers {
				wg.Go(func() {
					for next.Add(int64(c.batch)) <= int64(b.N)+int64(c.batch)-1 {
						if _, err := s.Appender.Append(context.Background(), pgtest.Invoice(books[caller%len(books)], c.batch)); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

// BenchmarkRawInsert measures the upper bound: multi-row inserts into identical tables on one
// connection, without checks and hashes. For comparison it measures a transaction for each
// event from 64 connections, with the head lock and without any lock.
func BenchmarkRawInsert(b *testing.B) {
	for _, c := range []struct {
		connections, rows int
		locked            bool
	}{{1, 100, false}, {64, 1, true}, {64, 1, false}} {
		b.Run(fmt.Sprintf("connections=%d/rows=%d/locked=%v", c.connections, c.rows, c.locked), func(b *testing.B) {
			dsn := pgtest.Database(b)
			books := pgtest.NewPartitions(b, pgtest.Open(b, dsn), 1)
			var sequence atomic.Int64
			conns := make([]*pgx.Conn, c.connections)
			for i := range conns {
				conns[i] = pgtest.Connect(b, dsn)
			}
			var wg sync.WaitGroup
			b.ResetTimer()
			for _, conn := range conns {
				wg.Go(func() {
					for {
						first := sequence.Add(int64(c.rows)) - int64(c.rows) + 1
						if first > int64(b.N) {
							return
						}
						if err := rawInsert(conn, books[0], first, c.rows, c.locked); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

func rawInsert(conn *pgx.Conn, p event.PartitionID, first int64, rows int, locked bool) error {
	var batch pgx.Batch
	batch.Queue("begin")
	if locked {
		batch.Queue("SELECT FROM backbone.partition_heads WHERE partition_id = $1 FOR NO KEY UPDATE", int32(p))
		batch.Queue("SELECT sequence FROM backbone.events WHERE partition_id = $1 ORDER BY sequence DESC LIMIT 1", int32(p)).QueryRow(func(row pgx.Row) error {
			err := row.Scan(&first)
			first++
			if errors.Is(err, pgx.ErrNoRows) {
				first, err = 1, nil
			}
			return err
		})
		if err := conn.SendBatch(context.Background(), &batch).Close(); err != nil {
			return err
		}
		batch = pgx.Batch{}
	}
	events := rawTable{name: `backbone.events (partition_id, sequence, id, type, schema_version, occurred_at, recorded_at, effective_date,
		tenant_id, legal_entity, actor_type, actor_id, actor_name, intent_id, correlation_id, stream_type, stream_id, stream_version,
		source_system, source_channel, payload_hash, checksum)`}
	payloads := rawTable{name: "backbone.event_payloads (partition_id, sequence, salt, payload)"}
	keys := rawTable{name: "backbone.event_keys (partition_id, key, sequence, type_no)"}
	streams := rawTable{name: "backbone.stream_versions (partition_id, stream_type, stream_id, version, first_sequence, last_sequence)"}
	idempotency := rawTable{name: "backbone.idempotency_keys (partition_id, key, fingerprint, first_sequence, event_count, expires_at)"}
	for i := range rows {
		n := first + int64(i)
		r := pgtest.Invoice(p, 1)
		e := &r.Events[0]
		now := time.Now()
		id := pgtype.UUID{Bytes: e.ID, Valid: true}
		events.add(int32(p), n, id, e.Type, int32(1), now, now, now, "demo", "USMF", "human", "u-17", "ap_clerk", id, e.CorrelationID,
			"invoice", e.Stream.ID, int64(1), "erp", "api", e.PayloadHash[:], e.PayloadHash[:])
		payloads.add(int32(p), n, e.Salt[:], string(e.Payload))
		for _, k := range e.Keys {
			keys.add(int32(p), k, n, int32(1))
		}
		streams.add(int32(p), "invoice", e.Stream.ID, int64(1), n, n)
		idempotency.add(int32(p), r.Idempotency.Key, e.PayloadHash[:], n, int32(1), now)
	}
	for _, t := range []*rawTable{&events, &payloads, &keys, &streams, &idempotency} {
		batch.Queue("INSERT INTO "+t.name+" VALUES "+t.values.String(), t.args...)
	}
	batch.Queue("commit")
	return conn.SendBatch(context.Background(), &batch).Close()
}

type rawTable struct {
	name   string
	values strings.Builder
	args   []any
}

func (t *rawTable) add(args ...any) {
	if len(t.args) > 0 {
		t.values.WriteString(", ")
	}
	for i := range args {
		separator := ","
		if i == 0 {
			separator = "("
		}
		fmt.Fprintf(&t.values, "%s$%d", separator, len(t.args)+i+1)
	}
	t.values.WriteString(")")
	t.args = append(t.args, args...)
}
