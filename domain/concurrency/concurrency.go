// Package concurrency defines the expectations that an append has of the log: StreamExpectation
// (a stream's version), EntityExpectation (an entity's last event) and AppendCondition (the
// absence of events). The stores check them under the partition's lock; this package only says
// what meets them, and builds the faults of those that are not met, of used business and
// idempotency keys and of actions that a stream's state refuses.
//
// A stream's version counts its events. An entity has events in many streams; its version in the
// API is the sequence of the last event that references it, which is why EntityExpectation holds
// a sequence. A deleted stream keeps its version: it meets Exactly and Any, and also NoStream,
// so that a writer may begin it again, but not StreamExists (AllowsIn).
package concurrency

import (
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
)

// Codes of unmet expectations and used keys. All are Conflict, but CodeIdempotencyUndecided is
// Unavailable.
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

// MaxConditionScan bounds how many index entries of a key the appender reads after a
// condition's sequence. A condition that needs more is too old, because the scan holds the
// partition's lock.
const MaxConditionScan = 10_000

type mode uint8

const (
	modeAny mode = iota
	modeNoStream
	modeStreamExists
	modeExact
)

// Expected is a writer's expectation of a stream's version. The zero value is Any.
type Expected struct {
	mode    mode
	version event.Version
}

// Any accepts every version.
func Any() Expected { return Expected{} }

// NoStream demands that the stream does not exist yet.
func NoStream() Expected { return Expected{mode: modeNoStream} }

// StreamExists demands at least one event, and that the stream is not deleted.
func StreamExists() Expected { return Expected{mode: modeStreamExists} }

// Exactly demands that the stream's last event has this version; 0 is NoStream.
func Exactly(v event.Version) Expected {
	if v == 0 {
		return NoStream()
	}
	return Expected{mode: modeExact, version: v}
}

// IsAny reports whether every version is accepted.
func (e Expected) IsAny() bool { return e.mode == modeAny }

// Allows reports whether the actual version meets the expectation, whatever the stream's state;
// AllowsIn regards the state too.
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

// attribute is the expected version as an attribute of faults: 0 for no stream, so that
// programs compare it with the actual version as a number.
func (e Expected) attribute() any {
	if e.mode == modeNoStream {
		return uint64(0)
	}
	return e.Value()
}

// ParseExpected reads the words of the API; "" is any. Callers read numbers themselves, for
// Exactly.
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
// exactly this sequence, which the API calls the entity's version; 0 means none does.
type EntityExpectation struct {
	EntityType string
	EntityID   string
	Sequence   event.Sequence
}

// Item selects events whose type is one of Types, if it lists any, and that carry all Tags and
// Entities. The zero value selects every event.
type Item struct {
	Types    []string
	Tags     []string
	Entities []Entity
}

// Entity names an entity without a role.
type Entity struct {
	Type string
	ID   string
}

// Keys returns the item's tags and entities as keys of the key index.
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
	// Entity, if set, is the entity whose version the caller expects to be After. The items select
	// those events of the entity that the caller sees, which an EntityExpectation cannot.
	Entity Entity
}

// Failed is the conflict on the condition; the holder is the first event that it forbids.
func (c *AppendCondition) Failed(holder fault.Holder) *fault.Error {
	if c.Entity == (Entity{}) {
		return ConditionFailed(c.After, holder)
	}
	name := c.Entity.Type + ":" + c.Entity.ID
	return fault.New(fault.Conflict, CodeWrongExpectedVersion,
		"an event that refers to entity %s was appended after the expected sequence %d; read it again and decide again", name, c.After).
		WithNumbers(uint64(c.After), nil).With("entity", name).WithHolder(holder)
}

// WrongExpectedVersion is the conflict on a stream. The holder, if known, is the stream's last
// event.
func WrongExpectedVersion(stream event.StreamID, expected Expected, actual event.Version, holder *fault.Holder) *fault.Error {
	f := fault.New(fault.Conflict, CodeWrongExpectedVersion,
		"stream %s is at version %d, not at the expected %v; read it again and decide again", stream, actual, expected.attribute()).
		WithNumbers(expected.attribute(), uint64(actual)).With("stream", stream.String())
	if holder != nil {
		f = f.WithHolder(*holder)
	}
	return f
}

// WrongEntityVersion is the conflict on an entity, whose version is a sequence.
func WrongEntityVersion(entityType, entityID string, expected, actual event.Sequence) *fault.Error {
	return fault.New(fault.Conflict, CodeWrongExpectedVersion,
		"entity %s:%s was last referenced at sequence %d, not at the expected %d; read it again and decide again", entityType, entityID, actual, expected).
		WithNumbers(uint64(expected), uint64(actual)).With("entity", entityType+":"+entityID)
}

// ConditionFailed is the conflict on a condition; the holder is the first event that it forbids.
func ConditionFailed(after event.Sequence, holder fault.Holder) *fault.Error {
	return fault.New(fault.Conflict, CodeConditionFailed,
		"an event that the condition forbids was appended after sequence %d; query again and decide again", after).
		WithHolder(holder)
}

// ConditionTooOld refuses a condition that MaxConditionScan index entries do not decide: each key
// of one of its items has more entries after the sequence.
func ConditionTooOld(after event.Sequence) *fault.Error {
	return fault.New(fault.Conflict, CodeConditionTooOld,
		"each tag and entity of an item of this condition is on more than %d events after sequence %d; query again for a fresh condition", MaxConditionScan, after)
}

// ConditionBeyondHead refuses a condition whose sequence the log has not reached. A failover
// that lost the newest commits leads here; the condition would not see the events that now get
// these sequences.
func ConditionBeyondHead(after, head event.Sequence) *fault.Error {
	return fault.New(fault.Conflict, CodeConditionBeyondHead,
		"the condition speaks of sequence %d and the log ends at %d, as after a failover that lost its end; query again for a fresh condition", after, head)
}

// DuplicateBusinessKey refuses a business key that an earlier event claimed; the holder is that
// event.
func DuplicateBusinessKey(eventType string, holder fault.Holder) *fault.Error {
	return fault.New(fault.Conflict, CodeDuplicateKey,
		"another event of type %s already holds this business key; look at the holder instead of writing it again", eventType).
		WithHolder(holder).With("event_type", eventType)
}

// IdempotencyMismatch refuses a key that an accepted request has used for other content.
func IdempotencyMismatch() *fault.Error {
	return fault.New(fault.Conflict, CodeIdempotencyMismatch,
		"this idempotency key was used for a request with other content; use a new key for a new request")
}

// IdempotencyUndecided says that the key was used, and that the contents of both requests can
// only be compared when the key service is reachable.
func IdempotencyUndecided() *fault.Error {
	return fault.New(fault.Unavailable, CodeIdempotencyUndecided,
		"this idempotency key was used, and while the key service is unavailable the server cannot compare the contents of the two requests; try again").
		WithRetryAfter(5 * time.Second)
}

// IntentChanged is the conflict of two concurrent changes of an intent.
func IntentChanged(id event.ID) *fault.Error {
	return fault.New(fault.Conflict, CodeIntentChanged,
		"another request changed intent %s at the same time; read it again", id).WithIntent(id.String())
}
