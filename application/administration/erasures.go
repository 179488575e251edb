package administration

import (
	"fmt"
	"strings"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/shredding"
)

// registerErasures declares the events about requests of two persons.
func registerErasures(r *module.Registrar) {
	r.EventType(builtin(shredding.ErasureStream+".requested", "A person requested the erasure of a subject.", erasureSchema, erasureExample("requested")))
	r.EventType(builtin(shredding.ErasureStream+".previewed", "What the erasure concerns was counted, or counted again. It waits for the approval of a second person.", erasureSchema, erasureExample("previewed")))
	r.EventType(builtin(shredding.ErasureStream+".approved", "A second person approved the erasure, for the scope that was previewed. The event of the approval itself has that person as its actor; without it nothing is erased.", erasureSchema, erasureExample("approved")))
	r.EventType(builtin(shredding.ErasureStream+".rejected", "A second person rejected the erasure.", erasureSchema, erasureExample("rejected")))
	r.EventType(builtin(shredding.ErasureStream+".withdrawn", "The erasure was withdrawn.", erasureSchema, erasureExample("withdrawn")))
	r.EventType(builtin(shredding.ErasureStream+".expired", "The approval of the erasure became too old before it was carried out.", erasureSchema, erasureExample("expired")))
	r.EventType(builtin(shredding.ErasureStream+".refused", "A legal hold or a retention forbids the erasure.", erasureSchema, erasureExample("refused")))
	r.EventType(builtin(shredding.ErasureStream+".fenced", "No more personal values of the subject are recorded, in the classes that are erased.", erasureSchema, erasureExample("fenced")))
	r.EventType(builtin(shredding.ErasureStream+".carried_out", "The keys of the subject are destroyed.", erasureSchema, erasureExample("destroyed")))
	r.EventType(builtin(shredding.ErasureStream+".progressed", "The erasure took a step between the destruction and the certificate.", erasureSchema, erasureExample("announced")))
	r.EventType(builtin(shredding.ErasureStream+".certified", "The erasure is verified and its certificate stored. It has the number and the hash of its receipt.", erasureSchema, erasureExample("completed")))
}

// registerRedactions declares the events about requests to redact an event.
func registerRedactions(r *module.Registrar) {
	r.EventType(builtin(shredding.RedactionStream+".requested", "A person requested a redaction of an event, or its preview has changed.", redactionSchema, redactionExample("previewed")))
	r.EventType(builtin(shredding.RedactionStream+".approved", "A second person approved the redaction, for the payload that was previewed. The event of the approval itself has that person as its actor; without it nothing is redacted.", redactionSchema, redactionExample("approved")))
	r.EventType(builtin(shredding.RedactionStream+".rejected", "A second person rejected the redaction.", redactionSchema, redactionExample("rejected")))
	r.EventType(builtin(shredding.RedactionStream+".withdrawn", "The redaction was withdrawn.", redactionSchema, redactionExample("withdrawn")))
	r.EventType(builtin(shredding.RedactionStream+".expired", "The approval of the redaction became too old before it was carried out.", redactionSchema, redactionExample("expired")))
	r.EventType(builtin(shredding.RedactionStream+".refused", "The rules for redactions forbid it.", redactionSchema, redactionExample("refused")))
	r.EventType(builtin(shredding.RedactionStream+".carried_out", "The payload is replaced.", redactionSchema, redactionExample("redacted")))
	r.EventType(builtin(shredding.RedactionStream+".progressed", "The redaction took a step between the replacement and the certificate.", redactionSchema, redactionExample("announced")))
	r.EventType(builtin(shredding.RedactionStream+".certified", "The log is verified and the certificate of the redaction stored.", redactionSchema, redactionExample("completed")))
}

// registerHolds declares the events about legal holds.
func registerHolds(r *module.Registrar) {
	r.EventType(builtin(shredding.HoldPlaced, "A legal hold keeps the data of a subject from being erased.", holdSchema, holdExample))
	r.EventType(builtin(shredding.HoldLifted, "A legal hold was lifted.", holdLiftedSchema, holdLiftedExample))
}

// registerKeyEpochs declares the events about the keys that wrap the keys of persons.
func registerKeyEpochs(r *module.Registrar) {
	for _, e := range []struct{ state, name, description string }{
		{"pending", "created", "The key of the tenant's next epoch was created. Nothing is wrapped with it yet."},
		{"active", "began", "New keys of persons are wrapped with the key of this epoch."},
		{"draining", "drained", "A rotation wraps the keys of this epoch with the next one."},
		{"deleting", "ended", "No key of a person is wrapped with the key of this epoch any more. The key service deletes it."},
		{"deleted", "deleted", "The key service has deleted the key of this epoch. No backup can undo the erasures that its successor covers."},
	} {
		r.EventType(builtin(shredding.EpochStream+"."+e.name, e.description, epochSchema, strings.Replace(epochExample, "active", e.state, 1)))
	}
}

const erasureSchema = `{
  "type": "object",
  "additionalProperties": false,
  "required": ["request_id", "revision", "state", "subject", "legal_entities", "basis", "requested_by", "row_sha256"],
  "properties": {
    "request_id": {"type": "string", "pattern": "^[0-9A-HJKMNP-TV-Z]{26}$"},
    "revision": {"type": "integer", "minimum": 1, "description": "of the request; a move raises it"},
    "state": {"type": "string", "maxLength": 32},
    "subject": {"type": "string", "maxLength": 128, "description": "canonical type:id, a pseudonym"},
    "legal_entities": {"type": "array", "items": {"type": "string", "maxLength": 32}},
    "basis": {"type": "string", "maxLength": 32},
    "requested_by": {"type": "string", "maxLength": 512, "description": "person id"},
    "approved_by": {"type": "string", "maxLength": 512, "description": "person id"},
    "ended_by": {"type": "string", "maxLength": 512, "description": "person id"},
    "scope": {"type": "string", "pattern": "^[0-9a-f]{64}$", "description": "of the preview, to which an approval is bound"},
    "receipt_number": {"type": "integer", "minimum": 1},
    "receipt_sha256": {"type": "string", "pattern": "^[0-9a-f]{64}$", "description": "of the signed receipt outside the database"},
    "row_sha256": {"type": "string", "pattern": "^[0-9a-f]{64}$", "description": "binds the stored request"}
  }
}`

