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
	PrincipalRevoked   = "backbone.principal.revoked"
	TokenIssued        = "backbone.token.issued"
	TokenRotated       = "backbone.token.rotated"
)

// The stream types of the administrative log.
const (
	administrationStream = "backbone.administration"
	legalEntityStream    = "backbone.legal_entity"
	principalStream      = "backbone.principal"
)

// Module declares the event types of the administrative log. It has no intents: only Log and
// Principals append them.
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
	r.EventType(builtin(PrincipalEnrolled, "A person or a service may call from now on, with these rights.", rightsSchema, rightsExample))
	r.EventType(builtin(PrincipalGranted, "The rights of a principal were replaced by these.", rightsSchema, rightsExample))
	r.EventType(builtin(PrincipalRevoked, "A principal may call no more. Its token is good no longer.",
		revokedSchema, `{"principal_id":"p-0002-1","reason":"left the company"}`))
	r.EventType(builtin(TokenIssued, "A principal received its first access token. Only the hash is known.", tokenSchema, tokenExample))
	r.EventType(builtin(TokenRotated, "A principal received another access token. The one before is good no longer.", tokenSchema, tokenExample))
	registerWebhooks(r)
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

const rightsSchema = `{
  "type": "object",
  "additionalProperties": false,
  "required": ["principal_id", "person_id", "kind", "label", "roles", "legal_entities"],
  "properties": {
    "principal_id": {"type": "string", "minLength": 1, "maxLength": 512, "description": "the login"},
    "person_id": {"type": "string", "minLength": 1, "maxLength": 512, "description": "pseudonymous id of the person or service behind the login"},
    "kind": {"enum": ["human", "system", "external", "agent", "import"]},
    "label": {"type": "string", "maxLength": 512, "description": "what events show as the actor's name"},
    "roles": {"type": "array", "items": {"type": "string", "maxLength": 64}},
    "legal_entities": {"type": "array", "items": {"type": "string", "maxLength": 32}, "description": "none: all of the tenant"},
    "service": {
      "type": "object",
      "additionalProperties": false,
      "required": ["responsible_person", "modules", "contracted_types", "pii_classes", "trust_level"],
      "description": "what a service was enrolled for; absent for a person",
      "properties": {
        "responsible_person": {"type": "string", "minLength": 1, "maxLength": 512, "description": "pseudonymous id of the person who answers for it"},
        "modules": {"type": "array", "items": {"type": "string", "maxLength": 64}},
        "contracted_types": {"type": "array", "items": {"type": "string", "maxLength": 200}},
        "pii_classes": {"type": "array", "items": {"type": "string", "maxLength": 64}},
        "trust_level": {"enum": ["unchecked", "checked", "official"]}
      }
    }
  }
}`

const rightsExample = `{"principal_id":"p-0002-1","person_id":"p-0002","kind":"human","label":"ap_clerk","roles":["ap_clerk"],"legal_entities":["USMF"]}`

const revokedSchema = `{
  "type": "object",
  "additionalProperties": false,
  "required": ["principal_id"],
  "properties": {
    "principal_id": {"type": "string", "minLength": 1, "maxLength": 512},
    "reason": {"type": "string", "maxLength": 1000, "description": "no personal data"}
  }
}`

const tokenSchema = `{
  "type": "object",
  "additionalProperties": false,
  "required": ["principal_id", "token_sha256"],
  "properties": {
    "principal_id": {"type": "string", "minLength": 1, "maxLength": 512},
    "token_sha256": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
    "expires_at": {"type": "string", "format": "date-time", "description": "absent: never"},
    "development": {"type": "boolean", "description": "made by backbone dev; other servers refuse it"}
  }
}`

const tokenExample = `{"principal_id":"p-0002-1","token_sha256":"63b29bc1f982232bc81692856ecc49919aefc76c68398a1b2e1a29072ac4415d","expires_at":"2027-03-31T12:00:00Z"}`
