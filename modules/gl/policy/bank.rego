# The policy of bank statements and their matches: it refuses actors without the role. Nothing
# here posts, so no limit applies and nobody approves.
package backbone.rules.gl_bank

import rego.v1

submitters := {
	"gl.import_bank_statement": {"treasurer", "module", "importer"},
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

decision := {"outcome": "allow", "denials": [], "needs": [], "rules": []}
