package erasure

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/erpbackbone/backbone/application/requests"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

const (
	waitInterval  = 200 * time.Millisecond // between attempts at a step that waits for a condition
	maxWait       = 30 * time.Second       // for a condition until the attempt counts as failed
	maxConcurrent = 4
	maxListed     = 1000
	followUpEvery = time.Hour
)

// Worker executes approved requests. Several workers, on several nodes, may work on one
// register.
type Worker struct {
	requests.Signal
	config   Config
	released chan struct{}

	mu           sync.Mutex
	pending      map[event.ID]*pending
	idle         bool // the last poll found no open request
	lastFollowUp time.Time
}

// pending is the state of an open request in this process.
type pending struct {
	running bool
	due     time.Time              // of the next attempt
	state   shredding.ErasureState // in which the request waits for a condition
	since   time.Time              // when it began to wait in that state

	recorded int // revision whose event is in the log; of the goroutine that runs its steps
}

// NewWorker makes a Worker. It refuses periods that are not positive.
func NewWorker(c Config) (*Worker, error) {
	c, err := c.complete()
	return &Worker{Signal: requests.NewSignal(), config: c, released: make(chan struct{}, 1), pending: map[event.ID]*pending{}}, err
}

// Run executes requests until ctx ends, and returns when its steps have stopped. Another
// worker, or a later Run, continues the unfinished requests.
func (w *Worker) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	slots := make(chan struct{}, maxConcurrent)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.released: // a request may be due before the next poll
			timer.Reset(w.pause())
			continue
		case <-timer.C:
		case <-w.Signal:
		}
		if ctx.Err() != nil {
			return
		}
		w.maybeFollowUp(ctx)
		for _, r := range w.due(ctx) {
			running.Go(func() {
				defer w.release(r.ID)
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

// openRequests lists the requests that have not ended: first those that wait for a person,
// then those with a step to run, both newest first. It reads them separately, so that many
// waiting requests do not displace one with a step to run.
func (w *Worker) openRequests(ctx context.Context) ([]ports.ErasureRequest, error) {
	var working []shredding.ErasureState
	for _, state := range shredding.ErasureStates() {
		if !state.Final() && state != shredding.ErasurePreviewed {
			working = append(working, state)
		}
	}
	waitingForPerson, err := w.config.Register.Erasures(ctx, "", []shredding.ErasureState{shredding.ErasurePreviewed}, maxListed)
	if err != nil {
		return nil, err
	}
	running, err := w.config.Register.Erasures(ctx, "", working, maxListed)
	return append(waitingForPerson, running...), err
}

// due claims the requests to advance now, the oldest first, so that receipts are signed in
// the order of their numbers.
func (w *Worker) due(ctx context.Context) []ports.ErasureRequest {
	open, err := w.openRequests(ctx)
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
		if r.State == shredding.ErasurePreviewed && refusalReason(r.Classes) == "" {
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

// release ends the claim of due.
func (w *Worker) release(id event.ID) {
	w.mu.Lock()
	w.pending[id].running = false
	w.mu.Unlock()
	select {
	case w.released <- struct{}{}:
	default: // it is signalled already
	}
}

// idlePolls is after how many periods of Poll an idle worker polls again. An approval on
// this node wakes the worker at once, one on another node does not.
const idlePolls = 5

// pause returns how long to sleep: until the next request is due, at most Poll, or longer
// while no request is open.
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

// waiting is the error of a step whose condition does not hold yet.
type waiting struct{ code string }

func (w waiting) Error() string { return "waiting: " + w.code }

func waitFor(code string) error { return waiting{code} }

// advance runs step after step until the request has ended, waits or fails.
func (w *Worker) advance(ctx context.Context, r ports.ErasureRequest) {
	for ctx.Err() == nil {
		next, err := w.runStep(ctx, r)
		if fault.CodeOf(err) == "erasure.changed" { // another worker moved it first
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
			kind.LogMove(ctx, w.config.Logger, r.ID, string(r.State), string(next.State))
		}
		w.resetPending(r.ID)
		if next.State.Final() || next.State == shredding.ErasurePreviewed && refusalReason(next.Classes) == "" {
			return
		}
		r = next
	}
}

// runStep runs one step and turns a panic into a failure of the request.
func (w *Worker) runStep(ctx context.Context, r ports.ErasureRequest) (next ports.ErasureRequest, err error) {
	panicked := fault.New(fault.Internal, "erasure.panicked", "the step panicked; look for the stack in the server's log, then report this defect")
	defer kind.RecoverStep(ctx, w.config.Logger, r.ID, string(r.State), panicked, &err)
	w.mu.Lock()
	recorded := &w.pending[r.ID].recorded
	w.mu.Unlock()
	return w.config.step(ctx, r, recorded)
}

func (w *Worker) resetPending(id event.ID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.pending[id]
	p.due, p.state, p.since = time.Time{}, "", time.Time{}
}

// postpone schedules the next attempt: soon if the step waits for a condition, after growing
// pauses if it failed. It never gives up a request.
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
		keepsWaiting := wait.code == waitEviction || now.Sub(p.since) < maxWait
		if keepsWaiting {
			p.due = now.Add(waitInterval)
		}
		w.mu.Unlock()
		if keepsWaiting {
			return
		}
	}
	attempts, noteErr := w.config.Register.NoteErasureFailure(ctx, r.ID, code)
	if noteErr != nil { // the register is unavailable too
		attempts = r.Attempts + 1
	}
	w.mu.Lock()
	w.pending[r.ID].due = now.Add(requests.Backoff(attempts))
	w.mu.Unlock()
	w.config.Observer.ErasureFailed(string(r.State))
	kind.LogFailure(ctx, w.config.Logger, r.ID, string(r.State), code, attempts)
}

// maybeFollowUp requests the erasure of classes whose retention or hold is over, at most
// every followUpEvery. The new request needs its own approval.
func (w *Worker) maybeFollowUp(ctx context.Context) {
	now := w.config.now()
	w.mu.Lock()
	isDue := now.Sub(w.lastFollowUp) >= followUpEvery
	if isDue {
		w.lastFollowUp = now
	}
	w.mu.Unlock()
	if !isDue {
		return
	}
	if err := w.config.recordLeft(ctx); err != nil && ctx.Err() == nil {
		w.config.Logger.WarnContext(ctx, "moves of erasures could not be recorded", "code", fault.CodeOf(err))
	}
	if err := w.config.requestFollowUps(ctx, now); err != nil && ctx.Err() == nil {
		w.config.Logger.WarnContext(ctx, "follow-ups of ended erasures could not be requested", "code", fault.CodeOf(err))
	}
}
