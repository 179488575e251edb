package ports

import (
	"context"
	"time"

	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
)

// EventAppender writes to the log.
//
// Append stores the request's events in the given order with the next gap-free sequences of
// the partition, all or none, together with its side rows (business keys, idempotency key,
// intent). All expectations of the request are checked under the partition's lock against all
// committed events, in this order: idempotency key, intent revision, subject keys, access lists
// of the written streams, streams, entities, conditions, business keys, and whether the streams'
// states accept the events. Of two requests with conflicting expectations exactly one succeeds.
//
// Every subject key that values are sealed with must be active in the version used, and have no
// fence, which stands while the key is erased. It stays so until the transaction has ended.
//
// A request without events writes only its side rows. A repeated idempotency key with the same
// content writes nothing and returns the first outcome with Replayed set. A refused request
// writes nothing: its idempotency key stays unused, and the next request gets the numbers of
// series that it would have got. recorded_at never goes backwards within a partition. Events that
// change a stream's state, see event.StreamState, do so under the same lock.
//
// Except for append.outcome_unknown, nothing was written. Errors (faults) by class:
//
//	Conflict     append.wrong_expected_version, append.condition_failed, append.condition_too_old,
//	             append.condition_beyond_head, append.duplicate_business_key, idempotency.mismatch,
//	             intent.changed, stream.deleted, stream.not_deleted, pii.key_moved (seal again with
//	             the key's newest version, or the key was busy for a moment)
//	Unavailable  try again: append.queue_full, append.shutting_down, append.clock_skew,
//	             store.unavailable, idempotency.undecided, and for sealed values only keys.unavailable (the
//	             key store was not reached) and store.not_migrated (it has no schema)
//	Gone         stream.tombstoned, pii.subject_erased
//	NotFound     legal_entity.not_found, stream.not_found
//	Forbidden    stream.access_denied
//	Timeout      append.outcome_unknown: ctx ended while the store worked on the request, or the
//	             connection was lost at commit and the outcome could not be found out; the same
//	             request with its idempotency key tells
//	Internal     append.rejected_by_store: the store refused a value for an unexpected reason
//
// If ctx ends before the store works on the request, Append returns ctx's error. Suite:
// test/conformance.
type EventAppender interface {
	Append(ctx context.Context, r AppendRequest) (AppendResult, error)
}

// AppendRequest is one caller's atomic unit.
type AppendRequest struct {
	Partition   event.PartitionID
	Events      []event.Prepared
	Streams     []concurrency.StreamExpectation
	Entities    []concurrency.EntityExpectation
	Conditions  []concurrency.AppendCondition
	Idempotency *IdempotencyClaim
	Intent      *IntentWrite
	// Roles of the caller, checked against the access lists of the events' streams; nil: the
	// log itself and its modules, which access lists do not restrict.
	Roles []string
}

// IdempotencyClaim ties a caller's key to the content of the request. At least one of Fingerprint
// and Digest is set, see module.SetFingerprint: two claims with neither would count as the same
// content.
type IdempotencyClaim struct {
	Key         string     // scoped by principal and route, at most 512 bytes
	Fingerprint event.Hash // of the content, keyed with a secret of the tenant; zero while the secret is unavailable
	Digest      event.Hash // of the content, without a secret; zero if the content may hold personal values, which a digest would reveal
	ExpiresAt   time.Time  // the key counts as unused from then on; callers add the setting idempotency.ttl to the time of the request
}

// StoredHash is the hash that is stored with the key: the fingerprint, or the digest of a request
// that had none.
func (c *IdempotencyClaim) StoredHash() event.Hash {
	if c.Fingerprint == (event.Hash{}) {
		return c.Digest
	}
	return c.Fingerprint
}

// Check compares the claim with the hash stored by the key's first request: nil for the same
// content, idempotency.mismatch (Conflict), or idempotency.undecided (Unavailable) if they cannot
// be compared without the tenant's secret.
func (c *IdempotencyClaim) Check(stored event.Hash) *fault.Error {
	none := event.Hash{}
	switch {
	case stored == c.StoredHash(), stored == c.Digest && stored != none:
		return nil
	case c.Fingerprint == none:
		return concurrency.IdempotencyUndecided()
	default:
		return concurrency.IdempotencyMismatch()
	}
}

// AppendResult is the result of an append.
type AppendResult struct {
	Events   []AppendedEvent
	Head     event.Sequence // of the partition after the append
	Replayed bool           // the idempotency key was used before: Outcome is the first request's
	Outcome  IdempotencyOutcome
}

// AppendedEvent is the receipt of one event.
type AppendedEvent struct {
	ID            event.ID
	Type          string
	Sequence      event.Sequence
	Stream        event.StreamID
	StreamVersion event.Version
	RecordedAt    time.Time
	Checksum      event.Hash
}

// IdempotencyOutcome refers to the intent and the events of a key's first request. Zero values
// stand for a request without intent, or without events.
type IdempotencyOutcome struct {
	StoredHash    event.Hash // of the first request's content: IdempotencyClaim.StoredHash of its claim
	IntentID      event.ID
	FirstSequence event.Sequence
	EventCount    int
}

// IdempotencyReader looks a key up before work is done. EventAppender decides: it checks again
// under the lock.
type IdempotencyReader interface {
	// IdempotencyOutcome returns found=false for an unknown or expired key.
	IdempotencyOutcome(ctx context.Context, p event.PartitionID, key string, now time.Time) (o IdempotencyOutcome, found bool, err error)
}
