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
//
// Only what a handler writes through tx is undone when a transaction fails. The same events
// come again then, after a deadlock even within one call of Advance, so a handler keeps no
// counts or other results in its own fields.
type ProjectionHandler interface {
	// Apply writes the effects of the batch inside tx. It must not commit, and must not call
	// Advance or another method that locks a checkpoint, which could wait for itself. An error
	// rolls all effects back; its code is stored and its text is not, since it may quote a value.
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
//
// A method that writes for a ProjectionWork runs one transaction, which locks the checkpoint
// and then reads the lease, once. So a node whose lease is taken over while its handler runs
// still commits; the next holder waits for the lock and continues after the new checkpoint, and
// the next transaction of the first node is refused. No event is applied twice. All these
// methods have the faults projection.fenced and projection.busy.
type ProjectionWork struct {
	Projection string
	Version    int
	Partition  event.PartitionID
	// Lease is nil for work without one. Fault projection.fenced (Conflict) if another node has
	// taken the lease, if the node itself has released it, or if the version was dropped: give
	// the work up. A lease that has expired and that no node has taken is valid.
	Lease *Lease
	// LockWait is how long the transaction waits for each lock of another session, on the
	// checkpoint or on rows that the handler writes; 0 is the store's default. After that it is
	// rolled back with fault projection.busy (Unavailable): try again later.
	LockWait time.Duration
}

// ProjectionAdvance describes one transaction of a projection.
type ProjectionAdvance struct {
	ProjectionWork
	Types []string // the handler receives only these; none: all
	Limit int      // how many events of any type the checkpoint advances over at most; 0: no bound
	Bytes int      // how many bytes of payloads the handler receives at most, unless the first event has more; 0: no bound
}

// ProjectionFailure is an attempt that was rolled back.
type ProjectionFailure struct {
	ProjectionWork
	At     event.Sequence // the checkpoint before the attempt
	Code   string
	Detail string        // of Isolate; never quotes a value of the event
	Pause  time.Duration // of RecordFailure: until the next attempt
	// Attempts and Since are of Isolate: how often the batch that holds the event has failed in
	// a row, this attempt included, and when it failed first. The zero values stand for what the
	// checkpoint has counted.
	Attempts int
	Since    time.Time
}

// ProjectionOperation is an action of an operator on a projection in one partition.
type ProjectionOperation struct {
	ProjectionWork
	By       string // the operator
	Reason   string
	Sequence event.Sequence // of Skip: the event that the partition is halted at
}

// Projections advances checkpoints and read models together. A checkpoint that was never
// stored is at sequence 0. On an error, and if ctx ends before the commit, neither rows nor
// checkpoint are written; the checkpoint that is returned with an error is the one before the
// attempt, or zero if it could not be read.
type Projections interface {
	// Advance reads the events after the checkpoint, lets the handler apply them and moves
	// the checkpoint, all in one transaction that locks the checkpoint row. It returns the
	// new checkpoint and the number of events of any type that it advanced over. 0 without an
	// error means that the projection has caught up or is halted. The handler is called only if
	// one of the events has one of a.Types. A success after failures, or after Fix, resolves the
	// waiting dead letters of these events. The handler's error is returned unchanged, unless it
	// comes from the database.
	Advance(ctx context.Context, a ProjectionAdvance, h ProjectionHandler) (Checkpoint, int, error)
	// Checkpoints lists a projection's checkpoints by partition.
	Checkpoints(ctx context.Context, projection string, version int) ([]Checkpoint, error)
	// RecordFailure counts a failed attempt and schedules the next one. If the checkpoint is
	// not at f.At, since another worker has moved it, or is halted, RecordFailure changes nothing
	// and returns the checkpoint as it is, without an error.
	RecordFailure(ctx context.Context, f ProjectionFailure) (Checkpoint, error)
	// Isolate counts a failed attempt at the one event after the checkpoint, and moves the
	// event to the dead letters, unless the checkpoint has moved, as in RecordFailure. By the
	// policy (projection.SkipEvent, StopPartition, StopProjection) the checkpoint advances over
	// the event, halts, or halts with the whole projection.
	Isolate(ctx context.Context, f ProjectionFailure, policy string) (Checkpoint, error)

	// Fix makes a halted partition try again, with its full number of attempts; an operator
	// calls it who has repaired the cause. The dead letter stays waiting until an attempt
	// succeeds. Fault projection.not_halted.
	Fix(ctx context.Context, o ProjectionOperation) (Checkpoint, error)
	// Skip advances over the event that a partition is halted at, and marks its dead letter as
	// skipped. Faults projection.not_halted; projection.changed if it is halted at another event.
	Skip(ctx context.Context, o ProjectionOperation) (Checkpoint, error)
	// Reset lets the handler remove the rows of the partition, sets the checkpoint to 0 and
	// discards waiting dead letters, in one transaction and in any status.
	Reset(ctx context.Context, o ProjectionOperation, h ProjectionResetter) (Checkpoint, error)
}
