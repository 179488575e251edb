package projections

import (
	"context"
	"slices"
	"time"

	"github.com/erpbackbone/backbone/domain/projection"
)

// Another session of the database may hold a checkpoint or rows of a read model for any time.
// An attempt waits only briefly for such a lock. The runner tries a blocked unit again with
// longer and longer waits, but with few workers, so that the remaining ones serve partitions
// that are not locked.
const (
	// briefWait is longer than an operator's action, or the last transaction of the node that
	// worked the partition before, usually locks a checkpoint.
	briefWait = 100 * time.Millisecond
	// totalLockWait bounds the waits of all blocked units together, so that each is tried within
	// this time.
	totalLockWait = 2 * time.Second
	// maxLockPause is the longest pause between two attempts.
	maxLockPause = time.Second
	// lockWarning is how long a unit is blocked before the runner logs it.
	lockWarning = 10 * time.Second
)

// maxBlockedWorkers is how many workers may wait for locks.
func (r *Runner) maxBlockedWorkers() int { return max(1, r.config.Workers/4) }

// dequeue returns the next unit that a worker may start with and how long its attempts wait
// for locks; nil: there is none. Its caller holds mu.
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
	blockedUnits := 0
	for _, p := range r.running {
		for _, v := range p.units {
			if v.blocked > 0 {
				blockedUnits++
			}
		}
	}
	wait := briefWait << min(u.blocked, 8)
	return u, max(briefWait, min(wait, totalLockWait/time.Duration(max(blockedUnits, 1))))
}

// countBusy counts workers that start or end. Its caller holds mu.
func (r *Runner) countBusy(blocked bool, change int) {
	r.busy += change
	if blocked {
		r.blocked += change
	}
}

// recordBlocked schedules the next attempt of a blocked unit. A lock of another session is
// no failure of the projection.
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
