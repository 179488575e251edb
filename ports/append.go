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
// committed events, in this order:
// idempotency key, intent revision, subject keys, streams, entities, conditions,
// business keys. Every key that values are sealed with must be active in the version used and
// not fenced, and stays so until the transaction has ended. Of two requests with conflicting
// expectations exactly one succeeds. A request without events writes only its side rows. A
// repeated idempotency key with the same fingerprint writes nothing and returns the first
// outcome with Replayed set. recorded_at never goes backwards within a partition.
//
// Events that change a stream's state, see event.StreamState, do so under the same lock. The
// access lists of the written streams are checked before the stream expectations. Whether
// the streams' states accept the events is checked after all expectations.
//
// Errors (faults): stream.access_denied (Forbidden), stream.deleted, stream.not_deleted
// (Conflict), stream.tombstoned (Gone), stream.not_found, append.wrong_expected_version, append.condition_failed,
// append.condition_too_old, append.condition_beyond_head, append.duplicate_business_key, idempotency.mismatch,
// intent.changed, pii.subject_erased (Gone), pii.key_moved (Conflict: seal again with
// the key's newest version, or the key was busy for a moment), keys.unavailable
// (Unavailable: the key store was not reached; sealed values only),
// legal_entity.not_found, append.queue_full (Unavailable), append.outcome_unknown (Timeout: ctx
// ended after an appender had taken the request, or the connection was lost at commit and the
// outcome could not be found out; the same request with its idempotency key tells),
// append.rejected_by_store (Internal: the store refused a value for an unexpected reason). Suite: test/conformance.
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

// IdempotencyClaim ties a caller's key to the content of the request.
type IdempotencyClaim struct {
	Key         string     // scoped by principal and route, at most 512 bytes
	Fingerprint event.Hash // of the content, keyed with a secret of the tenant; zero while the secret is unavailable
	Digest      event.Hash // of the content, without a secret; zero if the content may hold personal values, which a digest would reveal
	ExpiresAt   time.Time  // the key counts as unused from then on; callers add the setting idempotency.ttl to the time of the request
}

// StoredHash is the hash that is stored with the key.
func (c *IdempotencyClaim) StoredHash() event.Hash {
	if c.Fingerprint == (event.Hash{}) {
		return c.Digest
	}
	return c.Fingerprint
}

// Check compares the claim with the stored hash: nil for the same content,
// idempotency.mismatch, or idempotency.undecided (Unavailable) if they cannot be compared
// without the tenant's secret.
func (c *IdempotencyClaim) Check(kept event.Hash) *fault.Error {
	none := event.Hash{}
	switch {
	case kept == c.StoredHash(), kept == c.Digest && kept != none:
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

// IdempotencyOutcome refers to the intent and the events of a key's first request.
type IdempotencyOutcome struct {
	Fingerprint   event.Hash
	IntentID      event.ID
	FirstSequence event.Sequence
	EventCount    int
}

// IdempotencyReader looks a key up before work is done; the appender checks
// again under the lock.
type IdempotencyReader interface {
	// IdempotencyOutcome returns found=false for an unknown or expired key.
	IdempotencyOutcome(ctx context.Context, p event.PartitionID, key string, now time.Time) (o IdempotencyOutcome, found bool, err error)
}
