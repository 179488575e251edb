# The policy of bank statements and their matches: it refuses actors without the role. Nothing
# here posts, so no limit applies. A discard takes what the bank said out of the reconciliation,
# so it takes a second person who does not reconcile.
package backbone.rules.gl_bank

import rego.v1

submitters := {
	"gl.import_bank_statement": {"treasurer", "module", "importer"},
	"gl.discard_bank_statement": {"treasurer"},
	"gl.match_bank_line": {"treasurer", "module"},
	"gl.unmatch_bank_line": {"treasurer", "module"},
}

default may_submit := false

may_submit if {
	some role in input.actor.roles
	role in submitters[input.intent.type]
}

submit := {"allow": true, "reason": ""} if may_submit

else := {"allow": false, "reason": "the intent is for other roles"}

is_discard if input.intent.type == "gl.discard_bank_statement"

second_person if {
	is_discard
	input.facts.second_person
}

needs := [{
	"roles": ["controller", "cfo"],
	"reason": "a statement is taken out of the reconciliation by two persons",
	"rule_id": "gl.bank_statement.discard",
}] if second_person

else := []

rules := [{"rule_id": "gl.bank_statement.discard", "rule_name": "Discard of a bank statement", "result": "fired", "actions_taken": ["require_approval"]}] if second_person

else := [{"rule_id": "gl.bank_statement.discard", "rule_name": "Discard of a bank statement", "result": "condition_false", "actions_taken": []}] if is_discard

else := []

outcome := "needs_approval" if second_person

else := "allow"

decision := {"outcome": outcome, "denials": [], "needs": needs, "rules": rules}
