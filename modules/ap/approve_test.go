package ap_test

import (
	"encoding/json"
	"fmt"
	"github.com/erpbackbone/backbone/application/pipeline"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/domain/money"
)

// lines writes a journal's lines as "debit 5100 100.00 EUR PROD".
func lines(journal recorded) []string {
	var out []string
	for _, raw := range journal.data["lines"].([]any) {
		l := raw.(object)
		department := ""
		if d, ok := l["dimensions"].(object); ok {
			department = fmt.Sprint(" ", d["department"])
		}
		out = append(out, fmt.Sprintf("%s %s %s %s%s", l["debit_credit"], l["account"], l["amount"], l["currency"], department))
	}
	return out
}

// approve posts an invoice and gives its journal's lines.
func (b *books) approve(p object) []string {
	b.tb.Helper()
	return lines(b.events(b.execute("cfo", "ap.approve_invoice", object{"invoice_id": b.invoice(p)}))[1])
}

func TestApprove_SeedInvoice(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.vendor("V-1042", object{"name": "Contoso Supply Ltd", "country": "US"})
	submitted := b.execute("ap_clerk", "ap.submit_invoice", seedInvoice())
	id := submitted.Events[0].Stream.ID
	out := b.execute("approver", "ap.approve_invoice", object{"invoice_id": id, "comment": "goods arrived"})
	events := b.events(out)
	require.Equal(t, []string{"ap.invoice.approved", "gl.journal.posted", "ap.invoice.posted"}, types(events))
	approved, journal, posted := events[0], events[1], events[2]

	require.Equal(t, submitted.Events[0].ID, approved.CausedBy)
	require.Equal(t, approved.ID, journal.CausedBy)
	require.Equal(t, journal.ID, posted.CausedBy)
	require.Equal(t, module.EventID(out.IntentID, 1), journal.ID)
	require.Equal(t, journal.ID.String(), posted.data["journal_event_id"])
	require.Equal(t, approved.ID.String(), journal.data["source_event_id"])
	require.Equal(t, "subledger", journal.data["journal_type"])
	require.Equal(t, b.event(submitted.Events[0].ID).data["invoice_date"], journal.data["document_date"])
	require.Equal(t, "SL-2025-000001", journal.data["journal_number"])
	require.Equal(t, []string{"debit 5100 12500.00 USD PROD", "credit 2000 12500.00 USD PROD"}, lines(journal))
	for _, e := range events {
		require.Contains(t, e.Tags, "period:2025-03", e.Type)
		require.Equal(t, event.MustDate("2025-03-15"), e.EffectiveDate, e.Type)
		require.Equal(t, b.event(submitted.Events[0].ID).CorrelationID, e.CorrelationID, e.Type)
		require.NotEmpty(t, e.RulesEvaluated)
	}
	control := journal.data["lines"].([]any)[1].(object)
	require.Equal(t, object{"department": "PROD", "vendor": "V-1042"}, control["dimensions"])
	require.Equal(t, "CC-5100", journal.data["lines"].([]any)[0].(object)["dimensions"].(object)["cost_center"])
	require.Equal(t, n("11556.25"), control["amount_in_reporting_currency"], "12500.00 × 0.9245")
	for field, want := range map[string]any{
		"control_account": "2000", "amount": n("12500.00"), "currency": "USD", "functional_amount": n("11556.25"),
		"functional_currency": "EUR", "rate": n("0.9245"), "rate_date": "2025-03-01", "debit_credit": "credit", "invoice_id": id,
		"journal_id": journal.Stream.ID,
	} {
		require.Equal(t, want, posted.data[field], field)
	}
	require.Equal(t, n("11556.25"), approved.data["functional_amount"])

	f := b.refuse("ap.invoice.wrong_state", "controller", "ap.approve_invoice", object{"invoice_id": id})
	require.Equal(t, "posted", f.Attributes["state"])
	b.refuse("ap.invoice.wrong_state", "controller", "ap.reject_invoice", object{"invoice_id": id, "reason": "late"})
	b.refuse("ap.invoice.not_found", "controller", "ap.approve_invoice", object{"invoice_id": "01ARZ3NDEKTSV4RRFFQ69G5FAV"})
	b.refuse("ap.credit_memo.not_found", "controller", "ap.approve_credit_memo", object{"credit_memo_id": id})
	b.refuse("intent.schema_invalid", "controller", "ap.approve_invoice", object{"credit_memo_id": id})
}

