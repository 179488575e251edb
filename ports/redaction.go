package ports

import (
	"context"
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
	ApprovedBy  string // person id; "" until it is approved
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
	Salt    event.Salt // new, so that the old values cannot be found by guessing
	Payload []byte     // the stored bytes with "[REDACTED]" at the pointers and nothing else changed
}

// Redactions changes payloads with the approval of a second person, as the eraser role,
// which the appending nodes do not have. Every method is one transaction.
//
// Faults: redaction.event_not_found, redaction.pointer_invalid (outside of /data, or
// no value there), redaction.invalid (persons, reason, number of pointers),
// redaction.not_found, redaction.same_person (Forbidden), redaction.not_approved,
// redaction.approval_expired (72 hours), redaction.scope_changed (not the
// approved scope), redaction.event_changed (the stored payload does not have the hash
// in the log), redaction.sealed, redaction.repeated, redaction.payload_refused (more or less
// than the pointers differs, or a hash does not match).
type Redactions interface {
	RedactionReader
	// RequestRedaction stores a request; requested_at is the database's time.
	RequestRedaction(ctx context.Context, r RedactionRequest) (RedactionRequest, error)
	// ApproveRedaction stores the approval of another person. It keeps one that is still
	// valid, so that repeating it changes nothing.
	ApproveRedaction(ctx context.Context, p event.PartitionID, id event.ID, person string) (RedactionRequest, error)
	// RedactionRequests lists a partition's requests, oldest first.
	RedactionRequests(ctx context.Context, p event.PartitionID) ([]RedactionRequest, error)
	// RedactPayload executes an approved request. Repeated, it returns the first redaction
	// again and changes nothing.
	RedactPayload(ctx context.Context, r RedactionRequest, to RedactedPayload) (Redaction, error)
}

// RedactionReader lists redactions.
type RedactionReader interface {
	// Redactions lists a partition's redactions, oldest first.
	Redactions(ctx context.Context, p event.PartitionID) ([]Redaction, error)
}
