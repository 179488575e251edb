package administration

import (
	"strings"

	"github.com/erpbackbone/backbone/application/module"
)

func registerPrincipals(r *module.Registrar) {
	for _, t := range []struct{ name, description string }{
		{PrincipalEnrolled, "A person or a service may call from now on, with these rights."},
		{PrincipalGranted, "The rights of a principal were replaced by these."},
	} {
		r.EventType(builtin(t.name, t.description, rightsBefore, rightsExample))
		now := builtin(t.name, t.description, rightsSchema, rightsExample)
		now.SchemaVersion = rightsVersion
		r.EventType(now)
	}
	r.EventType(builtin(PrincipalReviewed, "An administrator reviewed the rights of a principal, and they stay.",
		reviewedSchema, `{"principal_id":"p-0002-1","version":3,"reason":"yearly review"}`))
	r.EventType(builtin(PrincipalRevoked, "A principal may call no more. Its token is good no longer.",
		revokedSchema, `{"principal_id":"p-0002-1","reason":"left the company"}`))
	r.EventType(builtin(TokenIssued, "A principal received its first access token. Only the hash is known.", tokenSchema, tokenExample))
	r.EventType(builtin(TokenRotated, "A principal received another access token. The one before is good no longer.", tokenSchema, tokenExample))
	r.EventType(builtin(TokenExpired, "An access token that has expired was used. Recorded once for a token.",
		expiredSchema, `{"principal_id":"p-0002-1","token_sha256":"`+exampleHash+`","expired_at":"2027-03-31T12:00:00Z"}`))
}

// rightsSchema is rightsBefore with what version 2 added.
var rightsSchema = strings.Replace(rightsBefore, `"service": {`, `"reason": {"type": "string", "maxLength": 1000, "description": "no personal data"},
    "service": {`, 1)

const rightsBefore = `{
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

const tokenExample = `{"principal_id":"p-0002-1","token_sha256":"` + exampleHash + `","expires_at":"2027-03-31T12:00:00Z"}`

const reviewedSchema = `{
  "type": "object",
  "additionalProperties": false,
  "required": ["principal_id", "version", "reason"],
  "properties": {
    "principal_id": {"type": "string", "minLength": 1, "maxLength": 512},
    "version": {"type": "integer", "minimum": 1, "description": "of the principal's stream, with the rights that were reviewed"},
    "reason": {"type": "string", "minLength": 1, "maxLength": 1000, "description": "no personal data"}
  }
}`

const expiredSchema = `{
  "type": "object",
  "additionalProperties": false,
  "required": ["principal_id", "token_sha256", "expired_at"],
  "properties": {
    "principal_id": {"type": "string", "minLength": 1, "maxLength": 512},
    "token_sha256": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
    "expired_at": {"type": "string", "format": "date-time"}
  }
}`
