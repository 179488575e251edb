# The policy of accounts payable. It refuses (denials) actors without the role, services
# that approve or release a hold, violations of segregation of duties and amounts over the
# approval limit. It asks another person for approval (needs) of postings into soft-closed
# periods and of changed settings. Planners supply input.facts.
package backbone.rules.ap

import rego.v1

# --- Roles that may submit an intent at all --------------------------------

approving_roles := ["approver", "controller", "cfo"]

holding_roles := ["ap_clerk", "approver", "controller", "treasurer"]

permitted := {
	"ap.register_vendor": ["vendor_admin", "ap_clerk", "module", "importer"],
	"ap.set_vendor_contact": ["vendor_admin", "ap_clerk"],
	"ap.remove_vendor_contact": ["vendor_admin", "ap_clerk"],
	"ap.draft_invoice": ["ap_clerk", "module"],
	"ap.draft_credit_memo": ["ap_clerk", "module"],
	"ap.discard_draft": ["ap_clerk", "module"],
	"ap.submit_invoice": ["ap_clerk", "module", "importer"],
	"ap.submit_credit_memo": ["ap_clerk", "module", "importer"],
	"ap.validate_invoice": ["ap_clerk", "module"],
	"ap.validate_credit_memo": ["ap_clerk", "module"],
	"ap.correct_invoice": ["ap_clerk"],
	"ap.correct_credit_memo": ["ap_clerk"],
	"ap.reinstate_invoice": ["ap_clerk"],
	"ap.reinstate_credit_memo": ["ap_clerk"],
	"ap.hold_invoice": holding_roles,
	"ap.hold_credit_memo": holding_roles,
	"ap.void_invoice": ["controller"],
	"ap.void_credit_memo": ["controller"],
	"ap.apply_credit": ["ap_clerk"],
	"ap.unapply_credit": ["ap_clerk"],
	"ap.apply_prepayment": ["ap_clerk"],
	"ap.unapply_prepayment": ["ap_clerk"],
	"ap.approve_invoice": approving_roles,
	"ap.approve_credit_memo": approving_roles,
	"ap.reject_invoice": ["approver", "controller"],
	"ap.reject_credit_memo": ["approver", "controller"],
	"ap.release_hold": ["approver", "controller"],
	"ap.configure": ["admin"],
}

default submit := {"allow": false, "reason": "none of the actor's roles may submit this intent"}

submit := {"allow": true, "reason": "role"} if may_submit

default may_submit := false

may_submit if {
	some role in input.actor.roles
	role in permitted[input.intent.type]
}

# --- The decision on a plan ------------------------------------------------

approving if object.get(input.facts, "approval", null) != null

releasing if object.get(input.facts, "hold", null) != null

deciding if approving

deciding if releasing

decision := {"outcome": outcome, "denials": denials, "needs": needs, "rules": rules}

outcome := "deny" if {
	count(denials) > 0
} else := "needs_approval" if {
	count(needs) > 0
} else := "allow"

denials := array.concat(
	array.concat(role_denials, array.concat(service_denials, s1_denials)),
	array.concat(s2_denials, array.concat(s6_denials, limit_denials)),
)

needs := array.concat(period_needs, second_person_needs)

rules := array.concat(
	[evaluation("ap.roles", "Roles that may submit the intent", true, role_denials)],
	[
		evaluation("ap.approval.service", "A service neither approves nor releases a hold", deciding, service_denials),
		evaluation("ap.sod.s1", "S1: who submitted does not approve", approving, s1_denials),
		evaluation("ap.sod.s2", "S2: two approvers differ", approving_again, s2_denials),
		evaluation("ap.sod.s6", "S6: who submitted does not release a hold", releasing, s6_denials),
		evaluation("ap.approval.limit", "Approval limit of the role", approving, limit_denials),
		evaluation("ap.approval.second", "Second approver above the threshold", approving, second_step),
		evaluation("ap.period.soft_closed", "Posting into a soft-closed period", posting, period_needs),
		evaluation("ap.second_person", "A second person agrees", takes_second, second_person_needs),
	],
)

default approving := false

default releasing := false

default deciding := false

default approving_again := false

approving_again if count(object.get(input.facts, "approvers", [])) > 0

default posting := false

posting if object.get(input.facts, "period", null) != null

# second_roles are the roles of the second person whom an intent takes.
second_roles := {
	"ap.configure": ["admin", "controller", "cfo"],
	"ap.void_invoice": ["controller", "cfo"],
	"ap.void_credit_memo": ["controller", "cfo"],
}

default takes_second := false

takes_second if second_roles[input.intent.type]

