package projections

import (
	"context"
	"encoding/json"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/projectionsdb"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
)

// Rows stores the rows of custom projections, which have no tables of a module.
type Rows struct{ *work }

var (
	_ ports.ProjectionRows = (*Rows)(nil)
	_ ports.RowRecomputer  = (*Rows)(nil)
)

// NewRows makes the store of custom projections' rows.
func NewRows(c *Checkpoints) *Rows {
	return &Rows{c.work}
}

func pgxTx(tx ports.ProjectionTx) (pgx.Tx, error) {
	t, ok := tx.(pgx.Tx)
	if !ok {
		return nil, fault.New(fault.Internal, pg.CodeInternal, "the projection's transaction is not one of PostgreSQL; wire both to the same store")
	}
	return t, nil
}

// LoadProjectionRows implements ports.ProjectionRows.
func (s *Rows) LoadProjectionRows(ctx context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch, keys []string) (map[string]ports.ProjectionRow, error) {
	t, err := pgxTx(tx)
	if err != nil {
		return nil, err
	}
	found, err := s.queries.LoadProjectionRows(ctx, t, &projectionsdb.LoadProjectionRowsParams{
		Projection: b.Projection, Version: int32(b.Version), PartitionID: int32(b.Partition), Keys: keys,
	})
	if err != nil {
		return nil, err
	}
	out := make(map[string]ports.ProjectionRow, len(found))
	for _, r := range found {
		out[r.Key] = ports.ProjectionRow{Key: r.Key, State: json.RawMessage(r.State), Sequence: event.Sequence(r.Sequence)}
	}
	return out, nil
}

// StoreProjectionRows implements ports.ProjectionRows.
func (s *Rows) StoreProjectionRows(ctx context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch, rows []ports.ProjectionRow, gone []string) error {
	t, err := pgxTx(tx)
	if err != nil {
		return err
	}
	if len(gone) > 0 {
		if err := s.queries.DeleteProjectionRows(ctx, t, &projectionsdb.DeleteProjectionRowsParams{
			Projection: b.Projection, Version: int32(b.Version), PartitionID: int32(b.Partition), Keys: gone,
		}); err != nil {
			return err
		}
	}
	if len(rows) == 0 {
		return nil
	}
	p := &projectionsdb.UpsertProjectionRowsParams{Projection: b.Projection, Version: int32(b.Version), PartitionID: int32(b.Partition)}
	for _, r := range rows {
		p.Keys, p.States, p.Sequences = append(p.Keys, r.Key), append(p.States, string(r.State)), append(p.Sequences, int64(r.Sequence))
	}
	return s.queries.UpsertProjectionRows(ctx, t, p)
}

// ForgetProjectionRows implements ports.ProjectionRows.
func (s *Rows) ForgetProjectionRows(ctx context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch) error {
	t, err := pgxTx(tx)
	if err != nil {
		return err
	}
	return s.queries.ForgetProjectionRows(ctx, t, &projectionsdb.ForgetProjectionRowsParams{
		Projection: b.Projection, Version: int32(b.Version), PartitionID: int32(b.Partition),
	})
}

// ListProjectionRows implements ports.ProjectionRows. It reads rows and checkpoint in one
// snapshot of the database.
func (s *Rows) ListProjectionRows(ctx context.Context, q ports.ProjectionRowQuery) (rows []ports.ProjectionRow, at event.Sequence, err error) {
	p := &projectionsdb.ListProjectionRowsParams{
		Projection: q.Projection, Version: int32(q.Version), PartitionID: int32(q.Partition), After: q.After,
		AtLeast: q.Prefix, AtMost: q.Prefix + string(utf8.MaxRune), PageSize: pg.PageSize(q.Limit),
	}
	if q.Key != "" {
		p.AtLeast, p.AtMost = q.Key, q.Key
	}
	rows = []ports.ProjectionRow{}
	err = pgx.BeginTxFunc(ctx, s.db.Reads, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		checkpoints, err := s.queries.ReadVersions(ctx, tx, &projectionsdb.ReadVersionsParams{
			Projection: q.Projection, Versions: []int32{int32(q.Version)}, PartitionID: int32(q.Partition),
		})
		if err != nil {
			return err
		}
		for _, c := range checkpoints {
			at = event.Sequence(c.Sequence)
		}
		found, err := s.queries.ListProjectionRows(ctx, tx, p)
		for _, r := range found {
			rows = append(rows, ports.ProjectionRow{Key: r.Key, State: json.RawMessage(r.State), Sequence: event.Sequence(r.Sequence)})
		}
		return err
	})
	return rows, at, pg.Translate(ctx, err)
}

