package ports

import (
	"context"
	"encoding/json"

	"github.com/erpbackbone/backbone/domain/event"
)

// ProjectionRow is the state of a key in a projection that was created at run time.
type ProjectionRow struct {
	Key      string
	State    json.RawMessage
	Sequence event.Sequence // of the event that changed it last
}

// ProjectionRowQuery asks for rows of one version in one partition.
type ProjectionRowQuery struct {
	Projection string
	Version    int
	Partition  event.PartitionID
	Key        string // "": all; else this one
	Prefix     string // of keys
	After      string // exclusive
	Limit      int
}

// ProjectionRows keeps the rows of projections that were created at run time. A batch
// names projection, version and partition; its events do not count.
type ProjectionRows interface {
	// LoadProjectionRows gives inside tx those of the rows that exist, by key.
	LoadProjectionRows(ctx context.Context, tx ProjectionTx, b ProjectionBatch, keys []string) (map[string]ProjectionRow, error)
	// StoreProjectionRows writes rows and removes the keys that are gone, inside tx.
	StoreProjectionRows(ctx context.Context, tx ProjectionTx, b ProjectionBatch, rows []ProjectionRow, gone []string) error
	// ForgetProjectionRows removes all rows of the batch's partition inside tx.
	ForgetProjectionRows(ctx context.Context, tx ProjectionTx, b ProjectionBatch) error
	// ListProjectionRows lists a page of committed rows by key, in the order of bytes, and
	// the checkpoint that they are at.
	ListProjectionRows(ctx context.Context, q ProjectionRowQuery) ([]ProjectionRow, event.Sequence, error)
	// EndProjection begins to drop all versions of a projection in one transaction: nobody
	// works them any more, and SweepProjection removes their rows. Fault
	// projection.not_found when there is no version that is alive.
	EndProjection(ctx context.Context, projection, by string) error
}

// ProjectionRowTable is where a store with tables keeps the rows.
var ProjectionRowTable = ProjectionTable{Schema: "backbone", Name: "projection_rows", Key: []string{"key"}, Shared: true}
