//go:build bench

package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/erpbackbone/backbone/adapters/embeddedpg"
	"github.com/erpbackbone/backbone/adapters/postgres/migrate"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

const (
	recentEvents = 1_000_000 // of a log, which are read more than the others
	onlineEvents = 2_000_000 // of a log that have payloads: those of the others are archived
)

// grownLog is a legal entity whose log is filled up to a size.
type grownLog struct {
	engine
	partition event.PartitionID
	size      int
}

// fillStatements insert the rows of events in order, as appends do, with all indexes: $1 partition, $2 the event whose
// shape they have, $3 and $4 the first and the last sequence. Hashes are copied: nothing here compares them.
var fillStatements = []string{
	`INSERT INTO backbone.events (sequence, partition_id, id, intent_id, stream_id, correlation_id, stream_version, occurred_at, recorded_at, schema_version, effective_date, type,
		tenant_id, legal_entity, actor_type, actor_id, actor_name, stream_type, tags, source_system, source_channel, rules_evaluated, payload_hash, checksum)
	SELECT n, partition_id, (lpad(to_hex(n), 16, '0') || left(md5(n::text), 16))::uuid, (lpad(to_hex(n), 16, '0') || right(md5(n::text), 16))::uuid, lpad(n::text, 26, '0'), lpad(n::text, 26, '0'),
		1, occurred_at, recorded_at, schema_version, effective_date, type,
		tenant_id, legal_entity, actor_type, actor_id, actor_name, stream_type, tags, source_system, source_channel, rules_evaluated, payload_hash, checksum
	FROM backbone.events, generate_series($3::bigint, $4::bigint) n WHERE partition_id = $1 AND sequence = $2`,

	`INSERT INTO backbone.event_keys (sequence, partition_id, type_no, key)
	SELECT n, partition_id, 1, unnest(ARRAY['entity:invoice:' || lpad(n::text, 26, '0'), 'entity:vendor:BENCH-V' || lpad((n % 50)::text, 2, '0')])
	FROM backbone.events, generate_series($3::bigint, $4::bigint) n WHERE partition_id = $1 AND sequence = $2`,

	`INSERT INTO backbone.stream_versions (version, first_sequence, last_sequence, partition_id, stream_type, stream_id)
	SELECT 1, n, n, partition_id, stream_type, lpad(n::text, 26, '0')
	FROM backbone.events, generate_series($3::bigint, $4::bigint) n WHERE partition_id = $1 AND sequence = $2`,
}

const fillPayloads = `INSERT INTO backbone.event_payloads (sequence, partition_id, salt, payload)
	SELECT n, partition_id, salt, payload
	FROM backbone.event_payloads, generate_series($3::bigint, $4::bigint) n WHERE partition_id = $1 AND sequence = $2`

// fill fills the log.
func (g *grownLog) fill(t *testing.T, dsn string) {
	t.Helper()
	const step = 200_000
	head, err := g.store.Events.Head(t.Context(), g.partition)
	require.NoError(t, err)
	started := time.Now()
	for after := int(head.Sequence); after < g.size; after += step {
		last := min(after+step, g.size)
		statements := fillStatements
		if after >= g.size-onlineEvents {
			statements = append(statements[:len(statements):len(statements)], fillPayloads)
		}
		var group errgroup.Group
		for _, statement := range statements {
			conn := connect(t, dsn)
			group.Go(func() error {
				_, err := conn.Exec(t.Context(), statement, int32(g.partition), int64(head.Sequence), int64(after+1), int64(last))
				_ = conn.Close(t.Context()) // nothing is lost with it
				return err
			})
		}
		require.NoError(t, group.Wait())
		if (last/step)%10 == 0 {
			printLine("%d of %d events filled in %s", last, g.size, time.Since(started).Round(time.Second))
		}
	}
}

// anyOf is a number of an event among the last ones.
func (g *grownLog) anyOf(last int) int64 { return int64(g.size - rand.IntN(min(last, g.size*9/10))) }

