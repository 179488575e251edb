package projections

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/projectionsdb"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
)

// errVersionStarted rolls a switch back: a node has started a partition of the active version, in
// which there was no checkpoint to lock before.
var errVersionStarted = errors.New("the active version has started another legal entity")

// SwitchProjection implements ports.ProjectionVersions. It locks the checkpoints before the
// versions, in the same order as a node that works a partition, so that the two do not deadlock.
func (s *Versions) SwitchProjection(ctx context.Context, w ports.ProjectionSwitch) error {
	if to, err := s.findProjection(ctx, w.Projection, w.To); err != nil {
		return err
	} else if to.Role != projection.Building && to.Role != projection.Retained || to.Scope != 0 {
		return projection.Changed()
	}
	heads, err := s.events.PartitionHeads(ctx)
	if err != nil {
		return err
	}
	err = s.inTransaction(ctx, "", func(tx pgx.Tx) error {
		locked, err := s.lockVersions(ctx, tx, w.Projection, 0, int32(w.From), int32(w.To))
		if err != nil {
			return err
		}
		if !w.Force {
			if err := s.catchUp(ctx, tx, w, heads, locked); err != nil {
				return err
			}
		}
		older, err := s.queries.RetainedProjection(ctx, tx, &projectionsdb.RetainedProjectionParams{Name: w.Projection, Version: int32(w.To)})
		if err != nil {
			return err
		}
		for _, version := range older {
			if err := s.dropVersion(ctx, tx, w.Projection, version, w.By); err != nil {
				return err
			}
		}
		// Unique indexes allow one active and one retained version, even within a transaction. To
		// therefore leaves its role first and is dropping until From has left the active one.
		if err := s.changeRole(ctx, tx, w.Projection, int32(w.To), w.By, projection.Dropping, projection.Building, projection.Retained); err != nil {
			return err
		}
		if err := s.changeRole(ctx, tx, w.Projection, int32(w.From), w.By, projection.Retained, projection.Active); err != nil {
			return err
		}
		if err := s.changeRole(ctx, tx, w.Projection, int32(w.To), w.By, projection.Active, projection.Dropping); err != nil {
			return err
		}
		if !w.Force {
			if err := s.requireNoneStarted(ctx, tx, w, locked); err != nil {
				return err
			}
		}
		return record(ctx, w)
	})
	if errors.Is(err, errVersionStarted) {
		// A node has started a partition in each attempt, so that To lacks at least one event.
		return projection.VersionBehind(w.Projection, w.To, 1)
	}
	return err
}

// record calls Record of a switch, last in its transaction.
func record(ctx context.Context, w ports.ProjectionSwitch) error {
	if w.Record == nil {
		return nil
	}
	if err := w.Record(ctx); err != nil {
		return untranslatedError{err}
	}
	return nil
}

// requireNoneStarted verifies that no node has started a partition of From since its checkpoints
// were locked. A node that starts one locks the version's row FOR SHARE until it commits, so that
// the change of the role waits for it, and no node can start one after that change.
func (s *Versions) requireNoneStarted(ctx context.Context, tx pgx.Tx, w ports.ProjectionSwitch, locked map[event.PartitionID]map[int]*ports.Checkpoint) error {
	now, err := s.queries.ListCheckpoints(ctx, tx, &projectionsdb.ListCheckpointsParams{Projection: w.Projection, Version: int32(w.From)})
	if err != nil {
		return err
	}
	for i := range now {
		c := &now[i].BackboneProjectionCheckpoint
		if locked[event.PartitionID(c.PartitionID)][w.From] == nil && c.Sequence > 0 {
			return untranslatedError{errVersionStarted}
		}
	}
	return nil
}

// catchUp advances the new version in each partition to the position of the active one.
func (s *Versions) catchUp(ctx context.Context, tx pgx.Tx, w ports.ProjectionSwitch, heads map[event.PartitionID]ports.Head, locked map[event.PartitionID]map[int]*ports.Checkpoint) error {
	for id, head := range heads {
		if w.Partitions != nil && !slices.Contains(w.Partitions, id) {
			continue
		}
		at, active := locked[id][w.To], event.Sequence(0)
		if from := locked[id][w.From]; from != nil {
			active = from.Sequence
		}
		reached := event.Sequence(0)
		if at != nil {
			reached = at.Sequence
		}
		if reached >= active && uint64(head.Sequence-min(reached, head.Sequence)) <= w.MaxBehind {
			continue
		}
		if at != nil && at.Status == projection.Halted {
			return projection.VersionHalted(w.Projection, w.To)
		}
		if missing := uint64(max(head.Sequence, active) - reached); at == nil || missing > w.MaxBehind || w.Handler == nil {
			return projection.VersionBehind(w.Projection, w.To, missing)
		}
		work := ports.ProjectionWork{Projection: w.Projection, Version: w.To, Partition: id}
		if err := s.advanceTo(ctx, tx, work, w.Types, w.Handler, at, active); err != nil {
			return err
		}
	}
	return nil
}

