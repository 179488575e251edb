package append

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/domain/jsondoc"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// TypeRegistry finds registered event types.
type TypeRegistry interface {
	Lookup(ctx context.Context, tenantID, name string, version uint32) (*module.RegisteredType, error)
}

// Limits bounds one append. Exceeding a limit is a fault that names the limit.
type Limits struct {
	BatchEvents int // events of one batch
	EventBytes  int // bytes of one payload as stored
	EntityRefs  int // entity references of one event
	Tags        int // tags of one event
}

// CheckBatch refuses a batch of too many events: append.batch_too_large.
func (l Limits) CheckBatch(events int) error {
	if events <= l.BatchEvents {
		return nil
	}
	return fault.New(fault.TooLarge, "append.batch_too_large", "a batch holds at most %d events; send them in several batches", l.BatchEvents).
		WithNumbers(l.BatchEvents, events).WithField("/events")
}

// CheckEvent refuses an event's data or payload that is too large: append.event_too_large.
func (l Limits) CheckEvent(document []byte) error {
	if len(document) <= l.EventBytes {
		return nil
	}
	return fault.New(fault.TooLarge, "append.event_too_large", "an event's payload may have %d bytes; split it or keep the bulk elsewhere and refer to it", l.EventBytes).
		WithNumbers(l.EventBytes, len(document))
}

// maxIdentifier bounds ids and keys, in bytes. PostgreSQL limits the size of a B-tree
// row; a longer value would fail the commit of every request in its group.
const maxIdentifier = 512

// PreparerConfig is what a Preparer needs.
type PreparerConfig struct {
	Types  TypeRegistry
	IDs    ports.IDSource
	Limits Limits
	// Sealer seals personal values; nil: events with personal values are refused with
	// pii.keys_missing.
	Sealer module.Sealer
	// Upcaster refuses events of earlier schema versions that readers could not upcast, with
	// event_type.not_upcastable; nil: they are accepted unchecked.
	Upcaster module.Upcaster
}

// Preparer makes drafts ready for the store.
type Preparer struct{ config PreparerConfig }

// NewPreparer makes a Preparer.
func NewPreparer(c PreparerConfig) *Preparer { return &Preparer{c} }

// Prepare validates and encodes a batch and seals its personal values. Faults:
// append.batch_too_large, append.event_too_large, event_type.not_found,
// append.schema_violation, append.dimension_missing, append.reference_missing,
// append.identifier_invalid, stream.event_reserved, pii.in_identifier, those of the
// types' own checks, of shredding.Manifest.Resolve and of module.Sealer. Pointers in
// faults begin with /events/<index>, except pointers to members of the batch itself.
func (p *Preparer) Prepare(ctx context.Context, b module.Batch) ([]event.Prepared, error) {
	if err := p.config.Limits.CheckBatch(len(b.Drafts)); err != nil {
		return nil, err
	}
	if err := checkIdentifiers(
		textField{"/correlation_id", b.CorrelationID}, textField{"/source/system", b.Source.System},
		textField{"/source/channel", b.Source.Channel}, textField{"/source/reference", b.Source.Reference},
	); err != nil {
		return nil, err
	}
	details, err := encodeUnless(b.Actor.Details.IsZero(), "actor details", b.Actor.Details)
	if err != nil {
		return nil, err
	}
	binding, err := encodeUnless(b.Binding == nil, "intent binding", b.Binding)
	if err != nil {
		return nil, err
	}
	out := make([]event.Prepared, len(b.Drafts))
	for i := range b.Drafts {
		if err := ctx.Err(); err != nil { // the caller has left; validating costs time
			return nil, err
		}
		if i < len(b.EventIDs) {
			out[i].ID = b.EventIDs[i]
		} else {
			out[i].ID = p.config.IDs.NewID(b.Now)
		}
		var bound json.RawMessage
		if i == len(b.Drafts)-1 {
			bound = binding
		}
		if err := p.prepareEvent(ctx, &out[i], &b.Drafts[i], &b, bound); err != nil {
			return nil, prependEventIndex(err, i)
		}
		out[i].RulesEvaluated = b.Rules
		out[i].ActorDetails = details
		if j := b.Drafts[i].CausedByIndex; j > 0 {
			if j > i {
				return nil, fmt.Errorf("draft %d is caused by a later draft %d", i+1, j)
			}
			out[i].CausedBy = out[j-1].ID
		}
	}
	return out, nil
}

