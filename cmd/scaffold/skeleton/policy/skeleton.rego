# Who may add and remove items, and what a manager approves.
package backbone.rules.skeleton

import rego.v1

default may_submit := false

may_submit if {
	some role in ["skeleton_clerk", "skeleton_manager"]
	role in input.actor.roles
}

# Asked before the intent is planned, on its type and the caller's roles alone.
submit := {"allow": may_submit, "reason": "clerks and managers only"}

# Asked on the plan, with its facts.
decision := {"outcome": outcome, "denials": [], "needs": needs, "rules": [{
	"rule_id": "skeleton.quantity", "rule_name": "Large quantities",
	"result": result, "actions_taken": [],
}]}

default large := false

large if input.facts.quantity > 100

needs := [{"roles": ["skeleton_manager"], "reason": "more than 100 pieces", "rule_id": "skeleton.quantity"} | large]

outcome := "needs_approval" if {
	large
} else := "allow"

result := "fired" if {
	large
} else := "condition_false"
