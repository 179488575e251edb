package ports

import (
	"context"
	"encoding/json"
	"time"

	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/intent"
)

// EventAppender writes to the log.
//
// Append stores the request's events in the given order with the next gap-free
// sequences of the partition, all or none, together with its side rows (business
// keys, idempotency key, intent). Everything the request demands is checked
// under the partition's lock against everything committed before, in this order:
// idempotency key, intent revision, subject keys, streams, entities, conditions,
// business keys. Every key that values are sealed with must be active in the version
// they are sealed with, not fenced, and stays so until the transaction has ended.
// Of two requests that demand the same, exactly one succeeds. A request without
// events writes only its side rows. A repeated idempotency key with the same
// fingerprint writes nothing and returns the first outcome with Replayed set.
// recorded_at never goes backwards within a partition.
//
// A stream moves from state to state by the events that change it, under the same
// lock: see event.StreamState. Its state and access list count with the streams of
// the request, the access list first, the state of what is written after all
// expectations.
//
// Errors (faults): stream.access_denied (Forbidden), stream.deleted, stream.not_deleted
// (Conflict), stream.tombstoned (Gone), stream.not_found, append.wrong_expected_version, append.condition_failed,
// append.condition_too_old, append.condition_beyond_head, append.duplicate_business_key, idempotency.mismatch,
// intent.changed, pii.subject_erased (Gone), pii.key_moved (Conflict: seal again with
// the key's newest version, or the key was busy for a moment), keys.unavailable
// (Unavailable: the key store was not reached; sealed values only),
// legal_entity.not_found, append.queue_full (Unavailable), append.outcome_unknown (Timeout: the connection was lost at commit and the
// outcome could not be found out), append.rejected_by_store (Internal: the store
// refused a value nobody foresaw). Suite: test/conformance.
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
	// Roles of the caller, held against the access lists of the events' streams; nil
	// is the log itself and its modules, for whom they are not made.
	Roles []string
}

// IdempotencyClaim ties a caller's key to the content of the request.
type IdempotencyClaim struct {
	Key         string     // scoped by principal and route, at most 512 bytes
	Fingerprint event.Hash // of the content, under a secret of the tenant; zero while the secret cannot be had
	Digest      event.Hash // of the content, plain; zero if the content holds personal values, which a digest would give away
	ExpiresAt   time.Time
}

// Kept is what is stored with the key.
func (c *IdempotencyClaim) Kept() event.Hash {
	if c.Fingerprint == (event.Hash{}) {
		return c.Digest
	}
	return c.Fingerprint
}

// Check compares with what was stored: nil for the same content,
// idempotency.mismatch, or idempotency.undecided (Unavailable) when only the secret
// could tell.
func (c *IdempotencyClaim) Check(kept event.Hash) *fault.Error {
	none := event.Hash{}
	switch {
	case kept == c.Kept(), kept == c.Digest && kept != none:
		return nil
	case c.Fingerprint == none:
		return concurrency.IdempotencyUndecided()
	default:
		return concurrency.IdempotencyMismatch()
	}
}

// IntentWrite stores the intent's row with the events: an insert when
// ExpectedRevision is 0, else a compare-and-set from that revision. The appender
// fills in the event range.
type IntentWrite struct {
	Intent           intent.Intent
	ExpectedRevision int
	Sealed           []event.SealedSubject // values that were sealed for this write; empty when the payload is as it was
}

