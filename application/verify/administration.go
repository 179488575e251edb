package verify

import (
	"context"

	"github.com/erpbackbone/backbone/domain/event"
)

// comparison compares the rows that a node serves from with what the administrative log of
// their tenant recorded.
type comparison interface {
	// note takes the next event of the log. Its payload is the one that was recorded.
	note(c *chain, e *event.Recorded)
	// compare reads the rows, after the last event, and adds what does not agree to the
	// findings. An error means that the rows could not be read.
	compare(ctx context.Context, c *chain, store Store) error
}

// comparisons are those of one run over an administrative log.
func comparisons() []comparison {
	return []comparison{
		legalEntities{},
		webhooks{},
		subscriptions{},
		projections{},
	}
}
