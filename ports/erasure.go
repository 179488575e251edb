package ports

import (
	"context"
	"encoding/json"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/shredding"
)

// ErasureRequest is a request to erase a person, as stored.
type ErasureRequest struct {
	ID          event.ID
	TenantID    string
	Subject     shredding.Subject
	Partitions  []event.PartitionID // ascending
	AllEntities bool                // the request names no legal entities: all of the tenant, including those added before the erasure begins
	Basis       shredding.Basis
	Reason      string // of the officer; at most 1,000 bytes, no personal data
	RequestedBy string // person id
	RequestedAt time.Time
	DueOn       event.Date
	State       shredding.ErasureState
	Revision    int             // of the row; every change is a compare-and-set
	Preview     json.RawMessage // counts, never values
	Scope       event.Hash      // digest of the preview that an approval is bound to
	ApprovedBy  string
	ApprovedAt  time.Time
	EndedBy     string // who rejected or withdrew
	EndReason   string
	Classes     []ErasureClass // decided when the fences are set
	DestroyedAt time.Time
	Generation  int64  // of the key store after the keys were destroyed
	Receipt     uint64 // number
	EvictedAt   time.Time
	CompletedAt time.Time
	Results     json.RawMessage // of verification
	Attempts    int             // of the step that is next
	LastError   string          // code of the last failure of that step
	UpdatedAt   time.Time
}

// ErasureStep is a state that a request reached.
type ErasureStep struct {
	State    shredding.ErasureState
	At       time.Time // of the database
	Attempts int       // that failed before
}

// ErasureClass is the decision of an erasure about one key class.
type ErasureClass struct {
	Class   shredding.KeyClass `json:"class"`
	Erased  bool               `json:"erased"`
	Refused string             `json:"refused,omitempty"` // "legal_hold" or "retention"
	Until   *event.Date        `json:"until,omitempty"`   // when the refusal ends; nil: not known
}

// DestroyedKey is one key that an erasure destroyed, or kept from ever being minted.
type DestroyedKey struct {
	Partition    event.PartitionID
	Class        shredding.KeyClass
	Reference    string
	Fingerprints []shredding.Fingerprint // of every version; none for an unknown subject
}

// Destruction is the result of the destroying step.
type Destruction struct {
	Keys          []DestroyedKey // by partition and class
	DestroyedAt   time.Time      // of the database
	Generation    int64
	Receipt       uint64     // its number, from 1 without gaps per installation
	PreviousHash  event.Hash // SHA-256 of the previous receipt's note; zero for the first
	PreviousKnown bool       // the previous receipt is signed already, so its hash is known
}

// ErasureReceipt is a numbered, signed record of a destruction.
type ErasureReceipt struct {
	Number    uint64
	RequestID event.ID
	TenantID  string
	Note      []byte // signed note; empty until it is signed
	Exported  bool
}

// LegalHold keeps a subject's data from being erased.
type LegalHold struct {
	ID         event.ID
	TenantID   string
	Subject    shredding.Subject
	Partition  event.PartitionID // 0: all of the tenant
	Reason     string
	PlacedBy   string
	PlacedAt   time.Time
	Until      *event.Date // nil: until it is released
	ReleasedBy string
	ReleasedAt time.Time
}

