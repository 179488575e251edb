package live_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/adapters/system"
	"github.com/erpbackbone/backbone/application/live"
	"github.com/erpbackbone/backbone/application/query"
	"github.com/erpbackbone/backbone/application/subscriptions"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

const (
	tenant   = "acme"
	patience = time.Minute
)

// counted is a log whose reads are counted.
type counted struct {
	*memory.Store
	reads atomic.Int64
}

func (c *counted) Events(ctx context.Context, q ports.EventQuery) ([]event.Recorded, error) {
	c.reads.Add(1)
	return c.Store.Events(ctx, q)
}

func (c *counted) SearchEvents(ctx context.Context, q ports.EventQuery, scan int) (ports.EventScan, error) {
	c.reads.Add(1)
	return c.Store.SearchEvents(ctx, q, scan)
}

func (c *counted) ReadStream(ctx context.Context, q ports.StreamQuery) ([]event.Recorded, bool, error) {
	c.reads.Add(1)
	return c.Store.ReadStream(ctx, q)
}

func (c *counted) Head(ctx context.Context, p event.PartitionID) (ports.Head, error) {
	c.reads.Add(1)
	return c.Store.Head(ctx, p)
}

func (c *counted) PartitionHeads(ctx context.Context) (map[event.PartitionID]ports.Head, error) {
	c.reads.Add(1)
	return c.Store.PartitionHeads(ctx)
}

func (c *counted) LegalEntities(ctx context.Context, tenantID string) ([]ports.LegalEntity, error) {
	c.reads.Add(1)
	return c.Store.LegalEntities(ctx, tenantID)
}

func (c *counted) LegalEntity(context.Context, string, string) (ports.LegalEntity, error) {
	panic("not asked")
}

// bells ring when a test says so.
type bells struct {
	mu   sync.Mutex
	hung map[time.Duration][]chan time.Time
}

func (b *bells) alarm(d time.Duration) (<-chan time.Time, func()) {
	c := make(chan time.Time, 1)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.hung == nil {
		b.hung = map[time.Duration][]chan time.Time{}
	}
	b.hung[d] = append(b.hung[d], c)
	return c, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		for i, other := range b.hung[d] {
			if other == c {
				b.hung[d] = append(b.hung[d][:i], b.hung[d][i+1:]...)
				return
			}
		}
	}
}

// ring rings all bells of a duration and says how many there were.
func (b *bells) ring(d time.Duration) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := len(b.hung[d])
	for _, c := range b.hung[d] {
		c <- time.Now()
	}
	b.hung[d] = nil
	return n
}

// rig is a log that can be followed.
type rig struct {
	log   *counted
	feeds *query.Feeds
	live  *live.Service
	bells *bells
	ids   *system.IDs
}

func newRig(t *testing.T, change func(*live.Config)) *rig {
	t.Helper()
	r := &rig{log: &counted{Store: memory.New(memory.Config{LogName: "live.example.org"})}, bells: &bells{}, ids: system.NewIDs()}
	r.feeds = query.NewFeeds(query.New(r.log, r.log, r.log, query.NewCursors([]byte("key"))), r.log, system.Clock{})
	watch := subscriptions.NewWatch(subscriptions.WatchConfig{Heads: r.log.Store, WakeUps: r.log.Store, Clock: system.Clock{}, Poll: 20 * time.Millisecond, Rest: time.Millisecond})
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() { watch.Run(ctx) })
	t.Cleanup(func() { cancel(); done.Wait() })
	c := live.Config{Heads: watch, Clock: system.Clock{}, Alarm: r.bells.alarm}
	if change != nil {
		change(&c)
	}
	r.live = live.New(c)
	return r
}

func (r *rig) entity(t *testing.T, tenant, code string) ports.LegalEntity {
	t.Helper()
	le, err := r.log.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: tenant, Code: code, TimeZone: "UTC"})
	require.NoError(t, err)
	return le
}

