package ap_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/ports"
)

// body is the payload of a correction or reinstatement of a document of one line.
func body(field, id, amount, reason string, more object) object {
	p := documentPayload("", "", amount, more)
	delete(p, "vendor_id")
	delete(p, "invoice_number")
	p[field], p["reason"] = id, reason
	return p
}

// ledgerBalances sums the journal lines of the books by account, in functional currency: positive
// is a debit balance.
func (b *books) ledgerBalances() map[string]string {
	b.tb.Helper()
	sums := b.balances()
	maps.DeleteFunc(sums, func(key, _ string) bool { return strings.Contains(key, " ") })
	return sums
}

func (b *books) approved(kind string, p object) string {
	b.tb.Helper()
	id := b.execute("ap_clerk", "ap.submit_"+kind, p).Events[0].Stream.ID
	b.execute("approver", "ap.approve_"+kind, object{kind + "_id": id})
	return id
}

func TestDraft(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"invoice", "credit_memo"} {
		b := newBooks(t)
		b.vendor("V1", nil)
		b.vendor("P1", object{"name": nil, "natural_person": true, "person": object{"name": "Eva Lind"}})
		field := kind + "_id"
		first := b.execute("ap_clerk:ann", "ap.draft_"+kind, object{"vendor_id": "V1", "lines": []object{{"line_number": 1, "amount": n("5")}}})
		id := first.Events[0].Stream.ID
		require.Equal(t, []string{"ap." + kind + ".drafted"}, types(b.events(first)))
		again := b.events(b.execute("ap_clerk:ann", "ap.draft_"+kind, object{field: id, "invoice_number": "D-1", "vendor_id": "V1", "vendor_name": "Vendor V1"}))
		require.Equal(t, "Vendor V1", again[0].data["vendor_name"])
		require.Equal(t, id, again[0].Stream.ID)

		// The name of a person, or of who may be one, is in no draft and in no stored intent.
		for _, p := range []object{{"vendor_name": "Eva Lind"}, {"vendor_id": "P1", "vendor_name": "Eva Lind"}} {
			out := b.execute("ap_clerk", "ap.draft_"+kind, p)
			require.NotContains(t, b.events(out)[0].data, "vendor_name")
			stored, _, err := b.pipeline.Get(t.Context(), b.entity, out.IntentID)
			require.NoError(t, err)
			require.NotContains(t, string(stored.Payload), "Eva Lind")
		}

		b.refuse("ap."+kind+".not_found", "ap_clerk", "ap.draft_"+kind, object{field: "01ARZ3NDEKTSV4RRFFQ69G5FAV"})
		submitted := b.execute("ap_clerk:bob", "ap.submit_"+kind, documentPayload("V1", "D-1", "10", object{field: id}))
		require.Equal(t, id, submitted.Events[0].Stream.ID)
		require.Equal(t, first.CorrelationID, submitted.CorrelationID, "the process that the draft began")
		b.refuse("ap."+kind+".wrong_state", "ap_clerk", "ap.draft_"+kind, object{field: id})
		b.refuse("ap."+kind+".wrong_state", "ap_clerk", "ap.discard_draft", object{field: id})
		before := b.head()
		_, err := b.submit("approver:ann", "ap.approve_"+kind, object{field: id})
		require.Equal(t, "S1", b.requireRefusal("sod.same_person", before, err).Attributes["rule"], "the drafter does not approve")
		b.execute("approver", "ap.approve_"+kind, object{field: id})

		discarded := b.execute("ap_clerk", "ap.draft_"+kind, object{}).Events[0].Stream.ID
		b.execute("ap_clerk", "ap.discard_draft", object{field: discarded, "reason": "typed twice"})
		b.refuse("ap."+kind+".wrong_state", "ap_clerk", "ap.submit_"+kind, documentPayload("V1", "D-2", "10", object{field: discarded}))
	}
}

