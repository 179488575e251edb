package administration

import (
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/disclosure"
)

// registerDisclosures declares the events about reads that matter. application/disclosure
// appends them.
func registerDisclosures(r *module.Registrar) {
	r.EventType(builtin(disclosure.AccessRecorded,
		"The reads of a period that the access log holds, by their number and digest: later changes of the access log contradict it.",
		accessRecordedSchema, `{"from":"2026-03-31T11:00:00Z","to":"2026-03-31T12:00:00Z","accesses":17,"sha256":"`+exampleHash+`","deleted_through":0}`))
	r.EventType(builtin(disclosure.Granted, "An auditor may read classes of personal data until a time, each time with a reason.",
		grantedSchema, `{"person_id":"p-0007","classes":["contact"],"until":"2026-04-30T00:00:00Z","reason":"audit of the vendor master 2026"}`))
	r.EventType(builtin(disclosure.Ended, "A grant to an auditor was ended before its time.", endedSchema, `{"reason":"the audit is over"}`))
}

const grantedSchema = `{
  "type": "object",
  "additionalProperties": false,
  "required": ["person_id", "classes", "until", "reason"],
  "properties": {
    "person_id": {"type": "string", "minLength": 1, "maxLength": 512, "description": "pseudonymous id of the auditor"},
    "classes": {"type": "array", "minItems": 1, "maxItems": 6, "items": {"enum": ["contact", "identity", "bank", "tax", "health", "free_text"]}},
    "until": {"type": "string", "format": "date-time", "description": "not included"},
    "reason": {"type": "string", "minLength": 1, "maxLength": 500, "description": "no personal data"}
  }
}`

const endedSchema = `{
  "type": "object",
  "additionalProperties": false,
  "required": ["reason"],
  "properties": {
    "reason": {"type": "string", "minLength": 1, "maxLength": 500, "description": "no personal data"}
  }
}`

const accessRecordedSchema = `{
  "type": "object",
  "additionalProperties": false,
  "required": ["from", "to", "accesses", "sha256", "deleted_through"],
  "properties": {
    "from": {"type": "string", "format": "date-time", "description": "where the period before ended"},
    "to": {"type": "string", "format": "date-time", "description": "not included"},
    "accesses": {"type": "integer", "minimum": 0},
    "sha256": {"type": "string", "pattern": "^[0-9a-f]{64}$", "description": "of the accesses, by time and id"},
    "deleted_through": {"type": "integer", "minimum": 0, "description": "version in this stream of the newest event whose accesses are older than the retention and are deleted; 0: none"}
  }
}`
