package projections

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/projectionsdb"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
)

// Versions registers projections and replaces one version of a projection by
// another.
type Versions struct {
	*work
	checkpoints *Checkpoints
	// sweeps are how far versions are swept: by swept the last partition that is done.
	sweeps sync.Map
}

var (
	_ ports.ProjectionRegister = (*Versions)(nil)
	_ ports.ProjectionVersions = (*Versions)(nil)
	_ ports.DeadLetters        = (*Versions)(nil)
)

// NewVersions makes the store of projections' versions.
func NewVersions(c *Checkpoints) *Versions {
	return &Versions{work: c.work, checkpoints: c}
}

// ActiveProjection implements ports.Versions.
func (s *Versions) ActiveProjection(ctx context.Context, name string) (int, error) {
	version, err := s.queries.ActiveProjection(ctx, s.db.Reads, name)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, projection.NotFound(name)
	}
	return int(version), pg.Translate(ctx, err)
}

// requireLive keeps whoever has not heard yet that a version is dropped from beginning
// with it once more.
func (s *work) requireLive(ctx context.Context, tx pgx.Tx, w ports.ProjectionWork) error {
	role, err := s.queries.ShareProjection(ctx, tx, &projectionsdb.ShareProjectionParams{Name: w.Projection, Version: int32(w.Version)})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil // of nobody who keeps a register
	}
	if err == nil && !projection.Role(role).IsLive() {
		err = projection.Fenced()
	}
	return err
}

// errVersionStarted rolls a switch back: the version that is shown has begun with a partition in
// the meantime, and had no checkpoint there that could be held.
var errVersionStarted = errors.New("the version that is shown has begun with another legal entity")

// inTransaction runs f in a transaction, and again after a deadlock or errVersionStarted.
func (s *work) inTransaction(ctx context.Context, f func(tx pgx.Tx) error) (err error) {
	for range advanceTries {
		err = pgx.BeginFunc(ctx, s.db.Reads, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, advanceTimeouts, pg.Milliseconds(s.db.Config.Limits.ProjectionIdleTimeout), pg.Milliseconds(s.db.Config.Limits.LockTimeout)); err != nil {
				return err
			}
			return f(tx)
		})
		if !pg.IsSerializationFailure(err) && !errors.Is(err, errVersionStarted) {
			break
		}
	}
	if own, handlers := errors.AsType[untranslatedError](err); handlers {
		return own.error
	}
	if errors.Is(err, errVersionStarted) {
		return err
	}
	return pg.Translate(ctx, err)
}

// lockVersions holds the checkpoints of two versions, of all partitions if p is 0.
func (s *work) lockVersions(ctx context.Context, tx pgx.Tx, name string, p event.PartitionID, versions ...int32) (map[event.PartitionID]map[int]*ports.Checkpoint, error) {
	rows, err := s.queries.LockVersions(ctx, tx, &projectionsdb.LockVersionsParams{Projection: name, Versions: versions, PartitionID: int32(p)})
	if err != nil {
		return nil, err
	}
	out := map[event.PartitionID]map[int]*ports.Checkpoint{}
	for i := range rows {
		c := checkpoint(&rows[i].BackboneProjectionCheckpoint)
		if out[c.Partition] == nil {
			out[c.Partition] = map[int]*ports.Checkpoint{}
		}
		out[c.Partition][c.Version] = &c
	}
	return out, nil
}

