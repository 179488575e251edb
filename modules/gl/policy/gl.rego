# The policy of the general ledger. It refuses actors without the role and journals over
# every role's limit. It asks another person for approval (needs) of journals over the
# preparer's limit, of postings into soft-closed periods, and of steps that take a second
# person. Planners supply input.facts.
package backbone.rules.gl

import rego.v1

submitters := {
	"gl.configure_ledger": {"admin"},
	"gl.define_account": {"gl_accountant", "controller"},
	"gl.change_account": {"gl_accountant", "controller"},
	"gl.block_account": {"gl_accountant", "controller"},
	"gl.unblock_account": {"gl_accountant", "controller"},
	"gl.define_dimension_value": {"gl_accountant"},
	"gl.define_fiscal_year": {"controller"},
	"gl.open_period": {"controller"},
	"gl.close_period": {"controller"},
	"gl.reopen_period": {"controller"},
	"gl.close_year": {"controller"},
	"gl.reopen_year": {"controller"},
	"gl.revalue": {"gl_accountant"},
	"gl.define_allocation": {"gl_accountant"},
	"gl.run_allocation": {"gl_accountant"},
	"gl.post_journal": {"gl_accountant", "controller", "module"},
	"gl.reverse_journal": {"gl_accountant", "controller", "module"},
	"gl.load_opening_balances": {"controller"},
	"gl.run_due_reversals": {"gl_accountant", "controller", "module"},
	"gl.define_recurring_journal": {"gl_accountant"},
	"gl.run_recurring": {"gl_accountant", "controller", "module"},
	"gl.post_intercompany": {"gl_accountant", "controller"},
	"gl.mirror_intercompany": {"gl_accountant", "controller", "module"},
	"gl.refuse_intercompany": {"gl_accountant", "controller", "module"},
	"gl.set_exchange_rate": {"gl_accountant", "controller", "module"},
}

default may_submit := false

may_submit if {
	some role in input.actor.roles
	role in submitters[input.intent.type]
}

submit := {"allow": true, "reason": ""} if may_submit

else := {"allow": false, "reason": "the intent is for other roles"}

# Roles that may approve a journal over its preparer's limit. Services are not among them.
reviewers := ["gl_accountant", "controller", "cfo"]

# within holds for roles that may post the journal without an approval. A role without an
# entry may post none; a role whose entry is null may post any.
within(role) if {
	role in object.keys(input.facts.limits)
	input.facts.limits[role] == null
}

within(role) if {
	limit := input.facts.limits[role]
	limit != null
	input.facts.journal.amount <= limit
}

is_journal if input.facts.journal

preparer_within if {
	some role in input.actor.roles
	role in submitters[input.intent.type]
	within(role)
}

over_limit if {
	is_journal
	not preparer_within
}

sufficient := [role | some role in reviewers; within(role)]

# second_roles are the roles whose holder may be the second person of a step: the same role
# as the actor's or a higher one.
default second_roles := []

second_roles := ["admin", "controller", "cfo"] if input.intent.type == "gl.configure_ledger"

second_roles := ["controller", "cfo"] if {
	changes_chart
	"controller" in input.actor.roles
}

second_roles := ["gl_accountant", "controller", "cfo"] if {
	changes_chart
	not "controller" in input.actor.roles
}

second_roles := ["controller", "cfo"] if {
	input.intent.type == "gl.close_period"
	input.facts.close_level == "hard"
}

second_roles := ["controller", "cfo"] if input.intent.type in {
	"gl.reopen_period", "gl.load_opening_balances", "gl.close_year", "gl.reopen_year",
}

# A rate that corrects another one, or is far from the latest one. Its requester may be a
# service, so the second person has one of these roles.
second_roles := reviewers if doubtful_rate

doubtful_rate if input.facts.rate.corrects

doubtful_rate if input.facts.rate.deviates

second_roles := ["gl_accountant", "controller", "cfo"] if input.intent.type == "gl.revalue"

changes_chart if input.intent.type in {"gl.define_account", "gl.change_account", "gl.block_account", "gl.unblock_account"}

second_person if {
	input.facts.second_person
	count(second_roles) > 0
}

late if input.facts.journal.period.state == "soft_closed"

denials contains {
	"code": "gl.journal.over_limit",
	"kind": "forbidden",
	"detail": "the journal is over every role's limit; raise a limit with gl.configure_ledger",
	"attributes": {"amount": sprintf("%v", [input.facts.journal.amount]), "currency": input.facts.journal.currency},
} if {
	over_limit
	count(sufficient) == 0
}

needs contains {
	"roles": sufficient,
	"reason": "the journal is over the preparer's limit; another person whose limit is sufficient approves it",
	"rule_id": "gl.journal.limit",
} if {
	over_limit
	count(sufficient) > 0
}

needs contains {
	"roles": second_roles,
	"reason": "this step takes a second person",
	"rule_id": "gl.second_person",
} if second_person

needs contains {
	"roles": ["controller", "cfo"],
	"reason": sprintf("period %s is softly closed; controller or cfo lets late postings in", [input.facts.journal.period.id]),
	"rule_id": "gl.period.late_posting",
} if late

rules contains traced("gl.journal.limit", "Journal over the preparer's limit", over_limit_result, ["require_approval"])

rules contains traced("gl.second_person", "Second person", second_person_result, ["require_approval"])

rules contains traced("gl.period.late_posting", "Posting into a softly closed period", late_result, ["require_approval"])

default over_limit_result := "not_applicable"

over_limit_result := "fired" if over_limit

over_limit_result := "condition_false" if {
	is_journal
	not over_limit
}

default second_person_result := "not_applicable"

second_person_result := "fired" if second_person

second_person_result := "condition_false" if {
	count(second_roles) > 0
	not second_person
}

default late_result := "not_applicable"

late_result := "fired" if late

late_result := "condition_false" if {
	is_journal
	not late
}

traced(id, name, "fired", actions) := {"rule_id": id, "rule_name": name, "result": "fired", "actions_taken": actions}

traced(id, name, result, _) := {"rule_id": id, "rule_name": name, "result": result, "actions_taken": []} if {
	result != "fired"
}

outcome := "deny" if {
	count(denials) > 0
} else := "needs_approval" if {
	count(needs) > 0
} else := "allow"

# Sets become sorted lists, so that equal input gives an equal decision.
decision := {
	"outcome": outcome,
	"denials": [d | some d in denials],
	"needs": [n | some n in needs],
	"rules": [r | some r in rules],
}
