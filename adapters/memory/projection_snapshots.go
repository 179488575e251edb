package memory

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/domain/snapshot"
	"github.com/erpbackbone/backbone/ports"
)

// ProjectionSnapshots keeps copies of the rows of versions.
type ProjectionSnapshots struct{ *state }

// PlanSnapshot implements ports.ProjectionSnapshots.
func (s *ProjectionSnapshots) PlanSnapshot(ctx context.Context, name string, version, source int) error {
	return s.do(ctx, func() error {
		p := s.projections[projectionKey{name, version}]
		if p.Role != projection.Saving {
			return nil
		}
		for key := range s.checkpoints {
			part := checkpointKey{name, version, key.partition}
			if _, planned := s.snapshotParts[part]; key.projection == name && key.version == source && p.Reads(key.partition) && !planned {
				s.snapshotParts[part] = ports.SnapshotPart{Projection: name, Version: version, Partition: key.partition}
			}
		}
		return nil
	})
}

// isUsable reports whether a part was taken, and nothing was redacted since. It is called with the
// lock held.
func (s *state) isUsable(part *ports.SnapshotPart) bool {
	return !part.TakenAt.IsZero() && part.Redactions == uint64(s.epoch(part.Partition))
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

// authenticatePart is called with the lock held.
func (s *state) authenticatePart(c ports.SnapshotCopy, version int, part ports.SnapshotPart) ([]byte, error) {
	part.Digest = sha256.Sum256(fmt.Append(nil, s.tables[rowTable(c.Projection, version, c.Partition)]))
	return c.Authenticate(part)
}

// SavePart implements ports.ProjectionSnapshots.
func (s *ProjectionSnapshots) SavePart(ctx context.Context, c ports.SnapshotCopy) (bool, error) {
	turn, err := s.readModels.acquire(ctx, 0)
	if err != nil {
		return false, err
	}
	defer s.readModels.release(turn)
	s.mu.Lock()
	defer s.mu.Unlock()
	key := checkpointKey{c.Projection, c.Version, c.Partition}
	part, planned := s.snapshotParts[key]
	if !planned || !part.TakenAt.IsZero() {
		return planned, nil
	}
	to := s.projections[projectionKey{c.Projection, c.Version}]
	if to.Role != projection.Saving {
		return false, projection.Changed()
	}
	for _, from := range s.projections {
		at, begun := s.checkpoints[checkpointKey{c.Projection, from.Version, c.Partition}]
		if from.Name != c.Projection || from.Role != projection.Active || !begun || !projection.SameCode(from, to) {
			continue
		}
		part.Sequence, part.TakenAt, part.Redactions = at.Sequence, s.now(), at.Redactions
		if s.isUsable(&part) { // else the rows may show what was redacted since
			part.Rows = s.copyTable(c.Projection, from.Version, c.Version, c.Partition)
		}
		mac, err := s.authenticatePart(c, c.Version, part)
		if err != nil {
			return false, err
		}
		s.snapshotParts[key], s.snapshotMACs[key] = part, mac
		return true, nil
	}
	return false, projection.OtherCode(c.Projection, c.Version)
}

// FinishSnapshot implements ports.ProjectionSnapshots.
func (s *ProjectionSnapshots) FinishSnapshot(ctx context.Context, name string, version, keep int, by string) error {
	return s.do(ctx, func() error {
		key := projectionKey{name, version}
		p := s.projections[key]
		if p.Role != projection.Saving {
			return projection.Changed()
		}
		s.setRole(key, projection.Saved, by)
		saved := s.listProjections(func(known projection.Projection) bool {
			return known.Name == name && known.Role == projection.Saved && known.Scope == p.Scope
		})
		for _, old := range saved[:max(0, len(saved)-keep)] {
			s.drop(projectionKey{name, old.Version}, by)
		}
		return nil
	})
}

// RestorePart implements ports.ProjectionSnapshots.
func (s *ProjectionSnapshots) RestorePart(ctx context.Context, c ports.SnapshotCopy) (bool, error) {
	turn, err := s.readModels.acquire(ctx, 0)
	if err != nil {
		return false, err
	}
	defer s.readModels.release(turn)
	s.mu.Lock()
	defer s.mu.Unlock()
	part, known := s.snapshotParts[checkpointKey{c.Projection, c.Version, c.Partition}]
	if !known || !s.isUsable(&part) {
		return known, nil
	}
	key := checkpointKey{c.Projection, c.To, c.Partition}
	if _, begun := s.checkpoints[key]; begun {
		return true, nil
	}
	if s.projections[projectionKey{c.Projection, c.Version}].Role != projection.Saved ||
		s.projections[projectionKey{c.Projection, c.To}].Role != projection.Building {
		return false, projection.Changed()
	}
	switch mac, err := s.authenticatePart(c, c.Version, part); {
	case err != nil:
		return false, err
	case !bytes.Equal(mac, s.snapshotMACs[checkpointKey{c.Projection, c.Version, c.Partition}]):
		return false, snapshot.Forged()
	}
	s.copyTable(c.Projection, c.Version, c.To, c.Partition)
	s.checkpoints[key] = ports.Checkpoint{
		Projection: c.Projection, Version: c.To, Partition: c.Partition, Status: projection.Reading, Sequence: part.Sequence, UpdatedAt: s.now(),
		Redactions: part.Redactions, Processed: s.countProcessed(c.Partition, part.Sequence, c.Types),
	}
	return true, nil
}

// countProcessed counts the events of some types up to a sequence; it is called with the lock
// held.
func (s *state) countProcessed(id event.PartitionID, to event.Sequence, types []string) (n uint64) {
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
	return get(ctx, s.state, func() ([]ports.SnapshotPart, error) {
		out := list(maps.Values(s.snapshotParts), func(part ports.SnapshotPart) bool { return name == "" || part.Projection == name }, func(a, b ports.SnapshotPart) int {
			return cmp.Or(cmp.Compare(a.Projection, b.Projection), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Partition, b.Partition))
		})
		for i := range out {
			out[i].Usable, out[i].Redactions = s.isUsable(&out[i]), 0
		}
		return out, nil
	})
}

// ForgetPart implements ports.ProjectionSnapshots.
func (s *ProjectionSnapshots) ForgetPart(ctx context.Context, c ports.SnapshotCopy) error {
	return s.do(ctx, func() error {
		key := checkpointKey{c.Projection, c.Version, c.Partition}
		if _, planned := s.snapshotParts[key]; planned {
			delete(s.snapshotParts, key)
			delete(s.tables, rowTable(c.Projection, c.Version, c.Partition))
		}
		return nil
	})
}