func TestPostingLines(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.vendor("V1", nil)
	doc := func(number string, ls []object, tax string, taxLines []object, total string, more object) object {
		for i := range ls {
			ls[i]["line_number"] = i + 1
			if ls[i]["dimensions"] == nil {
				ls[i]["dimensions"] = object{"department": "PROD"}
			}
		}
		p := object{"lines": ls, "total_amount": n(total), "tax_amount": n(tax)}
		if taxLines != nil {
			p["tax_lines"] = taxLines
		}
		for k, v := range more {
			p[k] = v
		}
		return documentPayload("V1", number, total, p)
	}
	line := func(account, amount, group string) object {
		return object{"account": account, "amount": n(amount), "tax_group": group}
	}
	tax := func(group string, rate any, base, amount string) object {
		return object{"category": "S", "rate": rate, "taxable_amount": n(base), "tax_amount": n(amount), "tax_group": group}
	}
	for _, c := range []struct {
		name string
		p    object
		want []string
	}{
		{"recoverable", doc("1A", []object{line("5100", "100", "S/19")}, "19", []object{tax("S/19", 19, "100", "19")}, "119", nil),
			[]string{"debit 5100 100 EUR PROD", "debit 1400 19 EUR PROD", "credit 2000 119 EUR PROD"}},
		{"account of the group", doc("1B", []object{line("5100", "100", "S/5")}, "5", []object{tax("S/5", 5, "100", "5")}, "105", nil),
			[]string{"debit 5100 100 EUR PROD", "debit 1410 5 EUR PROD", "credit 2000 105 EUR PROD"}},
		{"half recoverable, shared by the lines of the group",
			doc("1C", []object{line("5100", "100.10", "S/7"), line("6100", "50", "S/7"), line("6900", "9", "S/19")}, "12.22",
				[]object{tax("S/7", 7, "150.10", "10.51"), tax("S/19", 19, "9", "1.71")}, "171.32", nil),
			[]string{"debit 5100 100.10 EUR PROD", "debit 6100 50 EUR PROD", "debit 6900 9 EUR PROD",
				"debit 1400 5.26 EUR PROD", "debit 5100 3.50 EUR PROD", "debit 6100 1.75 EUR PROD",
				"debit 1400 1.71 EUR PROD", "credit 2000 171.32 EUR PROD"}},
		{"cost account of the group", doc("1D", []object{line("5100", "100", "S/10")}, "10", []object{tax("S/10", 10, "100", "10")}, "110", nil),
			[]string{"debit 5100 100 EUR PROD", "debit 6900 10.00 EUR PROD", "credit 2000 110 EUR PROD"}},
		{"reverse charge", doc("1E", []object{line("5100", "100", "AE/0")}, "0", []object{tax("AE/0", 0, "100", "0")}, "100", nil),
			[]string{"debit 5100 100 EUR PROD", "debit 1400 19.00 EUR PROD", "credit 2200 19.00 EUR PROD", "credit 2000 100 EUR PROD"}},
		{"reverse charge, partly recoverable", doc("1F", []object{line("5100", "200", "K/0")}, "0", []object{tax("K/0", 0, "200", "0")}, "200", nil),
			[]string{"debit 5100 200 EUR PROD", "debit 1400 15.20 EUR PROD", "debit 5100 22.80 EUR PROD", "credit 2200 38.00 EUR PROD", "credit 2000 200 EUR PROD"}},
		{"reverse charge by the lines' groups", doc("1G", []object{line("5100", "300", "AE/10")}, "0", nil, "300", nil),
			[]string{"debit 5100 300 EUR PROD", "debit 5100 30.00 EUR PROD", "credit 2200 30.00 EUR PROD", "credit 2000 300 EUR PROD"}},
		{"allowance", doc("1K", []object{line("5100", "100", ""), line("5100", "-10", "")}, "0", nil, "90", nil),
			[]string{"debit 5100 100 EUR PROD", "credit 5100 10 EUR PROD", "credit 2000 90 EUR PROD"}},
		{"rounding up", doc("1L", []object{line("5100", "99.98", "")}, "0", nil, "99.98", object{"rounding_amount": n("0.02"), "payable_amount": n("100.00")}),
			[]string{"debit 5100 99.98 EUR PROD", "debit 7900 0.02 EUR PROD", "credit 2000 100.00 EUR PROD"}},
		{"rounding down", doc("1M", []object{line("5100", "99.03", "")}, "0", nil, "99.03", object{"rounding_amount": n("-0.03")}),
			[]string{"debit 5100 99.03 EUR PROD", "credit 7900 0.03 EUR PROD", "credit 2000 99.00 EUR PROD"}},
		{"withholding", doc("1N", []object{line("5100", "500", "")}, "0", nil, "500", object{"withholding": []object{{"code": "W10", "amount": n("50")}}}),
			[]string{"debit 5100 500 EUR PROD", "credit 2300 50 EUR PROD", "credit 2000 450 EUR PROD"}},
		{"prepayment", doc("1P", []object{line("5100", "700", "")}, "0", nil, "700", object{"document_type": "prepayment"}),
			[]string{"debit 1200 700 EUR PROD", "credit 2000 700 EUR PROD"}},
		{"opening item", doc("1Q", []object{line("", "800", "")}, "0", nil, "800", object{"document_type": "opening"}),
			[]string{"debit 3900 800 EUR PROD", "credit 2000 800 EUR PROD"}},
		{"opening item with tax, which earlier books deducted",
			doc("1S", []object{line("", "113.00", "S/19")}, "21.47", []object{tax("S/19", 19, "113.00", "21.47")}, "134.47", object{"document_type": "opening"}),
			[]string{"debit 3900 134.47 EUR PROD", "credit 2000 134.47 EUR PROD"}},
		{"opening item of reverse charge, rounded and withheld",
			doc("1T", []object{line("", "87.98", "AE/0")}, "0", []object{tax("AE/0", 0, "87.98", "0")}, "87.98",
				object{"document_type": "opening", "rounding_amount": n("0.02"), "withholding": []object{{"code": "W10", "amount": n("10")}}}),
			[]string{"debit 3900 78.00 EUR PROD", "credit 2000 78.00 EUR PROD"}},
		{"two departments", doc("1R", []object{line("5100", "10", ""), {"account": "6100", "amount": n("20"), "dimensions": object{"department": "ENG"}}}, "0", nil, "30", nil),
			[]string{"debit 5100 10 EUR PROD", "debit 6100 20 EUR ENG", "credit 2000 30 EUR FIN"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b.tb = t
			require.Equal(t, c.want, b.approve(c.p))
		})
	}
}

