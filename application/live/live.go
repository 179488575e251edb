package live

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// Heads knows how far all partitions have grown and tells when they grow.
type Heads interface {
	// Heads gives the heads, which must not be changed, and a channel that is closed as
	// soon as any partition grows beyond them.
	Heads() (map[event.PartitionID]ports.Head, <-chan struct{})
}

// Source is a position in the log and the reading from it.
type Source interface {
	// Start checks the position and gives the heads as the store has them now.
	Start(ctx context.Context) (map[event.PartitionID]ports.Head, error)
	// Read gives at most count events that follow, with the cursor behind each, and
	// whether more of what the heads promise is left. When the heads promise nothing it
	// asks nothing.
	Read(ctx context.Context, heads map[event.PartitionID]ports.Head, count int) (events []event.Recorded, cursors []string, more bool, err error)
	// Cursor is the position.
	Cursor() string
}

// Sink is the reader. Its methods return when the reader has taken what it is given,
// or an error when it does not in time.
type Sink interface {
	Events(ctx context.Context, events []event.Recorded, cursors []string) error
	// CaughtUp is called once: everything that was there at the beginning has been
	// given.
	CaughtUp(ctx context.Context, cursor string) error
	// Heartbeat is called when nothing has been given for a while.
	Heartbeat(ctx context.Context, cursor string) error
}

// The states of a feed. One that has caught up is idle while nothing comes and live while
// something does.
const (
	CatchingUp   = "catching_up"
	Live         = "live"
	Idle         = "idle"
	Disconnected = "disconnected"
)

// Observer sees feeds come, change and go.
type Observer interface {
	// FeedState reports a change; from is "" for a new feed.
	FeedState(transport, from, to string)
	// FeedDelivered reports events that the reader took, and how old the newest was.
	FeedDelivered(transport string, events int, age time.Duration)
	// FeedEnded reports the code of the fault that a feed ended with; "" is the reader's
	// own wish.
	FeedEnded(transport, code string)
}

// Alarm rings once after d unless it is stopped.
type Alarm func(d time.Duration) (ring <-chan time.Time, stop func())

// Config is what a Service needs. Durations and numbers that are 0 have the defaults
// that are named.
type Config struct {
	Heads        Heads
	Clock        ports.Clock
	Alarm        Alarm         // nil: the machine's timers
	Observer     Observer      // nil: nobody watches
	Heartbeat    time.Duration // silence after which a feed shows that it lives; 15 s
	Review       time.Duration // how often the reader's rights are looked at again; 1 min
	ReadTimeout  time.Duration // of one page; 30 s
	PerPrincipal int           // feeds of one principal on this node; 20
	PerNode      int           // feeds on this node; 1,000
}

// Service runs feeds.
type Service struct {
	config  Config
	closing context.Context
	close   context.CancelCauseFunc

	mu     sync.Mutex
	open   int
	byWho  map[string]int
	nobody chan struct{} // closed when nobody is left after Close
}

// New makes a Service.
func New(c Config) *Service {
	for _, d := range [...]struct {
		value    *time.Duration
		standard time.Duration
	}{{&c.Heartbeat, 15 * time.Second}, {&c.Review, time.Minute}, {&c.ReadTimeout, 30 * time.Second}} {
		if *d.value <= 0 {
			*d.value = d.standard
		}
	}
	if c.PerPrincipal <= 0 {
		c.PerPrincipal = 20
	}
	if c.PerNode <= 0 {
		c.PerNode = 1000
	}
	if c.Alarm == nil {
		c.Alarm = func(d time.Duration) (<-chan time.Time, func()) {
			t := time.NewTimer(d)
			return t.C, func() { t.Stop() }
		}
	}
	if c.Observer == nil {
		c.Observer = nobodyWatches{}
	}
	s := &Service{config: c, byWho: map[string]int{}, nobody: make(chan struct{})}
	s.closing, s.close = context.WithCancelCause(context.Background())
	return s
}

// ErrLeft is how a feed ends that its reader has left.
var ErrLeft = errors.New("the reader left")

// CodeStopping is the code of the fault that feeds end with when the node stops.
const CodeStopping = "feed.server_stopping"

