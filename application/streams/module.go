// Package streams manages streams as a whole: it deletes and tombstones them, sets their
// metadata, and stores snapshots of their state for clients.
//
// Service records every change as an event of the stream itself (Module declares the types);
// SnapshotService stores client snapshots; Background takes snapshots of folded states for
// application/pipeline and application/entities. The HTTP API calls the services. The package
// never removes events: deleted and tombstoned streams stay in the log.
package streams

import (
	"encoding/json"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/stream"
)

// Module declares the event types of stream changes. It has no intents; only the log itself
// writes events of its types.
type Module struct{}

var _ module.Module = Module{}

// Name implements module.Module.
func (Module) Name() string { return "stream" }

// Register implements module.Module.
func (Module) Register(r *module.Registrar) error {
	r.Prefixes(stream.EventPrefix)
	r.EventType(builtin(stream.MetadataChanged, "The stream's metadata were replaced. They limit what is read of the stream and who reads and writes it.",
		metadataSchema, `{"metadata":{"max_count":1000,"cache_control":"max-age=60","acl":{"write":["module"]},"custom":{"team":"maintenance"}},"reason":"readings are of interest for a short time"}`))
	r.EventType(builtin(stream.Deleted, "The stream was deleted. Its events stay in the log; the next append begins it anew.", reasonSchema, `{"reason":"machine was sold"}`))
	r.EventType(builtin(stream.Tombstoned, "The stream was ended for good. Its events stay in the log; nothing follows.", reasonSchema, `{"reason":"registered twice"}`))
	r.EventType(builtin(stream.Recreated, "A deleted stream began anew with the append that follows.", reasonSchema, `{}`))
	return nil
}

func builtin(name, description, schema, example string) module.EventType {
	return module.EventType{Registration: eventtype.Registration{
		Type: name, SchemaVersion: 1, Module: "streams", Description: description,
		DataSchema: json.RawMessage(schema), Examples: []json.RawMessage{json.RawMessage(example)},
		RetentionClass: eventtype.Standard,
	}}
}

const reasonSchema = `{
  "type": "object",
  "additionalProperties": false,
  "properties": {
    "reason": {"type": "string", "maxLength": 1000, "description": "no personal data"}
  }
}`

const metadataSchema = `{
  "type": "object",
  "additionalProperties": false,
  "required": ["metadata"],
  "properties": {
    "metadata": {
      "type": "object",
      "additionalProperties": false,
      "properties": {
        "max_age_seconds": {"type": "integer", "minimum": 1},
        "max_count": {"type": "integer", "minimum": 1},
        "cache_control": {"type": "string", "maxLength": 200},
        "acl": {
          "type": "object",
          "additionalProperties": false,
          "properties": {
            "read": {"type": "array", "items": {"type": "string"}},
            "write": {"type": "array", "items": {"type": "string"}},
            "delete": {"type": "array", "items": {"type": "string"}},
            "metadata": {"type": "array", "items": {"type": "string"}}
          }
        },
        "custom": {"type": "object", "description": "no personal data"}
      }
    },
    "reason": {"type": "string", "maxLength": 1000, "description": "no personal data"}
  }
}`

// changeData is the data of all four types.
type changeData struct {
	Metadata *stream.Metadata `json:"metadata,omitempty"`
	Reason   string           `json:"reason,omitempty"`
}
