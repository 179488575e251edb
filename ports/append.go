package ports

import (
	"context"
	"slices"
	"time"

	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
)

// EventAppender writes to the log. Direct appends, the intent pipeline and the log's own events
// all go through it; nothing else adds events.
//
// Append stores the request's events in the given order with the next gap-free sequences of
// the partition, together with its side rows: business keys, numbers of series, the idempotency
// key and the intent. It stores all of them or none. A refused request leaves no trace: it uses
// up no number, its idempotency key is free for any content, and the request value is
// unchanged, so that the caller can repair it and send it again. A request without events
// writes only its side rows.
//
// The store checks the request under the partition's lock against everything that is committed,
// and answers with the first fault. Of two requests with conflicting expectations exactly one
// succeeds. The order is:
//
//  1. The idempotency key. If it is used and not expired, no other check runs: the same content
//     succeeds, writes nothing and returns the first outcome with Replayed set; other content is
//     idempotency.mismatch; idempotency.undecided (Unavailable) if the contents cannot be
//     compared now.
//  2. The revision of the intent: intent.changed.
//  3. The subject keys with which values are sealed. Each must be active in the version used and
//     not fenced by an erasure, and stays so until the transaction has ended: pii.subject_erased
//     (Gone) if it is fenced, destroyed or absent; pii.key_moved (Conflict) if it has a newer
//     version, or was busy for a moment: seal again with the newest version.
//  4. The access lists of the streams that events are written to: stream.access_denied
//     (Forbidden).
//  5. The expected versions of streams: append.wrong_expected_version, stream.deleted,
//     stream.tombstoned (Gone).
//  6. The expected versions of entities: append.wrong_expected_version.
//  7. The append conditions. A match is append.condition_failed. The store scans at most
//     concurrency.MaxConditionScan entries of each key after the condition's sequence; one key
//     that it can scan to the end decides its item. append.condition_too_old means that every
//     key of an item has more entries and that no scan met a match: read again for a condition
//     with a newer sequence. append.condition_beyond_head: the log ends before the condition's
//     sequence.
//  8. The business keys, which the numbers of series may be part of:
//     append.duplicate_business_key.
//  9. Whether the state of each stream accepts the events, including those that change it, see
//     event.StreamState: stream.not_found, stream.deleted, stream.not_deleted, stream.tombstoned.
//
// Faults without a kind are Conflicts, except stream.not_found: another write came first, so
// read again and decide again. An unknown partition is legal_entity.not_found.
//
// Unavailable means that nothing was written and that the same request may succeed later:
// append.queue_full, append.shutting_down, append.clock_skew, store.unavailable, and for sealed
// values keys.unavailable and store.not_migrated (the key store lacks its schema).
// append.rejected_by_store (Internal) means that the store refused a value that no check covers,
// such as an event id that is taken; nothing was written.
//
// If ctx ends before the store has begun to work on the request, Append returns ctx's error and
// nothing is written. If ctx ends later, or the connection breaks at the commit, the events may
// be written: Append returns append.outcome_unknown (Timeout) unless the answer is there at
// the same moment. Sending the same request with its idempotency key again finds the outcome
// out; without a key the caller has to read the log. The store may still be reading the slices of
// such a request, so the caller must not change them.
//
// recorded_at is the time of the clock that the store was made with, the writing node's, in UTC
// and microseconds. It never goes backwards within a partition: after the clock was set back,
// events get the time of the partition's last event until the clock has passed it.
type EventAppender interface {
	Append(ctx context.Context, r AppendRequest) (AppendResult, error)
}

// AppendRequest holds what is written together, and what must be true for it to be written.
// Streams, Entities and Conditions are expectations; a stream that only an expectation names
// is not written, so its access list does not count. Changes of a stream's metadata do not move
// the version that Streams expect, see concurrency.Expected.AllowsIn.
type AppendRequest struct {
	Partition   event.PartitionID
	Events      []event.Prepared
	Streams     []concurrency.StreamExpectation
	Entities    []concurrency.EntityExpectation
	Conditions  []concurrency.AppendCondition
	Idempotency *IdempotencyClaim // nil: the request has no key
	Intent      *IntentWrite      // nil: no intent is written
	// Roles are the caller's. nil bypasses the access lists and is only for writes of the log
	// itself and of modules. For a caller without roles, pass an empty slice that is not nil.
	Roles []string
}

// ChangesStream reports whether the request changes a stream's state or metadata. Its expectation
// of the stream then demands the exact version, so that two writers do not replace each other's
// metadata.
func (r *AppendRequest) ChangesStream(id event.StreamID) bool {
	return slices.ContainsFunc(r.Events, func(e event.Prepared) bool { return e.Change != nil && e.Stream == id })
}

// CheckIntent refuses to write the row of an intent without an event that binds it: the last event
// of the request is the intent's.
func (r *AppendRequest) CheckIntent() *fault.Error {
	n := len(r.Events)
	if r.Intent == nil || n > 0 && r.Events[n-1].IntentID == r.Intent.Intent.ID {
		return nil
	}
	return fault.New(fault.Internal, "internal", "an intent is written with an event that binds its row, as the last of the append; report this")
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
	Events   []AppendedEvent    // in the order of the request; empty if Replayed: read the log by Outcome
	Head     event.Sequence     // of the partition now, also if Replayed
	Replayed bool               // the idempotency key was used before, and this call wrote nothing
	Outcome  IdempotencyOutcome // of this request; of the key's first request if Replayed
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
