package ap_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/application/pipeline"
	"github.com/erpbackbone/backbone/application/query"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/modules/ap/contract"
	"github.com/erpbackbone/backbone/ports"
)

type directory struct{ *memory.Directory }

func (d directory) LegalEntity(ctx context.Context, tenantID, code string) (ports.LegalEntity, error) {
	all, err := d.LegalEntities(ctx, tenantID)
	for _, le := range all {
		if le.Code == code {
			return le, err
		}
	}
	return ports.LegalEntity{}, errors.Join(err, errors.ErrUnsupported)
}

// requireTrace checks that the process that the answer names has the intent's events, as the
// process query answers it.
func (b *books) requireTrace(out pipeline.Outcome) {
	b.tb.Helper()
	queries := query.New(query.Config{Log: b.store.Events, Directory: directory{b.store.Directory}, Cursors: query.NewCursorSealer([]byte("key"))})
	process, err := queries.Process(b.tb.Context(), query.ProcessQuery{TenantID: "t", CorrelationID: out.CorrelationID, Limit: 1000})
	require.NoError(b.tb, err, "the answered correlation id")
	found := map[event.ID]bool{}
	for _, e := range process.Events {
		found[e.ID] = true
	}
	for _, e := range out.Events {
		require.True(b.tb, found[e.ID], e.Type)
	}
}

