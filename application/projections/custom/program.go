package custom

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/jsondoc"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// program is a compiled definition.
type program struct {
	filter projection.Filter
	key    ports.Transform
	fold   ports.Transform
}

// resultMember is the member that holds the result of a program. It is needed because a transform
// returns an object, but a key is a text and a removed state is null.
const resultMember = "value"

// compile compiles a definition. Fault transform.invalid with the field.
func compile(compiler ports.TransformCompiler, d projection.Definition) (*program, error) {
	p := &program{filter: d.Filter}
	for _, part := range []struct {
		field, source string
		into          *ports.Transform
	}{{"/key", d.Key, &p.key}, {"/fold", d.Fold, &p.fold}} {
		// The program is compiled alone first: an unbalanced bracket in it must not match one of the
		// brackets that are added around it.
		_, err := compiler.Compile(part.source)
		if err == nil {
			*part.into, err = compiler.Compile(`{"` + resultMember + `": (` + part.source + "\n)}")
		}
		if f, ok := fault.As(err); ok {
			return nil, f.WithField(part.field)
		}
		if err != nil {
			return nil, err
		}
	}
	return p, nil
}

// run applies a transform and returns the value of the result member.
func run(ctx context.Context, t ports.Transform, document json.RawMessage, field string) (json.RawMessage, error) {
	out, err := t.Apply(ctx, document)
	if err != nil {
		return nil, fault.WithField(err, field)
	}
	value, found, err := jsondoc.Member(out, resultMember)
	if err != nil || !found {
		return nil, fault.New(fault.Internal, "projection.answer_unreadable", "the result of a program cannot be read; report it").WithCause(err)
	}
	return value, nil
}

// document is an event as programs receive it.
type document struct {
	sealed json.RawMessage // with sealed copies of personal values
	bare   json.RawMessage // with tokens instead
}

// eventKey returns the key under which an event counts; counts is false if it has none.
func (p *program) eventKey(ctx context.Context, d document) (key string, counts bool, err error) {
	value, err := run(ctx, p.key, d.bare, "/key")
	if err != nil {
		return "", false, err
	}
	if string(value) == "null" {
		return "", false, nil
	}
	if json.Unmarshal(value, &key) != nil || !projection.IsValidKey(key) {
		return "", false, fault.New(fault.FailedPrecondition, "projection.key_invalid",
			"the key of an event is a text of 1 to %d bytes, or null; make the key program give one", projection.MaxKey).WithField("/key")
	}
	return key, true, nil
}

// foldEvent folds an event into a state, nil if the key has none. A nil result removes the key.
func (p *program) foldEvent(ctx context.Context, state json.RawMessage, d document) (json.RawMessage, error) {
	if state == nil {
		state = json.RawMessage("null")
	}
	both := make([]byte, 0, len(state)+len(d.sealed)+32)
	both = append(both, `{"state":`...)
	both = append(both, state...)
	both = append(both, `,"event":`...)
	both = append(both, d.sealed...)
	both = append(both, '}')
	bare, held, err := shredding.Detach(both, shredding.Location{})
	if err != nil {
		return nil, err
	}
	value, err := run(ctx, p.fold, bare, "/fold")
	if err != nil {
		return nil, err
	}
	if string(value) == "null" {
		return nil, nil
	}
	out, _, err := shredding.Attach(value, held)
	if err != nil {
		return nil, fault.WithField(err, "/fold")
	}
	if len(out) > projection.MaxState {
		return nil, fault.New(fault.FailedPrecondition, "projection.state_too_large",
			"the state of a key has at most %d bytes; keep less in it, or choose a finer key", projection.MaxState).WithField("/fold")
	}
	return out, nil
}

// newDocument renders an event, upcast before, and returns the entities that it refers to.
func newDocument(e *event.Recorded) (document, []event.EntityRef, error) {
	var stored struct {
		Data       json.RawMessage `json:"data"`
		Dimensions json.RawMessage `json:"dimensions"`
		Refs       json.RawMessage `json:"entity_refs"`
	}
	var refs []event.EntityRef
	if err := json.Unmarshal(e.Payload, &stored); err != nil {
		return document{}, nil, fault.New(fault.Internal, "projection.payload_unreadable", "the payload of event %s cannot be read; verify the log", e.ID)
	}
	if len(stored.Refs) > 0 {
		if err := json.Unmarshal(stored.Refs, &refs); err != nil {
			return document{}, nil, fault.New(fault.Internal, "projection.payload_unreadable", "the payload of event %s cannot be read; verify the log", e.ID)
		}
	}
	data, err := shredding.CopySealed(stored.Data, shredding.Location{
		Partition: e.Partition, Kind: shredding.KindEvent, Record: e.ID, Type: e.Type, SchemaVersion: e.SchemaVersion, Pointer: "/data",
	})
	if err != nil {
		return document{}, nil, err
	}
	shown := documentShape{
		ID: e.ID.String(), Type: e.Type, SchemaVersion: e.SchemaVersion, Sequence: fmt.Sprint(uint64(e.Sequence)),
		Stream:     streamShape{e.Stream.Type, e.Stream.ID, uint64(e.StreamVersion)},
		OccurredAt: e.OccurredAt.UTC().Format(timeLayout), RecordedAt: e.RecordedAt.UTC().Format(timeLayout), EffectiveDate: e.EffectiveDate.String(),
		Scope: e.Scope, Actor: actorShape{string(e.ActorType), e.ActorID, e.ActorName}, CorrelationID: e.CorrelationID,
		Data: data, Dimensions: orEmpty(stored.Dimensions, "{}"), Entities: orEmpty(stored.Refs, "[]"),
		Metadata: metadataShape{Tags: e.Tags, Source: e.Source},
	}
	if shown.Metadata.Tags == nil {
		shown.Metadata.Tags = []string{}
	}
	if e.CausedBy != (event.ID{}) {
		shown.CausedBy = e.CausedBy.String()
	}
	if e.IntentID != (event.ID{}) {
		shown.IntentID = e.IntentID.String()
	}
	var d document
	if d.sealed, err = encode(shown); err != nil {
		return d, nil, err
	}
	d.bare, _, err = shredding.Detach(d.sealed, shredding.Location{})
	return d, refs, err
}

