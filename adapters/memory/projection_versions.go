package memory

import (
	"context"
	"slices"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
)

// ActiveProjection implements ports.ProjectionVersions.
func (s *ProjectionVersions) ActiveProjection(ctx context.Context, name string) (int, error) {
	all, err := s.ListProjections(ctx)
	for _, p := range all {
		if p.Name == name && p.Role == projection.Active {
			return p.Version, nil
		}
	}
	if err == nil {
		err = projection.NotFound(name)
	}
	return 0, err
}

// ended tells whether a version is or was dropped.
func (s *state) ended(name string, version int) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	p, known := s.operated.projections[projectionKey{name, version}]
	return known && !p.Role.IsLive()
}

// SwitchProjection implements ports.ProjectionVersions.
func (s *ProjectionVersions) SwitchProjection(ctx context.Context, w ports.ProjectionSwitch) error {
	if err := s.occupy(ctx); err != nil {
		return err
	}
	defer s.leave()
	if err := s.ready(ctx, w, 0); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	from, to := s.operated.projections[projectionKey{w.Projection, w.From}], s.operated.projections[projectionKey{w.Projection, w.To}]
	if from.Role != projection.Active || to.Role != projection.Building && to.Role != projection.Retained {
		return projection.Changed()
	}
	for key, p := range s.operated.projections {
		if key.name == w.Projection && p.Role == projection.Retained && key.version != w.To {
			s.drop(key, w.By)
		}
	}
	s.become(projectionKey{w.Projection, w.From}, projection.Retained, w.By)
	s.become(projectionKey{w.Projection, w.To}, projection.Active, w.By)
	return nil
}

// ready refuses a switch to a version that is not built in the scope, whatever it lacks,
// or that lacks too much, and makes good what else it lacks. It is called by whoever has
// occupied the read models, so that this stays as it is until the switch.
func (s *state) ready(ctx context.Context, w ports.ProjectionSwitch, scope event.PartitionID) error {
	s.mu.RLock()
	to := s.operated.projections[projectionKey{w.Projection, w.To}]
	s.mu.RUnlock()
	if to.Scope != scope || to.Role != projection.Building && to.Role != projection.Retained {
		return projection.Changed()
	}
	if w.Force {
		return nil
	}
	return s.level(ctx, w)
}

func (s *state) level(ctx context.Context, w ports.ProjectionSwitch) error {
	heads, err := s.reader().PartitionHeads(ctx)
	if err != nil {
		return err
	}
	for id, head := range heads {
		if w.Partitions != nil && !slices.Contains(w.Partitions, id) {
			continue
		}
		from, to := s.checkpoint(w.Projection, w.From, id), s.checkpoint(w.Projection, w.To, id)
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
		if _, _, err := s.advance(ctx, a, w.Handler); err != nil {
			return err
		}
	}
	return nil
}

func (s *state) checkpoint(name string, version int, p event.PartitionID) ports.Checkpoint {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.checkpoints[checkpointKey{name, version, p}]
}

// become is called with the lock held. A version that was to begin with a snapshot and
// is shown before it has does not wait for the rest of it: nobody copies any more.
func (s *state) become(key projectionKey, r projection.Role, by string) {
	s.changeProjection(key.name, key.version, by, func(p *projection.Projection) {
		if p.Role, p.SelfSwitching = r, false; r == projection.Active && p.Base != 0 && p.Status == projection.Created {
			p.Status = projection.Running
		}
	})
}

// drop is called with the lock held.
func (s *state) drop(key projectionKey, by string) {
	s.become(key, projection.Dropping, by)
	for part := range s.snapshots.projections {
		if part.projection == key.name && part.version == key.version {
			delete(s.snapshots.projections, part)
		}
	}
	for c := range s.checkpoints {
		if c.projection == key.name && c.version == key.version {
			delete(s.checkpoints, c)
			s.settleLetters(ports.ProjectionWork{Projection: key.name, Version: key.version, Partition: c.partition}, ^event.Sequence(0), ports.LetterDiscarded, by, "")
		}
	}
}

// DropProjection implements ports.ProjectionVersions.
func (s *ProjectionVersions) DropProjection(ctx context.Context, name string, version int, by string) error {
	if err := s.occupy(ctx); err != nil { // whoever is writing it ends first
		return err
	}
	defer s.leave()
	s.mu.Lock()
	defer s.mu.Unlock()
	key := projectionKey{name, version}
	switch s.operated.projections[key].Role {
	case projection.Building, projection.Retained, projection.Saving, projection.Saved:
	default:
		return projection.Changed()
	}
	s.drop(key, by)
	return nil
}

// SweepProjection implements ports.ProjectionVersions. In memory it is about the rows of
// projections that were created at run time only.
func (s *ProjectionVersions) SweepProjection(ctx context.Context, name string, version int, _ []ports.ProjectionTable, limit int) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := projectionKey{name, version}
	if s.operated.projections[key].Role == projection.Dropping {
		if removed := s.sweepRows(name, version, limit); removed > 0 {
			return removed, nil
		}
		s.become(key, projection.Dropped, systemActor)
	}
	return 0, nil
}

// ForgetDropped implements ports.ProjectionVersions.
func (s *ProjectionVersions) ForgetDropped(ctx context.Context, before time.Time) (forgotten int, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	latest := map[string]int{}
	for key := range s.operated.projections {
		latest[key.name] = max(latest[key.name], key.version)
	}
	for key, p := range s.operated.projections {
		if p.Role == projection.Dropped && p.ChangedAt.Before(before) && key.version < latest[key.name] {
			delete(s.operated.projections, key)
			forgotten++
		}
	}
	return forgotten, nil
}
