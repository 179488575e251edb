// Package live pushes events to connected readers as they are recorded.
//
// Service runs a Feed per connection. A feed reads from its Source (query.AllFeed or
// query.StreamFeed), writes to its Sink (an SSE or WebSocket connection of
// adapters/httpapi), catches up from the reader's last cursor, reports once that it has
// caught up, and then delivers new events when Heads reports growth. A slow sink slows its
// reading down: at most one page is in memory. A waiting feed holds no database connection
// and sends no query. The package never decides what a reader may see: the source and
// Feed.CheckAccess do.
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

// Heads watches the heads of all partitions.
type Heads interface {
	// Heads returns the heads, which callers must not change, and a channel that is closed
	// as soon as any partition grows beyond them.
	Heads() (map[event.PartitionID]ports.Head, <-chan struct{})
}

// Source reads the log from a position that it maintains.
type Source interface {
	// Start checks the position and returns the store's current heads.
	Start(ctx context.Context) (map[event.PartitionID]ports.Head, error)
	// Read returns at most count of the next events, with the cursor after each, and whether
	// more events up to heads remain. It sends no query if the position has reached heads.
	Read(ctx context.Context, heads map[event.PartitionID]ports.Head, count int) (events []event.Recorded, cursors []string, more bool, err error)
	// Cursor returns the position.
	Cursor() string
}

// Sink is the connection to the reader. Its methods return once the data is sent, or
// TooSlow if the reader does not take it in time.
type Sink interface {
	Events(ctx context.Context, events []event.Recorded, cursors []string) error
	// CaughtUp is called once, when all events up to the heads of Source.Start were
	// delivered.
	CaughtUp(ctx context.Context, cursor string) error
	// Heartbeat is called after a while without events; cursor is "" if it has not changed.
	Heartbeat(ctx context.Context, cursor string) error
}

// The states of a feed. After catching up, a feed is Live while events arrive and Idle
// otherwise.
const (
	CatchingUp   = "catching_up"
	Live         = "live"
	Idle         = "idle"
	Disconnected = "disconnected"
)

// Observer is notified of the states and deliveries of feeds.
type Observer interface {
	// FeedState reports a change of state; from is "" for a new feed.
	FeedState(transport, from, to string)
	// FeedDelivered reports delivered events and the age of the newest.
	FeedDelivered(transport string, events int, age time.Duration)
	// FeedEnded reports the code of the fault that a feed ended with; "" if the reader
	// disconnected.
	FeedEnded(transport, code string)
}

// Config is what a Service needs.
type Config struct {
	Heads    Heads
	Clock    ports.Clock
	Observer Observer // nil: none
	Limits
}

// Limits are settings of a Service. All must be positive.
type Limits struct {
	Heartbeat           time.Duration // time without events after which a heartbeat is sent
	AccessCheckInterval time.Duration // between two checks of the reader's access
	PerPrincipal        int           // feeds of one principal on this node
	PerNode             int           // feeds on this node
}

// readTimeout bounds the read of a page, whose database connection may be dead.
const readTimeout = 30 * time.Second

// Service runs feeds.
type Service struct {
	config  Config
	closing context.Context
	close   context.CancelCauseFunc

	mu          sync.Mutex
	open        int
	byPrincipal map[string]int
	drained     chan struct{} // closed when the last feed has ended after Close
}

// New makes a Service. It refuses limits that are not positive.
func New(c Config) (*Service, error) {
	if err := fault.RequirePositive("live.Config", c.Limits); err != nil {
		return nil, err
	}
	if c.Observer == nil {
		c.Observer = discardObserver{}
	}
	s := &Service{config: c, byPrincipal: map[string]int{}, drained: make(chan struct{})}
	s.closing, s.close = context.WithCancelCause(context.Background())
	return s, nil
}

// ErrDisconnected is the result of a feed whose reader has disconnected.
var ErrDisconnected = errors.New("the reader disconnected")

// CodeStopping is the code of the fault that feeds end with when the node stops.
const CodeStopping = "feed.server_stopping"

func stoppingFault() error {
	return fault.New(fault.Unavailable, CodeStopping, "this server stops; connect again and go on with the last cursor").WithRetryAfter(time.Second)
}

