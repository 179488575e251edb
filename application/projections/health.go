package projections

import (
	"fmt"
	"strings"
	"time"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
)

// Health reports what is wrong with this node's projections: its loop or the watch of the log
// has stopped, a partition with new events had no attempt for longer than Stall, or a
// projection is halted at an event. A projection that is only behind is healthy. Faults:
// projection.stalled, projection.halted.
func (r *Runner) Health() error {
	now := r.config.Clock.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.lastRound.IsZero():
		return nil // the loop has not started
	case absDiff(now, r.lastRound) > r.config.Stall:
		return stalledFault("the projections' loop has not run since %s; restart this node", r.lastRound)
	}
	if read := r.config.Heads.LastRead(); absDiff(now, latest(read, r.startedAt)) > r.config.Stall {
		return stalledFault("the log has not been read since %s; check that the database answers", read)
	}
	var stuck, halted []string
	for _, p := range r.running {
		name := fmt.Sprintf("%s v%d", p.Name, p.Version)
		if p.isCustom() {
			name = "a projection of a tenant"
		}
		if p.registered.Status == projection.Faulted && !p.isCustom() {
			halted = append(halted, name)
			continue
		}
		if p.registered.Status != projection.Running {
			continue
		}
		stalledUnits, haltedUnits := 0, 0
		for _, u := range p.units {
			switch {
			case u.halted && p.isCustom(): // a failing program concerns its tenant, not the node
			case u.halted:
				haltedUnits++
			case u.isStalled(now, r.config.Stall):
				stalledUnits++
			}
		}
		if stalledUnits > 0 {
			stuck = append(stuck, fmt.Sprintf("%s in %d legal entities", name, stalledUnits))
		}
		if haltedUnits > 0 {
			halted = append(halted, fmt.Sprintf("%s in %d legal entities", name, haltedUnits))
		}
	}
	switch {
	case len(stuck) > 0:
		return fault.New(fault.Unavailable, "projection.stalled", "no attempt where one is due: %s; restart this node", strings.Join(stuck, ", "))
	case len(halted) > 0:
		return fault.New(fault.FailedPrecondition, "projection.halted", "halted at an event: %s; look at the dead letters, then fix or skip", strings.Join(halted, ", "))
	}
	return nil
}

// isStalled reports whether due work was neither started nor finished for longer than stall.
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

func stalledFault(detail string, since time.Time) error {
	return fault.New(fault.Unavailable, "projection.stalled", detail, since.UTC().Format(time.RFC3339))
}
