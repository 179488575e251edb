# The policy of changes to registered vendors. It refuses actors without the role, and the
# decision on a bank account by the person who requested it, or by a service. Planners supply
# input.facts.
package backbone.rules.ap_vendors

import rego.v1

permitted := {
	"ap.change_vendor": ["vendor_admin"],
	"ap.block_vendor": ["vendor_admin", "controller"],
	"ap.unblock_vendor": ["vendor_admin", "controller"],
	"ap.request_bank_change": ["vendor_admin", "ap_clerk"],
	"ap.approve_bank_change": ["vendor_admin", "controller"],
	"ap.reject_bank_change": ["vendor_admin", "controller"],
}

default submit := {"allow": false, "reason": "none of the actor's roles may submit this intent"}

submit := {"allow": true, "reason": "role"} if may_submit

default may_submit := false

may_submit if {
	some role in input.actor.roles
	role in permitted[input.intent.type]
}

decision := {"outcome": outcome, "denials": denials, "needs": [], "rules": rules}

outcome := "deny" if {
	count(denials) > 0
} else := "allow"

denials := array.concat(role_denials, array.concat(service_denials, s5_denials))

rules := [
	evaluation("ap.vendors.roles", "Roles that may submit the intent", true, role_denials),
	evaluation("ap.bank.service", "A service never decides on a bank account", deciding, service_denials),
	evaluation("ap.sod.s5", "S5: who requested a bank account does not decide on it", deciding, s5_denials),
]

default deciding := false

deciding if input.intent.type in {"ap.approve_bank_change", "ap.reject_bank_change"}

evaluation(id, name, applies, found) := {
	"rule_id": id,
	"rule_name": name,
	"result": result_of(applies, found),
	"actions_taken": [concat(" ", ["deny", f.code]) | some f in found],
}

result_of(false, _) := "not_applicable"

result_of(true, found) := "fired" if count(found) > 0

result_of(true, found) := "condition_false" if count(found) == 0

role_denials := [{
	"code": "intent.forbidden",
	"kind": "forbidden",
	"detail": "none of your roles may submit this intent; ask a person who has the role",
	"attributes": {},
} |
	not may_submit
]

service_denials := [{
	"code": "intent.forbidden",
	"kind": "forbidden",
	"detail": "a service cannot decide on a bank account; a person has to",
	"attributes": {},
} |
	deciding
	input.facts.service
]

s5_denials := [{
	"code": "sod.same_person",
	"kind": "forbidden",
	"detail": "you requested this bank account, so another person has to decide on it",
	"attributes": {"rule": "S5", "earlier_event": step.event_id, "earlier_step": step.step},
} |
	deciding
	step := input.facts.requester
	count({person | some person in step.persons; person in input.facts.acting}) > 0
]
