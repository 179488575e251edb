package projections

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/projectionsdb"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
)

// compareTries is how often two versions are brought to the same event before the comparison
// runs under their locks.
const compareTries = 3

// CompareProjection implements ports.ProjectionVersions. It first tries to read a snapshot of the
// database in which both checkpoints are equal, so that it locks them only to align them: a
// checkpoint and its rows are written in one transaction.
func (s *Versions) CompareProjection(ctx context.Context, c ports.ProjectionComparison) (d ports.ProjectionDifference, err error) {
	for range compareTries {
		if err := s.inTransaction(ctx, "", func(tx pgx.Tx) error { return s.align(ctx, tx, c) }); err != nil {
			return d, err
		}
		isAligned := false
		err := pgx.BeginTxFunc(ctx, s.db.Reads, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
			at, err := s.queries.ReadVersions(ctx, tx, &projectionsdb.ReadVersionsParams{
				Projection: c.Projection, Versions: []int32{int32(c.Left), int32(c.Right)}, PartitionID: int32(c.Partition),
			})
			if err != nil || len(at) == 1 || len(at) == 2 && at[0].Sequence != at[1].Sequence {
				return err
			}
			isAligned = true
			d, err = s.difference(ctx, tx, c)
			if len(at) > 0 {
				d.Sequence = event.Sequence(at[0].Sequence)
			}
			return err
		})
		if err != nil || isAligned {
			return d, pg.Translate(ctx, err)
		}
	}
	err = s.inTransaction(ctx, "", func(tx pgx.Tx) error {
		if err := s.align(ctx, tx, c); err != nil {
			return err
		}
		locked, err := s.lockVersions(ctx, tx, c.Projection, c.Partition, int32(c.Left))
		if err != nil {
			return err
		}
		d, err = s.difference(ctx, tx, c)
		if at := locked[c.Partition][c.Left]; at != nil {
			d.Sequence = at.Sequence
		}
		return err
	})
	return d, err
}

// align advances the version that is behind to the position of the other one.
func (s *Versions) align(ctx context.Context, tx pgx.Tx, c ports.ProjectionComparison) error {
	locked, err := s.lockVersions(ctx, tx, c.Projection, c.Partition, int32(c.Left), int32(c.Right))
	if err != nil {
		return err
	}
	left, right := locked[c.Partition][c.Left], locked[c.Partition][c.Right]
	switch {
	case left == nil && right == nil:
		return nil
	case left == nil || right == nil:
		return projection.Incomparable(c.Projection) // one has not started
	case left.Sequence == right.Sequence:
		return nil
	}
	behind, ahead := left, right
	if left.Sequence > right.Sequence {
		behind, ahead = right, left
	}
	h := c.Handlers[behind.Version]
	if h == nil || behind.Status == projection.Halted || uint64(ahead.Sequence-behind.Sequence) > c.MaxBehind {
		return projection.Incomparable(c.Projection)
	}
	work := ports.ProjectionWork{Projection: c.Projection, Version: behind.Version, Partition: c.Partition}
	return s.advanceTo(ctx, tx, work, c.Types[behind.Version], h, behind, ahead.Sequence)
}

// joinVersions are the rows of the versions $2 and $3 in the partition $1 by their key. Rows
// are compared as text, so that 1.0 is not 1.00.
func joinVersions(t ports.ProjectionTable) string {
	side := func(version int) string {
		return fmt.Sprintf("SELECT %s, to_jsonb(t) - 'version' AS r FROM %s AS t WHERE t.partition_id = $1 AND t.version = $%d%s",
			columnNames(t), tableName(t), version, projectionFilter(t, 4))
	}
	return fmt.Sprintf("(%s) AS a FULL JOIN (%s) AS b USING (%s)", side(2), side(3), columnNames(t))
}

// difference compares all tables in one partition.
func (s *Versions) difference(ctx context.Context, tx pgx.Tx, c ports.ProjectionComparison) (ports.ProjectionDifference, error) {
	d := ports.ProjectionDifference{Partition: c.Partition, Tables: make([]ports.TableDifference, 0, len(c.Tables))}
	for _, table := range c.Tables {
		compared, err := s.tableDifference(ctx, tx, c, table)
		if err != nil {
			return d, err
		}
		d.Tables = append(d.Tables, compared)
	}
	return d, nil
}

func (s *Versions) tableDifference(ctx context.Context, tx pgx.Tx, c ports.ProjectionComparison, t ports.ProjectionTable) (ports.TableDifference, error) {
	d := ports.TableDifference{Table: t.Schema + "." + t.Name}
	arguments := tableArguments(t, c.Projection, int32(c.Partition), int32(c.Left), int32(c.Right))
	err := tx.QueryRow(ctx, `SELECT count(a.r), count(b.r), count(*) FILTER (WHERE b.r IS NULL), count(*) FILTER (WHERE a.r IS NULL),
		count(*) FILTER (WHERE a.r IS NOT NULL AND b.r IS NOT NULL AND a.r::text <> b.r::text)
		FROM `+joinVersions(t), arguments...).Scan(&d.LeftRows, &d.RightRows, &d.OnlyLeft, &d.OnlyRight, &d.Changed)
	if err != nil || d.OnlyLeft+d.OnlyRight+d.Changed == 0 || c.Examples <= 0 {
		return d, err
	}
	members := make([]string, 0, 2*len(t.Key))
	for _, name := range t.Key {
		members = append(members, "'"+strings.ReplaceAll(name, "'", "''")+"'", pgx.Identifier{name}.Sanitize())
	}
	rows, err := tx.Query(ctx, fmt.Sprintf(`SELECT json_build_object(%s)::text,
			CASE WHEN b.r IS NULL THEN 'left' WHEN a.r IS NULL THEN 'right' ELSE 'both' END,
			CASE WHEN a.r IS NULL OR b.r IS NULL THEN '{}'::text[]
				ELSE ARRAY(SELECT x.key FROM jsonb_each_text(a.r) AS x WHERE x.value IS DISTINCT FROM b.r ->> x.key ORDER BY x.key) END
		FROM %s WHERE a.r IS NULL OR b.r IS NULL OR a.r::text <> b.r::text ORDER BY %s LIMIT %d`,
		strings.Join(members, ", "), joinVersions(t), columnNames(t), c.Examples), arguments...)
	if err != nil {
		return d, err
	}
	d.Examples, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (e ports.RowDifference, err error) {
		err = row.Scan(&e.Key, &e.Where, &e.Columns)
		return e, err
	})
	return d, err
}
