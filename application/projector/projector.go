// Package projector keeps read models in step with the log: one worker per
// projection, woken by signals and by a poll, advancing partition after partition
// with checkpoint and read model in one transaction.
package projector

import (
	"context"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// Config is what a Runner needs.
type Config struct {
	Store    ports.Projections
	WakeUps  ports.WakeUps // nil: poll only
	Logger   *slog.Logger
	Clock    ports.Clock
	Observer Observer      // nil: nobody watches
	Poll     time.Duration // how often to look without a signal
	Batch    int           // events per transaction
}

// Observer sees how far projections are behind.
type Observer interface {
	// ProjectionLag reports a partition's lag in events and, by recording time, in
	// seconds.
	ProjectionLag(projection string, p event.PartitionID, events uint64, seconds float64)
	// ProjectionFailed reports an attempt that was rolled back.
	ProjectionFailed(projection string, p event.PartitionID)
}

// Runner drives projections.
type Runner struct {
	config  Config
	workers []*worker
}

type worker struct {
	projection module.Projection
	handler    ports.ProjectionHandler
	wake       chan struct{}

	mu      sync.Mutex
	reached map[event.PartitionID]ports.Checkpoint
	retry   map[event.PartitionID]backoff
}

// backoff holds a failing partition back, so that it does not stop the others.
type backoff struct {
	wait  time.Duration
	until time.Time
}

const (
	firstBackoff = time.Second
	maxBackoff   = time.Minute
)

// New binds declared projections to their handlers. Fault projection.unbound for
// one without a handler.
func New(c Config, projections []module.Projection, handlers map[string]ports.ProjectionHandler) (*Runner, error) {
	if c.Poll == 0 {
		c.Poll = 500 * time.Millisecond
	}
	if c.Batch == 0 {
		c.Batch = 500
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	r := &Runner{config: c}
	for _, p := range projections {
		h := handlers[p.Name]
		if h == nil {
			return nil, fault.New(fault.Internal, "projection.unbound", "projection %s has no handler; bind one in the composition root", p.Name)
		}
		r.workers = append(r.workers, &worker{
			projection: p, handler: guarded{h, p.Name, c.Logger}, wake: make(chan struct{}, 1),
			reached: map[event.PartitionID]ports.Checkpoint{}, retry: map[event.PartitionID]backoff{},
		})
	}
	return r, nil
}

// guarded turns a handler's panic into a failure of the partition at hand, so that
// a bug in one read model stops neither the process nor the others.
type guarded struct {
	ports.ProjectionHandler
	projection string
	logger     *slog.Logger
}

// Apply implements ports.ProjectionHandler. Fault projection.panicked; the panic's
// value may quote an event, so only the place is logged.
func (g guarded) Apply(ctx context.Context, tx ports.ProjectionTx, events []event.Recorded) (err error) {
	defer func() {
		if recover() != nil {
			g.logger.ErrorContext(ctx, "projection panicked", "projection", g.projection, "stack", string(debug.Stack()))
			err = fault.New(fault.Internal, "projection.panicked", "projection %s stopped on a bug; look for its place in the log", g.projection)
		}
	}()
	return g.ProjectionHandler.Apply(ctx, tx, events)
}

// Run works until ctx ends.
func (r *Runner) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for _, w := range r.workers {
		wg.Go(func() { r.work(ctx, w) })
	}
	if r.config.WakeUps != nil {
		wg.Go(func() {
			err := r.config.WakeUps.Listen(ctx, func(event.PartitionID) { r.Wake() })
			if err != nil && ctx.Err() == nil {
				r.config.Logger.WarnContext(ctx, "wake-up signals ended; polling only", "error", err.Error())
			}
		})
	}
	wg.Wait()
}

// Wake makes every worker look at once.
func (r *Runner) Wake() {
	for _, w := range r.workers {
		select {
		case w.wake <- struct{}{}:
		default: // already told
		}
	}
}

func (r *Runner) work(ctx context.Context, w *worker) {
	tick := time.NewTicker(r.config.Poll)
	defer tick.Stop()
	for {
		r.catchUp(ctx, w)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-w.wake:
		}
	}
}

