# The policy of payment runs and payments. It refuses actors without the role, services that
# approve a run, violations of segregation of duties (S3, S4, S5) and runs over the approval
# limit. It asks another person for approval of postings into soft-closed periods and of voided
# payments. Planners supply input.facts.
package backbone.rules.ap_payments

import rego.v1

approving_roles := ["controller", "cfo"]

permitted := {
	"ap.propose_payment_run": ["ap_clerk", "treasurer"],
	"ap.exclude_payment": ["ap_clerk", "treasurer"],
	"ap.approve_payment_run": approving_roles,
	"ap.reject_payment_run": approving_roles,
	"ap.export_payment_run": ["treasurer"],
	"ap.payment_file": ["treasurer"],
	"ap.execute_payment": ["treasurer", "module"],
	"ap.fail_payment": ["treasurer", "module"],
	"ap.void_payment": ["treasurer"],
	"ap.import_payment_status": ["treasurer"],
}

default submit := {"allow": false, "reason": "none of the actor's roles may submit this intent"}

submit := {"allow": true, "reason": "role"} if may_submit

default may_submit := false

may_submit if {
	some role in input.actor.roles
	role in permitted[input.intent.type]
}

decision := {"outcome": outcome, "denials": denials, "needs": needs, "rules": rules}

outcome := "deny" if {
	count(denials) > 0
} else := "needs_approval" if {
	count(needs) > 0
} else := "allow"

denials := array.concat(
	array.concat(role_denials, service_denials),
	array.concat(array.concat(s3_denials, s4_denials), array.concat(s5_denials, limit_denials)),
)

needs := array.concat(period_needs, second_person_needs)

rules := [
	evaluation("ap.payments.roles", "Roles that may submit the intent", true, role_denials),
	evaluation("ap.payments.service", "A service never approves a payment run", deciding, service_denials),
	evaluation("ap.sod.s3", "S3: who proposed a run does not approve it", deciding, s3_denials),
	evaluation("ap.sod.s4", "S4: who submitted or approved a document does not pay it", paying, s4_denials),
	evaluation("ap.sod.s5", "S5: who requested or approved a bank account does not approve payments to it", deciding, s5_denials),
	evaluation("ap.payment_run.limit", "Approval limit of the role", approving, limit_denials),
	evaluation("ap.period.soft_closed", "Posting into a soft-closed period", posting, period_needs),
	evaluation("ap.payments.second_person", "A second person agrees", voiding, second_person_needs),
]

default deciding := false

deciding if input.intent.type in {"ap.approve_payment_run", "ap.reject_payment_run"}

default approving := false

approving if input.intent.type == "ap.approve_payment_run"

default paying := false

paying if input.intent.type in {"ap.execute_payment", "ap.export_payment_run", "ap.payment_file", "ap.import_payment_status"}

default voiding := false

voiding if input.intent.type == "ap.void_payment"

default posting := false

posting if object.get(input.facts, "period", null) != null

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
	"detail": "a service cannot decide on a payment run; a person has to",
	"attributes": {},
} |
	deciding
	input.facts.service
]

overlapping(name) := [step |
	some step in object.get(input.facts, name, [])
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

# A proposer may take the run back: rejecting it pays nobody.
s3_denials := same_person(
	"S3",
	"you proposed this payment run, so another person has to approve it",
	[step | approving; some step in overlapping("proposers")],
)

s4_denials := same_person(
	"S4",
	"you submitted or approved a document of this payment, so another person has to pay it",
	[step | paying; some step in overlapping("submitters")],
)

s5_denials := same_person(
	"S5",
	"you requested or approved a bank account that this run pays to, so another person has to approve the run",
	[step | approving; some step in overlapping("bank_steps")],
)

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

limit_denials := [{
	"code": "ap.approval.over_limit",
	"kind": "forbidden",
	"detail": sprintf("the payment run is over your approval limit; %s", [who_may]),
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

period_needs := [{
	"roles": ["controller", "cfo"],
	"reason": sprintf("period %s is soft-closed", [input.facts.period.id]),
	"rule_id": "ap.period.soft_closed",
} |
	posting
	input.facts.period.state == "soft_closed"
]

second_person_needs := [{
	"roles": ["treasurer", "controller", "cfo"],
	"reason": "a voided payment takes a second person",
	"rule_id": "ap.payments.second_person",
} |
	voiding
	input.facts.second_person
]
