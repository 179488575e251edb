package projector_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/adapters/system"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/projector"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

const patience = 10 * time.Second

// counter counts the events of each partition in a read model, and fails on the
// partitions it is told to.
type counter struct {
	mu      sync.Mutex
	fails   map[event.PartitionID]error
	batches []int
	seen    map[event.ID]int // also of batches that were rolled back
}

func newCounter() *counter {
	return &counter{fails: map[event.PartitionID]error{}, seen: map[event.ID]int{}}
}

func (c *counter) Apply(_ context.Context, tx ports.ProjectionTx, events []event.Recorded) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	t, err := memory.Bind(tx)
	if err != nil {
		return err
	}
	for _, e := range events {
		c.seen[e.ID]++
		key := fmt.Sprint(e.Partition)
		n, _ := t.Get("counts", key)
		sum, _ := n.(int)
		t.Put("counts", key, sum+1)
	}
	c.batches = append(c.batches, len(events))
	return c.fails[events[0].Partition] // after the writes: they must not stay
}

func (c *counter) fail(p event.PartitionID, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fails[p] = err
}

func (c *counter) attempts() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.batches)
}

// watcher is an Observer.
type watcher struct {
	mu       sync.Mutex
	failures map[event.PartitionID]int
	events   map[event.PartitionID]uint64
	seconds  map[event.PartitionID]float64
}

func newWatcher() *watcher {
	return &watcher{failures: map[event.PartitionID]int{}, events: map[event.PartitionID]uint64{}, seconds: map[event.PartitionID]float64{}}
}

func (w *watcher) ProjectionLag(_ string, p event.PartitionID, events uint64, seconds float64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events[p], w.seconds[p] = events, seconds
}

func (w *watcher) ProjectionFailed(_ string, p event.PartitionID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failures[p]++
}

func (w *watcher) lag(p event.PartitionID) (uint64, float64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.events[p], w.seconds[p]
}

func (w *watcher) failed(p event.PartitionID) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failures[p]
}

// rig is a store with a runner on it.
type rig struct {
	store   *memory.Store
	clock   *testkit.Clock
	ids     *system.IDs
	counter *counter
	watcher *watcher
	logged  *bytes.Buffer // read it after stop
	runner  *projector.Runner
	stop    func()
}

const (
	name    = "till.balance"
	version = 3
)

var declared = []module.Projection{{Name: name, Version: version, EventTypes: []string{"till.cash.moved"}}}

// newRig makes a rig whose runner looks when it is woken, unless changed.
func newRig(t *testing.T, change func(*projector.Config)) *rig {
	t.Helper()
	g := &rig{clock: testkit.NewClock(start), ids: system.NewIDs(), counter: newCounter(), watcher: newWatcher(), logged: &bytes.Buffer{}}
	g.store = memory.New(memory.Config{LogName: "x", Clock: g.clock})
	c := projector.Config{Store: g.store, Clock: g.clock, Observer: g.watcher, Poll: time.Hour, Batch: 4, Logger: slog.New(slog.NewTextHandler(g.logged, nil))}
	if change != nil {
		change(&c)
	}
	g.runner = g.node(t, c, g.counter)
	return g
}

func (g *rig) node(t *testing.T, c projector.Config, h ports.ProjectionHandler) *projector.Runner {
	t.Helper()
	r, err := projector.New(c, declared, map[string]ports.ProjectionHandler{name: h})
	require.NoError(t, err)
	return r
}

func (g *rig) start(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); g.runner.Run(ctx) }()
	g.stop = func() { cancel(); <-done }
	t.Cleanup(g.stop)
}

func (g *rig) entity(t *testing.T, code string) event.PartitionID {
	t.Helper()
	le, err := g.store.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: "acme", Code: code})
	require.NoError(t, err)
	return le.Partition
}

func (g *rig) write(t *testing.T, p event.PartitionID, types ...string) {
	t.Helper()
	batch := make([]event.Prepared, len(types))
	for i, typ := range types {
		batch[i] = event.Prepared{Skeleton: event.Skeleton{ID: g.ids.NewID(start), Type: typ, Stream: event.StreamID{Type: "till", ID: "main"}}, Payload: []byte(`{}`)}
	}
	_, err := g.store.Append(t.Context(), ports.AppendRequest{Partition: p, Events: batch})
	require.NoError(t, err)
}

func moved(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = "till.cash.moved"
	}
	return out
}

func (g *rig) count(p event.PartitionID) int {
	v, _ := g.store.Row("counts", fmt.Sprint(p))
	n, _ := v.(int)
	return n
}

func (g *rig) reached(t *testing.T, p event.PartitionID) event.Sequence {
	t.Helper()
	n, err := g.runner.Reached(t.Context(), name, p)
	require.NoError(t, err)
	return n
}

// until wakes the runner until a condition holds.
func (g *rig) until(t *testing.T, condition func() bool, what string) {
	t.Helper()
	testkit.Eventually(t, patience, func() bool { g.runner.Wake(); return condition() }, what)
}