// stream reads the stream of a document.
func (g *grownLog) stream(ctx context.Context, document int64) ([]event.Recorded, error) {
	return g.store.Events.EventsOfStream(ctx, g.partition, event.StreamID{Type: "ap.invoice", ID: fmt.Sprintf("%026d", document)}, 1, 100)
}

// search searches the log.
func (g *grownLog) search(ctx context.Context, q ports.EventQuery) ([]event.Recorded, error) {
	q.Partition, q.Limit = g.partition, 100
	return g.store.Events.Events(ctx, q)
}

// variants are what is measured: appends and reads.
func (g *grownLog) variants(t *testing.T) []*variant {
	out := []*variant{
		{name: "appends, 64 callers", measure: g.measure(t, appendCallers, 1, 1)},
		{name: "batches of 100, 8 callers", measure: g.measure(t, batchCallers, batchEvents, 1)},
	}
	for _, r := range []struct {
		name string
		read func(ctx context.Context) ([]event.Recorded, error)
	}{
		{"streams of recent documents", func(ctx context.Context) ([]event.Recorded, error) { return g.stream(ctx, g.anyOf(recentEvents)) }},
		{"events of recent documents", func(ctx context.Context) ([]event.Recorded, error) {
			return g.search(ctx, ports.EventQuery{Key: event.EntityKey("invoice", fmt.Sprintf("%026d", g.anyOf(recentEvents)))})
		}},
		{"last 100 events of a vendor", func(ctx context.Context) ([]event.Recorded, error) {
			return g.search(ctx, ports.EventQuery{Key: event.EntityKey("vendor", vendorID(g.anyOf(g.size))), Direction: ports.Backward})
		}},
		{"pages of 100 recent events", func(ctx context.Context) ([]event.Recorded, error) {
			return g.search(ctx, ports.EventQuery{After: event.Sequence(g.anyOf(recentEvents) - 100)})
		}},
		{anyDocument, func(ctx context.Context) ([]event.Recorded, error) { return g.stream(ctx, g.anyOf(g.size)) }},
	} {
		out = append(out, &variant{name: r.name, measure: func(d time.Duration) sample {
			return drive(t, 2, d, func(ctx context.Context, _ int) (int, error) {
				found, err := r.read(ctx)
				if err == nil && len(found) == 0 {
					err = fmt.Errorf("%s: nothing was found", r.name)
				}
				return len(found), err
			})
		}})
	}
	for _, v := range out {
		v.name = fmt.Sprintf("%s, log of %d", v.name, g.size)
	}
	return out
}

// anyDocument has no target: a log that does not fit into memory is read from the disk.
const anyDocument = "streams of any documents"

// goalFrom is the size from which the large log has targets, relative to one of a million events. A smaller small log lies in
// PostgreSQL's own buffers, and shows what these save.
const goalFrom = 10_000_000

// reportGrowth compares a large log with one of at most a million events, in the same database. The tables of a legal
// entity are not divided further (docs/adr/0083-one-table-per-legal-entity.md).
func reportGrowth(t *testing.T, o options, cluster *embeddedpg.Cluster, figures *table) {
	dsn := newDatabase(t, cluster, "growth", func(ctx context.Context, dsn string) error { return migrate.Run(ctx, dsn, nil) })
	e := openEngine(t, dsn, 2)
	e.measure(t, 2, 1, 2)(time.Millisecond) // each log has an event whose shape the others have
	var variants [2][]*variant
	for i, size := range []int{min(1_000_000, o.growth/10), o.growth} {
		g := &grownLog{engine: engine{store: e.store, entities: e.entities[i : i+1], invoices: e.invoices}, partition: e.entities[i].Partition, size: size}
		g.fill(t, dsn)
		variants[i] = g.variants(t)
	}
	execute(t, dsn, "VACUUM ANALYZE", "CHECKPOINT")
	for k, small := range variants[0] {
		large := variants[1][k]
		takeTurns(t, o, nil, small, large)
		if o.growth < goalFrom || strings.HasPrefix(large.name, anyDocument) {
			figures.addComparison(large.name, large.rate(), large.ratio(small), "the small log")
			continue
		}
		figures.addRate(large.name, large.rate(), large.ratio(small), "the small log", 0.9)
	}
}
