//go:build bench

package bench

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/embeddedpg"
	"github.com/erpbackbone/backbone/adapters/postgres"
	"github.com/erpbackbone/backbone/adapters/postgres/migrate"
	"github.com/erpbackbone/backbone/cmd/wire"
	"github.com/erpbackbone/backbone/configs"
	"github.com/erpbackbone/backbone/ports"
)

const (
	appendCallers = 64
	batchCallers  = 8
	batchEvents   = 100
)

// engine is the append engine on a new database.
type engine struct {
	store    *postgres.Database
	entities []ports.LegalEntity
	invoices *invoices
}

func openEngine(t *testing.T, superuserDSN string, entities int) *engine {
	t.Helper()
	config := configs.Default()
	config.Database.DSN, config.Database.Appenders = configs.DSN(asApp(t, superuserDSN)), max(2, runtime.GOMAXPROCS(0))
	store, err := wire.OpenStore(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(store.Close)
	now := time.Now()
	require.NoError(t, store.Directory.Bootstrap(t.Context(), ports.Installation{LogName: logName, CreatedAt: now}))
	e := &engine{store: store, invoices: newInvoices(1)}
	for i := range entities {
		le, err := store.Directory.CreateLegalEntity(t.Context(), ports.LegalEntity{
			TenantID: "bench", Code: fmt.Sprintf("B%03d", i+1), Name: "Bench", TimeZone: "UTC", Status: "active", CreatedAt: now,
		})
		require.NoError(t, err)
		e.entities = append(e.entities, le)
	}
	return e
}

// measure appends requests of the given number of events to the first partitions in turn.
func (e *engine) measure(t *testing.T, callers, events, partitions int) func(time.Duration) sample {
	return func(period time.Duration) sample {
		return drive(t, callers, period, func(ctx context.Context, caller int) (int, error) {
			_, err := e.store.Appender.Append(ctx, e.invoices.request(e.entities[caller%partitions], events))
			return events, err
		})
	}
}

// reportAppend measures the append engine against the ceiling, against one
// transaction per event, and over several partitions.
func reportAppend(t *testing.T, o options, cluster *embeddedpg.Cluster, figures *table) {
	dsn := newDatabase(t, cluster, "append", func(ctx context.Context, dsn string) error { return migrate.Run(ctx, dsn, nil) })
	e := openEngine(t, dsn, 32)
	raw := newBaseline(t, dsn, e.entities[0], e.invoices, appendCallers)
	execute(t, dsn, "CHECKPOINT")

	ceiling := &variant{name: "multi-row inserts of 100, 1 connection", measure: func(d time.Duration) sample { return raw.measureCeiling(t, d) }}
	single := &variant{name: "64 callers, 1 partition", measure: e.measure(t, appendCallers, 1, 1)}
	perEvent := &variant{name: "1 transaction per event, 64 connections", measure: func(d time.Duration) sample { return raw.measureSingles(t, d) }}
	spread16 := &variant{name: "64 callers, 16 partitions", measure: e.measure(t, appendCallers, 1, 16)}
	spread32 := &variant{name: "64 callers, 32 partitions", measure: e.measure(t, appendCallers, 1, 32)}
	batches := &variant{name: "batches of 100, 8 callers, 1 partition", measure: e.measure(t, batchCallers, batchEvents, 1)}
	statements := newStatistics(t, cluster, o)
	o.profiled(t, "append", func() { takeTurns(t, o, statements, ceiling, single, perEvent, spread16, spread32, batches) })

	figures.addText("Ceiling: "+ceiling.name, "%s", perSecond(ceiling.rate(), "events"))
	figures.addRate("Append: "+single.name, single.rate(), single.ratio(ceiling), "ceiling", 0.6)
	latencies := single.latencies()
	figures.addText("   latency p50, p99", "%s, %s", latency(quantile(latencies, 0.5)), latency(quantile(latencies, 0.99)))
	figures.addText("Without the engine: "+perEvent.name, "%s", perSecond(perEvent.rate(), "events"))
	ratio := single.ratio(perEvent)
	figures.add(figure{name: "   the engine's " + single.name, value: perSecond(single.rate(), "events"), ratio: fmt.Sprintf("%.2f times that", ratio), target: ">= 4.00", ok: ratio >= 4})
	figures.addRate("Append: "+spread16.name, spread16.rate(), spread16.ratio(single), "1 partition", 0.9)
	figures.addRate("Append: "+spread32.name, spread32.rate(), spread32.ratio(single), "1 partition", 0.9)
	figures.addRate("Append: "+batches.name, batches.rate(), batches.ratio(ceiling), "ceiling", 0.8)
}