// Enter counts a new feed of a principal; the caller calls leave when the feed has ended.
// Faults: feed.too_many, feed.server_stopping.
func (s *Service) Enter(principal string) (leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closing.Err() != nil:
		return nil, stoppingFault()
	case s.open >= s.config.PerNode:
		return nil, fault.New(fault.TooMany, "feed.too_many", "this server serves at most %d feeds; connect to another one, or try later", s.config.PerNode).WithRetryAfter(10 * time.Second)
	case s.byPrincipal[principal] >= s.config.PerPrincipal:
		return nil, fault.New(fault.TooMany, "feed.too_many", "one principal may have at most %d feeds on a server and you have as many; end one first", s.config.PerPrincipal).WithRetryAfter(10 * time.Second)
	}
	s.open++
	s.byPrincipal[principal]++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open--
		if s.byPrincipal[principal]--; s.byPrincipal[principal] == 0 {
			delete(s.byPrincipal, principal)
		}
		s.signalDrained()
	}), nil
}

// signalDrained wakes Close once no feed is left; the caller holds the lock.
func (s *Service) signalDrained() {
	if s.open > 0 || s.closing.Err() == nil {
		return
	}
	select {
	case <-s.drained:
	default:
		close(s.drained)
	}
}

// Close ends all feeds and waits until their readers are notified, or ctx ends.
func (s *Service) Close(ctx context.Context) error {
	s.mu.Lock()
	s.close(stoppingFault())
	s.signalDrained()
	s.mu.Unlock()
	select {
	case <-s.drained:
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
	// Expires is when the reader's token expires; zero: never. Access is checked then at the
	// latest.
	Expires time.Time
	// CheckAccess checks the reader's access again; an error ends the feed. nil: no check.
	CheckAccess func(ctx context.Context) error
}

// Run serves a feed until its reader disconnects, loses access or is too slow, or the
// service closes. It returns ErrDisconnected or a fault. The reader may reconnect with its
// last cursor: every event before it was delivered.
func (s *Service) Run(ctx context.Context, f Feed) (err error) {
	r := &activeFeed{service: s, feed: f, state: CatchingUp}
	s.config.Observer.FeedState(f.Transport, "", CatchingUp)
	ctx, cancel := context.WithCancelCause(ctx)
	unlink := context.AfterFunc(s.closing, func() { cancel(context.Cause(s.closing)) })
	defer func() {
		unlink()
		if err == nil || ctx.Err() != nil && fault.CodeOf(err) != CodeTooSlow {
			err = endReason(ctx)
		}
		cancel(nil)
		r.setState(Disconnected)
		code := ""
		if !errors.Is(err, ErrDisconnected) {
			code = fault.CodeOf(err)
		}
		s.config.Observer.FeedEnded(f.Transport, code)
	}()
	return r.serve(ctx)
}

// CodeTooSlow is the code of TooSlow.
const CodeTooSlow = "feed.reader_too_slow"

// TooSlow is the fault of a Sink whose reader did not take its data in time.
func TooSlow(cause error) error {
	return fault.New(fault.Timeout, CodeTooSlow, "the reader did not take its events in time; connect again, go on with the last cursor, and read faster").WithCause(cause)
}

// endReason is the fault that a context was cancelled with, else ErrDisconnected.
func endReason(ctx context.Context) error {
	if f, ok := fault.As(context.Cause(ctx)); ok {
		return f
	}
	return ErrDisconnected
}

// activeFeed is a feed while it is served.
type activeFeed struct {
	service        *Service
	feed           Feed
	state          string
	reportedCursor string // the last cursor that was sent to the reader
	heartbeat      *time.Timer
	accessCheck    *time.Timer
}

// untilAccessCheck is the time until the reader's access has to be checked again.
func (r *activeFeed) untilAccessCheck() time.Duration {
	d := r.service.config.AccessCheckInterval
	if !r.feed.Expires.IsZero() {
		d = max(min(d, r.feed.Expires.Sub(r.service.config.Clock.Now())), 0)
	}
	return d
}

func (r *activeFeed) setState(s string) {
	if s != r.state {
		r.service.config.Observer.FeedState(r.feed.Transport, r.state, s)
		r.state = s
	}
}

// serve catches up and then delivers new events. It takes the heads and the channel of
// their growth before it reads: an event that is recorded during the read is either read
// or has closed the channel, so no event is missed between catching up and following. The
// source's position alone decides what is read next, so no event is delivered twice.
func (r *activeFeed) serve(ctx context.Context) error {
	r.heartbeat = time.NewTimer(r.service.config.Heartbeat)
	defer r.heartbeat.Stop()
	r.accessCheck = time.NewTimer(r.untilAccessCheck())
	defer r.accessCheck.Stop()
	_, grown := r.service.config.Heads.Heads()
	heads, err := r.start(ctx)
	if err != nil {
		return err
	}
	for {
		delivered, err := r.deliverPending(ctx, heads)
		if err != nil || ctx.Err() != nil {
			return err
		}
		if r.state == CatchingUp && delivered > r.feed.Batch && ports.TryReceive(grown) {
			heads, grown = r.service.config.Heads.Heads() // the log has grown while catching up
			continue
		}
		if r.state == CatchingUp {
			r.reportedCursor = r.feed.Source.Cursor()
			if err := r.feed.Sink.CaughtUp(ctx, r.reportedCursor); err != nil {
				return err
			}
			r.setState(Idle)
		}
		if ports.TryReceive(grown) { // before a heartbeat that is due as well
			heads, grown = r.service.config.Heads.Heads()
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-grown:
			heads, grown = r.service.config.Heads.Heads()
		case <-r.heartbeat.C:
			err = r.sendHeartbeat(ctx)
		case <-r.accessCheck.C:
			err = r.checkAccess(ctx)
		}
		if err != nil {
			return err
		}
	}
}

func (r *activeFeed) start(ctx context.Context) (map[event.PartitionID]ports.Head, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	return r.feed.Source.Start(ctx)
}

// deliverPending delivers all events up to heads, page by page.
func (r *activeFeed) deliverPending(ctx context.Context, heads map[event.PartitionID]ports.Head) (delivered int, err error) {
	for {
		events, cursors, more, err := r.read(ctx, heads)
		if err != nil {
			return delivered, err
		}
		if len(events) > 0 {
			if r.state == Idle {
				r.setState(Live)
			}
			if err := r.feed.Sink.Events(ctx, events, cursors); err != nil {
				return delivered, err
			}
			delivered += len(events)
			r.reportedCursor = cursors[len(cursors)-1]
			age := r.service.config.Clock.Now().Sub(events[len(events)-1].RecordedAt)
			r.service.config.Observer.FeedDelivered(r.feed.Transport, len(events), age)
			r.heartbeat.Reset(r.service.config.Heartbeat)
		}
		if !more {
			return delivered, nil
		}
		switch {
		case ports.TryReceive(ctx.Done()):
			return delivered, nil
		case ports.TryReceive(r.heartbeat.C): // a long search without matching events
			err = r.sendHeartbeat(ctx)
		case ports.TryReceive(r.accessCheck.C):
			err = r.checkAccess(ctx)
		}
		if err != nil {
			return delivered, err
		}
	}
}

func (r *activeFeed) read(ctx context.Context, heads map[event.PartitionID]ports.Head) ([]event.Recorded, []string, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	return r.feed.Source.Read(ctx, heads, max(r.feed.Batch, 1))
}

// sendHeartbeat sends a heartbeat, with the cursor if it moved past events that the
// filters left out.
func (r *activeFeed) sendHeartbeat(ctx context.Context) error {
	if r.state == Live {
		r.setState(Idle)
	}
	cursor := r.feed.Source.Cursor()
	if cursor == r.reportedCursor {
		cursor = ""
	}
	if err := r.feed.Sink.Heartbeat(ctx, cursor); err != nil {
		return err
	}
	if cursor != "" {
		r.reportedCursor = cursor
	}
	r.heartbeat.Reset(r.service.config.Heartbeat)
	return nil
}

// checkAccess ends the feed with an error if the reader has lost access.
func (r *activeFeed) checkAccess(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	if r.feed.CheckAccess != nil {
		if err := r.feed.CheckAccess(ctx); err != nil {
			return err
		}
	}
	r.accessCheck.Reset(r.untilAccessCheck())
	return nil
}

type discardObserver struct{}

func (discardObserver) FeedState(string, string, string)         {}
func (discardObserver) FeedDelivered(string, int, time.Duration) {}
func (discardObserver) FeedEnded(string, string)                 {}
