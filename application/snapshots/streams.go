package snapshots

import (
	"context"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/snapshot"
	"github.com/erpbackbone/backbone/ports"
)

// Streams keeps the snapshots of streams, those of clients and the node's own. A nil one keeps
// none.
type Streams struct {
	store ports.StreamSnapshots
	*Authenticator
}

// NewStreams makes Streams.
func NewStreams(store ports.StreamSnapshots, a *Authenticator) *Streams {
	return &Streams{store, a}
}

// Read reads the snapshot at a version, the newest for 0, and the epoch to save the next one
// under, also beside a fault. It removes those that may not be used; without another one, and
// while the key service is unavailable, the fault is snapshot.not_found.
func (s *Streams) Read(ctx context.Context, le ports.LegalEntity, stream event.StreamID, internal bool, v event.Version) (ports.StreamSnapshot, ports.SnapshotEpoch, error) {
	var epoch ports.SnapshotEpoch
	if s == nil {
		return ports.StreamSnapshot{}, epoch, snapshot.NotFound()
	}
	for range snapshot.Kept + 1 {
		found, now, err := s.store.StreamSnapshot(ctx, le.Partition, stream, internal, v)
		if epoch = now; err != nil {
			return ports.StreamSnapshot{}, epoch, err
		}
		genuine, err := s.check(ctx, le.TenantID, streamText(&found), found.MAC, "stream", "stream_type", stream.Type, "partition", uint32(le.Partition), "version", uint64(found.Version))
		if err != nil {
			break
		}
		if genuine && !found.Outdated {
			return found, epoch, nil
		}
		if err := s.store.RemoveStreamSnapshot(ctx, found); err != nil {
			return ports.StreamSnapshot{}, epoch, err
		}
	}
	return ports.StreamSnapshot{}, epoch, snapshot.NotFound()
}

// Save stores a snapshot as ports.StreamSnapshots does. Further faults: those of the key
// service, and pii.keys_missing without one.
func (s *Streams) Save(ctx context.Context, tenantID string, n ports.StreamSnapshot, epoch ports.SnapshotEpoch) (stored ports.StreamSnapshot, created bool, err error) {
	if s == nil {
		return n, false, fault.New(fault.FailedPrecondition, "pii.keys_missing",
			"a snapshot is stored with a proof of its origin, which needs a key service; have an operator configure kms")
	}
	if n.Redactions, err = s.store.StreamRedactions(ctx, n.Partition, n.Stream, n.Version); err != nil {
		return stored, false, err
	}
	if n.MAC, err = s.sign(ctx, tenantID, streamText(&n)); err != nil {
		return stored, false, err
	}
	return s.store.SaveStreamSnapshot(ctx, n, epoch)
}
