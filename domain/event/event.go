// Package event is the vocabulary of the log: what an event is, how it is
// identified and ordered, and how its hashes are computed. An event has two
// halves. The skeleton is the envelope, the payload hash and the chain checksum;
// it is never changed. The payload is the stored bytes of data, dimensions and
// entity references; it may later be redacted or archived without touching the
// skeleton.
package event

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/erpbackbone/backbone/domain/jsondoc"
)

// PartitionID names one (tenant, legal entity) pair, the unit of order. It is 12
// bits of deployment number and 19 random bits, never reused, and frozen into
// hashes. Zero means none.
type PartitionID uint32

// ID identifies an event or an intent: a ULID, unique everywhere and ordered by
// time. The zero ID means none.
type ID = ulid.ULID

// ParseID reads the 26-character text form.
func ParseID(s string) (ID, error) { return ulid.ParseStrict(s) }

// Sequence is an event's place in its partition: 1, 2, 3, ... without gaps, in
// commit order. Zero means before the first event.
type Sequence uint64

// Version is an event's place in its stream, from 1. Zero means the stream does
// not exist.
type Version uint64

// Hash is a SHA-256 value.
type Hash [32]byte

// Salt hides a payload hash from guessing.
type Salt [16]byte

// StreamID names a stream inside a partition, written "type/id".
type StreamID struct {
	Type string `json:"type"`
	ID   string `json:"id"`
}

// String gives "type/id".
func (s StreamID) String() string { return s.Type + "/" + s.ID }

// ParseStreamID splits "type/id" at the first slash.
func ParseStreamID(s string) (StreamID, error) {
	t, id, ok := strings.Cut(s, "/")
	if !ok || t == "" || id == "" {
		return StreamID{}, fmt.Errorf("stream id %q is not type/id", s)
	}
	return StreamID{Type: t, ID: id}, nil
}

// EntityRef says which entity an event is about, and in which role.
type EntityRef struct {
	Type string `json:"entity_type"`
	ID   string `json:"entity_id"`
	Role string `json:"role"`
}

// Key is the entity's row in the key index: "entity:vendor:V-1042".
func (r EntityRef) Key() string { return EntityKey(r.Type, r.ID) }

// EntityKey builds the key index text of an entity.
func EntityKey(entityType, entityID string) string { return "entity:" + entityType + ":" + entityID }

// TagKey builds the key index text of a tag: "tag:q1-close".
func TagKey(tag string) string { return "tag:" + tag }

// Scope places an event in the organisation. Empty optional fields are absent.
type Scope struct {
	TenantID    string          `json:"tenant_id"`
	LegalEntity string          `json:"legal_entity"`
	Division    string          `json:"division,omitempty"`
	Region      string          `json:"region,omitempty"`
	Site        string          `json:"site,omitempty"`
	Custom      json.RawMessage `json:"custom,omitempty"` // JSON object of strings, stored and hashed verbatim
}

// ActorType is the closed list of who can act.
type ActorType string

// The actor types.
const (
	Human    ActorType = "human"
	Agent    ActorType = "agent"
	System   ActorType = "system"
	External ActorType = "external"
	Import   ActorType = "import"
)

// Actor says who did it. Name is a role or system label, never a person's name:
// names of persons are sealed, in backbone.principal.named.
type Actor struct {
	Type    ActorType
	ID      string
	Name    string
	Details ActorDetails
}

// ActorDetails are the optional parts of an actor; nothing personal.
type ActorDetails struct {
	OnBehalfOf *Delegate `json:"on_behalf_of,omitempty"`
	SessionID  string    `json:"session_id,omitempty"`
	TrustLevel string    `json:"trust_level,omitempty"`
}

// IsZero reports whether there are no details.
func (d ActorDetails) IsZero() bool { return d == ActorDetails{} }

// Delegate is the person or system an actor acts for.
type Delegate struct {
	Type string `json:"type"`
	ID   string `json:"id"`
	Name string `json:"name,omitempty"`
}

// Source says through which system and channel the event came, and the outside
// document it came from.
type Source struct {
	System    string `json:"system"`
	Channel   string `json:"channel"`
	Reference string `json:"reference,omitempty"`
}

// RuleResult is the outcome of one rule that looked at an intent.
type RuleResult string

// The rule results.
const (
	RuleFired          RuleResult = "fired"
	RuleNotApplicable  RuleResult = "not_applicable"
	RuleConditionFalse RuleResult = "condition_false"
)

