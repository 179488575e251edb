package memory

import (
	"bytes"
	"cmp"
	"context"
	"slices"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/snapshot"
	"github.com/erpbackbone/backbone/ports"
)

type entityKey struct {
	partition event.PartitionID
	kind, id  string
}

type streamSnapshotKey struct {
	partition event.PartitionID
	stream    event.StreamID
	internal  bool
}

// Snapshots keeps states of entities and streams, newest first.
type Snapshots struct{ *state }

// epoch is the number of redactions of a partition.
func (s *state) epoch(id event.PartitionID) ports.SnapshotEpoch {
	if p := s.partitions[id]; p != nil {
		return ports.SnapshotEpoch(len(p.redactions))
	}
	return 0
}

// keepNewest inserts a snapshot, newest first. kept is false if it is older than all that
// are kept.
func keepNewest[S any](have []S, s S, position func(S) uint64) (now []S, kept bool) {
	at, taken := slices.BinarySearchFunc(have, position(s), func(h S, n uint64) int { return cmp.Compare(n, position(h)) })
	switch {
	case at >= snapshot.Kept:
		return have, false
	case taken:
		now = slices.Clone(have)
		now[at] = s
	default:
		now = slices.Insert(slices.Clone(have), at, s)
	}
	return now[:min(len(now), snapshot.Kept)], true
}

// EntitySnapshots implements ports.EntitySnapshots.
func (s *Snapshots) EntitySnapshots(ctx context.Context, p event.PartitionID, entityType, entityID string) ([]ports.EntitySnapshot, ports.SnapshotEpoch, error) {
	var epoch ports.SnapshotEpoch
	out, err := get(ctx, s.state, func() ([]ports.EntitySnapshot, error) {
		epoch = s.epoch(p)
		out := append([]ports.EntitySnapshot{}, s.entitySnapshots[entityKey{p, entityType, entityID}]...)
		for i := range out {
			out[i].State, out[i].MAC = bytes.Clone(out[i].State), bytes.Clone(out[i].MAC)
			out[i].Outdated = out[i].Redactions != s.entityRedactions(p, out[i].AsOf)
		}
		return out, nil
	})
	return out, epoch, err
}

// SaveEntitySnapshot implements ports.EntitySnapshots.
func (s *Snapshots) SaveEntitySnapshot(ctx context.Context, n ports.EntitySnapshot, epoch ports.SnapshotEpoch) (kept bool, err error) {
	return get(ctx, s.state, func() (kept bool, err error) {
		if epoch != s.epoch(n.Partition) {
			return false, nil
		}
		n.State, n.MAC, n.CreatedAt = bytes.Clone(n.State), bytes.Clone(n.MAC), event.Micros(n.CreatedAt)
		k := entityKey{n.Partition, n.EntityType, n.EntityID}
		s.entitySnapshots[k], kept = keepNewest(s.entitySnapshots[k], n, func(e ports.EntitySnapshot) uint64 { return uint64(e.AsOf) })
		return kept, nil
	})
}

// MarkEntitySnapshotsStale implements ports.EntitySnapshots.
func (s *Snapshots) MarkEntitySnapshotsStale(ctx context.Context, p event.PartitionID, entityType, entityID string, at event.Sequence, effective event.Date) (int, error) {
	return get(ctx, s.state, func() (int, error) {
		marked := 0
		have := s.entitySnapshots[entityKey{p, entityType, entityID}]
		for i := range have {
			if h := &have[i]; !h.Stale && h.AsOf < at && h.EffectiveThrough > effective {
				h.Stale = true
				marked++
			}
		}
		return marked, nil
	})
}

// StreamSnapshot implements ports.StreamSnapshots.
func (s *Snapshots) StreamSnapshot(ctx context.Context, p event.PartitionID, stream event.StreamID, internal bool, v event.Version) (ports.StreamSnapshot, ports.SnapshotEpoch, error) {
	var epoch ports.SnapshotEpoch
	found, err := get(ctx, s.state, func() (ports.StreamSnapshot, error) {
		epoch = s.epoch(p)
		for _, h := range s.streamSnapshots[streamSnapshotKey{p, stream, internal}] {
			if v == 0 || h.Version == v {
				h.State, h.Metadata, h.MAC = bytes.Clone(h.State), clone(h.Metadata), bytes.Clone(h.MAC)
				h.Outdated = h.Redactions != s.streamRedactions(p, stream, h.Version)
				return h, nil
			}
		}
		return ports.StreamSnapshot{}, snapshot.NotFound()
	})
	return found, epoch, err
}

