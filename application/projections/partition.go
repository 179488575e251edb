package projections

import (
	"context"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
)

// unit is one projection in one partition, guarded by the runner's mu.
type unit struct {
	owner        *running
	partition    event.PartitionID
	position     event.Sequence // how far it is known to be; another node may be further
	busy         bool           // queued or worked
	recheck      bool           // queueDue at it even if nothing is new
	halted       bool           // waits for an operator
	notBefore    time.Time      // no attempt before
	pause        time.Duration  // how long that was when it began
	outages      int            // failures in a row that were not the events' fault
	attempts     int            // failures in a row that may have been
	failingSince time.Time      // when the first of these was
	// While an event is isolated the batches are small and end at bound.
	isolating      bool
	isolationEnd   event.Sequence
	isolationBatch int

	blocked      int       // attempts in a row that met a lock of somebody else
	blockedSince time.Time // when the first of these was
	warned       bool      // that this lasts

	pendingSince time.Time // failingSince when something is new here; zero: nothing is
	attemptedAt  time.Time // when the last transaction began

	// oldest is the first event that it has not read, as far as the lag was measured.
	oldest struct {
		sequence   event.Sequence
		recordedAt time.Time
	}
}

// unit is the state of a partition, made at need.
func (p *running) unit(id event.PartitionID) *unit {
	u := p.units[id]
	if u == nil {
		u = &unit{owner: p, partition: id}
		p.units[id] = u
	}
	return u
}

// maxTurnBatches is how many transactions a unit may do before others get their turn.
const maxTurnBatches = 16

// queueDue queues what can be worked, and returns the leases that are needed for more, and
// how long until a pause ends.
func (r *Runner) queueDue(heads map[event.PartitionID]ports.Head, now time.Time) (missing []ports.LeaseResource, next time.Duration) {
	next = time.Hour
	asked := map[ports.LeaseResource]bool{}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.running {
		if !p.loaded || p.registered.Status != projection.Running {
			continue
		}
		for id, head := range heads {
			if !p.reads(id) {
				continue
			}
			u := p.unit(id)
			if u.position >= head.Sequence && (!u.recheck || head.Sequence == 0) {
				u.pendingSince, u.recheck = time.Time{}, false
				continue
			}
			if u.pendingSince.IsZero() {
				u.pendingSince = now
			}
			if u.busy || u.halted {
				continue
			}
			if wait := p.wait(u, head.Sequence, now); wait > 0 {
				next = min(next, wait)
				continue
			}
			resource := p.resourceOf(id)
			if !r.prefers(resource) {
				u.pendingSince = time.Time{}
				continue
			}
			if r.member != nil && !r.member.Use(resource) {
				if wait := r.member.RetryIn(resource); wait > 0 {
					next = min(next, wait)
				} else if !asked[resource] {
					asked[resource], missing = true, append(missing, resource)
				}
				continue
			}
			u.busy, u.recheck = true, false
			r.queue = append(r.queue, u)
		}
	}
	return missing, next
}

// wait is how long a unit has to wait: for the end of a pause, or for company.
func (p *running) wait(u *unit, head event.Sequence, now time.Time) time.Duration {
	if rest := remaining(now, u.notBefore, u.pause); rest > 0 {
		return rest
	}
	c := p.registered.Settings.Checkpoint
	if c.Mode != projection.Batched || u.recheck || head-u.position >= event.Sequence(c.Events) {
		return 0
	}
	wait := time.Duration(c.WaitMS) * time.Millisecond
	return remaining(now, u.pendingSince.Add(wait), wait)
}

// remaining is what is left of a pause. A clock that was set back since it began makes it
// no longer than it was.
func remaining(now, until time.Time, pause time.Duration) time.Duration {
	rest := until.Sub(now)
	if rest > pause {
		return 0
	}
	return max(rest, 0)
}