// catchUp advances every partition that has something new.
func (r *Runner) catchUp(ctx context.Context, w *worker) {
	heads, err := r.config.Store.PartitionHeads(ctx)
	if err != nil {
		r.config.Logger.WarnContext(ctx, "projection could not read the heads", "projection", w.projection.Name, "code", fault.CodeOf(err))
		return
	}
	if err := w.load(ctx, r.config.Store); err != nil {
		r.config.Logger.WarnContext(ctx, "projection could not read its checkpoints", "projection", w.projection.Name, "code", fault.CodeOf(err))
		return
	}
	for p, head := range heads {
		for ctx.Err() == nil && w.position(p) < head.Sequence && w.due(p, r.config.Clock.Now()) {
			if !r.advance(ctx, w, p) {
				break
			}
		}
		r.observe(w, p, head)
	}
}

// load fills the checkpoints in once.
func (w *worker) load(ctx context.Context, store ports.Projections) error {
	w.mu.Lock()
	known := len(w.reached) > 0
	w.mu.Unlock()
	if known {
		return nil
	}
	all, err := store.Checkpoints(ctx, w.projection.Name, w.projection.Version)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range all {
		w.reached[c.Partition] = c
	}
	return nil
}

// advance does one transaction. It reports whether to go on with the partition.
func (r *Runner) advance(ctx context.Context, w *worker, p event.PartitionID) bool {
	c, n, err := r.config.Store.Advance(ctx, w.projection.Name, w.projection.Version, p, w.projection.EventTypes, r.config.Batch, w.handler)
	if err == nil {
		w.mu.Lock()
		w.reached[p] = c
		delete(w.retry, p)
		w.mu.Unlock()
		return n > 0
	}
	if ctx.Err() != nil {
		return false
	}
	w.mu.Lock()
	b := w.retry[p]
	b.wait = min(max(2*b.wait, firstBackoff), maxBackoff)
	b.until = r.config.Clock.Now().Add(b.wait)
	w.retry[p] = b
	w.mu.Unlock()
	r.config.Logger.ErrorContext(ctx, "projection failed; it will try again",
		"projection", w.projection.Name, "partition", uint32(p), "after_sequence", uint64(w.position(p)), "code", fault.CodeOf(err), "retry_in", b.wait.String())
	if r.config.Observer != nil {
		r.config.Observer.ProjectionFailed(w.projection.Name, p)
	}
	if err := r.config.Store.MarkFaulted(ctx, w.projection.Name, w.projection.Version, p, fault.CodeOf(err)); err != nil {
		r.config.Logger.WarnContext(ctx, "projection fault could not be recorded", "projection", w.projection.Name, "code", fault.CodeOf(err))
	}
	return false
}

func (r *Runner) observe(w *worker, p event.PartitionID, head ports.Head) {
	if r.config.Observer == nil {
		return
	}
	behind, seconds := uint64(0), 0.0
	if at := w.position(p); at < head.Sequence {
		behind = uint64(head.Sequence - at)
		seconds = r.config.Clock.Now().Sub(head.RecordedAt).Seconds()
	}
	r.config.Observer.ProjectionLag(w.projection.Name, p, behind, seconds)
}

func (w *worker) position(p event.PartitionID) event.Sequence {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reached[p].Sequence
}

func (w *worker) due(p event.PartitionID, now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	b, failing := w.retry[p]
	return !failing || !now.Before(b.until)
}

// Reached is how far this node's worker has got; another node may be further.
func (r *Runner) Reached(ctx context.Context, projection string, p event.PartitionID) (event.Sequence, error) {
	for _, w := range r.workers {
		if w.projection.Name != projection {
			continue
		}
		checkpoints, err := r.config.Store.Checkpoints(ctx, projection, w.projection.Version)
		if err != nil {
			return 0, err
		}
		for _, c := range checkpoints {
			if c.Partition == p {
				return c.Sequence, nil
			}
		}
		return 0, nil
	}
	return 0, fault.New(fault.NotFound, "projection.not_found", "there is no projection %q", projection)
}
