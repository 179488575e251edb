package ports

import (
	"context"
	"time"

	"github.com/erpbackbone/backbone/domain/archive"
	"github.com/erpbackbone/backbone/domain/event"
)

// ArchivedSegment is a segment of payloads that are in the archive and not in the database.
type ArchivedSegment struct {
	Partition   event.PartitionID
	First, Last event.Sequence // the range; payloads of it that are in the database were not archived
	Event       event.Sequence // of the event with the manifest
	Records     int
	Object      string     // name of the file in the store of the archive
	Digest      event.Hash // SHA-256 of the file
	ArchivedAt  time.Time
}

// ArchivedPayloads reads the files of the archive.
type ArchivedPayloads interface {
	// Records reads the records of a segment, ascending. Callers do not change them, and compare them with the skeletons: if
	// the file is missing, the records may be of another one of the same range. Faults: archive.object_missing,
	// archive.object_damaged, archive.unavailable.
	Records(ctx context.Context, s ArchivedSegment) ([]archive.Record, error)
	// FreshRecords is Records of the file itself as it is now, for verification.
	FreshRecords(ctx context.Context, s ArchivedSegment) ([]archive.Record, error)
}

// ArchivedSegments lists the segments that are in the archive.
type ArchivedSegments interface {
	// Segments lists segments of a partition by their first sequences, those after one, limit of them at most.
	Segments(ctx context.Context, p event.PartitionID, after event.Sequence, limit int) ([]ArchivedSegment, error)
}

// ArchiveRegister knows what is in the archive.
type ArchiveRegister interface {
	ArchivedSegments
	// ArchiveSizes says what each partition has in the archive; partitions without any are left out.
	ArchiveSizes(ctx context.Context) (map[event.PartitionID]ArchiveSize, error)
	// ProjectionsBehind names the projections that have not read a partition through a sequence.
	ProjectionsBehind(ctx context.Context, p event.PartitionID, through event.Sequence) ([]string, error)
}

// ArchiveSize is what a partition has in the archive.
type ArchiveSize struct {
	Segments   int
	Records    uint64
	Last       event.Sequence // of the ranges
	ArchivedAt time.Time      // the newest
}

// ArchivedStatePage is a page of the states of a segment, as stored.
type ArchivedStatePage struct {
	Partition event.PartitionID
	Segment   event.Sequence // the first of its range
	archive.StatePage
	MAC []byte // proves to application/snapshots that a node made all of this
}

// ArchivedStates reads the states from which nothing needs archived events.
type ArchivedStates interface {
	// EntityRedactions counts the redactions of events that refer to an entity, up to a sequence.
	EntityRedactions(ctx context.Context, p event.PartitionID, key string, until event.Sequence) (uint64, error)
	// EntityStatePage reads the page that may have the newest state of an entity, with its key in the key index.
	EntityStatePage(ctx context.Context, p event.PartitionID, key string) (page ArchivedStatePage, found bool, err error)
	// StreamStatePage reads that of a stream.
	StreamStatePage(ctx context.Context, p event.PartitionID, s event.StreamID) (page ArchivedStatePage, found bool, err error)
	// StatePages lists the pages that may have states with one of the keys.
	StatePages(ctx context.Context, p event.PartitionID, keys []string) ([]ArchivedStatePage, error)
}

// LeavingPayloads are the payloads of a segment that is complete in its file.
type LeavingPayloads struct {
	Partition  event.PartitionID
	Term       uint64         // of the lease on ArchiveLease, which the caller has
	Manifest   event.Sequence // of the event with the manifest
	Sequences  []event.Sequence
	Redactions int // of the partition, before the states were folded
	StateKeys  []string
	States     []ArchivedStatePage
}

// ArchiveLease is the right to change files of the archive of a partition.
func ArchiveLease(p event.PartitionID) []LeaseResource {
	return []LeaseResource{{Name: "archive", Partition: p}}
}

// Archiver moves payloads out of the database and back, as a role that nodes do not have. Each call is one transaction.
type Archiver interface {
	// ArchivePayloads removes payloads and stores the states that replace them. The database refuses (FailedPrecondition)
	// unless all holds that is promised about what leaves: archive.content_changed, archive.too_young,
	// archive.decisions_stay, archive.redacting, archive.snapshot_missing, archive.projection_behind; archive.overlapping
	// (Conflict) for a range that is in the archive; archive.busy (Unavailable) without the lease.
	ArchivePayloads(ctx context.Context, l LeavingPayloads) error
	// AwaitArchiving waits for calls of ArchivePayloads that have begun. Later ones see what is committed now.
	AwaitArchiving(ctx context.Context) error
	// ReplaceStates replaces a page of states by others of its segment, or by none. Fault archive.content_changed if the page
	// is another one now.
	ReplaceStates(ctx context.Context, page ArchivedStatePage, by []ArchivedStatePage) error
	// RestorePayloads brings payloads of a segment back. The segment ends, with its states, when no payload of its range is
	// missing. Faults: archive.segment_not_found (NotFound), archive.content_changed.
	RestorePayloads(ctx context.Context, s ArchivedSegment, records []archive.Record) (missing int, err error)
}