func TestCorrect(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"invoice", "credit_memo"} {
		b := newBooks(t)
		b.vendor("V1", nil)
		field, correct, approve := kind+"_id", "ap.correct_"+kind, "ap.approve_"+kind
		wrong := b.events(b.execute("ap_clerk:ann", "ap.submit_"+kind, documentPayload("V1", "C-1", "10", object{
			"lines": []object{{"line_number": 1, "amount": n("10"), "account": "9999"}},
		})))
		id := wrong[0].Stream.ID
		require.Equal(t, "CODING_INVALID", wrong[1].data["kind"])
		require.Equal(t, object{"line_number": n("1"), "account": "9999", "code": "gl.account.not_found"}, wrong[1].data["finding"])

		corrected := b.execute("ap_clerk:bob", correct, body(field, id, "300000", "wrong account", nil))
		events := b.events(corrected)
		require.Equal(t, []string{"ap." + kind + ".corrected", "ap." + kind + ".hold_released", "ap." + kind + ".validated"}, types(events))
		require.Equal(t, wrong[1].data["hold_id"], events[1].data["hold_id"])
		require.Equal(t, "V1", events[0].data["vendor_id"])
		require.Equal(t, "C-1", events[0].data["invoice_number"])

		// An approval of the earlier body no longer counts.
		require.Equal(t, []string{"ap." + kind + ".approval_recorded"}, types(b.events(b.execute("controller", approve, object{field: id}))))
		b.execute("ap_clerk:bob", correct, body(field, id, "300001", "typed wrong", nil))
		require.Equal(t, []string{"ap." + kind + ".approval_recorded"}, types(b.events(b.execute("controller", approve, object{field: id}))))

		// The persons who submitted or corrected it do not approve.
		for _, person := range []string{"cfo:ann", "cfo:bob"} {
			before := b.head()
			_, err := b.submit(person, approve, object{field: id})
			require.Equal(t, "S1", b.requireRefusal("sod.same_person", before, err).Attributes["rule"], person)
		}
		b.execute("cfo", approve, object{field: id})
		b.refuse("ap."+kind+".wrong_state", "ap_clerk", correct, body(field, id, "1", "too late", nil))
		b.refuse("intent.schema_invalid", "ap_clerk", correct, object{field: id, "invoice_number": "C-2"})
	}
}

// A correction is found by its new figures only.
func TestCorrect_PossibleDuplicates(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.vendor("V1", nil)
	id := b.invoice(documentPayload("V1", "A-1", "10", nil))
	b.execute("ap_clerk", "ap.correct_invoice", body("invoice_id", id, "20", "typed wrong", nil))
	require.Equal(t, "ap.invoice.validated", b.events(b.execute("ap_clerk", "ap.submit_invoice", documentPayload("V1", "B-1", "10", nil)))[1].Type)
	held := b.events(b.execute("ap_clerk", "ap.submit_invoice", documentPayload("V1", "C-1", "20", nil)))
	require.Equal(t, "DUPLICATE_SUSPECT", held[1].data["kind"])
	require.Equal(t, id, held[1].data["finding"].(object)["document_id"])
}

func TestValidate(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"invoice", "credit_memo"} {
		b, document, validate := newBooks(t), "ap."+kind, "ap.validate_"+kind
		b.vendor("V1", nil)
		events := b.events(b.execute("ap_clerk", "ap.submit_"+kind, documentPayload("V1", "A", "119", object{
			"tax_amount": n("19"), "lines": []object{{"line_number": 1, "amount": n("100"), "account": "6200", "tax_group": "S/77"}},
		})))
		id := object{kind + "_id": events[0].Stream.ID}
		require.Equal(t, []string{document + ".submitted", document + ".held", document + ".held"}, types(events))
		require.Equal(t, []any{"CODING_INVALID", "TAX_GROUP_UNKNOWN"}, []any{events[1].data["kind"], events[2].data["kind"]})
		f := b.refuse(document+".on_hold", "ap_clerk", validate, id)
		require.Len(t, f.Attributes["holds"], 2)

		b.execute("gl_accountant", "gl.define_account", object{"code": "6200", "name": "Rent", "type": "expense"})
		require.Equal(t, []string{document + ".hold_released"}, types(b.events(b.execute("ap_clerk", validate, id))))
		// Releasing the hold does not make the tax recoverable.
		b.execute("approver", "ap.release_hold", object{"hold_id": events[2].data["hold_id"], "reason": "looks right"})
		b.refuse("ap."+kind+".tax_group_unknown", "approver", "ap.approve_"+kind, id)
		require.Equal(t, []string{document + ".validated"}, types(b.events(b.execute("ap_clerk", validate, id))), "a released finding is not held again")
	}
}

