package memory

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
)

// SwitchPartition implements ports.ProjectionVersions. In memory it is about the rows
// of projections that were created at run time only.
func (s *ProjectionVersions) SwitchPartition(ctx context.Context, w ports.PartitionSwitch) (int, error) {
	if w.Partition == 0 {
		return 0, projection.Changed()
	}
	if err := s.occupy(ctx); err != nil {
		return 0, err
	}
	defer s.leave()
	one := w.ProjectionSwitch
	one.Partitions = []event.PartitionID{w.Partition}
	if err := s.ready(ctx, one, w.Partition); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	fromKey, toKey := projectionKey{w.Projection, w.From}, projectionKey{w.Projection, w.To}
	from, to := s.operated.projections[fromKey], s.operated.projections[toKey]
	switch {
	case from.Role != projection.Active || to.Role != projection.Building && to.Role != projection.Retained:
		return 0, projection.Changed()
	case !projection.SameCode(from, to):
		return 0, projection.OtherCode(w.Projection, w.From)
	}
	kept := projectionKey{w.Projection, 0}
	for key, p := range s.operated.projections {
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
	s.operated.projections[kept] = cloneProjection(replaced)
	before, after := s.checkpointOr(w.Projection, w.From, w.Partition), s.checkpointOr(w.Projection, w.To, w.Partition)
	s.moveRows(w.Projection, w.From, kept.version, w.Partition)
	s.moveRows(w.Projection, w.To, w.From, w.Partition)
	s.checkpoints[checkpointKey{w.Projection, w.From, w.Partition}] = before.WithRowsOf(after)
	before.Version, before.Term, before.Generation = kept.version, 0, 0
	s.checkpoints[checkpointKey{w.Projection, kept.version, w.Partition}] = before
	s.changeProjection(w.Projection, w.From, w.By, func(*projection.Projection) {})
	s.drop(toKey, w.By)
	return kept.version, nil
}

// checkpointOr is called with the lock held.
func (s *state) checkpointOr(name string, version int, p event.PartitionID) ports.Checkpoint {
	if c, begun := s.checkpoints[checkpointKey{name, version, p}]; begun {
		return c
	}
	return ports.Checkpoint{Projection: name, Version: version, Partition: p, Status: projection.Reading}
}

// moveRows is called with the lock held. Dead letters go with the rows.
func (s *state) moveRows(name string, from, to int, p event.PartitionID) {
	source, target := rowTable(name, from, p), rowTable(name, to, p)
	delete(s.tables, target)
	if rows, any := s.tables[source]; any {
		s.tables[target] = rows
		delete(s.tables, source)
	}
	for key, letter := range maps.Clone(s.operated.letters) {
		if key.kind == ports.LetterOfProjection && key.name == name && key.version == from && key.partition == p {
			delete(s.operated.letters, key)
			key.version, letter.Version = to, to
			s.operated.letters[key] = letter
		}
	}
}

// copyTable is called with the lock held.
func (s *state) copyTable(name string, from, to int, p event.PartitionID) uint64 {
	rows := maps.Clone(s.tables[rowTable(name, from, p)])
	if rows == nil {
		return 0
	}
	s.tables[rowTable(name, to, p)] = rows
	return uint64(len(rows))
}

// PlanSnapshot implements ports.ProjectionSnapshots.
func (s *ProjectionSnapshots) PlanSnapshot(ctx context.Context, name string, version, of int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.operated.projections[projectionKey{name, version}]
	if p.Role != projection.Saving {
		return nil
	}
	for key := range s.checkpoints {
		part := checkpointKey{name, version, key.partition}
		if _, planned := s.snapshots.projections[part]; key.projection == name && key.version == of && p.Reads(key.partition) && !planned {
			s.snapshots.projections[part] = ports.SnapshotPart{Projection: name, Version: version, Partition: key.partition}
		}
	}
	return nil
}

// SavePart implements ports.ProjectionSnapshots. Nothing is redacted in this store.
func (s *ProjectionSnapshots) SavePart(ctx context.Context, c ports.SnapshotCopy) (bool, error) {
	if err := s.occupy(ctx); err != nil {
		return false, err
	}
	defer s.leave()
	s.mu.Lock()
	defer s.mu.Unlock()
	key := checkpointKey{c.Projection, c.Version, c.Partition}
	part, planned := s.snapshots.projections[key]
	if !planned || !part.TakenAt.IsZero() {
		return planned, nil
	}
	to := s.operated.projections[projectionKey{c.Projection, c.Version}]
	if to.Role != projection.Saving {
		return false, projection.Changed()
	}
	for _, from := range s.operated.projections {
		at, begun := s.checkpoints[checkpointKey{c.Projection, from.Version, c.Partition}]
		if from.Name != c.Projection || from.Role != projection.Active || !begun || !projection.SameCode(from, to) {
			continue
		}
		part.Sequence, part.TakenAt, part.Usable = at.Sequence, s.now(), true
		part.Rows = s.copyTable(c.Projection, from.Version, c.Version, c.Partition)
		s.snapshots.projections[key] = part
		return true, nil
	}
	return false, projection.OtherCode(c.Projection, c.Version)
}

// FinishSnapshot implements ports.ProjectionSnapshots.
func (s *ProjectionSnapshots) FinishSnapshot(ctx context.Context, name string, version, keep int, by string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := projectionKey{name, version}
	p := s.operated.projections[key]
	if p.Role != projection.Saving {
		return projection.Changed()
	}
	s.become(key, projection.Saved, by)
	saved := []int{}
	for other, known := range s.operated.projections {
		if other.name == name && known.Role == projection.Saved && known.Scope == p.Scope {
			saved = append(saved, other.version)
		}
	}
	slices.Sort(saved)
	for _, v := range saved[:max(0, len(saved)-keep)] {
		s.drop(projectionKey{name, v}, by)
	}
	return nil
}

// RestorePart implements ports.ProjectionSnapshots.
func (s *ProjectionSnapshots) RestorePart(ctx context.Context, c ports.SnapshotCopy) (bool, error) {
	if err := s.occupy(ctx); err != nil {
		return false, err
	}
	defer s.leave()
	s.mu.Lock()
	defer s.mu.Unlock()
	part, known := s.snapshots.projections[checkpointKey{c.Projection, c.Version, c.Partition}]
	if !known || !part.Usable {
		return known, nil
	}
	key := checkpointKey{c.Projection, c.To, c.Partition}
	if _, begun := s.checkpoints[key]; begun {
		return true, nil
	}
	if s.operated.projections[projectionKey{c.Projection, c.Version}].Role != projection.Saved ||
		s.operated.projections[projectionKey{c.Projection, c.To}].Role != projection.Building {
		return false, projection.Changed()
	}
	s.copyTable(c.Projection, c.Version, c.To, c.Partition)
	s.checkpoints[key] = ports.Checkpoint{
		Projection: c.Projection, Version: c.To, Partition: c.Partition, Status: projection.Reading, Sequence: part.Sequence, UpdatedAt: s.now(),
		Processed: s.processed(c.Partition, part.Sequence, c.Types),
	}
	return true, nil
}

// processed counts the events of some types up to a sequence; it is called with the lock
// held.
func (s *state) processed(id event.PartitionID, to event.Sequence, types []string) (n uint64) {
	p := s.partitions[id]
	if p == nil {
		return 0
	}
	for i := range p.events {
		if e := &p.events[i]; e.Sequence <= to && (len(types) == 0 || slices.Contains(types, e.Type)) {
			n++
		}
	}
	return n
}

// SnapshotParts implements ports.ProjectionSnapshots.
func (s *ProjectionSnapshots) SnapshotParts(ctx context.Context, name string) ([]ports.SnapshotPart, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := []ports.SnapshotPart{}
	for _, part := range s.snapshots.projections {
		if name == "" || part.Projection == name {
			out = append(out, part)
		}
	}
	slices.SortFunc(out, func(a, b ports.SnapshotPart) int {
		return cmp.Or(cmp.Compare(a.Projection, b.Projection), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Partition, b.Partition))
	})
	return out, nil
}

// ForgetPart implements ports.ProjectionSnapshots.
func (s *ProjectionSnapshots) ForgetPart(ctx context.Context, c ports.SnapshotCopy) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := checkpointKey{c.Projection, c.Version, c.Partition}
	if _, planned := s.snapshots.projections[key]; planned {
		delete(s.snapshots.projections, key)
		delete(s.tables, rowTable(c.Projection, c.Version, c.Partition))
	}
	return nil
}