func encodeUnless(absent bool, name string, v any) (json.RawMessage, error) {
	if absent {
		return nil, nil
	}
	encoded, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", name, err)
	}
	return encoded, nil
}

// prependEventIndex makes a fault's pointers relative to the batch.
func prependEventIndex(err error, index int) error {
	f, ok := fault.As(err)
	if !ok {
		return err
	}
	prefix := fmt.Sprintf("/events/%d", index)
	changed := f.WithField(prefix + f.Field)
	if len(f.Violations) > 0 {
		vs := make([]fault.Violation, len(f.Violations))
		for i, v := range f.Violations {
			v.Field = prefix + v.Field
			vs[i] = v
		}
		changed = changed.WithViolations(vs...)
	}
	return changed
}

func (p *Preparer) prepareEvent(ctx context.Context, out *event.Prepared, d *event.Draft, b *module.Batch, binding json.RawMessage) error {
	if err := p.checkShape(d); err != nil {
		return err
	}
	if err := checkLifecycleEvent(d, b); err != nil {
		return err
	}
	if intent.IsAbout(d.Type) && !b.AboutIntent {
		return fault.New(fault.Forbidden, "intent.event_reserved", "events of type %s are written by the log itself; submit an intent", d.Type).WithField("/type")
	}
	t, err := p.config.Types.Lookup(ctx, b.LegalEntity.TenantID, d.Type, d.SchemaVersion)
	if err != nil {
		return err
	}
	data, err := encodeData(d.Data)
	if err != nil {
		return err
	}
	if err := checkType(t, data, d); err != nil {
		return err
	}
	payload, err := encodePayload(data, d.Dimensions, d.Entities, d.Series, binding)
	if err != nil {
		return err
	}
	if err := p.config.Limits.CheckEvent(payload); err != nil {
		return err
	}
	if payload, err = p.seal(ctx, out, t, d, b, payload); err != nil {
		return err
	}
	if p.config.Upcaster != nil {
		// The stored bytes are tried, because readers upcast the stored bytes.
		if err := p.config.Upcaster.CheckUpcastable(ctx, event.Recorded{Skeleton: event.Skeleton{
			Partition: b.LegalEntity.Partition, ID: out.ID, Type: t.Type, SchemaVersion: t.SchemaVersion, PII: out.PII,
			Scope: event.Scope{TenantID: b.LegalEntity.TenantID},
		}, Payload: payload}); err != nil {
			return err
		}
	}
	out.Type, out.SchemaVersion, out.TypeNumber = t.Type, t.SchemaVersion, t.Number
	out.Partition = b.LegalEntity.Partition
	out.OccurredAt = event.Micros(d.OccurredAt)
	if d.OccurredAt.IsZero() {
		out.OccurredAt = event.Micros(b.Now)
	}
	out.EffectiveDate = d.EffectiveDate
	out.Scope = d.Scope
	out.Scope.TenantID, out.Scope.LegalEntity = b.LegalEntity.TenantID, b.LegalEntity.Code
	out.ActorType, out.ActorID, out.ActorName = b.Actor.Type, b.Actor.ID, b.Actor.Name
	out.CausedBy, out.CausedByPartition = d.CausedBy, d.CausedByPartition
	out.IntentID = b.IntentID
	if out.CorrelationID = d.CorrelationID; out.CorrelationID == "" {
		out.CorrelationID = b.CorrelationID
	}
	out.Stream = d.Stream
	out.Tags = d.Tags
	if out.Source = d.Source; out.Source == (event.Source{}) {
		out.Source = b.Source
	}
	out.Salt = p.config.IDs.NewSalt()
	out.Payload = payload
	out.Series, out.Change = d.Series, d.Change
	if len(d.Series) == 0 {
		out.PayloadHash, out.PayloadHashDone = event.HashPayload(out.Salt, payload), true
	}
	out.Keys = indexKeys(d)
	out.BusinessKeys, err = buildBusinessKeys(t, data, d.Series)
	return err
}