func TestZeroTotals(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.vendor("V1", nil)
	free := b.invoice(documentPayload("V1", "FREE", "0", nil))
	require.Equal(t, []string{"ap.invoice.approved", "ap.invoice.paid"},
		types(b.events(b.execute("approver", "ap.approve_invoice", object{"invoice_id": free}))))
	f := b.refuse("ap.invoice.wrong_state", "approver", "ap.approve_invoice", object{"invoice_id": free})
	require.Equal(t, "paid", f.Attributes["state"])

	withheld := b.invoice(documentPayload("V1", "ALL", "10", object{"withholding": []object{{"code": "W100", "amount": n("10")}}}))
	require.Equal(t, []string{"ap.invoice.approved", "gl.journal.posted", "ap.invoice.paid"},
		types(b.events(b.execute("approver", "ap.approve_invoice", object{"invoice_id": withheld}))))

	memo := b.execute("ap_clerk", "ap.submit_credit_memo", documentPayload("V1", "NIL", "0", nil)).Events[0].Stream.ID
	require.Equal(t, []string{"ap.credit_memo.approved"},
		types(b.events(b.execute("approver", "ap.approve_credit_memo", object{"credit_memo_id": memo}))))
	b.refuse("ap.credit_memo.wrong_state", "approver", "ap.approve_credit_memo", object{"credit_memo_id": memo})
}

