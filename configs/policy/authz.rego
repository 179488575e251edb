# Who may use which part of the API.
#
# input: {
#   "action":       "intents.submit",
#   "roles":        ["ap_clerk"],
#   "legal_entity": "USMF",            "" when the action concerns none
#   "entitled":     ["USMF"],          the legal entities of the caller, [] for all of the tenant
#   "service":      false,             true for all but persons
#   "modules":      ["hr"],            of a service: those that it is bound to
#   "event_types":  [{"type": "hr.x", "module": "hr", "builtin": false}],  what the action is about
#   "actor":        {"type": "human", "person": "p-1"},                    principals.enroll and those of two persons
#   "requester":    "p-2",             who made the request                those of two persons
#   "enrolment":    {"persons": ["p-2"], "entitlements": [["USMF"]]}       principals.enroll only
# }
#
# events.append is asked twice: without event_types before the body is read, and
# with them before anything is written. erasure.approve and redaction.approve are too:
# without requester before the request is known, and with it before anything is decided. Which intents
# a role may submit or approve is decided by the policies of the modules. principals.enroll
# is asked without enrolment before the body is read, and with it before anything is stored.
#
# pii says which classes of personal data a caller reads in clear; it looks at roles and
# service, and for an auditor at granted, the classes granted for a time. A service reads fewer: see Rights in application/tenancy.
#
# Business roles are declared by modules and arrive as data.roles, by name:
#   {"ap_clerk": {"approves": false, "reads": ["contact"]}}
# All others are named here; a module cannot declare them.
package backbone.authz

business := object.keys(data.roles)

# Those who may decide on intents that wait for approval.
approving := {role | some role, rights in data.roles; rights.approves}

services := {"module", "importer"}

everybody := business | services | {"auditor", "compliance", "compliance_approver", "admin", "operator"}

grants["intents.submit"] := business | services | {"admin"}
grants["intents.approve"] := approving | {"admin"}
grants["sod.read"] := approving | {"admin", "auditor"}
grants["intents.read"] := business | services | {"admin", "auditor"}
grants["events.append"] := {"module"}
grants["events.read"] := business | {"module", "auditor"}
grants["events.export"] := business | {"module", "auditor"}
grants["streams.read"] := business | {"module", "auditor", "admin"}
grants["streams.describe"] := {"module", "admin"}
grants["streams.delete"] := {"module", "admin"}
grants["streams.tombstone"] := {"admin"}
grants["events.subscribe"] := business | {"module", "auditor"}
grants["entities.read"] := business | {"module", "auditor"}
grants["snapshots.read"] := business | {"module", "auditor"}
grants["snapshots.write"] := {"module"}
grants["readmodels.read"] := business | services | {"auditor"}
grants["files.read"] := business
grants["event_types.register"] := {"admin"}
grants["event_types.check"] := {"admin", "module"}
grants["event_types.deprecate"] := {"admin"}
grants["event_types.confirm"] := {"admin"}
grants["event_types.read"] := everybody
grants["projections.read"] := {"admin", "operator", "auditor"}
grants["projections.operate"] := {"admin", "operator"}
grants["projections.define"] := {"admin"}
grants["legal_entities.create"] := {"admin"}
grants["principals.enroll"] := {"admin"}
grants["principals.read"] := {"admin", "auditor"}
grants["principals.names"] := {"auditor"}
grants["legal_entities.read"] := everybody
grants["verifications.run"] := {"auditor", "admin", "operator"}
grants["verifications.read"] := {"auditor", "admin", "operator"}
grants["erasure.request"] := {"compliance"}
grants["erasure.approve"] := {"compliance", "compliance_approver"}
grants["erasure.read"] := {"compliance", "compliance_approver", "auditor"}
grants["redaction.request"] := {"compliance"}
grants["redaction.approve"] := {"compliance", "compliance_approver"}
grants["redaction.read"] := {"compliance", "compliance_approver", "auditor"}
grants["holds.place"] := {"compliance"}
grants["holds.release"] := {"compliance"}
grants["holds.read"] := {"compliance", "compliance_approver", "auditor"}
grants["subscriptions.manage"] := business | {"module", "admin", "operator"}
grants["subscriptions.consume"] := business | {"module", "admin"}
grants["subscriptions.read"] := business | {"module", "auditor", "admin", "operator"}
grants["subscriptions.operate"] := {"admin", "operator"}
grants["webhooks.allow"] := {"admin"}
grants["webhooks.disclose"] := {"compliance"}
grants["access_log.read"] := {"auditor", "compliance"}
grants["disclosures.grant"] := {"compliance"}
grants["papers.keep"] := business | services
grants["papers.read"] := business | {"auditor"}
grants["personal_data.report"] := {"compliance"}
grants["personal_data.search"] := {"compliance", "compliance_approver"}
grants["disclosures.read"] := {"auditor", "compliance", "compliance_approver"}

