package ports

import (
	"context"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/intent"
)

// IntentWrite stores the intent's row with the events: an insert when
// ExpectedRevision is 0, else a compare-and-set from that revision. The appender
// fills in the event range.
type IntentWrite struct {
	Intent           intent.Intent
	ExpectedRevision int
	Sealed           []event.SealedSubject // values that were sealed for this write; empty when the payload is as it was
}

// IntentReader reads stored intents.
type IntentReader interface {
	// Intent returns fault intent.not_found if the partition has no such intent.
	Intent(ctx context.Context, p event.PartitionID, id event.ID) (intent.Intent, error)
	// WaitingIntents lists intents that wait for approval, oldest first.
	WaitingIntents(ctx context.Context, p event.PartitionID, limit int) ([]intent.Intent, error)
}