func TestCreditMemo(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.vendor("V1", nil)
	submitted := b.execute("ap_clerk", "ap.submit_credit_memo", documentPayload("V1", "CM-1", "119", object{
		"preceding_invoice": "INV-7", "tax_amount": n("19"), "prepaid_amount": n("1"),
		"lines":     []object{{"line_number": 1, "amount": n("100"), "account": "5100", "tax_group": "S/19"}},
		"tax_lines": []object{{"rate": 19, "taxable_amount": n("100"), "tax_amount": n("19"), "tax_group": "S/19"}},
	}))
	events := b.events(submitted)
	require.Equal(t, "ap.credit_memo.submitted", events[0].Type)
	require.Equal(t, "ap.credit_memo", events[0].Stream.Type)
	require.Equal(t, "INV-7", events[0].data["preceding_invoice"])
	id := events[0].Stream.ID
	require.Equal(t, id, events[0].data["credit_memo_id"])
	require.NotContains(t, events[0].data, "invoice_id")
	posted := b.events(b.execute("approver", "ap.approve_credit_memo", object{"credit_memo_id": id}))
	require.Equal(t, []string{"ap.credit_memo.approved", "gl.journal.posted", "ap.credit_memo.posted"}, types(posted))
	require.Equal(t, []string{"credit 5100 100 EUR FIN", "credit 1400 19 EUR FIN", "debit 2000 119 EUR FIN"}, lines(posted[1]))
	require.Equal(t, "debit", posted[2].data["debit_credit"])
	require.Equal(t, n("119"), posted[2].data["amount"])

	other := b.execute("ap_clerk", "ap.submit_credit_memo", documentPayload("V1", "CM-2", "5", nil)).Events[0].Stream.ID
	rejected := b.events(b.execute("controller", "ap.reject_credit_memo", object{"credit_memo_id": other, "reason": "not ours"}))
	require.Equal(t, []string{"ap.credit_memo.rejected"}, types(rejected))
	require.Equal(t, "not ours", rejected[0].data["reason"])
}

func TestApprove_HeldDocument(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.vendor("V1", nil)
	for _, c := range []struct{ intent, approve, field string }{
		{"ap.submit_invoice", "ap.approve_invoice", "invoice_id"},
		{"ap.submit_credit_memo", "ap.approve_credit_memo", "credit_memo_id"},
	} {
		events := b.events(b.execute("ap_clerk", c.intent, documentPayload("V1", "H", "120", object{
			"tax_amount": n("20"), "lines": []object{{"line_number": 1, "amount": n("100"), "account": "5100"}}, "payee_differs": true,
			"tax_lines": []object{{"rate": 19, "taxable_amount": n("100"), "tax_amount": n("20"), "tax_group": "S/19"}},
		})))
		id, variance, payee := events[0].Stream.ID, "", ""
		for _, e := range events {
			switch e.data["kind"] {
			case "TAX_VARIANCE":
				variance = e.data["hold_id"].(string)
			case "PAYEE_DIFFERS":
				payee = e.data["hold_id"].(string)
			}
		}
		prefix := strings.TrimSuffix(events[0].Type, ".submitted")
		f := b.refuse(prefix+".on_hold", "approver", c.approve, object{c.field: id})
		require.Equal(t, []string{variance}, f.Attributes["holds"], "payment holds do not block approval")

		b.refuse("ap.hold.reason_required", "approver", "ap.release_hold", object{"hold_id": variance, "reason": " "})
		b.refuse("ap.hold.reason_required", "approver", "ap.release_hold", object{"hold_id": variance})
		b.refuse("ap.hold.not_found", "approver", "ap.release_hold", object{"hold_id": id + "-H9", "reason": "x"})
		b.refuse("ap.hold.not_found", "approver", "ap.release_hold", object{"hold_id": "nothing", "reason": "x"})
		b.refuse("ap.hold.not_found", "approver", "ap.release_hold", object{"hold_id": variance, "reason": "x", c.field: "01ARZ3NDEKTSV4RRFFQ69G5FAV"})
		b.refuse("intent.forbidden", "ap_clerk", "ap.release_hold", object{"hold_id": variance, "reason": "x"})
		released := b.events(b.execute("approver", "ap.release_hold", object{"hold_id": variance, "reason": "rounding of the vendor", c.field: id}))
		require.Equal(t, []string{prefix + ".hold_released"}, types(released))
		require.Equal(t, "TAX_VARIANCE", released[0].data["kind"])
		b.refuse("ap.hold.already_released", "approver", "ap.release_hold", object{"hold_id": variance, "reason": "again"})

		b.execute("approver", c.approve, object{c.field: id})
		b.execute("controller", "ap.release_hold", object{"hold_id": payee, "reason": "factoring, contract on file"})
	}
}

