// Package pipeline carries an intent from submission to its events: it checks that the
// caller may submit it, validates the payload, lets the module plan, asks the module's
// policy, and parks the intent for approval or appends the planned events. Service is its
// entry: Submit, Approve, Reject, Withdraw and Expire write; Get, List and Segregation read.
// Expiry calls Expire for intents that have waited too long; attempt is one submission or one
// decision, over all retries; StateCache keeps the folded streams that planners read. The HTTP
// API and importers call Service; modules provide planners and policies through application/module. The
// package holds no business rule and takes no locks.
//
// # Planning
//
// A planner runs several times. Its first run in a submission may read cached states that
// are behind the log. That is safe: the versions and conditions that it read go to
// ports.EventAppender, which checks them under its lock. If that check fails, or if cached
// states led to a refusal, the planner runs again on fresh state: at once after a run on
// cached states, else after the next pause of Config.Retries. Decisions and dry runs use
// fresh state only.
//
// # How a submission ends
//
// The row, its events and the idempotency key are written by one append. "executed" has
// events, "pending_approval" has none yet. A refusal is a row whose intent made no events: "denied" if the
// rule submit, the schema, the planner, the policy or the store refused; "failed" if
// conflicts outlasted the retries, or if an error of kind Internal or Timeout stopped the
// intent once planning had begun. No row is written without a decision: if a service was
// Unavailable, the caller's context ended or the idempotency key belongs to another request,
// and for dry runs. If the row of a refusal cannot be written, the caller gets the refusal
// without an intent id, and a warning in the log has the id.
//
// # A parked intent
//
// A parked intent keeps its plan hash and its needs, not its events. It therefore claims no
// business key. Approve plans the stored payload again on fresh state. While needs remain,
// only the approval is recorded; with the last need met, the events are written. A plan with
// another hash replaces the stored hash and needs: the approver gets intent.plan_changed and
// must approve again, earlier approvals still count. If no need of the changed plan is unmet,
// it is executed, because no role could decide on it. The hash covers the policies of all
// modules, so a release that changes one of them changes the hash of every parked intent.
//
// Each write compares the row's revision. Of two decisions at the same moment the second
// fails with intent.changed and is not repeated. Any other fault leaves the row as it was.
// Reject, Withdraw and Expire do not plan, so they also end an intent that can no longer be
// executed, such as one about an erased person or of a disabled module.
//
// # Events about intents
//
// Every outcome but plain execution is an event on the stream intent/<id> (Module declares
// the types), in the append that writes the row. The last event of each append holds a digest
// of the row (intent.Binding), so that a verification finds an edited row.
//
// # Idempotency
//
// A key is reserved on this node while its first request runs, and used once the intent is
// executed or parked. A refusal leaves it free, so that the caller can correct the request.
// A used key is found by the append under its lock or, if planning fails, by refuse. A
// repeated request gets the present outcome of the first intent: "executed" if that was
// parked and has been approved since.
//
// # Personal data
//
// Planners see the payload in clear; the row holds its personal values sealed for their
// subjects (package shredding), and a refused intent's row does not hold them at all.
// Whatever else leaves the planner for the store, a policy or another person must not repeat
// them: facts, rule traces and messages are searched for the values (policy.personal_facts).
// The same holds for sealed values of earlier events, which a planner sees in clear by
// module.State.Open if its intent type declares their class. Of these the submitter is shown
// none either, and the events as they are stored are searched too.
package pipeline