func TestTaxGroups_UnknownAreHeld(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.vendor("V1", nil)
	line := func(amount, group string) object {
		l := object{"line_number": 1, "amount": n(amount), "account": "5100"}
		if group != "" {
			l["tax_group"] = group
		}
		return l
	}
	two := []object{line("60", "S/7"), line("40", "S/19")}
	two[1]["line_number"] = 2
	for name, c := range map[string]struct {
		more  object
		total string
		hold  bool
	}{
		"no tax":                         {object{}, "100", false},
		"tax without any group":          {object{"tax_amount": n("19"), "lines": []object{line("100", "")}}, "119", true},
		"tax of one known group":         {object{"tax_amount": n("19"), "lines": []object{line("100", "S/19")}}, "119", false},
		"tax of one unknown group":       {object{"tax_amount": n("19"), "lines": []object{line("100", "S/18")}}, "119", true},
		"tax of two groups, not divided": {object{"tax_amount": n("19"), "lines": two}, "119", true},
		"reverse charge, not configured": {object{"tax_amount": n("0"), "lines": []object{line("100", "AE/19")},
			"tax_lines": []object{{"category": "AE", "taxable_amount": n("100"), "tax_amount": n("0"), "tax_group": "AE/19"}}}, "100", true},
		"line of an unknown group without tax": {object{"lines": []object{line("100", "G/0")}}, "100", true},
		"opening item":                         {object{"document_type": "opening", "tax_amount": n("19"), "lines": []object{line("100", "")}}, "119", false},
	} {
		c.more["invoice_date"] = fmt.Sprintf("2025-03-%02d", 1+len(name)%28) // no two look alike
		events := b.events(b.execute("ap_clerk", "ap.submit_invoice", documentPayload("V1", "N"+name, c.total, c.more)))
		held := slices.ContainsFunc(events, func(e recorded) bool { return e.data["kind"] == "TAX_GROUP_UNKNOWN" })
		require.Equal(t, c.hold, held, name)
	}
}

func TestWithholding_VarianceIsHeld(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.vendor("V1", nil)
	for amount, held := range map[string]bool{"10": false, "10.05": false, "10.06": true, "5": true} {
		events := b.events(b.execute("ap_clerk", "ap.submit_invoice", documentPayload("V1", "W"+amount, "100", object{
			"withholding": []object{{"code": "W10", "amount": n(amount)}}, "invoice_date": fmt.Sprintf("2025-03-%02d", 10+len(amount)),
		})))
		found := slices.ContainsFunc(events, func(e recorded) bool { return e.data["kind"] == "WITHHOLDING_VARIANCE" })
		require.Equal(t, held, found, amount)
	}
}

