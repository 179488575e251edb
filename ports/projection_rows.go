package ports

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/shredding"
)

// ProjectionRow is the state of a key in a custom projection.
type ProjectionRow struct {
	Key      string
	State    json.RawMessage
	Sequence event.Sequence // of the event that changed it last
}

// ProjectionRowQuery selects rows of one version in one partition.
type ProjectionRowQuery struct {
	Projection string
	Version    int
	Partition  event.PartitionID
	Key        string // "": all
	Prefix     string // of keys; "": any
	After      string // the last key of the previous page; "": from the start
	Limit      int
}

// ProjectionRows stores the rows of custom projections. A batch names projection, version and
// partition; its events are ignored.
type ProjectionRows interface {
	// LoadProjectionRows reads the existing rows of keys inside tx.
	LoadProjectionRows(ctx context.Context, tx ProjectionTx, b ProjectionBatch, keys []string) (map[string]ProjectionRow, error)
	// StoreProjectionRows writes rows and removes the gone keys inside tx.
	StoreProjectionRows(ctx context.Context, tx ProjectionTx, b ProjectionBatch, rows []ProjectionRow, gone []string) error
	// ForgetProjectionRows removes all rows of the batch's partition inside tx.
	ForgetProjectionRows(ctx context.Context, tx ProjectionTx, b ProjectionBatch) error
	// ListProjectionRows lists a page of committed rows by key, compared bytewise, and the
	// sequence of the checkpoint that was committed with them.
	ListProjectionRows(ctx context.Context, q ProjectionRowQuery) ([]ProjectionRow, event.Sequence, error)
	// EndProjection drops all versions of a projection in one transaction. No node works them
	// afterwards, and SweepProjection removes their rows. Fault projection.not_found when no
	// version is live.
	EndProjection(ctx context.Context, projection, by string) error
}

// ProjectionRowTable is the table of these rows in a store that has tables.
var ProjectionRowTable = ProjectionTable{Schema: "backbone", Name: "projection_rows", Key: []string{"key"}, Shared: true}

// RowPosition tells whether the rows of a version in a partition are still the ones that a caller
// has read: then only Sequence has grown.
type RowPosition struct {
	Sequence   event.Sequence // of the checkpoint
	Generation uint64         // of its rows
	Redactions uint64         // of the partition
}

// RecomputeRequest selects the rows of a custom projection to recompute: those to which an event
// contributed that is about an entity or, if Subject is set, that holds sealed values of a person.
type RecomputeRequest struct {
	Partition event.PartitionID
	Entity    event.StreamID    // the entity's stream, or the type and id with which events refer to it
	Subject   shredding.Subject // the person; "": the rows are selected by Entity
	DryRun    bool              // count the changes and roll them back
	By        string
}

// RowRecompute replaces the rows of some keys by recomputed ones. The caller has computed them
// from the log up to ReadThrough without locking the checkpoint; the store adds the events since
// then under the lock.
type RowRecompute struct {
	ProjectionWork
	Keys        []string
	Since       RowPosition // before the recomputation
	ReadThrough event.Sequence
	Types       []string // what the projection reads
	Limit       int      // upper bound of the events between ReadThrough and the checkpoint
	// Recovered are events that the version had skipped and the recomputation applied: their
	// dead letters are resolved.
	Recovered []event.Sequence
	DryRun    bool // roll everything back and count what would have changed
	By        string
}

// RowRecomputer replaces rows of custom projections.
type RowRecomputer interface {
	// RowPosition returns the state of the rows; begun is false if there is no checkpoint.
	RowPosition(ctx context.Context, w ProjectionWork) (at RowPosition, begun bool, err error)
	// RecomputeRows locks the checkpoint, applies the events between ReadThrough and it, and
	// replaces the rows of the keys, in one transaction. It calls begin for each attempt, which
	// returns the handler of these events and the function that returns the resulting rows.
	// The generation grows when a row has changed. Faults: projection.changed (Conflict) when
	// the rows were replaced or a value was redacted since, or the checkpoint is not between
	// ReadThrough and Limit events after it: compute the rows again; projection.fenced,
	// projection.busy, and those of the handler.
	RecomputeRows(ctx context.Context, r RowRecompute, begin func() (h ProjectionHandler, rows func() map[string]ProjectionRow)) (TargetChange, error)
}

// DiffRows compares the rows of keys before and after a recomputation. It returns the rows to
// write and the keys to remove.
func DiffRows(keys []string, before, after map[string]ProjectionRow) (rows []ProjectionRow, gone []string, d TableDifference) {
	d = TableDifference{Table: ProjectionRowTable.Schema + "." + ProjectionRowTable.Name, LeftRows: uint64(len(before)), RightRows: uint64(len(after))}
	for _, key := range keys {
		left, inLeft := before[key]
		right, inRight := after[key]
		switch {
		case inRight && !inLeft:
			d.OnlyRight++
			rows = append(rows, right)
		case inLeft && !inRight:
			d.OnlyLeft++
			gone = append(gone, key)
		case inRight && (left.Sequence != right.Sequence || !bytes.Equal(left.State, right.State)):
			d.Changed++
			rows = append(rows, right)
		}
	}
	return rows, gone, d
}
