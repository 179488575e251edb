package conformance_test

import (
	"context"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/conformance"
)

// snapshotBroken breaks what is kept of states.
type snapshotBroken struct {
	*wrapper
	entity func(s *ports.EntitySnapshot, epoch *ports.SnapshotEpoch)
	mark   func(at *event.Sequence, effective *event.Date)
	stream func(s *ports.StreamSnapshot)
}

func (s *snapshotBroken) SaveEntitySnapshot(ctx context.Context, n ports.EntitySnapshot, epoch ports.SnapshotEpoch) (bool, error) {
	if s.entity != nil {
		s.entity(&n, &epoch)
	}
	return s.wrapper.SaveEntitySnapshot(ctx, n, epoch)
}

func (s *snapshotBroken) MarkEntitySnapshotsStale(ctx context.Context, p event.PartitionID, entityType, entityID string, at event.Sequence, effective event.Date) (int, error) {
	if s.mark != nil {
		s.mark(&at, &effective)
	}
	return s.wrapper.MarkEntitySnapshotsStale(ctx, p, entityType, entityID, at, effective)
}

func (s *snapshotBroken) StreamSnapshot(ctx context.Context, p event.PartitionID, stream event.StreamID, internal bool, v event.Version) (ports.StreamSnapshot, ports.SnapshotEpoch, error) {
	n := ports.StreamSnapshot{Internal: internal, Version: v}
	if s.stream != nil {
		s.stream(&n)
	}
	return s.wrapper.StreamSnapshot(ctx, p, stream, n.Internal, v)
}

func (s *snapshotBroken) SaveStreamSnapshot(ctx context.Context, n ports.StreamSnapshot, epoch ports.SnapshotEpoch) (ports.StreamSnapshot, bool, error) {
	if s.stream != nil {
		s.stream(&n)
	}
	return s.wrapper.SaveStreamSnapshot(ctx, n, epoch)
}

func ignoreEpoch(w *wrapper) conformance.Store {
	return &snapshotBroken{wrapper: w, entity: func(_ *ports.EntitySnapshot, epoch *ports.SnapshotEpoch) { *epoch = 0 }}
}

func mixEntities(w *wrapper) conformance.Store {
	return &snapshotBroken{wrapper: w, entity: func(s *ports.EntitySnapshot, _ *ports.SnapshotEpoch) { s.EntityType = "case" }}
}

func neverStale(w *wrapper) conformance.Store {
	return &snapshotBroken{wrapper: w, mark: func(at *event.Sequence, _ *event.Date) { *at = 0 }}
}

func alwaysStale(w *wrapper) conformance.Store {
	return &snapshotBroken{wrapper: w, mark: func(_ *event.Sequence, effective *event.Date) { *effective = 0 }}
}

func overwriteSnapshots(w *wrapper) conformance.Store {
	return &snapshotBroken{wrapper: w, stream: func(s *ports.StreamSnapshot) { s.Internal = true }}
}

type asOfBroken struct{ *wrapper }

func (s asOfBroken) ReadStream(ctx context.Context, q ports.StreamQuery) ([]event.Recorded, bool, error) {
	q.Until, q.EffectiveTo = 0, nil
	return s.wrapper.ReadStream(ctx, q)
}

func forgetAsOf(w *wrapper) conformance.Store { return asOfBroken{w} }
