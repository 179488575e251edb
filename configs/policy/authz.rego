# Who may use which part of the API.
#
# input: {
#   "action":       "intents.submit",
#   "roles":        ["ap_clerk"],
#   "legal_entity": "USMF",            "" when the action concerns none
#   "entitled":     ["USMF"],          the legal entities of the caller, [] for all of the tenant
#   "event_types":  [{"type": "hr.x", "module": "hr", "builtin": false}]   events.append only
# }
#
# events.append is asked twice: without event_types before the body is read, and
# with them before anything is written. Which intents a role may submit or approve
# is decided by the policies of the modules.
package backbone.authz

business := {
	"ap_clerk", "approver", "vendor_admin", "treasurer",
	"gl_accountant", "controller", "cfo",
}

services := {"module", "importer"}

everybody := business | services | {"auditor", "compliance", "compliance_approver", "admin", "operator"}

grants := {
	"intents.submit": business | services | {"admin"},
	"intents.approve": {"approver", "vendor_admin", "treasurer", "gl_accountant", "controller", "cfo", "admin"},
	"intents.read": business | services | {"admin", "auditor"},
	"events.append": {"module"},
	"events.read": business | {"module", "auditor"},
	"readmodels.read": business | services | {"auditor"},
	"event_types.register": {"admin"},
	"event_types.read": everybody,
	"legal_entities.create": {"admin"},
	"legal_entities.read": everybody,
}

writes := {
	"intents.submit", "intents.approve", "events.append",
	"event_types.register", "legal_entities.create",
}

decision := {"allow": reason == "allowed", "reason": reason}

# The first of these that fits. Every check but the last is "not shown to be
# right", so a missing or odd input is refused.
reason := "unknown_action" if {
	not known
} else := "role" if {
	not role_granted
} else := "auditor" if {
	not independent
} else := "legal_entity" if {
	not entity_granted
} else := "event_type" if {
	not types_granted
} else := "allowed"

known if grants[input.action]

role_granted if {
	some role in input.roles
	role in grants[input.action]
}

# An auditor writes nothing, whatever other roles the same person has.
independent if not "auditor" in input.roles

independent if not input.action in writes

entity_granted if input.legal_entity == ""

entity_granted if {
	is_string(input.legal_entity)
	input.entitled == []
}

entity_granted if input.legal_entity in input.entitled

types_granted if input.action != "events.append"

types_granted if not "event_types" in object.keys(input)

# Built-in modules write their events through intents only.
types_granted if {
	count(input.event_types) > 0
	every t in input.event_types {
		t.builtin == false
	}
}
