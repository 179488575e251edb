//go:build bench

package bench

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/system"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/projections"
	"github.com/erpbackbone/backbone/application/upcasting"
	"github.com/erpbackbone/backbone/configs"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/modules/ap"
	appostgres "github.com/erpbackbone/backbone/modules/ap/adapters/postgres"
	"github.com/erpbackbone/backbone/modules/gl"
	glpostgres "github.com/erpbackbone/backbone/modules/gl/adapters/postgres"
	"github.com/erpbackbone/backbone/ports"
)

// manyProjections is how many projections catch up concurrently.
const manyProjections = 8

// fixedHeads are the heads of partitions that do not grow.
type fixedHeads map[event.PartitionID]ports.Head

// Heads implements projector.Heads.
func (h fixedHeads) Heads() (map[event.PartitionID]ports.Head, <-chan struct{}) { return h, nil }

// LastRead implements projector.Heads.
func (fixedHeads) LastRead() time.Time { return time.Now() }

func headsOf(partitions ...partition) (h fixedHeads, events int) {
	h = fixedHeads{}
	for _, p := range partitions {
		h[p.Partition] = ports.Head{Sequence: event.Sequence(p.events)}
		events += p.events
	}
	return h, events
}

// progress counts the events that projections pass.
type progress struct {
	mu     sync.Mutex
	left   int
	failed bool
	done   chan struct{} // closed when nothing is left
}

func (p *progress) ProjectionAdvanced(_ string, events int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left -= events; p.left == 0 {
		close(p.done)
	}
}

func (p *progress) ProjectionFailed(string, event.PartitionID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed = true
}

func (*progress) ProjectionLag(string, event.PartitionID, uint64, float64) {}
func (*progress) ProjectionLeft(string, event.PartitionID)                 {}
func (*progress) ProjectionDeadLetter(string, event.PartitionID)           {}
func (*progress) ProjectionLease(string, string)                           {}

// noopHandler is a handler that does nothing.
type noopHandler struct{}

// Apply implements ports.ProjectionHandler.
func (noopHandler) Apply(context.Context, ports.ProjectionTx, ports.ProjectionBatch) error {
	return nil
}

// catchUpFixture measures projections that read the books from their beginning.
type catchUpFixture struct {
	*books
	t    *testing.T
	made int
}

// variant lets projections catch up with the partitions repeatedly until the period is over:
// each time under new names, under leases, with the settings of a node and with empty read
// models. Emptying them does not count.
func (c *catchUpFixture) variant(name string, h ports.ProjectionHandler, types []string, count int, partitions ...partition) *variant {
	return &variant{name: name, measure: func(period time.Duration) (s sample) {
		for s.elapsed < period {
			execute(c.t, c.dsn, "TRUNCATE gl.close_steps, gl.journals, gl.journal_lines, gl.journal_reversals, gl.accounts, gl.ledgers, ap.documents, ap.document_entries, ap.document_holds, ap.document_steps, ap.document_states, ap.tax_settings, ap.tax_lines, ap.ledgers")
			one := c.catchUp(name, h, types, count, partitions)
			s.count += one.count
			s.elapsed += one.elapsed
		}
		return s
	}}
}

func (c *catchUpFixture) catchUp(name string, h ports.ProjectionHandler, types []string, count int, partitions []partition) sample {
	t, app := c.t, c.server.App
	t.Helper()
	heads, events := headsOf(partitions...)
	observed := &progress{left: events * count, done: make(chan struct{})}
	var declared []module.Projection
	handlers := map[string]ports.ProjectionHandler{}
	for range count {
		c.made++
		p := module.Projection{Name: fmt.Sprintf("bench.catch-up-%d", c.made), Version: c.made, EventTypes: types}
		declared, handlers[p.Name] = append(declared, p), upcasting.UpcastProjection(h, app.Upcaster)
	}
	settings := configs.Default().Projector
	runner, err := projections.New(projections.Config{
		Store: app.Store.Projections, Log: app.Store.Events, Register: app.Store.ProjectionVersions, Versions: app.Store.ProjectionVersions, Leases: app.Store.Leases, Heads: heads, Node: "bench", Clock: system.Clock{},
		Observer: observed, Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
		Limits: projections.Limits{Batch: settings.Batch, Bytes: settings.Bytes, Workers: settings.Workers, Refresh: settings.Poll, TTL: settings.TTL, Renew: settings.Renew, Stall: settings.Stall},
	}, declared, handlers)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	started := time.Now()
	running.Go(func() { runner.Run(ctx) })
	over := time.NewTimer(2 * time.Minute)
	defer over.Stop()
	select {
	case <-observed.done:
	case <-over.C:
		t.Errorf("%s: it did not catch up", name)
	}
	s := sample{count: events * count, elapsed: time.Since(started)}
	stop()
	running.Wait()
	require.False(t, observed.failed, "an attempt failed, so the figure is worthless")
	return s
}

