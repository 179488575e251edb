package ports

import (
	"context"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
)

// SnapshotPart is what a snapshot of a projection holds of one partition: a frozen copy
// of the rows that readers were shown, at one event.
type SnapshotPart struct {
	Projection string
	Version    int // of the snapshot
	Partition  event.PartitionID
	Sequence   event.Sequence // the event that the rows are at
	Rows       uint64         // of all tables
	TakenAt    time.Time      // zero: it is not copied yet
	// Usable tells that nothing was redacted in the partition since its rows began to be
	// folded. What is not usable is not copied back.
	Usable bool
}

// SnapshotCopy asks to copy a part.
type SnapshotCopy struct {
	Projection string
	Version    int // of the snapshot
	Partition  event.PartitionID
	Tables     []ProjectionTable
	To         int // of RestorePart: the version that begins with it
	// Types are those that To reads; none: all. Of RestorePart: so many events up to the
	// snapshot's count as processed, since the rows are folded from them.
	Types []string
}

// ProjectionSnapshots keeps snapshots of projections: versions with the role saved, whose
// rows are beside those of other versions. A part is copied in one transaction, by one
// node at a time, and holds back nobody who reads or writes the projection.
type ProjectionSnapshots interface {
	// PlanSnapshot adds the parts that a snapshot that is being saved lacks: one for each
	// partition of its scope that the version of has begun with.
	PlanSnapshot(ctx context.Context, projection string, version, of int) error
	// SavePart copies what readers are shown of a partition into a snapshot that is being
	// saved; checkpoint and rows are of one moment. done is false while another node copies
	// it. A part that may hold what was redacted since its rows began to be folded stays
	// empty and is not usable. Faults: projection.other_code when what is shown was built by
	// another handler than the snapshot is of, projection.changed when it is not being saved.
	SavePart(ctx context.Context, c SnapshotCopy) (done bool, err error)
	// FinishSnapshot makes a snapshot usable that was being saved, and begins to drop older
	// ones of the same scope: keep are left. Fault projection.changed.
	FinishSnapshot(ctx context.Context, projection string, version, keep int, by string) error
	// RestorePart copies a part into the building version To, with its checkpoint, unless it
	// has begun there already or the part is not usable. done is false while another node
	// copies it. Fault projection.changed when To is not building or the snapshot is gone.
	RestorePart(ctx context.Context, c SnapshotCopy) (done bool, err error)
	// SnapshotParts lists the parts of a projection's snapshots, of all projections for "",
	// by projection, version and partition.
	SnapshotParts(ctx context.Context, projection string) ([]SnapshotPart, error)
	// ForgetPart removes a partition from a snapshot, rows and all. It waits for who copies
	// it.
	ForgetPart(ctx context.Context, c SnapshotCopy) error
}