// start lets workers begin with what is queued.
func (r *Runner) start(ctx context.Context, heads map[event.PartitionID]ports.Head) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.busy < r.config.Workers {
		u, wait := r.dequeue()
		if u == nil {
			return
		}
		p := u.owner
		var lease *ports.Lease
		if r.member != nil {
			held, _, isHeld := r.member.Lease(p.resourceOf(u.partition))
			if !isHeld {
				u.busy, u.recheck = false, true // it was lost while the unit waited
				continue
			}
			lease = &held
		}
		blocked := u.blocked > 0
		r.countBusy(blocked, 1)
		settings, target := p.registered.Settings, heads[u.partition].Sequence
		r.working.Go(func() {
			r.workUnit(ctx, p, u, settings, lease, target, wait)
			r.observeUnit(ctx, u, heads)
			r.mu.Lock()
			u.busy = false
			r.countBusy(blocked, -1)
			r.mu.Unlock()
			r.Wake()
		})
	}
}

// workUnit advances a unit until it has caught up, fails, or others are due.
func (r *Runner) workUnit(ctx context.Context, p *running, u *unit, settings projection.Settings, lease *ports.Lease, target event.Sequence, wait time.Duration) {
	batches := maxTurnBatches
	if p.isCustom() {
		batches = customTurnBatches
	}
	for range batches {
		if ctx.Err() != nil || !r.step(ctx, p, u, settings, lease, target, wait) {
			return
		}
		r.mu.Lock()
		done := u.position >= target
		r.mu.Unlock()
		if done {
			return
		}
	}
}

// step does one transaction. It reports whether to go on.
func (r *Runner) step(ctx context.Context, p *running, u *unit, settings projection.Settings, lease *ports.Lease, target event.Sequence, wait time.Duration) bool {
	r.mu.Lock()
	at, limit := u.position, settings.BatchSize
	if limit == 0 {
		limit = r.config.Batch
	}
	if u.isolating {
		limit = u.isolationBatch
	} else if target > at {
		limit = min(limit, int(target-at)) // what fails is then known to be in these
	}
	u.attemptedAt = r.config.Clock.Now()
	r.mu.Unlock()
	work := ports.ProjectionWork{Projection: p.Name, Version: p.Version, Partition: u.partition, Lease: lease, LockWait: wait}
	c, passed, err := r.config.Store.Advance(ctx, ports.ProjectionAdvance{ProjectionWork: work, Types: p.EventTypes, Limit: limit, Bytes: r.config.Bytes}, p.handler)
	switch {
	case err == nil:
		return r.recordAdvance(ctx, p, u, c, passed)
	case ctx.Err() != nil:
		return false
	case fault.CodeOf(err) == projection.CodeFenced:
		if lease != nil {
			r.forgetLease(p, *lease)
		}
		r.mu.Lock()
		u.recheck = true
		r.mu.Unlock()
		return false
	case fault.CodeOf(err) == projection.CodeBusy:
		r.recordBlocked(ctx, p, u)
		return false
	case isTransient(err), c.Projection == "": // without a checkpoint nothing was tried
		r.recordOutage(ctx, p, u, settings, err)
		return false
	}
	return r.recordFailure(ctx, p, u, settings, work, c, at, limit, err)
}

// isTransient tells whether an attempt failed for something that has nothing to do with
// the events: it does not count against them.
func isTransient(err error) bool {
	switch fault.KindOf(err) {
	case fault.Unavailable, fault.Timeout, fault.TooMany:
		_, said := fault.As(err)
		return said
	default:
		return false
	}
}

func (r *Runner) recordAdvance(ctx context.Context, p *running, u *unit, c ports.Checkpoint, passed int) bool {
	r.mu.Lock()
	u.position, u.halted = c.Sequence, c.Status == projection.Halted
	u.outages, u.notBefore = 0, time.Time{}
	free := u.warned
	u.blocked, u.warned = 0, false
	switch {
	case !u.isolating:
		u.attempts, u.failingSince = 0, time.Time{}
	case u.position >= u.isolationEnd: // it went well this time
		u.isolating, u.attempts, u.failingSince = false, 0, time.Time{}
	default:
		u.isolationBatch = max(1, int(u.isolationEnd-u.position)/2)
	}
	r.mu.Unlock()
	if free {
		r.config.Logger.InfoContext(ctx, "projection has the lock that it waited for", "projection", p.Name, "partition", uint32(u.partition))
	}
	if passed > 0 {
		r.config.Observer.ProjectionAdvanced(p.label(), passed)
	}
	return passed > 0
}

