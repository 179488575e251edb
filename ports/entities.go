package ports

import (
	"context"
	"encoding/json"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
)

// SnapshotEpoch tells which payloads a state was folded from: it changes when a
// payload of the partition is redacted. Ask for it before reading the events; a
// snapshot that is saved with another one than the partition's is not kept, so that
// what was redacted never stays in a snapshot.
type SnapshotEpoch int64

// EntitySnapshot is the folded state of an entity, as stored: personal values are
// sealed in it as they are in the events.
type EntitySnapshot struct {
	Partition        event.PartitionID
	EntityType       string
	EntityID         string
	AsOf             event.Sequence // everything recorded up to here is in it
	Version          event.Sequence // of the last event that was folded
	Fold             string         // which fold made the state; that of another one is not read
	Stale            bool           // a back-dated event came after it
	EffectiveThrough event.Date     // greatest effective date that was folded
	EventCount       int            // events that were folded
	Redactions       uint64         // of events up to AsOf, when the events were folded
	Outdated         bool           // there are more now; the store says it
	CreatedAt        time.Time
	State            json.RawMessage
	MAC              []byte // proves to application/snapshots that a node stored all of this but Stale
}

// EntitySnapshots keeps the newest snapshots of entities, snapshot.Kept of each. They are derived:
// lost ones are folded again.
type EntitySnapshots interface {
	// EntitySnapshots lists the kept snapshots of an entity, newest AsOf first, stale
	// and outdated ones too, and the partition's epoch.
	EntitySnapshots(ctx context.Context, p event.PartitionID, entityType, entityID string) ([]EntitySnapshot, SnapshotEpoch, error)
	// SaveEntitySnapshot stores a snapshot in the place of one with the same AsOf and
	// lets those go that are no longer among the newest. kept is false if it is not
	// among the newest itself, or the epoch is over; nothing is changed then.
	SaveEntitySnapshot(ctx context.Context, s EntitySnapshot, epoch SnapshotEpoch) (kept bool, err error)
	// MarkEntitySnapshotsStale marks the snapshots of an entity that an event came
	// after which takes effect earlier than something folded: AsOf before the event's
	// sequence and EffectiveThrough after its effective date. It tells how many were
	// not marked before.
	MarkEntitySnapshotsStale(ctx context.Context, p event.PartitionID, entityType, entityID string, at event.Sequence, effective event.Date) (int, error)
	// EntityRedactions counts the redactions of events up to a sequence.
	EntityRedactions(ctx context.Context, p event.PartitionID, until event.Sequence) (uint64, error)
	// RemoveEntitySnapshot removes the snapshot at AsOf if it has the same MAC.
	RemoveEntitySnapshot(ctx context.Context, s EntitySnapshot) error
}