// timeLayout is the time format of the API.
const timeLayout = "2006-01-02T15:04:05.000000Z"

func orEmpty(value json.RawMessage, empty string) json.RawMessage {
	if len(value) == 0 || string(value) == "null" {
		return json.RawMessage(empty)
	}
	return value
}

// encode leaves the characters <, > and & unescaped.
func encode(v any) ([]byte, error) {
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(v)
	return []byte(strings.TrimSuffix(b.String(), "\n")), err
}

// documentShape is the event of the API without the members of the hash chain.
type documentShape struct {
	ID            string          `json:"id"`
	Type          string          `json:"type"`
	SchemaVersion uint32          `json:"schema_version"`
	Sequence      string          `json:"sequence"`
	Stream        streamShape     `json:"stream"`
	OccurredAt    string          `json:"occurred_at"`
	RecordedAt    string          `json:"recorded_at"`
	EffectiveDate string          `json:"effective_date"`
	Scope         event.Scope     `json:"scope"`
	Actor         actorShape      `json:"actor"`
	CausedBy      string          `json:"caused_by,omitempty"`
	IntentID      string          `json:"intent_id,omitempty"`
	CorrelationID string          `json:"correlation_id"`
	Data          json.RawMessage `json:"data"`
	Dimensions    json.RawMessage `json:"dimensions"`
	Entities      json.RawMessage `json:"entities"`
	Metadata      metadataShape   `json:"metadata"`
}

type streamShape struct {
	Type    string `json:"type"`
	ID      string `json:"id"`
	Version uint64 `json:"version"`
}

type actorShape struct {
	Type string `json:"type"`
	ID   string `json:"id"`
	Name string `json:"name"`
}

type metadataShape struct {
	Tags   []string     `json:"tags"`
	Source event.Source `json:"source"`
}

// handler folds events into the rows of a custom projection.
type handler struct {
	program *program
	tenant  string
	rows    ports.ProjectionRows
}

// keyedEvent is an event with the key under which it counts.
type keyedEvent struct {
	key      string
	sequence event.Sequence
	document document
}

// selectEvents returns the events that count, in order.
func (p *program) selectEvents(ctx context.Context, tenant string, events []event.Recorded) (out []keyedEvent, err error) {
	for i := range events {
		e := &events[i]
		if e.Scope.TenantID != tenant {
			return nil, fault.New(fault.Internal, "projection.foreign_event", "a projection received an event of another tenant; report it")
		}
		if len(p.filter.Types) > 0 && !slices.Contains(p.filter.Types, e.Type) {
			continue
		}
		shown, refs, err := newDocument(e)
		if err != nil {
			return nil, err
		}
		if !p.filter.Matches(&e.Skeleton, refs) {
			continue
		}
		key, counts, err := p.eventKey(ctx, shown)
		if err != nil {
			return nil, err
		}
		if counts {
			out = append(out, keyedEvent{key, e.Sequence, shown})
		}
	}
	return out, nil
}

// Apply implements ports.ProjectionHandler. It finds the keys of the whole batch first, so that
// it reads and writes all rows at once.
func (h *handler) Apply(ctx context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch) error {
	events, err := h.program.selectEvents(ctx, h.tenant, b.Events)
	if err != nil || len(events) == 0 {
		return err
	}
	found := map[string]bool{}
	for _, e := range events {
		found[e.key] = true
	}
	keys := slices.Sorted(maps.Keys(found))
	before, err := h.rows.LoadProjectionRows(ctx, tx, b, keys)
	if err != nil {
		return err
	}
	after, err := h.program.foldAll(ctx, events, before)
	if err != nil {
		return err
	}
	var rows []ports.ProjectionRow
	var gone []string
	for _, key := range keys {
		row, exists := after[key]
		_, existed := before[key]
		switch {
		case exists:
			rows = append(rows, row)
		case existed:
			gone = append(gone, key)
		}
	}
	return h.rows.StoreProjectionRows(ctx, tx, b, rows, gone)
}

// foldAll folds events in order into copies of the rows.
func (p *program) foldAll(ctx context.Context, events []keyedEvent, before map[string]ports.ProjectionRow) (map[string]ports.ProjectionRow, error) {
	after := maps.Clone(before)
	for _, e := range events {
		if err := p.foldRow(ctx, e, after); err != nil {
			return nil, err
		}
	}
	return after, nil
}

// foldRow folds one event into the row of its key.
func (p *program) foldRow(ctx context.Context, e keyedEvent, rows map[string]ports.ProjectionRow) error {
	next, err := p.foldEvent(ctx, rows[e.key].State, e.document)
	switch {
	case err != nil:
		return err
	case next == nil:
		delete(rows, e.key)
	default:
		rows[e.key] = ports.ProjectionRow{Key: e.key, State: next, Sequence: e.sequence}
	}
	return nil
}

// Reset implements ports.ProjectionResetter.
func (h *handler) Reset(ctx context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch) error {
	return h.rows.ForgetProjectionRows(ctx, tx, b)
}

// Tables implements ports.ProjectionTables.
func (h *handler) Tables() []ports.ProjectionTable {
	return []ports.ProjectionTable{ports.ProjectionRowTable}
}
