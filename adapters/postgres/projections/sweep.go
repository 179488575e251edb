package projections

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/projectionsdb"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
)

// sweepStatements is how many statements a sweep sends at once: one for each table and
// partition, whether there are rows or not.
const sweepStatements = 64

// sweepKey is a version that this node sweeps.
type sweepKey struct {
	name    string
	version int
}

// SweepProjection implements ports.Versions. Each partition and table is a
// transaction of its own. Nobody writes a version that is being dropped, so a partition
// that was found empty stays it; a node that has just begun looks at all of them once
// more.
func (s *Versions) SweepProjection(ctx context.Context, name string, version int, tables []ports.ProjectionTable, limit int) (removed int64, err error) {
	key := sweepKey{name, version}
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
	looked, left := 0, false // rows are left in a partition before the one at hand
	for len(partitions) > 0 && looked < sweepStatements {
		for _, table := range tables {
			n, err := s.sweep(ctx, name, version, table, partitions[0], limit)
			if err != nil {
				return removed, pg.Translate(ctx, err)
			}
			looked, removed, left = looked+1, removed+n, left || n >= int64(limit)
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
	err = s.inTransaction(ctx, func(tx pgx.Tx) error {
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
	arguments := []any{p, int32(version), limit}
	if table.Shared {
		arguments = append(arguments, name)
	}
	tag, err := s.db.Reads.Exec(ctx, deleteSome(table), arguments...)
	return tag.RowsAffected(), err
}

// ForgetDropped implements ports.Versions. A version that still has checkpoints
// was never swept: it is of a release without a register.
func (s *Versions) ForgetDropped(ctx context.Context, before time.Time) (int, error) {
	forgotten, err := s.queries.ForgetDropped(ctx, s.db.Reads, before)
	return int(forgotten), pg.Translate(ctx, err)
}