func stopping() error {
	return fault.New(fault.Unavailable, CodeStopping, "this server stops; connect again and go on with the last cursor").WithRetryAfter(time.Second)
}

// Enter counts a feed of a principal in. Whoever enters must leave. Faults:
// feed.too_many, feed.server_stopping.
func (s *Service) Enter(principal string) (leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closing.Err() != nil:
		return nil, stopping()
	case s.open >= s.config.PerNode:
		return nil, fault.New(fault.TooMany, "feed.too_many", "this server has as many feeds as it takes, %d; try another one, or later", s.config.PerNode).WithRetryAfter(10 * time.Second)
	case s.byWho[principal] >= s.config.PerPrincipal:
		return nil, fault.New(fault.TooMany, "feed.too_many", "you have as many feeds on this server as one may have, %d; end one first", s.config.PerPrincipal).WithRetryAfter(10 * time.Second)
	}
	s.open++
	s.byWho[principal]++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open--
		if s.byWho[principal]--; s.byWho[principal] == 0 {
			delete(s.byWho, principal)
		}
		s.reportEmpty()
	}), nil
}

// reportEmpty tells Close that nobody is left; the caller holds the lock.
func (s *Service) reportEmpty() {
	if s.open > 0 || s.closing.Err() == nil {
		return
	}
	select {
	case <-s.nobody:
	default:
		close(s.nobody)
	}
}