func TestApprove_ClosedPeriods(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.vendor("V1", nil)
	id := b.invoice(documentPayload("V1", "P", "10", nil))
	b.refuse("gl.period.not_open", "approver", "ap.approve_invoice", object{"invoice_id": id, "posting_date": "2025-12-01"})
	b.refuse("gl.period.undefined", "approver", "ap.approve_invoice", object{"invoice_id": id, "posting_date": "2024-12-01"})

	b.execute("controller", "gl.close_period", object{"module": "ap", "period": "2025-03", "level": "soft"})
	before := b.head()
	out, err := b.submit("approver", "ap.approve_invoice", object{"invoice_id": id})
	require.NoError(t, err)
	require.Equal(t, intent.PendingApproval, out.Status)
	require.Equal(t, []intent.ApprovalNeed{{Roles: []string{"controller", "cfo"}, Reason: "period 2025-03 is soft-closed", RuleID: "ap.period.soft_closed"}}, out.Needs)
	require.Equal(t, before+1, b.head(), "that it waits")
	done, err := b.pipeline.Approve(t.Context(), caller("controller"), pipeline.Decision{LegalEntity: b.entity, Intent: out.IntentID, PlanHash: "", Comment: "late paper"})
	require.NoError(t, err)
	for _, e := range b.events(done) {
		require.Contains(t, e.Tags, "late_posting", e.Type)
	}

	second := b.invoice(documentPayload("V1", "P2", "11", nil))
	b.execute("controller", "gl.close_period", object{"module": "gl", "period": "2025-03", "level": "hard"})
	f := b.refuse("gl.period.hard_closed", "cfo", "ap.approve_invoice", object{"invoice_id": second})
	require.Equal(t, "2025-04-01", f.Attributes["first_open_date"])
	moved := b.events(b.execute("cfo", "ap.approve_invoice", object{"invoice_id": second, "posting_date": "2025-04-01"}))
	require.Equal(t, event.MustDate("2025-04-01"), moved[1].EffectiveDate)
	require.Contains(t, moved[1].Tags, "period:2025-04")
}

func TestApprove_LedgerRefusals(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.vendor("V1", nil)
	line := func(more object) object {
		l := object{"line_number": 1, "amount": n("10"), "account": "5100"}
		for k, v := range more {
			l[k] = v
		}
		return object{"lines": []object{l}}
	}
	for i, c := range []struct {
		code string
		more object
	}{
		{"gl.rate.missing", object{"currency": "SEK"}},
		{"gl.rate.stale", object{"currency": "USD", "posting_date": "2025-06-01"}},
	} {
		c.more["invoice_date"] = fmt.Sprintf("2025-03-%02d", i+1)
		id := b.invoice(documentPayload("V1", fmt.Sprintf("L%dx", i), "10", c.more))
		b.refuse(c.code, "approver", "ap.approve_invoice", object{"invoice_id": id})
	}
	b.execute("admin", "gl.configure_ledger", object{"functional_currency": "EUR", "default_dimensions": object{"department": "FIN"}, "second_person": false})
	bare := b.invoice(documentPayload("V1", "Lx", "10", line(nil)))
	b.refuse("gl.ledger.profile_missing", "approver", "ap.approve_invoice", object{"invoice_id": bare})

	// A line that could not be coded stays refused even when its hold is gone.
	for _, kind := range []string{"invoice", "credit_memo"} {
		events := b.events(b.execute("ap_clerk", "ap.submit_"+kind, documentPayload("V1", "uncoded", "12", line(object{"account": "", "amount": n("12")}))))
		require.Equal(t, "CODING_MISSING", events[1].data["kind"])
		b.execute("approver", "ap.release_hold", object{"hold_id": events[1].data["hold_id"], "reason": "default comes"})
		b.refuse("ap."+kind+".coding_missing", "approver", "ap.approve_"+kind, object{kind + "_id": events[0].Stream.ID})
	}
}