func (p *Preparer) checkShape(d *event.Draft) error {
	if len(d.Entities) > p.config.Limits.EntityRefs {
		return fault.New(fault.TooLarge, "append.too_many_references", "an event may reference %d entities; split it", p.config.Limits.EntityRefs).
			WithNumbers(p.config.Limits.EntityRefs, len(d.Entities)).WithField("/entities")
	}
	if len(d.Tags) > p.config.Limits.Tags {
		return fault.New(fault.TooLarge, "append.too_many_tags", "an event may carry %d tags; use fewer", p.config.Limits.Tags).
			WithNumbers(p.config.Limits.Tags, len(d.Tags)).WithField("/tags")
	}
	required := []textField{{"/stream/type", d.Stream.Type}, {"/stream/id", d.Stream.ID}}
	for _, r := range required {
		if r.value == "" {
			return fault.New(fault.Invalid, "append.identifier_invalid", "this identifier is required; give one").WithField(r.field)
		}
	}
	if err := checkIdentifiers(
		textField{"/stream/type", d.Stream.Type}, textField{"/stream/id", d.Stream.ID}, textField{"/correlation_id", d.CorrelationID},
		textField{"/source/system", d.Source.System}, textField{"/source/channel", d.Source.Channel}, textField{"/source/reference", d.Source.Reference},
		textField{"/scope/division", d.Scope.Division}, textField{"/scope/region", d.Scope.Region}, textField{"/scope/site", d.Scope.Site},
	); err != nil {
		return err
	}
	if err := checkCustomScopes(d.Scope.Custom); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(d.Dimensions)) {
		if err := checkNamedIdentifier("/dimensions", name, d.Dimensions[name]); err != nil {
			return err
		}
	}
	for i, e := range d.Entities {
		if err := checkReference(e); err != nil {
			return prependListIndex(err, "/entities/", i)
		}
	}
	for i, tag := range d.Tags {
		if tag == "" || len(tag) > maxIdentifier-4 {
			return prependListIndex(fault.New(fault.Invalid, "append.identifier_invalid", "a tag has 1 to %d bytes; give one that fits", maxIdentifier-4), "/tags/", i)
		}
		if err := checkIdentifier("", tag); err != nil {
			return prependListIndex(err, "/tags/", i)
		}
	}
	return nil
}

// checkReference checks one entity reference; pointers in faults are relative to it.
func checkReference(e event.EntityRef) error {
	if e.Type == "" || e.ID == "" || e.Role == "" || strings.ContainsRune(e.Type, ':') {
		return fault.New(fault.Invalid, "append.reference_invalid", "entity_type (without a colon), entity_id and role are required; give all three")
	}
	if len(e.Type)+len(e.ID) > maxIdentifier-8 {
		return fault.New(fault.Invalid, "append.identifier_invalid", "identifiers have at most %d bytes; shorten it", maxIdentifier)
	}
	return checkIdentifiers(textField{"/entity_type", e.Type}, textField{"/entity_id", e.ID}, textField{"/role", e.Role})
}

// prependListIndex makes a fault's pointer relative to the document that holds the list.
// Pointers are built for faults only, because building them for every event would cost
// allocations.
func prependListIndex(err error, list string, index int) error {
	f, ok := fault.As(err)
	if !ok {
		return err
	}
	return f.WithField(list + strconv.Itoa(index) + f.Field)
}

