package publish

import (
	"context"
	"crypto/rand"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// Heads knows how far every partition has grown. Whoever takes the map and the channel,
// reads, and waits for the channel misses nothing.
type Heads interface {
	Heads() (map[event.PartitionID]ports.Head, <-chan struct{})
}

// Leases gives a partition to one node at a time.
type Leases interface {
	Hold(ctx context.Context, holder string, ttl time.Duration, resources []ports.LeaseResource) ([]ports.Lease, error)
	Release(ctx context.Context, holder string, resources []ports.LeaseResource) error
}

// Log reads the events of a partition.
type Log interface {
	Events(ctx context.Context, q ports.EventQuery) ([]event.Recorded, error)
}

// Encoder writes events as their receivers see them, one document for each. A
// reference leaves data, dimensions and entities out.
type Encoder interface {
	Encode(ctx context.Context, events []event.Recorded, reference bool) ([][]byte, error)
}

// Observer watches a dispatcher.
type Observer interface {
	// Published reports messages that the broker stored, and those of them that it had
	// already.
	Published(publisher string, messages, duplicates int)
	// PublishFailed reports an attempt that failed, by code.
	PublishFailed(publisher, code string)
	// PublishLag reports what this node's partitions have not published: events, and the
	// age of the oldest of them as far as it is known.
	PublishLag(publisher string, events uint64, seconds float64)
	// PublisherLeases reports how many partitions this node publishes.
	PublisherLeases(publisher string, held int)
}

// Config is what a Dispatcher needs. Numbers of 0 take their default.
type Config struct {
	Name      string // of the publisher, such as "nats"
	Node      string // of this process; leases are held in its name
	Publisher ports.Publisher
	Cursors   ports.PublisherCursors
	Leases    Leases
	Heads     Heads
	Log       Log
	Encoder   Encoder
	Clock     ports.Clock  // for lag
	Logger    *slog.Logger // nil: silent
	Observer  Observer     // nil: nobody watches

	Batch   int           // events of one batch; 256
	Workers int           // partitions that publish at the same time; 4
	TTL     time.Duration // of a lease; 10 s
	Retry   time.Duration // pause after the first failure, doubled with each; 1 s
	Longest time.Duration // pause between two attempts; 60 s
}

// Dispatcher publishes the partitions whose leases this node holds.
type Dispatcher struct {
	Config
	holder string
	wake   chan struct{}
	done   chan result

	held   map[event.PartitionID]*share // by Run only
	served uint64
}

// share is a partition that this node publishes.
type share struct {
	partition event.PartitionID
	term      uint64
	ends      time.Time // of the lease, by this process's own monotonic clock

	begun    bool
	through  event.Sequence
	size     int // events of the next page
	oldest   time.Time
	busy     bool
	cancel   context.CancelFunc // ends what is under way
	served   uint64             // when it had its turn
	failures int
	retryAt  time.Time
}

// New makes a Dispatcher. It does nothing until it runs.
func New(c Config) *Dispatcher {
	or := func(d *time.Duration, fallback time.Duration) {
		if *d <= 0 {
			*d = fallback
		}
	}
	or(&c.TTL, 10*time.Second)
	or(&c.Retry, time.Second)
	or(&c.Longest, time.Minute)
	if c.Batch <= 0 {
		c.Batch = 256
	}
	if c.Workers <= 0 {
		c.Workers = 4
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	// A process that starts again under its name is another holder: a term that is its
	// own was begun by itself.
	return &Dispatcher{
		Config: c, holder: c.Node + "/" + rand.Text()[:8], wake: make(chan struct{}, 1), done: make(chan result),
		held: map[event.PartitionID]*share{},
	}
}

// emptyPause is the pause after a page without events.
const emptyPause = 20 * time.Millisecond

// LeaseName is the name under which the partitions of a publisher are leased.
func LeaseName(publisher string) string { return "publisher/" + publisher }

// Wake ends all pauses after failures: the broker is back.
func (d *Dispatcher) Wake() {
	select {
	case d.wake <- struct{}{}:
	default: // already told
	}
}

// Run publishes until ctx ends; then it gives its leases back.
func (d *Dispatcher) Run(ctx context.Context) {
	var working sync.WaitGroup
	defer func() {
		settled := make(chan struct{})
		go func() { working.Wait(); close(settled) }()
		for {
			select {
			case <-d.done:
			case <-settled:
				d.release(ctx)
				return
			}
		}
	}()
	renew := time.NewTimer(0)
	defer renew.Stop()
	pause := time.NewTimer(d.Longest)
	defer pause.Stop()
	asked := map[event.PartitionID]bool{}
	for {
		heads, changed := d.Heads.Heads()
		for p, h := range heads {
			if h.Sequence > 0 && !asked[p] {
				asked[p] = true
				renew.Reset(0) // new here: ask for its lease at once
			}
		}
		pause.Reset(d.start(ctx, &working, heads))
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-pause.C:
		case r := <-d.done:
			d.finish(ctx, r)
		case <-d.wake:
			for _, s := range d.held {
				s.retryAt = time.Time{}
			}
		case <-renew.C:
			d.renew(ctx, heads)
			d.report(heads)
			renew.Reset(d.TTL / 3)
		}
	}
}

func (d *Dispatcher) resources(heads map[event.PartitionID]ports.Head) []ports.LeaseResource {
	out := make([]ports.LeaseResource, 0, len(heads))
	for p, h := range heads {
		if h.Sequence > 0 {
			out = append(out, ports.LeaseResource{Name: LeaseName(d.Name), Partition: p})
		}
	}
	return out
}

// renew takes and renews leases. While the store cannot be asked, each lease goes on
// to its end.
func (d *Dispatcher) renew(ctx context.Context, heads map[event.PartitionID]ports.Head) {
	resources := d.resources(heads)
	if len(resources) == 0 {
		return
	}
	asking, cancel := context.WithTimeout(ctx, d.TTL/3)
	defer cancel()
	before := time.Now() // the store counts from later
	leases, err := d.Leases.Hold(asking, d.holder, d.TTL, resources)
	if err != nil {
		if ctx.Err() == nil {
			d.Logger.WarnContext(ctx, "the leases of a publisher could not be renewed", "publisher", d.Name, "code", fault.CodeOf(err))
		}
		return
	}
	ours := make(map[event.PartitionID]bool, len(leases))
	for _, l := range leases {
		ours[l.Partition] = true
		s := d.held[l.Partition]
		if s != nil && s.term != l.Term { // lost and taken again in between
			d.drop(s)
			s = nil
		}
		if s == nil {
			s = &share{partition: l.Partition, term: l.Term, size: min(d.Batch, firstPage)}
			d.held[l.Partition] = s
		}
		s.ends = before.Add(d.TTL)
	}
	for p, s := range d.held {
		if !ours[p] {
			d.drop(s)
		}
	}
	if d.Observer != nil {
		d.Observer.PublisherLeases(d.Name, len(d.held))
	}
}

// drop leaves a partition to somebody else.
func (d *Dispatcher) drop(s *share) {
	if s.cancel != nil {
		s.cancel()
	}
	if d.held[s.partition] == s {
		delete(d.held, s.partition)
	}
}

// release gives back what is held, so that another node goes on at once.
func (d *Dispatcher) release(ctx context.Context) {
	resources := make([]ports.LeaseResource, 0, len(d.held))
	for p := range d.held {
		resources = append(resources, ports.LeaseResource{Name: LeaseName(d.Name), Partition: p})
	}
	clear(d.held)
	if len(resources) == 0 {
		return
	}
	leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if err := d.Leases.Release(leaving, d.holder, resources); err != nil {
		d.Logger.WarnContext(leaving, "another node goes on when the leases of this one expire", "publisher", d.Name, "code", fault.CodeOf(err))
	}
}

// start sets workers on partitions with something to publish, those that waited
// longest first, and tells how long nothing is to be done.
func (d *Dispatcher) start(ctx context.Context, working *sync.WaitGroup, heads map[event.PartitionID]ports.Head) time.Duration {
	now := time.Now()
	wait := d.Longest
	busy := 0
	var due []*share
	for _, s := range d.held {
		switch {
		case s.busy:
			busy++
		case s.begun && heads[s.partition].Sequence <= s.through, !now.Before(s.ends):
		case now.Before(s.retryAt):
			wait = min(wait, s.retryAt.Sub(now))
		default:
			due = append(due, s)
		}
	}
	slices.SortFunc(due, func(a, b *share) int { return int(a.served) - int(b.served) })
	for _, s := range due[:min(len(due), max(d.Workers-busy, 0))] {
		d.served++
		s.served, s.busy = d.served, true
		turn := turn{share: s, partition: s.partition, term: s.term, begun: s.begun, through: s.through, size: s.size}
		bounded, cancel := context.WithDeadline(ctx, s.ends)
		s.cancel = cancel
		working.Go(func() {
			defer cancel()
			d.done <- d.work(bounded, turn)
		})
	}
	return wait
}

// finish notes what came of a turn.
func (d *Dispatcher) finish(ctx context.Context, r result) {
	s := r.share
	s.busy, s.cancel = false, nil
	if d.held[s.partition] != s {
		return // somebody else's meanwhile
	}
	s.begun, s.through, s.size, s.oldest = r.begun, r.through, r.size, r.oldest
	if d.Observer != nil && r.stored > 0 {
		d.Observer.Published(d.Name, r.stored, r.duplicates)
	}
	code := fault.CodeOf(r.err)
	switch {
	case r.err == nil:
		s.failures = 0
		if r.stored == 0 { // nothing there, whatever the heads say: a replica may be behind
			s.retryAt = time.Now().Add(emptyPause)
		}
		return
	case ctx.Err() != nil:
		return
	case code == "publisher.fenced", code == "publisher.cursor_moved":
		d.Logger.WarnContext(ctx, "a partition is published by another node", "publisher", d.Name, "partition", s.partition, "code", code)
		d.drop(s)
		return
	}
	if r.stored > 0 {
		s.failures = 0
	}
	pause := d.Longest
	if s.failures < 20 {
		pause = min(d.Longest, d.Retry<<s.failures)
	}
	s.failures++
	s.retryAt = time.Now().Add(pause)
	if d.Observer != nil {
		d.Observer.PublishFailed(d.Name, code)
	}
	d.Logger.WarnContext(ctx, "events could not be published; they will be tried again", "publisher", d.Name, "partition", s.partition,
		"after", s.through, "code", code, "error", r.err.Error(), "retry_in", pause.String())
}

// report tells the lag of what this node publishes.
func (d *Dispatcher) report(heads map[event.PartitionID]ports.Head) {
	if d.Observer == nil {
		return
	}
	var events uint64
	var seconds float64
	for _, s := range d.held {
		h := heads[s.partition]
		if !s.begun || h.Sequence <= s.through {
			continue
		}
		events += uint64(h.Sequence - s.through)
		since := s.oldest
		if since.IsZero() {
			since = h.RecordedAt
		}
		seconds = max(seconds, d.Clock.Now().Sub(since).Seconds())
	}
	d.Observer.PublishLag(d.Name, events, seconds)
}
