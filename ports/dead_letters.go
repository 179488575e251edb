package ports

import (
	"context"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
)

// DeadLetter is an event that a reader of the log could not process. It holds no value of the
// event, which authorized callers read in the log. Messages that a subscription could not deliver
// are not here: see ParkedMessage.
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
	Status        string    // one of the Letter constants
	SettledAt     time.Time // of skipped, resolved and discarded
	SettledBy     string
	Reason        string
}

// The statuses of a dead letter. A letter begins as waiting or passed.
const (
	LetterWaiting   = "waiting"   // the reader is halted at the event, or tries it again after Projections.Fix
	LetterPassed    = "passed"    // the policy of the projection skipped the event
	LetterSkipped   = "skipped"   // an operator skipped the event
	LetterResolved  = "resolved"  // the event was processed later, by the reader or by a recomputation of its rows
	LetterDiscarded = "discarded" // the projection was reset or its version dropped
)

// LetterOfProjection is the kind of the dead letters of projections.
const LetterOfProjection = "projection"

// DeadLetterQuery selects dead letters.
type DeadLetterQuery struct {
	Kind       string              // "": all
	Name       string              // "": all
	Partitions []event.PartitionID // none: all
	Statuses   []string            // none: all
	After      *DeadLetter         // the last one of the previous page; only its kind, name, version, partition and sequence count
	Limit      int
}

// DeadLetters lists the events that readers could not process.
type DeadLetters interface {
	// ListDeadLetters lists a page by kind, name, version, partition and sequence.
	ListDeadLetters(ctx context.Context, q DeadLetterQuery) ([]DeadLetter, error)
}
