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
	Reference      bool   // Body lacks data, dimensions and entities: the broker takes no message of the whole's size
}

// Published is what became of a batch.
type Published struct {
	Stored     int // messages, from the first on, that the broker has stored for certain
	Duplicates int // of them: those that it had already and did not store again
}

// Publisher stores messages in a broker.
type Publisher interface {
	// Publish hands over messages of one partition in their order and waits until the
	// broker has stored all of them, or one is not. The error speaks of the message after
	// the stored ones; it may be stored or not, and no message behind it is stored before
	// it, so a publisher that starts again from there keeps the order. The id of a message is
	// that of its event: the broker leaves out what it took already within its window.
	//
	// Several calls, each of another partition, may run at once.
	//
	//	publisher.unavailable   Unavailable: broker away, without a leader, or too slow
	//	publisher.too_large     TooLarge: the broker takes no message of this size
	//	publisher.refused       FailedPrecondition: rights, limits or settings of the
	//	                        broker; the detail says what to change
	Publish(ctx context.Context, messages []Message) (Published, error)
}

// PublisherCursor is how far a publisher has come in a partition.
type PublisherCursor struct {
	Publisher        string
	Partition        event.PartitionID
	PublishedThrough event.Sequence
	Term             uint64    // of the lease under which it was moved or begun last
	MovedAt          time.Time // zero: never
	Failures         int       // in a row
	LastError        string    // code of the newest of them; "" after a success
	FailedAt         time.Time // zero without one
}

// PublisherCursors keeps the cursors of publishers. A cursor belongs to the highest
// term that began on it, so that a worker that was paused past its lease changes
// nothing: fault publisher.fenced (Conflict) for every lower term.
type PublisherCursors interface {
	// BeginPublishing makes a cursor the term's, at 0 if it is new, and returns it.
	BeginPublishing(ctx context.Context, publisher string, p event.PartitionID, term uint64) (PublisherCursor, error)
	// MovePublished moves a cursor that the term has begun forward and forgets its
	// failures. publisher.cursor_moved (Conflict) if it is not at from, or to is not
	// beyond it.
	MovePublished(ctx context.Context, publisher string, p event.PartitionID, term uint64, from, to event.Sequence) error
	// RecordPublishFailure counts a failure of the term that has begun on a cursor.
	RecordPublishFailure(ctx context.Context, publisher string, p event.PartitionID, term uint64, code string) error
	// PublisherCursors lists the cursors of a publisher, or all for "", by publisher and
	// partition.
	PublisherCursors(ctx context.Context, publisher string) ([]PublisherCursor, error)
}
