package projections_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/adapters/system"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/projections"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/conformance"
	"github.com/erpbackbone/backbone/test/testkit"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// countingHandler counts the events of each partition in a read model, and fails on the
// partitions it is told to.
type countingHandler struct {
	mu      sync.Mutex
	fails   map[event.PartitionID]error
	batches []int
	poison  map[event.ID]error
	seen    map[event.ID]int                                   // also of batches that were rolled back
	block   func(context.Context, ports.ProjectionBatch) error // before anything; set it before the start
}

func newCountingHandler() *countingHandler {
	return &countingHandler{fails: map[event.PartitionID]error{}, seen: map[event.ID]int{}, poison: map[event.ID]error{}}
}

func (c *countingHandler) Apply(ctx context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch) error {
	if c.block != nil {
		if err := c.block(ctx, b); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	t, err := memory.Bind(tx)
	if err != nil {
		return err
	}
	for _, e := range b.Events {
		c.seen[e.ID]++
		key := fmt.Sprint(e.Partition)
		n, _ := t.Get("counts", key)
		sum, _ := n.(int)
		t.Put("counts", key, sum+1)
	}
	c.batches = append(c.batches, len(b.Events))
	for _, e := range b.Events {
		if err := c.poison[e.ID]; err != nil {
			return err
		}
	}
	return c.fails[b.Partition] // after the writes: they must not stay
}

func (c *countingHandler) fail(p event.PartitionID, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fails[p] = err
}

func (c *countingHandler) attempts() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.batches)
}

// recordingObserver is an Observer.
type recordingObserver struct {
	mu       sync.Mutex
	failures map[event.PartitionID]int
	events   map[event.PartitionID]uint64
	seconds  map[event.PartitionID]float64
	lags     map[string]map[event.PartitionID][2]float64 // events and seconds by label
	leases   map[string]int
	letters  int
	left     int
}

func newRecordingObserver() *recordingObserver {
	return &recordingObserver{failures: map[event.PartitionID]int{}, events: map[event.PartitionID]uint64{}, seconds: map[event.PartitionID]float64{}, leases: map[string]int{}, lags: map[string]map[event.PartitionID][2]float64{}}
}

func (w *recordingObserver) ProjectionLag(label string, p event.PartitionID, events uint64, seconds float64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events[p], w.seconds[p] = events, seconds
	if w.lags[label] == nil {
		w.lags[label] = map[event.PartitionID][2]float64{}
	}
	w.lags[label][p] = [2]float64{float64(events), seconds}
}

func (w *recordingObserver) ProjectionAdvanced(string, int) {}

func (w *recordingObserver) ProjectionLeft(label string, p event.PartitionID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left++
	delete(w.lags[label], p)
}

// of is the lag that is shown of a label now.
func (w *recordingObserver) of(label string, p event.PartitionID) (l [2]float64, there bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l, there = w.lags[label][p]
	return l, there
}

func (w *recordingObserver) ProjectionDeadLetter(string, event.PartitionID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.letters++
}

func (w *recordingObserver) ProjectionLease(_, change string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leases[change]++
}

// isolated is how many events were put into the dead letters.
func (w *recordingObserver) isolated() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.letters
}

func (w *recordingObserver) changes(change string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.leases[change]
}

func (w *recordingObserver) ProjectionFailed(_ string, p event.PartitionID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failures[p]++
}

func (w *recordingObserver) lag(p event.PartitionID) (uint64, float64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.events[p], w.seconds[p]
}

func (w *recordingObserver) failed(p event.PartitionID) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failures[p]
}

// manualHeads are heads that are read from the store whenever they are asked for, and whose
// signal is given by hand.
type manualHeads struct {
	source ports.HeadReader
	clock  ports.Clock

	mu      sync.Mutex
	heads   map[event.PartitionID]ports.Head
	looked  time.Time
	changed chan struct{}
	stuck   bool
}

func newManualHeads(s *memory.Database, c ports.Clock) *manualHeads {
	return &manualHeads{source: s.Events, clock: c, changed: make(chan struct{})}
}

func (h *manualHeads) Heads() (map[event.PartitionID]ports.Head, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if heads, err := h.source.PartitionHeads(context.Background()); err == nil && !h.stuck {
		h.heads, h.looked = heads, h.clock.Now()
	}
	return h.heads, h.changed
}

func (h *manualHeads) LastRead() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.looked
}

func (h *manualHeads) signal() {
	h.mu.Lock()
	defer h.mu.Unlock()
	close(h.changed)
	h.changed = make(chan struct{})
}

