package httpapi

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/globallog"
	"github.com/erpbackbone/backbone/domain/jsondoc"
	"github.com/erpbackbone/backbone/ports"
)

// renderer writes events in the form that all answers share. It copies stored JSON without
// decoding it, which takes a tenth of the time of encoding structs and keeps the bytes of
// data.
type renderer struct {
	b           []byte
	prepared    []event.Recorded                           // upcast and opened
	entityCodes map[event.PartitionID]string               // of the legal entities that the caller may see
	positions   map[ports.EventPosition]globallog.Position // in the global log, of those that are in it
	withoutData bool                                       // leave the payload out
	err         error                                      // the first value that could not be written
}

// render makes a renderer for events. It upcasts them unless the caller asked for stored
// events, and then opens personal values. Upcasting comes first, because its programs
// must not see personal values. It looks legal entities up only if an event of
// another one caused an event.
func (s *Server) render(ctx context.Context, recorded []event.Recorded) (*renderer, error) {
	return s.renderWithPositions(ctx, recorded, recorded)
}

// renderWithPositions is render that looks only for some of the events in the global log.
func (s *Server) renderWithPositions(ctx context.Context, recorded, positioned []event.Recorded) (*renderer, error) {
	var err error
	if s.config.Upcaster != nil && !callOf(ctx).wantsRaw {
		if recorded, err = s.config.Upcaster.UpcastForDisplay(ctx, recorded); err != nil {
			return nil, err
		}
	}
	if recorded, err = s.openEvents(ctx, recorded); err != nil {
		return nil, err
	}
	size := 512
	hasForeignCause := false
	for i := range recorded {
		size += len(recorded[i].Payload) + len(recorded[i].RulesEvaluated) + 1024
		hasForeignCause = hasForeignCause || recorded[i].CausedByPartition != 0
	}
	r := &renderer{b: make([]byte, 0, size), prepared: recorded}
	if r.positions, err = s.positions(ctx, positioned); err != nil {
		return nil, err
	}
	if hasForeignCause {
		_, r.entityCodes, err = s.visiblePartitions(ctx)
	}
	return r, err
}

// positions returns the positions of events in the global log.
func (s *Server) positions(ctx context.Context, recorded []event.Recorded) (map[ports.EventPosition]globallog.Position, error) {
	if s.config.Positions == nil || len(recorded) == 0 {
		return nil, nil
	}
	events := make([]ports.EventPosition, len(recorded))
	for i := range recorded {
		events[i] = ports.EventPosition{Partition: recorded[i].Partition, Sequence: recorded[i].Sequence}
	}
	return s.config.Positions.GlobalPositions(ctx, events)
}

// EncodeEvents writes events as the API renders them everywhere, one document for each. Their
// personal values have been opened for the reader. The codes are those of other legal entities
// in which events may have been caused. A bare event has no data, dimensions and entities.
func EncodeEvents(recorded []event.Recorded, codes map[event.PartitionID]string, bare bool) ([][]byte, error) {
	r := &renderer{entityCodes: codes, withoutData: bare}
	out := make([][]byte, len(recorded))
	for i := range recorded {
		r.b = make([]byte, 0, len(recorded[i].Payload)+len(recorded[i].RulesEvaluated)+1024)
		r.event(&recorded[i])
		out[i] = slices.Clip(r.b)
	}
	return out, r.err
}

// answer returns the written document, or the error that left it incomplete.
func (r *renderer) answer() (any, error) {
	return answer{status: http.StatusOK, body: r.b}, r.err
}

func (r *renderer) raw(s string)   { r.b = append(r.b, s...) }
func (r *renderer) bytes(v []byte) { r.b = append(r.b, v...) }

// text writes a JSON string without escaping HTML characters.
func (r *renderer) text(s string) {
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			quoted, err := encode(s)
			if err != nil {
				quoted = []byte(`""`) // a string always encodes
			}
			r.bytes(quoted)
			return
		}
	}
	r.b = append(r.b, '"')
	r.b = append(r.b, s...)
	r.b = append(r.b, '"')
}

// name writes a comma and a member's name.
func (r *renderer) name(name string) {
	r.raw(`,"`)
	r.raw(name)
	r.raw(`":`)
}

// member writes a comma, a name and a string.
func (r *renderer) member(name, value string) {
	r.name(name)
	r.text(value)
}

// optional writes a member unless its value is "".
func (r *renderer) optional(name, value string) {
	if value != "" {
		r.member(name, value)
	}
}

func (r *renderer) number(name string, n uint64) {
	r.name(name)
	r.b = strconv.AppendUint(r.b, n, 10)
}

func (r *renderer) boolean(name string, v bool) {
	r.name(name)
	r.b = strconv.AppendBool(r.b, v)
}

// document writes a value of the generated models.
func (r *renderer) document(name string, v any) {
	encoded, err := encode(v)
	if err != nil && r.err == nil {
		r.err = err
	}
	r.name(name)
	r.bytes(encoded)
}

func (r *renderer) time(name string, t time.Time) {
	r.name(name)
	r.raw(`"`)
	r.b = t.UTC().AppendFormat(r.b, timeLayout)
	r.raw(`"`)
}

func (r *renderer) hash(name string, h event.Hash) {
	r.name(name)
	r.raw(`"`)
	r.b = hex.AppendEncode(r.b, h[:])
	r.raw(`"`)
}