func TestApprove_LedgerMissing(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	var err error
	b.entity, err = b.store.Directory.CreateLegalEntity(t.Context(), b.otherEntity())
	require.NoError(t, err)
	b.vendor("V1", nil)
	b.refuse("gl.ledger.not_configured", "ap_clerk", "ap.submit_invoice", documentPayload("V1", "A", "10", nil))
}

func TestApprove_OverLimit(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.vendor("V1", nil)
	at := b.invoice(documentPayload("V1", "A", "50000", nil))
	over := b.invoice(documentPayload("V1", "B", "50000.01", nil))
	b.execute("approver", "ap.approve_invoice", object{"invoice_id": at})
	f := b.refuse("ap.approval.over_limit", "approver", "ap.approve_invoice", object{"invoice_id": over})
	require.Equal(t, fault.Forbidden, f.Kind)
	require.Equal(t, []any{"controller", "cfo"}, f.Attributes["roles_that_may"])
	require.Contains(t, f.Detail, "controller")
	require.Contains(t, fmt.Sprint(f.Attributes["amount"]), "50000.01")
	b.execute("controller", "ap.approve_invoice", object{"invoice_id": over})

	// The limit is compared in functional currency: 54,000 USD are 49,923 EUR.
	foreign := b.invoice(documentPayload("V1", "C", "54000", object{"currency": "USD"}))
	b.execute("approver", "ap.approve_invoice", object{"invoice_id": foreign})

	b.execute("admin", "ap.configure", object{"limits": object{"controller": n("100"), "cfo": n("200.00")}})
	f = b.refuse("ap.approval.over_limit", "controller", "ap.approve_invoice", object{"invoice_id": b.invoice(documentPayload("V1", "D", "200.01", nil))})
	require.Equal(t, []any{"approver"}, f.Attributes["roles_that_may"])
	b.execute("admin", "ap.configure", object{"limits": object{"approver": n("1")}})
	f = b.refuse("ap.approval.over_limit", "cfo", "ap.approve_invoice", object{"invoice_id": b.invoice(documentPayload("V1", "E", "200.02", nil))})
	require.Empty(t, f.Attributes["roles_that_may"])
}

func TestApprove_SecondApprover(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.vendor("V1", nil)
	id := b.invoice(documentPayload("V1", "BIG", "250000.01", nil))
	first := b.events(b.execute("controller:ann", "ap.approve_invoice", object{"invoice_id": id}))
	require.Equal(t, []string{"ap.invoice.approval_recorded"}, types(first))
	require.Equal(t, n("1"), first[0].data["step"])
	require.Equal(t, n("2"), first[0].data["steps_required"])
	f := b.refuse("sod.same_person", "controller:ann", "ap.approve_invoice", object{"invoice_id": id})
	require.Equal(t, "S2", f.Attributes["rule"])
	require.Equal(t, first[0].ID.String(), f.Attributes["earlier_event"])
	second := b.events(b.execute("cfo:bob", "ap.approve_invoice", object{"invoice_id": id}))
	require.Equal(t, []string{"ap.invoice.approved", "gl.journal.posted", "ap.invoice.posted"}, types(second))
	require.Equal(t, n("2"), second[0].data["step"])

	one := b.invoice(documentPayload("V1", "NOT SO BIG", "250000", nil))
	require.Len(t, b.events(b.execute("controller:ann", "ap.approve_invoice", object{"invoice_id": one})), 3)
}