// reading reads a partition page by page as a projection does, without a handler.
func (c *catchUpFixture) reading(name string, page int, p partition) *variant {
	return &variant{name: name, measure: func(period time.Duration) sample {
		after := 0
		return drive(c.t, 1, period, func(ctx context.Context, _ int) (int, error) {
			got, err := c.server.App.Store.Audit.ChainPage(ctx, p.Partition, event.Sequence(after), min(page, p.events-after))
			if after += len(got); after == p.events {
				after = 0
			}
			return len(got), err
		})
	}}
}

// typesOf are the event types that a projection reads.
func (b *books) typesOf(t *testing.T, name string) []string {
	t.Helper()
	for _, p := range b.server.App.Catalog.Projections {
		if p.Name == name {
			return p.EventTypes
		}
	}
	require.Fail(t, "no projection "+name)
	return nil
}

// countOf is how many events of the first legal entity are of some types.
func (b *books) countOf(t *testing.T, types []string) (n int) {
	t.Helper()
	require.NoError(t, connect(t, b.dsn).QueryRow(t.Context(), "SELECT count(*) FROM backbone.events WHERE partition_id = $1 AND sequence <= $2 AND type = ANY ($3)",
		int32(b.whole.Partition), b.whole.events, types).Scan(&n))
	return n
}

// reportProjections measures how fast projections catch up with an existing log: those of the
// modules on the events of business transactions, and one with a handler that does nothing.
func reportProjections(t *testing.T, o options, s *bookFixtures, figures *table) {
	c := &catchUpFixture{books: s.books(t), t: t}
	batch := configs.Default().Projector.Batch
	ledger, openItems := glpostgres.NewProjection(), appostgres.NewProjection()
	ledgerTypes, openItemsTypes := c.typesOf(t, gl.ProjectionLedger), c.typesOf(t, ap.OpenItems)
	reading := c.reading("reading alone", batch, c.whole)
	empty := c.variant("catch-up, an empty handler", noopHandler{}, nil, 1, c.whole)
	one := c.variant("catch-up, gl.ledger", ledger, ledgerTypes, 1, c.whole)
	other := c.variant("catch-up, ap.open-items", openItems, openItemsTypes, 1, c.whole)
	spread := c.variant("catch-up, gl.ledger, 8 partitions", ledger, ledgerTypes, 1, c.parts...)
	eight := c.variant("catch-up, 8 projections", ledger, ledgerTypes, manyProjections, c.parts[booksCopies-1])
	statements := newStatistics(t, s.cluster, o)
	o.period /= 2
	o.profiled(t, "projections", func() { takeTurns(t, o, statements, reading, empty, one, other, spread, eight) })

	figures.addText(fmt.Sprintf("Reading %d events of business transactions, %d at a time", c.whole.events, batch), "%s", perSecond(reading.rate(), "events"))
	figures.addComparison("Projection catch-up: a handler that does nothing, 1 partition", empty.rate(), empty.ratio(reading), "reading")
	figures.addComparison("Projection catch-up: gl.ledger, 1 partition", one.rate(), one.ratio(reading), "reading")
	figures.addText("   events that it reads of these", "%d of %d", c.countOf(t, ledgerTypes), c.whole.events)
	figures.addComparison("Projection catch-up: ap.open-items, 1 partition", other.rate(), other.ratio(reading), "reading")
	figures.addText("   events that it reads of these", "%d of %d", c.countOf(t, openItemsTypes), c.whole.events)
	figures.addComparison(fmt.Sprintf("Projection catch-up: gl.ledger, %d partitions", booksCopies), spread.rate(), spread.ratio(one), "1 partition")
	figures.addComparison(fmt.Sprintf("Projection catch-up: %d projections like gl.ledger, together", manyProjections), eight.rate(), eight.ratio(one), "one")
}
