package ports

import (
	"context"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
)

// ProjectionTx is the transaction a projection writes its read model in. Its
// concrete type belongs to the adapter; a module's adapter binds to it.
type ProjectionTx any

// ProjectionHandler folds events into a read model.
type ProjectionHandler interface {
	// Apply writes the effects of the events, which are of one partition and in
	// sequence order, inside tx. It must not commit.
	Apply(ctx context.Context, tx ProjectionTx, events []event.Recorded) error
}

// Checkpoint is how far a projection has read one partition.
type Checkpoint struct {
	Projection string
	Version    int
	Partition  event.PartitionID
	Sequence   event.Sequence
	Status     string // "running" or "faulted"
	Error      string
	UpdatedAt  time.Time
}

// Projections keeps checkpoints and read models in step.
type Projections interface {
	// Advance reads the events after the checkpoint (at most limit, only the given
	// types are handed over), lets the handler apply them and moves the checkpoint,
	// all in one transaction that holds the checkpoint row. It returns the new
	// checkpoint and how many events it passed; 0 means caught up.
	Advance(ctx context.Context, projection string, version int, p event.PartitionID, types []string, limit int, h ProjectionHandler) (Checkpoint, int, error)
	// Checkpoints lists a projection's checkpoints.
	Checkpoints(ctx context.Context, projection string, version int) ([]Checkpoint, error)
	// MarkFaulted records an error on the checkpoint; the next Advance clears it.
	MarkFaulted(ctx context.Context, projection string, version int, p event.PartitionID, message string) error
	// PartitionHeads lists the last sequence of every partition.
	PartitionHeads(ctx context.Context) (map[event.PartitionID]Head, error)
}

// WakeUps tells that a partition grew. A signal may be lost or repeated; readers
// poll as well.
type WakeUps interface {
	// Listen calls wake until ctx ends. It reconnects by itself.
	Listen(ctx context.Context, wake func(event.PartitionID)) error
}