// ErasureRegister is the key store for the erasure of persons. Its methods run as the
// eraser role, which the appending nodes do not have. Every method is one transaction and
// may be repeated; a step that is done already changes nothing.
//
// Errors: keys.unavailable, erasure.not_found (NotFound), erasure.changed (Conflict:
// another process moved the request), erasure.move_refused, erasure.same_person,
// erasure.held (FailedPrecondition), erasure.retained.
type ErasureRegister interface {
	// AddErasure stores a request as requested. erasure.duplicate (Conflict, with the
	// id of the open one) if one for the same subject is under way.
	AddErasure(ctx context.Context, r ErasureRequest) error
	Erasure(ctx context.Context, tenantID string, id event.ID) (ErasureRequest, error)
	// Erasures lists a tenant's requests, newest first; tenant "" lists all tenants'.
	Erasures(ctx context.Context, tenantID string, states []shredding.ErasureState, limit int) ([]ErasureRequest, error)
	// ErasureSteps reads the journal of a request, in the order in which its states were
	// reached; one that went back has states twice. Nothing for an unknown request.
	ErasureSteps(ctx context.Context, tenantID string, id event.ID) ([]ErasureStep, error)
	// MoveErasure stores the request at its next state, with everything the caller set
	// on it, if its revision is still r.Revision, and journals the step. The store
	// checks the move itself: it refuses receipted without an exported receipt, and evicted
	// within a minute after the destruction, by its own clock, while a node that reported
	// before has not evicted its keys. It does not approve, fence or destroy.
	MoveErasure(ctx context.Context, r ErasureRequest) (ErasureRequest, error)
	// NoteErasureFailure counts a failed attempt at a step.
	NoteErasureFailure(ctx context.Context, id event.ID, code string) (attempts int, err error)
	// ApproveErasure stores the approval, bound to the scope, and moves the request to
	// approved. The database itself refuses the requester: erasure.same_person.
	ApproveErasure(ctx context.Context, id event.ID, approver string, scope event.Hash, at time.Time) (ErasureRequest, error)
	// FenceErasure inserts the fences of the classes that are erased and moves the
	// request to fenced: from then on no value is sealed for them. It checks the holds in
	// the same transaction.
	FenceErasure(ctx context.Context, r ErasureRequest) (ErasureRequest, error)
	// RefuseErasure removes the fences of a request that is not destroyed, and ends it.
	RefuseErasure(ctx context.Context, r ErasureRequest, reason string) (ErasureRequest, error)
	// DestroyErasure locks all key rows of the fenced classes in key order, which waits
	// for appends in flight, checks the holds again, deletes every version, marks the
	// rows destroyed (inserting rows for unknown subjects), takes the next receipt
	// number, raises the generation, tells every node, and moves the request to
	// destroyed. Repeated, it returns the first destruction again.
	DestroyErasure(ctx context.Context, id event.ID) (Destruction, ErasureRequest, error)
	// SaveReceipt stores the signed note of a receipt. The same bytes again change
	// nothing; other bytes: erasure.receipt_changed (Internal).
	SaveReceipt(ctx context.Context, number uint64, note []byte, exported bool) error
	// Receipts lists receipts by number, from one on.
	Receipts(ctx context.Context, from uint64, limit int) ([]ErasureReceipt, error)
	// ReplayErasure destroys again what a receipt names, after the store was restored
	// from a backup that did not know it, and stores the receipt. If the store has the
	// receipt's request and it has not ended, it goes on from destroyed.
	ReplayErasure(ctx context.Context, receipt ErasureReceipt, keys []ReplayKey) error
	// NodesBehind counts nodes that reported since a time and have not evicted the keys
	// destroyed up to the generation.
	NodesBehind(ctx context.Context, generation int64, since time.Time) (int, error)
	// PlaceHold and ReleaseHold keep legal holds; Holds lists those in force on a day.
	PlaceHold(ctx context.Context, h LegalHold) error
	ReleaseHold(ctx context.Context, tenantID string, id event.ID, by string, at time.Time) (LegalHold, error)
	Holds(ctx context.Context, tenantID string, subject shredding.Subject, on event.Date) ([]LegalHold, error)
}

// ReplayKey is a line of a receipt.
type ReplayKey struct {
	Partition    event.PartitionID
	Class        shredding.KeyClass
	Subject      shredding.Subject
	Fingerprints []shredding.Fingerprint
}

// PersonalRecords finds a person's records in the log. It reads as the application.
type PersonalRecords interface {
	// CountPersonalRecords counts a subject's sealed records in a partition.
	CountPersonalRecords(ctx context.Context, p event.PartitionID, s shredding.Subject) ([]PersonalCount, error)
	// PersonalEvents pages through the events that hold sealed values of a subject, by
	// sequence, with payloads.
	PersonalEvents(ctx context.Context, p event.PartitionID, s shredding.Subject, after event.Sequence, limit int) ([]event.Recorded, error)
	// PersonalIntents pages through the ids of the intents.
	PersonalIntents(ctx context.Context, p event.PartitionID, s shredding.Subject, after event.ID, limit int) ([]event.ID, error)
}

// PersonalCount counts a subject's records of one type and key class.
type PersonalCount struct {
	Intent   bool   // of intents; else of events
	Type     string // event or intent type
	Class    shredding.KeyClass
	Records  int64
	Fields   int64
	NewestAt time.Time // recorded_at of the newest; created_at of intents
}
