package fanout

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/erpbackbone/backbone/application/sharing"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// Heads returns the heads of all partitions and a channel that is closed when any has grown.
// A caller that takes both, reads, and waits for the channel misses no event.
type Heads interface {
	Heads() (map[event.PartitionID]ports.Head, <-chan struct{})
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

// Observer is notified of what a dispatcher does.
type Observer interface {
	// Published reports messages that the broker stored, and how many of them it had stored
	// before.
	Published(publisher string, messages, duplicates int)
	// PublishFailed reports an attempt that failed, by code.
	PublishFailed(publisher, code string)
	// PublishLag reports the unpublished events of this node's partitions, and the age of the
	// oldest of them if it is known.
	PublishLag(publisher string, events uint64, seconds float64)
	// PublisherLeases reports how many partitions this node publishes.
	PublisherLeases(publisher string, held int)
	// PublisherLease reports that a lease was "taken", "released" for another node, or
	// "lost".
	PublisherLease(publisher, change string)
	// PublisherNodes reports how many nodes share the partitions.
	PublisherNodes(publisher string, alive int)
}

// Config is what a Dispatcher needs. Numbers of 0 take their default.
type Config struct {
	Name      string // of the publisher, such as "nats"
	Node      string // of this process; leases are held in its name
	Publisher ports.Publisher
	Cursors   ports.PublisherCursors
	Leases    ports.Leases
	Heads     Heads
	Log       Log
	Encoder   Encoder
	Clock     ports.Clock  // for lag
	Logger    *slog.Logger // nil: silent
	Observer  Observer     // nil: none

	Limits
	Timing
}

// Limits bound a Dispatcher; all are required.
type Limits struct {
	Batch   int // events of one batch, which has 8 MiB of payloads at most
	Workers int // partitions that publish at the same time
}

// Timing holds the waits and periods of a Dispatcher; all are required.
type Timing struct {
	TTL          time.Duration // of a lease
	FirstPause   time.Duration // after the first failure, doubled with each further one
	LongestPause time.Duration // bound of the pause between two attempts
	StallAfter   time.Duration // without progress while events wait, after which Health fails
}

// StandardTiming is the timing of a server. No operator sets it: Status computes the next
// attempt of another node with it.
var StandardTiming = Timing{TTL: 10 * time.Second, FirstPause: time.Second, LongestPause: time.Minute, StallAfter: 2 * time.Minute}

// Dispatcher publishes the partitions whose leases this node holds.
type Dispatcher struct {
	Config
	member *sharing.Member
	wake   chan struct{}
	done   chan result

	// By Run only.
	held      map[event.PartitionID]*heldPartition
	renewedAt time.Time // when the leases were last renewed
	served    uint64

	health atomic.Pointer[healthStatus] // nil: it does not run
}

// heldPartition is a partition that this node publishes.
type heldPartition struct {
	partition event.PartitionID
	term      uint64
	leaseEnds time.Time // by this process's own monotonic clock

	begun        bool
	through      event.Sequence
	oldest       time.Time
	busy         bool
	cancel       context.CancelFunc // of the batch in flight
	served       uint64             // position of its last turn among all turns, for fairness
	leaving      bool               // another node should publish it: released as soon as it is not busy
	failures     int
	retryAt      time.Time
	woken        bool      // the broker came back while a batch was in flight, so its failure causes no pause
	waitingSince time.Time // since when events wait without progress; zero: no events wait
	code         string    // of the newest failure since waitingSince
}

// New makes a Dispatcher. It does nothing until it runs.
func New(c Config) (*Dispatcher, error) {
	if err := errors.Join(fault.RequirePositive("fanout.Config", c.Limits), fault.RequirePositive("fanout.Config", c.Timing)); err != nil {
		return nil, err
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	// A restarted process is another holder, so that it never continues a term that the
	// process before it has begun.
	member := sharing.New(sharing.Config{
		Leases: c.Leases, Work: LeaseName(c.Name), Holder: c.Node + "/" + rand.Text()[:8], TTL: c.TTL, Now: time.Now,
		Logger: c.Logger.With("work", LeaseName(c.Name)),
	})
	return &Dispatcher{
		Config: c, member: member, wake: make(chan struct{}, 1), done: make(chan result),
		held: map[event.PartitionID]*heldPartition{},
	}, nil
}

// emptyPause is the pause after a page without events.
const emptyPause = 20 * time.Millisecond

// LeaseName is the name under which the partitions of a publisher are leased.
func LeaseName(publisher string) string { return "publisher/" + publisher }

// Wake ends all pauses after failures: the broker is back.
func (d *Dispatcher) Wake() {
	select {
	case d.wake <- struct{}{}:
	default: // a signal is pending
	}
}

// Run publishes until ctx ends; then it releases its leases.
func (d *Dispatcher) Run(ctx context.Context) {
	var working sync.WaitGroup
	d.renewedAt = time.Now()
	d.health.Store(&healthStatus{at: d.renewedAt})
	defer func() {
		d.health.Store(nil)
		settled := make(chan struct{})
		go func() { working.Wait(); close(settled) }()
		for {
			select {
			case <-d.done:
			case <-settled:
				clear(d.held)
				d.member.Leave(ctx)
				return
			}
		}
	}()
	renew := time.NewTimer(0)
	defer renew.Stop()
	pause := time.NewTimer(d.LongestPause)
	defer pause.Stop()
	asked := map[event.PartitionID]bool{}
	for ctx.Err() == nil {
		heads, changed := d.Heads.Heads()
		for p, h := range heads {
			if h.Sequence > 0 && !asked[p] {
				asked[p] = true
				renew.Reset(0) // a new partition: acquire its lease at once
			}
		}
		pause.Reset(d.start(ctx, &working, heads))
		renews := ports.TryReceive(renew.C) // first of what is ready, since it takes time
		if !renews {
			select {
			case <-ctx.Done():
			case <-changed:
			case <-pause.C:
			case r := <-d.done:
				d.finish(ctx, r)
				if r.held.leaving {
					renew.Reset(0) // another node waits for it
				}
			case <-d.wake:
				for _, s := range d.held {
					s.retryAt, s.woken = time.Time{}, s.busy
				}
			case <-renew.C:
				renews = true
			}
		}
		if renews && ctx.Err() == nil {
			d.renew(ctx, heads)
			d.report(heads)
			d.updateHealth(heads)
			renew.Reset(d.TTL / 3)
		}
	}
}

// start starts workers for partitions with unpublished events, those that waited longest
// first, and returns how long until the next pause ends.
func (d *Dispatcher) start(ctx context.Context, working *sync.WaitGroup, heads map[event.PartitionID]ports.Head) time.Duration {
	now := time.Now()
	wait := d.LongestPause
	busy := 0
	var due []*heldPartition
	for _, s := range d.held {
		switch {
		case s.busy:
			busy++
		case s.leaving:
		case s.begun && heads[s.partition].Sequence <= s.through, !now.Before(s.leaseEnds):
		case now.Before(s.retryAt):
			wait = min(wait, s.retryAt.Sub(now))
		default:
			due = append(due, s)
		}
	}
	slices.SortFunc(due, func(a, b *heldPartition) int {
		return cmp.Or(cmp.Compare(a.served, b.served), cmp.Compare(a.partition, b.partition))
	})
	for _, s := range due[:min(len(due), max(d.Workers-busy, 0))] {
		d.served++
		s.served, s.busy = d.served, true
		turn := turn{held: s, partition: s.partition, term: s.term, begun: s.begun, through: s.through}
		bounded, cancel := context.WithDeadline(ctx, s.leaseEnds)
		s.cancel = cancel
		working.Go(func() {
			defer cancel()
			d.done <- d.work(bounded, turn)
		})
	}
	return wait
}

// finish applies the outcome of a turn.
func (d *Dispatcher) finish(ctx context.Context, r result) {
	s := r.held
	woken := s.woken
	s.busy, s.woken, s.cancel = false, false, nil
	if d.held[s.partition] != s {
		return // the lease was lost during the turn
	}
	if r.begun && !s.begun {
		s.failures = r.failures // of the node before, so that the pause before an unavailable broker continues
	}
	s.begun, s.through, s.oldest = r.begun, r.through, r.oldest
	if r.stored > 0 {
		s.waitingSince, s.code = time.Time{}, ""
	}
	if d.Observer != nil && r.stored > 0 {
		d.Observer.Published(d.Name, r.stored, r.duplicates)
	}
	code := fault.CodeOf(r.err)
	switch {
	case r.err == nil:
		s.failures = 0
		if r.stored == 0 { // the heads name more events, but a replica may lag
			s.retryAt = time.Now().Add(emptyPause)
		}
		return
	case ctx.Err() != nil:
		return
	case code == "publisher.fenced", code == "publisher.cursor_moved":
		d.Logger.WarnContext(ctx, "a partition is published by another node", "publisher", d.Name, "partition", s.partition, "code", code)
		d.member.Forget(d.resource(s.partition), s.term)
		d.drop(s)
		return
	}
	if r.stored > 0 {
		s.failures = 0
	}
	s.failures++
	s.code = code
	pause := Backoff(d.FirstPause, d.LongestPause, s.failures)
	if woken {
		pause = 0
	}
	s.retryAt = time.Now().Add(pause)
	if d.Observer != nil {
		d.Observer.PublishFailed(d.Name, code)
	}
	d.Logger.WarnContext(ctx, "events could not be published; they will be tried again", "publisher", d.Name, "partition", s.partition,
		"after", s.through, "code", code, "error", r.err.Error(), "retry_in", pause.String())
}

// Backoff returns the pause after a number of failures in a row.
func Backoff(first, longest time.Duration, failures int) time.Duration {
	if failures < 1 {
		return 0
	}
	if failures > 20 {
		return longest
	}
	return min(longest, first<<(failures-1))
}

// report observes the lag of this node's partitions.
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
