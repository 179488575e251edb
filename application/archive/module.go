package archive

import (
	"encoding/json"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
)

// The types of the events that say which payloads left the database, and which came back, and the type of their streams.
const (
	PayloadsArchived = "backbone.payloads.archived"
	PayloadsRestored = "backbone.payloads.restored"
	streamType       = "backbone.archive"
)

// retentionYears is how long it must be known where the payloads of books are.
const retentionYears = 10

// Module declares the events of the archive. It has no intents: only Archiver appends them.
type Module struct{}

var _ module.Module = Module{}

// Name implements module.Module.
func (Module) Name() string { return "backbone" }

// Register implements module.Module.
func (Module) Register(r *module.Registrar) error {
	r.Prefixes("backbone")
	r.EventType(module.EventType{Registration: eventtype.Registration{
		Type: PayloadsArchived, SchemaVersion: 1, Module: "archive",
		Description: "Payloads are in a file of the archive. The event is the manifest of the file.",
		DataSchema:  json.RawMessage(archivedSchema), Examples: []json.RawMessage{json.RawMessage(archivedExample)},
		RetentionClass: eventtype.Regulatory, MinRetentionYears: retentionYears,
	}})
	r.EventType(module.EventType{Registration: eventtype.Registration{
		Type: PayloadsRestored, SchemaVersion: 1, Module: "archive",
		Description: "Archived payloads come back into the database.",
		DataSchema:  json.RawMessage(restoredSchema), Examples: []json.RawMessage{json.RawMessage(restoredExample)},
		RetentionClass: eventtype.Regulatory, MinRetentionYears: retentionYears,
	}})
	return nil
}

// The data of PayloadsArchived is an archive.Manifest.
const archivedSchema = `{
  "type": "object",
  "additionalProperties": false,
  "required": ["first_sequence", "last_sequence", "records", "content_hash", "object", "object_sha256", "object_bytes", "lines_bytes"],
  "properties": {
    "first_sequence": {"type": "integer", "minimum": 1},
    "last_sequence": {"type": "integer", "minimum": 1},
    "records": {"type": "integer", "minimum": 1, "maximum": 10000, "description": "payloads in the file; the others of the range stay in the database"},
    "content_hash": {"type": "string", "pattern": "^[0-9a-f]{64}$", "description": "of the sequences and payload hashes"},
    "object": {"type": "string", "minLength": 1, "maxLength": 200, "description": "name of the file in the store of the archive"},
    "object_sha256": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
    "object_bytes": {"type": "integer", "minimum": 1},
    "lines_bytes": {"type": "integer", "minimum": 1, "description": "before compression"}
  }
}`

const archivedExample = `{"first_sequence":1,"last_sequence":9120,"records":9104,"content_hash":"5c0ed2b6a8c67a3b5b6ae26a5c2e13d2a8a8be8d3c88d93e3dfb0ab5a57b6a8d","object":"archive/1048577/000000000001-000000009120-63b29bc1f982232b.jsonl.zst","object_sha256":"63b29bc1f982232bc81692856ecc49919aefc76c68398a1b2e1a29072ac4415d","object_bytes":812345,"lines_bytes":8388608}`

const restoredSchema = `{
  "type": "object",
  "additionalProperties": false,
  "required": ["first_sequence", "last_sequence", "reason"],
  "properties": {
    "first_sequence": {"type": "integer", "minimum": 1},
    "last_sequence": {"type": "integer", "minimum": 1},
    "reason": {"type": "string", "minLength": 1, "maxLength": 1000}
  }
}`

const restoredExample = `{"first_sequence":1,"last_sequence":9120,"reason":"Audit of 2023"}`

// restored is the data of PayloadsRestored.
type restored struct {
	First  event.Sequence `json:"first_sequence"`
	Last   event.Sequence `json:"last_sequence"`
	Reason string         `json:"reason"`
}
