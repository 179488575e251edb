package memory

import (
	"context"
	"errors"
	"slices"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
)

// errRehearsed leaves undone what was done to see what it would do.
var errRehearsed = errors.New("rehearsed")

// RowPosition implements ports.RowRecomputer. Nothing is redacted in this store.
func (s *ProjectionRows) RowPosition(ctx context.Context, w ports.ProjectionWork) (ports.RowPosition, bool, error) {
	if err := ctx.Err(); err != nil {
		return ports.RowPosition{}, false, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	c, begun := s.checkpoints[checkpointKey{w.Projection, w.Version, w.Partition}]
	return ports.RowPosition{Sequence: c.Sequence, Generation: c.Generation}, begun, nil
}

// RecomputeRows implements ports.RowRecomputer.
func (s *ProjectionRows) RecomputeRows(ctx context.Context, r ports.RowRecompute, begin func() (ports.ProjectionHandler, func() map[string]ports.ProjectionRow)) (change ports.TargetChange, err error) {
	_, err = s.onCheckpoint(ctx, r.ProjectionWork, func(tx *Tx, c *ports.Checkpoint) (bool, error) {
		if c.Generation != r.Since.Generation || c.Sequence < r.ReadThrough || uint64(c.Sequence-r.ReadThrough) > uint64(r.Limit) {
			return false, projection.Changed()
		}
		h, rows := begin()
		b := ports.ProjectionBatch{Projection: r.Projection, Version: r.Version, Partition: r.Partition}
		if c.Sequence > r.ReadThrough {
			if b.Events, err = s.reader().Events(ctx, ports.EventQuery{Partition: r.Partition, After: r.ReadThrough, Limit: int(c.Sequence - r.ReadThrough)}); err != nil {
				return false, err
			}
			b.Events = slices.DeleteFunc(b.Events, func(e event.Recorded) bool { return len(r.Types) > 0 && !slices.Contains(r.Types, e.Type) })
			if len(b.Events) > 0 {
				if err := h.Apply(ctx, tx, b); err != nil {
					return false, err
				}
			}
		}
		change = ports.TargetChange{Sequence: c.Sequence, Events: len(b.Events)}
		before, err := s.LoadProjectionRows(ctx, tx, b, r.Keys)
		if err != nil {
			return false, err
		}
		rewritten, gone, d := ports.DiffRows(r.Keys, before, rows())
		change.Tables = []ports.TableDifference{d}
		if r.DryRun {
			return false, errRehearsed
		}
		if err := s.StoreProjectionRows(ctx, tx, b, rewritten, gone); err != nil {
			return false, err
		}
		tx.atEnd(func() { s.resolve(r) })
		if change.Rows() > 0 {
			c.Generation++
		}
		return true, nil
	})
	if errors.Is(err, errRehearsed) {
		err = nil
	}
	if err != nil {
		change = ports.TargetChange{}
	}
	return change, err
}

// resolve is called with the lock held.
func (s *state) resolve(r ports.RowRecompute) {
	for _, sequence := range r.Recovered {
		key := letterKey{ports.LetterOfProjection, r.Projection, r.Version, r.Partition, sequence}
		if d, known := s.operated.letters[key]; known {
			d.Status, d.SettledAt, d.SettledBy = ports.LetterResolved, s.now(), r.By
			s.operated.letters[key] = d
		}
	}
}
