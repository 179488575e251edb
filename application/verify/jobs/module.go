package jobs

import (
	"encoding/json"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/verify"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
)

// The event types of verifications that were started through the API. Each has a stream of its own.
const (
	Started = "backbone.verification.started"
	Checked = "backbone.verification.checked"
	Ended   = "backbone.verification.ended"
)

const streamType = "backbone.verification"

// streamOf is the stream of a verification.
func streamOf(id event.ID) event.StreamID {
	return event.StreamID{Type: streamType, ID: id.String()}
}

// StartedData is the data of Started.
type StartedData struct {
	LegalEntities []string `json:"legal_entities"`      // in the order in which they are checked
	Events        uint64   `json:"events"`              // in their logs at the start
	WholeTenant   bool     `json:"whole_tenant"`        // also the event types of the tenant, and the receipts of erasures
	OpenKeys      bool     `json:"open_keys,omitempty"` // every key of a person is opened
	// ReferenceSHA256 is the digest of the heads that the log is compared with; "": none.
	ReferenceSHA256 string `json:"reference_sha256,omitempty"`
}

// CheckedData is the data of Checked: the result for one log.
type CheckedData struct {
	LegalEntity       string            `json:"legal_entity"`
	Partition         event.PartitionID `json:"partition_id"`
	Events            uint64            `json:"events"`
	Head              event.Sequence    `json:"head_sequence"`
	Checksum          string            `json:"head_checksum,omitempty"`
	ReferenceSequence *event.Sequence   `json:"reference_sequence,omitempty"`
	Redactions        int               `json:"redactions"`
	Erasures          int               `json:"erasures"`
	UnboundIntents    uint64            `json:"unbound_intents"`
	UnboundNumbers    uint64            `json:"unbound_numbers"`
	UnboundRequests   uint64            `json:"unbound_requests"`
	Policy            *verify.Policy    `json:"policy,omitempty"` // of an administrative log
	Findings          []Finding         `json:"findings"`
	Suppressed        int               `json:"suppressed_findings"`
}

// Finding is one damaged place.
type Finding struct {
	Kind     string         `json:"kind"`
	Sequence event.Sequence `json:"sequence"`
	EventID  string         `json:"event_id,omitempty"`
	Detail   string         `json:"detail"`
}

// EndedData is the data of Ended.
type EndedData struct {
	Outcome    string         `json:"outcome"` // a State other than running
	Findings   int            `json:"findings"`
	Code       string         `json:"code,omitempty"` // of the fault that ended a failed one
	EventTypes []RegistryData `json:"event_types"`
	Erasures   *ErasuresData  `json:"erasures,omitempty"` // nil: not compared
}

// ErasuresData is the result of comparing the receipts of erasures in the export folder, and the
// keys that they name, with the key store.
type ErasuresData struct {
	Finding string `json:"finding,omitempty"` // what is wrong; "": nothing
}

// RegistryData is the result for one registry of event types.
type RegistryData struct {
	Tenant     string    `json:"tenant"` // "": the shared one of the built-in modules
	Changes    int       `json:"changes"`
	Head       int64     `json:"head_change"`
	Checksum   string    `json:"head_checksum,omitempty"`
	Findings   []Finding `json:"findings"`
	Suppressed int       `json:"suppressed_findings"`
}

// draft is an event of a verification.
func draft(eventType string, id event.ID, data any) event.Draft {
	return event.Draft{Type: eventType, SchemaVersion: 1, Stream: streamOf(id), Data: data, Source: event.Source{System: "backbone", Channel: "verification"}}
}

// Module declares the types of the events about verifications. It has no intents: only Service
// appends them, to the administrative log of the tenant.
type Module struct{}

var _ module.Module = Module{}

// Name implements module.Module.
func (Module) Name() string { return "backbone" }

// Register implements module.Module.
func (Module) Register(r *module.Registrar) error {
	r.Prefixes("backbone")
	for _, t := range []struct{ name, description, schema, example string }{
		{Started, "A person or service started a verification of logs through the API.",
			startedSchema, `{"legal_entities":["USMF","_ADMIN"],"events":1204,"whole_tenant":true}`},
		{Checked, "A verification checked one log. The head can be compared with a later one.",
			checkedSchema, `{"legal_entity":"USMF","partition_id":4711,"events":1200,"head_sequence":1200,"head_checksum":"123cf7f2916be9c7bb1af0da600e90662cf4758e52b2243bf6d006753955487c","redactions":0,"erasures":1,"unbound_intents":0,"findings":[],"suppressed_findings":0}`},
		{Ended, "A verification ended. A sound one has found no damage in what it checked.",
			endedSchema, `{"outcome":"sound","findings":0,"event_types":[]}`},
	} {
		r.EventType(module.EventType{Registration: eventtype.Registration{
			Type: t.name, SchemaVersion: 1, Module: "administration", Description: t.description,
			DataSchema: json.RawMessage(t.schema), Examples: []json.RawMessage{json.RawMessage(t.example)},
			RetentionClass: eventtype.Regulatory, MinRetentionYears: retentionYears,
		}})
	}
	return nil
}

