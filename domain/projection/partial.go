package projection

import (
	"bytes"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
)

// Reads tells whether a version is about a partition.
func (p Projection) Reads(id event.PartitionID) bool { return p.Scope == 0 || p.Scope == id }

// WithRowsOf is the checkpoint of a version that has got the rows of another one: it
// stands where the rows do, and keeps what was counted of its own work.
func (c Checkpoint) WithRowsOf(by Checkpoint) Checkpoint {
	by.Projection, by.Version, by.Partition, by.Term = c.Projection, c.Version, c.Partition, c.Term
	by.Processed, by.Skipped, by.Failed = c.Processed, c.Skipped, c.Failed
	by.Generation = c.Generation + 1
	return by
}

// The faults of snapshots, and of versions of one legal entity.
const (
	CodeOtherCode          = "projection.other_code"
	CodeSnapshotNotFound   = "projection.snapshot_not_found"
	CodeSnapshotOutdated   = "projection.snapshot_outdated"
	CodeSnapshotInProgress = "projection.snapshot_under_way"
	CodeNotRead            = "projection.not_read"
)

// NotRead says that a definition leaves a legal entity out.
func NotRead(name string) *fault.Error {
	return fault.New(fault.FailedPrecondition, CodeNotRead, "projection %s does not read this legal entity; choose another one", shortName(name)).WithField("legal_entity")
}

// OtherCode refuses to mix rows of two handlers.
func OtherCode(name string, version int) *fault.Error {
	return fault.New(fault.FailedPrecondition, CodeOtherCode,
		"version %d of projection %s was built by another handler or definition than this release has, and their rows do not mix; rebuild the whole projection, without a snapshot", version, shortName(name))
}

// SnapshotNotFound says that there is no such snapshot.
func SnapshotNotFound(name string) *fault.Error {
	return fault.New(fault.NotFound, CodeSnapshotNotFound,
		"projection %s has no such snapshot that is complete; list them with its versions, take one, or rebuild without", shortName(name))
}

// SnapshotOutdated refuses a snapshot that may hold what was redacted or erased since.
func SnapshotOutdated(name string, version int) *fault.Error {
	return fault.New(fault.FailedPrecondition, CodeSnapshotOutdated,
		"snapshot %d of projection %s may hold what was redacted since its rows were folded; choose a later one, or rebuild without", version, shortName(name))
}

// SnapshotInProgress refuses a second snapshot at the same time.
func SnapshotInProgress(name string) *fault.Error {
	return fault.New(fault.FailedPrecondition, CodeSnapshotInProgress, "a snapshot of projection %s is being taken already; wait for it or drop it", shortName(name))
}

// SameCode tells whether the same handler or definition builds two versions, so that
// their rows mix.
func SameCode(a, b Projection) bool {
	if len(a.Definition) > 0 || len(b.Definition) > 0 {
		return bytes.Equal(a.Definition, b.Definition)
	}
	return a.Code == b.Code
}