# evaluation is the trace of a rule: whether it applied to this plan, and its findings.
evaluation(id, name, applies, found) := {
	"rule_id": id,
	"rule_name": name,
	"result": result_of(applies, found),
	"actions_taken": [action_of(f) | some f in found],
}

result_of(false, _) := "not_applicable"

result_of(true, found) := "fired" if count(found) > 0

result_of(true, found) := "condition_false" if count(found) == 0

action_of(f) := concat(" ", ["deny", f.code]) if f.code

action_of(f) := f.reason if f.reason

# --- Roles ------------------------------------------------------------------

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
	"detail": sprintf("a service cannot %s; a person has to", [what]),
	"attributes": {}, # "rule" is for segregation of duties; the trace names ap.approval.service
} |
	input.facts.service
	what := decision_of_person
]

decision_of_person := "approve" if approving

decision_of_person := "release a hold" if releasing

# --- Segregation of duties ---------------------------------------------------

# overlapping lists the earlier steps in which one of the acting persons took part.
overlapping(steps) := [step |
	some step in steps
	some person in step.persons
	person in input.facts.acting
]

same_person(rule, detail, steps) := [{
	"code": "sod.same_person",
	"kind": "forbidden",
	"detail": detail,
	"attributes": {"rule": rule, "earlier_event": steps[0].event_id, "earlier_step": steps[0].step},
} |
	count(steps) > 0
]

s1_denials := same_person(
	"S1",
	"you drafted, submitted or corrected this document, so another person has to approve it",
	[step | approving; some step in overlapping(object.get(input.facts, "submitters", []))],
)

s2_denials := same_person(
	"S2",
	"you approved this document before, so a second person has to approve it",
	[step | approving; some step in overlapping(object.get(input.facts, "approvers", []))],
)

s6_denials := same_person(
	"S6",
	"you drafted, submitted or corrected this document, so another person has to release the hold",
	[step | releasing; some step in overlapping(object.get(input.facts, "submitters", []))],
)

# --- Limits -------------------------------------------------------------------

# within holds for roles whose limit covers the amount. A role without an entry may
# approve no amount; a role whose entry is null may approve any.
within(role) if {
	limit := input.facts.approval.limits[role]
	limit == null
}

within(role) if {
	limit := input.facts.approval.limits[role]
	limit != null
	input.facts.approval.amount <= limit
}

roles_that_may := [role | some role in approving_roles; within(role)]

default covered := false

covered if {
	some role in input.actor.roles
	role in roles_that_may
}

# Of two approvals one has to be covered by its approver's limit; the other may be a
# controller's. So a CFO and a controller together approve what is over the controller's
# limit.
covered if {
	input.facts.approval.steps_required > 1
	"controller" in input.actor.roles
	other_covers
}

# The first of two approvals leaves the covered one to the second approver.
other_covers if {
	input.facts.approval.step < input.facts.approval.steps_required
	count(roles_that_may) > 0
}

other_covers if {
	some step in object.get(input.facts, "approvers", [])
	some role in step.roles
	role in roles_that_may
}

# Approvals from before roles were recorded were all covered.
other_covers if {
	some step in object.get(input.facts, "approvers", [])
	not step.roles
}

limit_denials := [{
	"code": "ap.approval.over_limit",
	"kind": "forbidden",
	"detail": sprintf("the document is over your approval limit; %s", [who_may]),
	"attributes": {
		"amount": sprintf("%v", [input.facts.approval.amount]),
		"currency": input.facts.approval.currency,
		"limits": {role: sprintf("%v", [limit]) |
			some role in input.actor.roles
			role in approving_roles
			limit := input.facts.approval.limits[role]
		},
		"roles_that_may": roles_that_may,
	},
} |
	approving
	not covered
]

default who_may := "no role has a limit that covers it, so raise one with ap.configure"

who_may := sprintf("a person with role %s may approve it", [concat(" or ", roles_that_may)]) if count(roles_that_may) > 0

second_step := [{"reason": sprintf("approval %d of %d", [input.facts.approval.step, input.facts.approval.steps_required])} |
	approving
	input.facts.approval.steps_required > 1
]

# --- Approval by another person ------------------------------------------------

period_needs := [{
	"roles": ["controller", "cfo"],
	"reason": sprintf("period %s is soft-closed", [input.facts.period.id]),
	"rule_id": "ap.period.soft_closed",
} |
	posting
	input.facts.period.state == "soft_closed"
]

second_person_needs := [{
	"roles": second_roles[input.intent.type],
	"reason": "this step takes a second person",
	"rule_id": "ap.second_person",
} |
	takes_second
	input.facts.second_person
]