// events writes the prepared events as an array.
func (r *renderer) events() {
	r.raw("[")
	for i := range r.prepared {
		if i > 0 {
			r.raw(",")
		}
		r.event(&r.prepared[i])
	}
	r.raw("]")
}

// line writes an event on one line: stored JSON may have line breaks between its members.
func (r *renderer) line(e *event.Recorded) {
	from := len(r.b)
	r.event(e)
	if line := r.b[from:]; bytes.ContainsAny(line, "\r\n") {
		r.b = append(r.b[:from], jsondoc.AppendCompact(nil, line)...)
	}
}

func (r *renderer) event(e *event.Recorded) {
	r.raw(`{"id":"`)
	r.raw(e.ID.String())
	r.raw(`"`)
	r.member("type", e.Type)
	r.number("schema_version", uint64(e.SchemaVersion))
	r.raw(`,"sequence":"`)
	r.b = strconv.AppendUint(r.b, uint64(e.Sequence), 10)
	if position, known := r.positions[ports.EventPosition{Partition: e.Partition, Sequence: e.Sequence}]; known {
		r.raw(`","global_position":"`)
		r.b = strconv.AppendUint(r.b, uint64(position), 10)
	}
	r.raw(`","stream":{"type":`)
	r.text(e.Stream.Type)
	r.member("id", e.Stream.ID)
	r.number("version", uint64(e.StreamVersion))
	r.raw(`}`)
	r.time("occurred_at", e.OccurredAt)
	r.time("recorded_at", e.RecordedAt)
	r.member("effective_date", e.EffectiveDate.String())
	r.scope(&e.Scope)
	r.raw(`,"actor":{"type":`)
	r.text(string(e.ActorType))
	r.member("id", e.ActorID)
	r.member("name", e.ActorName)
	if d := e.ActorDetails; len(d) > 2 { // an object's members: on_behalf_of, session_id, trust_level
		r.raw(",")
		r.bytes(d[1 : len(d)-1])
	}
	r.raw(`}`)
	if e.CausedBy != (event.ID{}) {
		r.member("caused_by", e.CausedBy.String())
		r.optional("caused_by_legal_entity", r.entityCodes[e.CausedByPartition])
	}
	r.optional("intent_id", idText(e.IntentID))
	r.member("correlation_id", e.CorrelationID)
	if !r.withoutData {
		r.payload(e)
	}
	r.metadata(e)
	r.raw("}")
}

func (r *renderer) scope(s *event.Scope) {
	r.raw(`,"scope":{"tenant_id":`)
	r.text(s.TenantID)
	r.member("legal_entity", s.LegalEntity)
	r.optional("division", s.Division)
	r.optional("region", s.Region)
	r.optional("site", s.Site)
	if len(s.Custom) > 0 {
		r.raw(`,"custom":`)
		r.bytes(s.Custom)
	}
	r.raw("}")
}

// The names of a payload's members in the store and in answers.
var storedMembers, apiMembers = []string{"data", "dimensions", "entity_refs"}, []string{"data", "dimensions", "entities"}

// payload copies the members of a stored payload under the names of the API.
func (r *renderer) payload(e *event.Recorded) {
	var values [3][]byte
	err := jsondoc.Members(e.Payload, storedMembers, values[:])
	for i, value := range values {
		if (err != nil || value == nil) && r.err == nil {
			r.err = fmt.Errorf("payload of event %s has no %s", e.ID, storedMembers[i])
		}
		r.name(apiMembers[i])
		r.bytes(value)
	}
}

func (r *renderer) metadata(e *event.Recorded) {
	r.raw(`,"metadata":{"rules_evaluated":`)
	if len(e.RulesEvaluated) == 0 {
		r.raw("[]")
	}
	r.bytes(e.RulesEvaluated)
	r.raw(`,"pii":{`)
	for i, path := range slices.Sorted(maps.Keys(e.PII)) {
		if i > 0 {
			r.raw(",")
		}
		r.text(path)
		r.raw(":")
		r.text(e.PII[path])
	}
	r.raw(`},"tags":[`)
	for i, t := range e.Tags {
		if i > 0 {
			r.raw(",")
		}
		r.text(t)
	}
	r.raw(`],"source":{"system":`)
	r.text(e.Source.System)
	r.member("channel", e.Source.Channel)
	r.optional("reference", e.Source.Reference)
	r.raw("}")
	r.member("content_type", "application/json")
	r.member("content_encoding", cmp.Or(e.ContentEncoding, "utf-8"))
	r.hash("checksum", e.Checksum)
	r.hash("payload_hash", e.PayloadHash)
	if e.StoredVersion != 0 {
		r.number("stored_schema_version", uint64(e.StoredVersion))
	}
	r.optional("upcast_error", e.UpcastError)
	if e.Archived {
		r.raw(`,"archived":true`)
	}
	r.redactions(e.Redactions)
	r.raw("}")
}

// redactions tells which values of the data are not those that were recorded.
func (r *renderer) redactions(all []event.Redaction) {
	for i, x := range all {
		r.raw([]string{`,"redactions":[`, ","}[min(i, 1)])
		r.raw(`{"request_id":`)
		r.text(x.RequestID.String())
		r.raw(`,"pointers":[`)
		for j, pointer := range x.Pointers {
			if j > 0 {
				r.raw(",")
			}
			r.text(pointer)
		}
		r.raw("]")
		r.member("redacted_at", timeText(x.At))
		r.raw("}")
	}
	if len(all) > 0 {
		r.raw("]")
	}
}
