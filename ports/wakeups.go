package ports

import (
	"context"

	"github.com/erpbackbone/backbone/domain/event"
)

// WakeUps signals that a partition grew. A signal may be lost or repeated, so readers poll as
// well.
type WakeUps interface {
	// Listen calls wake with each partition that grew, until ctx ends, and returns then. After a
	// reconnect it calls wake with partition 0, since any partition may have grown.
	Listen(ctx context.Context, wake func(event.PartitionID)) error
}