// textField is an identifier and the pointer to it.
type textField struct{ field, value string }

func checkIdentifiers(texts ...textField) error {
	for _, t := range texts {
		if err := checkIdentifier(t.field, t.value); err != nil {
			return err
		}
	}
	return nil
}

// checkNamedIdentifier checks a member whose name the caller chose: name and value.
func checkNamedIdentifier(field, name, value string) error {
	if err := checkIdentifier(field, name); err != nil {
		return err
	}
	return checkIdentifier(field+"/"+jsondoc.EscapeToken(name), value)
}

// checkCustomScopes checks that custom scopes are an object of identifiers.
func checkCustomScopes(custom json.RawMessage) error {
	if len(custom) == 0 {
		return nil
	}
	var texts map[string]string
	if json.Unmarshal(custom, &texts) != nil {
		return fault.New(fault.Invalid, "append.identifier_invalid", "custom scopes are an object of texts; send one").WithField("/scope/custom")
	}
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		if err := checkNamedIdentifier("/scope/custom", name, texts[name]); err != nil {
			return err
		}
	}
	return nil
}

// checkIdentifier refuses texts that a store cannot index, and texts that look like
// personal data: identifiers are never erased.
func checkIdentifier(field, value string) error {
	if len(value) > maxIdentifier || !isStorable(value) {
		return fault.New(fault.Invalid, "append.identifier_invalid", "identifiers have at most %d bytes and no NUL; shorten it", maxIdentifier).WithField(field)
	}
	return shredding.CheckIdentifier(field, value)
}

// isStorable reports whether PostgreSQL can store the text: valid UTF-8 without NUL.
func isStorable(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }

func checkType(t *module.RegisteredType, data json.RawMessage, d *event.Draft) error {
	violations, err := t.Schema.Validate(data)
	if err == nil && len(violations) == 0 && t.Proposed != nil {
		violations, err = t.Proposed.Validate(data)
	}
	if err != nil {
		return err
	}
	if len(violations) > 0 {
		for i := range violations {
			violations[i].Field = "/data" + violations[i].Field
		}
		return fault.New(fault.Invalid, "append.schema_violation", "data does not fit the schema of %s version %d; correct the fields named in violations", t.Type, t.SchemaVersion).
			WithViolations(violations...)
	}
	for _, dim := range t.RequiredDimensions {
		if d.Dimensions[dim] == "" {
			return fault.New(fault.Invalid, "append.dimension_missing", "events of type %s need dimension %q; add it", t.Type, dim).WithField("/dimensions/" + dim)
		}
	}
	for _, ref := range t.RequiredEntityRefs {
		n := 0
		for _, e := range d.Entities {
			if e.Role == ref.Role && (e.Type == ref.EntityType || ref.EntityType == eventtype.AnyEntity) {
				n++
			}
		}
		if n == 0 || (ref.Cardinality == eventtype.One && n > 1) {
			return fault.New(fault.Invalid, "append.reference_missing", "events of type %s need %s reference to a %s in role %q; they have %d; correct the references",
				t.Type, strings.ReplaceAll(string(ref.Cardinality), "_", " "), ref.EntityType, ref.Role, n).WithField("/entities")
		}
	}
	for _, check := range t.Checks {
		if err := check(data, d.Dimensions); err != nil {
			return err
		}
	}
	return nil
}