func TestHold_ByPerson(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"invoice", "credit_memo"} {
		b := newBooks(t)
		b.vendor("V1", nil)
		field, hold := kind+"_id", "ap.hold_"+kind
		id := b.execute("ap_clerk:ann", "ap.submit_"+kind, documentPayload("V1", "H", "100", nil)).Events[0].Stream.ID
		b.refuse("ap.hold.reason_required", "approver", hold, object{field: id, "kind": "MANUAL", "reason": " "})
		b.refuse("ap.hold.disputed_amount_invalid", "approver", hold, object{field: id, "kind": "MANUAL", "disputed_amount": n("1"), "reason": "x"})
		b.refuse("ap.hold.disputed_amount_invalid", "approver", hold, object{field: id, "kind": "DISPUTE", "disputed_amount": n("100.01"), "reason": "x"})
		b.refuse("money.scale", "approver", hold, object{field: id, "kind": "DISPUTE", "disputed_amount": n("1.001"), "reason": "x"})
		manual := b.events(b.execute("treasurer", hold, object{field: id, "kind": "MANUAL", "reason": "goods not seen"}))[0]
		dispute := b.events(b.execute("ap_clerk", hold, object{field: id, "kind": "DISPUTE", "disputed_amount": n("40"), "reason": "broken"}))[0]
		require.Equal(t, object{"disputed_amount": n("40"), "currency": "EUR"}, dispute.data["finding"])

		// A new check leaves them alone.
		require.Equal(t, []string{"ap." + kind + ".validated"}, types(b.events(b.execute("ap_clerk", "ap.validate_"+kind, object{field: id}))))
		b.execute("ap_clerk", "ap.correct_"+kind, body(field, id, "100", "better text", object{"description": "Parts"}))
		f := b.refuse("ap."+kind+".on_hold", "approver", "ap.approve_"+kind, object{field: id})
		require.Equal(t, []string{manual.data["hold_id"].(string)}, f.Attributes["holds"], "a dispute does not stop the approval")
		before := b.head()
		_, err := b.submit("controller:ann", "ap.release_hold", object{"hold_id": manual.data["hold_id"], "reason": "seen"})
		require.Equal(t, "S6", b.requireRefusal("sod.same_person", before, err).Attributes["rule"])
		b.execute("approver", "ap.release_hold", object{"hold_id": manual.data["hold_id"], "reason": "seen"})
		b.execute("approver", "ap.approve_"+kind, object{field: id})
		b.execute("treasurer", hold, object{field: id, "kind": "DISPUTE", "reason": "more is broken"})
	}
}

func TestReinstate(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"invoice", "credit_memo"} {
		b := newBooks(t)
		b.vendor("V1", nil)
		field, reinstate := kind+"_id", "ap.reinstate_"+kind
		events := b.events(b.execute("ap_clerk", "ap.submit_"+kind, documentPayload("V1", "R", "100", object{"payee_differs": true})))
		id := events[0].Stream.ID
		b.refuse("ap."+kind+".wrong_state", "ap_clerk", reinstate, body(field, id, "100", "not needed", nil))
		b.execute("controller", "ap.reject_"+kind, object{field: id, "reason": "not ours"})

		// The same paper again is recognised, with what differs, and points to the reinstatement.
		f := b.refuse("ap."+kind+".duplicate", "ap_clerk", "ap.submit_"+kind, documentPayload("V1", "R", "110", object{"invoice_date": "2025-03-16"}))
		require.Equal(t, "rejected", f.Attributes["holder_state"])
		require.Equal(t, []string{"total_amount", "invoice_date"}, f.Attributes["differs"])
		require.Contains(t, f.Detail, reinstate)

		again := b.events(b.execute("ap_clerk", reinstate, body(field, id, "110", "ours after all", nil)))
		require.Equal(t, []string{"ap." + kind + ".reinstated", "ap." + kind + ".validated"}, types(again), "earlier holds ended")
		b.execute("approver", "ap.approve_"+kind, object{field: id})
		require.NotEmpty(t, b.ledgerBalances())

		b.execute("controller", "ap.void_"+kind, object{field: id, "reason": "booked wrong"})
		require.Empty(t, b.ledgerBalances())
		b.execute("ap_clerk", reinstate, body(field, id, "120", "right now", nil))
		b.execute("approver", "ap.approve_"+kind, object{field: id})
		want := map[string]string{"5100": "120.00", "2000": "-120.00"}
		if kind == "credit_memo" {
			want = map[string]string{"5100": "-120.00", "2000": "120.00"}
		}
		require.Equal(t, want, b.ledgerBalances())
	}
}

