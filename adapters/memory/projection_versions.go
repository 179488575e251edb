package memory

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
)

// ProjectionVersions keeps the register of projections, their versions and dead letters.
type ProjectionVersions struct{ *state }

// ActiveProjection implements ports.ProjectionVersions.
func (s *ProjectionVersions) ActiveProjection(ctx context.Context, name string) (int, error) {
	return get(ctx, s.state, func() (int, error) {
		for _, p := range s.projections {
			if p.Name == name && p.Role == projection.Active {
				return p.Version, nil
			}
		}
		return 0, projection.NotFound(name)
	})
}

// SwitchProjection implements ports.ProjectionVersions.
func (s *ProjectionVersions) SwitchProjection(ctx context.Context, w ports.ProjectionSwitch) error {
	turn, err := s.readModels.acquire(ctx, 0)
	if err != nil {
		return err
	}
	defer s.readModels.release(turn)
	if err := s.prepareSwitch(ctx, turn, w, 0); err != nil {
		return err
	}
	if w.Record != nil { // under the lock of the read models, before that of the state, which the record needs
		if err := w.Record(ctx); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.readModels.check(turn); err != nil {
		return err
	}
	from, to := s.projections[projectionKey{w.Projection, w.From}], s.projections[projectionKey{w.Projection, w.To}]
	if from.Role != projection.Active || to.Role != projection.Building && to.Role != projection.Retained {
		return projection.Changed()
	}
	for key, p := range s.projections {
		if key.name == w.Projection && p.Role == projection.Retained && key.version != w.To {
			s.drop(key, w.By)
		}
	}
	s.setRole(projectionKey{w.Projection, w.From}, projection.Retained, w.By)
	s.setRole(projectionKey{w.Projection, w.To}, projection.Active, w.By)
	return nil
}

// prepareSwitch refuses a switch to a version that is not built in the scope or lacks too many
// events, and lets it read what else it lacks. It is called by a caller that has locked the
// read models, so that the version stays ready until the switch.
func (s *state) prepareSwitch(ctx context.Context, turn uint64, w ports.ProjectionSwitch, scope event.PartitionID) error {
	s.mu.Lock()
	to := s.projections[projectionKey{w.Projection, w.To}]
	s.mu.Unlock()
	if to.Scope != scope || to.Role != projection.Building && to.Role != projection.Retained {
		return projection.Changed()
	}
	if w.Force {
		return nil
	}
	heads, err := s.reader().PartitionHeads(ctx)
	if err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(heads)) {
		head := heads[id]
		if w.Partitions != nil && !slices.Contains(w.Partitions, id) {
			continue
		}
		s.mu.Lock()
		from, to := s.checkpoint(checkpointKey{w.Projection, w.From, id}), s.checkpoint(checkpointKey{w.Projection, w.To, id})
		s.mu.Unlock()
		if to.Sequence >= from.Sequence && uint64(head.Sequence-min(to.Sequence, head.Sequence)) <= w.MaxBehind {
			continue
		}
		if to.Status == projection.Halted {
			return projection.VersionHalted(w.Projection, w.To)
		}
		if missing := uint64(max(head.Sequence, from.Sequence) - to.Sequence); missing > w.MaxBehind || w.Handler == nil {
			return projection.VersionBehind(w.Projection, w.To, missing)
		}
		a := ports.ProjectionAdvance{ProjectionWork: ports.ProjectionWork{Projection: w.Projection, Version: w.To, Partition: id}, Types: w.Types}
		if _, _, err := s.advance(ctx, turn, a, w.Handler); err != nil {
			return err
		}
	}
	return nil
}