// recordOutage holds a unit back until what it needs is there again.
func (r *Runner) recordOutage(ctx context.Context, p *running, u *unit, settings projection.Settings, err error) {
	r.mu.Lock()
	u.outages++
	pause := settings.Pause(u.outages)
	u.notBefore, u.pause = r.config.Clock.Now().Add(pause), pause
	r.mu.Unlock()
	r.config.Observer.ProjectionFailed(p.label(), u.partition)
	r.config.Logger.WarnContext(ctx, "projection waits for what it needs",
		"projection", p.Name, "partition", uint32(u.partition), "code", fault.CodeOf(err), "retry_in", pause.String())
}

// recordFailure counts an attempt. After the last one the event is isolated: the batch is
// halved until it is the event alone, so that the others keep their effects.
func (r *Runner) recordFailure(ctx context.Context, p *running, u *unit, settings projection.Settings, work ports.ProjectionWork, c ports.Checkpoint, at event.Sequence, limit int, err error) bool {
	now := r.config.Clock.Now()
	r.mu.Lock()
	if c.Sequence != at { // another node has been here
		u.position, at = c.Sequence, c.Sequence
	}
	if !u.isolating {
		u.attempts = max(u.attempts, c.Attempts) + 1
		if u.failingSince = c.FirstFailedAt; u.failingSince.IsZero() {
			u.failingSince = now
		}
	}
	attempts, since, isolating := u.attempts, u.failingSince, u.isolating || u.attempts >= settings.MaxAttempts
	pause := settings.Pause(attempts)
	if !isolating {
		u.notBefore, u.pause = now.Add(pause), pause
	}
	r.mu.Unlock()
	r.config.Observer.ProjectionFailed(p.label(), u.partition)
	f := ports.ProjectionFailure{ProjectionWork: work, At: at, Code: fault.CodeOf(err), Detail: faultField(err), Attempts: attempts, Since: since}
	log := r.config.Logger.With("projection", p.Name, "partition", uint32(u.partition), "after_sequence", uint64(at), "code", f.Code)
	if !isolating {
		f.Pause = pause
		log.ErrorContext(ctx, "projection failed; it will try again", "attempt", attempts, "retry_in", f.Pause.String())
		if _, err := r.config.Store.RecordFailure(ctx, f); err != nil && ctx.Err() == nil {
			log.WarnContext(ctx, "projection failure could not be recorded", "reason", fault.CodeOf(err))
		}
		return false
	}
	if limit > 1 {
		r.mu.Lock()
		if !u.isolating {
			u.isolating, u.isolationEnd = true, at+event.Sequence(limit)
		}
		u.isolationBatch = limit / 2
		r.mu.Unlock()
		return true
	}
	return r.isolateEvent(ctx, p, u, settings, f)
}

// isolateEvent puts the event into the dead letters.
func (r *Runner) isolateEvent(ctx context.Context, p *running, u *unit, settings projection.Settings, f ports.ProjectionFailure) bool {
	c, err := r.config.Store.Isolate(ctx, f, settings.OnPoison)
	if err != nil {
		if fault.CodeOf(err) == projection.CodeBusy {
			r.recordBlocked(ctx, p, u)
		} else if ctx.Err() == nil {
			r.recordOutage(ctx, p, u, settings, err)
		}
		return false
	}
	r.mu.Lock()
	u.position, u.halted = c.Sequence, c.Status == projection.Halted
	u.isolating, u.attempts, u.notBefore = false, 0, time.Time{}
	halted := u.halted
	r.mu.Unlock()
	r.config.Observer.ProjectionDeadLetter(p.label(), u.partition)
	r.config.Logger.ErrorContext(ctx, "projection cannot digest an event; it is in the dead letters",
		"projection", p.Name, "partition", uint32(u.partition), "sequence", uint64(f.At)+1, "code", f.Code, "policy", settings.OnPoison)
	return !halted
}

// faultField says where in an event something is wrong, never what is there.
func faultField(err error) string {
	if f, ok := fault.As(err); ok && f.Field != "" {
		return "at " + f.Field
	}
	return ""
}