// encodeData encodes a module's struct; a raw document is kept byte for byte.
func encodeData(data any) (json.RawMessage, error) {
	switch v := data.(type) {
	case json.RawMessage:
		if len(v) == 0 {
			return json.RawMessage("{}"), nil
		}
		return v, nil
	case nil:
		return json.RawMessage("{}"), nil
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(data); err != nil {
		return nil, fmt.Errorf("encode event data: %w", err)
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}

func encodePayload(data json.RawMessage, dimensions map[string]string, refs []event.EntityRef, series []event.SeriesNumber, binding json.RawMessage) ([]byte, error) {
	if dimensions == nil {
		dimensions = map[string]string{}
	}
	if refs == nil {
		refs = []event.EntityRef{}
	}
	dims, err := encodeData(dimensions)
	if err != nil {
		return nil, err
	}
	entities, err := encodeData(refs)
	if err != nil {
		return nil, err
	}
	out := make([]byte, 0, len(data)+len(dims)+len(entities)+len(binding)+52)
	out = append(out, `{"data":`...)
	out = append(out, data...)
	out = append(out, `,"dimensions":`...)
	out = append(out, dims...)
	out = append(out, `,"entity_refs":`...)
	out = append(out, entities...)
	if len(series) > 0 {
		drawn := make([]event.DrawnNumber, len(series))
		for i, s := range series {
			drawn[i] = s.Drawn()
		}
		numbers, err := encodeData(drawn)
		if err != nil {
			return nil, err
		}
		out = append(append(out, `,"numbers":`...), numbers...)
	}
	if binding != nil {
		out = append(out, `,"intent":`...)
		out = append(out, binding...)
	}
	return append(out, '}'), nil
}

// indexKeys lists the key index rows of an event, each once and sorted: all writers
// then insert them in the same order, which rules out deadlocks.
func indexKeys(d *event.Draft) []string {
	keys := make([]string, 0, len(d.Entities)+len(d.Tags))
	for _, e := range d.Entities {
		keys = append(keys, e.Key())
	}
	for _, t := range d.Tags {
		keys = append(keys, event.TagKey(t))
	}
	sort.Strings(keys)
	n := 0
	for i, k := range keys {
		if i == 0 || k != keys[n-1] {
			keys[n] = k
			n++
		}
	}
	return keys[:n]
}

func buildBusinessKeys(t *module.RegisteredType, data json.RawMessage, series []event.SeriesNumber) ([]event.BusinessKey, error) {
	if len(t.BusinessKeys) == 0 {
		return nil, nil
	}
	fields, err := eventtype.KeyFields(t.BusinessKeys, data)
	if err != nil {
		return nil, fmt.Errorf("read data for business keys: %w", err)
	}
	var out []event.BusinessKey
	for _, rule := range t.BusinessKeys {
		values, document, ok := rule.Values(fields)
		if !ok {
			continue
		}
		for i, v := range values {
			if err := checkIdentifier("/data/"+rule.Fields[i], v); err != nil {
				return nil, err
			}
		}
		if err := checkIdentifier("/data/"+rule.Document, document); err != nil {
			return nil, err
		}
		key := rule.Claim(t.Type, values, document)
		for _, n := range series {
			if slices.ContainsFunc(values, func(v string) bool { return strings.Contains(v, n.Token) }) &&
				(!strings.Contains(key.Key, n.Token) || eventtype.Normalise(rule.Normalise, n.Prefix) != n.Prefix) {
				return nil, fmt.Errorf("business key %s of %s: normalisation changes the token or the prefix of series %s", rule.Name, t.Type, n.Series)
			}
		}
		if len(key.Key) > maxIdentifier {
			return nil, fault.New(fault.Invalid, "append.identifier_invalid", "a business key has at most %d bytes; shorten the values of %s", maxIdentifier, strings.Join(rule.Fields, ", "))
		}
		out = append(out, key)
	}
	return out, nil
}

// mayHoldPersonalData reports whether a draft's type declares personal fields. A type
// that is not found counts as one that does.
func (p *Preparer) mayHoldPersonalData(ctx context.Context, tenantID string, drafts []event.Draft) bool {
	return slices.ContainsFunc(drafts, func(d event.Draft) bool {
		t, err := p.config.Types.Lookup(ctx, tenantID, d.Type, d.SchemaVersion)
		return err != nil || !t.Manifest.Empty()
	})
}