// advanceTo advances a checkpoint that tx has locked to a sequence.
func (s *Versions) advanceTo(ctx context.Context, tx pgx.Tx, w ports.ProjectionWork, types []string, h ports.ProjectionHandler, c *ports.Checkpoint, to event.Sequence) error {
	for c.Sequence < to {
		a := ports.ProjectionAdvance{ProjectionWork: w, Types: types, Limit: int(min(to-c.Sequence, lockedBatch)), Bytes: lockedBytes}
		passed, err := s.apply(ctx, tx, a, h, c)
		if err != nil {
			return err
		}
		if passed == 0 {
			return projection.VersionBehind(w.Projection, w.Version, uint64(to-c.Sequence))
		}
	}
	return s.writeCheckpoint(ctx, tx, *c)
}

// The events, and the bytes of their payloads, that a handler receives at once while checkpoints
// are locked.
const (
	lockedBatch = 500
	lockedBytes = 16 << 20
)

// SwitchPartition implements ports.ProjectionVersions. Like SwitchProjection it locks the
// checkpoints, of one partition, before the versions. It updates every row once: those of From
// get the number of a new version, those of To the number of From.
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
	err = s.inTransaction(ctx, "", func(tx pgx.Tx) error {
		older, err := s.queries.RetainedInScope(ctx, tx, &projectionsdb.RetainedInScopeParams{Name: w.Projection, Scope: int32(w.Partition), Version: int32(w.To)})
		if err != nil {
			return err
		}
		pair, err := s.lockPair(ctx, tx, w, older)
		if err != nil {
			return err
		}
		if !w.Force {
			if err := s.catchUp(ctx, tx, w.ProjectionSwitch, heads, map[event.PartitionID]map[int]*ports.Checkpoint{w.Partition: pair}); err != nil {
				return err
			}
		}
		for _, version := range older {
			if err := s.dropVersion(ctx, tx, w.Projection, version, w.By); err != nil {
				return err
			}
		}
		// A unique index allows one retained version of a partition: To leaves that role before the
		// replaced rows get it.
		if err := s.changeRole(ctx, tx, w.Projection, int32(w.To), w.By, projection.Dropping, projection.Building, projection.Retained); err != nil {
			return err
		}
		kept, err := s.swapRows(ctx, tx, w)
		if err != nil {
			return err
		}
		retained = int(kept)
		if err := s.swapCheckpoints(ctx, tx, w, kept, *pair[w.From], *pair[w.To]); err != nil {
			return err
		}
		if err := s.queries.DeleteCheckpoints(ctx, tx, &projectionsdb.DeleteCheckpointsParams{Projection: w.Projection, Version: int32(w.To)}); err != nil {
			return err
		}
		return record(ctx, w.ProjectionSwitch)
	})
	return retained, err
}

// lockPair locks the checkpoints of From, To and older versions in the partition. It inserts
// those of the first two where no node has started, so that there is a row to lock.
func (s *Versions) lockPair(ctx context.Context, tx pgx.Tx, w ports.PartitionSwitch, older []int32) (map[int]*ports.Checkpoint, error) {
	versions := append([]int32{int32(w.From), int32(w.To)}, older...)
	for range 2 {
		locked, err := s.lockVersions(ctx, tx, w.Projection, w.Partition, versions...)
		if err != nil {
			return nil, err
		}
		pair := locked[w.Partition]
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

// swapRows swaps the rows of the two versions. kept is the new version that owns the
// replaced rows.
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
		err = projection.Changed() // another transaction has taken the number
	}
	if err != nil {
		return 0, err
	}
	move := func(from, to int32) error {
		for _, table := range w.Tables {
			if _, err := tx.Exec(ctx, moveStatement(table), tableArguments(table, w.Projection, int32(w.Partition), from, to)...); err != nil {
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

// swapCheckpoints moves the checkpoints with the rows.
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
		if err := s.queries.SetGeneration(ctx, tx, &projectionsdb.SetGenerationParams{
			Projection: c.Projection, Version: int32(c.Version), PartitionID: int32(c.Partition), Generation: int64(c.Generation), Redactions: int64(c.Redactions),
		}); err != nil {
			return err
		}
	}
	return nil
}

// moveStatement turns the rows of the version $2 in the partition $1 into those of the
// version $3.
func moveStatement(t ports.ProjectionTable) string {
	return fmt.Sprintf("UPDATE %s SET version = $3 WHERE partition_id = $1 AND version = $2%s", tableName(t), projectionFilter(t, 4))
}
