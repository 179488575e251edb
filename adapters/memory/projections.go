package memory

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
)

type checkpointKey struct {
	projection string
	version    int
	partition  event.PartitionID
}

// Projections advances read models along the log.
type Projections struct{ *state }

// Advance implements ports.Projections. The handler gets a *Tx, and may read the database and
// append to it. It must not call Advance, which would wait for the handler's own end.
func (s *Projections) Advance(ctx context.Context, a ports.ProjectionAdvance, h ports.ProjectionHandler) (ports.Checkpoint, int, error) {
	turn, err := s.readModels.acquire(ctx, a.LockWait)
	if err != nil {
		return ports.Checkpoint{}, 0, err
	}
	defer s.readModels.release(turn)
	return s.advance(ctx, turn, a, h)
}

// advance is called by a caller that has locked the read models.
func (s *state) advance(ctx context.Context, turn uint64, a ports.ProjectionAdvance, h ports.ProjectionHandler) (ports.Checkpoint, int, error) {
	advanced := 0
	c, err := s.onLocked(ctx, turn, a.ProjectionWork, func(tx *Tx, c *ports.Checkpoint) (bool, error) {
		if c.Status == projection.Halted {
			return false, nil
		}
		events, err := s.reader().Events(ctx, ports.EventQuery{Partition: a.Partition, After: c.Sequence, Limit: a.Limit})
		if err != nil || len(events) == 0 {
			return false, err
		}
		events = withinBytes(events, a.Bytes, a.Types)
		advanced = len(events)
		last := events[advanced-1]
		if len(a.Types) > 0 {
			events = slices.DeleteFunc(events, func(e event.Recorded) bool { return !slices.Contains(a.Types, e.Type) })
		}
		if len(events) > 0 {
			b := ports.ProjectionBatch{Projection: a.Projection, Version: a.Version, Partition: a.Partition, Events: events}
			if err := h.Apply(ctx, tx, b); err != nil {
				return false, err
			}
		}
		if c.IsFailing() {
			tx.atEnd(func() { s.settleLetters(a.ProjectionWork, last.Sequence, ports.LetterResolved, "", "") })
		}
		c.Advance(last.Sequence, len(events), last.RecordedAt, s.now())
		return true, nil
	})
	if err != nil {
		advanced = 0
	}
	return c, advanced, err
}

// onCheckpoint runs f on a checkpoint, one at a time in the whole database.
func (s *state) onCheckpoint(ctx context.Context, w ports.ProjectionWork, f func(*Tx, *ports.Checkpoint) (bool, error)) (ports.Checkpoint, error) {
	turn, err := s.readModels.acquire(ctx, w.LockWait)
	if err != nil {
		return ports.Checkpoint{}, err
	}
	defer s.readModels.release(turn)
	return s.onLocked(ctx, turn, w, f)
}

