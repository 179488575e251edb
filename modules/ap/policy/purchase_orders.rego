# The policy of purchase orders and goods receipts. It refuses actors without the role. Planners
# supply input.facts.
package backbone.rules.ap_purchase_orders

import rego.v1

permitted := {
	"ap.record_purchase_order": ["ap_clerk", "module"],
	"ap.record_goods_receipt": ["ap_clerk", "module"],
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

rules := [{
	"rule_id": "ap.purchase_orders.roles",
	"rule_name": "Roles that may submit the intent",
	"result": result,
	"actions_taken": [concat(" ", ["deny", d.code]) | some d in denials],
}]

result := "fired" if count(denials) > 0

result := "condition_false" if count(denials) == 0

denials := [{
	"code": "intent.forbidden",
	"kind": "forbidden",
	"detail": "none of your roles may submit this intent; ask a person who has the role",
	"attributes": {},
} |
	not may_submit
]
