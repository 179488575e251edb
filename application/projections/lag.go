package projections

import (
	"context"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
)

// lag is the number of events that a reader of the log has not read and the age of the oldest
// of them. The age of the newest would stay near zero under steady traffic, however far
// behind the reader is.
type lag struct {
	events  uint64
	seconds float64
}

// computeLag is the lag of a reader at a sequence; oldest is when the event after it was
// recorded.
func computeLag(at event.Sequence, head ports.Head, oldest, now time.Time) lag {
	if at >= head.Sequence {
		return lag{}
	}
	return lag{uint64(head.Sequence - at), max(0, now.Sub(oldest).Seconds())}
}

// nextPosition is the position of the first event that a reader has not read.
func nextPosition(p event.PartitionID, at event.Sequence) ports.EventPosition {
	return ports.EventPosition{Partition: p, Sequence: at + 1}
}

// observe reports the lag of this node's partitions. Of custom projections it reports the
// worst lag of each partition, without those that are halted or stopped, which concern their
// tenant only.
func (r *Runner) observe(ctx context.Context, heads map[event.PartitionID]ports.Head) {
	var units []*unit
	r.mu.Lock()
	for _, p := range r.running {
		if p.isCustom() && (p.registered.Role != projection.Active || p.registered.Status != projection.Running) {
			continue
		}
		for id := range heads {
			u := p.units[id]
			if u != nil && (!u.halted || !p.isCustom()) && r.prefers(p.resourceOf(id)) {
				units = append(units, u)
			}
		}
	}
	r.mu.Unlock()
	custom := map[event.PartitionID]lag{}
	for i, l := range r.lags(ctx, units, heads) {
		u := units[i]
		if !u.owner.isCustom() {
			r.config.Observer.ProjectionLag(u.owner.label(), u.partition, l.events, l.seconds)
			continue
		}
		worst := custom[u.partition]
		custom[u.partition] = lag{max(worst.events, l.events), max(worst.seconds, l.seconds)}
	}
	for id, l := range custom {
		r.config.Observer.ProjectionLag(customLabel, id, l.events, l.seconds)
	}
	for id := range r.loop.customLags {
		if _, isReported := custom[id]; !isReported {
			r.config.Observer.ProjectionLeft(customLabel, id)
		}
	}
	r.loop.customLags = custom
}

// observeUnit reports the lag of one unit after its turn. observe reports those of custom
// projections together.
func (r *Runner) observeUnit(ctx context.Context, u *unit, heads map[event.PartitionID]ports.Head) {
	if u.owner.isCustom() {
		return
	}
	l := r.lags(ctx, []*unit{u}, heads)[0]
	r.config.Observer.ProjectionLag(u.owner.label(), u.partition, l.events, l.seconds)
}

// lags computes the lags of units. It asks the store once for all of them, and only about
// units that are behind and have moved: one that has caught up or is halted costs nothing.
func (r *Runner) lags(ctx context.Context, units []*unit, heads map[event.PartitionID]ports.Head) []lag {
	at := make([]event.Sequence, len(units))
	var unknown []ports.EventPosition
	r.mu.Lock()
	for i, u := range units {
		at[i] = u.position
		if next := nextPosition(u.partition, at[i]); at[i] < heads[u.partition].Sequence && u.oldest.sequence != next.Sequence {
			unknown = append(unknown, next)
		}
	}
	r.mu.Unlock()
	var recorded map[ports.EventPosition]time.Time
	if len(unknown) > 0 {
		var err error
		if recorded, err = r.config.Log.RecordedAt(ctx, unknown); err != nil && ctx.Err() == nil {
			r.config.Logger.WarnContext(ctx, "how long events have waited for projections could not be read; it is at least the age of the newest", "code", fault.CodeOf(err))
		}
	}
	now := r.config.Clock.Now()
	out := make([]lag, len(units))
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, u := range units {
		next, head := nextPosition(u.partition, at[i]), heads[u.partition]
		if t, read := recorded[next]; read {
			u.oldest.sequence, u.oldest.recordedAt = next.Sequence, t
		}
		oldest := head.RecordedAt
		if u.oldest.sequence == next.Sequence {
			oldest = u.oldest.recordedAt
		}
		out[i] = computeLag(at[i], head, oldest, now)
	}
	return out
}
