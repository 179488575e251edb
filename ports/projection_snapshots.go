package ports

import (
	"context"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
)

// SnapshotPart is the part of a snapshot for one partition: a frozen copy of the active rows at
// one event.
type SnapshotPart struct {
	Projection string
	Version    int // of the snapshot
	Partition  event.PartitionID
	Sequence   event.Sequence // of the last event in the rows
	Rows       uint64         // of all tables
	TakenAt    time.Time      // zero: not yet copied
	// Usable means that no value was redacted in the partition since its first row was
	// computed. Unusable parts are not restored.
	Usable bool
	// Redactions and Digest are only for SnapshotCopy.Authenticate: the redactions of the
	// partition when the rows began, and the SHA-256 of all rows.
	Redactions uint64
	Digest     event.Hash
}

// SnapshotCopy names a part that is copied, or removed by ForgetPart.
type SnapshotCopy struct {
	Projection string
	Version    int // of the snapshot
	Partition  event.PartitionID
	Tables     []ProjectionTable
	To         int // only of RestorePart: the version that starts from the part
	// Types are only of RestorePart: those that To reads; none: all. It counts the events of
	// these types up to the snapshot as processed, since the rows were computed from them.
	Types []string
	// Authenticate computes the MAC of the part with its rows. SavePart stores it, and RestorePart
	// compares it with that of the copied rows. ForgetPart does not need it.
	Authenticate func(SnapshotPart) ([]byte, error)
}

// ProjectionSnapshots stores snapshots of projections: versions with the role saved, whose rows
// are in the same tables as those of other versions. One node copies a part in one transaction,
// which blocks neither readers nor writers of the projection. The fault projection.changed
// (Conflict) means that the version has another role than the method needs: read the register
// again.
type ProjectionSnapshots interface {
	// PlanSnapshot adds the missing parts of a snapshot that is being saved: one for each
	// partition of its scope in which the source, the version to copy, has a checkpoint.
	PlanSnapshot(ctx context.Context, projection string, version, source int) error
	// SavePart copies the active rows of a partition with their checkpoint, both read at the
	// same time, into a snapshot that is being saved. done is false while another node copies
	// the part. A part whose rows may hold values that were redacted since stays empty and
	// unusable. Faults: projection.other_code when another handler built the active version
	// than the snapshot is of, projection.changed when the snapshot is not being saved.
	SavePart(ctx context.Context, c SnapshotCopy) (done bool, err error)
	// FinishSnapshot completes a snapshot, and drops all but the newest keep snapshots of its
	// scope. Fault projection.changed.
	FinishSnapshot(ctx context.Context, projection string, version, keep int, by string) error
	// RestorePart copies a part with its checkpoint into the building version To, unless To has
	// a checkpoint there or the part is not usable. done is false while another node copies
	// the part. Faults: projection.changed when To is not building or the snapshot is gone,
	// snapshot.forged (FailedPrecondition) when the part has another MAC; nothing is copied then.
	RestorePart(ctx context.Context, c SnapshotCopy) (done bool, err error)
	// SnapshotParts lists the parts of a projection's snapshots, of all projections for "",
	// by projection, version and partition.
	SnapshotParts(ctx context.Context, projection string) ([]SnapshotPart, error)
	// ForgetPart removes a partition with its rows from a snapshot. It waits for a node that
	// copies the part.
	ForgetPart(ctx context.Context, c SnapshotCopy) error
}
