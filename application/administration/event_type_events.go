package administration

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
)

// The events about event types. Those of a change have the name of its action: see actionOf.
const (
	EventTypeHistorySealed = "backbone.event_type.history_sealed"
	EventTypesBuiltIn      = "backbone.event_type.built_in"
)

// The streams about event types; a tenant's type has one of its own.
var (
	historySealed = event.StreamID{Type: administrationStream, ID: "event_type_history"}
	builtInTypes  = event.StreamID{Type: administrationStream, ID: "built_in_event_types"}
)

const eventTypeStream = "backbone.event_type"

func typeStreamOf(name string) event.StreamID { return event.StreamID{Type: eventTypeStream, ID: name} }

const (
	actionPrefix     = "registry.type."
	eventTypesPrefix = "backbone.event_type."
)

// eventOf is the event of a change: backbone.event_type.registered of registry.type.registered.
func eventOf(a eventtype.Action) string {
	return eventTypesPrefix + strings.TrimPrefix(string(a), actionPrefix)
}

// actionOf is the change that an event makes, and whether it makes one.
func actionOf(eventType string) (a eventtype.Action, isChange bool) {
	name, _ := strings.CutPrefix(eventType, eventTypesPrefix)
	a = eventtype.Action(actionPrefix + name)
	return a, changeDescriptions[a] != "" && eventOf(a) == eventType
}

// changeDescriptions describe the events of changes.
var changeDescriptions = map[eventtype.Action]string{
	eventtype.ActionRegistered:           "A version of an event type was registered, or a proposed one was confirmed by a second person. The first event of a version has its document.",
	eventtype.ActionProposed:             "A version of an event type was proposed. It takes effect when a second person confirms it.",
	eventtype.ActionRejected:             "What was proposed about a version of an event type was rejected, or withdrawn by the person who had proposed it.",
	eventtype.ActionDeprecationProposed:  "It was proposed that a version of an event type takes no more events.",
	eventtype.ActionDeprecated:           "A version of an event type takes no more events: a second person confirmed it.",
	eventtype.ActionReactivationProposed: "It was proposed that a deprecated version of an event type takes events again.",
	eventtype.ActionReactivated:          "A deprecated version of an event type takes events again: a second person confirmed it.",
	eventtype.ActionAmended:              "A version of an event type got optional members. The event has the document that the version has since.",
	eventtype.ActionAmendmentProposed:    "Optional members of a version of an event type were proposed, which earlier events may hold in another shape. They take effect when a second person confirms them; until then new events must fit them already.",
}

// registerEventTypes declares the events about event types.
func registerEventTypes(r *module.Registrar) {
	r.EventType(builtin(EventTypeHistorySealed,
		"The registry of event types that earlier releases kept ends here. Its chain of changes, and that of the built-in types, have these last changes; what comes later is in events.",
		sealedSchema, `{"last_change":3,"checksum":"`+exampleHash+`","shared_last_change":120,"shared_checksum":"`+exampleHash+`"}`))
	r.EventType(builtin(EventTypesBuiltIn, "Versions of built-in event types that came with a release. They are listed once.",
		builtInSchema, `{"versions":[{"type":"gl.journal.posted","schema_version":1,"document_sha256":"`+exampleHash+`"}]}`))
	for _, a := range []eventtype.Action{
		eventtype.ActionRegistered, eventtype.ActionProposed, eventtype.ActionRejected, eventtype.ActionDeprecationProposed, eventtype.ActionDeprecated,
		eventtype.ActionReactivationProposed, eventtype.ActionReactivated, eventtype.ActionAmended, eventtype.ActionAmendmentProposed,
	} {
		r.EventType(builtin(eventOf(a), changeDescriptions[a], changeSchema,
			`{"type":"equipment.machine.serviced","schema_version":1,"document_sha256":"`+exampleHash+`","reason":"as agreed with the workshop"}`))
	}
}

// sealedData is the data of EventTypeHistorySealed.
type sealedData struct {
	LastChange       int64  `json:"last_change"`
	Checksum         string `json:"checksum"`
	SharedLastChange int64  `json:"shared_last_change"`
	SharedChecksum   string `json:"shared_checksum"`
}

// builtInData is the data of EventTypesBuiltIn.
type builtInData struct {
	Versions []versionData `json:"versions"`
}

type versionData struct {
	Type           string `json:"type"`
	SchemaVersion  uint32 `json:"schema_version"`
	DocumentSHA256 string `json:"document_sha256"`
}

// changeData is the data of the event of a change.
type changeData struct {
	versionData
	// Document is text, not JSON, so that its digest stays that of its bytes.
	Document string `json:"document,omitempty"`
	Reason   string `json:"reason,omitempty"`
}

func changeDraft(c *eventtype.Change, document []byte) event.Draft {
	return draft(eventOf(c.Action), typeStreamOf(c.Type), changeData{versionData{c.Type, c.SchemaVersion, hex.EncodeToString(c.Digest[:])}, string(document), c.Reason})
}

// readChange reads the data of the event of a change. A document must have the digest.
func readChange(data []byte) (c eventtype.Change, document []byte, err error) {
	var d changeData
	if err := json.Unmarshal(data, &d); err != nil {
		return c, nil, err
	}
	digest, err := hex.DecodeString(d.DocumentSHA256)
	if err != nil || len(digest) != sha256.Size {
		return c, nil, errors.New("the digest of the document is malformed")
	}
	c.Type, c.SchemaVersion, c.Reason = d.Type, d.SchemaVersion, d.Reason
	copy(c.Digest[:], digest)
	if d.Document == "" {
		return c, nil, nil
	}
	document = []byte(d.Document)
	if sha256.Sum256(document) != c.Digest {
		return c, nil, errors.New("the document has another digest")
	}
	return c, document, nil
}

const sealedSchema = `{
  "type": "object",
  "additionalProperties": false,
  "required": ["last_change", "checksum", "shared_last_change", "shared_checksum"],
  "properties": {
    "last_change": {"type": "integer", "minimum": 0, "description": "of the tenant's registry; 0: it had none"},
    "checksum": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
    "shared_last_change": {"type": "integer", "minimum": 0, "description": "of the registry of the built-in types"},
    "shared_checksum": {"type": "string", "pattern": "^[0-9a-f]{64}$"}
  }
}`

const versionMembers = `
    "type": {"type": "string", "minLength": 1, "maxLength": 200},
    "schema_version": {"type": "integer", "minimum": 1, "maximum": 32767},
    "document_sha256": {"type": "string", "pattern": "^[0-9a-f]{64}$", "description": "of the stored registration"}`

const builtInSchema = `{
  "type": "object",
  "additionalProperties": false,
  "required": ["versions"],
  "properties": {
    "versions": {
      "type": "array",
      "minItems": 1,
      "items": {"type": "object", "additionalProperties": false, "required": ["type", "schema_version", "document_sha256"], "properties": {` + versionMembers + `}}
    }
  }
}`

const changeSchema = `{
  "type": "object",
  "additionalProperties": false,
  "required": ["type", "schema_version", "document_sha256"],
  "properties": {` + versionMembers + `,
    "document": {"type": "string", "maxLength": 16777216, "x-not-pii": "the registration, with made-up examples", "description": "the registration as JSON text; only in the first event of a version"},
    "reason": {"type": "string", "maxLength": 1000, "description": "no personal data"}
  }
}`
