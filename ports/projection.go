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

// ProjectionBatch is what a handler gets at once.
type ProjectionBatch struct {
	Projection string
	// Version is the version that is built. Several versions of one projection may be
	// built in the same tables, beside each other.
	Version   int
	Partition event.PartitionID
	Events    []event.Recorded // of the partition, in sequence order, at least one
}

// ProjectionHandler folds events into a read model.
type ProjectionHandler interface {
	// Apply writes the effects of the batch inside tx. It must not commit. An error rolls
	// everything back; its code is kept and its text is not, since it may quote a value.
	Apply(ctx context.Context, tx ProjectionTx, b ProjectionBatch) error
}

// ProjectionResetter is a handler that can forget.
type ProjectionResetter interface {
	// Reset removes inside tx what the version wrote for the partition. The batch has no
	// events.
	Reset(ctx context.Context, tx ProjectionTx, b ProjectionBatch) error
}

// Checkpoint is how far a projection has read one partition, and how it fared.
type Checkpoint = projection.Checkpoint

// ProjectionWork names one version of a projection in one partition, and by what right
// somebody works it.
type ProjectionWork struct {
	Projection string
	Version    int
	Partition  event.PartitionID
	// Lease is the one the work is done under; nil does it without. The transaction locks
	// the checkpoint first and then reads the lease: if its term is not this one, somebody
	// else has taken over, and the fault is projection.fenced (conflict). A lease that
	// expired and that nobody took is good.
	Lease *Lease
	// LockWait is how long the transaction waits for a lock that somebody else holds, on
	// the checkpoint or on what the handler writes; 0 is the store's own patience. When it
	// ends, nothing was done, and the fault is projection.busy (unavailable).
	LockWait time.Duration
}

// ProjectionAdvance is one step.
type ProjectionAdvance struct {
	ProjectionWork
	Types []string // hand over these only; none: all
	Limit int      // pass at most so many events, of whatever type; 0: all
	Bytes int      // of payloads that are handed over at once, unless the first event alone has more; 0: no bound
}

// ProjectionFailure is an attempt that was rolled back.
type ProjectionFailure struct {
	ProjectionWork
	At     event.Sequence // the checkpoint that it began at; if it has moved since, nothing is recorded
	Code   string
	Detail string        // never quotes a value of the event
	Pause  time.Duration // until the next attempt
	// Attempts and Since are of the batch that an event was isolated from: how often it
	// failed with this attempt, and when first. 0 counts what the checkpoint knows.
	Attempts int
	Since    time.Time
}

// ProjectionOperation is what an operator does to a projection in one partition.
type ProjectionOperation struct {
	ProjectionWork
	By     string // who
	Reason string
}

// Projections keeps checkpoints and read models in step.
type Projections interface {
	// Advance reads the events after the checkpoint, lets the handler apply them and moves
	// the checkpoint, all in one transaction that holds the checkpoint row. It returns the
	// new checkpoint and how many events it passed; 0 means caught up, or halted: then the
	// handler is not called, and the checkpoint says so. A success resolves the dead
	// letters of what it passed.
	Advance(ctx context.Context, a ProjectionAdvance, h ProjectionHandler) (Checkpoint, int, error)
	// Checkpoints lists a projection's checkpoints by partition.
	Checkpoints(ctx context.Context, projection string, version int) ([]Checkpoint, error)
	// RecordFailure counts an attempt that failed.
	RecordFailure(ctx context.Context, f ProjectionFailure) (Checkpoint, error)
	// Isolate counts an attempt that failed for the one event after the checkpoint, and
	// puts the event into the dead letters. By the policy (projection.SkipEvent,
	// StopPartition, StopProjection) the checkpoint passes it, halts, or halts with the
	// whole projection.
	Isolate(ctx context.Context, f ProjectionFailure, policy string) (Checkpoint, error)

	// Fix lets a halted partition try again. Fault projection.not_halted.
	Fix(ctx context.Context, o ProjectionOperation) (Checkpoint, error)
	// Skip passes over the event that a partition is halted at. Fault
	// projection.not_halted.
	Skip(ctx context.Context, o ProjectionOperation) (Checkpoint, error)
	// Reset lets the handler forget the partition and sets the checkpoint to 0, in one
	// transaction. What waited in the dead letters is discarded.
	Reset(ctx context.Context, o ProjectionOperation, h ProjectionResetter) (Checkpoint, error)

	// PartitionHeads lists the last sequence of every partition.
	PartitionHeads(ctx context.Context) (map[event.PartitionID]Head, error)
	// RecordedAt tells when events were recorded, in one query for all of them. Those that
	// do not exist are left out.
	RecordedAt(ctx context.Context, places []EventPlace) (map[EventPlace]time.Time, error)
}

