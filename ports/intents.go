package ports

import (
	"context"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/intent"
)

// IntentWrite stores the intent's row with the events: an insert when
// ExpectedRevision is 0, else a compare-and-set from that revision. If the row exists at an
// insert, or has another revision, the append writes nothing and fails with intent.changed.
// The last event of the append is the intent's and binds the row, see AppendRequest.CheckIntent.
// The stored revision is ExpectedRevision + 1. The appender fills in the sequences of events.
type IntentWrite struct {
	Intent           intent.Intent
	ExpectedRevision int
	EventsAbout      int                   // how many events at the end of the request are about the intent, not made by it
	Sealed           []event.SealedSubject // keys that values of the payload were sealed with for this write; empty when the payload is as it was
}

// IntentReader reads stored intents.
type IntentReader interface {
	// Intent returns fault intent.not_found if the partition has no such intent.
	Intent(ctx context.Context, p event.PartitionID, id event.ID) (intent.Intent, error)
	// WaitingIntents lists the intents with status pending_approval, oldest first; a limit of 0
	// lists all.
	WaitingIntents(ctx context.Context, p event.PartitionID, limit int) ([]intent.Intent, error)
	// ListIntents reads a page of rows by id, and so by time of submission, without their payloads
	// and rule traces.
	ListIntents(ctx context.Context, q IntentQuery) ([]intent.Intent, error)
	// HasRedactions reports whether values of an intent's events were redacted.
	HasRedactions(ctx context.Context, in *intent.Intent) (bool, error)
}

// IntentQuery selects intents of one partition. Zero values do not filter.
type IntentQuery struct {
	Partition     event.PartitionID
	Status        intent.Status // not Executed, for whose rows there is no index
	After, Before event.ID      // both exclusive, whatever the direction
	Direction     Direction
	Limit         int
}

// IntentAudit reads the rows of intents that verification compares with the events.
type IntentAudit interface {
	// IntentSequences returns the last sequence of each of the intents that has a row.
	IntentSequences(ctx context.Context, p event.PartitionID, ids []event.ID) (map[event.ID]event.Sequence, error)
	// BoundIntents reads a page of rows by id, after an id, with the events at their last
	// sequences in the same snapshot.
	BoundIntents(ctx context.Context, p event.PartitionID, after event.ID, limit int) ([]BoundIntent, error)
	// PersonalIntentRows lists the rows about persons of intents, for pairs of a person and an
	// intent, in no particular order.
	PersonalIntentRows(ctx context.Context, p event.PartitionID, subjects []string, ids []event.ID) ([]PersonalIntent, error)
}

// PersonalIntent says that the payload of an intent holds values sealed with a key of a person.
type PersonalIntent struct {
	IntentID event.ID
	Subject  string
	KeyClass uint8
}

// BoundIntent is the row of an intent and the event at its LastSequence, whose fields are zero
// if there is none.
type BoundIntent struct {
	Intent       intent.Intent
	Unreadable   bool // the row holds a value that no append writes; Intent has its id only
	EventIntent  event.ID
	EventType    string
	EventPayload []byte
	Lost         bool // the payload is archived, and its file is missing or damaged
}
