package projections

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/projectionsdb"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
)

// moveRows turns the rows of the version $2 in the partition $1 into those of the
// version $3.
func moveRows(t ports.ProjectionTable) string {
	return fmt.Sprintf("UPDATE %s SET version = $3 WHERE partition_id = $1 AND version = $2%s", tableName(t), projectionFilter(t, 4))
}

// SwitchPartition implements ports.Versions. The locks are those of
// SwitchProjection, of one partition: first the checkpoints, then the versions. Every
// row is written once: those of From get the number of a new version, those of To the
// number of From.
func (s *Versions) SwitchPartition(ctx context.Context, w ports.PartitionSwitch) (retained int, err error) {
	to, err := s.findProjection(ctx, w.Projection, w.To)
	if err != nil {
		return 0, err
	}
	if to.Role != projection.Building && to.Role != projection.Retained || w.Partition == 0 || to.Scope != w.Partition {
		return 0, projection.Changed()
	}
	all, err := s.events.PartitionHeads(ctx)
	if err != nil {
		return 0, err
	}
	heads := map[event.PartitionID]ports.Head{w.Partition: all[w.Partition]}
	err = s.inTransaction(ctx, func(tx pgx.Tx) error {
		older, err := s.queries.RetainedInScope(ctx, tx, &projectionsdb.RetainedInScopeParams{Name: w.Projection, Scope: int32(w.Partition), Version: int32(w.To)})
		if err != nil {
			return err
		}
		held, err := s.lockPair(ctx, tx, w, older)
		if err != nil {
			return err
		}
		if !w.Force {
			if err := s.catchUp(ctx, tx, w.ProjectionSwitch, heads, map[event.PartitionID]map[int]*ports.Checkpoint{w.Partition: held}); err != nil {
				return err
			}
		}
		for _, version := range older {
			if err := s.drop(ctx, tx, w.Projection, version, w.By); err != nil {
				return err
			}
		}
		// Two versions are never retained for a partition at once.
		if err := s.changeRole(ctx, tx, w.Projection, int32(w.To), w.By, projection.Dropping, projection.Building, projection.Retained); err != nil {
			return err
		}
		kept, err := s.swapRows(ctx, tx, w)
		if err != nil {
			return err
		}
		retained = int(kept)
		if err := s.swapCheckpoints(ctx, tx, w, kept, *held[w.From], *held[w.To]); err != nil {
			return err
		}
		return s.queries.DeleteCheckpoints(ctx, tx, &projectionsdb.DeleteCheckpointsParams{Projection: w.Projection, Version: int32(w.To)})
	})
	return retained, err
}

// lockPair holds the checkpoints of From, To and older versions in the partition. Those
// of the first two are made if nobody has begun there, so that there is something to
// hold.
func (s *Versions) lockPair(ctx context.Context, tx pgx.Tx, w ports.PartitionSwitch, older []int32) (map[int]*ports.Checkpoint, error) {
	versions := append([]int32{int32(w.From), int32(w.To)}, older...)
	for range 2 {
		held, err := s.lockVersions(ctx, tx, w.Projection, w.Partition, versions...)
		if err != nil {
			return nil, err
		}
		pair := held[w.Partition]
		if pair[w.From] != nil && pair[w.To] != nil {
			return pair, nil
		}
		for _, version := range []int{w.From, w.To} {
			if pair[version] != nil {
				continue
			}
			work := ports.ProjectionWork{Projection: w.Projection, Version: version, Partition: w.Partition}
			if err := s.requireLive(ctx, tx, work); err != nil {
				return nil, projection.Changed()
			}
			if err := s.queries.InsertCheckpoint(ctx, tx, &projectionsdb.InsertCheckpointParams{
				Projection: w.Projection, Version: int32(version), PartitionID: int32(w.Partition), UpdatedAt: s.db.Now(),
			}); err != nil {
				return nil, err
			}
		}
	}
	return nil, projection.Changed()
}

// swapRows changes the roles and the rows. kept is the version that what was
// replaced belongs to.
func (s *Versions) swapRows(ctx context.Context, tx pgx.Tx, w ports.PartitionSwitch) (kept int32, err error) {
	touched, err := s.queries.TouchActive(ctx, tx, &projectionsdb.TouchActiveParams{
		Name: w.Projection, Version: int32(w.From), Other: int32(w.To), ChangedAt: s.db.Now(), ChangedBy: w.By,
	})
	if err != nil {
		return 0, err
	}
	if touched == 0 {
		if active, err := s.queries.ActiveProjection(ctx, tx, w.Projection); err != nil || int(active) != w.From {
			return 0, projection.Changed()
		}
		return 0, projection.OtherCode(w.Projection, w.From)
	}
	kept, err = s.queries.InsertReplaced(ctx, tx, &projectionsdb.InsertReplacedParams{
		Name: w.Projection, Version: int32(w.From), Scope: int32(w.Partition), CreatedAt: s.db.Now(), ChangedBy: w.By,
	})
	if errors.Is(err, pgx.ErrNoRows) {
		err = projection.Changed() // somebody has taken the number at the same time
	}
	if err != nil {
		return 0, err
	}
	move := func(from, to int32) error {
		for _, table := range w.Tables {
			arguments := []any{int32(w.Partition), from, to}
			if table.Shared {
				arguments = append(arguments, w.Projection)
			}
			if _, err := tx.Exec(ctx, moveRows(table), arguments...); err != nil {
				return err
			}
		}
		return s.queries.MoveLetters(ctx, tx, &projectionsdb.MoveLettersParams{
			Name: w.Projection, Version: from, ToVersion: to, PartitionID: int32(w.Partition),
		})
	}
	if err := move(int32(w.From), kept); err != nil {
		return 0, err
	}
	return kept, move(int32(w.To), int32(w.From))
}

// swapCheckpoints lets the checkpoints go with the rows.
func (s *Versions) swapCheckpoints(ctx context.Context, tx pgx.Tx, w ports.PartitionSwitch, kept int32, from, to ports.Checkpoint) error {
	if err := s.queries.InsertCheckpoint(ctx, tx, &projectionsdb.InsertCheckpointParams{
		Projection: w.Projection, Version: kept, PartitionID: int32(w.Partition), UpdatedAt: s.db.Now(),
	}); err != nil {
		return err
	}
	before := from
	before.Version, before.Term, before.Generation = int(kept), 0, 0
	for _, c := range []ports.Checkpoint{before, from.WithRowsOf(to)} {
		if err := s.writeCheckpoint(ctx, tx, c); err != nil {
			return err
		}
		if err := s.queries.ReplaceFold(ctx, tx, &projectionsdb.ReplaceFoldParams{
			Projection: c.Projection, Version: int32(c.Version), PartitionID: int32(c.Partition), Generation: int64(c.Generation), Redactions: int64(c.Redactions),
		}); err != nil {
			return err
		}
	}
	return nil
}
