// Package module is the contract between Backbone and a business module. A module
// implements Module: it declares event types with their schemas and checks, folds, roles,
// intents with their policies, projections and read models on a Registrar. Build joins
// the declarations of all modules into a Catalog, or returns every reason why it cannot.
// The pipeline, the registry, the projections and the HTTP API read the Catalog.
//
// The package holds no adapter: tables, handlers and commands of a module are joined with
// its declarations in adapters/plugin.
package module

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/domain/tabular"
	"github.com/erpbackbone/backbone/ports"
)

// Module is a business capability.
type Module interface {
	// Name is short and lower case: "ap", "gl".
	Name() string
	// Register declares everything the module has. It has no side effects.
	Register(r *Registrar) error
}

// Check tests an event's decoded data for what a JSON Schema cannot express:
// balance, money grammar, sums. It runs on every path an event can take into the
// log and sees only the event itself. The result is nil or a fault.
type Check func(data json.RawMessage, dimensions map[string]string) error

// EventType is a declared event type.
type EventType struct {
	eventtype.Registration
	Checks []Check
	// Redactable lists the paths of texts that may be replaced by "[REDACTED]" after they were
	// stored, such as $.description and $.lines[*].description. No other member of a module's
	// type is ever redacted. By listing a path the module promises that everything which reads
	// events of the type goes on with that text in its place: folds, planners, projections and
	// upcasters, also those of other modules.
	Redactable []string
	// Upcast converts data of the version before to this one; nil: see Step.
	Upcast Upcast
}

// Fold computes the state of one type of stream from its events. Readers share states, so
// a planner must not change the state it gets.
type Fold struct {
	StreamType string
	New        func() any          // state of a stream without events
	Clone      func(state any) any // independent copy, made before Apply changes it
	// Apply folds an event and ignores unknown types. Data is the payload's "data" member. A
	// sealed value in it carries the location where it was sealed, so the state may keep it
	// unchanged (json.RawMessage) for State.Open.
	Apply func(state any, e event.Recorded, data []byte) error
	Codec *Codec // nil: the state is always folded from the first event
	// IsLong says that streams have hundreds of events: a plan looks for a snapshot before it reads them. Of other streams it
	// looks for one only if events are archived. It needs a Codec.
	IsLong bool
}

// Input is an intent in the pipeline, as a planner sees it.
type Input struct {
	IntentID      event.ID
	Type          string
	Payload       json.RawMessage // valid against the intent's schema
	Actor         event.Actor
	PersonID      string // person behind the actor; segregation of duties compares persons
	Roles         []string
	LegalEntity   ports.LegalEntity
	EffectiveDate *event.Date // nil: the planner's default
	CorrelationID string
	CausedBy      event.ID
	Source        event.Source
	Now           time.Time
	Today         event.Date // in the legal entity's zone
	Approvals     []intent.Approval
}

// HasRole reports whether the actor has one of the roles.
func (in Input) HasRole(roles ...string) bool {
	return slices.ContainsFunc(in.Roles, func(have string) bool { return slices.Contains(roles, have) })
}

// DocumentID is the id of the n-th (from 0) document, journal or other object that this
// intent creates. It is derived from the intent's id, so that planning again gives the same
// ids.
func (in Input) DocumentID(n int) event.ID { return DeriveID(in.IntentID, n) }

// Date is the effective date of the intent, else today.
func (in Input) Date() event.Date {
	if in.EffectiveDate != nil {
		return *in.EffectiveDate
	}
	return in.Today
}

// State gives a planner the state of the log. Every stream that the planner reads becomes
// an expectation of the append at the version that was read, so a plan takes effect only
// if nothing that it relied on has changed.
type State interface {
	// Stream folds a stream. The version is 0 for a stream without events.
	Stream(ctx context.Context, id event.StreamID) (state any, v event.Version, err error)
	// StreamOf folds a stream of another legal entity of the tenant, which the caller has to
	// be entitled to: legal_entity.not_found. The read becomes no expectation, as an append
	// holds the lock of one legal entity: decide only on what never changes there.
	StreamOf(ctx context.Context, legalEntity string, id event.StreamID) (state any, v event.Version, err error)
	// Tagged finds the first events that carry a tag, at most TaggedLimit of each, in
	// order and without their data; call Stream for the state of their streams. That a tag
	// has no event becomes an append condition. The first planning may get an empty answer
	// without a search; if the tag has events, the append refuses and planning runs again
	// with a search.
	Tagged(ctx context.Context, tags ...string) ([]event.Recorded, error)
	// Decide brings projectors up to the newest committed event in one read, see Decide.
	// That no further event matches them becomes an append condition. It never uses cached
	// states.
	Decide(ctx context.Context, projectors ...Projector) error
	// Report reads all rows of a read model as of the newest committed event, for plans that
	// would fold too many events otherwise. It waits until the read model includes that event;
	// fault CodeNotCaughtUp (Timeout) if it does not in time. That no further event matches
	// r.Items becomes an append condition. Personal values stay sealed. It is never answered
	// from a cache, so prefer Stream for what is in a stream. Further faults: report.not_found,
	// CodeReportUnbound, report.parameter_*, report.too_many_rows beyond MaxReportRows, read.rebuilding.
	Report(ctx context.Context, r ReportRead) (rows []any, err error)
	// Waiting finds the intents of the types (none: of any type) that wait for approval with an
	// effective date in the range, for closing periods. That no further intent begins to wait in the
	// months of the range becomes an append condition, so a close and a submission that race are
	// decided under the append lock. It never uses cached states.
	Waiting(ctx context.Context, types []string, from, to event.Date) (WaitingIntents, error)
	// Open returns a document with its sealed values in clear, such as a member of a folded
	// state. An erased value is shredding.Redacted; what was opened is no expectation, so a
	// value may be erased between planning and append. Faults: pii.class_undeclared if
	// IntentType.Opens lacks the class of a value, and those of Opener, which end the planning:
	// while the key store is unavailable nothing is decided.
	Open(ctx context.Context, document json.RawMessage) (json.RawMessage, error)
}