// RuleEvaluation is the trace that a rule leaves on the events it let through.
type RuleEvaluation struct {
	RuleID           string     `json:"rule_id"`
	RuleName         string     `json:"rule_name"`
	Result           RuleResult `json:"result"`
	ActionsTaken     []string   `json:"actions_taken,omitempty"`
	EvaluationMillis int64      `json:"evaluation_ms"`
}

// Skeleton is the immutable half of an event. Empty strings, zero ids, nil JSON
// and empty collections are stored as NULL and left out of the hash.
type Skeleton struct {
	Partition         PartitionID
	Sequence          Sequence
	ID                ID
	Type              string
	SchemaVersion     uint32
	OccurredAt        time.Time // UTC, truncated to microseconds
	RecordedAt        time.Time // UTC, truncated to microseconds; never goes backwards in a partition
	EffectiveDate     Date
	Scope             Scope
	ActorType         ActorType
	ActorID           string
	ActorName         string
	ActorDetails      json.RawMessage // as stored
	CausedBy          ID
	CausedByPartition PartitionID // set only when the cause is in another partition
	IntentID          ID
	CorrelationID     string
	Stream            StreamID
	StreamVersion     Version
	Tags              []string
	Source            Source
	RulesEvaluated    json.RawMessage // as stored
	PII               map[string]string
	PayloadHash       Hash
	ContentEncoding   string // "" is plain JSON
	Checksum          Hash
}

// Recorded is an event that was read from the log: skeleton and payload.
type Recorded struct {
	Skeleton
	Salt    Salt
	Payload []byte // stored bytes: {"data":…,"dimensions":…,"entity_refs":…}; nil if it is missing or was not asked for
	// Archived says that the payload was read from the archive; verification reads on where it should be and is not.
	Archived bool
	// Redactions are those that replaced values of the payload, the first one first. PayloadHash
	// belongs to the payload as it was appended.
	Redactions []Redaction

	// StoredVersion is the schema version that the event was written in, if SchemaVersion
	// and Payload show it in a later one; 0: they are as stored. PayloadHash and Checksum
	// always belong to the stored bytes. Package application/upcasting converts events on read.
	StoredVersion uint32
	// UpcastError is why the event is shown as stored although there is a later version:
	// the code of a fault, for people. Folds and projections get an error instead.
	UpcastError string
}

// Redaction says that values of a payload were replaced by "[REDACTED]" after it was stored.
type Redaction struct {
	RequestID ID
	Pointers  []string // RFC 6901, in the payload as it was stored
	At        time.Time
}

// Body is the decoded form of a payload.
type Body struct {
	Data       json.RawMessage   `json:"data"`
	Dimensions map[string]string `json:"dimensions"`
	EntityRefs []EntityRef       `json:"entity_refs"`
}

// Body decodes the payload.
func (r Recorded) Body() (Body, error) {
	var b Body
	if err := json.Unmarshal(r.Payload, &b); err != nil {
		return Body{}, fmt.Errorf("payload of event %s: %w", r.ID, err)
	}
	return b, nil
}

// Data returns the data of the payload, undecoded, and does not read what follows it. It is
// only for payloads that were checked before they were stored; use Body for others.
func (r Recorded) Data() (json.RawMessage, error) {
	data, found, err := jsondoc.Member(r.Payload, "data")
	if err == nil && !found {
		err = errNoData
	}
	if err != nil {
		return nil, fmt.Errorf("payload of event %s: %w", r.ID, err)
	}
	return data, nil
}

// DecodeData decodes the data of a stored payload, numbers as they are written; nil if there
// are none.
func DecodeData(payload []byte) (any, error) {
	data, found, err := jsondoc.Member(payload, "data")
	if err != nil || !found {
		return nil, err
	}
	return jsondoc.Decode(data)
}

var errNoData = errors.New("it has no data")

// Actor builds the actor from the skeleton's columns.
func (s Skeleton) Actor() (Actor, error) {
	a := Actor{Type: s.ActorType, ID: s.ActorID, Name: s.ActorName}
	if len(s.ActorDetails) > 0 {
		if err := json.Unmarshal(s.ActorDetails, &a.Details); err != nil {
			return Actor{}, fmt.Errorf("actor details of event %s: %w", s.ID, err)
		}
	}
	return a, nil
}

// Micros truncates a time to the store's precision, in UTC.
func Micros(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }
