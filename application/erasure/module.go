package erasure

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/ports"
)

// SubjectErased is the type of the event of an erasure, StreamType the type of its stream,
// whose id is the request's.
const (
	SubjectErased = "pii.subject.erased"
	StreamType    = "pii.erasure"

	payloadRedacted = "pii.payload.redacted" // the event of a redaction, which package redaction appends
)

// retentionYears is how long an installation must be able to prove an erasure.
const retentionYears = 10

// Module declares the event types that the log itself writes about personal data. It has no
// intents: only erasures and redactions that two persons approved append them.
type Module struct{}

var _ module.Module = Module{}

// Name implements module.Module.
func (Module) Name() string { return "pii" }

// Register implements module.Module.
func (Module) Register(r *module.Registrar) error {
	r.Prefixes("pii")
	r.EventType(builtin(SubjectErased,
		"A person's data were erased: the keys of the named retention classes are destroyed, and the sealed values of the person in this log read [REDACTED] from then on.",
		subjectErasedSchema, subjectErasedExample))
	r.EventType(builtin(payloadRedacted,
		"Personal values that were stored in clear in an event's payload were replaced. The event's skeleton is unchanged; this event proves the new payload by its hash.",
		payloadRedactedSchema, payloadRedactedExample))
	return nil
}

func builtin(name, description, schema, example string) module.EventType {
	return module.EventType{Registration: eventtype.Registration{
		Type: name, SchemaVersion: 1, Module: "personal_data", Description: description,
		DataSchema: json.RawMessage(schema), Examples: []json.RawMessage{json.RawMessage(example)},
		RetentionClass: eventtype.Regulatory, MinRetentionYears: retentionYears,
	}}
}

const subjectErasedSchema = `{
  "type": "object",
  "additionalProperties": false,
  "required": ["request_id", "subject", "classes", "refused_classes", "receipt_number", "receipt_sha256"],
  "properties": {
    "request_id": {"type": "string", "pattern": "^[0-9A-HJKMNP-TV-Z]{26}$"},
    "subject": {"type": "string", "maxLength": 128, "description": "canonical type:id, a pseudonym"},
    "classes": {"type": "array", "minItems": 1, "items": {"enum": ["standard", "regulatory", "pii_subject"]}, "description": "retention classes whose keys are destroyed"},
    "refused_classes": {"type": "array", "items": {"enum": ["standard", "regulatory", "pii_subject"]}, "description": "retention classes that must be kept"},
    "receipt_number": {"type": "integer", "minimum": 1},
    "receipt_sha256": {"type": "string", "pattern": "^[0-9a-f]{64}$", "description": "of the signed receipt outside the database"}
  }
}`

const subjectErasedExample = `{"request_id":"01JQ8E6Z6G3V5T8C9N2M4K7R1P","subject":"employee:E-1","classes":["standard","pii_subject"],"refused_classes":["regulatory"],"receipt_number":7,"receipt_sha256":"63b29bc1f982232bc81692856ecc49919aefc76c68398a1b2e1a29072ac4415d"}`

const payloadRedactedSchema = `{
  "type": "object",
  "additionalProperties": false,
  "required": ["redaction_id", "event_id", "sequence", "pointers", "reason", "requested_by", "approved_by", "old_payload_hash", "new_payload_hash"],
  "properties": {
    "redaction_id": {"type": "string", "maxLength": 64},
    "request_id": {"type": "string", "maxLength": 64},
    "event_id": {"type": "string", "pattern": "^[0-9A-HJKMNP-TV-Z]{26}$"},
    "sequence": {"type": "integer", "minimum": 1, "description": "of the redacted event in this log"},
    "pointers": {"type": "array", "minItems": 1, "items": {"type": "string", "maxLength": 1000}, "description": "RFC 6901, in the stored payload"},
    "reason": {"type": "string", "maxLength": 1000},
    "requested_by": {"type": "string", "maxLength": 512, "description": "person id"},
    "approved_by": {"type": "string", "maxLength": 512, "description": "person id"},
    "old_payload_hash": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
    "new_payload_hash": {"type": "string", "pattern": "^[0-9a-f]{64}$"}
  }
}`

const payloadRedactedExample = `{"redaction_id":"01JQ8E6Z6G3V5T8C9N2M4K7R1P","event_id":"01JQ8E6Z6GS8N8424AKGC5EXYC","sequence":42,"pointers":["/data/remark"],"reason":"free text held a private address","requested_by":"person-1","approved_by":"person-2","old_payload_hash":"387c6bc3c7d648ef02e0d18d22adfbd80c52a00c0386b9b53ab78b1dc428e652","new_payload_hash":"63b29bc1f982232bc81692856ecc49919aefc76c68398a1b2e1a29072ac4415d"}`

// erased is the data of SubjectErased.
type erased struct {
	RequestID      event.ID `json:"request_id"`
	Subject        string   `json:"subject"`
	Classes        []string `json:"classes"`
	RefusedClasses []string `json:"refused_classes"`
	ReceiptNumber  uint64   `json:"receipt_number"`
	ReceiptSHA256  string   `json:"receipt_sha256"`
}

// announcement makes the event of one partition. It is the same in every attempt.
func announcement(r ports.ErasureRequest, le ports.LegalEntity, receipt event.Hash) (Announcement, error) {
	data := erased{
		RequestID: r.ID, Subject: r.Subject.String(), Classes: []string{}, RefusedClasses: []string{},
		ReceiptNumber: r.Receipt, ReceiptSHA256: hex.EncodeToString(receipt[:]),
	}
	for _, c := range r.Classes {
		if c.Erased {
			data.Classes = append(data.Classes, c.Class.String())
		} else {
			data.RefusedClasses = append(data.RefusedClasses, c.Class.String())
		}
	}
	encoded, err := json.Marshal(data)
	return Announcement{
		LegalEntity: le,
		Draft: event.Draft{
			Type: SubjectErased, SchemaVersion: 1, OccurredAt: event.Micros(r.DestroyedAt), EffectiveDate: le.Today(r.DestroyedAt),
			Stream: stream(r.ID), CorrelationID: r.ID.String(), Data: json.RawMessage(encoded),
			Source: event.Source{System: "backbone", Channel: "erasure"},
		},
		IdempotencyKey: fmt.Sprintf("erasure:%s:%d", r.ID, le.Partition),
		Fingerprint:    sha256.Sum256(encoded),
	}, err
}

func stream(request event.ID) event.StreamID {
	return event.StreamID{Type: StreamType, ID: request.String()}
}
