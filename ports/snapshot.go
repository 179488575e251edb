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
	CreatedAt        time.Time
	State            json.RawMessage
}

// EntitySnapshots keeps the newest snapshots of entities, snapshot.Kept of each. They are derived: whoever loses them
// folds again.
type EntitySnapshots interface {
	// EntitySnapshots lists the kept snapshots of an entity, newest AsOf first, stale
	// ones too, and the partition's epoch.
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
}

// StreamSnapshot is the state of a stream at a version.
type StreamSnapshot struct {
	ID            event.ID
	Partition     event.PartitionID
	Stream        event.StreamID
	Internal      bool // the node's own; clients' and the node's do not see one another
	Version       event.Version
	StateType     string // what the state is of: the client's name, or "fold:<stream type>"
	SchemaVersion int    // of the state
	State         json.RawMessage
	Metadata      json.RawMessage // JSON object; nil is none
	CreatedAt     time.Time
}

// StreamSnapshots keeps states of streams by version.
type StreamSnapshots interface {
	// StreamSnapshot reads the snapshot at a version, the newest for 0, and the
	// partition's epoch, also beside an error. Fault snapshot.not_found.
	StreamSnapshot(ctx context.Context, p event.PartitionID, stream event.StreamID, internal bool, v event.Version) (StreamSnapshot, SnapshotEpoch, error)
	// SaveStreamSnapshot stores a snapshot and lets those go that are no longer among
	// the newest. One with the same version and content is answered as it is, created
	// is false. Faults: snapshot.exists (Conflict: the version has another content),
	// snapshot.superseded (FailedPrecondition: as many newer ones are kept, or the epoch
	// is over). An internal one takes the place of any with its version.
	SaveStreamSnapshot(ctx context.Context, s StreamSnapshot, epoch SnapshotEpoch) (stored StreamSnapshot, created bool, err error)
}
