package live_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/adapters/system"
	"github.com/erpbackbone/backbone/application/live"
	"github.com/erpbackbone/backbone/application/query"
	"github.com/erpbackbone/backbone/application/subscriptions"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

const tenant = "acme"

// countingLog is a log that counts its reads.
type countingLog struct {
	*memory.EventReader
	*memory.Directory
	database *memory.Database
	reads    atomic.Int64
}

func (c *countingLog) Events(ctx context.Context, q ports.EventQuery) ([]event.Recorded, error) {
	c.reads.Add(1)
	return c.EventReader.Events(ctx, q)
}

func (c *countingLog) SearchEvents(ctx context.Context, q ports.EventQuery, scan int) (ports.EventScan, error) {
	c.reads.Add(1)
	return c.EventReader.SearchEvents(ctx, q, scan)
}

func (c *countingLog) ReadStream(ctx context.Context, q ports.StreamQuery) ([]event.Recorded, bool, error) {
	c.reads.Add(1)
	return c.EventReader.ReadStream(ctx, q)
}

func (c *countingLog) Head(ctx context.Context, p event.PartitionID) (ports.Head, error) {
	c.reads.Add(1)
	return c.EventReader.Head(ctx, p)
}

func (c *countingLog) PartitionHeads(ctx context.Context) (map[event.PartitionID]ports.Head, error) {
	c.reads.Add(1)
	return c.EventReader.PartitionHeads(ctx)
}

func (c *countingLog) LegalEntities(ctx context.Context, tenantID string) ([]ports.LegalEntity, error) {
	c.reads.Add(1)
	return c.Directory.LegalEntities(ctx, tenantID)
}

func (c *countingLog) LegalEntity(context.Context, string, string) (ports.LegalEntity, error) {
	panic("not asked")
}

// feedFixture is a log with feeds and a live service.
type feedFixture struct {
	log   *countingLog
	feeds *query.Feeds
	live  *live.Service
	ids   *system.IDs
}

func newFeedFixture(t *testing.T, change func(*live.Config)) *feedFixture {
	t.Helper()
	database := memory.New(memory.Config{LogName: "live.example.org"})
	r := &feedFixture{log: &countingLog{EventReader: database.Events, Directory: database.Directory, database: database}, ids: system.NewIDs()}
	r.feeds = query.NewFeeds(query.New(query.Config{Log: r.log, Directory: r.log, Cursors: query.NewCursorSealer([]byte("key")), Clock: system.Clock{}}), r.log, nil)
	watch := testkit.Must(subscriptions.NewHeadWatcher(subscriptions.HeadWatcherConfig{Heads: r.log.EventReader, WakeUps: r.log.EventReader, Clock: system.Clock{}, Poll: 20 * time.Millisecond}))
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() { watch.Run(ctx) })
	t.Cleanup(func() { cancel(); done.Wait() })
	c := live.Config{Heads: watch, Clock: system.Clock{}, Limits: live.Limits{
		Heartbeat: 15 * time.Second, AccessCheckInterval: time.Minute, PerPrincipal: 20, PerNode: 1000,
	}}
	if change != nil {
		change(&c)
	}
	r.live = testkit.Must(live.New(c))
	return r
}

func (r *feedFixture) createEntity(t *testing.T, tenant, code string) ports.LegalEntity {
	t.Helper()
	le, err := r.log.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: tenant, Code: code, TimeZone: "UTC"})
	require.NoError(t, err)
	return le
}

// write appends n events of a type to a stream.
func (r *feedFixture) write(le ports.LegalEntity, stream, eventType string, n int) error {
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
	_, err := r.log.database.Appender.Append(context.Background(), request)
	return err
}

func (r *feedFixture) fill(t *testing.T, le ports.LegalEntity, n int) {
	t.Helper()
	for ; n > 0; n -= 100 {
		require.NoError(t, r.write(le, "main", "till.cash.moved", min(n, 100)))
	}
}

// fakeSink is a Sink that records its calls.
type fakeSink struct {
	mu       sync.Mutex
	events   []event.Recorded
	cursor   string // of the last event
	caughtUp int
	beats    int
	leave    func(*fakeSink) bool
	block    chan struct{} // if not nil, Events waits for it
	fail     error         // the result of Events
}

// Events records the events one by one, and may disconnect within a page.
func (d *fakeSink) Events(ctx context.Context, events []event.Recorded, cursors []string) error {
	if d.block != nil {
		select {
		case <-d.block:
		case <-ctx.Done():
			return live.ErrDisconnected
		}
	}
	if d.fail != nil {
		return d.fail
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range events {
		d.events, d.cursor = append(d.events, events[i]), cursors[i]
		if d.leave != nil && d.leave(d) {
			return live.ErrDisconnected
		}
	}
	return nil
}

func (d *fakeSink) CaughtUp(_ context.Context, cursor string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.caughtUp++
	d.cursor = cursor
	if d.leave != nil && d.leave(d) {
		return live.ErrDisconnected
	}
	return nil
}

func (d *fakeSink) Heartbeat(_ context.Context, cursor string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.beats++
	if cursor != "" {
		d.cursor = cursor
	}
	return nil
}

// pass lets simulated time pass, and waits until the feeds have done what was due by then.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// requireCalls checks the recorded calls.
func (d *fakeSink) requireCalls(t *testing.T, events, caughtUp, beats int) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	require.Equal(t, []int{events, caughtUp, beats}, []int{len(d.events), d.caughtUp, d.beats}, "events, times caught up, heartbeats")
}

// serve runs a feed until the test ends, and returns the channel with its result.
func (r *feedFixture) serve(t *testing.T, f live.Feed) <-chan error {
	t.Helper()
	ended := make(chan error, 1)
	var done sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	done.Go(func() { ended <- r.live.Run(ctx, f) })
	t.Cleanup(func() { cancel(); done.Wait() })
	return ended
}

func (r *feedFixture) allFeed(t *testing.T, q query.AllQuery) *query.AllFeed {
	t.Helper()
	q.TenantID = tenant
	source, err := r.feeds.All(q)
	require.NoError(t, err)
	return source
}
