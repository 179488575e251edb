package projections

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
)

// RowPosition implements ports.RowRecomputer.
func (s *Rows) RowPosition(ctx context.Context, w ports.ProjectionWork) (at ports.RowPosition, begun bool, err error) {
	all, err := s.checkpoints.Checkpoints(ctx, w.Projection, w.Version)
	if err != nil {
		return at, false, err
	}
	for _, c := range all {
		if c.Partition != w.Partition {
			continue
		}
		redactions, err := s.queries.GetSnapshotEpoch(ctx, s.db.Reads, int32(w.Partition))
		return ports.RowPosition{Sequence: c.Sequence, Generation: c.Generation, Redactions: uint64(redactions)}, true, pg.Translate(ctx, err)
	}
	return at, false, nil
}

// RecomputeRows implements ports.RowRecomputer. The lock of the checkpoint keeps out whoever
// else writes rows of the version in the partition, switches to it, resets or drops it.
func (s *Rows) RecomputeRows(ctx context.Context, r ports.RowRecompute, begin func() (ports.ProjectionHandler, func() map[string]ports.ProjectionRow)) (change ports.TargetChange, err error) {
	_, err = s.onCheckpoint(ctx, r.ProjectionWork, func(tx pgx.Tx, c *ports.Checkpoint) (bool, error) {
		redactions, err := s.queries.GetSnapshotEpoch(ctx, tx, int32(r.Partition))
		if err != nil {
			return false, err
		}
		now := ports.RowPosition{Sequence: r.Since.Sequence, Generation: c.Generation, Redactions: uint64(redactions)}
		if now != r.Since || c.Sequence < r.ReadThrough || uint64(c.Sequence-r.ReadThrough) > uint64(r.Limit) {
			return false, untranslatedError{projection.Changed()}
		}
		h, rows := begin()
		handed, err := s.applyTail(ctx, tx, r, h, c.Sequence)
		if err != nil {
			return false, err
		}
		change = ports.TargetChange{Sequence: c.Sequence, Events: handed}
		if err := s.replaceKeys(ctx, tx, r, rows(), &change); err != nil {
			return false, err
		}
		if r.DryRun {
			return false, untranslatedError{errDryRun}
		}
		for _, sequence := range r.Recovered {
			if _, err := tx.Exec(ctx, resolvePassedOver, ports.LetterOfProjection, r.Projection, int32(r.Version), int32(r.Partition), int64(sequence),
				s.db.Now(), pgtype.Text{String: r.By, Valid: r.By != ""}); err != nil {
				return false, err
			}
		}
		if change.Rows() == 0 {
			return false, nil
		}
		_, err = tx.Exec(ctx, replaceRows, r.Projection, int32(r.Version), int32(r.Partition))
		return false, err
	})
	if errors.Is(err, errDryRun) {
		err = nil
	}
	if err != nil {
		change = ports.TargetChange{}
	}
	return change, err
}

// applyTail hands over what was not folded yet.
func (s *Rows) applyTail(ctx context.Context, tx pgx.Tx, r ports.RowRecompute, h ports.ProjectionHandler, through event.Sequence) (handed int, err error) {
	for at := r.ReadThrough; at < through; {
		a := &ports.ProjectionAdvance{ProjectionWork: r.ProjectionWork, Types: r.Types, Limit: int(min(through-at, levelBatch)), Bytes: levelBytes}
		events, last, err := s.events.EventsOf(ctx, tx, a, at)
		if err != nil || last == nil {
			return handed, err
		}
		if len(events) > 0 {
			if err := h.Apply(ctx, tx, ports.ProjectionBatch{Projection: r.Projection, Version: r.Version, Partition: r.Partition, Events: events}); err != nil {
				return handed, markHandlerError(ctx, err)
			}
		}
		at, handed = last.Sequence, handed+len(events)
	}
	return handed, nil
}

// replaceKeys writes the rows that differ and removes those that there are none for.
func (s *Rows) replaceKeys(ctx context.Context, tx pgx.Tx, r ports.RowRecompute, after map[string]ports.ProjectionRow, change *ports.TargetChange) error {
	b := ports.ProjectionBatch{Projection: r.Projection, Version: r.Version, Partition: r.Partition}
	before, err := s.LoadProjectionRows(ctx, tx, b, r.Keys)
	if err != nil {
		return err
	}
	rows, gone, d := ports.DiffRows(r.Keys, before, after)
	change.Tables = []ports.TableDifference{d}
	return s.StoreProjectionRows(ctx, tx, b, rows, gone)
}
