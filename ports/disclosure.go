package ports

import (
	"context"
	"iter"
	"time"

	"github.com/erpbackbone/backbone/domain/disclosure"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/shredding"
)

// AccessLog stores the reads that matter. It is kept by tenant, under the partition of the
// tenant's administrative log.
type AccessLog interface {
	AccessReader
	// AddAccesses stores accesses, all or none; their time is the store's.
	AddAccesses(ctx context.Context, log event.PartitionID, accesses []disclosure.Access) error
	// SearchAccesses lists accesses, newest first.
	SearchAccesses(ctx context.Context, q AccessQuery) ([]disclosure.Access, error)
	// SettleAccesses waits for accesses that are being stored, and returns a time: none that is
	// stored later has an earlier one.
	SettleAccesses(ctx context.Context) (time.Time, error)
	// OldestAccess returns the time of the oldest access; the zero time if there is none.
	OldestAccess(ctx context.Context, log event.PartitionID) (time.Time, error)
	// DeleteAccesses deletes up to limit accesses from before a time, the oldest first, and
	// returns their number. It deletes none younger than disclosure.MinRetention.
	DeleteAccesses(ctx context.Context, log event.PartitionID, before time.Time, limit int) (int, error)
}

// AccessReader reads the record of reads for verification.
type AccessReader interface {
	// Accesses lists those from one time to before another, by time and id. It streams; the
	// first error ends it.
	Accesses(ctx context.Context, log event.PartitionID, from, to time.Time) iter.Seq2[disclosure.Access, error]
}

// AccessQuery selects accesses. Zero fields select all.
type AccessQuery struct {
	Log      event.PartitionID
	PersonID string
	Subject  shredding.Subject
	Class    shredding.Class
	Kind     disclosure.Kind
	From, To time.Time // from the first to before the second
	// BeforeAt and BeforeID are those of the last access on the page before.
	BeforeAt time.Time
	BeforeID event.ID
	Limit    int
}
