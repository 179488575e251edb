package globallog

import (
	"encoding/json"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/eventtype"
)

// LogRestored is the type of the event with which each log begins its part of a new incarnation, and streamType the type
// of its stream, whose id is the incarnation.
const (
	LogRestored = "backbone.log.restored"
	streamType  = "backbone.log"
)

// retentionYears is how long the restores of books must be known.
const retentionYears = 10

// Module declares the event of a new incarnation. It has no intents: only Incarnations appends it.
type Module struct{}

var _ module.Module = Module{}

// Name implements module.Module.
func (Module) Name() string { return "backbone" }

// Register implements module.Module.
func (Module) Register(r *module.Registrar) error {
	r.Prefixes("backbone")
	r.EventType(module.EventType{Registration: eventtype.Registration{
		Type: LogRestored, SchemaVersion: 1, Module: "global_log",
		Description: "The database was restored from a backup. Events that were recorded after the backup are lost; the global log goes on as another incarnation.",
		DataSchema:  json.RawMessage(restoredSchema), Examples: []json.RawMessage{json.RawMessage(restoredExample)},
		RetentionClass: eventtype.Regulatory, MinRetentionYears: retentionYears,
	}})
	return nil
}

const restoredSchema = `{
  "type": "object",
  "additionalProperties": false,
  "required": ["incarnation", "reason", "common_size", "lost_size"],
  "properties": {
    "incarnation": {"type": "integer", "minimum": 2},
    "reason": {"type": "string", "minLength": 1, "maxLength": 1000},
    "common_size": {"type": "integer", "minimum": 0, "description": "events of the last signed checkpoint that this log still has; 0: none"},
    "common_root": {"type": "string", "pattern": "^[0-9a-f]{64}$", "description": "of that checkpoint"},
    "lost_size": {"type": "integer", "minimum": 1, "description": "events of the newest signed checkpoint, which this log does not have"}
  }
}`

const restoredExample = `{"incarnation":2,"reason":"Restored the backup of 1 March after the loss of a disk.","common_size":80412,"common_root":"63b29bc1f982232bc81692856ecc49919aefc76c68398a1b2e1a29072ac4415d","lost_size":80977}`

// restored is the data of LogRestored.
type restored struct {
	Incarnation int    `json:"incarnation"`
	Reason      string `json:"reason"`
	CommonSize  uint64 `json:"common_size"`
	CommonRoot  string `json:"common_root,omitempty"`
	LostSize    uint64 `json:"lost_size"`
}
