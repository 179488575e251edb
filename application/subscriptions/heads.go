package subscriptions

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// HeadWatcherConfig is what a HeadWatcher needs.
type HeadWatcherConfig struct {
	Heads   ports.HeadReader
	WakeUps ports.WakeUps // nil: poll only
	Logger  *slog.Logger  // nil: silent
	Clock   ports.Clock
	Poll    time.Duration // how often to read the heads where signals may be missing
	Quiet   time.Duration // how often to read them while signals announce every event; less than Poll is Poll
}

const (
	// minReadInterval lies between two reads, however many signals arrive: a burst of appends
	// costs one query.
	minReadInterval = 5 * time.Millisecond
	// readTimeout ends a read whose connection is dead: the next one opens another.
	readTimeout = 5 * time.Second
)

// HeadWatcher reads the heads of all partitions for every reader on the node that waits for
// events: two hundred idle subscriptions cost the database one query per interval. A signal
// only makes it query earlier. While signals announce every event it queries every Quiet,
// which bounds the delay of the first event whose signal is lost; from then on it queries
// every Poll.
type HeadWatcher struct {
	config HeadWatcherConfig
	signal chan struct{}

	unannouncedAt time.Time // when a query last found events that no signal had announced, at first the start of Run; by Run only

	mu       sync.Mutex
	heads    map[event.PartitionID]ports.Head // replaced, never changed
	changed  chan struct{}                    // closed when heads is replaced
	lastRead time.Time
}

// NewHeadWatcher makes a HeadWatcher, which has no heads until it runs. It refuses a Poll that is
// not positive.
func NewHeadWatcher(c HeadWatcherConfig) (*HeadWatcher, error) {
	if err := fault.RequirePositive("subscriptions.HeadWatcherConfig", struct{ Poll time.Duration }{c.Poll}); err != nil {
		return nil, err
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return &HeadWatcher{
		config: c, signal: make(chan struct{}, 1), heads: map[event.PartitionID]ports.Head{}, changed: make(chan struct{}),
	}, nil
}

// Heads returns the heads as last read and a channel that is closed as soon as any partition
// has grown beyond them. The map is shared: callers must not change it. A caller that takes
// both, reads, and then waits for the channel misses no event.
func (w *HeadWatcher) Heads() (map[event.PartitionID]ports.Head, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.heads, w.changed
}

// LastRead is when the store last answered, zero before the first time. A node whose
// HeadWatcher has stopped delivers nothing.
func (w *HeadWatcher) LastRead() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lastRead
}

// Wake makes the HeadWatcher query at once.
func (w *HeadWatcher) Wake() {
	select {
	case w.signal <- struct{}{}:
	default: // a signal is pending
	}
}

// Run watches until ctx ends.
func (w *HeadWatcher) Run(ctx context.Context) {
	var listening sync.WaitGroup
	if w.config.WakeUps != nil {
		listening.Go(func() {
			err := w.config.WakeUps.Listen(ctx, func(event.PartitionID) { w.Wake() })
			if err != nil && ctx.Err() == nil {
				w.config.Logger.WarnContext(ctx, "wake-up signals ended; polling only", "error", err.Error())
			}
		})
	}
	defer listening.Wait()
	w.unannouncedAt = time.Now()
	poll := time.NewTimer(w.config.Poll)
	defer poll.Stop()
	rest := time.NewTimer(0)
	defer rest.Stop()
	announced := true
	for ctx.Err() == nil {
		// The minimum interval passes before the wait, so a signal during it is handled right after.
		select {
		case <-ctx.Done():
			return
		case <-rest.C:
		}
		if grown := w.refresh(ctx); grown && !announced {
			w.unannouncedAt = time.Now()
		}
		rest.Reset(minReadInterval)
		poll.Reset(w.interval())
		select {
		case <-ctx.Done():
		case <-poll.C:
			announced = false
		case <-w.signal:
			announced = true
		}
	}
}

// unannouncedPeriod is how long the HeadWatcher queries every Poll after it found events that no
// signal had announced, since more signals may be missing. A query just before a signal
// arrives has the same effect.
const unannouncedPeriod = time.Minute

// interval is how long to wait for a signal before the next query.
func (w *HeadWatcher) interval() time.Duration {
	if w.config.WakeUps == nil || time.Since(w.unannouncedAt) < unannouncedPeriod {
		return w.config.Poll
	}
	return max(w.config.Quiet, w.config.Poll)
}

// refresh reads the heads and reports whether any of them has moved.
func (w *HeadWatcher) refresh(ctx context.Context) (grown bool) {
	within, cancel := context.WithTimeout(ctx, readTimeout)
	heads, err := w.config.Heads.PartitionHeads(within)
	cancel()
	if err != nil {
		if ctx.Err() == nil {
			w.config.Logger.WarnContext(ctx, "the heads could not be read; they will be read again", "code", fault.CodeOf(err))
		}
		w.unannouncedAt = time.Now() // signals may be lost too
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lastRead = w.config.Clock.Now()
	if maps.EqualFunc(w.heads, heads, func(a, b ports.Head) bool { return a.Sequence == b.Sequence }) {
		return false
	}
	w.heads = heads
	close(w.changed)
	w.changed = make(chan struct{})
	return true
}