// TaggedLimit bounds what State.Tagged returns per tag.
const TaggedLimit = 20

// WaitingIntents are intents that wait for approval.
type WaitingIntents struct {
	Count int
	IDs   []event.ID // of the oldest, at most WaitingLimit
}

// WaitingLimit bounds the ids that State.Waiting returns.
const WaitingLimit = 20

// Load folds a stream whose state has type T.
func Load[T any](ctx context.Context, s State, id event.StreamID) (T, error) {
	var zero T
	raw, _, err := s.Stream(ctx, id)
	if err != nil {
		return zero, err
	}
	return stateOf[T](id, raw)
}

// LoadOf folds a stream of another legal entity whose state has type T.
func LoadOf[T any](ctx context.Context, s State, legalEntity string, id event.StreamID) (T, error) {
	raw, _, err := s.StreamOf(ctx, legalEntity, id)
	if err != nil {
		var zero T
		return zero, err
	}
	return stateOf[T](id, raw)
}

func stateOf[T any](id event.StreamID, raw any) (T, error) {
	state, ok := raw.(T)
	if !ok {
		return state, fmt.Errorf("fold of %s gives %T, not %T", id.Type, raw, state)
	}
	return state, nil
}

// Plan is the proposed effect of an intent. The pipeline appends its events in one
// transaction, after the policy allowed it.
type Plan struct {
	Events     []event.Draft
	Streams    []concurrency.StreamExpectation // in addition to those of the streams that were read
	Conditions []concurrency.AppendCondition
	Rules      []event.RuleEvaluation // of the rules written in Go
	Facts      any                    // input of the module's policy, encoded as JSON with exact numbers
	Amount     *Amount                // what the intent is about, for its approvers; nil: no amount, or one that is personal
	// Kept replaces the payload in the stored intent; nil stores the caller's. It is for
	// personal data in a member that is not declared for it and would not be sealed. It
	// also applies when the plan is refused.
	Kept json.RawMessage
	// CorrelationID is that of the process which the intent continues, such as its document's;
	// "" begins one with the intent's id. The caller's comes first. The intent and all its
	// events have the one that results; those of drafts are not read.
	CorrelationID string
}

// Amount is money in units of a currency. An event that is never erased shows it.
type Amount struct {
	Value    money.Number `json:"value"`
	Currency string       `json:"currency"`
}

// IntentType is a declared intent.
type IntentType struct {
	Type        string
	Description string
	Schema      json.RawMessage // JSON Schema of the payload
	// PIIFields declares personal data in the payload; RetentionClass decides under
	// which key they are sealed, "" is standard. The stored intent obeys them as events
	// obey their type's.
	PIIFields      []eventtype.PIIField
	RetentionClass eventtype.RetentionClass
	// Opens lists the classes of personal data in earlier events that Plan and OnDuplicate read
	// in clear, by State.Open. What they read must not be in facts, rules, or events where it
	// is not sealed.
	Opens  []shredding.Class
	Emits  []string // event types it may produce: the module's own, and those of other modules through their contract packages
	Policy string   // Rego package: "backbone.rules.ap"; it has the rules submit and decision
	// Complete fills in members that the schema leaves optional but sealing needs, such as
	// the id of a new person. It must depend on its arguments only. nil changes nothing.
	Complete func(intentID event.ID, payload json.RawMessage) json.RawMessage
	// Plan is a pure function from intent and state to drafts. A refusal is a fault.
	Plan func(ctx context.Context, in Input, s State) (Plan, error)
	// OnDuplicate makes the fault for a business key that another event holds. nil, for the
	// function or its result, keeps the general fault.
	OnDuplicate func(ctx context.Context, in Input, s State, eventType string, h fault.Holder) error

	manifest *shredding.Manifest
	keyClass shredding.KeyClass
	schema   *declaredSchema
}

