package query

import (
	"context"

	"github.com/erpbackbone/backbone/domain/event"
)

// Await waits until a version of a projection has reached a sequence, for up to the
// reports' patience, and tells how far it is. Fault read.not_caught_up (Timeout).
func (r *Reports) Await(ctx context.Context, projection string, version int, p event.PartitionID, need event.Sequence) (event.Sequence, error) {
	reached, _, err := r.waitFor(ctx, projection, version, p, need)
	return reached, err
}