// Each intent of both modules is executed, and the correlation id of its answer finds its events.
// An intent that is added needs a step here.
func TestEveryIntent_AnswersItsProcess(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	executed := map[string]bool{}
	do := func(who, intentType string, payload object) pipeline.Outcome {
		t.Helper()
		out := b.execute(who, intentType, payload)
		require.NotEmpty(t, out.Events, intentType)
		b.requireTrace(out)
		executed[intentType] = true
		return out
	}
	// The books.
	ledger := object{
		"functional_currency": "EUR", "default_dimensions": object{"department": "FIN"}, "second_person": false, "orderly_close": false,
		"posting_profile": object{
			"ap_control": "2000", "input_tax": "1400", "output_tax": "2200", "rounding": "7900", "prepayment": "1200",
			"opening": "3900", "withholding": "2300", "default_expense": "6000", "retained_earnings": "3100",
			"bank": "1010", "due_from": "1200", "due_to": "1200",
		},
	}
	do("admin", "gl.configure_ledger", ledger)
	do("gl_accountant", "gl.define_account", object{"code": "6200", "name": "Rent", "type": "expense"})
	do("gl_accountant", "gl.block_account", object{"code": "6200", "reason": "replaced"})
	do("gl_accountant", "gl.unblock_account", object{"code": "6200", "reason": "needed"})
	do("gl_accountant", "gl.define_dimension_value", object{"dimension": "department", "value": "HR", "name": "Staff"})
	do("controller", "gl.define_fiscal_year", object{"label": "2026", "start": "2026-01-01", "end": "2026-12-31"})
	do("controller", "gl.open_period", object{"module": "gl", "period": "2026-01"})
	do("controller", "gl.close_period", object{"module": "gl", "period": "2026-01", "level": "soft"})
	do("gl_accountant", "gl.change_account", object{"code": "6200", "name": "Renamed", "reason": "clearer"})
	do("controller", "gl.reopen_period", object{"module": "gl", "period": "2026-01", "reason": "late papers"})
	do("module", "gl.set_exchange_rate", object{"from": "USD", "to": "EUR", "date": "2025-03-02", "rate": n("0.93")})
	journal := object{"description": "Rent", "posting_date": "2025-03-15", "lines": []object{
		{"account": "6200", "debit_credit": "debit", "amount": n("10")}, {"account": "1200", "debit_credit": "credit", "amount": n("10")},
	}}
	posted := do("gl_accountant", "gl.post_journal", journal)
	line := object{"account": "1200", "statement_id": "S-1", "line_number": 1}
	do("treasurer", "gl.import_bank_statement", object{
		"account": "1200", "statement_id": "S-1", "currency": "EUR", "statement_date": "2025-03-16", "opening_balance": n("0"), "closing_balance": n("-10"),
		"lines": []object{{"debit_credit": "debit", "amount": n("10"), "booking_date": "2025-03-16"}},
	})
	matched := object{"journal_lines": []object{{"journal_id": posted.Events[0].Stream.ID, "line_number": 2}}}
	maps.Copy(matched, line)
	do("treasurer", "gl.match_bank_line", matched)
	unmatched := object{"reason": "another payment"}
	maps.Copy(unmatched, line)
	do("treasurer", "gl.unmatch_bank_line", unmatched)
	do("treasurer", "gl.discard_bank_statement", object{"account": "1200", "statement_id": "S-1", "reason": "of another account"})
	do("controller", "gl.load_opening_balances", object{"date": "2025-01-01", "lines": journal["lines"]})
	do("gl_accountant", "gl.define_recurring_journal", object{
		"recurring_id": "RENT", "description": "Rent", "schedule": object{"every": "month", "on": "day", "day": 20}, "from": "2025-03-01", "lines": journal["lines"],
	})
	do("module", "gl.run_recurring", object{"through": "2025-03-31"})
	accrual := object{"reversal_date": "2025-03-31"}
	maps.Copy(accrual, journal)
	do("gl_accountant", "gl.post_journal", accrual)
	do("module", "gl.run_due_reversals", object{"through": "2025-03-31"})
	do("gl_accountant", "gl.reverse_journal", object{"journal_id": posted.Events[0].Stream.ID, "reason": "posted twice"})

	// A pair of journals with another legal entity is one process.
	here := b.entity
	there, err := b.store.Directory.CreateLegalEntity(t.Context(), b.otherEntity())
	require.NoError(t, err)
	in := func(le ports.LegalEntity, work func()) {
		b.entity = le
		work()
		b.entity = here
	}
	in(there, func() {
		b.setUp()
		b.execute("admin", "gl.configure_ledger", ledger)
	})
	for _, answer := range []string{"gl.mirror_intercompany", "gl.refuse_intercompany"} {
		begun := do("gl_accountant", "gl.post_intercompany", object{
			"counterparty": there.Code, "description": "Shared cost", "posting_date": "2025-03-15", "amount": n("10"),
			"lines":              []object{{"account": "1200", "debit_credit": "credit", "amount": n("10")}},
			"counterparty_lines": []object{{"account": "1200", "debit_credit": "debit", "amount": n("10")}},
		})
		in(there, func() {
			payload := object{"pair_id": begun.Events[1].Stream.ID, "initiator": here.Code}
			if answer == "gl.refuse_intercompany" {
				payload["reason"] = "not ours"
			}
			require.Equal(t, begun.CorrelationID, do("gl_accountant", answer, payload).CorrelationID)
		})
	}

	// Payables: a document's later intents answer the process that the document began.
	do("admin", "ap.configure", object{"default_terms": object{"net_days": 10}})
	vendor := object{"vendor_id": "V1", "name": "Vendor", "country": "DE", "registration_id": "R1"}
	do("vendor_admin", "ap.register_vendor", vendor)
	do("vendor_admin", "ap.set_vendor_contact", object{"vendor_id": "V1", "contact_id": "C1", "name": "Eva"})
	do("vendor_admin", "ap.remove_vendor_contact", object{"vendor_id": "V1", "contact_id": "C1"})
	do("vendor_admin", "ap.change_vendor", object{"vendor_id": "V1", "country": "AT", "reason": "moved"})
	do("controller", "ap.block_vendor", object{"vendor_id": "V1", "scope": "payment", "reason": "dispute"})
	do("controller", "ap.unblock_vendor", object{"vendor_id": "V1", "scope": "payment", "reason": "settled"})
	for _, verb := range []string{"reject", "approve"} {
		requested := do("ap_clerk", "ap.request_bank_change", bankRequest("V1", nil))
		decision := object{"request_id": b.events(requested)[0].data["request_id"], "verification": "called back"}
		if verb == "reject" {
			decision["reason"] = "not theirs"
		}
		require.Equal(t, requested.CorrelationID, do("vendor_admin", "ap."+verb+"_bank_change", decision).CorrelationID)
	}
	for _, kind := range []string{"invoice", "credit_memo"} {
		submit := func(number string, more object) (string, string) {
			t.Helper()
			out := do("ap_clerk", "ap.submit_"+kind, documentPayload("V1", number, "10", more))
			return out.Events[0].Stream.ID, out.CorrelationID
		}
		approved, process := submit("A", nil)
		require.Equal(t, process, do("approver", "ap.approve_"+kind, object{kind + "_id": approved}).CorrelationID)
		rejected, process := submit("R", nil)
		require.Equal(t, process, do("controller", "ap.reject_"+kind, object{kind + "_id": rejected, "reason": "not ours"}).CorrelationID)
	}
	held := do("ap_clerk", "ap.submit_invoice", documentPayload("V1", "H", "10", object{"payee_differs": true}))
	for _, e := range b.events(held) {
		if id, ok := e.data["hold_id"]; ok {
			require.Equal(t, held.CorrelationID, do("approver", "ap.release_hold", object{"hold_id": id, "reason": "checked"}).CorrelationID)
		}
	}
	for _, kind := range []string{"invoice", "credit_memo"} {
		field := kind + "_id"
		drafted := do("ap_clerk", "ap.draft_"+kind, object{})
		id := drafted.Events[0].Stream.ID
		for _, step := range []struct {
			who, verb string
			payload   object
		}{
			{"ap_clerk", "submit", documentPayload("V1", "L", "10", object{field: id, "invoice_date": "2025-03-14"})},
			{"ap_clerk", "validate", object{field: id}},
			{"approver", "hold", object{field: id, "kind": "DISPUTE", "reason": "broken"}},
			{"ap_clerk", "correct", body(field, id, "11", "typed wrong", object{"invoice_date": "2025-03-14"})},
			{"controller", "void", object{field: id, "reason": "not ours"}},
			{"ap_clerk", "reinstate", body(field, id, "12", "ours", object{"invoice_date": "2025-03-14"})},
		} {
			require.Equal(t, drafted.CorrelationID, do(step.who, "ap."+step.verb+"_"+kind, step.payload).CorrelationID, step.verb)
		}
		discarded := do("ap_clerk", "ap.draft_"+kind, object{}).Events[0].Stream.ID
		do("ap_clerk", "ap.discard_draft", object{field: discarded})
	}
	invoice := b.approved("invoice", documentPayload("V1", "S1", "100", object{"invoice_date": "2025-03-11"}))
	prepayment := b.approved("invoice", documentPayload("V1", "S2", "40", object{"document_type": "prepayment", "invoice_date": "2025-03-12"}))
	memo := b.approved("credit_memo", documentPayload("V1", "S3", "60", object{"invoice_date": "2025-03-13"}))
	apply := object{"credit_memo_id": memo, "invoice_id": prepayment, "amount": n("40")}
	do("ap_clerk", "ap.apply_credit", apply)
	for intentType, p := range map[string]object{
		"ap.apply_credit": {"credit_memo_id": memo, "invoice_id": invoice, "amount": n("20")}, "ap.apply_prepayment": {"prepayment_id": prepayment, "invoice_id": invoice, "amount": n("40")},
	} {
		applied := b.events(do("ap_clerk", intentType, p))[0].data["application_id"]
		do("ap_clerk", strings.Replace(intentType, ".apply", ".unapply", 1), object{"invoice_id": invoice, "application_id": applied, "reason": "wrong one"})
	}
	// Payments continue the process of their run.
	do("admin", "ap.configure", object{"bank_accounts": object{"MAIN": object{"iban": payingIBAN, "currency": "EUR"}}})
	b.execute("gl_accountant", "gl.define_account", object{"code": "1010", "name": "Bank", "type": "asset"})
	for _, decide := range []string{"reject", "approve"} {
		var documents []object
		for i := range 3 {
			id := b.execute("ap_clerk", "ap.submit_invoice", documentPayload("V1", fmt.Sprintf("%s%dP", decide, i), fmt.Sprintf("2%d", i), nil)).Events[0].Stream.ID
			for _, h := range b.document(contract.Invoice, id).Holds {
				b.execute("approver", "ap.release_hold", object{"hold_id": h.ID, "reason": "checked"})
			}
			b.execute("approver", "ap.approve_invoice", object{"invoice_id": id})
			documents = append(documents, object{"invoice_id": id})
		}
		proposed := do("ap_clerk", "ap.propose_payment_run", object{"bank_account": "MAIN", "pay_date": "2025-03-20", "documents": documents[:1]})
		excluded := do("ap_clerk", "ap.propose_payment_run", object{"bank_account": "MAIN", "pay_date": "2025-03-20", "documents": documents[1:2]})
		failed := do("ap_clerk", "ap.propose_payment_run", object{"bank_account": "MAIN", "pay_date": "2025-03-20", "documents": documents[2:]})
		in := func(run pipeline.Outcome, who, intentType string, payload object) {
			t.Helper()
			require.Equal(t, run.CorrelationID, do(who, intentType, payload).CorrelationID, intentType)
		}
		run := func(out pipeline.Outcome) string { return out.Events[0].Stream.ID }
		in(excluded, "treasurer", "ap.exclude_payment", object{"payment_id": run(excluded) + "-P1", "reason": "wait"})
		in(proposed, "controller:carla", "ap."+decide+"_payment_run", object{"run_id": run(proposed)})
		if decide == "reject" {
			continue
		}
		in(failed, "controller:carla", "ap.approve_payment_run", object{"run_id": run(failed)})
		in(proposed, "treasurer", "ap.export_payment_run", object{"run_id": run(proposed)})
		in(proposed, "treasurer", "ap.execute_payment", execution(run(proposed)+"-P1", nil))
		in(proposed, "treasurer", "ap.void_payment", object{"payment_id": run(proposed) + "-P1", "reason": "taken back"})
		in(failed, "treasurer", "ap.import_payment_status", object{"message_id": "BANK-1", "payment_id": run(failed) + "-P1", "status": "PDNG"})
		in(failed, "treasurer", "ap.fail_payment", object{"payment_id": run(failed) + "-P1", "reason_code": "AC01"})
	}
	ordered := do("module", "ap.record_purchase_order", orderPayload(nil))
	received := do("module", "ap.record_goods_receipt", object{"receipt_number": "R1", "po_reference": "PO-1", "lines": []object{{"po_line_reference": "1", "quantity": 1}}})
	require.Equal(t, ordered.CorrelationID, received.CorrelationID)
	do("gl_accountant", "gl.define_allocation", object{"allocation_id": "rent", "description": "Rent", "source": object{"account": "6200"},
		"targets": []object{{"account": "6100", "percent": n("100")}}})
	// These planners read reports, which the memory store has not: the ledger's tests on
	// PostgreSQL execute them.
	readers := []string{"gl.close_year", "gl.reopen_year", "gl.revalue", "gl.run_allocation"}
	for _, intentType := range catalog.IntentTypes() {
		require.True(t, executed[intentType.Type] || slices.Contains(readers, intentType.Type), "%s: execute it here, so that the process of its answer is checked", intentType.Type)
	}

	// An intent that waits, and that another person approves.
	document := do("ap_clerk", "ap.submit_invoice", documentPayload("V1", "W", "12", nil))
	b.execute("controller", "gl.close_period", object{"module": "ap", "period": "2025-03", "level": "soft"})
	b.execute("controller", "gl.close_period", object{"module": "gl", "period": "2025-03", "level": "soft"})
	for _, c := range []struct {
		who, intentType string
		payload         object
		process         string // "": its own
	}{
		{"approver", "ap.approve_invoice", object{"invoice_id": document.Events[0].Stream.ID}, document.CorrelationID},
		{"gl_accountant", "gl.post_journal", journal, ""},
	} {
		waiting, err := b.submit(c.who, c.intentType, c.payload)
		require.NoError(t, err)
		require.Equal(t, intent.PendingApproval, waiting.Status, c.intentType)
		b.requireTrace(waiting)
		done, err := b.decide(caller("controller:carl"), waiting)
		require.NoError(t, err)
		require.Equal(t, intent.Executed, done.Status)
		require.Equal(t, waiting.CorrelationID, done.CorrelationID, "of the answer to the approval")
		if c.process != "" {
			require.Equal(t, c.process, done.CorrelationID, "of the document")
		}
		b.requireTrace(done)
		b.requireProcess(done)
	}
}