func TestVoid(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"invoice", "credit_memo"} {
		b := newBooks(t)
		b.vendor("V1", nil)
		field, void := kind+"_id", "ap.void_"+kind
		unposted := b.execute("ap_clerk", "ap.submit_"+kind, documentPayload("V1", "U", "100", nil)).Events[0].Stream.ID
		require.Equal(t, []string{"ap." + kind + ".voided"}, types(b.events(b.execute("controller", void, object{field: unposted, "reason": "not ours"}))))

		id := b.approved(kind, documentPayload("V1", "A", "100", object{"currency": "USD", "invoice_date": "2025-03-16"}))
		b.refuse("gl.journal.reversal_date_invalid", "controller", void, object{field: id, "reason": "x", "posting_date": "2025-03-15"})
		out := b.execute("controller", void, object{field: id, "reason": "twice"})
		events := b.events(out)
		require.Equal(t, []string{"ap." + kind + ".voided", "gl.journal.posted", "gl.journal.reversed"}, types(events))
		require.Equal(t, events[1].data["journal_id"], events[0].data["journal_id"])
		require.Equal(t, events[2].data["journal_id"], events[1].data["reverses_journal_id"])
		require.Equal(t, []any{n("100"), "USD", n("92.45"), "EUR"}, []any{events[0].data["amount"], events[0].data["currency"], events[0].data["functional_amount"], events[0].data["functional_currency"]})
		require.Empty(t, b.ledgerBalances())
		b.refuse("ap."+kind+".wrong_state", "controller", void, object{field: id, "reason": "again"})
		b.refuse("intent.forbidden", "approver", void, object{field: id, "reason": "x"})
		b.refuse("gl.journal.owned_by_module", "gl_accountant", "gl.reverse_journal", object{"journal_id": b.journalOf(b.approved(kind, documentPayload("V1", "B", "7", nil))), "reason": "x"})
	}
}

// A document of which withholding takes everything owes nothing to the vendor, yet it has a
// journal.
func TestVoid_ReversesWithheldDocument(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.vendor("V1", nil)
	id := b.approved("invoice", documentPayload("V1", "ALL", "10", object{"withholding": []object{{"code": "W100", "amount": n("10")}}}))
	require.NotEmpty(t, b.ledgerBalances())
	voided := b.events(b.execute("controller", "ap.void_invoice", object{"invoice_id": id, "reason": "not ours"}))
	require.Equal(t, []string{"ap.invoice.voided", "gl.journal.posted", "gl.journal.reversed"}, types(voided))
	require.Empty(t, b.ledgerBalances())

	free := b.approved("invoice", documentPayload("V1", "FREE", "0", nil))
	require.Equal(t, []string{"ap.invoice.voided"}, types(b.events(b.execute("controller", "ap.void_invoice", object{"invoice_id": free, "reason": "x"}))))
}

// journalOf finds the journal of a posted document.
func (b *books) journalOf(documentID string) string {
	b.tb.Helper()
	for e, err := range module.Events(b.tb.Context(), b.store.Events, ports.EventQuery{Partition: b.entity.Partition}) {
		require.NoError(b.tb, err)
		if e.Stream.ID == documentID && strings.HasSuffix(e.Type, ".posted") {
			return b.event(e.ID).data["journal_id"].(string)
		}
	}
	require.Fail(b.tb, "not posted", documentID)
	return ""
}

// A void takes a second person unless the settings say otherwise.
func TestVoid_TakesSecondPerson(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.vendor("V1", nil)
	b.execute("admin", "ap.configure", object{"second_person": true})
	id := b.approved("invoice", documentPayload("V1", "A", "100", nil))
	out, err := b.submit("controller", "ap.void_invoice", object{"invoice_id": id, "reason": "twice"})
	require.NoError(t, err)
	require.Equal(t, intent.PendingApproval, out.Status)
}

