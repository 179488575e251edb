// Package concurrency says what an append may demand of the log as it stands
// under the partition's lock: versions of streams and entities, and the absence
// of events (append conditions). It also builds the errors that answer a demand
// that is not met, which is where every 409 comes from.
package concurrency

import (
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
)

// Codes of the conflicts.
const (
	CodeWrongExpectedVersion = "append.wrong_expected_version"
	CodeConditionFailed      = "append.condition_failed"
	CodeConditionTooOld      = "append.condition_too_old"
	CodeConditionBeyondHead  = "append.condition_beyond_head"
	CodeDuplicateKey         = "append.duplicate_business_key"
	CodeIntentChanged        = "intent.changed"
	CodeIdempotencyMismatch  = "idempotency.mismatch"
	CodeIdempotencyUndecided = "idempotency.undecided"
)

// MaxConditionScan bounds how many keys a condition may look at after its
// sequence; beyond it the condition is too old (a scan would hold the lock).
const MaxConditionScan = 10_000

type mode uint8

const (
	modeAny mode = iota
	modeNoStream
	modeStreamExists
	modeExact
)

// Expected is what a writer believes about a stream. The zero value is Any.
type Expected struct {
	mode    mode
	version event.Version
}

// Any accepts every version.
func Any() Expected { return Expected{} }

// NoStream demands that the stream does not exist yet.
func NoStream() Expected { return Expected{mode: modeNoStream} }

// StreamExists demands at least one event.
func StreamExists() Expected { return Expected{mode: modeStreamExists} }

// Exactly demands that the stream's last event has this version; 0 is NoStream.
func Exactly(v event.Version) Expected {
	if v == 0 {
		return NoStream()
	}
	return Expected{mode: modeExact, version: v}
}

// IsAny reports whether nothing is demanded.
func (e Expected) IsAny() bool { return e.mode == modeAny }

// Allows reports whether the actual version meets the demand.
func (e Expected) Allows(actual event.Version) bool {
	switch e.mode {
	case modeNoStream:
		return actual == 0
	case modeStreamExists:
		return actual > 0
	case modeExact:
		return actual == e.version
	default:
		return true
	}
}

// Value is the form that the API uses: a number, "no_stream", "stream_exists" or
// "any".
func (e Expected) Value() any {
	switch e.mode {
	case modeNoStream:
		return "no_stream"
	case modeStreamExists:
		return "stream_exists"
	case modeExact:
		return uint64(e.version)
	default:
		return "any"
	}
}

// shown is what an answer gives as expected beside the actual version: no stream is
// version 0, so that programs have two numbers to compare.
func (e Expected) shown() any {
	if e.mode == modeNoStream {
		return uint64(0)
	}
	return e.Value()
}

// ParseExpected reads the text form of the API.
func ParseExpected(word string) (Expected, bool) {
	switch word {
	case "", "any":
		return Any(), true
	case "no_stream":
		return NoStream(), true
	case "stream_exists":
		return StreamExists(), true
	default:
		return Expected{}, false
	}
}

// StreamExpectation demands a version of one stream.
type StreamExpectation struct {
	Stream   event.StreamID
	Expected Expected
}

// EntityExpectation demands that the last event that references the entity has
// exactly this sequence; 0 means none does.
type EntityExpectation struct {
	EntityType string
	EntityID   string
	Sequence   event.Sequence
}

// Item selects events: its type is one of Types (if any are named) and all Tags
// and Entities are on it.
type Item struct {
	Types    []string
	Tags     []string
	Entities []EntityKey
}

// EntityKey names an entity without a role.
type EntityKey struct {
	Type string
	ID   string
}

// Keys are the item's tags and entities as key index texts.
func (i Item) Keys() []string {
	keys := make([]string, 0, len(i.Tags)+len(i.Entities))
	for _, e := range i.Entities {
		keys = append(keys, event.EntityKey(e.Type, e.ID))
	}
	for _, t := range i.Tags {
		keys = append(keys, event.TagKey(t))
	}
	return keys
}

// AppendCondition demands that no event after the sequence matches any item.
type AppendCondition struct {
	Items []Item
	After event.Sequence
}

// WrongExpectedVersion is the conflict on a stream. The holder names the event
// that got there first, if it is known.
func WrongExpectedVersion(stream event.StreamID, expected Expected, actual event.Version, holder *fault.Holder) *fault.Error {
	f := fault.New(fault.Conflict, CodeWrongExpectedVersion,
		"stream %s is at version %d, not at the expected %v; read it again and decide anew", stream, actual, expected.shown()).
		WithNumbers(expected.shown(), uint64(actual)).With("stream", stream.String())
	if holder != nil {
		f = f.WithHolder(*holder)
	}
	return f
}

// WrongEntityVersion is the conflict on an entity.
func WrongEntityVersion(entityType, entityID string, expected, actual event.Sequence) *fault.Error {
	return fault.New(fault.Conflict, CodeWrongExpectedVersion,
		"entity %s:%s is at version %d, not at the expected %d; read it again and decide anew", entityType, entityID, actual, expected).
		WithNumbers(uint64(expected), uint64(actual)).With("entity", entityType+":"+entityID)
}

// ConditionFailed names the first event that broke the condition.
func ConditionFailed(after event.Sequence, holder fault.Holder) *fault.Error {
	return fault.New(fault.Conflict, CodeConditionFailed,
		"an event that the condition forbids was appended after sequence %d; query again and decide anew", after).
		WithHolder(holder)
}

// ConditionTooOld refuses a condition that would have to scan too far.
func ConditionTooOld(after event.Sequence) *fault.Error {
	return fault.New(fault.Conflict, CodeConditionTooOld,
		"more than %d keys lie after sequence %d; query again for a fresh condition", MaxConditionScan, after)
}

// ConditionBeyondHead refuses a condition of another log: it would guard nothing
// against what is written up to its sequence.
func ConditionBeyondHead(after, head event.Sequence) *fault.Error {
	return fault.New(fault.Conflict, CodeConditionBeyondHead,
		"the condition speaks of sequence %d and the log ends at %d, as after a failover that lost its end; query again for a fresh condition", after, head)
}

// DuplicateBusinessKey names the event that holds the key.
func DuplicateBusinessKey(eventType string, holder fault.Holder) *fault.Error {
	return fault.New(fault.Conflict, CodeDuplicateKey,
		"another event of type %s already holds this business key; look at the holder instead of writing it again", eventType).
		WithHolder(holder).With("event_type", eventType)
}

// IdempotencyMismatch refuses a key that was used for other content.
func IdempotencyMismatch() *fault.Error {
	return fault.New(fault.Conflict, CodeIdempotencyMismatch,
		"this idempotency key was used for a request with other content; use a new key for a new request")
}

// IdempotencyUndecided says that a key was used and that nobody can tell for what
// before the key service is back.
func IdempotencyUndecided() *fault.Error {
	return fault.New(fault.Unavailable, CodeIdempotencyUndecided,
		"this idempotency key was used, and while the key service is away nobody can tell whether for the same content; try again").
		WithRetryAfter(5 * time.Second)
}

// IntentChanged is the lost race on a stored intent.
func IntentChanged(id event.ID) *fault.Error {
	return fault.New(fault.Conflict, CodeIntentChanged,
		"intent %s was changed by somebody else meanwhile; read it again", id).WithIntent(id.String())
}
