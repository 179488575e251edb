package papers

import (
	"encoding/json"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/paper"
	"github.com/erpbackbone/backbone/domain/shredding"
)

// retentionYears is how long the law asks for the papers of the books.
const retentionYears = 10

// Module declares the events of papers and the fold by which planners of other modules find them. It has
// no intents: only Service appends them.
type Module struct{}

var _ module.Module = Module{}

// Name implements module.Module.
func (Module) Name() string { return "backbone" }

// Register implements module.Module.
func (Module) Register(r *module.Registrar) error {
	r.Prefixes("backbone")
	kept := module.EventType{Registration: eventtype.Registration{
		Type: paper.Kept, SchemaVersion: 1, Module: "papers", Description: "A paper is kept until its subject is erased. Its bytes are sealed beside the log.",
		DataSchema: json.RawMessage(schema), Examples: []json.RawMessage{json.RawMessage(example)},
		RequiredEntityRefs: []eventtype.RequiredRef{{EntityType: eventtype.AnyEntity, Role: paper.RoleSubject, Cardinality: eventtype.One}},
		PIIFields: []eventtype.PIIField{{
			Path: "$.original", Class: string(shredding.FreeText), Subject: json.RawMessage(`{"entity_role":"` + paper.RoleSubject + `"}`),
		}},
		RetentionClass: eventtype.PIISubject,
	}}
	retained := kept
	retained.Type, retained.Description = paper.Retained, "A paper is kept, and retained as the law asks: an erasure of its subject reaches it after ten years."
	retained.RetentionClass, retained.MinRetentionYears = eventtype.Regulatory, retentionYears
	r.EventType(kept)
	r.EventType(retained)
	r.Fold(module.FoldOf(paper.StreamType, func() *paper.Paper { return &paper.Paper{} }))
	return nil
}

const schema = `{
  "type": "object",
  "additionalProperties": false,
  "required": ["media_type", "size_bytes", "content_sha256", "original"],
  "properties": {
    "media_type": {"type": "string", "maxLength": 100},
    "size_bytes": {"type": "integer", "minimum": 1, "maximum": 20971520},
    "content_sha256": {"type": "string", "pattern": "^[0-9a-f]{64}$", "description": "of the sealed bytes, by which they are stored"},
    "original": {
      "type": "object",
      "additionalProperties": false,
      "required": ["sha256", "secret"],
      "description": "sealed: who may read it may see the paper",
      "properties": {
        "sha256": {"type": "string", "pattern": "^[0-9a-f]{64}$", "description": "of the bytes as they were received"},
        "secret": {"type": "string", "pattern": "^[A-Za-z0-9_-]{43}$", "description": "from which the key of the bytes is derived"}
      }
    }
  }
}`

const example = `{"media_type":"application/pdf","size_bytes":48211,"content_sha256":"63b29bc1f982232bc81692856ecc49919aefc76c68398a1b2e1a29072ac4415d",` +
	`"original":{"sha256":"1eba0a51abc46f003a8395400537475f9d2468b8ae9cf111b20d7631416cd121","secret":"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"}}`