// AppendResult tells where the events went.
type AppendResult struct {
	Events   []AppendedEvent
	Head     event.Sequence // of the partition after the append
	Replayed bool           // the idempotency key was known: Outcome is the first request's
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

// IdempotencyOutcome refers to what a key's first request made.
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

// Direction of a read.
type Direction bool

// The directions.
const (
	Forward  Direction = false
	Backward Direction = true
)

// EventReader reads the log. All results are complete up to the newest committed
// event at the time of the call; an empty result is an empty, non-nil slice.
type EventReader interface {
	// EventByID returns fault event.not_found if the partition has no such event.
	EventByID(ctx context.Context, p event.PartitionID, id event.ID) (event.Recorded, error)
	// EventsOfStream reads a stream by version, from the given one, ascending.
	EventsOfStream(ctx context.Context, p event.PartitionID, s event.StreamID, from event.Version, limit int) ([]event.Recorded, error)
	// Events reads by query, ordered by sequence in the query's direction.
	Events(ctx context.Context, q EventQuery) ([]event.Recorded, error)
	// Head is the partition's last event; before the first one it is the genesis
	// (sequence 0). Fault legal_entity.not_found for an unknown partition.
	Head(ctx context.Context, p event.PartitionID) (Head, error)
	// Heads is Head for several partitions at once; unknown ones are left out.
	Heads(ctx context.Context, partitions []event.PartitionID) (map[event.PartitionID]Head, error)
	// SequenceAt is the last sequence recorded at or before t (0: none).
	SequenceAt(ctx context.Context, p event.PartitionID, t time.Time) (event.Sequence, error)
}

// Head is the end of a partition's chain.
type Head struct {
	Sequence   event.Sequence
	RecordedAt time.Time
	Checksum   event.Hash
	Genesis    event.Hash
}

// EventQuery selects events of one partition. Zero values do not filter.
type EventQuery struct {
	Partition     event.PartitionID
	Key           string   // key index text: entity or tag
	Types         []string // any of these
	CorrelationID string
	ActorID       string
	After         event.Sequence // exclusive, in the direction of reading; 0: from the start (or from Until backwards)
	Until         event.Sequence // inclusive upper bound in both directions; 0: the head
	OccurredFrom  time.Time
	OccurredTo    time.Time // exclusive
	RecordedFrom  time.Time
	RecordedTo    time.Time // exclusive
	EffectiveFrom *event.Date
	EffectiveTo   *event.Date    // inclusive
	From          event.Sequence // inclusive lower bound in both directions
	To            event.Sequence // inclusive upper bound in both directions
	Division      string
	Region        string
	Site          string
	SchemaVersion uint32
	Source        event.Source // each part that is not empty
	Dimension     Dimension
	Predicate     *event.Predicate // over the stored data; sealed values are compared as they are stored
	Direction     Direction
	Limit         int
	WithoutData   bool // leave Payload nil
	// Bytes bounds the payloads of what is answered: it ends before the event that exceeds
	// them, but not before the first. 0 is no bound.
	Bytes int
}

// Dimension is a value of a dimension. The zero value does not filter.
type Dimension struct{ Name, Value string }

// EventSearcher reads the log a bounded step at a time.
type EventSearcher interface {
	// SearchEvents is Events, except that it looks at no more than about scan
	// candidates: the events that the query's most selective index leads to, before
	// any other filter. It may stop earlier when looking takes long. A query that needs
	// no filter beside its index never stops early.
	SearchEvents(ctx context.Context, q EventQuery, scan int) (EventScan, error)
}

// EventScan is how far a search came.
type EventScan struct {
	Events []event.Recorded
	// Stopped says that the scan, or the bytes of the query, ended before the limit or the
	// end of the query was reached: everything up to and with Reached, in the direction of
	// reading, has been looked at, and Reached as the next After goes on from there.
	Stopped bool
	Reached event.Sequence
}

// StreamReader reads one stream in both directions.
type StreamReader interface {
	// StreamStatus tells how a stream stands; one without events is absent.
	StreamStatus(ctx context.Context, p event.PartitionID, s event.StreamID) (StreamStatus, error)
	// ReadStream reads a stream by version; none is an empty slice. More says that the
	// query's bytes ended the answer before an event that it would have.
	ReadStream(ctx context.Context, q StreamQuery) (events []event.Recorded, more bool, err error)
}

// StreamStatus is how a stream stands.
type StreamStatus struct {
	State           event.StreamState
	Version         event.Version
	ReadableFrom    event.Version   // events before it were deleted by a soft deletion; 0: none were
	Settings        json.RawMessage // of the metadata what the log obeys; nil: nothing
	MetadataVersion event.Version   // of the event that set the metadata last; 0: none did
}

// StreamQuery selects a part of a stream.
type StreamQuery struct {
	Partition   event.PartitionID
	Stream      event.StreamID
	From        event.Version // inclusive, in the direction of reading; 0: the beginning, backward the end
	Direction   Direction
	Until       event.Sequence // recorded up to here; 0: now
	EffectiveTo *event.Date    // inclusive; nil: all
	Limit       int            // 0 reads to the end
	Bytes       int            // of payloads, as in EventQuery; 0 is no bound
	WithoutData bool           // leave Payload nil
}

// CausalityReader walks causes.
type CausalityReader interface {
	// Lineage returns the causes of an event inside its partition, root first and
	// the event itself last. truncated says that maxDepth cut it, or bytes of payloads, as
	// in EventQuery: what is nearest to the event stays, and the event itself always. A
	// cause in another partition ends the walk; the caller goes on there.
	Lineage(ctx context.Context, p event.PartitionID, id event.ID, maxDepth, bytes int) (chain []event.Recorded, truncated bool, err error)
	// Descendants returns the events of a partition that the given ones led to, level
	// by level, those of a level by sequence. Effects in another partition are not
	// among them; the caller goes on there. More says that the limit cut the answer;
	// the depth never counts as a cut. An event whose cause is in none of the levels
	// above is not there, and none comes twice.
	Descendants(ctx context.Context, q DescendantQuery) (found []Descendant, more bool, err error)
}

// DescendantQuery asks for effects inside one partition.
type DescendantQuery struct {
	Partition event.PartitionID
	Causes    []Cause
	// Stop is an event of the partition that is returned if it is reached and not gone
	// beyond: where a walk began, so that written circles end; 0 is none.
	Stop        event.Sequence
	MaxDepth    int // 1: only what the causes led to directly
	Limit       int
	Bytes       int  // of payloads, as in EventQuery, which cut the answer like the limit; 0 is no bound
	WithoutData bool // leave Payload nil
}

// Cause names an event of any partition.
type Cause struct {
	Partition event.PartitionID
	ID        event.ID
}

// Descendant is an effect of the event that its CausedBy names.
type Descendant struct {
	Event event.Recorded
	Depth int // 1: led to directly by one of the causes
}

// MatchReader reads by the items of append conditions.
type MatchReader interface {
	// Matches returns the events that match any of the items, by sequence. Work is
	// bounded: the answer holds all matches up to Through and says so; read on after
	// it. An event is there once and names every item it matches.
	Matches(ctx context.Context, q MatchQuery) (MatchPage, error)
}

// MatchQuery selects events of one partition.
type MatchQuery struct {
	Partition   event.PartitionID
	Items       []concurrency.Item // an item without types, tags and entities matches every event
	After       event.Sequence     // exclusive
	Until       event.Sequence     // inclusive; not beyond the head
	Limit       int                // at least 1
	Bytes       int                // of payloads, as in EventQuery; 0 is no bound
	WithoutData bool               // leave Payload nil
}

// MatchPage is what a MatchQuery found.
type MatchPage struct {
	Matches []Match
	Through event.Sequence // all matches up to here are in the page; Until when nothing is left
}

// Match is an event with the places, ascending, of the items that it matches.
type Match struct {
	Event event.Recorded
	Items []int
}

// IntentReader reads stored intents.
type IntentReader interface {
	// Intent returns fault intent.not_found if the partition has no such intent.
	Intent(ctx context.Context, p event.PartitionID, id event.ID) (intent.Intent, error)
	// WaitingIntents lists intents that wait for approval, oldest first.
	WaitingIntents(ctx context.Context, p event.PartitionID, limit int) ([]intent.Intent, error)
}

// ChainReader feeds verification: skeletons and payloads by ascending sequence.
type ChainReader interface {
	// ChainPage returns up to limit events after the sequence. A missing payload is
	// a nil Payload.
	ChainPage(ctx context.Context, p event.PartitionID, after event.Sequence, limit int) ([]event.Recorded, error)
}