func TestApplyCredit(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.vendor("V1", nil)
	b.vendor("V2", nil)
	invoice := b.approved("invoice", documentPayload("V1", "I", "100", nil))
	memo := b.approved("credit_memo", documentPayload("V1", "M", "60", nil))
	apply := func(amount string, more object) object {
		p := object{"credit_memo_id": memo, "invoice_id": invoice, "amount": n(amount)}
		for k, v := range more {
			p[k] = v
		}
		return p
	}
	foreign := b.approved("invoice", documentPayload("V1", "F", "100", object{"currency": "USD"}))
	other := b.approved("invoice", documentPayload("V2", "O", "100", nil))
	waiting := b.invoice(documentPayload("V1", "S", "11", nil))
	for code, p := range map[string]object{
		"ap.credit_memo.currency_mismatch":    apply("1", object{"invoice_id": foreign}),
		"ap.credit_memo.vendor_mismatch":      apply("1", object{"invoice_id": other}),
		"ap.credit_memo.overapplied":          apply("60.01", nil),
		"ap.application.amount_invalid":       apply("0", nil),
		"money.scale":                         apply("1.001", nil),
		"ap.invoice.wrong_state":              apply("1", object{"invoice_id": waiting}),
		"ap.invoice.not_found":                apply("1", object{"invoice_id": "nothing"}),
		"ap.credit_memo.not_found":            apply("1", object{"credit_memo_id": "nothing"}),
		"ap.application.posting_date_invalid": apply("1", object{"posting_date": "2025-03-14"}),
		"gl.period.not_open":                  apply("1", object{"posting_date": "2025-12-01"}),
	} {
		b.refuse(code, "ap_clerk", "ap.apply_credit", p)
	}
	b.refuse("intent.forbidden", "approver", "ap.apply_credit", apply("1", nil))

	before := b.ledgerBalances()
	first := b.events(b.execute("ap_clerk", "ap.apply_credit", apply("25", nil)))
	require.Equal(t, []string{"ap.credit_memo.applied", "ap.invoice.credit_applied"}, types(first), "both carry it at one rate, so no journal is needed")
	require.Equal(t, n("35"), first[0].data["open_after"])
	require.Equal(t, n("75"), first[1].data["open_after"])
	require.Equal(t, before, b.ledgerBalances())
	second := b.events(b.execute("ap_clerk", "ap.apply_credit", apply("35", nil)))
	require.Equal(t, n("0"), second[0].data["open_after"])
	b.refuse("ap.credit_memo.wrong_state", "ap_clerk", "ap.apply_credit", apply("1", nil))
	f := b.refuse("ap.invoice.has_payments", "controller", "ap.void_invoice", object{"invoice_id": invoice, "reason": "x"})
	require.Equal(t, "60", f.Attributes["applied"])
	b.refuse("ap.credit_memo.has_payments", "controller", "ap.void_credit_memo", object{"credit_memo_id": memo, "reason": "x"})

	// Undone, both are as before.
	for _, e := range [][]recorded{second, first} {
		id := e[0].data["application_id"]
		b.refuse("ap.application.not_found", "ap_clerk", "ap.unapply_credit", object{"invoice_id": other, "application_id": id, "reason": "x"})
		undone := b.events(b.execute("ap_clerk", "ap.unapply_credit", object{"invoice_id": invoice, "application_id": id, "reason": "wrong invoice"}))
		require.Equal(t, []string{"ap.credit_memo.unapplied", "ap.invoice.credit_unapplied"}, types(undone))
		b.refuse("ap.application.not_found", "ap_clerk", "ap.unapply_credit", object{"invoice_id": invoice, "application_id": id, "reason": "x"})
	}
	b.execute("controller", "ap.void_invoice", object{"invoice_id": invoice, "reason": "x"})
	b.execute("controller", "ap.void_credit_memo", object{"credit_memo_id": memo, "reason": "x"})
}