// TestApprove_OverControllersLimit: a CFO and a controller, one person each, approve in
// either order what is over the controller's limit. Two controllers do not.
func TestApprove_OverControllersLimit(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.vendor("V1", nil)
	for i, order := range [][2]string{{"controller", "cfo"}, {"cfo", "controller"}} {
		id := b.invoice(documentPayload("V1", fmt.Sprintf("HUGE%d", i), fmt.Sprintf("100000%d.01", i), nil))
		b.refuse("ap.approval.over_limit", "approver", "ap.approve_invoice", object{"invoice_id": id})
		first := b.events(b.execute(order[0], "ap.approve_invoice", object{"invoice_id": id}))
		require.Equal(t, []string{"ap.invoice.approval_recorded"}, types(first))
		require.Equal(t, []any{order[0]}, first[0].data["approver_roles"])
		b.refuse("ap.approval.over_limit", "approver", "ap.approve_invoice", object{"invoice_id": id})
		second := b.events(b.execute(order[1], "ap.approve_invoice", object{"invoice_id": id}))
		require.Equal(t, []string{"ap.invoice.approved", "gl.journal.posted", "ap.invoice.posted"}, types(second))
	}
	id := b.invoice(documentPayload("V1", "TWO CONTROLLERS", "1000002.01", nil))
	b.execute("controller:ann", "ap.approve_invoice", object{"invoice_id": id})
	f := b.refuse("ap.approval.over_limit", "controller:bob", "ap.approve_invoice", object{"invoice_id": id})
	require.Equal(t, []any{"cfo"}, f.Attributes["roles_that_may"])

	b.refuse("sod.same_person", "cfo:ann", "ap.approve_invoice", object{"invoice_id": id})

	// Without a role that covers the amount no approval is recorded.
	b.execute("admin", "ap.configure", object{"limits": object{"cfo": n("1000000")}})
	b.refuse("ap.approval.over_limit", "controller", "ap.approve_invoice", object{"invoice_id": b.invoice(documentPayload("V1", "NO ROLE", "1000003.01", nil))})
}

func TestConfigure_SecondPerson(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.execute("admin", "ap.configure", object{"second_person": true})
	out, err := b.submit("admin", "ap.configure", object{"second_person": false})
	require.NoError(t, err)
	require.Equal(t, intent.PendingApproval, out.Status)
	_, err = b.decide(caller("admin"), out)
	require.Equal(t, "sod.same_person", fault.CodeOf(err))
	done, err := b.decide(caller("admin:eve"), out)
	require.NoError(t, err)
	require.Equal(t, intent.Executed, done.Status)
	b.execute("admin", "ap.configure", object{"default_terms": object{"net_days": 10}})

	b.refuse("intent.forbidden", "controller", "ap.configure", object{"second_person": false})
	b.refuse("money.scale", "admin", "ap.configure", object{"second_approver_above": n("1.00001")})
	b.refuse("ap.bank_account.iban_invalid", "admin", "ap.configure", object{"bank_accounts": object{"MAIN": object{"iban": "NL92ABNA0417164300", "currency": "EUR"}}})
	b.refuse("ap.coding.entry_invalid", "admin", "ap.configure", object{"coding": []object{{"accounting_cost": "A"}, {"accounting_cost": "A"}}})
	b.refuse("intent.schema_invalid", "admin", "ap.configure", object{"limits": object{"king": 1}})
}

// functionalTotals checks that a journal balances per currency and in functional
// currency.
func functionalTotals(tb testing.TB, journal recorded) {
	tb.Helper()
	sums := map[string]money.Number{}
	for _, raw := range journal.data["lines"].([]any) {
		l := raw.(object)
		for key, value := range map[string]any{l["currency"].(string): l["amount"], "functional": l["amount_in_reporting_currency"]} {
			x := money.MustNumber(string(value.(json.Number)))
			if l["debit_credit"] == "credit" {
				x = x.Neg()
			}
			sums[key] = sums[key].Add(x)
		}
	}
	for key, sum := range sums {
		require.True(tb, sum.IsZero(), "%s is off by %s", key, sum)
	}
}
