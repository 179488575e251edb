package ports

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
)

// AdministrativeLog records what is decided about a tenant in its administrative log.
type AdministrativeLog interface {
	// RecordRevision records that something, which is one stream, has reached a revision, once:
	// it appends nothing if the stream has an event of this revision or a later one. The data
	// of every event of the stream have the member revision. Without an actor it was the
	// operator. Faults: those of EventAppender.
	RecordRevision(ctx context.Context, tenantID string, actor event.Actor, r Revision) error
	// Revisions returns the events of a stream, the first one first.
	Revisions(ctx context.Context, tenantID string, stream event.StreamID) ([]event.Recorded, error)
	// EventsOfTypes returns the events of some types, the first one first.
	EventsOfTypes(ctx context.Context, tenantID string, types ...string) ([]event.Recorded, error)
	// AdoptRevisions records what an earlier release stored about a concern, such as "erasures",
	// once for each tenant. It returns the sequence of the event that ended this: what is
	// recorded before it was adopted.
	AdoptRevisions(ctx context.Context, tenantID, concern string, rows func(context.Context) ([]Revision, error)) (event.Sequence, error)
}

// Revision is a revision of something that is decided step by step, such as a request.
type Revision struct {
	Stream event.StreamID
	Number int
	Type   string // of the event
	Data   any
}

// rowDigest hashes the columns of a row: SHA-256 over each with its length in 4 bytes before
// it, the domain of the digest first.
func rowDigest(domain string, columns ...string) event.Hash {
	h := sha256.New()
	for _, column := range append([]string{domain}, columns...) {
		var length [4]byte
		binary.BigEndian.PutUint32(length[:], uint32(len(column)))
		h.Write(length[:])
		h.Write([]byte(column))
	}
	return event.Hash(h.Sum(nil))
}

// timeColumn renders a time as rowDigest takes it: in microseconds, as every store keeps it.
func timeColumn(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return event.Micros(t).Format(time.RFC3339Nano)
}
