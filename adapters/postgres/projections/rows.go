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

// Rows keeps the rows of custom projections, which are not tables of a module.
type Rows struct {
	*work
	checkpoints *Checkpoints
}

var (
	_ ports.ProjectionRows = (*Rows)(nil)
	_ ports.RowRecomputer  = (*Rows)(nil)
)

// NewRows makes the store of custom projections' rows.
func NewRows(c *Checkpoints) *Rows {
	return &Rows{c.work, c}
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

// ListProjectionRows implements ports.ProjectionRows. Rows and checkpoint are of one
// snapshot.
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

// EndProjection implements ports.ProjectionRows. It takes the checkpoints before the
// versions, as whoever works a partition does, and looks again once it has the versions:
// one may have been begun before it had them.
func (s *Rows) EndProjection(ctx context.Context, name, by string) error {
	return s.inTransaction(ctx, func(tx pgx.Tx) error {
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
			if err := s.endAll(ctx, tx, name, versions, by); err != nil {
				return err
			}
		}
		return untranslatedError{projection.Changed()}
	})
}

// endRounds bounds how often it is looked for versions that were begun meanwhile. There
// are none after the one that is shown is held, so two rounds and one that finds none
// are enough.
const endRounds = 5

// endAll ends versions. One that somebody has begun to drop meanwhile is ended already.
func (s *Rows) endAll(ctx context.Context, tx pgx.Tx, name string, versions []int32, by string) error {
	if _, err := s.lockVersions(ctx, tx, name, 0, versions...); err != nil {
		return err
	}
	for _, version := range versions {
		err := s.end(ctx, tx, name, version, by, projection.Active, projection.Building, projection.Retained, projection.Saving, projection.Saved)
		if err != nil && fault.CodeOf(err) != projection.CodeChanged {
			return err
		}
	}
	return nil
}