// onLocked runs f on a checkpoint of read models that are locked, after it has checked the
// lease, which it does not check again. When f returns true it writes the checkpoint with the
// rows that f staged.
func (s *state) onLocked(ctx context.Context, turn uint64, w ports.ProjectionWork, f func(*Tx, *ports.Checkpoint) (bool, error)) (ports.Checkpoint, error) {
	key := checkpointKey{w.Projection, w.Version, w.Partition}
	s.mu.Lock()
	before := s.checkpoint(key)
	known, registered := s.projections[projectionKey{w.Projection, w.Version}]
	fenced := registered && !known.Role.IsLive() || w.Lease != nil && s.term(w.Lease.LeaseResource, w.Lease.Holder) != w.Lease.Term
	s.mu.Unlock()
	if fenced {
		return before, projection.Fenced()
	}
	tx := newTx(s)
	c := before
	write, err := f(tx, &c)
	if err == nil {
		err = ctx.Err() // a caller who gave up gets neither the effects nor the checkpoint
	}
	if err != nil || !write {
		tx.close()
		return before, err
	}
	if w.Lease != nil {
		c.Term = w.Lease.Term
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.readModels.check(turn); err != nil { // who has taken the lock sees nothing of this yet
		tx.close()
		return before, err
	}
	tx.commit()
	s.checkpoints[key] = c
	return c, nil
}

// checkpoint is called with the lock held; one that was not stored yet begins at 0.
func (s *state) checkpoint(key checkpointKey) ports.Checkpoint {
	if c, begun := s.checkpoints[key]; begun {
		return c
	}
	return ports.Checkpoint{Projection: key.projection, Version: key.version, Partition: key.partition, Status: projection.Reading, Redactions: uint64(s.epoch(key.partition))}
}

// Checkpoints implements ports.Projections, by partition.
func (s *Projections) Checkpoints(ctx context.Context, name string, version int) ([]ports.Checkpoint, error) {
	return get(ctx, s.state, func() ([]ports.Checkpoint, error) {
		return list(maps.Values(s.checkpoints), func(c ports.Checkpoint) bool { return c.Projection == name && c.Version == version },
			func(a, b ports.Checkpoint) int { return cmp.Compare(a.Partition, b.Partition) }), nil
	})
}

// RecordFailure implements ports.Projections. A projection that failed on its very
// first event gets a checkpoint at sequence 0.
func (s *Projections) RecordFailure(ctx context.Context, f ports.ProjectionFailure) (ports.Checkpoint, error) {
	return s.onCheckpoint(ctx, f.ProjectionWork, func(_ *Tx, c *ports.Checkpoint) (bool, error) {
		if c.Sequence != f.At || c.Status == projection.Halted {
			return false, nil
		}
		c.Fail(f.Code, f.Pause, s.now())
		return true, nil
	})
}

// Isolate implements ports.Projections.
func (s *Projections) Isolate(ctx context.Context, f ports.ProjectionFailure, policy string) (ports.Checkpoint, error) {
	return s.onCheckpoint(ctx, f.ProjectionWork, func(tx *Tx, c *ports.Checkpoint) (bool, error) {
		if c.Sequence != f.At || c.Status == projection.Halted {
			return false, nil
		}
		e, err := s.next(ctx, f.Partition, c.Sequence)
		if err != nil {
			return false, err
		}
		c.Halt(f.Code, s.now(), f.Attempts, f.Since) // also counts the attempt, for the letter of a skipped event too
		letter := ports.DeadLetter{
			Kind: ports.LetterOfProjection, Name: f.Projection, Version: f.Version, Partition: f.Partition, Sequence: e.Sequence, EventID: e.ID,
			Code: f.Code, Detail: f.Detail, Attempts: c.Attempts, FirstFailedAt: c.FirstFailedAt, LastFailedAt: c.LastFailedAt, Status: ports.LetterWaiting,
		}
		if policy == projection.SkipEvent {
			letter.Status = ports.LetterPassed
			c.SkipEvent(e.Sequence, e.RecordedAt, s.now())
		}
		tx.atEnd(func() {
			s.putLetter(letter)
			if policy == projection.StopProjection {
				s.changeProjection(f.Projection, f.Version, systemActor, func(p *projection.Projection) {
					if next, err := p.Status.After(projection.Fault); err == nil {
						p.Status = next
					}
				})
			}
		})
		return true, nil
	})
}

// systemActor is recorded for changes that the store makes by itself.
const systemActor = "system"

func (s *state) next(ctx context.Context, p event.PartitionID, after event.Sequence) (event.Recorded, error) {
	events, err := s.reader().Events(ctx, ports.EventQuery{Partition: p, After: after, Limit: 1})
	if err == nil && len(events) == 0 {
		err = fault.New(fault.FailedPrecondition, "projection.no_event", "there is no event after the checkpoint; look at the checkpoints again")
	}
	if err != nil {
		return event.Recorded{}, err
	}
	return events[0], nil
}

// Fix implements ports.Projections.
func (s *Projections) Fix(ctx context.Context, o ports.ProjectionOperation) (ports.Checkpoint, error) {
	return s.onCheckpoint(ctx, o.ProjectionWork, func(tx *Tx, c *ports.Checkpoint) (bool, error) {
		if err := c.Retry(s.now()); err != nil {
			return false, err
		}
		tx.atEnd(func() { s.bumpRevision(o) })
		return true, nil
	})
}

// Skip implements ports.Projections.
func (s *Projections) Skip(ctx context.Context, o ports.ProjectionOperation) (ports.Checkpoint, error) {
	return s.onCheckpoint(ctx, o.ProjectionWork, func(tx *Tx, c *ports.Checkpoint) (bool, error) {
		if err := c.RequireHaltedAt(o.Sequence); err != nil {
			return false, err
		}
		e, err := s.next(ctx, o.Partition, c.Sequence)
		if err != nil {
			return false, err
		}
		c.SkipEvent(e.Sequence, e.RecordedAt, s.now())
		tx.atEnd(func() {
			s.settleLetters(o.ProjectionWork, e.Sequence, ports.LetterSkipped, o.By, o.Reason)
			s.bumpRevision(o)
		})
		return true, nil
	})
}

// Reset implements ports.Projections.
func (s *Projections) Reset(ctx context.Context, o ports.ProjectionOperation, h ports.ProjectionResetter) (ports.Checkpoint, error) {
	return s.onCheckpoint(ctx, o.ProjectionWork, func(tx *Tx, c *ports.Checkpoint) (bool, error) {
		s.mu.Lock()
		redactions := uint64(s.epoch(o.Partition))
		s.mu.Unlock()
		b := ports.ProjectionBatch{Projection: o.Projection, Version: o.Version, Partition: o.Partition}
		if err := h.Reset(ctx, tx, b); err != nil {
			return false, err
		}
		c.Rewind(s.now())
		c.Redactions = redactions
		tx.atEnd(func() {
			s.settleLetters(o.ProjectionWork, ^event.Sequence(0), ports.LetterDiscarded, o.By, o.Reason)
			s.bumpRevision(o)
		})
		return true, nil
	})
}

// bumpRevision records the operator in the register.
func (s *state) bumpRevision(o ports.ProjectionOperation) {
	s.changeProjection(o.Projection, o.Version, o.By, func(*projection.Projection) {})
}