// Validate checks a payload against the schema, once the intent is in a catalog that has a compiler.
func (t IntentType) Validate(payload json.RawMessage) ([]fault.Violation, error) {
	return t.schema.Validate(payload)
}

// Manifest is the PII manifest of the payload, known once the intent is in a catalog.
func (t IntentType) Manifest() *shredding.Manifest { return t.manifest }

// KeyClass is the class of a person's key under which the payload's values are sealed.
func (t IntentType) KeyClass() shredding.KeyClass { return t.keyClass }

// RegisteredType is an event type ready for use: its registration, compiled
// schema, PII manifest and checks.
type RegisteredType struct {
	eventtype.Registration
	Schema   ports.Schema
	Proposed ports.Schema        // of the amendment that is proposed, which new events must fit too; nil: none
	Manifest *shredding.Manifest // nil or empty without personal data
	KeyClass shredding.KeyClass
	Checks   []Check
	Defaults eventtype.Defaults
	Upcasts  map[uint32]UpcastStep // declared steps to this version, by the version they lead from
}

// Batch has the drafts of one append and the values that they share.
type Batch struct {
	Drafts        []event.Draft
	LegalEntity   ports.LegalEntity
	Actor         event.Actor
	CorrelationID string // for drafts without one
	IntentID      event.ID
	Source        event.Source    // for drafts without one
	Rules         json.RawMessage // encoded event.RuleEvaluations, as in the intent's row; nil: none
	Now           time.Time
	EventIDs      []event.ID      // nil: new ones
	Binding       *intent.Binding // of the intent's row, kept in the payload of the last event; nil: none
	AboutIntent   bool            // the pipeline's own events about an intent, which no other batch may hold
}

// EventID is the id of the i-th (from 0) event of an intent's plan. A planner can use it in
// other events.
func EventID(intentID event.ID, i int) event.ID { return DeriveID(intentID, eventIDBase+i) }

// Of the ids derived from an intent, documents have n below eventIDBase and events n from it.
const eventIDBase = 1000

// Projection is a declared writer of a read model. plugin.Module binds its handler by
// name.
type Projection struct {
	Name       string
	Version    int
	EventTypes []string
}

// ParamType is the type of a read model's parameter.
type ParamType string

// The parameter types.
const (
	ParamString  ParamType = "string"
	ParamDate    ParamType = "date"
	ParamBool    ParamType = "bool"
	ParamInteger ParamType = "integer"
)

// Param is a parameter of a read model beyond those that all have
// (legal_entity, as_of, known_at, min_sequence, cursor, limit).
type Param struct {
	Name        string
	Type        ParamType
	Required    bool
	InPath      bool
	Description string
}

// Column is a column of a read model.
type Column struct {
	Name        string
	Type        string // "string", "date", "time", "amount", "integer", "bool", "object"
	Description string // with the unit
	// Detail keeps the column out of the table that a command shows on a terminal. JSON and
	// CSV have all columns.
	Detail bool
}

// ReadModel is a declared report, served under /api/<module>/<name>.
type ReadModel struct {
	// Name is "open-items", "accounts/{account}/ledger". One that begins with a slash is a
	// whole path, for a report that belongs under another module's: "/gl/subledger-control".
	Name        string
	Description string
	Projection  string   // the projection that writes it
	Reads       []string // further projections, of any module, whose rows it reads at the same sequence
	Params      []Param
	Columns     []Column
	// VaryColumns returns the columns for parameters on which they depend; nil: they are
	// always Columns.
	VaryColumns func(params map[string]string) []Column
	RowsName    string // "" is "rows"
	Flat        bool
	// PartOf is the path of a read model, of any module, whose rows are followed by this one's:
	// "gl/close-checklist". Both have the same parameters and columns and are read at the same
	// sequence. A part has at most MaxPartRows rows. "": it stands alone; so does a part of a read
	// model that no module declares.
	PartOf string
	// Parts are the paths of the read models with PartOf set to this one, in order. Build sets it.
	Parts []string
	// Command names the command that reads the model, backbone <module> <command>; "": the
	// model's name. Parameters of the path are its arguments, the others are flags.
	Command string
	// Example is a command line without `backbone <module> <command>`, for the command's
	// help; "": none.
	Example string
}

// MaxPartRows bounds the rows of a read model that is part of another one.
const MaxPartRows = 100

// ReadModelPath is the path of a module's read model with a name: "ap/open-items".
func ReadModelPath(module, name string) string {
	if path, isWhole := strings.CutPrefix(name, "/"); isWhole {
		return path
	}
	return module + "/" + name
}

// ColumnsFor returns the columns of the rows for the parameters that were given.
func (m ReadModel) ColumnsFor(params map[string]string) []Column {
	if m.VaryColumns == nil {
		return m.Columns
	}
	return m.VaryColumns(params)
}

// Table returns columns for a CSV file.
func Table(columns []Column) []tabular.Column {
	out := make([]tabular.Column, len(columns))
	for i, c := range columns {
		out[i] = tabular.Column{Name: c.Name, Type: c.Type}
	}
	return out
}