// A credit memo and an invoice that carry the amount at different rates leave a realised exchange
// difference, and part applications leave nothing behind.
func TestApplyCredit_ExchangeDifference(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.vendor("V1", nil)
	invoice := b.approved("invoice", documentPayload("V1", "I", "100", object{"currency": "USD"})) // 92.45 EUR
	b.execute("module", "gl.set_exchange_rate", object{"from": "USD", "to": "EUR", "date": "2025-03-16", "rate": n("0.9")})
	memo := b.approved("credit_memo", documentPayload("V1", "M", "100", object{"currency": "USD", "invoice_date": "2025-03-17"})) // 90.00 EUR
	apply := func(amount string) []recorded {
		return b.events(b.execute("ap_clerk", "ap.apply_credit", object{"credit_memo_id": memo, "invoice_id": invoice, "amount": n(amount)}))
	}
	first := apply("33.33")
	require.Equal(t, []string{"ap.credit_memo.applied", "gl.journal.posted", "ap.invoice.credit_applied"}, types(first))
	require.Equal(t, []string{"debit 2000 33.33 USD", "credit 2000 33.33 USD", "credit 7000 0 USD"}, shortLines(first[1]))
	require.Equal(t, n("30.00"), first[0].data["functional_amount"])
	require.Equal(t, n("30.81"), first[2].data["functional_amount"])
	require.Equal(t, first[1].data["journal_id"], first[2].data["journal_id"])
	second := apply("66.67")
	require.Equal(t, n("60.00"), second[0].data["functional_amount"])
	require.Equal(t, n("61.64"), second[2].data["functional_amount"], "the last part takes the rest")
	require.Equal(t, map[string]string{"5100": "2.45", "7000": "-2.45"}, b.ledgerBalances(), "nothing is left on the control account")

	undone := b.events(b.execute("ap_clerk", "ap.unapply_credit", object{"invoice_id": invoice, "application_id": first[0].data["application_id"], "reason": "x"}))
	require.Equal(t, []string{"ap.credit_memo.unapplied", "gl.journal.posted", "gl.journal.reversed", "ap.invoice.credit_unapplied"}, types(undone))
	require.Equal(t, map[string]string{"2000": "-0.81", "5100": "2.45", "7000": "-1.64"}, b.ledgerBalances())
}

func shortLines(journal recorded) []string {
	var out []string
	for _, line := range journal.data["lines"].([]any) {
		l := line.(object)
		out = append(out, fmt.Sprint(l["debit_credit"], " ", l["account"], " ", l["amount"], " ", l["currency"]))
	}
	return out
}

// Clients that race for one open amount never apply more than is open.
func TestApplyCredit_Race(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.vendor("V1", nil)
	invoice := b.approved("invoice", documentPayload("V1", "I", "100", nil))
	memos := make([]string, 16)
	for i := range memos {
		memos[i] = b.approved("credit_memo", documentPayload("V1", fmt.Sprintf("M%dX", i), "30", object{"invoice_date": fmt.Sprintf("2025-03-%02d", i+1)}))
	}
	results := make([]error, len(memos))
	var clients sync.WaitGroup
	for i, memo := range memos {
		clients.Go(func() {
			_, results[i] = b.submit("ap_clerk", "ap.apply_credit", object{"credit_memo_id": memo, "invoice_id": invoice, "amount": n("30")})
		})
	}
	clients.Wait()
	applied := 0
	for _, err := range results {
		if err == nil {
			applied++
			continue
		}
		require.Equal(t, "ap.invoice.overapplied", fault.CodeOf(err))
	}
	require.Equal(t, 3, applied, "3 × 30 of 100")
}

// settle makes a document paid without a payment: a credit memo takes all of it.
func (b *books) settle(invoice, number, amount string, more object) {
	b.tb.Helper()
	memo := b.approved("credit_memo", documentPayload("V1", number, amount, more))
	b.execute("ap_clerk", "ap.apply_credit", object{"credit_memo_id": memo, "invoice_id": invoice, "amount": n(amount)})
}

