package ports

import (
	"context"
	"iter"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
)

// RedactionRequest asks to redact plaintext in one stored payload.
type RedactionRequest struct {
	ID          event.ID // becomes the id of the redaction
	Partition   event.PartitionID
	Sequence    event.Sequence
	Pointers    []string // RFC 6901, in the stored payload, below /data
	Reason      string   // at most 1,000 bytes, no personal data
	RequestedBy string   // person id
	RequestedAt time.Time
	ApprovedBy  string // person id; "" while nobody approved
	ApprovedAt  time.Time
}

// Redaction records that a payload was redacted: places and hashes, no values.
type Redaction struct {
	ID             event.ID // of the request
	Partition      event.PartitionID
	Sequence       event.Sequence
	EventID        event.ID
	Pointers       []string
	Reason         string
	RequestedBy    string
	ApprovedBy     string
	OldPayloadHash event.Hash // of the skeleton, or what an earlier redaction of the event left
	NewPayloadHash event.Hash
	RedactedAt     time.Time
}

// RedactedPayload is the payload that takes the place of a stored one.
type RedactedPayload struct {
	OldHash event.Hash
	NewHash event.Hash
	Salt    event.Salt // new, so that nobody finds the old values by trying
	Payload []byte     // the stored bytes with "[REDACTED]" at the pointers and nothing else changed
}

// Redactions changes payloads, with two persons, as the eraser role: the nodes that
// append have no right to any of it. Every method is one transaction.
//
// Faults: redaction.event_not_found, redaction.pointer_invalid (outside of /data, or
// no value there), redaction.invalid (persons, reason, number of pointers),
// redaction.not_found, redaction.same_person (Forbidden), redaction.not_approved,
// redaction.approval_expired (72 hours), redaction.scope_changed (not what was
// approved), redaction.event_changed (the stored payload is not what the log vouches
// for), redaction.sealed, redaction.repeated, redaction.payload_refused (more or less
// than the pointers differs, or a hash does not match).
type Redactions interface {
	RedactionReader
	// RequestRedaction stores a request; requested_at is the database's time.
	RequestRedaction(ctx context.Context, r RedactionRequest) (RedactionRequest, error)
	// ApproveRedaction stores the approval of another person. One that still holds is
	// kept, so that repeating it changes nothing.
	ApproveRedaction(ctx context.Context, p event.PartitionID, id event.ID, person string) (RedactionRequest, error)
	// RedactionRequests lists a partition's requests, oldest first.
	RedactionRequests(ctx context.Context, p event.PartitionID) ([]RedactionRequest, error)
	// RedactPayload carries an approved request out. Repeated, it answers the first
	// redaction again and changes nothing.
	RedactPayload(ctx context.Context, r RedactionRequest, to RedactedPayload) (Redaction, error)
}

// RedactionReader lists what was redacted.
type RedactionReader interface {
	// Redactions lists a partition's redactions, oldest first.
	Redactions(ctx context.Context, p event.PartitionID) ([]Redaction, error)
}

// PersonalRow says that an event holds values sealed with a key of a person.
type PersonalRow struct {
	Sequence event.Sequence
	Subject  string
	KeyClass uint8
	Pointers []string // in the stored document
}

// ChainAudit reads what verification compares with the events.
type ChainAudit interface {
	RedactionReader
	// PersonalRows lists a partition's rows up to a sequence, by sequence, key class
	// and subject. It streams; the first error ends it.
	PersonalRows(ctx context.Context, p event.PartitionID, until event.Sequence) iter.Seq2[PersonalRow, error]
	// CountEvents counts every stored event up to a sequence, also those whose
	// sequence no append could have given and no read by page would come across.
	CountEvents(ctx context.Context, p event.PartitionID, until event.Sequence) (uint64, error)
	// StreamRows returns what is kept of those of the streams of which something is, in no
	// particular order.
	StreamRows(ctx context.Context, p event.PartitionID, streams []event.StreamID) ([]StreamRow, error)
	// StreamRowsWithEnds reads a page of what is kept of streams, by type and id, from a
	// stream on, and what their events say at the same moment.
	StreamRowsWithEnds(ctx context.Context, p event.PartitionID, from event.StreamID, limit int) (StreamRowPage, error)
	// CountStreamRows counts what is kept of streams that begin, as it says, up to a
	// sequence.
	CountStreamRows(ctx context.Context, p event.PartitionID, until event.Sequence) (uint64, error)
}

// StreamRow is what is kept of a stream beside its events.
type StreamRow struct {
	Stream      event.StreamID
	First, Last event.Sequence // of its events
	StreamStatus
}

// StreamRowPage is a page of what is kept of streams. Rows that have neither state nor
// metadata and agree with their events need not be there.
type StreamRowPage struct {
	Rows []StreamRowWithEnds
	Next event.StreamID // begins the next page; the zero value if nothing follows
}

// StreamRowWithEnds is a StreamRow with events of the stream. What is not there is zero.
type StreamRowWithEnds struct {
	StreamRow
	FirstEvent, LastEvent event.Sequence
	LastEventVersion      event.Version
	LastEventType         string
	MetadataEventType     string // of the event at MetadataVersion
	ReadableEventType     string // of the event at ReadableFrom
}