func erasureExample(state string) string {
	return fmt.Sprintf(`{"request_id":"01JQ8E6Z6G3V5T8C9N2M4K7R1P","revision":3,"state":%q,"subject":"employee:E-1","legal_entities":["USMF"],"basis":"gdpr_art_17","requested_by":"p-0002","approved_by":"p-0003","scope":"387c6bc3c7d648ef02e0d18d22adfbd80c52a00c0386b9b53ab78b1dc428e652","row_sha256":"`+exampleHash+`"}`, state)
}

const redactionSchema = `{
  "type": "object",
  "additionalProperties": false,
  "required": ["request_id", "revision", "state", "legal_entity", "event_id", "sequence", "requested_by", "row_sha256"],
  "properties": {
    "request_id": {"type": "string", "pattern": "^[0-9A-HJKMNP-TV-Z]{26}$"},
    "revision": {"type": "integer", "minimum": 1, "description": "of the request; a move raises it"},
    "state": {"type": "string", "maxLength": 32},
    "legal_entity": {"type": "string", "maxLength": 32},
    "event_id": {"type": "string", "pattern": "^[0-9A-HJKMNP-TV-Z]{26}$", "description": "of the event to redact"},
    "sequence": {"type": "integer", "minimum": 1, "description": "of the event to redact"},
    "requested_by": {"type": "string", "maxLength": 512, "description": "person id"},
    "approved_by": {"type": "string", "maxLength": 512, "description": "person id"},
    "ended_by": {"type": "string", "maxLength": 512, "description": "person id"},
    "scope": {"type": "string", "pattern": "^[0-9a-f]{64}$", "description": "of the preview, to which an approval is bound"},
    "row_sha256": {"type": "string", "pattern": "^[0-9a-f]{64}$", "description": "binds the stored request"}
  }
}`

func redactionExample(state string) string {
	return fmt.Sprintf(`{"request_id":"01JQ8E6Z6G3V5T8C9N2M4K7R1P","revision":2,"state":%q,"legal_entity":"USMF","event_id":"01JQ8E6Z6GS8N8424AKGC5EXYC","sequence":42,"requested_by":"p-0002","approved_by":"p-0003","scope":"387c6bc3c7d648ef02e0d18d22adfbd80c52a00c0386b9b53ab78b1dc428e652","row_sha256":"`+exampleHash+`"}`, state)
}

const holdSchema = `{
  "type": "object",
  "additionalProperties": false,
  "required": ["hold_id", "revision", "subject", "reason", "placed_by", "placed_at"],
  "properties": {
    "hold_id": {"type": "string", "pattern": "^[0-9A-HJKMNP-TV-Z]{26}$"},
    "revision": {"type": "integer", "minimum": 1},
    "subject": {"type": "string", "maxLength": 128, "description": "canonical type:id, a pseudonym"},
    "legal_entity": {"type": "string", "maxLength": 32, "description": "absent: all of the tenant"},
    "reason": {"type": "string", "minLength": 1, "maxLength": 1000, "description": "no personal data"},
    "placed_by": {"type": "string", "maxLength": 512, "description": "person id"},
    "placed_at": {"type": "string", "format": "date-time"},
    "until": {"type": "string", "format": "date", "description": "the last day; absent: until it is lifted"}
  }
}`

const holdExample = `{"hold_id":"01JQ8E6Z6G3V5T8C9N2M4K7R1P","revision":1,"subject":"employee:E-1","legal_entity":"USMF","reason":"proceedings 4 O 112/26","placed_by":"p-0002","placed_at":"2026-03-31T10:00:00Z","until":"2027-12-31"}`

const holdLiftedSchema = `{
  "type": "object",
  "additionalProperties": false,
  "required": ["hold_id", "revision", "lifted_by", "lifted_at"],
  "properties": {
    "hold_id": {"type": "string", "pattern": "^[0-9A-HJKMNP-TV-Z]{26}$"},
    "revision": {"type": "integer", "minimum": 1},
    "lifted_by": {"type": "string", "maxLength": 512, "description": "person id"},
    "lifted_at": {"type": "string", "format": "date-time"}
  }
}`

const holdLiftedExample = `{"hold_id":"01JQ8E6Z6G3V5T8C9N2M4K7R1P","revision":2,"lifted_by":"p-0003","lifted_at":"2026-05-04T08:30:00Z"}`

const epochSchema = `{
  "type": "object",
  "additionalProperties": false,
  "required": ["epoch", "revision", "state", "key_id"],
  "properties": {
    "epoch": {"type": "integer", "minimum": 1},
    "revision": {"type": "integer", "minimum": 1, "description": "raised by every change of the state"},
    "state": {"enum": ["pending", "active", "draining", "deleting", "deleted"]},
    "key_id": {"type": "string", "maxLength": 2048, "description": "of the key service"},
    "covers_receipts_to": {"type": "integer", "minimum": 0, "description": "number of the newest receipt when the epoch began: its key never wrapped what these erasures destroyed"}
  }
}`

const epochExample = `{"epoch":2,"revision":2,"state":"active","key_id":"arn:aws:kms:eu-central-1:111122223333:key/1234abcd","covers_receipts_to":7}`
