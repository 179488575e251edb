package verify

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// The export file, format 2: JSON Lines. A header, a line per redaction with its request, a
// line per event in order, a trailer. In format 1 redactions had no requests and events no
// marks of them. docs/hashes.md describes it. The file holds all hashed data
// byte for byte: JSON columns and payloads are strings that hold their text.
const (
	exportFormat  = "backbone/log-export/v2"
	exportFormat1 = "backbone/log-export/v1"
)

const (
	lineHeader    = "header"
	lineRedaction = "redaction"
	lineEvent     = "event"
	lineTrailer   = "trailer"
)

type headerLine struct {
	Kind        string            `json:"kind"`
	Format      string            `json:"format"`
	LogName     string            `json:"log_name"`
	Tenant      string            `json:"tenant_id"`
	LegalEntity string            `json:"legal_entity"`
	Partition   event.PartitionID `json:"partition_id"`
	Genesis     string            `json:"genesis"`
	ExportedAt  time.Time         `json:"exported_at"`
}

type redactionLine struct {
	Kind        string         `json:"kind"`
	ID          event.ID       `json:"redaction_id"`
	Sequence    event.Sequence `json:"sequence"`
	EventID     event.ID       `json:"event_id"`
	Pointers    []string       `json:"pointers"`
	Reason      string         `json:"reason"`
	RequestedBy string         `json:"requested_by"`
	ApprovedBy  string         `json:"approved_by"`
	Old         string         `json:"old_payload_hash"`
	New         string         `json:"new_payload_hash"`
	RedactedAt  time.Time      `json:"redacted_at"`
	Request     *groundsLine   `json:"request,omitempty"`
}

// groundsLine is the stored request of a redaction.
type groundsLine struct {
	State       string         `json:"state"`
	Sequence    event.Sequence `json:"sequence"`
	EventID     event.ID       `json:"event_id"`
	Pointers    []string       `json:"pointers"`
	RequestedBy string         `json:"requested_by"`
	ApprovedBy  string         `json:"approved_by"`
}

type eventLine struct {
	Kind              string            `json:"kind"`
	Sequence          event.Sequence    `json:"sequence"`
	ID                event.ID          `json:"id"`
	Type              string            `json:"type"`
	SchemaVersion     uint32            `json:"schema_version"`
	OccurredAt        time.Time         `json:"occurred_at"`
	RecordedAt        time.Time         `json:"recorded_at"`
	EffectiveDate     event.Date        `json:"effective_date"`
	Tenant            string            `json:"tenant_id"`
	LegalEntity       string            `json:"legal_entity"`
	Division          string            `json:"division,omitempty"`
	Region            string            `json:"region,omitempty"`
	Site              string            `json:"site,omitempty"`
	CustomScopes      string            `json:"custom_scopes,omitempty"` // JSON text
	ActorType         string            `json:"actor_type"`
	ActorID           string            `json:"actor_id"`
	ActorName         string            `json:"actor_name,omitempty"`
	ActorDetails      string            `json:"actor_details,omitempty"` // JSON text
	CausedBy          *event.ID         `json:"caused_by,omitempty"`
	CausedByPartition event.PartitionID `json:"caused_by_partition,omitempty"`
	IntentID          *event.ID         `json:"intent_id,omitempty"`
	CorrelationID     string            `json:"correlation_id"`
	StreamType        string            `json:"stream_type"`
	StreamID          string            `json:"stream_id"`
	StreamVersion     event.Version     `json:"stream_version"`
	Tags              []string          `json:"tags,omitempty"`
	SourceSystem      string            `json:"source_system,omitempty"`
	SourceChannel     string            `json:"source_channel,omitempty"`
	SourceReference   string            `json:"source_reference,omitempty"`
	RulesEvaluated    string            `json:"rules_evaluated,omitempty"` // JSON text
	PII               map[string]string `json:"pii,omitempty"`
	PayloadHash       string            `json:"payload_hash"`
	ContentEncoding   string            `json:"content_encoding,omitempty"`
	Checksum          string            `json:"checksum"`
	Salt              string            `json:"salt,omitempty"`
	Payload           *string           `json:"payload"` // the stored text; null: there is none
	Personal          []personalLine    `json:"personal,omitempty"`
	Redactions        []event.ID        `json:"redactions,omitempty"` // of its payload
}

type personalLine struct {
	Subject  string   `json:"subject"`
	Class    uint8    `json:"key_class"`
	Pointers []string `json:"pointers"`
}

type trailerLine struct {
	Kind       string         `json:"kind"`
	Events     uint64         `json:"events"`
	Redactions int            `json:"redactions"`
	Head       event.Sequence `json:"head_sequence"`
	Checksum   string         `json:"head_checksum"`
	Digest     string         `json:"sha256"` // of all lines before
}

func optionalID(id event.ID) *event.ID {
	if id == (event.ID{}) {
		return nil
	}
	return &id
}