func TestApplyPrepayment(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.vendor("V1", nil)
	taxed := func(number, net, tax, total string, more object) object {
		p := documentPayload("V1", number, total, object{
			"tax_amount": n(tax), "lines": []object{{"line_number": 1, "amount": n(net), "account": "5100", "tax_group": "S/19", "dimensions": object{"department": "PROD"}}},
		})
		for k, v := range more {
			p[k] = v
		}
		return p
	}
	prepayment := b.approved("invoice", taxed("P", "100", "19", "119", object{"document_type": "prepayment"}))
	invoice := b.approved("invoice", taxed("I", "1000", "190", "1190", object{"prepaid_amount": n("119"), "payable_amount": n("1071")}))
	apply := func(amount string) object {
		return object{"prepayment_id": prepayment, "invoice_id": invoice, "amount": n(amount)}
	}
	b.refuse("ap.invoice.wrong_state", "ap_clerk", "ap.apply_prepayment", apply("119"))
	b.settle(prepayment, "PM", "119", nil) // stands for the payment
	b.refuse("ap.prepayment.type_invalid", "ap_clerk", "ap.apply_prepayment", object{"prepayment_id": invoice, "invoice_id": invoice, "amount": n("1")})
	b.refuse("ap.invoice.overapplied", "ap_clerk", "ap.apply_prepayment", apply("119.01"))

	first := b.events(b.execute("ap_clerk", "ap.apply_prepayment", apply("50")))
	require.Equal(t, []string{"ap.invoice.prepayment_used", "gl.journal.posted", "ap.invoice.prepayment_applied"}, types(first))
	require.Equal(t, []string{"debit 2000 50 EUR", "credit 1200 42.02 EUR", "credit 1400 7.98 EUR"}, shortLines(first[1]))
	second := b.events(b.execute("ap_clerk", "ap.apply_prepayment", apply("69")))
	require.Equal(t, []string{"ap.invoice.prepayment_used", "gl.journal.posted", "ap.invoice.prepayment_applied", "ap.invoice.hold_released"}, types(second))
	require.Equal(t, []string{"debit 2000 69 EUR", "credit 1200 57.98 EUR", "credit 1400 11.02 EUR"}, shortLines(second[1]))
	require.Equal(t, "PREPAID_UNMATCHED", second[3].data["kind"])
	// The prepayment is gone, and input tax is deducted once: 190 for the whole delivery.
	require.Equal(t, map[string]string{"1400": "190.00", "2000": "-1071.00", "5100": "881.00"}, b.ledgerBalances())
	b.refuse("ap.invoice.has_payments", "controller", "ap.void_invoice", object{"invoice_id": prepayment, "reason": "x"})

	undone := b.events(b.execute("ap_clerk", "ap.unapply_prepayment", object{"invoice_id": invoice, "application_id": first[0].data["application_id"], "reason": "x"}))
	require.Equal(t, []string{"ap.invoice.prepayment_returned", "gl.journal.posted", "gl.journal.reversed", "ap.invoice.prepayment_unapplied"}, types(undone))
	require.Equal(t, n("50"), undone[0].data["unused_after"])
	require.Equal(t, map[string]string{"1200": "42.02", "1400": "197.98", "2000": "-1121.00", "5100": "881.00"}, b.ledgerBalances())
}

// TestHold_NothingOpen holds no document that is settled.
func TestHold_NothingOpen(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.vendor("V1", nil)
	invoice, memo := b.approved("invoice", documentPayload("V1", "I", "100", nil)), b.approved("credit_memo", documentPayload("V1", "M", "100", nil))
	b.execute("ap_clerk", "ap.apply_credit", object{"credit_memo_id": memo, "invoice_id": invoice, "amount": n("100")})
	f := b.refuse("ap.invoice.already_paid", "approver", "ap.hold_invoice", object{"invoice_id": invoice, "kind": "DISPUTE", "reason": "damaged"})
	require.Equal(t, fault.Conflict, f.Kind)
	b.refuse("ap.credit_memo.already_paid", "approver", "ap.hold_credit_memo", object{"credit_memo_id": memo, "kind": "MANUAL", "reason": "damaged"})
}

// TestApplyPrepayment_Mismatch applies no prepayment to an invoice of another vendor or currency.
func TestApplyPrepayment_Mismatch(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.vendor("V1", nil)
	b.vendor("V2", nil)
	prepayment := b.approved("invoice", documentPayload("V1", "P", "100", object{"document_type": "prepayment"}))
	for code, invoice := range map[string]object{
		"ap.invoice.vendor_mismatch":   documentPayload("V2", "I", "90", nil),
		"ap.invoice.currency_mismatch": documentPayload("V1", "F", "90", object{"currency": "USD"}),
	} {
		b.refuse(code, "ap_clerk", "ap.apply_prepayment", object{"prepayment_id": prepayment, "invoice_id": b.approved("invoice", invoice), "amount": n("1")})
	}
}
