//go:build bench

package bench

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/embeddedpg"
	"github.com/erpbackbone/backbone/adapters/postgres"
	"github.com/erpbackbone/backbone/adapters/postgres/migrate"
	"github.com/erpbackbone/backbone/adapters/system"
	"github.com/erpbackbone/backbone/application/live"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/projections"
	"github.com/erpbackbone/backbone/application/query"
	"github.com/erpbackbone/backbone/application/subscriptions"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/conformance"
	"github.com/erpbackbone/backbone/test/testkit"
)

// Section delivery: make bench TESTFLAGS='-run TestReport/delivery'. How long events
// take from the call of the append to a waiting reader, at a steady 1,000
// events/s over 4 legal entities: a live feed (in this process, without rendering and
// network) and a projection's handler (inside its transaction), woken by NOTIFY and,
// with NOTIFY blocked, by the poll of 500 ms alone; and what 50 feeds of all events cost
// appends. The compared variants take turns.
const (
	deliveryRate     = 1000 // events/s
	deliveryCallers  = 32
	deliveryEntities = 4
	manyFeeds        = 50
)

// arrivalTimes records when events were appended and when they arrived.
type arrivalTimes struct {
	mu        sync.Mutex
	begun     map[event.ID]time.Time
	latencies []time.Duration
}

func (a *arrivalTimes) sent(id event.ID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.begun[id] = time.Now()
}

func (a *arrivalTimes) received(events []event.Recorded) {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range events {
		if began, ok := a.begun[events[i].ID]; ok {
			a.latencies = append(a.latencies, now.Sub(began))
			delete(a.begun, events[i].ID)
		}
	}
}

func (a *arrivalTimes) missing() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.begun)
}

func (a *arrivalTimes) arrived() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.latencies)
}

func (a *arrivalTimes) reset() {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.begun)
	a.latencies = nil
}

// Events implements live.Sink.
func (a *arrivalTimes) Events(_ context.Context, events []event.Recorded, _ []string) error {
	a.received(events)
	return nil
}

// CaughtUp implements live.Sink.
func (*arrivalTimes) CaughtUp(context.Context, string) error { return nil }

// Heartbeat implements live.Sink.
func (*arrivalTimes) Heartbeat(context.Context, string) error { return nil }

// Apply implements ports.ProjectionHandler.
func (a *arrivalTimes) Apply(_ context.Context, _ ports.ProjectionTx, b ports.ProjectionBatch) error {
	a.received(b.Events)
	return nil
}

// deliveryFixture is a node that delivers.
type deliveryFixture struct {
	t      *testing.T
	engine *engine
}

// measureDelivery appends at the steady rate for the period while receive runs, waits until
// all events have arrived, and returns the latencies of arrival and of the appends. Without a
// receiver it does not wait.
func (p *deliveryFixture) measureDelivery(period time.Duration, listen bool, receive func(ctx context.Context, w *subscriptions.HeadWatcher, a *arrivalTimes)) (arrived, appended sample) {
	t, e := p.t, p.engine
	t.Helper()
	watch := subscriptions.HeadWatcherConfig{Heads: e.store.Events, Clock: system.Clock{}, Poll: 500 * time.Millisecond}
	if listen {
		watch.WakeUps = e.store.Events
	}
	w := testkit.Must(subscriptions.NewHeadWatcher(watch))
	a := &arrivalTimes{begun: map[event.ID]time.Time{}}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { w.Run(ctx) })
	if receive != nil {
		running.Go(func() { receive(ctx, w, a) })
	}
	pace := tokens(ctx, &running)
	// Receivers that begin at the end of the log are ready when a first event has arrived.
	require.Eventually(t, func() bool {
		first := e.invoices.request(e.entities[0], 1)
		a.sent(first.Events[0].ID)
		_, err := e.store.Appender.Append(ctx, first)
		return err == nil && (receive == nil || a.arrived() > 0)
	}, time.Minute, 20*time.Millisecond)
	a.reset()

	var mu sync.Mutex
	var latencies []time.Duration
	appended = drive(t, deliveryCallers, period, func(ctx context.Context, caller int) (int, error) {
		select {
		case <-pace:
		case <-time.After(10 * time.Millisecond):
			return 0, nil
		}
		r := e.invoices.request(e.entities[caller%deliveryEntities], 1)
		a.sent(r.Events[0].ID)
		before := time.Now()
		_, err := e.store.Appender.Append(ctx, r)
		mu.Lock()
		latencies = append(latencies, time.Since(before))
		mu.Unlock()
		return 1, err
	})
	require.Eventually(t, func() bool { return receive == nil || a.missing() == 0 }, time.Minute, time.Millisecond, "events did not arrive")
	cancel()
	running.Wait()
	slices.Sort(latencies)
	slices.Sort(a.latencies)
	appended.latencies = latencies
	if receive == nil {
		return appended, appended
	}
	return sample{count: len(a.latencies), elapsed: appended.elapsed, latencies: a.latencies}, appended
}

// tokens sends deliveryRate tokens a second until ctx ends. It counts by the clock, so that it
// makes up for a slow tick.
func tokens(ctx context.Context, running *sync.WaitGroup) <-chan struct{} {
	pace := make(chan struct{}, deliveryRate)
	running.Go(func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		started, given := time.Now(), 0
		for {
			select {
			case <-ctx.Done():
				return
			case now := <-tick.C:
				for due := int(now.Sub(started) * deliveryRate / time.Second); given < due; given++ {
					select {
					case pace <- struct{}{}:
					default:
					}
				}
			}
		}
	})
	return pace
}