func lineOf(e *event.Recorded, rows []ports.PersonalRow) eventLine {
	l := eventLine{
		Kind: lineEvent, Sequence: e.Sequence, ID: e.ID, Type: e.Type, SchemaVersion: e.SchemaVersion, OccurredAt: e.OccurredAt.UTC(),
		RecordedAt: e.RecordedAt.UTC(), EffectiveDate: e.EffectiveDate, Tenant: e.Scope.TenantID, LegalEntity: e.Scope.LegalEntity,
		Division: e.Scope.Division, Region: e.Scope.Region, Site: e.Scope.Site, CustomScopes: string(e.Scope.Custom),
		ActorType: string(e.ActorType), ActorID: e.ActorID, ActorName: e.ActorName, ActorDetails: string(e.ActorDetails),
		CausedBy: optionalID(e.CausedBy), CausedByPartition: e.CausedByPartition, IntentID: optionalID(e.IntentID), CorrelationID: e.CorrelationID,
		StreamType: e.Stream.Type, StreamID: e.Stream.ID, StreamVersion: e.StreamVersion, Tags: e.Tags,
		SourceSystem: e.Source.System, SourceChannel: e.Source.Channel, SourceReference: e.Source.Reference, RulesEvaluated: string(e.RulesEvaluated),
		PII: e.PII, PayloadHash: hex.EncodeToString(e.PayloadHash[:]), ContentEncoding: e.ContentEncoding, Checksum: hex.EncodeToString(e.Checksum[:]),
	}
	if e.Payload != nil {
		text := string(e.Payload)
		l.Payload, l.Salt = &text, hex.EncodeToString(e.Salt[:])
	}
	for _, r := range rows {
		l.Personal = append(l.Personal, personalLine{r.Subject, r.KeyClass, r.Pointers})
	}
	for _, r := range e.Redactions {
		l.Redactions = append(l.Redactions, r.RequestID)
	}
	return l
}

// recorded decodes the event; false if a hash does not have its length.
func (l *eventLine) recorded(p event.PartitionID) (event.Recorded, []ports.PersonalRow, bool) {
	e := event.Recorded{Skeleton: event.Skeleton{
		Partition: p, Sequence: l.Sequence, ID: l.ID, Type: l.Type, SchemaVersion: l.SchemaVersion, OccurredAt: l.OccurredAt, RecordedAt: l.RecordedAt,
		EffectiveDate: l.EffectiveDate,
		Scope: event.Scope{
			TenantID: l.Tenant, LegalEntity: l.LegalEntity, Division: l.Division, Region: l.Region, Site: l.Site, Custom: json.RawMessage(l.CustomScopes),
		},
		ActorType: event.ActorType(l.ActorType), ActorID: l.ActorID, ActorName: l.ActorName, ActorDetails: json.RawMessage(l.ActorDetails),
		CausedByPartition: l.CausedByPartition, CorrelationID: l.CorrelationID,
		Stream: event.StreamID{Type: l.StreamType, ID: l.StreamID}, StreamVersion: l.StreamVersion, Tags: l.Tags,
		Source:         event.Source{System: l.SourceSystem, Channel: l.SourceChannel, Reference: l.SourceReference},
		RulesEvaluated: json.RawMessage(l.RulesEvaluated), PII: l.PII, ContentEncoding: l.ContentEncoding,
	}}
	if l.CausedBy != nil {
		e.CausedBy = *l.CausedBy
	}
	if l.IntentID != nil {
		e.IntentID = *l.IntentID
	}
	ok := unhex(e.PayloadHash[:], l.PayloadHash) && unhex(e.Checksum[:], l.Checksum)
	if l.Payload != nil {
		e.Payload = []byte(*l.Payload)
		ok = ok && unhex(e.Salt[:], l.Salt)
	}
	for _, id := range l.Redactions {
		e.Redactions = append(e.Redactions, event.Redaction{RequestID: id})
	}
	rows := make([]ports.PersonalRow, len(l.Personal))
	for i, r := range l.Personal {
		rows[i] = ports.PersonalRow{Sequence: l.Sequence, Subject: r.Subject, KeyClass: r.Class, Pointers: r.Pointers}
	}
	return e, rows, ok
}

func unhex(to []byte, text string) bool {
	b, err := hex.DecodeString(text)
	return err == nil && copy(to, b) == len(to) && len(b) == len(to)
}

func lineOfRedaction(r ports.Redaction) redactionLine {
	l := redactionLine{
		lineRedaction, r.ID, r.Sequence, r.EventID, r.Pointers, r.Reason, r.RequestedBy, r.ApprovedBy,
		hex.EncodeToString(r.OldPayloadHash[:]), hex.EncodeToString(r.NewPayloadHash[:]), r.RedactedAt.UTC(), nil,
	}
	if q := r.Request; q != nil {
		l.Request = &groundsLine{string(q.State), q.Sequence, q.EventID, q.Pointers, q.RequestedBy, q.ApprovedBy}
	}
	return l
}

func (l *redactionLine) redaction(p event.PartitionID) (ports.Redaction, bool) {
	r := ports.Redaction{
		ID: l.ID, Partition: p, Sequence: l.Sequence, EventID: l.EventID, Pointers: l.Pointers, Reason: l.Reason,
		RequestedBy: l.RequestedBy, ApprovedBy: l.ApprovedBy, RedactedAt: l.RedactedAt,
	}
	if q := l.Request; q != nil {
		r.Request = &ports.RedactionGrounds{
			State: shredding.RedactionState(q.State), Sequence: q.Sequence, EventID: q.EventID, Pointers: q.Pointers, RequestedBy: q.RequestedBy, ApprovedBy: q.ApprovedBy,
		}
	}
	return r, unhex(r.OldPayloadHash[:], l.Old) && unhex(r.NewPayloadHash[:], l.New)
}

// encodeLine encodes a line in its only valid form.
func encodeLine(line any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(line) // ends with a line feed
	return b.Bytes(), err
}

func decodeLine(text []byte, to any) bool {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	return d.Decode(to) == nil && !d.More()
}