// runnerFixture is a store with a runner on it.
type runnerFixture struct {
	store   *memory.Database
	clock   *testkit.Clock
	ids     *system.IDs
	counter *countingHandler
	watcher *recordingObserver
	logged  *logBuffer
	runner  *projections.Runner
	taps    *manualHeads
	stop    func()
}

const (
	name    = "till.balance"
	version = 3
)

var declared = []module.Projection{{Name: name, Version: version, EventTypes: []string{"till.cash.moved"}}}

// newFixture makes a fixture in simulated time.
func newFixture(t *testing.T, change func(*projections.Config)) *runnerFixture {
	t.Helper()
	g := &runnerFixture{clock: testkit.NewRunningClock(start), ids: system.NewIDs(), counter: newCountingHandler(), watcher: newRecordingObserver(), logged: &logBuffer{}}
	g.store = memory.New(memory.Config{LogName: "x", Clock: g.clock})
	g.taps = newManualHeads(g.store, g.clock)
	c := g.config()
	if change != nil {
		change(&c)
	}
	g.runner = g.node(t, c, g.counter)
	return g
}

func (g *runnerFixture) config() projections.Config {
	return projections.Config{
		Store: g.store.Projections, Log: g.store.Events, Register: g.store.ProjectionVersions, Versions: g.store.ProjectionVersions, Heads: g.taps, Clock: g.clock, Observer: g.watcher, Logger: slog.New(slog.NewTextHandler(g.logged, nil)),
		Limits: conformance.ProjectorLimits(func(l *projections.Limits) { l.Batch = 4 }),
	}
}

func (g *runnerFixture) node(t *testing.T, c projections.Config, h ports.ProjectionHandler) *projections.Runner {
	t.Helper()
	r, err := projections.New(c, declared, map[string]ports.ProjectionHandler{name: h})
	require.NoError(t, err)
	return r
}

func (g *runnerFixture) start(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); g.runner.Run(ctx) }()
	g.stop = func() { cancel(); <-done }
	t.Cleanup(g.stop)
}

func (g *runnerFixture) entity(t *testing.T, code string) event.PartitionID {
	t.Helper()
	le, err := g.store.Directory.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: "acme", Code: code})
	require.NoError(t, err)
	return le.Partition
}

func (g *runnerFixture) write(t *testing.T, p event.PartitionID, types ...string) {
	t.Helper()
	batch := make([]event.Prepared, len(types))
	for i, typ := range types {
		batch[i] = event.Prepared{Skeleton: event.Skeleton{ID: g.ids.NewID(start), Type: typ, Stream: event.StreamID{Type: "till", ID: "main"}}, Payload: []byte(`{}`)}
	}
	_, err := g.store.Appender.Append(t.Context(), ports.AppendRequest{Partition: p, Events: batch})
	require.NoError(t, err)
}

func moved(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = "till.cash.moved"
	}
	return out
}

func (g *runnerFixture) count(p event.PartitionID) int {
	v, _ := g.store.ReadModels.Row("counts", fmt.Sprint(p))
	n, _ := v.(int)
	return n
}

func (g *runnerFixture) reached(t *testing.T, p event.PartitionID) event.Sequence {
	t.Helper()
	n, _, err := g.runner.Position(t.Context(), name, version, p)
	require.NoError(t, err)
	return n
}

// settings makes the projection known with settings of the test's.
func (g *runnerFixture) settings(t *testing.T, change func(*projection.Settings)) {
	t.Helper()
	s := projection.DefaultSettings()
	change(&s)
	_, err := g.store.ProjectionVersions.AddProjection(t.Context(), projection.Projection{Name: name, Version: version, Status: projection.Running, Settings: s})
	require.NoError(t, err)
}

func (g *runnerFixture) checkpoint(t *testing.T, p event.PartitionID) ports.Checkpoint {
	t.Helper()
	all, err := g.store.Projections.Checkpoints(t.Context(), name, version)
	require.NoError(t, err)
	for _, c := range all {
		if c.Partition == p {
			return c
		}
	}
	return ports.Checkpoint{}
}

// pass lets simulated time pass, and waits until the nodes have done what was due by then.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// until wakes the runner, and a condition holds without a pause.
func (g *runnerFixture) until(t *testing.T, condition func() bool, what string) {
	t.Helper()
	g.round()
	require.True(t, condition(), what)
}

// round lets the loop go round.
func (g *runnerFixture) round() {
	g.runner.Wake()
	synctest.Wait()
}

// within lets at most a time pass until a condition holds.
func within(t *testing.T, most time.Duration, condition func() bool, what string) {
	t.Helper()
	synctest.Wait()
	for step := 100 * time.Millisecond; !condition(); most -= step {
		require.GreaterOrEqual(t, most, step, what)
		pass(step)
	}
}
