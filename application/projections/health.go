package projections

import (
	"fmt"
	"strings"
	"time"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
)

// Health says what is wrong with this node's projections, nil if nothing is: that the
// log or its own loop is not looked at any more, that a partition with new events had
// no attempt for too long, or that a projection stands still at an event. A projection
// that is only behind is healthy. Fault projection.stalled or projection.halted.
func (r *Runner) Health() error {
	now := r.config.Clock.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.lastRound.IsZero():
		return nil // it has not begun
	case absDiff(now, r.lastRound) > r.config.Stall:
		return stalled("the projections' loop has not gone round since %s; restart this node", r.lastRound)
	}
	if looked := r.config.Heads.LastRead(); absDiff(now, latest(looked, r.startedAt)) > r.config.Stall {
		return stalled("the log has not been looked at since %s; see that the database answers", looked)
	}
	var stuck, halted []string
	for _, p := range r.running {
		name := fmt.Sprintf("%s v%d", p.Name, p.Version)
		if p.isCustom() {
			name = "a projection of a tenant's own"
		}
		if p.registered.Status == projection.Faulted && !p.isCustom() {
			halted = append(halted, name)
			continue
		}
		if p.registered.Status != projection.Running {
			continue
		}
		stands, stops := 0, 0
		for _, u := range p.units {
			switch {
			case u.halted && p.isCustom(): // the tenant's program, and nobody else's matter
			case u.halted:
				stops++
			case u.isStalled(now, r.config.Stall):
				stands++
			}
		}
		if stands > 0 {
			stuck = append(stuck, fmt.Sprintf("%s in %d legal entities", name, stands))
		}
		if stops > 0 {
			halted = append(halted, fmt.Sprintf("%s in %d legal entities", name, stops))
		}
	}
	switch {
	case len(stuck) > 0:
		return fault.New(fault.Unavailable, "projection.stalled", "no attempt where one is due: %s; restart this node", strings.Join(stuck, ", "))
	case len(halted) > 0:
		return fault.New(fault.FailedPrecondition, "projection.halted", "standing still at an event: %s; look at the dead letters, then fix or skip", strings.Join(halted, ", "))
	}
	return nil
}

// isStalled tells whether there has been work for a while and nobody has begun with it, or
// ended it.
func (u *unit) isStalled(now time.Time, stall time.Duration) bool {
	if u.pendingSince.IsZero() || remaining(now, u.notBefore, u.pause) > 0 {
		return false
	}
	return now.Sub(latest(latest(u.pendingSince, u.attemptedAt), u.notBefore)) > stall
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func stalled(detail string, since time.Time) error {
	return fault.New(fault.Unavailable, "projection.stalled", detail, since.UTC().Format(time.RFC3339))
}
