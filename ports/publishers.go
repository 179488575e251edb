package ports

import (
	"context"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
)

// Message is an event on its way to a cluster of a message broker.
type Message struct {
	event.Skeleton        // what headers and subject are made of
	Body           []byte // the event as the API shows it, in JSON; personal values as its receiver may see them
	Reference      bool   // Body lacks data, dimensions and entities, because the broker refused the size of the whole event
}

// Published is the outcome of a batch.
type Published struct {
	Stored     int // messages, from the first on, that the broker has confirmed
	Duplicates int // of Stored: those that the broker had already and did not store again
}

// Publisher stores messages in a broker.
type Publisher interface {
	// Publish sends messages of one partition in their order and waits until the broker has
	// confirmed all of them, or one fails. The error is about the first message that is not
	// confirmed. The broker may have stored that one, but no later one before it, so a caller
	// that publishes again from there keeps the order. The id of a message is that of its
	// event: the broker drops a message whose id it has stored within its duplicate window.
	//
	// Calls for different partitions may run at the same time.
	//
	//	publisher.unavailable   Unavailable: broker unreachable, without a leader, or too slow
	//	publisher.too_large     TooLarge: the broker refuses a message of this size
	//	publisher.refused       FailedPrecondition: rights, limits or settings of the
	//	                        broker; the detail says what to change
	Publish(ctx context.Context, messages []Message) (Published, error)
}

// PublisherCursor is the position of a publisher in a partition.
type PublisherCursor struct {
	Publisher        string
	Partition        event.PartitionID
	PublishedThrough event.Sequence
	Term             uint64    // of the lease under which it was last begun or moved
	MovedAt          time.Time // zero: never
	Failures         int       // in a row
	LastError        string    // code of the newest of them; "" after a success
	FailedAt         time.Time // zero without one
}

// PublisherCursors keeps the cursors of publishers. A cursor belongs to the highest
// term that began on it, so that a worker that was paused past its lease changes
// nothing: fault publisher.fenced (Conflict) for every lower term.
type PublisherCursors interface {
	// BeginPublishing assigns a cursor to a term and returns it; a new cursor is at 0.
	BeginPublishing(ctx context.Context, publisher string, p event.PartitionID, term uint64) (PublisherCursor, error)
	// MovePublished moves a cursor that the term has begun forward and resets its failures.
	// Fault publisher.cursor_moved (Conflict) if it is not at from, or to is not after from.
	MovePublished(ctx context.Context, publisher string, p event.PartitionID, term uint64, from, to event.Sequence) error
	// RecordPublishFailure adds a failure to a cursor that the term has begun.
	RecordPublishFailure(ctx context.Context, publisher string, p event.PartitionID, term uint64, code string) error
	// PublisherCursors lists the cursors of a publisher, or all for "", by publisher and
	// partition.
	PublisherCursors(ctx context.Context, publisher string) ([]PublisherCursor, error)
}