// feeds follows all events with n feeds; the arrivals at the first one count.
func (p *deliveryFixture) feeds(n int) func(context.Context, *subscriptions.HeadWatcher, *arrivalTimes) {
	return func(ctx context.Context, w *subscriptions.HeadWatcher, a *arrivalTimes) {
		reads := query.New(query.Config{Log: p.engine.store.Events, Directory: legalEntityStub{p.engine.store}, Cursors: query.NewCursorSealer([]byte("bench")), Clock: system.Clock{}})
		feeds := query.NewFeeds(reads, p.engine.store.Events, nil)
		service := testkit.Must(live.New(live.Config{Heads: w, Clock: system.Clock{}, Limits: live.Limits{Heartbeat: 15 * time.Second, AccessCheckInterval: time.Minute, PerPrincipal: 20, PerNode: 1000}}))
		var running sync.WaitGroup
		for i := range n {
			sink := live.Sink(a)
			if i > 0 {
				sink = &arrivalTimes{begun: map[event.ID]time.Time{}}
			}
			running.Go(func() {
				source, err := feeds.All(query.AllQuery{TenantID: "bench", From: query.FromNow})
				if err == nil {
					err = service.Run(ctx, live.Feed{Transport: "bench", Source: source, Sink: sink, Batch: 100})
				}
				if ctx.Err() == nil {
					p.t.Errorf("a feed ended: %v", err)
				}
			})
		}
		running.Wait()
	}
}

// legalEntityStub lists the legal entities of the store; feeds read no single one.
type legalEntityStub struct{ store *postgres.Database }

// LegalEntities implements query.Directory.
func (s legalEntityStub) LegalEntities(ctx context.Context, tenantID string) ([]ports.LegalEntity, error) {
	return s.store.Directory.LegalEntities(ctx, tenantID)
}

// Partitions implements query.Directory.
func (s legalEntityStub) Partitions(ctx context.Context, tenantID string) ([]ports.LegalEntity, error) {
	return s.LegalEntities(ctx, tenantID)
}

// LegalEntity implements query.Directory.
func (legalEntityStub) LegalEntity(context.Context, string, string) (ports.LegalEntity, error) {
	return ports.LegalEntity{}, fmt.Errorf("not asked")
}

// projection runs a projection under leases, as a node does.
func (p *deliveryFixture) projection(name string) func(context.Context, *subscriptions.HeadWatcher, *arrivalTimes) {
	return func(ctx context.Context, w *subscriptions.HeadWatcher, a *arrivalTimes) {
		runner, err := projections.New(projections.Config{
			Store: p.engine.store.Projections, Log: p.engine.store.Events, Register: p.engine.store.ProjectionVersions, Leases: p.engine.store.Leases, Heads: w, Node: "bench", Clock: system.Clock{},
			Limits: conformance.ProjectorLimits(func(l *projections.Limits) { l.Refresh = time.Second }),
		}, []module.Projection{{Name: name, Version: 1}}, map[string]ports.ProjectionHandler{name: a})
		if err != nil {
			p.t.Error(err)
			return
		}
		runner.Run(ctx)
	}
}

// reportDelivery measures how fast events reach waiting readers.
func reportDelivery(t *testing.T, o options, cluster *embeddedpg.Cluster, figures *table) {
	dsn := newDatabase(t, cluster, "delivery", func(ctx context.Context, dsn string) error { return migrate.Run(ctx, dsn, nil) })
	p := &deliveryFixture{t: t, engine: openEngine(t, dsn, deliveryEntities)}
	execute(t, dsn, "CHECKPOINT")

	appends := map[string]*variant{}
	compared := func(name string, listen bool, receive func(context.Context, *subscriptions.HeadWatcher, *arrivalTimes)) *variant {
		costs := &variant{name: name}
		appends[name] = costs
		return &variant{name: name, measure: func(period time.Duration) sample {
			arrived, appended := p.measureDelivery(period, listen, receive)
			costs.samples = append(costs.samples, appended)
			return arrived
		}}
	}
	none := compared("no reader", true, nil)
	feed := compared("a live feed, by NOTIFY", true, p.feeds(1))
	polled := compared("a live feed, NOTIFY blocked", false, p.feeds(1))
	handler := compared("a projection's handler, by NOTIFY", true, p.projection("bench_notified"))
	polledHandler := compared("a projection's handler, NOTIFY blocked", false, p.projection("bench_polled"))
	many := compared(fmt.Sprintf("%d live feeds", manyFeeds), true, p.feeds(manyFeeds))
	statements := newStatistics(t, cluster, o)
	o.profiled(t, "delivery", func() { takeTurns(t, o, statements, none, feed, polled, handler, polledHandler, many) })

	for _, v := range []struct {
		*variant
		limit time.Duration
	}{{feed, 25 * time.Millisecond}, {polled, 600 * time.Millisecond}, {handler, 25 * time.Millisecond}, {polledHandler, 600 * time.Millisecond}, {many, 0}} {
		latencies := v.latencies()
		figures.addText("Append to "+v.name+fmt.Sprintf(", at %s", perSecond(v.rate(), "events")), "p50 %s", latency(quantile(latencies, 0.5)))
		if v.limit > 0 {
			figures.addLimit("   latency p99", quantile(latencies, 0.99), v.limit)
		} else {
			figures.addText("   latency p99", "%s", latency(quantile(latencies, 0.99)))
		}
	}
	alone, crowded := appends[none.name].latencies(), appends[many.name].latencies()
	added := quantile(crowded, 0.99) - quantile(alone, 0.99)
	figures.addText(fmt.Sprintf("Append latency without and with %d live feeds, p99", manyFeeds), "%s, %s", latency(quantile(alone, 0.99)), latency(quantile(crowded, 0.99)))
	figures.addLimit("   added by subscribers", max(added, 0), 10*time.Millisecond)
}
