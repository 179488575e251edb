package ports

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/shredding"
)

// ErasureRequest is a request to erase a person, as stored. A subject of a tenant has at most one
// that has not ended.
type ErasureRequest struct {
	ID          event.ID
	TenantID    string
	Subject     shredding.Subject
	Partitions  []event.PartitionID // ascending; fixed from the fence on
	AllEntities bool                // the request names no legal entities: all of the tenant, including those added before the fences are set
	Basis       shredding.Basis
	Reason      string // of the officer; at most 1,000 bytes, no personal data
	RequestedBy string // person id
	RequestedAt time.Time
	DueOn       event.Date
	State       shredding.ErasureState
	Revision    int             // of the row; every change is a compare-and-set
	Preview     json.RawMessage // counts, never values
	Scope       event.Hash      // digest that an approval is bound to: partitions and the decision for each class, not the counts
	ApprovedBy  string
	ApprovedAt  time.Time // valid for shredding.ApprovalValidity, until the fences are set
	EndedBy     string    // who rejected or withdrew
	EndReason   string
	Classes     []ErasureClass // decided at the preview, and again when the fences are set
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

// Digest hashes the stored row, except what changes without a move: failed attempts and the time
// of the last change.
func (r *ErasureRequest) Digest() (event.Hash, error) {
	classes, err := json.Marshal(r.Classes)
	if err != nil {
		return event.Hash{}, err
	}
	partitions, err := json.Marshal(r.Partitions)
	if err != nil {
		return event.Hash{}, err
	}
	return rowDigest("backbone/erasure-row/v1", r.ID.String(), r.TenantID, string(r.Subject), string(partitions), strconv.FormatBool(r.AllEntities),
		string(r.Basis), r.Reason, r.RequestedBy, timeColumn(r.RequestedAt), r.DueOn.String(), string(r.State), strconv.Itoa(r.Revision),
		string(r.Preview), string(r.Scope[:]), r.ApprovedBy, timeColumn(r.ApprovedAt), r.EndedBy, r.EndReason, string(classes),
		timeColumn(r.DestroyedAt), strconv.FormatInt(r.Generation, 10), strconv.FormatUint(r.Receipt, 10), timeColumn(r.EvictedAt),
		timeColumn(r.CompletedAt), string(r.Results)), nil
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

// DestroyedKey is one key that an erasure destroyed, or that cannot be minted any more because
// the erasure came first.
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
	PreviousKnown bool       // the previous receipt is signed already, so its hash is known; else this one cannot be signed yet
}

// ErasureReceipt is a numbered, signed record of a destruction. Each note holds the hash of the
// one before, so receipts are signed in the order of their numbers: while one cannot be
// signed, the requests with later numbers wait in state destroyed, without their keys.
type ErasureReceipt struct {
	Number    uint64
	RequestID event.ID
	TenantID  string
	Note      []byte // signed note; empty until it is signed
	Exported  bool
}

// LegalHold keeps all data of a subject from being erased, until the keys are destroyed.
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

// ErasureRegister is the key store for the erasure of persons. Its methods run as the eraser
// role; the role with which nodes append and read can call none of them. Every method is one
// transaction and may be repeated; a step that is done already changes nothing.
//
// A lease is the lock that an append holds on the rows of its keys, from before it writes
// until its transaction ends. No lease is given on a fenced or destroyed key.
//
// Errors: keys.unavailable, erasure.not_found (NotFound), erasure.changed (Conflict:
// another process moved the request), erasure.move_refused, erasure.same_person,
// erasure.held (FailedPrecondition).
type ErasureRegister interface {
	KeyStoreAudit
	// AddErasure stores a request as requested. erasure.duplicate (Conflict, with the
	// id of the open one) if one for the same subject is under way.
	AddErasure(ctx context.Context, r ErasureRequest) error
	Erasure(ctx context.Context, tenantID string, id event.ID) (ErasureRequest, error)
	// Erasures lists a tenant's requests, newest first; tenant "" lists all tenants'. No states
	// are all, and a limit of 0 is no limit.
	Erasures(ctx context.Context, tenantID string, states []shredding.ErasureState, limit int) ([]ErasureRequest, error)
	// ErasureSteps reads the journal of a request, in the order in which its states were
	// reached; one that went back has states twice. Nothing for an unknown request.
	ErasureSteps(ctx context.Context, tenantID string, id event.ID) ([]ErasureStep, error)
	// MoveErasure stores the request at its next state, with everything the caller set
	// on it, if its revision is still r.Revision, and journals the step. It clears Attempts
	// and LastError, and the approval of a request that goes back to previewed. The store
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
	// request to fenced. From then on no lease is given and no key minted for them, also for
	// a subject without keys. It does not wait for appends that hold a lease, which commit.
	// It checks the age of the approval and the holds in the same transaction.
	FenceErasure(ctx context.Context, r ErasureRequest) (ErasureRequest, error)
	// RefuseErasure ends a request that is not destroyed and removes its fences, in one
	// transaction.
	RefuseErasure(ctx context.Context, r ErasureRequest, reason string) (ErasureRequest, error)
	// DestroyErasure locks all key rows of the fenced classes in key order, which waits
	// for appends that hold a lease, so that it destroys the keys of what they record. It
	// checks the holds again, deletes every version, marks the rows destroyed (it inserts
	// rows for unknown subjects, for which no key can be minted later), takes the next
	// receipt number, raises the generation, notifies every node, and moves the request to
	// destroyed. Repeated, it returns the first destruction again. If a lock is not free in
	// time, it fails with keys.unavailable and changes nothing. With the rows locked, when no append
	// can add a record any more, it calls check, unless that is nil; if check fails, nothing is
	// destroyed. A repetition does not call it.
	DestroyErasure(ctx context.Context, id event.ID, check func(ctx context.Context) error) (Destruction, ErasureRequest, error)
	// SaveReceipt stores the signed note of a receipt. The same bytes again change
	// nothing; other bytes: erasure.receipt_changed (Internal).
	SaveReceipt(ctx context.Context, number uint64, note []byte, exported bool) error
	// ErasuresToFollow lists the completed and refused requests of all tenants that kept a
	// class until a day before the given one, by id after the given one.
	ErasuresToFollow(ctx context.Context, on event.Date, after event.ID, limit int) ([]ErasureRequest, error)
	// ReplayErasure destroys again what a receipt names, and stores the receipt. The receipt
	// comes from outside the database and decides, whatever the store says: also if the store
	// has it, ReplayErasure fences the subjects for ever and deletes the versions whose
	// fingerprints the receipt names, and every version of a key in state destroyed. Another
	// version stays and opens its values, and nothing is sealed with it. If the store has the
	// receipt's request and it has not ended, it goes on from destroyed.
	// erasure.receipt_changed (Internal) if the store has another receipt under the number or
	// for the request; the keys are destroyed nevertheless.
	ReplayErasure(ctx context.Context, receipt ErasureReceipt, keys []ReplayKey) error
	// NodesBehind counts nodes that reported since a time and have not evicted the keys
	// destroyed up to the generation.
	NodesBehind(ctx context.Context, generation int64, since time.Time) (int, error)
	// PlaceHold stores a hold, whatever the state of a request for the subject. From then on
	// FenceErasure and DestroyErasure fail with erasure.held. A destruction that is running
	// makes PlaceHold wait and is not stopped by it.
	PlaceHold(ctx context.Context, h LegalHold) error
	// ReleaseHold ends a hold. Requests that it refused stay refused.
	ReleaseHold(ctx context.Context, tenantID string, id event.ID, by string, at time.Time) (LegalHold, error)
	// Holds lists the holds of a subject that are in force on a day.
	Holds(ctx context.Context, tenantID string, subject shredding.Subject, on event.Date) ([]LegalHold, error)
}

// ErasureReceipts lists the receipts of the register.
type ErasureReceipts interface {
	// Receipts lists receipts by number, from one on.
	Receipts(ctx context.Context, from uint64, limit int) ([]ErasureReceipt, error)
	// DestroyedFingerprints lists the fingerprints of destroyed keys by receipt, from a number
	// on. It has them since the destruction, before the receipt is signed.
	DestroyedFingerprints(ctx context.Context, from uint64, limit int) ([]ReceiptFingerprints, error)
}

// ReceiptFingerprints are the fingerprints of the keys that an erasure destroyed.
type ReceiptFingerprints struct {
	Number       uint64 // of the receipt
	Fingerprints []shredding.Fingerprint
}

// receiptsPage is how many receipts EachReceipt reads at once.
const receiptsPage = 500

// EachReceipt calls visit for the receipts from a number on, until visit returns an error.
func EachReceipt(ctx context.Context, receipts ErasureReceipts, from uint64, visit func(ErasureReceipt) error) error {
	for {
		page, err := receipts.Receipts(ctx, from, receiptsPage)
		if err != nil {
			return err
		}
		for _, r := range page {
			from = r.Number + 1
			if err := visit(r); err != nil {
				return err
			}
		}
		if len(page) < receiptsPage {
			return nil
		}
	}
}

// ReplayKey is a line of a receipt.
type ReplayKey struct {
	Partition    event.PartitionID
	Class        shredding.KeyClass
	Subject      shredding.Subject
	Fingerprints []shredding.Fingerprint
}

// ID names the key.
func (k ReplayKey) ID() SubjectKeyID {
	return SubjectKeyID{Partition: k.Partition, Subject: k.Subject, Class: k.Class}
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