writes := {
	"intents.submit", "intents.approve", "events.append", "snapshots.write",
	"streams.describe", "streams.delete", "streams.tombstone",
	"event_types.register", "event_types.deprecate", "event_types.confirm", "legal_entities.create", "principals.enroll", "projections.operate", "projections.define",
	"papers.keep", "erasure.request", "erasure.approve", "redaction.request", "redaction.approve", "holds.place", "holds.release",
	"subscriptions.manage", "subscriptions.consume", "subscriptions.operate", "webhooks.allow", "webhooks.disclose", "disclosures.grant",
}

# These concern all legal entities of the tenant.
tenant_wide := {"access_log.read", "disclosures.grant", "disclosures.read", "event_types.register", "event_types.deprecate", "event_types.confirm", "legal_entities.create", "webhooks.allow"}

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
} else := "tenant_wide" if {
	not wide_enough
} else := "event_type" if {
	not types_granted
} else := "module" if {
	not bound
} else := "self" if {
	not for_another
} else := "exceeds" if {
	not within_entitlement
} else := "service" if {
	not human
} else := "same_person" if {
	not second_person
} else := "allowed"

known if grants[input.action]

role_granted if {
	some role in effective_roles
	role in grants[input.action]
}

# Only a service works in the role of one.
effective_roles contains role if {
	some role in input.roles
	not role in services
}

effective_roles contains role if {
	some role in input.roles
	input.service == true
}

# An auditor writes nothing, whatever other roles the same person has.
independent if not "auditor" in input.roles

independent if not input.action in writes

entity_granted if input.legal_entity == ""

entity_granted if {
	is_string(input.legal_entity)
	input.entitled == []
	not administrative_log
}

entity_granted if {
	input.legal_entity in input.entitled
	not administrative_log
}

# The administrative log of the tenant is read by those who answer for all of it, and
# written by no call.
entity_granted if {
	administrative_log
	input.entitled == []
	not input.action in writes
	some role in input.roles
	role in {"auditor", "admin"}
}

administrative_log if input.legal_entity == "_ADMIN"

wide_enough if not input.action in tenant_wide

wide_enough if input.entitled == []

# A service acts on what its modules own. A type without a name is not known yet.
bound if input.service == false

bound if {
	every t in object.get(input, "event_types", []) {
		in_modules(t)
	}
}

in_modules(t) if t.type == ""

in_modules(t) if t.module in input.modules

# An administrator grants nothing to themselves, also not by way of a service that they
# answer for.
for_another if not enrolling

for_another if {
	is_string(input.actor.person)
	is_array(input.enrolment.persons)
	not input.actor.person in input.enrolment.persons
}

within_entitlement if not enrolling

within_entitlement if input.entitled == []

within_entitlement if {
	every entitlement in input.enrolment.entitlements {
		count(entitlement) > 0
		every code in entitlement {
			code in input.entitled
		}
	}
}

enrolling if {
	input.action == "principals.enroll"
	"enrolment" in object.keys(input)
}

types_granted if input.action != "events.append"

types_granted if not "event_types" in object.keys(input)

# Built-in modules write their events through intents only.
types_granted if {
	count(input.event_types) > 0
	every t in input.event_types {
		t.builtin == false
	}
}

# These need a second person.
two_persons := {"erasure.approve", "redaction.approve"}

# Only persons do these: services, and agents for a person, approve nothing. The others show
# personal data of every module, also of those that a service is not bound to.
persons_only := {"intents.approve", "access_log.read", "personal_data.report", "personal_data.search", "principals.names"}

human if not input.action in (two_persons | persons_only)

human if {
	input.action in persons_only
	input.service == false
}

human if {
	input.action in two_persons
	input.actor.type == "human"
}

# Two persons, not two logins.
second_person if not input.action in two_persons

second_person if not "requester" in object.keys(input)

second_person if {
	is_string(input.requester)
	is_string(input.actor.person)
	count({input.requester, input.actor.person} - {""}) == 2
}

classes := {"contact", "identity", "bank", "tax", "health", "free_text"}

# Business roles read personal values of the modules' types as they were declared.
builtin := {role: rights.reads | some role, rights in data.roles}

# Types that no module owns belong to the services that write them.
foreign := {"module": classes}

# These read no personal value by their roles, whatever other roles the same person has.
blind := {"auditor", "compliance", "compliance_approver", "admin", "operator"}

pii := {"builtin": readable(builtin) | granted, "foreign": readable(foreign) | granted}

# What an auditor was granted for a time. That it has not ended is checked before.
granted contains class if {
	"auditor" in input.roles
	input.service == false
	some class in input.granted
	class in classes
}

readable(by_role) := {class |
	sighted
	some role in effective_roles
	some class in by_role[role]
}

# Undefined without roles.
sighted if {
	every role in input.roles {
		not role in blind
	}
}