// SwitchProjection implements ports.Versions. It takes the checkpoints before
// the versions, as whoever works a partition does.
func (s *Versions) SwitchProjection(ctx context.Context, w ports.ProjectionSwitch) error {
	if to, err := s.findProjection(ctx, w.Projection, w.To); err != nil {
		return err
	} else if to.Role != projection.Building && to.Role != projection.Retained || to.Scope != 0 {
		return projection.Changed() // whatever it lacks
	}
	heads, err := s.events.PartitionHeads(ctx)
	if err != nil {
		return err
	}
	err = s.inTransaction(ctx, func(tx pgx.Tx) error {
		held, err := s.lockVersions(ctx, tx, w.Projection, 0, int32(w.From), int32(w.To))
		if err != nil {
			return err
		}
		if !w.Force {
			if err := s.catchUp(ctx, tx, w, heads, held); err != nil {
				return err
			}
		}
		older, err := s.queries.RetainedProjection(ctx, tx, &projectionsdb.RetainedProjectionParams{Name: w.Projection, Version: int32(w.To)})
		if err != nil {
			return err
		}
		for _, version := range older {
			if err := s.drop(ctx, tx, w.Projection, version, w.By); err != nil {
				return err
			}
		}
		// Two versions are never active or retained at once, not even inside the transaction.
		if err := s.changeRole(ctx, tx, w.Projection, int32(w.To), w.By, projection.Dropping, projection.Building, projection.Retained); err != nil {
			return err
		}
		if err := s.changeRole(ctx, tx, w.Projection, int32(w.From), w.By, projection.Retained, projection.Active); err != nil {
			return err
		}
		if err := s.changeRole(ctx, tx, w.Projection, int32(w.To), w.By, projection.Active, projection.Dropping); err != nil || w.Force {
			return err
		}
		return s.requireNoneStarted(ctx, tx, w, held)
	})
	if errors.Is(err, errVersionStarted) {
		return projection.VersionBehind(w.Projection, w.To, 1) // again and again: at least an event more
	}
	return err
}

// requireNoneStarted makes sure that the version which was shown has begun nowhere since its
// checkpoints were held. Whoever begins shares the version's row until it commits, so
// that after the change of the role nobody can.
func (s *Versions) requireNoneStarted(ctx context.Context, tx pgx.Tx, w ports.ProjectionSwitch, held map[event.PartitionID]map[int]*ports.Checkpoint) error {
	now, err := s.queries.ListCheckpoints(ctx, tx, &projectionsdb.ListCheckpointsParams{Projection: w.Projection, Version: int32(w.From)})
	if err != nil {
		return err
	}
	for i := range now {
		c := &now[i].BackboneProjectionCheckpoint
		if held[event.PartitionID(c.PartitionID)][w.From] == nil && c.Sequence > 0 {
			return errVersionStarted
		}
	}
	return nil
}

// catchUp makes good in each partition what the version to be shown lacks of what is
// shown now.
func (s *Versions) catchUp(ctx context.Context, tx pgx.Tx, w ports.ProjectionSwitch, heads map[event.PartitionID]ports.Head, held map[event.PartitionID]map[int]*ports.Checkpoint) error {
	for id, head := range heads {
		if w.Partitions != nil && !slices.Contains(w.Partitions, id) {
			continue
		}
		at, shown := held[id][w.To], event.Sequence(0)
		if from := held[id][w.From]; from != nil {
			shown = from.Sequence
		}
		reached := event.Sequence(0)
		if at != nil {
			reached = at.Sequence
		}
		if reached >= shown && uint64(head.Sequence-min(reached, head.Sequence)) <= w.MaxBehind {
			continue
		}
		if at != nil && at.Status == projection.Halted {
			return projection.VersionHalted(w.Projection, w.To)
		}
		if missing := uint64(max(head.Sequence, shown) - reached); at == nil || missing > w.MaxBehind || w.Handler == nil {
			return projection.VersionBehind(w.Projection, w.To, missing)
		}
		work := ports.ProjectionWork{Projection: w.Projection, Version: w.To, Partition: id}
		if err := s.advanceTo(ctx, tx, work, w.Types, w.Handler, at, shown); err != nil {
			return err
		}
	}
	return nil
}

