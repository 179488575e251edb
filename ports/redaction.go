package ports

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/shredding"
)

// RedactionRequest asks to redact plaintext in one stored payload.
type RedactionRequest struct {
	ID        event.ID // becomes the id of the redaction
	TenantID  string
	Partition event.PartitionID
	Sequence  event.Sequence
	EventID   event.ID
	Pointers  []string // RFC 6901, in the stored payload, below /data
	Reason    string   // at most 1,000 bytes, no personal data

	State    shredding.RedactionState
	Revision int             // raised by every move; the first is 1
	Scope    event.Hash      // of the stored payload at the preview: what an approval is bound to
	Preview  json.RawMessage // what the request concerns, for people

	RequestedBy string // person id
	RequestedAt time.Time
	ApprovedBy  string // person id; "" until it is approved
	ApprovedAt  time.Time
	EndedBy     string // who rejected or withdrew it
	EndReason   string
	Attempts    int    // failed ones, of the next step
	LastError   string // code of the last failure
	UpdatedAt   time.Time
	CompletedAt time.Time
	Results     json.RawMessage // of the verification
}

// Digest hashes the stored row, like that of ErasureRequest.
func (r *RedactionRequest) Digest() (event.Hash, error) {
	pointers, err := json.Marshal(r.Pointers)
	if err != nil {
		return event.Hash{}, err
	}
	return rowDigest("backbone/redaction-row/v1", r.ID.String(), r.TenantID, strconv.FormatUint(uint64(r.Partition), 10), strconv.FormatUint(uint64(r.Sequence), 10),
		r.EventID.String(), string(pointers), r.Reason, string(r.State), strconv.Itoa(r.Revision), string(r.Scope[:]), string(r.Preview),
		r.RequestedBy, timeColumn(r.RequestedAt), r.ApprovedBy, timeColumn(r.ApprovedAt), r.EndedBy, r.EndReason, timeColumn(r.CompletedAt), string(r.Results)), nil
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
	Request        *RedactionGrounds // nil: there is no request with this id
}

// RedactionGrounds is the stored request of a redaction, which verification compares with it.
type RedactionGrounds struct {
	State       shredding.RedactionState
	Sequence    event.Sequence
	EventID     event.ID
	Pointers    []string
	RequestedBy string
	ApprovedBy  string
}

// RedactedPayload is the payload that takes the place of a stored one.
type RedactedPayload struct {
	OldHash event.Hash
	NewHash event.Hash
	Salt    event.Salt // new, so that the old values cannot be found by guessing
	Payload []byte     // the stored bytes with "[REDACTED]" at the pointers and nothing else changed
}

// Redactions stores requests and changes payloads with the approval of a second person, as the
// eraser role; the role with which nodes append and read can do neither. Every method is one
// transaction and locks the request, and a repeat changes nothing.
//
// Faults: redaction.not_found, redaction.event_not_found, redaction.pointer_invalid (outside of
// /data, or no value there), redaction.invalid (persons, reason, number of pointers),
// redaction.duplicate (another request has the id), redaction.changed (Conflict: another process
// moved the request), redaction.move_refused, redaction.same_person (Forbidden),
// redaction.not_approved, redaction.approval_expired (72 hours), redaction.scope_changed (the
// payload is not the one that was previewed), redaction.event_changed (the stored payload does
// not have the hash in the log), redaction.not_redactable (a number), redaction.sealed,
// redaction.repeated, redaction.payload_refused (more or less than the pointers differs, or a
// hash does not match), redaction.role_refused.
type Redactions interface {
	RedactionReader
	// AddRedaction stores a request as previewed; its times are the database's.
	AddRedaction(ctx context.Context, r RedactionRequest) (RedactionRequest, error)
	RedactionRequest(ctx context.Context, tenantID string, id event.ID) (RedactionRequest, error)
	// RedactionWork lists the requests of all tenants that have a step to run, oldest first.
	RedactionWork(ctx context.Context, limit int) ([]RedactionRequest, error)
	// MoveRedaction stores the request at its next state, if its revision is still
	// r.Revision. Back at previewed it takes the new scope and preview and removes the approval.
	// It does not approve and does not redact.
	MoveRedaction(ctx context.Context, r RedactionRequest) (RedactionRequest, error)
	// NoteRedactionFailure counts a failed attempt at a step.
	NoteRedactionFailure(ctx context.Context, p event.PartitionID, id event.ID, code string) (attempts int, err error)
	// ApproveRedaction stores the approval of another person, bound to the scope.
	ApproveRedaction(ctx context.Context, p event.PartitionID, id event.ID, person string, scope event.Hash) (RedactionRequest, error)
	// RedactPayload replaces the payload of an approved request, records the redaction, marks
	// the event and moves the request to redacted.
	RedactPayload(ctx context.Context, r RedactionRequest, to RedactedPayload) (Redaction, error)
}

// RedactionReader lists redactions and their requests.
type RedactionReader interface {
	// RedactionRequests lists a tenant's requests, newest first; no states are all. A limit of 0
	// is no limit.
	RedactionRequests(ctx context.Context, tenantID string, states []shredding.RedactionState, limit int) ([]RedactionRequest, error)
	// Redactions lists a partition's redactions with their requests, oldest first.
	Redactions(ctx context.Context, p event.PartitionID) ([]Redaction, error)
}
