package projections

import (
	"context"
	"slices"
	"time"

	"github.com/erpbackbone/backbone/domain/projection"
)

// Another session of the database may hold a checkpoint, or rows of a read model, for as
// long as it likes. An attempt waits for it only briefly; a unit that has met such a lock
// is tried again until it has it, more patiently, but only few workers do that, and the
// others serve what is not locked.
const (
	// briefWait is longer than others hold a checkpoint: an operator, or the node that
	// worked the partition before.
	briefWait = 100 * time.Millisecond
	// totalLockWait bounds what the attempts of all units that wait for locks take together,
	// so that each has its turn within it.
	totalLockWait = 2 * time.Second
	// maxLockPause is the longest pause between two attempts.
	maxLockPause = time.Second
	// lockWarning is how long a unit waits before that is worth a line in the log.
	lockWarning = 10 * time.Second
)

// maxBlockedWorkers is how many workers may wait for locks.
func (r *Runner) maxBlockedWorkers() int { return max(1, r.config.Workers/4) }

// dequeue takes the next unit that may be begun with, and how long it waits for locks;
// nil: there is none. It is called with mu.
func (r *Runner) dequeue() (*unit, time.Duration) {
	i := slices.IndexFunc(r.queue, func(u *unit) bool { return u.blocked == 0 || r.blocked < r.maxBlockedWorkers() })
	if i < 0 {
		return nil, 0
	}
	u := r.queue[i]
	r.queue = slices.Delete(r.queue, i, i+1)
	if u.blocked == 0 || r.config.Workers < 2 {
		return u, briefWait
	}
	others := 0
	for _, p := range r.running {
		for _, v := range p.units {
			if v.blocked > 0 {
				others++
			}
		}
	}
	wait := briefWait << min(u.blocked, 8)
	return u, max(briefWait, min(wait, totalLockWait/time.Duration(max(others, 1))))
}

// countBusy counts workers that begin or end. It is called with mu.
func (r *Runner) countBusy(blocked bool, change int) {
	r.busy += change
	if blocked {
		r.blocked += change
	}
}

// recordBlocked lets a unit try again soon. That somebody else holds a lock is no failure.
func (r *Runner) recordBlocked(ctx context.Context, p *running, u *unit) {
	now := r.config.Clock.Now()
	r.mu.Lock()
	if u.blocked == 0 {
		u.blockedSince = now
	}
	pause := min(briefWait<<min(u.blocked, 8), maxLockPause)
	u.blocked++
	u.recheck, u.notBefore, u.pause = true, now.Add(pause), pause
	lasted := absDiff(now, u.blockedSince)
	warn := !u.warned && lasted >= lockWarning
	u.warned = u.warned || warn
	r.mu.Unlock()
	if warn {
		r.config.Logger.WarnContext(ctx, "projection waits for a lock that another session holds; backbone doctor --section contention names it",
			"projection", p.Name, "partition", uint32(u.partition), "code", projection.CodeBusy, "for", lasted.String())
	}
}
