package projections

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/projectionsdb"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
)

// DropProjection implements ports.ProjectionVersions.
func (s *Versions) DropProjection(ctx context.Context, name string, version int, by string) error {
	return s.inTransaction(ctx, "", func(tx pgx.Tx) error {
		if _, err := s.lockVersions(ctx, tx, name, 0, int32(version)); err != nil {
			return err
		}
		return s.dropVersion(ctx, tx, name, int32(version), by)
	})
}

// dropVersion ends a version. It deletes the checkpoints, so that no node works the version and a
// running report notices that its rows are being removed.
func (s *work) dropVersion(ctx context.Context, tx pgx.Tx, name string, version int32, by string) error {
	return s.endVersion(ctx, tx, name, version, by, projection.Building, projection.Retained, projection.Saving, projection.Saved)
}

// endVersion is dropVersion for a version in one of the roles from.
func (s *work) endVersion(ctx context.Context, tx pgx.Tx, name string, version int32, by string, from ...projection.Role) error {
	if err := s.changeRole(ctx, tx, name, version, by, projection.Dropping, from...); err != nil {
		return err
	}
	if err := s.queries.DeleteCheckpoints(ctx, tx, &projectionsdb.DeleteCheckpointsParams{Projection: name, Version: version}); err != nil {
		return err
	}
	if err := s.queries.DeleteSnapshotParts(ctx, tx, &projectionsdb.DeleteSnapshotPartsParams{Projection: name, Version: version}); err != nil {
		return err
	}
	return s.queries.DiscardVersionLetters(ctx, tx, &projectionsdb.DiscardVersionLettersParams{
		Name: name, Version: version, SettledAt: pg.OptionalTime(s.db.Now()), SettledBy: pg.OptionalText(by),
	})
}

// sweepStatements is the number of statements after which a call of SweepProjection starts no
// further partition. It sends one for each table and partition, even where there are no rows.
const sweepStatements = 64

// sweptVersion names a version that this node sweeps.
type sweptVersion struct {
	name    string
	version int
}

// SweepProjection implements ports.ProjectionVersions. Each partition and table is a transaction
// of its own. No node writes a version that is being dropped, so that an empty partition stays
// empty; a node that has just started checks all partitions again.
func (s *Versions) SweepProjection(ctx context.Context, name string, version int, tables []ports.ProjectionTable, limit int) (removed int64, err error) {
	key := sweptVersion{name, version}
	role, err := s.queries.ShareProjection(ctx, s.db.Reads, &projectionsdb.ShareProjectionParams{Name: name, Version: int32(version)})
	if err != nil || projection.Role(role) != projection.Dropping {
		s.sweeps.Delete(key)
		return 0, pg.Translate(ctx, err)
	}
	partitions, err := s.queries.ListPartitions(ctx, s.db.Reads)
	if err != nil {
		return 0, pg.Translate(ctx, err)
	}
	after := int32(-1)
	if known, begun := s.sweeps.Load(key); begun {
		after, _ = known.(int32)
	}
	partitions = slices.DeleteFunc(partitions, func(p int32) bool { return p <= after })
	statements, left := 0, false // left: rows may remain in one of the partitions so far
	for len(partitions) > 0 && statements < sweepStatements {
		for _, table := range tables {
			n, err := s.sweep(ctx, name, version, table, partitions[0], limit)
			if err != nil {
				return removed, pg.Translate(ctx, err)
			}
			statements, removed, left = statements+1, removed+n, left || n >= int64(limit)
		}
		if !left {
			s.sweeps.Store(key, partitions[0])
		}
		partitions = partitions[1:]
		if len(tables) == 0 {
			break
		}
	}
	if removed > 0 || len(tables) > 0 && len(partitions) > 0 {
		return removed, nil
	}
	err = s.inTransaction(ctx, "", func(tx pgx.Tx) error {
		return s.changeRole(ctx, tx, name, int32(version), systemActor, projection.Dropped, projection.Dropping)
	})
	if fault.CodeOf(err) == projection.CodeChanged {
		err = nil // another node was faster
	}
	if err == nil {
		s.sweeps.Delete(key)
	}
	return 0, err
}

func (s *Versions) sweep(ctx context.Context, name string, version int, table ports.ProjectionTable, p int32, limit int) (int64, error) {
	tag, err := s.db.Reads.Exec(ctx, deleteSomeStatement(table), tableArguments(table, name, p, int32(version), limit)...)
	return tag.RowsAffected(), err
}

// ForgetDropped implements ports.ProjectionVersions. It keeps a version that still has
// checkpoints: it is from a release without a register and was never swept.
func (s *Versions) ForgetDropped(ctx context.Context, before time.Time) (int, error) {
	forgotten, err := s.queries.ForgetDropped(ctx, s.db.Reads, before)
	return int(forgotten), pg.Translate(ctx, err)
}

// deleteSomeStatement deletes at most $3 rows of the partition $1 and the version $2. It names them by
// their place: by their key, PostgreSQL compares each row with all others of the batch while the
// statistics do not have the version yet.
func deleteSomeStatement(t ports.ProjectionTable) string {
	return fmt.Sprintf(`DELETE FROM %[1]s WHERE partition_id = $1 AND version = $2%[3]s AND ctid = ANY (ARRAY(
		SELECT ctid FROM %[1]s WHERE partition_id = $1 AND version = $2%[3]s ORDER BY %[2]s LIMIT $3))`, tableName(t), columnNames(t), projectionFilter(t, 4))
}
