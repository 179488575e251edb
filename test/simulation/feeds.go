package simulation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/erpbackbone/backbone/application/live"
	"github.com/erpbackbone/backbone/application/query"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

var _ = takesPart("feeds", 0.4, func(w *world, r *rand.Rand) part {
	f := &feeds{world: w}
	for i := range 1 + r.IntN(3) {
		f.readers = append(f.readers, &feedReader{world: w, name: fmt.Sprintf("reader %d", i), random: w.random(fmt.Sprintf("reader %d", i)), last: map[event.PartitionID]event.Sequence{}})
	}
	return f
})

// feeds are readers of live feeds, who disconnect and go on at another node with their last cursor.
type feeds struct {
	world   *world
	readers []*feedReader
	proven  bool // that feeds are live
}

func (f *feeds) prepare(context.Context) error { return nil }

func (f *feeds) work() {
	for _, r := range f.readers {
		f.world.begin(func(ctx context.Context) {
			for pause(ctx, r.random, 500*time.Millisecond) == nil {
				r.connect(ctx, time.Duration(r.random.ExpFloat64()*float64(10*time.Second)))
			}
		})
	}
}

// feedReader is the sink of a feed. It must get every event of each legal entity once, in order.
type feedReader struct {
	world  *world
	name   string
	random *rand.Rand

	mu     sync.Mutex
	cursor string
	last   map[event.PartitionID]event.Sequence
	calm   bool          // connections do not break any more
	pace   time.Duration // of every page, besides its way
}

// connect reads for a time.
func (r *feedReader) connect(ctx context.Context, d time.Duration) {
	n := r.world.anyNode(r.random)
	if n == nil {
		return
	}
	ctx, cancel := context.WithTimeout(asRequest(ctx, r.random), d)
	defer cancel()
	defer context.AfterFunc(n.ctx, cancel)() // the connections of a node end with it
	r.mu.Lock()
	from := r.cursor
	r.mu.Unlock()
	source, err := n.services.Feeds.All(query.AllQuery{TenantID: tenantID, From: from})
	if !r.world.require(err == nil, "feeds go on with their cursor", "%s: %v", r.name, err) {
		return
	}
	err = n.services.Live.Run(ctx, live.Feed{Transport: "simulation", Source: source, Sink: feedSink{r, n}, Batch: 1 + r.random.IntN(20)})
	r.world.require(err == nil || errors.Is(err, live.ErrDisconnected) || fault.KindOf(err) == fault.Unavailable || fault.KindOf(err) == fault.Timeout || ctx.Err() != nil, "feeds go on with their cursor", "%s: %v", r.name, err)
}

// connected does something while the reader is connected, which is for a time at most.
func (r *feedReader) connected(ctx context.Context, d time.Duration, do func(ctx context.Context) error) error {
	var connection sync.WaitGroup
	defer connection.Wait()
	ctx, disconnect := context.WithTimeout(ctx, d)
	defer disconnect()
	connection.Go(func() { r.connect(ctx, d) })
	return do(ctx)
}

func (r *feedReader) setPace(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pace = d
}

// has requires that the reader got every event of legal entities.
func (r *feedReader) has(entities ...ports.LegalEntity) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, le := range entities {
		if head := r.world.head(le); r.last[le.Partition] < head {
			return fmt.Errorf("%s has %d of %d events of %s", r.name, r.last[le.Partition], head, le.Code)
		}
	}
	return nil
}

// feedSink is one connection of a reader to a node.
type feedSink struct {
	reader *feedReader
	node   *run
}

// Events implements live.Sink.
func (s feedSink) Events(ctx context.Context, events []event.Recorded, cursors []string) error {
	r := s.reader
	r.mu.Lock()
	pace := r.pace
	r.mu.Unlock()
	if err := s.node.link.pass(ctx, pace+latency(r.random)); err != nil {
		return live.ErrDisconnected
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.random.Float64() < 0.05 && !r.calm {
		return live.ErrDisconnected // the page is lost
	}
	for i := range events {
		e := &events[i]
		r.world.require(e.Sequence == r.last[e.Partition]+1, "feeds miss nothing and repeat nothing", "%s: event %d of partition %d after %d", r.name, e.Sequence, e.Partition, r.last[e.Partition])
		r.last[e.Partition], r.cursor = e.Sequence, cursors[i]
	}
	return nil
}

// CaughtUp implements live.Sink.
func (s feedSink) CaughtUp(ctx context.Context, cursor string) error { return s.Heartbeat(ctx, cursor) }

// Heartbeat implements live.Sink.
func (s feedSink) Heartbeat(ctx context.Context, cursor string) error {
	if err := s.node.link.pass(ctx, latency(s.reader.random)); err != nil {
		return live.ErrDisconnected
	}
	s.reader.mu.Lock()
	defer s.reader.mu.Unlock()
	if cursor != "" {
		s.reader.cursor = cursor
	}
	return nil
}

func (f *feeds) settle(ctx context.Context) error {
	for _, r := range f.readers {
		r.mu.Lock()
		r.calm = true
		r.mu.Unlock()
		err := eventually(ctx, func() error {
			return r.connected(ctx, 5*time.Second, func(ctx context.Context) error {
				return eventually(ctx, func() error { return r.has(f.world.entities...) })
			})
		})
		if err != nil {
			return err
		}
	}
	if f.proven {
		return nil
	}
	f.proven = true
	for n := range 3 * len(f.readers) {
		if err := f.proveLive(ctx, f.readers[n%len(f.readers)], n); err != nil {
			return err
		}
	}
	return nil
}

// liveWithin is how soon an open feed has an event while nothing fails: before the next heartbeat, with
// which a feed looks at the log again.
const liveWithin = 10 * time.Second

// slowPage is how long a reader takes for a page while that is proven.
const slowPage = 100 * time.Millisecond

// proveLive writes an event about when a slow reader connects and one soon after it, which no later
// event follows, and requires that the reader gets both without connecting again. The second may come
// while the feed still sends the first.
func (f *feeds) proveLive(ctx context.Context, r *feedReader, n int) error {
	random := f.world.random(fmt.Sprintf("writer %d", n))
	entity := f.world.entities[n%len(f.world.entities)]
	r.setPace(slowPage)
	defer r.setPace(0)
	return r.connected(ctx, time.Hour, func(context.Context) error {
		for i, wait := range []time.Duration{2 * latency(random), time.Duration(random.Int64N(int64(slowPage)))} {
			if err := ports.Sleep(ctx, wait); err != nil {
				return err
			}
			if err := f.world.deposit(ctx, random, entity, fmt.Sprintf("live %d.%d", n, i)); err != nil {
				return err
			}
		}
		within, cancel := context.WithTimeout(ctx, liveWithin)
		defer cancel()
		err := eventually(within, func() error { return r.has(entity) })
		f.world.require(err == nil, "feeds are live", "within %s: %v", liveWithin, err)
		return ctx.Err()
	})
}

func (f *feeds) check(*books) {}