// EndProjection implements ports.ProjectionRows. It locks the checkpoints before the versions, in
// the same order as a node that works a partition. It lists the versions again once it has locked
// them, since another caller may have added one in between.
func (s *Rows) EndProjection(ctx context.Context, name, by string) error {
	return s.inTransaction(ctx, "", func(tx pgx.Tx) error {
		for round := 0; round < endRounds; round++ {
			versions, err := s.queries.AliveProjections(ctx, tx, name)
			if err != nil {
				return err
			}
			if len(versions) == 0 {
				if round == 0 {
					return untranslatedError{projection.NotFound(name)}
				}
				return nil
			}
			if err := s.endVersions(ctx, tx, name, versions, by); err != nil {
				return err
			}
		}
		return untranslatedError{projection.Changed()}
	})
}

// endRounds bounds how often EndProjection lists the versions. None is added once the active
// version is locked, so that two rounds and one that finds none are enough.
const endRounds = 5

// endVersions ends versions. It skips one that another transaction has dropped.
func (s *Rows) endVersions(ctx context.Context, tx pgx.Tx, name string, versions []int32, by string) error {
	if _, err := s.lockVersions(ctx, tx, name, 0, versions...); err != nil {
		return err
	}
	for _, version := range versions {
		err := s.endVersion(ctx, tx, name, version, by, projection.Active, projection.Building, projection.Retained, projection.Saving, projection.Saved)
		if err != nil && fault.CodeOf(err) != projection.CodeChanged {
			return err
		}
	}
	return nil
}

// RowPosition implements ports.RowRecomputer.
func (s *Rows) RowPosition(ctx context.Context, w ports.ProjectionWork) (at ports.RowPosition, begun bool, err error) {
	all, err := (&Checkpoints{s.work}).Checkpoints(ctx, w.Projection, w.Version)
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

// RecomputeRows implements ports.RowRecomputer. The lock of the checkpoint keeps other
// transactions from writing rows of the version in the partition, switching to it, resetting
// or dropping it.
func (s *Rows) RecomputeRows(ctx context.Context, r ports.RowRecompute, begin func() (ports.ProjectionHandler, func() map[string]ports.ProjectionRow)) (ports.TargetChange, error) {
	return s.recompute(ctx, r.ProjectionWork, r.DryRun, func(tx pgx.Tx, c *ports.Checkpoint) (change ports.TargetChange, err error) {
		redactions, err := s.queries.GetSnapshotEpoch(ctx, tx, int32(r.Partition))
		if err != nil {
			return change, err
		}
		now := ports.RowPosition{Sequence: r.Since.Sequence, Generation: c.Generation, Redactions: uint64(redactions)}
		if now != r.Since || c.Sequence < r.ReadThrough || uint64(c.Sequence-r.ReadThrough) > uint64(r.Limit) {
			return change, untranslatedError{projection.Changed()}
		}
		h, rows := begin()
		change.Sequence = c.Sequence
		if change.Events, err = s.applyTail(ctx, tx, r, h, c.Sequence); err != nil {
			return change, err
		}
		if err := s.replaceKeys(ctx, tx, r, rows(), &change); err != nil {
			return change, err
		}
		for _, sequence := range r.Recovered {
			if err := s.resolveSkipped(ctx, tx, r.ProjectionWork, sequence, r.By); err != nil {
				return change, err
			}
		}
		return change, nil
	})
}

// applyTail lets the handler apply the events after ReadThrough, up to the checkpoint.
func (s *Rows) applyTail(ctx context.Context, tx pgx.Tx, r ports.RowRecompute, h ports.ProjectionHandler, through event.Sequence) (applied int, err error) {
	for at := r.ReadThrough; at < through; {
		a := &ports.ProjectionAdvance{ProjectionWork: r.ProjectionWork, Types: r.Types, Limit: int(min(through-at, lockedBatch)), Bytes: lockedBytes}
		events, last, err := s.events.EventsOf(ctx, tx, a, at)
		if err != nil || last == nil {
			return applied, err
		}
		if len(events) > 0 {
			if err := h.Apply(ctx, tx, ports.ProjectionBatch{Projection: r.Projection, Version: r.Version, Partition: r.Partition, Events: events}); err != nil {
				return applied, markHandlerError(ctx, err)
			}
		}
		at, applied = last.Sequence, applied+len(events)
	}
	return applied, nil
}

// replaceKeys writes the rows that differ and deletes the rows of keys that have none now.
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
