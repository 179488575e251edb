//go:build bench

package bench

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

// rawBatch is how many rows the multi-row inserts of the ceiling have.
const rawBatch = 100

// baseline writes the rows of events without the engine, into tables that are
// made like the engine's, with all their indexes and constraints.
type baseline struct {
	dsn      string
	entity   ports.LegalEntity
	invoices *invoices
	sequence atomic.Int64
	ceiling  *pgconn.PgConn
	singles  []*pgconn.PgConn
}

// newBaseline makes the tables and the connections.
func newBaseline(t *testing.T, superuserDSN string, le ports.LegalEntity, v *invoices, connections int) *baseline {
	t.Helper()
	statements := []string{"CREATE SCHEMA bench", "CREATE TABLE bench.partition_heads (LIKE backbone.partition_heads INCLUDING ALL)",
		fmt.Sprintf("INSERT INTO bench.partition_heads SELECT * FROM backbone.partition_heads WHERE partition_id = %d", le.Partition)}
	for _, table := range rawTables {
		statements = append(statements, fmt.Sprintf("CREATE TABLE bench.%[1]s (LIKE backbone.%[1]s INCLUDING ALL)", table.name))
	}
	execute(t, superuserDSN, statements...)
	b := &baseline{dsn: superuserDSN, entity: le, invoices: v}
	b.ceiling = b.connect(t)
	for i, table := range rawTables {
		_, err := b.ceiling.Prepare(t.Context(), batchTable(i), table.insertMany(), nil)
		require.NoError(t, err)
	}
	for range connections {
		conn := b.connect(t)
		for name, sql := range b.singleStatements() {
			_, err := conn.Prepare(t.Context(), name, sql, nil)
			require.NoError(t, err, sql)
		}
		b.singles = append(b.singles, conn)
	}
	return b
}

func (b *baseline) connect(t *testing.T) *pgconn.PgConn {
	t.Helper()
	conn, err := pgconn.Connect(t.Context(), b.dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) }) // nothing is lost with it
	return conn
}

func batchTable(table int) string  { return fmt.Sprintf("many_%d", table) }
func singleTable(table int) string { return fmt.Sprintf("one_%d", table) }

// keysPerInvoice is how many key rows an invoice has.
const keysPerInvoice = 4

func (b *baseline) singleStatements() map[string]string {
	out := map[string]string{
		"begin": "BEGIN", "commit": "COMMIT",
		"lock": "SELECT genesis FROM bench.partition_heads WHERE partition_id = $1::int4 FOR NO KEY UPDATE",
		"last": "SELECT sequence, checksum FROM bench.events WHERE partition_id = $1::int4 ORDER BY sequence DESC LIMIT 1",
	}
	for i, table := range rawTables {
		rows := 1
		if table.name == "event_keys" {
			rows = keysPerInvoice
		}
		out[singleTable(i)] = table.insertOne(rows)
	}
	return out
}

// next prepares an invoice and its idempotency key.
func (b *baseline) next() (event.Prepared, *ports.IdempotencyClaim) {
	now := time.Now()
	e := b.invoices.prepare(b.entity, b.invoices.number.Add(1), now)
	e.RecordedAt = e.OccurredAt
	return e, claim(&e, now)
}

// measureCeiling writes transactions of multi-row inserts, one insert of 100 rows
// per table (400 for the keys), from one connection. The rows are made and
// encoded on another goroutine, ahead of time, so that the connection never waits
// for them.
func (b *baseline) measureCeiling(t *testing.T, period time.Duration) sample {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	batches := make(chan [][][]byte, 8)
	sequence := b.sequence.Load()
	go func() {
		for {
			select {
			case batches <- b.encodeBatch(&sequence):
			case <-ctx.Done():
				return
			}
		}
	}()
	s := drive(t, 1, period, func(ctx context.Context, _ int) (int, error) {
		arrays := <-batches
		var batch pgconn.Batch
		batch.ExecParams("BEGIN", nil, nil, nil, nil)
		for i, values := range arrays {
			batch.ExecPrepared(batchTable(i), values, binaryFormat, nil)
		}
		batch.ExecParams("COMMIT", nil, nil, nil, nil)
		return rawBatch, b.ceiling.ExecBatch(ctx, &batch).Close()
	})
	b.sequence.Add(int64(s.count))
	return s
}

// binaryFormat declares all parameters as binary.
var binaryFormat = []int16{1}

func (b *baseline) encodeBatch(sequence *int64) [][][]byte {
	rows := make([][][]any, len(rawTables))
	for range rawBatch {
		e, c := b.next()
		*sequence++
		e.Sequence = event.Sequence(*sequence)
		for i, r := range rawRows(&e, c) {
			rows[i] = append(rows[i], r...)
		}
	}
	out := make([][][]byte, len(rawTables))
	for i, table := range rawTables {
		for c, column := range table.columns {
			out[i] = append(out[i], column.appendArray(nil, rows[i], c))
		}
	}
	return out
}

// measureSingles writes one event per transaction from many connections, as a
// simple implementation does: lock the head, read the last event, insert, commit. It takes
// two round trips, as few as the engine: the number is known only under the lock.
func (b *baseline) measureSingles(t *testing.T, period time.Duration) sample {
	t.Helper()
	partition := [][]byte{appendValue(nil, int32(b.entity.Partition), false)}
	s := drive(t, len(b.singles), period, func(ctx context.Context, caller int) (int, error) {
		conn := b.singles[caller]
		e, c := b.next()
		var lock pgconn.Batch
		lock.ExecPrepared("begin", nil, nil, nil)
		lock.ExecPrepared("lock", partition, binaryFormat, nil)
		lock.ExecPrepared("last", partition, binaryFormat, binaryFormat)
		results, err := conn.ExecBatch(ctx, &lock).ReadAll()
		if err != nil {
			return 0, err
		}
		e.Sequence = 1
		if last := results[len(results)-1].Rows; len(last) == 1 {
			e.Sequence = event.Sequence(readInt8(last[0][0]) + 1)
		}
		var write pgconn.Batch
		for i, rows := range rawRows(&e, c) {
			var values [][]byte
			for _, row := range rows {
				for _, v := range row {
					values = append(values, appendValue(nil, v, false))
				}
			}
			write.ExecPrepared(singleTable(i), values, binaryFormat, nil)
		}
		write.ExecPrepared("commit", nil, nil, nil)
		return 1, conn.ExecBatch(ctx, &write).Close()
	})
	b.sequence.Add(int64(s.count))
	return s
}

func readInt8(b []byte) (n int64) {
	for _, c := range b {
		n = n<<8 | int64(c)
	}
	return n
}