// Close ends all feeds and waits until their readers have been told, or ctx ends.
func (s *Service) Close(ctx context.Context) error {
	s.mu.Lock()
	s.close(stopping())
	s.reportEmpty()
	s.mu.Unlock()
	select {
	case <-s.nobody:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Feed is one reader's connection.
type Feed struct {
	Transport string // for the observer
	Source    Source
	Sink      Sink
	Batch     int // events of one page
	// Expires is when the reader's token does; zero is never. Rights are looked at again
	// then at the latest.
	Expires time.Time
	// Review looks at the reader's rights again; an error ends the feed.
	Review func(ctx context.Context) error
}

// Run serves a feed until its reader leaves, its rights end, the reader is too slow,
// or the service closes, and says why: ErrLeft, or a fault. The reader may go on with
// the source's cursor: nothing before it is missing.
func (s *Service) Run(ctx context.Context, f Feed) (err error) {
	r := &run{service: s, feed: f, state: CatchingUp}
	s.config.Observer.FeedState(f.Transport, "", CatchingUp)
	ctx, cancel := context.WithCancelCause(ctx)
	unlink := context.AfterFunc(s.closing, func() { cancel(context.Cause(s.closing)) })
	defer func() {
		unlink()
		if err == nil || ctx.Err() != nil && fault.CodeOf(err) != CodeTooSlow {
			err = reason(ctx)
		}
		cancel(nil)
		r.become(Disconnected)
		code := ""
		if !errors.Is(err, ErrLeft) {
			code = fault.CodeOf(err)
		}
		s.config.Observer.FeedEnded(f.Transport, code)
	}()
	return r.follow(ctx)
}

// CodeTooSlow is the code of the fault of a reader that does not take its events.
const CodeTooSlow = "feed.reader_too_slow"

// TooSlow is the fault of a Sink whose reader did not take what it was given in time.
func TooSlow(cause error) error {
	return fault.New(fault.Timeout, CodeTooSlow, "the reader did not take its events in time; connect again, go on with the last cursor, and read faster").WithCause(cause)
}

// reason is why a context ended: a fault that somebody gave, or the reader's leaving.
func reason(ctx context.Context) error {
	if f, ok := fault.As(context.Cause(ctx)); ok {
		return f
	}
	return ErrLeft
}

// run is a feed while it is served.
type run struct {
	service   *Service
	feed      Feed
	state     string
	told      string // the cursor that the reader has
	heartbeat alarm
	review    alarm
}

// alarm is one that can be set again.
type alarm struct {
	ring <-chan time.Time
	stop func()
}

func (r *run) set(a *alarm, d time.Duration) {
	if a.stop != nil {
		a.stop()
	}
	a.ring, a.stop = r.service.config.Alarm(d)
}

func (r *run) setReview() {
	d := r.service.config.Review
	if !r.feed.Expires.IsZero() {
		d = max(min(d, r.feed.Expires.Sub(r.service.config.Clock.Now())), 0)
	}
	r.set(&r.review, d)
}

func (r *run) become(s string) {
	if s != r.state {
		r.service.config.Observer.FeedState(r.feed.Transport, r.state, s)
		r.state = s
	}
}

// follow catches up and goes on. The heads and the channel that tells of their growth
// are taken before the reading: what comes during it either is read or has closed the
// channel, so the switch leaves nothing out. And because the position alone decides
// what is read next, nothing is shown twice.
func (r *run) follow(ctx context.Context) error {
	r.set(&r.heartbeat, r.service.config.Heartbeat)
	r.setReview()
	defer func() { r.heartbeat.stop(); r.review.stop() }()
	_, grown := r.service.config.Heads.Heads()
	heads, err := r.start(ctx)
	if err != nil {
		return err
	}
	for {
		given, err := r.drain(ctx, heads)
		if err != nil || ctx.Err() != nil {
			return err
		}
		if r.state == CatchingUp && given > r.feed.Batch && isClosed(grown) {
			heads, grown = r.service.config.Heads.Heads() // much has come meanwhile
			continue
		}
		if r.state == CatchingUp {
			r.told = r.feed.Source.Cursor()
			if err := r.feed.Sink.CaughtUp(ctx, r.told); err != nil {
				return err
			}
			r.become(Idle)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-grown:
			heads, grown = r.service.config.Heads.Heads()
		case <-r.heartbeat.ring:
			err = r.beat(ctx)
		case <-r.review.ring:
			err = r.look(ctx)
		}
		if err != nil {
			return err
		}
	}
}

func (r *run) start(ctx context.Context) (map[event.PartitionID]ports.Head, error) {
	ctx, cancel := context.WithTimeout(ctx, r.service.config.ReadTimeout)
	defer cancel()
	return r.feed.Source.Start(ctx)
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// drain hands over everything that the heads promise, a page at a time.
func (r *run) drain(ctx context.Context, heads map[event.PartitionID]ports.Head) (given int, err error) {
	for {
		events, cursors, more, err := r.read(ctx, heads)
		if err != nil {
			return given, err
		}
		if len(events) > 0 {
			if r.state == Idle {
				r.become(Live)
			}
			if err := r.feed.Sink.Events(ctx, events, cursors); err != nil {
				return given, err
			}
			given += len(events)
			r.told = cursors[len(cursors)-1]
			age := r.service.config.Clock.Now().Sub(events[len(events)-1].RecordedAt)
			r.service.config.Observer.FeedDelivered(r.feed.Transport, len(events), age)
			r.set(&r.heartbeat, r.service.config.Heartbeat)
		}
		if !more {
			return given, nil
		}
		select {
		case <-ctx.Done():
			return given, nil
		case <-r.heartbeat.ring: // a long search through what does not fit
			err = r.beat(ctx)
		case <-r.review.ring:
			err = r.look(ctx)
		default:
		}
		if err != nil {
			return given, err
		}
	}
}

func (r *run) read(ctx context.Context, heads map[event.PartitionID]ports.Head) ([]event.Recorded, []string, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, r.service.config.ReadTimeout)
	defer cancel()
	return r.feed.Source.Read(ctx, heads, max(r.feed.Batch, 1))
}

// beat shows that the feed lives, with the position where it has moved unseen.
func (r *run) beat(ctx context.Context) error {
	if r.state == Live {
		r.become(Idle)
	}
	cursor := r.feed.Source.Cursor()
	if cursor == r.told {
		cursor = ""
	}
	if err := r.feed.Sink.Heartbeat(ctx, cursor); err != nil {
		return err
	}
	if cursor != "" {
		r.told = cursor
	}
	r.set(&r.heartbeat, r.service.config.Heartbeat)
	return nil
}

// look asks whether the reader may still read.
func (r *run) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.service.config.ReadTimeout)
	defer cancel()
	if r.feed.Review != nil {
		if err := r.feed.Review(ctx); err != nil {
			return err
		}
	}
	r.setReview()
	return nil
}

type nobodyWatches struct{}

func (nobodyWatches) FeedState(string, string, string)         {}
func (nobodyWatches) FeedDelivered(string, int, time.Duration) {}
func (nobodyWatches) FeedEnded(string, string)                 {}