// SwitchPartition implements ports.ProjectionVersions. In memory it switches the rows
// of custom projections only.
func (s *ProjectionVersions) SwitchPartition(ctx context.Context, w ports.PartitionSwitch) (int, error) {
	if w.Partition == 0 {
		return 0, projection.Changed()
	}
	turn, err := s.readModels.acquire(ctx, 0)
	if err != nil {
		return 0, err
	}
	defer s.readModels.release(turn)
	one := w.ProjectionSwitch
	one.Partitions = []event.PartitionID{w.Partition}
	if err := s.prepareSwitch(ctx, turn, one, w.Partition); err != nil {
		return 0, err
	}
	if w.Record != nil {
		if err := w.Record(ctx); err != nil {
			return 0, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.readModels.check(turn); err != nil {
		return 0, err
	}
	fromKey, toKey := projectionKey{w.Projection, w.From}, projectionKey{w.Projection, w.To}
	from, to := s.projections[fromKey], s.projections[toKey]
	switch {
	case from.Role != projection.Active || to.Role != projection.Building && to.Role != projection.Retained:
		return 0, projection.Changed()
	case !projection.SameCode(from, to):
		return 0, projection.OtherCode(w.Projection, w.From)
	}
	kept := projectionKey{w.Projection, 0}
	for key, p := range s.projections {
		if key.name != w.Projection {
			continue
		}
		kept.version = max(kept.version, key.version+1)
		if p.Role == projection.Retained && p.Scope == w.Partition && key != toKey {
			s.drop(key, w.By)
		}
	}
	replaced := from
	replaced.Version, replaced.Role, replaced.Scope, replaced.Revision, replaced.SelfSwitching = kept.version, projection.Retained, w.Partition, 1, false
	replaced.CreatedAt, replaced.ChangedAt, replaced.ChangedBy = s.now(), s.now(), w.By
	s.projections[kept] = cloneProjection(replaced)
	before, after := s.checkpoint(checkpointKey{w.Projection, w.From, w.Partition}), s.checkpoint(checkpointKey{w.Projection, w.To, w.Partition})
	s.moveRows(w.Projection, w.From, kept.version, w.Partition)
	s.moveRows(w.Projection, w.To, w.From, w.Partition)
	s.checkpoints[checkpointKey{w.Projection, w.From, w.Partition}] = before.WithRowsOf(after)
	before.Version, before.Term, before.Generation = kept.version, 0, 0
	s.checkpoints[checkpointKey{w.Projection, kept.version, w.Partition}] = before
	s.changeProjection(w.Projection, w.From, w.By, func(*projection.Projection) {})
	s.drop(toKey, w.By)
	return kept.version, nil
}

// moveRows is called with the lock held. Dead letters go with the rows.
func (s *state) moveRows(name string, from, to int, p event.PartitionID) {
	source, target := rowTable(name, from, p), rowTable(name, to, p)
	delete(s.tables, target)
	if rows, any := s.tables[source]; any {
		s.tables[target] = rows
		delete(s.tables, source)
	}
	for key, letter := range maps.Clone(s.letters) {
		if key.kind == ports.LetterOfProjection && key.name == name && key.version == from && key.partition == p {
			delete(s.letters, key)
			key.version, letter.Version = to, to
			s.letters[key] = letter
		}
	}
}

// setRole is called with the lock held. A version that becomes active before the snapshot it
// begins with is copied does not wait for the rest, since no node copies it any more.
func (s *state) setRole(key projectionKey, r projection.Role, by string) {
	s.changeProjection(key.name, key.version, by, func(p *projection.Projection) {
		if p.Role, p.SelfSwitching = r, false; r == projection.Active && p.Base != 0 && p.Status == projection.Created {
			p.Status = projection.Running
		}
	})
}

// drop is called with the lock held.
func (s *state) drop(key projectionKey, by string) {
	s.setRole(key, projection.Dropping, by)
	maps.DeleteFunc(s.snapshotParts, func(part checkpointKey, _ ports.SnapshotPart) bool {
		return part.projection == key.name && part.version == key.version
	})
	for c := range s.checkpoints {
		if c.projection == key.name && c.version == key.version {
			delete(s.checkpoints, c)
			s.settleLetters(ports.ProjectionWork{Projection: key.name, Version: key.version, Partition: c.partition}, ^event.Sequence(0), ports.LetterDiscarded, by, "")
		}
	}
}

// DropProjection implements ports.ProjectionVersions.
func (s *ProjectionVersions) DropProjection(ctx context.Context, name string, version int, by string) error {
	turn, err := s.readModels.acquire(ctx, 0) // a writer finishes first
	if err != nil {
		return err
	}
	defer s.readModels.release(turn)
	s.mu.Lock()
	defer s.mu.Unlock()
	key := projectionKey{name, version}
	switch s.projections[key].Role {
	case projection.Building, projection.Retained, projection.Saving, projection.Saved:
	default:
		return projection.Changed()
	}
	s.drop(key, by)
	return nil
}

// SweepProjection implements ports.ProjectionVersions. In memory it removes the rows of
// custom projections only.
func (s *ProjectionVersions) SweepProjection(ctx context.Context, name string, version int, _ []ports.ProjectionTable, limit int) (int64, error) {
	return get(ctx, s.state, func() (int64, error) {
		key := projectionKey{name, version}
		if s.projections[key].Role == projection.Dropping {
			if removed := s.sweepRows(name, version, limit); removed > 0 {
				return removed, nil
			}
			s.setRole(key, projection.Dropped, systemActor)
		}
		return 0, nil
	})
}

// ForgetDropped implements ports.ProjectionVersions.
func (s *ProjectionVersions) ForgetDropped(ctx context.Context, before time.Time) (forgotten int, err error) {
	return get(ctx, s.state, func() (int, error) {
		latest, known := s.latestVersions(), len(s.projections)
		maps.DeleteFunc(s.projections, func(key projectionKey, p projection.Projection) bool {
			return p.Role == projection.Dropped && p.ChangedAt.Before(before) && key.version < latest[key.name]
		})
		return known - len(s.projections), nil
	})
}
