package ports

import (
	"bytes"
	"context"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/shredding"
)

// RowsOf says which rows of a tenant's own projection are folded anew: those to which an
// event contributed that is about an entity, or that holds sealed values of a person.
type RowsOf struct {
	Partition event.PartitionID
	Entity    event.StreamID    // of a stream, or as events refer to it
	Subject   shredding.Subject // "": Entity
	DryRun    bool              // tell what would have changed
	By        string
}

// FoldPoint is where a version of a projection stands in a partition.
type FoldPoint struct {
	Sequence   event.Sequence // of the checkpoint
	Generation uint64         // of its rows
	Redactions uint64         // that there were in the partition
}

// RowRefold replaces the rows of some keys by those of another fold, which has read the
// log up to Folded without the checkpoint.
type RowRefold struct {
	ProjectionWork
	Keys   []string
	Since  FoldPoint // before the fold began
	Folded event.Sequence
	Types  []string // what the projection reads
	Limit  int      // of events between Folded and the checkpoint; with more of them nothing is done
	// Digested are events that the version had gone on without and the fold did not: their
	// dead letters are resolved.
	Digested []event.Sequence
	DryRun   bool // roll everything back and tell what would have changed
	By       string
}

// RowRefolds folds rows of projections anew that were created at run time.
type RowRefolds interface {
	// FoldPoint tells where a version stands; begun is false where nobody has begun.
	FoldPoint(ctx context.Context, w ProjectionWork) (at FoldPoint, begun bool, err error)
	// RefoldRows holds the checkpoint, hands over the events from Folded up to it, and
	// replaces the rows of the keys by those that there are then, in one transaction. begin
	// is called for each attempt and gives what the events are handed to and what has come
	// of them. The generation grows when a row has changed. Faults: projection.changed when
	// the rows were replaced meanwhile, something was redacted, or the checkpoint is not
	// where Folded and Limit say; projection.fenced, and what the handler says.
	RefoldRows(ctx context.Context, r RowRefold, begin func() (h ProjectionHandler, rows func() map[string]ProjectionRow)) (TargetChange, error)
}

// DiffRows compares the rows of keys before and after a fold, and gives those to be
// written and the keys to be removed.
func DiffRows(keys []string, before, after map[string]ProjectionRow) (rows []ProjectionRow, gone []string, d TableDifference) {
	d = TableDifference{Table: ProjectionRowTable.Schema + "." + ProjectionRowTable.Name, LeftRows: uint64(len(before)), RightRows: uint64(len(after))}
	for _, key := range keys {
		was, stood := before[key]
		is, stands := after[key]
		switch {
		case stands && !stood:
			d.OnlyRight++
			rows = append(rows, is)
		case stood && !stands:
			d.OnlyLeft++
			gone = append(gone, key)
		case stands && (was.Sequence != is.Sequence || !bytes.Equal(was.State, is.State)):
			d.Changed++
			rows = append(rows, is)
		}
	}
	return rows, gone, d
}