// EventPlace is where an event is in the log.
type EventPlace struct {
	Partition event.PartitionID
	Sequence  event.Sequence
}

// ProjectionRegister knows the projections of an installation.
type ProjectionRegister interface {
	// AddProjection makes a projection known, with revision 1, unless it is: then nothing
	// changes. It returns what is known afterwards. Fault projection.not_found when another
	// version is building or active already, as this one would be, or when this one is
	// building and none is shown; projection.wrong_expected_version when another one than
	// Follows is. Of a tenant's own there are never more than projection.MayAdd allows.
	AddProjection(ctx context.Context, p projection.Projection) (projection.Projection, error)
	// ListProjections lists the versions of all projections, by name and version; of those
	// that were dropped only one that is the latest of its projection.
	ListProjections(ctx context.Context) ([]projection.Projection, error)
	// NamedProjections lists all versions of one projection, by version. Empty for one that
	// is not known.
	NamedProjections(ctx context.Context, name string) ([]projection.Projection, error)
	// ChangeProjection writes status, settings and who changed them, and gives the
	// projection the next revision. Faults: projection.not_found, projection.changed
	// (conflict) if its revision is not p's.
	ChangeProjection(ctx context.Context, p projection.Projection) (projection.Projection, error)
}

// DeadLetter is an event that a reader of the log could not digest. It holds no value
// of the event: whoever may read the event finds it in the log.
type DeadLetter struct {
	Kind          string // of the reader, such as "projection"
	Name          string // of the reader
	Version       int    // of the reader, 0: it has none
	Partition     event.PartitionID
	Sequence      event.Sequence
	EventID       event.ID
	Code          string
	Detail        string
	Attempts      int
	FirstFailedAt time.Time
	LastFailedAt  time.Time
	// Status is waiting (the reader stands still at it), passed (the reader went on
	// without it by its settings), skipped (an operator let it go on), resolved (it was
	// digested later) or discarded.
	Status    string
	SettledAt time.Time // of skipped, resolved and discarded
	SettledBy string
	Reason    string
}

// The states of a dead letter.
const (
	LetterWaiting   = "waiting"
	LetterPassed    = "passed"
	LetterSkipped   = "skipped"
	LetterResolved  = "resolved"
	LetterDiscarded = "discarded"
)

// LetterOfProjection is the kind of the dead letters of projections.
const LetterOfProjection = "projection"

// DeadLetterQuery chooses dead letters.
type DeadLetterQuery struct {
	Kind       string              // "": all
	Name       string              // "": all
	Partitions []event.PartitionID // none: all
	Statuses   []string            // none: all
	After      *DeadLetter         // the last one of the page before; its key counts
	Limit      int
}

// DeadLetters shows what could not be digested.
type DeadLetters interface {
	// ListDeadLetters lists a page by kind, name, version, partition and sequence.
	ListDeadLetters(ctx context.Context, q DeadLetterQuery) ([]DeadLetter, error)
}

// WakeUps tells that a partition grew. A signal may be lost or repeated; readers
// poll as well.
type WakeUps interface {
	// Listen calls wake until ctx ends. It reconnects by itself and then wakes with
	// partition 0: whichever may have grown.
	Listen(ctx context.Context, wake func(event.PartitionID)) error
}
