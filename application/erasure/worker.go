package erasure

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

const (
	recheck       = 200 * time.Millisecond // of a step that waits for others
	patience      = 30 * time.Second       // until waiting counts as a failure
	firstBackoff  = time.Second
	maxBackoff    = time.Minute
	concurrent    = 4
	maxOpen       = 1000
	followUpEvery = time.Hour
)

// Worker carries approved requests out. Any number of workers, on any number of
// nodes, may work on one register.
type Worker struct {
	config Config
	woken  chan struct{}
	rested chan struct{}

	mu       sync.Mutex
	pending  map[event.ID]*pending
	idle     bool // there was no open request at the last look
	followed time.Time
}

// pending is what this process remembers of a request between two looks.
type pending struct {
	running bool
	due     time.Time
	state   shredding.ErasureState // in which it waits or failed
	since   time.Time              // when it began to wait in it
}

// NewWorker makes a Worker.
func NewWorker(c Config) *Worker {
	return &Worker{config: c.withDefaults(), woken: make(chan struct{}, 1), rested: make(chan struct{}, 1), pending: map[event.ID]*pending{}}
}

// Wake makes the worker look at once.
func (w *Worker) Wake() {
	select {
	case w.woken <- struct{}{}:
	default: // told already
	}
}

// Run works until ctx ends, and returns when everything it began has stopped. What
// is unfinished is finished by the next one.
func (w *Worker) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	slots := make(chan struct{}, concurrent)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.rested: // a request may be due before the next poll
			timer.Reset(w.pause())
			continue
		case <-timer.C:
		case <-w.woken:
		}
		w.followUp(ctx)
		for _, r := range w.due(ctx) {
			running.Go(func() {
				defer w.rest(r.ID)
				select {
				case slots <- struct{}{}:
					defer func() { <-slots }()
					w.advance(ctx, r)
				case <-ctx.Done():
				}
			})
		}
		timer.Reset(w.pause())
	}
}

// RunOnce takes every open request as far as it goes without waiting, one after the
// other.
func (w *Worker) RunOnce(ctx context.Context) {
	w.followUp(ctx)
	for _, r := range w.due(ctx) {
		func() {
			defer w.rest(r.ID)
			w.advance(ctx, r)
		}()
	}
}

// open lists the requests that have not ended, those that wait for a person
// first, each sort newest first; no number of the former hides one with work to do.
func (w *Worker) open(ctx context.Context) ([]ports.ErasureRequest, error) {
	var working []shredding.ErasureState
	for _, state := range shredding.ErasureStates() {
		if !state.Final() && state != shredding.ErasurePreviewed {
			working = append(working, state)
		}
	}
	waiting, err := w.config.Register.Erasures(ctx, "", []shredding.ErasureState{shredding.ErasurePreviewed}, maxOpen)
	if err != nil {
		return nil, err
	}
	atWork, err := w.config.Register.Erasures(ctx, "", working, maxOpen)
	return append(waiting, atWork...), err
}

// due claims the requests to look at now, the oldest first, so that receipts are
// signed in their order.
func (w *Worker) due(ctx context.Context) []ports.ErasureRequest {
	open, err := w.open(ctx)
	if err != nil {
		if ctx.Err() == nil {
			w.config.Logger.WarnContext(ctx, "erasure requests could not be read", "code", fault.CodeOf(err))
		}
		return nil
	}
	w.observe(open)
	now := w.config.Clock.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.idle = len(open) == 0
	known := make(map[event.ID]bool, len(open))
	var out []ports.ErasureRequest
	for i := len(open) - 1; i >= 0; i-- {
		r := open[i]
		known[r.ID] = true
		if r.State == shredding.ErasurePreviewed && refusedWholly(r.Classes) == "" {
			continue // it waits for a person
		}
		p := w.pending[r.ID]
		if p == nil {
			p = &pending{}
			w.pending[r.ID] = p
		}
		if p.running || now.Before(p.due) {
			continue
		}
		p.running = true
		out = append(out, r)
	}
	for id, p := range w.pending {
		if !known[id] && !p.running {
			delete(w.pending, id)
		}
	}
	return out
}

func (w *Worker) observe(open []ports.ErasureRequest) {
	byState, oldest := map[string]int{}, time.Time{}
	for _, r := range open {
		byState[string(r.State)]++
		if due := r.DueOn.Time(); oldest.IsZero() || due.Before(oldest) {
			oldest = due
		}
	}
	w.config.Observer.ErasureRequests(byState, oldest)
}

func (w *Worker) rest(id event.ID) {
	w.mu.Lock()
	w.pending[id].running = false
	w.mu.Unlock()
	select {
	case w.rested <- struct{}{}:
	default: // told already
	}
}