// write appends n events of a type to a stream.
func (r *rig) write(le ports.LegalEntity, stream, eventType string, n int) error {
	request := ports.AppendRequest{Partition: le.Partition}
	for range n {
		now := time.Now()
		request.Events = append(request.Events, event.Prepared{
			Skeleton: event.Skeleton{
				Partition: le.Partition, ID: r.ids.NewID(now), Type: eventType, SchemaVersion: 1, OccurredAt: now, EffectiveDate: event.MustDate("2026-01-01"),
				Scope: event.Scope{TenantID: le.TenantID, LegalEntity: le.Code}, ActorType: event.Human, ActorID: "p-1", CorrelationID: "c",
				Stream: event.StreamID{Type: "till", ID: stream},
			},
			Payload: []byte(`{"data":{},"dimensions":{},"entity_refs":[]}`),
		})
	}
	_, err := r.log.Append(context.Background(), request)
	return err
}

func (r *rig) fill(t *testing.T, le ports.LegalEntity, n int) {
	t.Helper()
	for ; n > 0; n -= 100 {
		require.NoError(t, r.write(le, "main", "till.cash.moved", min(n, 100)))
	}
}

// reader is a sink that keeps what it is given.
type reader struct {
	mu       sync.Mutex
	events   []event.Recorded
	cursor   string // to go on with
	caughtUp int
	beats    int
	grown    chan struct{} // a token whenever something came
	leave    func(*reader) bool
	block    chan struct{} // Events waits for it, if there is one
	fail     error         // what Events answers
}

func newReader() *reader { return &reader{grown: make(chan struct{}, 1)} }

func (d *reader) tell() {
	select {
	case d.grown <- struct{}{}:
	default:
	}
}

// Events takes events one by one, and leaves in the middle of a page if it wants.
func (d *reader) Events(ctx context.Context, events []event.Recorded, cursors []string) error {
	if d.block != nil {
		select {
		case <-d.block:
		case <-ctx.Done():
			return live.ErrLeft
		}
	}
	if d.fail != nil {
		return d.fail
	}
	defer d.tell()
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range events {
		d.events, d.cursor = append(d.events, events[i]), cursors[i]
		if d.leave != nil && d.leave(d) {
			return live.ErrLeft
		}
	}
	return nil
}

func (d *reader) CaughtUp(_ context.Context, cursor string) error {
	defer d.tell()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.caughtUp++
	d.cursor = cursor
	if d.leave != nil && d.leave(d) {
		return live.ErrLeft
	}
	return nil
}

func (d *reader) Heartbeat(_ context.Context, cursor string) error {
	defer d.tell()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.beats++
	if cursor != "" {
		d.cursor = cursor
	}
	return nil
}

// until waits for a condition of what was given.
func (d *reader) until(t *testing.T, what string, condition func(*reader) bool) {
	t.Helper()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		d.mu.Lock()
		holds := condition(d)
		d.mu.Unlock()
		if holds {
			return
		}
		select {
		case <-d.grown:
		case <-limit.C:
			d.mu.Lock()
			defer d.mu.Unlock()
			require.Fail(t, "never: "+what, fmt.Sprintf("%d events, %d times caught up, %d heartbeats", len(d.events), d.caughtUp, d.beats))
		}
	}
}

// serve runs a feed until the test ends, and gives the channel with how it ended.
func (r *rig) serve(t *testing.T, f live.Feed) <-chan error {
	t.Helper()
	ended := make(chan error, 1)
	var done sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	done.Go(func() { ended <- r.live.Run(ctx, f) })
	t.Cleanup(func() { cancel(); done.Wait() })
	return ended
}

func (r *rig) all(t *testing.T, q query.AllQuery) *query.AllFeed {
	t.Helper()
	q.TenantID = tenant
	source, err := r.feeds.All(q)
	require.NoError(t, err)
	return source
}
