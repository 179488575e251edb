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
	// Shared tells that several projections write it; their rows are told apart by a
	// column projection, which is in the primary key too.
	Shared bool
}

// ProjectionTables is a handler whose read model is in tables of the store, in which
// versions are built beside each other.
type ProjectionTables interface {
	// Tables are all tables that the handler writes. No other projection writes them
	// unless they say that they are shared.
	Tables() []ProjectionTable
}

// ProjectionSwitch shows another version to readers.
type ProjectionSwitch struct {
	Projection string
	From       int // the active version
	To         int // one that is building or retained
	// MaxBehind is how many events To may lack in one partition. What it lacks of what From
	// shows is made good by the switch itself, so that no reader goes back in time.
	MaxBehind uint64
	Force     bool     // switch whatever To lacks
	Types     []string // that To reads; none: all
	// Handler is that of To; nil: nobody here can build it, and what it lacks cannot be
	// made good.
	Handler ProjectionHandler
	// Partitions are those that To reads, nil: all. What From shows of others is not
	// waited for.
	Partitions []event.PartitionID
	By         string
}

// ProjectionComparison compares two versions in one partition.
type ProjectionComparison struct {
	Projection string
	Partition  event.PartitionID
	Left       int
	Right      int
	// Rows are compared at the same event. What one of the two lacks, up to MaxBehind
	// events, is made good first, by Handlers; without a handler it cannot be.
	MaxBehind uint64
	Types     map[int][]string          // that a version reads; none: all
	Handlers  map[int]ProjectionHandler // by version
	Tables    []ProjectionTable
	Examples  int // rows that are named, of each table
}

// ProjectionDifference is in what two versions differ in one partition.
type ProjectionDifference struct {
	Partition event.PartitionID
	Sequence  event.Sequence // at which they were compared
	Tables    []TableDifference
}

// Rows is how many rows differ or are in one version only.
func (d ProjectionDifference) Rows() (n uint64) {
	for _, t := range d.Tables {
		n += t.OnlyLeft + t.OnlyRight + t.Changed
	}
	return n
}

// TableDifference is in what two versions differ in a table.
type TableDifference struct {
	Table     string // schema and name
	LeftRows  uint64
	RightRows uint64
	OnlyLeft  uint64
	OnlyRight uint64
	Changed   uint64
	Examples  []RowDifference // the first by key
}

// RowDifference is a row that differs. It holds no value but the key.
type RowDifference struct {
	Key     []byte   // a JSON object of the key's columns
	Where   string   // "left", "right" or "both"
	Columns []string // that differ, of a row that is in both
}

// ProjectionVersions keeps versions of read models beside each other.
type ProjectionVersions interface {
	// ActiveProjection is the version that readers are shown. Fault projection.not_found.
	ActiveProjection(ctx context.Context, projection string) (version int, err error)
	// SwitchProjection makes To active and From retained in one transaction; what was
	// retained before is dropped. Faults: projection.changed (conflict) when the roles are
	// not those, projection.version_behind, projection.version_halted.
	SwitchProjection(ctx context.Context, s ProjectionSwitch) error
	// SwitchPartition gives the version From, which stays the active one, the rows that the
	// version To holds of a partition, in one transaction: who reads sees the rows before
	// or the rows after. To is about that partition alone and is dropped; what it replaced
	// is kept as a new version, which is returned, retained for that partition alone, in
	// the place of an earlier one. Checkpoint and dead letters go with the rows, and the
	// generation of From's checkpoint grows. Faults: those of SwitchProjection,
	// projection.other_code when the two were not built by the same handler.
	SwitchPartition(ctx context.Context, s PartitionSwitch) (retained int, err error)
	// DropProjection begins to remove a version that is building, retained or a snapshot.
	// From here on nobody writes it. Fault projection.changed (conflict).
	DropProjection(ctx context.Context, projection string, version int, by string) error
	// SweepProjection removes at most limit rows of each table and partition of a version
	// that is being dropped, in a bounded number of partitions: the next call goes on after
	// those. When there are none left the version is dropped.
	SweepProjection(ctx context.Context, projection string, version int, tables []ProjectionTable, limit int) (removed int64, err error)
	// ForgetDropped makes versions unknown that were dropped before a time and of which
	// nothing is left, but for the one with the highest number of each projection.
	ForgetDropped(ctx context.Context, before time.Time) (forgotten int, err error)
	// CompareProjection compares two versions. Fault projection.not_comparable when they
	// cannot be brought to the same event.
	CompareProjection(ctx context.Context, c ProjectionComparison) (ProjectionDifference, error)
}

// PartitionSwitch shows other rows to readers in one partition. Types, Handler and
// MaxBehind are as of ProjectionSwitch.
type PartitionSwitch struct {
	ProjectionSwitch
	Partition event.PartitionID
	Tables    []ProjectionTable
}