// idlePolls is how many polls are skipped for one while no request is open. A request
// that is made on this node ends the pause; one of another node waits for its end.
const idlePolls = 5

// pause is how long to sleep: until the next request is due, at most a poll.
func (w *Worker) pause() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	wait, now := w.config.Poll, w.config.Clock.Now()
	if w.idle {
		wait = min(idlePolls*wait, max(wait, idlePolls*time.Second))
	}
	for _, p := range w.pending {
		if !p.due.IsZero() && !p.running {
			wait = min(wait, max(p.due.Sub(now), 10*time.Millisecond))
		}
	}
	return wait
}

// waiting says that a step cannot be done yet because others are not ready.
type waiting struct{ code string }

func (w waiting) Error() string { return "waiting: " + w.code }

func waitFor(code string) error { return waiting{code} }

// advance does step after step until the request has ended, waits or fails.
func (w *Worker) advance(ctx context.Context, r ports.ErasureRequest) {
	for ctx.Err() == nil {
		next, err := w.guarded(ctx, r)
		if fault.CodeOf(err) == "erasure.changed" { // another worker was faster
			next, err = w.config.Register.Erasure(ctx, r.TenantID, r.ID)
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			w.postpone(ctx, r, err)
			return
		}
		if next.State == r.State && next.Revision == r.Revision {
			return // it waits for a person
		}
		if next.State != r.State {
			w.config.Logger.InfoContext(ctx, "erasure moved", "request", r.ID.String(), "from", string(r.State), "to", string(next.State))
		}
		w.clear(r.ID)
		if next.State.Final() || next.State == shredding.ErasurePreviewed && refusedWholly(next.Classes) == "" {
			return
		}
		r = next
	}
}

// guarded turns a bug, such as one in a read model, into a failure of the request at
// hand. The panic's value may quote an event, so only its place is logged.
func (w *Worker) guarded(ctx context.Context, r ports.ErasureRequest) (next ports.ErasureRequest, err error) {
	defer func() {
		if v := recover(); v != nil {
			w.config.Logger.ErrorContext(ctx, "erasure panicked", "request", r.ID.String(), "state", string(r.State), "type", fmt.Sprintf("%T", v), "stack", string(debug.Stack()))
			err = fault.New(fault.Internal, "erasure.panicked", "the step stopped on a bug; look for its place in the log")
		}
	}()
	return w.config.step(ctx, r)
}

func (w *Worker) clear(id event.ID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.pending[id]
	p.due, p.state, p.since = time.Time{}, "", time.Time{}
}

// postpone plans the next attempt: soon if others are not ready, later and later
// after failures, for ever. Nothing is skipped.
func (w *Worker) postpone(ctx context.Context, r ports.ErasureRequest, err error) {
	now := w.config.Clock.Now()
	code := fault.CodeOf(err)
	var wait waiting
	if errors.As(err, &wait) {
		code = wait.code
		w.mu.Lock()
		p := w.pending[r.ID]
		if p.state != r.State {
			p.state, p.since = r.State, now
		}
		patient := wait.code == waitEviction || now.Sub(p.since) < patience
		if patient {
			p.due = now.Add(recheck)
		}
		w.mu.Unlock()
		if patient {
			return
		}
	}
	attempts, noteErr := w.config.Register.NoteErasureFailure(ctx, r.ID, code)
	if noteErr != nil { // the register is away too: go by what was known
		attempts = r.Attempts + 1
	}
	backoff := min(firstBackoff<<min(max(attempts-1, 0), 10), maxBackoff)
	w.mu.Lock()
	w.pending[r.ID].due = now.Add(backoff)
	w.mu.Unlock()
	w.config.Observer.ErasureFailed(string(r.State))
	level, message := slog.LevelWarn, "erasure step failed; it will be tried again"
	if attempts >= AlarmAttempts {
		level, message = slog.LevelError, "erasure is stuck; somebody has to look"
	}
	w.config.Logger.Log(ctx, level, message, "request", r.ID.String(), "state", string(r.State), "code", code, "attempts", attempts, "retry_in", backoff.String())
}

// followUp requests again what retention or a hold with an end refused, once that is
// over. The new request needs an approval of its own.
func (w *Worker) followUp(ctx context.Context) {
	now := w.config.now()
	w.mu.Lock()
	early := now.Sub(w.followed) < followUpEvery
	if !early {
		w.followed = now
	}
	w.mu.Unlock()
	if early {
		return
	}
	if err := w.config.followUps(ctx, now); err != nil && ctx.Err() == nil {
		w.config.Logger.WarnContext(ctx, "refused erasures could not be looked through", "code", fault.CodeOf(err))
	}
}
