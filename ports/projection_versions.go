package ports

import (
	"context"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
)

// ProjectionTable is a table that a projection writes. It has the columns partition_id
// and version, and both are in its primary key. Names come from code, never from input.
type ProjectionTable struct {
	Schema string
	Name   string
	Key    []string // the primary key's columns besides partition_id, version and projection
	// Shared means that several projections write it; the column projection, which is in the
	// primary key, separates their rows.
	Shared bool
	// Derived means that triggers of the other tables write it when their rows are inserted or
	// deleted, so that a copy of the rows does not copy it.
	Derived bool
}

// ProjectionTables is a handler whose read model is in tables of the store that several versions
// share.
type ProjectionTables interface {
	// Tables lists all tables that the handler writes. No other projection writes them unless
	// they are shared.
	Tables() []ProjectionTable
}

// ProjectionSwitch activates another version.
type ProjectionSwitch struct {
	Projection string
	From       int // the active version
	To         int // one that is building or retained
	// MaxBehind is how many events To may lack in one partition. The switch itself advances To
	// to the position of From, so that no reader sees an earlier state.
	MaxBehind uint64
	Force     bool     // switch although To lacks events
	Types     []string // that To reads; none: all
	// Handler builds To; nil: this release has none, so the switch cannot advance To.
	Handler ProjectionHandler
	// Partitions are those that To reads; nil: all. The switch ignores other partitions of
	// From.
	Partitions []event.PartitionID
	By         string
	// Record is called in the transaction when nothing refuses the switch any more; its error
	// undoes the switch. A crash after it may leave the record without the switch. nil: none.
	Record func(ctx context.Context) error
}

// ProjectionComparison compares two versions in one partition.
type ProjectionComparison struct {
	Projection string
	Partition  event.PartitionID
	Left       int
	Right      int
	// Rows are compared at the same event. Handlers first advance the version that is behind,
	// by at most MaxBehind events; without its handler the versions cannot be compared.
	MaxBehind uint64
	Types     map[int][]string          // that a version reads; none: all
	Handlers  map[int]ProjectionHandler // by version
	Tables    []ProjectionTable
	Examples  int // rows to name in each table
}

// ProjectionDifference lists the differences between two versions in one partition.
type ProjectionDifference struct {
	Partition event.PartitionID
	Sequence  event.Sequence // at which they were compared
	Tables    []TableDifference
}

// Rows is the number of rows that differ or are in one version only.
func (d ProjectionDifference) Rows() (n uint64) {
	for _, t := range d.Tables {
		n += t.OnlyLeft + t.OnlyRight + t.Changed
	}
	return n
}

// TableDifference counts the rows of a table that differ between two versions.
type TableDifference struct {
	Table     string // schema and name
	LeftRows  uint64
	RightRows uint64
	OnlyLeft  uint64
	OnlyRight uint64
	Changed   uint64
	Examples  []RowDifference // the first by key
}

// RowDifference is a differing row. It holds no value but the key.
type RowDifference struct {
	Key     []byte   // a JSON object of the key's columns
	Where   string   // "left", "right" or "both"
	Columns []string // the differing ones of a row that is in both
}

// ProjectionVersions stores several versions of a read model at the same time. A read uses the
// version that is active when it begins, and a later page of it reads the same version or is
// refused: no reader sees the rows of two versions mixed by SwitchProjection. The fault
// projection.changed (Conflict) means that a version has another role or revision than the
// caller saw: read the register again.
type ProjectionVersions interface {
	// ActiveProjection returns the active version. Fault projection.not_found.
	ActiveProjection(ctx context.Context, projection string) (version int, err error)
	// SwitchProjection makes To active and From retained in one transaction, and drops the
	// version that was retained before. Faults: projection.changed (conflict) when the versions
	// have other roles, projection.version_behind, projection.version_halted.
	SwitchProjection(ctx context.Context, s ProjectionSwitch) error
	// SwitchPartition moves the rows that To holds of a partition to From, which stays active,
	// in one transaction: readers see the rows before or after it. To covers that partition
	// alone and is dropped. The replaced rows become a new version, which is returned; it is
	// retained for that partition and replaces an earlier one. Checkpoint and dead letters
	// move with the rows, and the generation of From's checkpoint grows. Faults: those of
	// SwitchProjection, projection.other_code when different handlers built the two.
	SwitchPartition(ctx context.Context, s PartitionSwitch) (retained int, err error)
	// DropProjection drops a version that is building, retained or a snapshot. No node writes
	// it afterwards. Fault projection.changed (conflict).
	DropProjection(ctx context.Context, projection string, version int, by string) error
	// SweepProjection removes at most limit rows of each table and partition of a version that
	// is being dropped, in a bounded number of partitions; the next call continues after those.
	// Once all rows are gone the version is dropped.
	SweepProjection(ctx context.Context, projection string, version int, tables []ProjectionTable, limit int) (removed int64, err error)
	// ForgetDropped removes versions from the register that were dropped before a time, except
	// the one with the highest number of each projection.
	ForgetDropped(ctx context.Context, before time.Time) (forgotten int, err error)
	// CompareProjection compares two versions. Fault projection.not_comparable when they cannot
	// be brought to the same event.
	CompareProjection(ctx context.Context, c ProjectionComparison) (ProjectionDifference, error)
}

// PartitionSwitch replaces the active rows of one partition. Types, Handler and MaxBehind are
// those of ProjectionSwitch.
type PartitionSwitch struct {
	ProjectionSwitch
	Partition event.PartitionID
	Tables    []ProjectionTable
}