// advanceTo advances a checkpoint that tx holds to a sequence.
func (s *Versions) advanceTo(ctx context.Context, tx pgx.Tx, w ports.ProjectionWork, types []string, h ports.ProjectionHandler, c *ports.Checkpoint, to event.Sequence) error {
	for c.Sequence < to {
		a := ports.ProjectionAdvance{ProjectionWork: w, Types: types, Limit: int(min(to-c.Sequence, levelBatch)), Bytes: levelBytes}
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

// What is handed over at once while checkpoints are held: events, and bytes of payloads.
const (
	levelBatch = 500
	levelBytes = 16 << 20
)

func (s *work) changeRole(ctx context.Context, tx pgx.Tx, name string, version int32, by string, to projection.Role, from ...projection.Role) error {
	roles := make([]string, len(from))
	for i, r := range from {
		roles[i] = string(r)
	}
	changed, err := s.queries.ChangeRole(ctx, tx, &projectionsdb.ChangeRoleParams{
		Name: name, Version: version, Role: string(to), Roles: roles, ChangedAt: s.db.Now(), ChangedBy: by,
	})
	if err == nil && changed == 0 {
		err = projection.Changed()
	}
	return err
}

// DropProjection implements ports.Versions.
func (s *Versions) DropProjection(ctx context.Context, name string, version int, by string) error {
	return s.inTransaction(ctx, func(tx pgx.Tx) error {
		if _, err := s.lockVersions(ctx, tx, name, 0, int32(version)); err != nil {
			return err
		}
		return s.drop(ctx, tx, name, int32(version), by)
	})
}

// drop ends a version. Without its checkpoints nobody works it any more, and a report
// that is being made of it sees that it has lost its ground.
func (s *work) drop(ctx context.Context, tx pgx.Tx, name string, version int32, by string) error {
	return s.end(ctx, tx, name, version, by, projection.Building, projection.Retained, projection.Saving, projection.Saved)
}

// end is drop for a version in one of some roles.
func (s *work) end(ctx context.Context, tx pgx.Tx, name string, version int32, by string, from ...projection.Role) error {
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

// compareTries is how often two versions are brought to the same event before they are
// held there for the whole comparison.
const compareTries = 3

// CompareProjection implements ports.Versions. It holds the checkpoints only
// until it has a snapshot in which they are equal, if it can get one: a checkpoint and
// its rows are written together, so that a snapshot with equal checkpoints is one of
// equal positions.
func (s *Versions) CompareProjection(ctx context.Context, c ports.ProjectionComparison) (d ports.ProjectionDifference, err error) {
	for range compareTries {
		if err := s.inTransaction(ctx, func(tx pgx.Tx) error { return s.align(ctx, tx, c) }); err != nil {
			return d, err
		}
		met := false
		err := pgx.BeginTxFunc(ctx, s.db.Reads, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
			at, err := s.queries.ReadVersions(ctx, tx, &projectionsdb.ReadVersionsParams{
				Projection: c.Projection, Versions: []int32{int32(c.Left), int32(c.Right)}, PartitionID: int32(c.Partition),
			})
			if err != nil || len(at) == 1 || len(at) == 2 && at[0].Sequence != at[1].Sequence {
				return err
			}
			met = true
			d, err = s.difference(ctx, tx, c)
			if len(at) > 0 {
				d.Sequence = event.Sequence(at[0].Sequence)
			}
			return err
		})
		if err != nil || met {
			return d, pg.Translate(ctx, err)
		}
	}
	err = s.inTransaction(ctx, func(tx pgx.Tx) error {
		if err := s.align(ctx, tx, c); err != nil {
			return err
		}
		held, err := s.lockVersions(ctx, tx, c.Projection, c.Partition, int32(c.Left))
		if err != nil {
			return err
		}
		d, err = s.difference(ctx, tx, c)
		if at := held[c.Partition][c.Left]; at != nil {
			d.Sequence = at.Sequence
		}
		return err
	})
	return d, err
}

// align brings the version that is behind to where the other is.
func (s *Versions) align(ctx context.Context, tx pgx.Tx, c ports.ProjectionComparison) error {
	held, err := s.lockVersions(ctx, tx, c.Projection, c.Partition, int32(c.Left), int32(c.Right))
	if err != nil {
		return err
	}
	left, right := held[c.Partition][c.Left], held[c.Partition][c.Right]
	switch {
	case left == nil && right == nil:
		return nil
	case left == nil || right == nil:
		return projection.Incomparable(c.Projection) // one has not begun
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
