package e2e

import "testing"

// TestDrillBusinessYear lets 16 clients do the business of a year of two legal entities while the
// server is killed, and compares its books with hledger, with a sum over the log and with what
// the clients were told.
func TestDrillBusinessYear(t *testing.T) {
	y := newBusinessYear(t, businessPlan{months: 12, documents: 10_000, kills: 7})
	y.run()
	y.check(checkPlan{known: 10, dates: 10, control: 500, lines: 1000, leastOf: businessIntents})
	judge(t, y.server.Load().DSN)
}

// businessIntents are the intents that a year must have executed.
var businessIntents = []string{
	"ap.submit_invoice", "ap.submit_credit_memo", "ap.draft_invoice", "ap.validate_invoice", "ap.correct_invoice", "ap.hold_invoice", "ap.release_hold",
	"ap.approve_invoice", "ap.approve_credit_memo", "ap.reject_invoice", "ap.void_invoice", "ap.void_credit_memo", "ap.reinstate_invoice",
	"ap.apply_credit", "ap.unapply_credit", "ap.apply_prepayment", "ap.unapply_prepayment",
	"ap.propose_payment_run", "ap.exclude_payment", "ap.approve_payment_run", "ap.reject_payment_run", "ap.export_payment_run",
	"ap.execute_payment", "ap.fail_payment", "ap.void_payment",
	"gl.post_journal", "gl.reverse_journal", "gl.post_intercompany", "gl.mirror_intercompany", "gl.refuse_intercompany",
	"gl.set_exchange_rate", "gl.run_recurring", "gl.run_due_reversals", "gl.run_allocation", "gl.revalue",
	"gl.close_period", "gl.reopen_period", "gl.close_year", "gl.reopen_year",
}
