package projections

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
)

// unit is one projection in one partition; the runner's mu guards it.
type unit struct {
	owner        *running
	partition    event.PartitionID
	position     event.Sequence // the last known one; another node may be ahead
	busy         bool           // queued or worked
	recheck      bool           // due although nothing is new
	halted       bool           // waits for an operator
	notBefore    time.Time      // no attempt before
	pause        time.Duration  // the whole pause that notBefore ends
	outages      int            // failures in a row with a cause outside the events
	attempts     int            // failures in a row that an event may have caused
	failingSince time.Time      // when the first of these was
	// The runner isolates the event that fails among those up to isolationEnd, in batches of
	// isolationBatch events, which it halves after each failure.
	isolating      bool
	isolationEnd   event.Sequence
	isolationBatch int

	blocked      int       // attempts in a row that met a lock of another session
	blockedSince time.Time // when the first of these was
	warned       bool      // of a long lock, in the log

	pendingSince time.Time // since when there is something to do; zero: nothing
	attemptedAt  time.Time // when the last transaction began

	// oldest is the first unread event when the lag was last measured.
	oldest struct {
		sequence   event.Sequence
		recordedAt time.Time
	}
}

// unit returns the state of a partition and makes it on first use.
func (p *running) unit(id event.PartitionID) *unit {
	u := p.units[id]
	if u == nil {
		u = &unit{owner: p, partition: id}
		p.units[id] = u
	}
	return u
}

// maxTurnBatches is how many transactions a unit may do before the worker takes the next one.
// customTurnBatches is the same for custom projections, whose programs may be slow.
const (
	maxTurnBatches    = 16
	customTurnBatches = 2
)

// queueDue queues the units that can be worked, and returns the leases that further units need
// and the time until the next pause ends.
func (r *Runner) queueDue(heads map[event.PartitionID]ports.Head, now time.Time) (missing []ports.LeaseResource, next time.Duration) {
	next = time.Hour
	asked := map[ports.LeaseResource]bool{}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.running {
		if !p.loaded || p.registered.Status != projection.Running {
			continue
		}
		queued := len(r.queue)
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
			if wait := p.waitTime(u, head.Sequence, now); wait > 0 {
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
		slices.SortFunc(r.queue[queued:], func(a, b *unit) int { return cmp.Compare(a.partition, b.partition) })
	}
	return missing, next
}

// waitTime is how long a unit has to wait: for the end of a pause, or for a full batch.
func (p *running) waitTime(u *unit, head event.Sequence, now time.Time) time.Duration {
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

// remaining is the rest of a pause. A clock that was set back makes it no longer than the
// whole pause.
func remaining(now, until time.Time, pause time.Duration) time.Duration {
	rest := until.Sub(now)
	if rest > pause {
		return 0
	}
	return max(rest, 0)
}

// startWorkers gives queued units to free workers.
func (r *Runner) startWorkers(ctx context.Context, heads map[event.PartitionID]ports.Head) {
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
				u.busy, u.recheck = false, true // the lease was lost while the unit was queued
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

// workUnit advances a unit until it has caught up, fails, or its turn ends.
func (r *Runner) workUnit(ctx context.Context, p *running, u *unit, settings projection.Settings, lease *ports.Lease, target event.Sequence, wait time.Duration) {
	batches := maxTurnBatches
	if p.isCustom() {
		batches = customTurnBatches
	}
	for range batches {
		if ctx.Err() != nil || !r.advanceOnce(ctx, p, u, settings, lease, target, wait) {
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

// advanceOnce does one transaction. It reports whether to continue.
func (r *Runner) advanceOnce(ctx context.Context, p *running, u *unit, settings projection.Settings, lease *ports.Lease, target event.Sequence, wait time.Duration) bool {
	r.mu.Lock()
	at, limit := u.position, settings.BatchSize
	if limit == 0 {
		limit = r.config.Batch
	}
	if u.isolating {
		limit = u.isolationBatch
	} else if target > at {
		limit = min(limit, int(target-at)) // so that a failure is known to be among these events
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
		r.fenced.Store(true)
		r.mu.Lock()
		u.recheck = true
		r.mu.Unlock()
		return false
	case fault.CodeOf(err) == projection.CodeBusy:
		r.recordBlocked(ctx, p, u)
		return false
	case isTransient(err), c.Projection == "": // without a checkpoint the handler was not called
		r.recordOutage(ctx, p, u, settings, err)
		return false
	}
	return r.recordFailure(ctx, p, u, settings, work, c, at, limit, err)
}

// isTransient reports whether an attempt failed for a reason that lies outside the events, such
// as an outage. Such a failure does not count as an attempt.
func isTransient(err error) bool {
	f, ok := fault.As(err)
	return ok && slices.Contains([]fault.Kind{fault.Unavailable, fault.Timeout, fault.TooMany}, f.Kind)
}

func (r *Runner) recordAdvance(ctx context.Context, p *running, u *unit, c ports.Checkpoint, passed int) bool {
	r.mu.Lock()
	u.position, u.halted = c.Sequence, c.Status == projection.Halted
	u.outages, u.notBefore = 0, time.Time{}
	wasBlocked := u.warned
	u.blocked, u.warned = 0, false
	switch {
	case !u.isolating:
		u.attempts, u.failingSince = 0, time.Time{}
	case u.position >= u.isolationEnd: // the isolated range succeeded
		u.isolating, u.attempts, u.failingSince = false, 0, time.Time{}
	default:
		u.isolationBatch = max(1, int(u.isolationEnd-u.position)/2)
	}
	r.mu.Unlock()
	if wasBlocked {
		r.config.Logger.InfoContext(ctx, "projection acquired the lock that it waited for", "projection", p.Name, "partition", uint32(u.partition))
	}
	if passed > 0 {
		r.config.Observer.ProjectionAdvanced(p.label(), passed)
	}
	return passed > 0
}

// recordOutage delays a unit after an outage, such as of the database.
func (r *Runner) recordOutage(ctx context.Context, p *running, u *unit, settings projection.Settings, err error) {
	r.mu.Lock()
	u.outages++
	pause := settings.Pause(u.outages)
	u.notBefore, u.pause = r.config.Clock.Now().Add(pause), pause
	r.mu.Unlock()
	r.config.Observer.ProjectionFailed(p.label(), u.partition)
	r.config.Logger.WarnContext(ctx, "projection cannot be advanced now; it will try again",
		"projection", p.Name, "partition", uint32(u.partition), "code", fault.CodeOf(err), "retry_in", pause.String())
}

// recordFailure counts a failed attempt. After the last one it isolates the event: it halves
// the batch until only the event is left, so that all earlier events take effect.
func (r *Runner) recordFailure(ctx context.Context, p *running, u *unit, settings projection.Settings, work ports.ProjectionWork, c ports.Checkpoint, at event.Sequence, limit int, err error) bool {
	now := r.config.Clock.Now()
	r.mu.Lock()
	if c.Sequence != at { // another node has advanced it
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

// isolateEvent moves the event to the dead letters.
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
	r.config.Logger.ErrorContext(ctx, "projection cannot process an event; it is in the dead letters",
		"projection", p.Name, "partition", uint32(u.partition), "sequence", uint64(f.At)+1, "code", f.Code, "policy", settings.OnPoison)
	return !halted
}

// faultField names the place of the error in an event, never a value.
func faultField(err error) string {
	if f, ok := fault.As(err); ok && f.Field != "" {
		return "at " + f.Field
	}
	return ""
}
