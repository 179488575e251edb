package snapshots

import (
	"context"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// Entities keeps the snapshots of entities. A nil one keeps none.
type Entities struct {
	store ports.EntitySnapshots
	*Authenticator
}

// NewEntities makes Entities.
func NewEntities(store ports.EntitySnapshots, a *Authenticator) *Entities {
	return &Entities{store, a}
}

// List lists the snapshots of an entity that may be used, newest first, and the epoch to save
// the next one under. It removes others.
func (e *Entities) List(ctx context.Context, le ports.LegalEntity, entityType, entityID string) (usable []ports.EntitySnapshot, epoch ports.SnapshotEpoch, err error) {
	if e == nil {
		return nil, 0, nil
	}
	all, epoch, err := e.store.EntitySnapshots(ctx, le.Partition, entityType, entityID)
	if err != nil {
		return nil, 0, err
	}
	for i := range all {
		s := &all[i]
		genuine, err := e.check(ctx, le.TenantID, entityText(s), s.MAC, "entity", "entity_type", entityType, "legal_entity", le.Code, "as_of_sequence", uint64(s.AsOf))
		if err != nil {
			return nil, epoch, nil //nolint:nilerr // logged; folding gives the same state
		}
		if genuine && !s.Outdated {
			usable = append(usable, *s)
			continue
		}
		if err := e.store.RemoveEntitySnapshot(ctx, *s); err != nil {
			e.log.WarnContext(ctx, "an entity snapshot could not be removed; the next read tries again", "code", fault.CodeOf(err), "legal_entity", le.Code)
		}
	}
	return usable, epoch, nil
}

// Save stores a snapshot as ports.EntitySnapshots does.
func (e *Entities) Save(ctx context.Context, tenantID string, s ports.EntitySnapshot, epoch ports.SnapshotEpoch) (kept bool, err error) {
	if e == nil {
		return false, nil
	}
	if s.Redactions, err = e.store.EntityRedactions(ctx, s.Partition, s.AsOf); err != nil {
		return false, err
	}
	if s.MAC, err = e.sign(ctx, tenantID, entityText(&s)); err != nil {
		return false, err
	}
	return e.store.SaveEntitySnapshot(ctx, s, epoch)
}

// MarkStale marks the snapshots that a back-dated event came after.
func (e *Entities) MarkStale(ctx context.Context, p event.PartitionID, entityType, entityID string, back *event.Recorded) error {
	_, err := e.store.MarkEntitySnapshotsStale(ctx, p, entityType, entityID, back.Sequence, back.EffectiveDate)
	return err
}
