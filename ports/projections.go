package ports

import (
	"context"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/projection"
)

// ProjectionTx is the transaction a projection writes its read model in. Its
// concrete type belongs to the adapter; a module's adapter binds to it.
type ProjectionTx any

// ProjectionBatch holds the events that a handler applies in one transaction.
type ProjectionBatch struct {
	Projection string
	// Version is the version that owns the rows. Several versions of one projection may share
	// tables.
	Version   int
	Partition event.PartitionID
	Events    []event.Recorded // of the partition, in sequence order, at least one
}

// ProjectionHandler folds events into a read model.
type ProjectionHandler interface {
	// Apply writes the effects of the batch inside tx. It must not commit. An error rolls all
	// of them back; its code is stored and its text is not, since it may quote a value.
	Apply(ctx context.Context, tx ProjectionTx, b ProjectionBatch) error
}

// ProjectionResetter is a handler that can remove its rows.
type ProjectionResetter interface {
	// Reset removes inside tx the rows of the version in the partition. The batch has no
	// events.
	Reset(ctx context.Context, tx ProjectionTx, b ProjectionBatch) error
}

// Checkpoint is the position and the status of a projection in one partition.
type Checkpoint = projection.Checkpoint

// ProjectionWork names one version of a projection in one partition, and the lease under which
// a node works it.
type ProjectionWork struct {
	Projection string
	Version    int
	Partition  event.PartitionID
	// Lease may be nil for work without one. The transaction locks the checkpoint first and
	// then reads the lease: if the term is another one, another node has taken over, and the
	// fault is projection.fenced (conflict). An expired lease that no node has taken is valid.
	Lease *Lease
	// LockWait is how long the transaction waits for a lock of another session, on the
	// checkpoint or on rows that the handler writes; 0 is the store's default. After that the
	// transaction is rolled back with fault projection.busy (unavailable).
	LockWait time.Duration
}

// ProjectionAdvance describes one transaction of a projection.
type ProjectionAdvance struct {
	ProjectionWork
	Types []string // the handler receives only these; none: all
	Limit int      // upper bound of the events of any type that the checkpoint advances over; 0: none
	Bytes int      // upper bound of the payloads that the handler receives, unless the first event has more; 0: none
}

// ProjectionFailure is an attempt that was rolled back.
type ProjectionFailure struct {
	ProjectionWork
	At     event.Sequence // the checkpoint before the attempt; if it has moved since, nothing is recorded
	Code   string
	Detail string        // never quotes a value of the event
	Pause  time.Duration // until the next attempt
	// Attempts and Since describe the failures in a row of the batch that the event was in, this
	// one included: how many, and when the first was. 0 uses those of the checkpoint.
	Attempts int
	Since    time.Time
}

// ProjectionOperation is an action of an operator on a projection in one partition.
type ProjectionOperation struct {
	ProjectionWork
	By     string // the operator
	Reason string
}

// Projections advances checkpoints and read models together.
type Projections interface {
	// Advance reads the events after the checkpoint, lets the handler apply them and moves
	// the checkpoint, all in one transaction that locks the checkpoint row. It returns the
	// new checkpoint and the number of events that it advanced over. 0 means that the
	// projection has caught up or is halted, in which case the handler is not called. A success
	// resolves the dead letters of these events.
	Advance(ctx context.Context, a ProjectionAdvance, h ProjectionHandler) (Checkpoint, int, error)
	// Checkpoints lists a projection's checkpoints by partition.
	Checkpoints(ctx context.Context, projection string, version int) ([]Checkpoint, error)
	// RecordFailure counts a failed attempt.
	RecordFailure(ctx context.Context, f ProjectionFailure) (Checkpoint, error)
	// Isolate counts a failed attempt at the one event after the checkpoint, and moves the
	// event to the dead letters. By the policy (projection.SkipEvent, StopPartition,
	// StopProjection) the checkpoint advances over it, halts, or halts with the whole
	// projection.
	Isolate(ctx context.Context, f ProjectionFailure, policy string) (Checkpoint, error)

	// Fix makes a halted partition try again. Fault projection.not_halted.
	Fix(ctx context.Context, o ProjectionOperation) (Checkpoint, error)
	// Skip advances over the event that a partition is halted at. Fault
	// projection.not_halted.
	Skip(ctx context.Context, o ProjectionOperation) (Checkpoint, error)
	// Reset lets the handler remove the rows of the partition, sets the checkpoint to 0 and
	// discards waiting dead letters, in one transaction.
	Reset(ctx context.Context, o ProjectionOperation, h ProjectionResetter) (Checkpoint, error)
}
