package ports

import (
	"context"
	"encoding/json"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
)

// StreamReader reads one stream in both directions.
type StreamReader interface {
	// StreamStatus reads a stream's status; a stream without events is absent.
	StreamStatus(ctx context.Context, p event.PartitionID, s event.StreamID) (StreamStatus, error)
	// ReadStream reads a stream by version; none is an empty slice. More says that the
	// query's bytes ended the answer before an event that it would have.
	ReadStream(ctx context.Context, q StreamQuery) (events []event.Recorded, more bool, err error)
}

// StreamStatus is the state of a stream and of its metadata.
type StreamStatus struct {
	State           event.StreamState
	Version         event.Version
	ReadableFrom    event.Version   // events before it were deleted by a soft deletion; 0: none were
	Settings        json.RawMessage // of the metadata what the log obeys; nil: nothing
	MetadataVersion event.Version   // of the event that set the metadata last; 0: none did
}

// StreamQuery selects a part of a stream.
type StreamQuery struct {
	Partition   event.PartitionID
	Stream      event.StreamID
	From        event.Version // inclusive, in the direction of reading; 0: the beginning, backward the end
	Direction   Direction
	Until       event.Sequence // recorded up to here; 0: now
	EffectiveTo *event.Date    // inclusive; nil: all
	Limit       int            // 0 reads to the end
	Bytes       int            // of payloads, as in EventQuery; 0 is no bound
	WithoutData bool           // leave Payload nil
	OnlineOnly  bool           // leave Payload nil where it is archived
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
	Redactions    uint64          // of the stream's events up to Version, when the state was stored
	Outdated      bool            // there are more now; the store says it
	CreatedAt     time.Time
	MAC           []byte // proves to application/snapshots that a node stored all of this
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
	// StreamRedactions counts the redactions of a stream's events up to a version.
	StreamRedactions(ctx context.Context, p event.PartitionID, stream event.StreamID, until event.Version) (uint64, error)
	// RemoveStreamSnapshot removes the snapshot at its version if it has the same MAC.
	RemoveStreamSnapshot(ctx context.Context, s StreamSnapshot) error
}