// retentionYears is how long an installation must be able to show that its books were verified:
// as long as the books themselves.
const retentionYears = 10

const startedSchema = `{
  "type": "object",
  "additionalProperties": false,
  "required": ["legal_entities", "events", "whole_tenant"],
  "properties": {
    "legal_entities": {"type": "array", "items": {"type": "string", "maxLength": 32}, "description": "_ADMIN is the administrative log"},
    "events": {"type": "integer", "minimum": 0, "description": "in these logs at the start"},
    "whole_tenant": {"type": "boolean", "description": "also the event types of the tenant, and the receipts of erasures"},
    "open_keys": {"type": "boolean", "description": "every key of a person is opened"},
    "reference_sha256": {"type": "string", "pattern": "^[0-9a-f]{64}$", "description": "digest of the heads that the logs are compared with"}
  }
}`

const findingsSchema = `"findings": {
      "type": "array",
      "maxItems": 20,
      "items": {
        "type": "object",
        "additionalProperties": false,
        "required": ["kind", "sequence", "detail"],
        "properties": {
          "kind": {"type": "string", "maxLength": 64},
          "sequence": {"type": "integer"},
          "event_id": {"type": "string", "maxLength": 64},
          "detail": {"type": "string", "maxLength": 1000}
        }
      }
    },
    "suppressed_findings": {"type": "integer", "minimum": 0, "description": "the number of further ones"}`

const checkedSchema = `{
  "type": "object",
  "additionalProperties": false,
  "required": ["legal_entity", "partition_id", "events", "head_sequence", "redactions", "erasures", "unbound_intents", "findings", "suppressed_findings"],
  "properties": {
    "legal_entity": {"type": "string", "maxLength": 32},
    "partition_id": {"type": "integer", "minimum": 0},
    "events": {"type": "integer", "minimum": 0},
    "head_sequence": {"type": "integer", "minimum": 0},
    "head_checksum": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
    "reference_sequence": {"type": "integer", "minimum": 0, "description": "of the earlier head that the log was compared with"},
    "redactions": {"type": "integer", "minimum": 0},
    "erasures": {"type": "integer", "minimum": 0},
    "unbound_intents": {"type": "integer", "minimum": 0, "description": "from before events bound them; the number never grows"},
    "unbound_numbers": {"type": "integer", "minimum": 0, "description": "of series, from before events said which they took; the number never grows"},
    "unbound_requests": {"type": "integer", "minimum": 0, "description": "idempotency keys from before events bound them; they expire"},
    "policy": {
      "type": "object",
      "additionalProperties": false,
      "required": ["sha256", "release", "in_force"],
      "description": "the policies that a node recorded last in an administrative log",
      "properties": {
        "sha256": {"type": "string", "maxLength": 64},
        "release": {"type": "string", "maxLength": 200},
        "in_force": {"type": "boolean", "description": "the node that verified decides by them"}
      }
    },
    ` + findingsSchema + `
  }
}`

const endedSchema = `{
  "type": "object",
  "additionalProperties": false,
  "required": ["outcome", "findings", "event_types"],
  "properties": {
    "outcome": {"enum": ["sound", "tampered", "failed", "cancelled", "interrupted"]},
    "findings": {"type": "integer", "minimum": 0},
    "code": {"type": "string", "maxLength": 100, "description": "of the fault that ended a failed one"},
    "erasures": {
      "type": "object",
      "additionalProperties": false,
      "description": "the comparison of the receipts of erasures with the key store; absent: not compared",
      "properties": {"finding": {"type": "string", "maxLength": 1000, "description": "absent: nothing is wrong"}}
    },
    "event_types": {
      "type": "array",
      "maxItems": 2,
      "items": {
        "type": "object",
        "additionalProperties": false,
        "required": ["tenant", "changes", "head_change", "findings", "suppressed_findings"],
        "properties": {
          "tenant": {"type": "string", "maxLength": 128, "description": "empty: the types of built-in modules"},
          "changes": {"type": "integer", "minimum": 0},
          "head_change": {"type": "integer", "minimum": 0},
          "head_checksum": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
          ` + findingsSchema + `
        }
      }
    }
  }
}`
