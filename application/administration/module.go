package administration

import (
	"encoding/json"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/eventtype"
)

// The event types of the administrative log.
const (
	Began              = "backbone.administration.began"
	Adopted            = "backbone.administration.adopted"
	LegalEntityCreated = "backbone.legal_entity.created"
	PrincipalEnrolled  = "backbone.principal.enrolled"
	PrincipalGranted   = "backbone.principal.granted"
	PrincipalReviewed  = "backbone.principal.reviewed"
	PrincipalRevoked   = "backbone.principal.revoked"
	TokenIssued        = "backbone.token.issued"
	TokenRotated       = "backbone.token.rotated"
	TokenExpired       = "backbone.token.expired"
)

// The stream types of the administrative log.
const (
	administrationStream = "backbone.administration"
	legalEntityStream    = "backbone.legal_entity"
	principalStream      = "backbone.principal"
)

// Module declares the event types of the administrative log. It has no intents: the services that
// decide append them through Log.
type Module struct{}

var _ module.Module = Module{}

// Name implements module.Module.
func (Module) Name() string { return "backbone" }

// Register implements module.Module.
func (Module) Register(r *module.Registrar) error {
	r.Prefixes("backbone")
	r.EventType(builtin(Began,
		"The administrative log of the tenant began. Principals and legal entities from before it are in the events before this one.",
		beganSchema, `{"adopted_principals":3,"adopted_legal_entities":2}`))
	r.EventType(builtin(Adopted, "What an earlier release stored about a concern is in the events before this one. A later row that no event supports is forged.",
		adoptedSchema, `{"concern":"webhooks","rows":2}`))
	r.EventType(builtin(LegalEntityCreated, "A legal entity was created, with the partition of the log that holds its events.",
		legalEntitySchema, `{"code":"USMF","name":"Contoso Entertainment System USA","time_zone":"America/Los_Angeles","partition_id":4711,"genesis":"123cf7f2916be9c7bb1af0da600e90662cf4758e52b2243bf6d006753955487c"}`))
	registerPrincipals(r)
	registerNames(r)
	registerPolicies(r)
	registerEventTypes(r)
	registerErasures(r)
	registerRedactions(r)
	registerHolds(r)
	registerKeyEpochs(r)
	registerWebhooks(r)
	registerDisclosures(r)
	registerSubscriptions(r)
	registerProjections(r)
	return nil
}

func builtin(name, description, schema, example string) module.EventType {
	return module.EventType{Registration: eventtype.Registration{
		Type: name, SchemaVersion: 1, Module: "administration", Description: description,
		DataSchema: json.RawMessage(schema), Examples: []json.RawMessage{json.RawMessage(example)},
		RetentionClass: eventtype.Regulatory, MinRetentionYears: retentionYears,
	}}
}

// exampleHash is the SHA-256 in examples.
const exampleHash = "63b29bc1f982232bc81692856ecc49919aefc76c68398a1b2e1a29072ac4415d"

// retentionYears is how long an installation must be able to show who had which rights: the
// books that they could write to are kept as long.
const retentionYears = 10

const beganSchema = `{
  "type": "object",
  "additionalProperties": false,
  "required": ["adopted_principals", "adopted_legal_entities"],
  "properties": {
    "adopted_principals": {"type": "integer", "minimum": 0, "description": "from the directory of an earlier release"},
    "adopted_legal_entities": {"type": "integer", "minimum": 0}
  }
}`

const adoptedSchema = `{
  "type": "object",
  "additionalProperties": false,
  "required": ["concern", "rows"],
  "properties": {
    "concern": {"type": "string", "minLength": 1, "maxLength": 64},
    "rows": {"type": "integer", "minimum": 0}
  }
}`

const legalEntitySchema = `{
  "type": "object",
  "additionalProperties": false,
  "required": ["code", "name", "time_zone", "partition_id", "genesis"],
  "properties": {
    "code": {"type": "string", "minLength": 1, "maxLength": 32},
    "name": {"type": "string", "maxLength": 500, "x-not-pii": "the name of a company"},
    "time_zone": {"type": "string", "maxLength": 100, "description": "IANA name"},
    "partition_id": {"type": "integer", "minimum": 1},
    "genesis": {"type": "string", "pattern": "^[0-9a-f]{64}$", "description": "the checksum that the log of the legal entity begins with"}
  }
}`