// SaveStreamSnapshot implements ports.StreamSnapshots.
func (s *Snapshots) SaveStreamSnapshot(ctx context.Context, n ports.StreamSnapshot, epoch ports.SnapshotEpoch) (ports.StreamSnapshot, bool, error) {
	if err := ctx.Err(); err != nil {
		return ports.StreamSnapshot{}, false, err
	}
	n.State, n.Metadata, n.MAC, n.CreatedAt = bytes.Clone(n.State), clone(n.Metadata), bytes.Clone(n.MAC), event.Micros(n.CreatedAt)
	s.mu.Lock()
	defer s.mu.Unlock()
	k := streamSnapshotKey{n.Partition, n.Stream, n.Internal}
	if !n.Internal {
		for _, h := range s.streamSnapshots[k] {
			if h.Version != n.Version {
				continue
			}
			if h.StateType != n.StateType || h.SchemaVersion != n.SchemaVersion || !bytes.Equal(h.State, n.State) || !bytes.Equal(h.Metadata, n.Metadata) {
				return ports.StreamSnapshot{}, false, snapshot.Exists()
			}
			h.State, h.Metadata, h.MAC = bytes.Clone(h.State), clone(h.Metadata), bytes.Clone(h.MAC)
			return h, false, nil
		}
	}
	now, kept := keepNewest(s.streamSnapshots[k], n, func(e ports.StreamSnapshot) uint64 { return uint64(e.Version) })
	if !kept || epoch != s.epoch(n.Partition) {
		return ports.StreamSnapshot{}, false, snapshot.Superseded()
	}
	s.streamSnapshots[k] = now
	n.State, n.Metadata, n.MAC = bytes.Clone(n.State), clone(n.Metadata), bytes.Clone(n.MAC)
	return n, true, nil
}

// entityRedactions counts the redactions of events up to a sequence.
func (s *state) entityRedactions(id event.PartitionID, until event.Sequence) (n uint64) {
	if p := s.partitions[id]; p != nil {
		for i := range p.redactions {
			if p.redactions[i].Sequence <= until {
				n++
			}
		}
	}
	return n
}

// streamRedactions counts the redactions of a stream's events up to a version.
func (s *state) streamRedactions(id event.PartitionID, stream event.StreamID, until event.Version) (n uint64) {
	if p := s.partitions[id]; p != nil {
		for i := range p.redactions {
			if e := &p.events[p.redactions[i].Sequence-1]; e.Stream == stream && e.StreamVersion <= until {
				n++
			}
		}
	}
	return n
}

// EntityRedactions implements ports.EntitySnapshots.
func (s *Snapshots) EntityRedactions(ctx context.Context, p event.PartitionID, until event.Sequence) (uint64, error) {
	return get(ctx, s.state, func() (uint64, error) { return s.entityRedactions(p, until), nil })
}

// StreamRedactions implements ports.StreamSnapshots.
func (s *Snapshots) StreamRedactions(ctx context.Context, p event.PartitionID, stream event.StreamID, until event.Version) (uint64, error) {
	return get(ctx, s.state, func() (uint64, error) { return s.streamRedactions(p, stream, until), nil })
}

// RemoveEntitySnapshot implements ports.EntitySnapshots.
func (s *Snapshots) RemoveEntitySnapshot(ctx context.Context, n ports.EntitySnapshot) error {
	return s.do(ctx, func() error {
		k := entityKey{n.Partition, n.EntityType, n.EntityID}
		s.entitySnapshots[k] = slices.DeleteFunc(s.entitySnapshots[k], func(h ports.EntitySnapshot) bool { return h.AsOf == n.AsOf && bytes.Equal(h.MAC, n.MAC) })
		return nil
	})
}

// RemoveStreamSnapshot implements ports.StreamSnapshots.
func (s *Snapshots) RemoveStreamSnapshot(ctx context.Context, n ports.StreamSnapshot) error {
	return s.do(ctx, func() error {
		k := streamSnapshotKey{n.Partition, n.Stream, n.Internal}
		s.streamSnapshots[k] = slices.DeleteFunc(s.streamSnapshots[k], func(h ports.StreamSnapshot) bool { return h.Version == n.Version && bytes.Equal(h.MAC, n.MAC) })
		return nil
	})
}
