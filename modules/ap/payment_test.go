package ap_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/ap"
	"github.com/erpbackbone/backbone/modules/ap/contract"
	"github.com/erpbackbone/backbone/modules/ap/domain"
	"github.com/erpbackbone/backbone/modules/ap/pain"
	"github.com/erpbackbone/backbone/ports"
)

// payingIBAN is the account that the tests pay from.
const payingIBAN = "NL91ABNA0417164300"

// newPayingBooks opens books with bank accounts in EUR and USD and a vendor V1 who can be paid.
func newPayingBooks(tb testing.TB) *books {
	tb.Helper()
	b := newBooks(tb)
	for _, a := range []struct{ code, kind string }{
		{"1010", "asset"}, {"1011", "asset"}, {"1090", "asset"}, {"4700", "income"},
	} {
		b.execute("gl_accountant", "gl.define_account", object{"code": a.code, "name": "Account " + a.code, "type": a.kind})
	}
	b.execute("admin", "ap.configure", object{"bank_accounts": object{
		"MAIN": object{"iban": payingIBAN, "bic": "ABNANL2A", "currency": "EUR"},
		"USD":  object{"iban": payingIBAN, "bic": "ABNANL2A", "currency": "USD", "account": "1011"},
	}})
	b.payee("V1")
	return b
}

// payee registers a vendor with accounts in EUR and USD.
func (b *books) payee(id string) {
	b.tb.Helper()
	b.vendor(id, nil)
	b.bankAccount(id, nil)
	b.bankAccount(id, object{"currency": "USD"})
}

// posted makes a posted invoice or credit memo and gives its id.
func (b *books) posted(kind string, p object) string {
	b.tb.Helper()
	id := b.execute("ap_clerk", "ap.submit_"+kind, p).Events[0].Stream.ID
	b.execute("approver", "ap.approve_"+kind, object{kind + "_id": id})
	return id
}

// propose proposes a run and gives its first event.
func (b *books) propose(account string, more object, documents ...object) recorded {
	b.tb.Helper()
	p := object{"bank_account": account, "pay_date": "2025-03-20", "documents": documents}
	for k, v := range more {
		p[k] = v
	}
	return b.events(b.execute("ap_clerk:petra", "ap.propose_payment_run", p))[0]
}

// approvedRun proposes and approves a run and gives the ids of its payments.
func (b *books) approvedRun(account string, more object, documents ...object) []string {
	b.tb.Helper()
	proposed := b.propose(account, more, documents...)
	b.execute("controller:carla", "ap.approve_payment_run", object{"run_id": proposed.Stream.ID})
	var ids []string
	for _, p := range proposed.data["payments"].([]any) {
		ids = append(ids, p.(object)["payment_id"].(string))
	}
	return ids
}

func execution(payment string, more object) object {
	p := object{"payment_id": payment, "executed_on": "2025-03-20", "bank_reference": "B-1"}
	for k, v := range more {
		p[k] = v
	}
	return p
}

// document folds the state of a document.
func (b *books) document(k contract.Kind, id string) *domain.Document {
	b.tb.Helper()
	events, _, err := b.store.Events.ReadStream(b.tb.Context(), ports.StreamQuery{Partition: b.entity.Partition, Stream: k.Stream(id), From: 1, Limit: 1000})
	require.NoError(b.tb, err)
	d := &domain.Document{Kind: k}
	for _, e := range events {
		body, err := e.Body()
		require.NoError(b.tb, err)
		require.NoError(b.tb, d.Apply(e, body.Data))
	}
	return d
}

// run folds the state of a payment run.
func (b *books) run(id string) *domain.PaymentRun {
	b.tb.Helper()
	events, _, err := b.store.Events.ReadStream(b.tb.Context(), ports.StreamQuery{Partition: b.entity.Partition, Stream: contract.PaymentRunStream(id), From: 1, Limit: 1000})
	require.NoError(b.tb, err)
	r := &domain.PaymentRun{}
	for _, e := range events {
		body, err := e.Body()
		require.NoError(b.tb, err)
		require.NoError(b.tb, r.Apply(e, body.Data))
	}
	return r
}

// balances sums all journal lines: account and currency → amount, and account → functional amount.
func (b *books) balances() map[string]string { return b.balancesAfter(0) }

// balancesAfter sums the lines of journals after a sequence.
func (b *books) balancesAfter(after event.Sequence) map[string]string {
	b.tb.Helper()
	events, err := b.store.Events.Events(b.tb.Context(), ports.EventQuery{Partition: b.entity.Partition, After: after, Limit: 1_000_000})
	require.NoError(b.tb, err)
	sums := map[string]money.Number{}
	for _, e := range events {
		if e.Type != "gl.journal.posted" {
			continue
		}
		for _, l := range b.event(e.ID).data["lines"].([]any) {
			line := l.(object)
			number := func(name string) money.Number {
				v := money.MustNumber(fmt.Sprint(line[name]))
				if line["debit_credit"] == "credit" {
					v = v.Neg()
				}
				return v
			}
			account := fmt.Sprint(line["account"])
			key := account + " " + fmt.Sprint(line["currency"])
			sums[key] = sums[key].Add(number("amount"))
			sums[account] = sums[account].Add(number("amount_in_reporting_currency"))
		}
	}
	out := map[string]string{}
	for key, n := range sums {
		if !n.IsZero() {
			out[key] = n.Fixed(2)
		}
	}
	return out
}

func TestPaymentRun(t *testing.T) {
	t.Parallel()
	b := newPayingBooks(t)
	b.payee("V2")
	b.vendor("V3", nil)
	one := b.posted("invoice", documentPayload("V1", "1", "100", nil))
	two := b.posted("invoice", documentPayload("V1", "2", "50", nil))
	memo := b.posted("credit_memo", documentPayload("V1", "C1", "30", nil))
	other := b.posted("invoice", documentPayload("V2", "1", "70", nil))
	dollars := b.posted("invoice", documentPayload("V2", "2", "200", object{"currency": "USD"}))
	missing := b.posted("invoice", documentPayload("V3", "1", "10", nil))
	held := b.posted("invoice", documentPayload("V1", "3", "5", object{"payee_differs": true}))
	open := b.invoice(documentPayload("V1", "4", "7", nil))

	run := b.propose("MAIN", nil, object{"invoice_id": one}, object{"invoice_id": two, "amount": n("20")}, object{"credit_memo_id": memo},
		object{"invoice_id": other}, object{"invoice_id": dollars}, object{"invoice_id": missing}, object{"invoice_id": held}, object{"invoice_id": open},
		object{"invoice_id": "unknown"}, object{"invoice_id": one}, object{"invoice_id": other, "amount": n("70.01")})
	id := run.Stream.ID
	require.Equal(t, "ap.payment_run/"+id, run.Stream.Type+"/"+id)
	payments := run.data["payments"].([]any)
	require.Len(t, payments, 3)
	var got [][]any
	for _, p := range payments {
		p := p.(object)
		got = append(got, []any{p["payment_id"], p["vendor_id"], p["currency"], fmt.Sprint(p["amount"]), len(p["applications"].([]any))})
	}
	require.Equal(t, [][]any{{id + "-P1", "V1", "EUR", "90", 3}, {id + "-P2", "V2", "EUR", "70", 1}, {id + "-P3", "V2", "USD", "200", 1}}, got)
	require.Equal(t, object{"EUR": n("160"), "USD": n("200")}, run.data["totals"])
	var codes []string
	for _, l := range run.data["left_out"].([]any) {
		codes = append(codes, fmt.Sprint(l.(object)["code"]))
	}
	require.Equal(t, []string{
		"ap.vendor.bank_missing", "ap.invoice.on_hold", "ap.invoice.wrong_state", "ap.invoice.not_found",
		"ap.payment_run.invoice_reserved", "ap.payment_run.invoice_reserved",
	}, codes)
	require.NotContains(t, string(run.Payload), iban)

	// A document sits in one unfinished run.
	f := b.refuse("ap.payment_run.empty", "treasurer", "ap.propose_payment_run", object{
		"bank_account": "MAIN", "pay_date": "2025-03-21", "documents": []object{{"invoice_id": one}, {"credit_memo_id": memo}},
	})
	require.Contains(t, fmt.Sprint(f.Attributes["left_out"]), "ap.payment_run.invoice_reserved")

	// An excluded payment frees its documents.
	b.refuse("ap.payment_run.wrong_state", "treasurer", "ap.execute_payment", execution(id+"-P1", nil))
	excluded := b.events(b.execute("treasurer", "ap.exclude_payment", object{"payment_id": id + "-P2", "reason": "vendor asked to wait"}))
	require.Equal(t, []string{"ap.payment_run.payment_excluded", "ap.payment_run.documents_released"}, types(excluded))
	b.refuse("payment.not_found", "treasurer", "ap.exclude_payment", object{"payment_id": id + "-P2", "reason": "again"})
	b.propose("MAIN", nil, object{"invoice_id": other})

	approved := b.events(b.execute("controller:carla", "ap.approve_payment_run", object{"run_id": id}))[0]
	require.Equal(t, []any{"274.90", "EUR", "2"}, []any{money.MustNumber(fmt.Sprint(approved.data["functional_amount"])).Fixed(2), approved.data["functional_currency"], fmt.Sprint(approved.data["payments"])})
	b.refuse("ap.payment_run.wrong_state", "controller:carla", "ap.reject_payment_run", object{"run_id": id})
	b.refuse("ap.payment_run.wrong_state", "treasurer", "ap.exclude_payment", object{"payment_id": id + "-P1", "reason": "too late"})
	b.refuse("payment.not_found", "treasurer", "ap.execute_payment", execution(id+"-P2", nil))
	for _, unknown := range []string{"X-P1", id, id + "-P9"} {
		b.refuse("payment.not_found", "treasurer", "ap.execute_payment", execution(unknown, nil))
	}
	b.refuse("ap.payment_run.not_found", "controller", "ap.approve_payment_run", object{"run_id": "X"})
	b.refuse("ap.bank_account.not_found", "treasurer", "ap.propose_payment_run", object{"bank_account": "X", "pay_date": "2025-03-20", "documents": []object{{"invoice_id": one}}})
	b.refuse("ap.payment_run.selection_invalid", "treasurer", "ap.propose_payment_run", object{"bank_account": "MAIN", "pay_date": "2025-03-20"})

	// A part of an invoice and a netted credit memo.
	executed := b.events(b.execute("treasurer", "ap.execute_payment", execution(id+"-P1", nil)))
	require.Equal(t, []string{
		"payment.executed", "gl.journal.posted", "ap.invoice.paid", "ap.invoice.partially_paid", "ap.credit_memo.paid", "ap.payment_run.documents_released",
	}, types(executed))
	require.Equal(t, run.CorrelationID, executed[0].CorrelationID)
	require.Equal(t, "30.00", b.document(contract.Invoice, two).Open.Fixed(2))
	require.Equal(t, domain.StatePaid, b.document(contract.CreditMemo, memo).State)
	f = b.refuse("payment.already_executed", "treasurer", "ap.execute_payment", execution(id+"-P1", nil))
	require.Equal(t, fault.Conflict, f.Kind)
	b.refuse("payment.already_executed", "treasurer", "ap.fail_payment", object{"payment_id": id + "-P1", "reason_code": "AC01"})

	// A failed payment frees its documents and is never executed.
	b.refuse("payment.bank_amount_missing", "treasurer", "ap.execute_payment", execution(id+"-P3", nil))
	failed := b.events(b.execute("module", "ap.fail_payment", object{"payment_id": id + "-P3", "reason_code": "AC04", "text": "account closed"}))
	require.Equal(t, []string{"payment.failed", "ap.payment_run.documents_released"}, types(failed))
	b.refuse("payment.wrong_state", "treasurer", "ap.execute_payment", execution(id+"-P3", nil))
	b.propose("USD", nil, object{"invoice_id": dollars}, object{"invoice_id": two})

	run2, _ := b.entityOf("payment_run", id)
	require.Equal(t, "approved", run2["status"])
	require.Equal(t, 1.0, run2["excluded"])
	payment, _ := b.entityOf("payment", id+"-P1")
	require.Equal(t, []any{"executed", "V1", "90", "EUR", id}, []any{payment["status"], payment["vendor_id"], payment["amount"], payment["currency"], payment["run_id"]})
	payment, _ = b.entityOf("payment", id+"-P3")
	require.Equal(t, "failed", payment["status"])
	paid, _ := b.entityOf("invoice", two)
	require.Equal(t, []any{"partially_paid", "30"}, []any{paid["status"], paid["open"]})
}

// TestPaymentRun_EnteredLate approves a run whose pay date is past at the rates of that date.
func TestPaymentRun_EnteredLate(t *testing.T) {
	t.Parallel()
	b := newPayingBooks(t)
	id := b.posted("invoice", documentPayload("V1", "1", "200", object{"currency": "USD"}))
	run := b.propose("USD", nil, object{"invoice_id": id})
	b.clock.Advance(60 * 24 * time.Hour) // no rate is so young
	approved := b.events(b.execute("controller:carla", "ap.approve_payment_run", object{"run_id": run.Stream.ID}))[0]
	require.Equal(t, "184.90", money.MustNumber(fmt.Sprint(approved.data["functional_amount"])).Fixed(2))
	run = b.propose("USD", object{"pay_date": "2025-05-19"}, object{"invoice_id": b.posted("invoice", documentPayload("V1", "2", "201", object{"currency": "USD"}))})
	b.refuse("gl.rate.stale", "controller:carla", "ap.approve_payment_run", object{"run_id": run.Stream.ID})
}

// TestPaymentRun_Rejected frees the documents of the whole run.
func TestPaymentRun_Rejected(t *testing.T) {
	t.Parallel()
	b := newPayingBooks(t)
	id := b.posted("invoice", documentPayload("V1", "1", "100", nil))
	run := b.propose("MAIN", nil, object{"invoice_id": id})
	rejected := b.events(b.execute("controller", "ap.reject_payment_run", object{"run_id": run.Stream.ID, "reason": "wait for the month's end"}))
	require.Equal(t, []string{"ap.payment_run.rejected", "ap.payment_run.documents_released"}, types(rejected))
	b.refuse("ap.payment_run.wrong_state", "controller", "ap.approve_payment_run", object{"run_id": run.Stream.ID})
	b.propose("MAIN", nil, object{"invoice_id": id})
}

// TestPaymentRun_Changed refuses to approve what is not as it was proposed.
func TestPaymentRun_Changed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		code   string
		change func(b *books, invoice, memo string)
	}{
		"hold": {"ap.invoice.on_hold", func(b *books, invoice, _ string) {
			b.execute("controller", "ap.hold_invoice", object{"invoice_id": invoice, "kind": "DISPUTE", "reason": "damaged"})
		}},
		"credit": {"ap.invoice.overapplied", func(b *books, invoice, memo string) {
			b.execute("ap_clerk", "ap.apply_credit", object{"credit_memo_id": memo, "invoice_id": invoice, "amount": n("1")})
		}},
		"pending account": {"ap.vendor.bank_pending", func(b *books, _, _ string) {
			b.execute("ap_clerk", "ap.request_bank_change", bankRequest("V1", object{"iban": otherIBAN}))
		}},
		"other account": {"ap.payment_run.changed", func(b *books, _, _ string) { b.bankAccount("V1", object{"iban": otherIBAN}) }},
		"blocked vendor": {"ap.vendor.blocked", func(b *books, _, _ string) {
			b.execute("controller", "ap.block_vendor", object{"vendor_id": "V1", "scope": "payment", "reason": "audit"})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newPayingBooks(t)
			invoice, memo := b.posted("invoice", documentPayload("V1", "1", "100", nil)), b.posted("credit_memo", documentPayload("V1", "C", "10", nil))
			run := b.propose("MAIN", nil, object{"invoice_id": invoice})
			c.change(b, invoice, memo)
			f := b.refuse("ap.payment_run.changed", "controller:carla", "ap.approve_payment_run", object{"run_id": run.Stream.ID})
			require.Contains(t, fmt.Sprint(f.Attributes["changed"]), c.code)
		})
	}
}

// TestExecutePayment_Blocked refuses to pay what was held or taken after the approval.
func TestExecutePayment_Blocked(t *testing.T) {
	t.Parallel()
	b := newPayingBooks(t)
	id := b.posted("invoice", documentPayload("V1", "1", "100", nil))
	memo := b.posted("credit_memo", documentPayload("V1", "C1", "30", nil))
	payment := b.approvedRun("MAIN", nil, object{"invoice_id": id})[0]
	b.refuse("payment.executed_on_invalid", "treasurer", "ap.execute_payment", execution(payment, object{"executed_on": "2025-03-14"}))
	b.refuse("payment.bank_amount_mismatch", "treasurer", "ap.execute_payment", execution(payment, object{"bank_amount": n("99")}))
	b.refuse("gl.period.not_open", "treasurer", "ap.execute_payment", execution(payment, object{"executed_on": "2025-12-01"}))
	held := b.events(b.execute("treasurer", "ap.hold_invoice", object{"invoice_id": id, "kind": "DISPUTE", "reason": "damaged"}))[0]
	b.refuse("ap.invoice.on_hold", "treasurer", "ap.execute_payment", execution(payment, nil))
	b.execute("controller", "ap.release_hold", object{"hold_id": held.data["hold_id"], "reason": "settled"})
	b.execute("controller", "ap.block_vendor", object{"vendor_id": "V1", "scope": "payment", "reason": "audit"})
	b.refuse("ap.vendor.blocked", "treasurer", "ap.execute_payment", execution(payment, nil))
	b.execute("controller", "ap.unblock_vendor", object{"vendor_id": "V1", "scope": "payment", "reason": "done"})
	b.execute("ap_clerk", "ap.apply_credit", object{"credit_memo_id": memo, "invoice_id": id, "amount": n("30")})
	f := b.refuse("ap.invoice.overapplied", "treasurer", "ap.execute_payment", execution(payment, nil))
	require.Equal(t, []any{"70", "100"}, []any{f.Attributes["open"], f.Attributes["requested"]})
}

// TestSettlements_NotBeforeUndoing dates nothing that takes from a document before the day on which
// an earlier settlement was undone: on the days between, more would be settled than there was.
func TestSettlements_NotBeforeUndoing(t *testing.T) {
	t.Parallel()
	b := newPayingBooks(t)
	invoice, memo := b.posted("invoice", documentPayload("V1", "1", "100", nil)), b.posted("credit_memo", documentPayload("V1", "C1", "100", nil))
	apply := object{"credit_memo_id": memo, "invoice_id": invoice, "amount": n("100"), "posting_date": "2025-03-16"}
	applied := b.events(b.execute("ap_clerk", "ap.apply_credit", apply))[1]
	b.execute("ap_clerk", "ap.unapply_credit", object{"invoice_id": invoice, "application_id": applied.data["application_id"], "reason": "wrong", "posting_date": "2025-03-22"})

	f := b.refuse("ap.application.posting_date_invalid", "ap_clerk", "ap.apply_credit", apply)
	require.Equal(t, "2025-03-22", f.Attributes["earliest"])
	for kind, id := range map[string]string{"invoice": invoice, "credit_memo": memo} {
		f = b.refuse("ap."+kind+".posting_date_invalid", "controller", "ap.void_"+kind, object{kind + "_id": id, "reason": "x", "posting_date": "2025-03-21"})
		require.Equal(t, "2025-03-22", f.Attributes["earliest"])
	}
	payment := b.approvedRun("MAIN", nil, object{"invoice_id": invoice})[0]
	f = b.refuse("payment.executed_on_invalid", "treasurer", "ap.execute_payment", execution(payment, object{"executed_on": "2025-03-21"}))
	require.Equal(t, "2025-03-22", f.Attributes["earliest"])
	b.execute("treasurer", "ap.execute_payment", execution(payment, object{"executed_on": "2025-03-22"}))
	b.execute("treasurer", "ap.void_payment", object{"payment_id": payment, "reason": "returned", "posting_date": "2025-03-25"})
	b.refuse("ap.application.posting_date_invalid", "ap_clerk", "ap.apply_credit", object{"credit_memo_id": memo, "invoice_id": invoice, "amount": n("1"), "posting_date": "2025-03-24"})
	voided := b.events(b.execute("controller", "ap.void_invoice", object{"invoice_id": invoice, "reason": "x"}))[0]
	require.Equal(t, "2025-03-25", voided.EffectiveDate.String(), "without a date the first that is possible")
}

// TestExecutePayment_Exchange compares realised exchange differences with a calculation by hand.
// The invoice of 1,000.00 USD is carried at 924.50 EUR, the rate of its posting.
func TestExecutePayment_Exchange(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		account string
		more    object
		want    map[string]string
	}{
		// 1,000.00 USD at 0.95 are 950.00 EUR, 25.50 more than the debt was carried at.
		"account in the invoice's currency": {"USD", nil, map[string]string{"1011 USD": "-1000.00", "1011": "-950.00", "7010": "25.50"}},
		// The bank took 900.00 EUR: a gain of 24.50. The clearing account keeps both amounts and is worth nothing.
		"account in another currency": {"MAIN", object{"bank_amount": n("900.00")}, map[string]string{
			"1010 EUR": "-900.00", "1010": "-900.00", "1090 USD": "-1000.00", "1090 EUR": "900.00", "7000": "-24.50",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newPayingBooks(t)
			id := b.posted("invoice", documentPayload("V1", "1", "1000", object{"currency": "USD"}))
			b.execute("module", "gl.set_exchange_rate", object{"from": "USD", "to": "EUR", "date": "2025-03-18", "rate": n("0.95")})
			payment := b.approvedRun(c.account, nil, object{"invoice_id": id})[0]
			b.execute("treasurer", "ap.execute_payment", execution(payment, c.more))
			want := map[string]string{"5100 USD": "1000.00", "5100": "924.50"}
			for key, amount := range c.want {
				want[key] = amount
			}
			require.Equal(t, want, b.balances(), "nothing is left on the control account")
			d := b.document(contract.Invoice, id)
			require.Equal(t, []any{domain.StatePaid, true, true}, []any{d.State, d.Open.IsZero(), d.Carrying.IsZero()})
		})
	}
}

// TestExecutePayment_Discount takes terms of the document, else of the vendor, until their date.
func TestExecutePayment_Discount(t *testing.T) {
	t.Parallel()
	own := object{"discount": object{"date": "2025-03-20", "percent": n("3")}}
	terms := object{"terms": object{"net_days": 30, "discount_days": 5, "discount_percent": n("2")}}
	for _, c := range []struct {
		name             string
		vendor, document object
		propose          object
		want             string // paid
	}{
		{"document", nil, own, object{"take_discount": true}, "97.00"},
		{"document before vendor", terms, own, object{"take_discount": true}, "97.00"},
		{"vendor", terms, nil, object{"take_discount": true}, "98.00"},
		{"too late", terms, own, object{"take_discount": true, "pay_date": "2025-03-21"}, "100.00"},
		{"not taken", terms, own, nil, "100.00"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newPayingBooks(t)
			b.vendor("V2", c.vendor)
			b.bankAccount("V2", nil)
			id := b.posted("invoice", documentPayload("V2", "1", "100", c.document))
			payment := b.approvedRun("MAIN", c.propose, object{"invoice_id": id})[0]
			b.execute("treasurer", "ap.execute_payment", execution(payment, nil))
			want := map[string]string{"5100 EUR": "100.00", "5100": "100.00", "1010 EUR": "-" + c.want, "1010": "-" + c.want}
			if discount := money.FromInt(100).Sub(money.MustNumber(c.want)); !discount.IsZero() {
				want["4700"], want["4700 EUR"] = discount.Neg().Fixed(2), discount.Neg().Fixed(2)
			}
			require.Equal(t, want, b.balances())
		})
	}
}

// TestExecutePayment_Race lets 16 payments, a credit memo and a hold race for one invoice.
func TestExecutePayment_Race(t *testing.T) {
	t.Parallel()
	b := newPayingBooks(t)
	const clients = 16
	id := b.posted("invoice", documentPayload("V1", "1", "100", nil))
	memo := b.posted("credit_memo", documentPayload("V1", "C1", "90", nil))
	// A document is in one unfinished run, so the racing clients execute the same payment, and
	// applications of a credit memo race with them.
	payment := b.approvedRun("MAIN", nil, object{"invoice_id": id, "amount": n("60")})[0]
	codes := make([]string, 2*clients)
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			_, err := b.submit("treasurer", "ap.execute_payment", execution(payment, nil))
			codes[i] = fault.CodeOf(err)
		})
		wg.Go(func() {
			_, err := b.submit("ap_clerk", "ap.apply_credit", object{"credit_memo_id": memo, "invoice_id": id, "amount": n("45")})
			codes[clients+i] = fault.CodeOf(err)
		})
	}
	wg.Wait()
	for _, code := range codes {
		require.Contains(t, []string{"", "payment.already_executed", "ap.invoice.overapplied", "ap.invoice.wrong_state", "ap.credit_memo.wrong_state", "ap.credit_memo.overapplied"}, code)
	}
	d := b.document(contract.Invoice, id)
	require.GreaterOrEqual(t, d.Open.Sign(), 0)
	var applied money.Number
	for _, e := range b.all() {
		switch e.Type {
		case "ap.invoice.paid", "ap.invoice.partially_paid":
			applied = applied.Add(money.MustNumber(fmt.Sprint(b.event(e.ID).data["applied"])))
		case "ap.invoice.credit_applied":
			applied = applied.Add(money.MustNumber(fmt.Sprint(b.event(e.ID).data["amount"])))
		}
	}
	require.Equal(t, "100.00", applied.Add(d.Open).Fixed(2))
}

// TestPaymentRun_Race proposes one document in 16 runs at the same time: one run has it.
func TestPaymentRun_Race(t *testing.T) {
	t.Parallel()
	b := newPayingBooks(t)
	id := b.posted("invoice", documentPayload("V1", "1", "100", nil))
	codes := make([]string, 16)
	var wg sync.WaitGroup
	for i := range codes {
		wg.Go(func() {
			_, err := b.submit("treasurer", "ap.propose_payment_run", object{"bank_account": "MAIN", "pay_date": "2025-03-20", "documents": []object{{"invoice_id": id}}})
			codes[i] = fault.CodeOf(err)
		})
	}
	wg.Wait()
	counts := map[string]int{}
	for _, code := range codes {
		counts[code]++
	}
	require.Equal(t, map[string]int{"": 1, "ap.payment_run.empty": 15}, counts)
}

// TestPaymentRun_Often puts one document into more runs than a search of a tag returns.
func TestPaymentRun_Often(t *testing.T) {
	t.Parallel()
	b := newPayingBooks(t)
	id := b.posted("invoice", documentPayload("V1", "1", "100", nil))
	for range 25 {
		payment := b.approvedRun("MAIN", nil, object{"invoice_id": id})[0]
		b.refuse("ap.payment_run.empty", "treasurer", "ap.propose_payment_run", object{"bank_account": "MAIN", "pay_date": "2025-03-20", "documents": []object{{"invoice_id": id}}})
		b.execute("treasurer", "ap.fail_payment", object{"payment_id": payment, "reason_code": "AM04"})
	}
}

// TestPaymentRun_Split makes several payments of a vendor with many documents.
func TestPaymentRun_Split(t *testing.T) {
	t.Parallel()
	b := newPayingBooks(t)
	var documents []object
	for i := range 95 {
		documents = append(documents, object{"invoice_id": b.posted("invoice", documentPayload("V1", fmt.Sprintf("N%dX", i), fmt.Sprintf("10.%02d", i), nil))})
	}
	small := b.posted("credit_memo", documentPayload("V1", "C1", "5", nil))
	large := b.posted("credit_memo", documentPayload("V1", "C2", "5000", nil))
	run := b.propose("MAIN", nil, append(documents, object{"credit_memo_id": large}, object{"credit_memo_id": small})...)
	payments := run.data["payments"].([]any)
	require.Len(t, payments, 2)
	sizes := []int{len(payments[0].(object)["applications"].([]any)), len(payments[1].(object)["applications"].([]any))}
	require.Equal(t, []int{89, 7}, sizes)
	require.Equal(t, object{"EUR": n("989.65")}, run.data["totals"])
	require.Equal(t, "ap.payment_run.credit_exceeds_payment", run.data["left_out"].([]any)[0].(object)["code"])
	b.execute("controller:carla", "ap.approve_payment_run", object{"run_id": run.Stream.ID})
	out := b.execute("treasurer", "ap.execute_payment", execution(run.Stream.ID+"-P1", nil))
	require.Len(t, out.Events, 92)
}

// TestPaymentRun_NothingToPay leaves documents out that a discount settles alone.
func TestPaymentRun_NothingToPay(t *testing.T) {
	t.Parallel()
	b := newPayingBooks(t)
	whole := object{"discount": object{"date": "2025-03-20", "percent": 100}}
	free := object{"invoice_id": b.posted("invoice", documentPayload("V1", "F1", "10", whole))}
	b.refuse("ap.payment_run.empty", "ap_clerk", "ap.propose_payment_run",
		object{"bank_account": "MAIN", "pay_date": "2025-03-20", "take_discount": true, "documents": []object{free}})
	inUSD := object{"invoice_id": b.posted("invoice", documentPayload("V1", "U1", "7", object{"currency": "USD"}))}
	run := b.propose("MAIN", object{"take_discount": true}, free, inUSD)
	require.Len(t, run.data["payments"], 1)
	require.Equal(t, object{"invoice_id": free["invoice_id"], "vendor_id": "V1", "code": "ap.payment_run.nothing_to_pay"}, run.data["left_out"].([]any)[0])
	other := object{"invoice_id": b.posted("invoice", documentPayload("V1", "F2", "3", nil))}
	run = b.propose("MAIN", object{"take_discount": true}, free, other)
	require.Equal(t, object{"EUR": n("3.00")}, run.data["totals"], "with another document, its discount is taken")
}

// TestPaymentRun_Parts proposes more documents than one event has.
func TestPaymentRun_Parts(t *testing.T) {
	t.Parallel()
	b := newPayingBooks(t)
	var documents []object
	for i := range 1001 {
		documents = append(documents, object{"invoice_id": b.posted("invoice", documentPayload("V1", fmt.Sprintf("N%dX", i), fmt.Sprintf("%d.50", 100+i), nil))})
	}
	out := b.events(b.execute("ap_clerk:petra", "ap.propose_payment_run", object{"bank_account": "MAIN", "pay_date": "2025-03-20", "documents": documents}))
	require.Equal(t, []string{"ap.payment_run.proposed", "ap.payment_run.proposed", "ap.payment_run.documents_reserved", "ap.payment_run.documents_reserved"}, types(out))
	for i := range 2 {
		require.Equal(t, []string{fmt.Sprint(i + 1), "2"}, []string{fmt.Sprint(out[i].data["part"]), fmt.Sprint(out[i].data["parts"])})
	}
	run := out[0].Stream.ID
	b.execute("cfo", "ap.approve_payment_run", object{"run_id": run})
	b.execute("treasurer", "ap.execute_payment", execution(run+"-P12", nil))
	exported := b.events(b.execute("treasurer", "ap.export_payment_run", object{"run_id": run}))[0]
	require.Equal(t, "12", fmt.Sprint(exported.data["count"]))
	b.refuse("ap.payment_run.empty", "treasurer", "ap.propose_payment_run", object{"bank_account": "MAIN", "pay_date": "2025-03-20", "documents": documents[:1]})
}

// TestPayments_Property pays an invoice in any parts, with discounts and at any rates, and voids
// some of the payments: in the end nothing is open, nothing is carried, and the balances of a
// voided payment are as before.
func TestPayments_Property(t *testing.T) {
	t.Parallel()
	b := newPayingBooks(t)
	number := 0
	rapid.Check(t, func(r *rapid.T) {
		number++
		cents := func(label string, low, high int64) money.Number {
			c := rapid.Int64Range(low, high).Draw(r, label)
			return money.MustNumber(fmt.Sprintf("%d.%02d", c/100, c%100))
		}
		currency := rapid.SampledFrom([]string{"EUR", "USD"}).Draw(r, "currency")
		total := cents("total", 1, 1_000_000)
		more := object{"currency": currency, "invoice_date": fmt.Sprintf("2025-03-%02d", 1+number%15)}
		if rapid.Bool().Draw(r, "discount") {
			more["discount"] = object{"date": "2025-03-31", "percent": cents("percent", 1, 500)}
		}
		payload := documentPayload("V1", fmt.Sprintf("P%dX", number), total.String(), more)
		if rapid.Bool().Draw(r, "taxed") {
			payload = taxed(fmt.Sprintf("P%dX", number), more,
				[3]string{"S/19", cents("net of 19", 1, 100_000).String(), cents("tax of 19", 0, 20_000).String()},
				[3]string{"S/7", cents("net of 7", 0, 100_000).String(), cents("tax of 7", 0, 7_000).String()},
				[3]string{"K/0", cents("net of 0", 0, 100_000).String(), "0"})
		}
		submitted := b.events(b.execute("ap_clerk", "ap.submit_invoice", payload))
		id := submitted[0].Stream.ID
		for _, e := range submitted {
			if hold, held := e.data["hold_id"]; held {
				b.execute("approver", "ap.release_hold", object{"hold_id": hold, "reason": "generated"})
			}
		}
		b.execute("approver", "ap.approve_invoice", object{"invoice_id": id})
		b.execute("module", "gl.set_exchange_rate", object{"from": "USD", "to": "EUR", "date": "2025-03-19", "rate": cents("rate", 50, 150), "reason": "generated"})
		for range 12 {
			d := b.document(contract.Invoice, id)
			if d.State == domain.StatePaid {
				break
			}
			part := object{"invoice_id": id}
			if rapid.Bool().Draw(r, "part") {
				limit := d.Open.Mul(money.FromInt(100))
				whole, err := limit.Rescale(0)
				require.NoError(t, err)
				var high int64
				_, err = fmt.Sscan(whole.String(), &high)
				require.NoError(t, err)
				part["amount"] = cents("amount", 1, high)
			}
			p := object{"bank_account": rapid.SampledFrom([]string{"MAIN", "USD"}).Draw(r, "account"), "pay_date": "2025-03-20", "take_discount": true, "documents": []object{part}}
			proposed := b.events(b.execute("ap_clerk:petra", "ap.propose_payment_run", p))[0]
			b.execute("cfo", "ap.approve_payment_run", object{"run_id": proposed.Stream.ID})
			before, carrying := b.head(), d.Carrying
			x := object{}
			if (p["bank_account"] == "USD") != (currency == "USD") {
				x["bank_amount"] = cents("bank", 1, 2_000_000)
			}
			b.execute("treasurer", "ap.execute_payment", execution(proposed.Stream.ID+"-P1", x))
			if rapid.IntRange(0, 3).Draw(r, "void") == 0 {
				b.execute("treasurer", "ap.void_payment", object{"payment_id": proposed.Stream.ID + "-P1", "reason": "generated"})
				require.Empty(t, b.balancesAfter(before))
				after := b.document(contract.Invoice, id)
				require.True(t, after.Open.Equal(d.Open) && after.Carrying.Equal(carrying) && after.State == d.State)
			}
		}
		d := b.document(contract.Invoice, id)
		b.requireDiscounts(d)
		if d.State == domain.StatePaid {
			require.True(t, d.Open.IsZero() && d.Carrying.IsZero(), "open %s, carried %s", d.Open, d.Carrying)
			return
		}
		require.Positive(t, d.Open.Sign())
	})
}

// requireDiscounts checks that what tax groups have of the discounts in force adds up to them, and
// that both taxes of a reverse charge agree.
func (b *books) requireDiscounts(d *domain.Document) {
	b.tb.Helper()
	var taken, split money.Number
	for _, e := range b.all() {
		if e.Stream != d.Kind.Stream(d.Data.ID()) {
			continue
		}
		data := b.event(e.ID).data
		if discount, found := data["discount"].(json.Number); found && data["discount_shares"] != nil {
			if amount := money.MustNumber(discount.String()); e.Type == "ap.invoice.payment_reversed" {
				taken = taken.Sub(amount)
			} else {
				taken = taken.Add(amount)
			}
		}
	}
	for _, s := range d.Discounts {
		split = split.Add(s.Net).Add(s.InputTax).Add(s.NotRecoverable).Sub(s.OutputTax)
		require.True(b.tb, s.OutputTax.IsZero() || s.OutputTax.Equal(s.InputTax.Add(s.NotRecoverable)))
	}
	require.True(b.tb, taken.Equal(split), "taken %s, split %s", taken, split)
}

// TestVoidPayment takes payment and invoice back: every balance is as before, both journals are
// there and linked both ways.
func TestVoidPayment(t *testing.T) {
	t.Parallel()
	b := newPayingBooks(t)
	id := b.posted("invoice", documentPayload("V1", "1", "1000", object{"currency": "USD"}))
	memo := b.posted("credit_memo", documentPayload("V1", "C1", "100", object{"currency": "USD"}))
	before := b.balances()
	payment := b.approvedRun("USD", nil, object{"invoice_id": id}, object{"credit_memo_id": memo})[0]
	void := object{"payment_id": payment, "reason": "bank took it back"}
	b.refuse("payment.wrong_state", "treasurer", "ap.void_payment", void)
	executed := b.events(b.execute("treasurer", "ap.execute_payment", execution(payment, nil)))
	b.refuse("ap.invoice.has_payments", "controller", "ap.void_invoice", object{"invoice_id": id, "reason": "wrong"})
	b.refuse("gl.journal.owned_by_module", "controller", "gl.reverse_journal", object{"journal_id": executed[1].Stream.ID, "reason": "wrong"})
	voided := b.events(b.execute("treasurer", "ap.void_payment", void))
	require.Equal(t, []string{"payment.voided", "gl.journal.posted", "gl.journal.reversed", "ap.invoice.payment_reversed", "ap.credit_memo.payment_reversed"}, types(voided))
	require.Equal(t, executed[1].Stream.ID, voided[1].data["reverses_journal_id"])
	require.Equal(t, voided[1].Stream.ID, voided[2].data["reversed_by_journal_id"])
	require.Equal(t, executed[1].Stream, voided[2].Stream)
	require.Equal(t, before, b.balances())
	b.refuse("payment.wrong_state", "treasurer", "ap.void_payment", void)
	b.refuse("payment.wrong_state", "treasurer", "ap.execute_payment", execution(payment, nil))
	vendor, _ := b.entityOf("vendor", "V1")
	require.Equal(t, object{"posted": 2.0}, vendor["documents"])
	d := b.document(contract.Invoice, id)
	require.Equal(t, []any{domain.StatePosted, "1000", "924.50"}, []any{d.State, d.Open.String(), d.Carrying.Fixed(2)})

	// The documents can be paid again, or voided.
	again := b.approvedRun("USD", nil, object{"invoice_id": id})[0]
	b.execute("treasurer", "ap.execute_payment", execution(again, nil))
	b.execute("treasurer", "ap.void_payment", object{"payment_id": again, "reason": "bank took it back"})
	b.execute("controller", "ap.void_invoice", object{"invoice_id": id, "reason": "never delivered"})
	b.execute("controller", "ap.void_credit_memo", object{"credit_memo_id": memo, "reason": "never delivered"})
	require.Empty(t, b.balances())
	entity, _ := b.entityOf("payment", payment)
	require.Equal(t, "voided", entity["status"])
}

// TestVoidPayment_SecondPerson waits for another person where the settings ask for one.
func TestVoidPayment_SecondPerson(t *testing.T) {
	t.Parallel()
	b := newPayingBooks(t)
	id := b.posted("invoice", documentPayload("V1", "1", "100", nil))
	payment := b.approvedRun("MAIN", nil, object{"invoice_id": id})[0]
	b.execute("treasurer", "ap.execute_payment", execution(payment, nil))
	b.execute("admin", "ap.configure", object{"second_person": true})
	out, err := b.submit("treasurer", "ap.void_payment", object{"payment_id": payment, "reason": "bank took it back"})
	require.NoError(t, err)
	require.EqualValues(t, "pending_approval", out.Status)
	require.Equal(t, domain.StatePaid, b.document(contract.Invoice, id).State)
}

// TestVoidPayment_PrepaymentInUse keeps the payment of a prepayment that an invoice has used.
func TestVoidPayment_PrepaymentInUse(t *testing.T) {
	t.Parallel()
	b := newPayingBooks(t)
	prepayment := b.posted("invoice", documentPayload("V1", "1", "100", object{"document_type": "prepayment"}))
	payment := b.approvedRun("MAIN", nil, object{"invoice_id": prepayment})[0]
	b.execute("treasurer", "ap.execute_payment", execution(payment, nil))
	id := b.posted("invoice", documentPayload("V1", "2", "150", nil))
	applied := b.events(b.execute("ap_clerk", "ap.apply_prepayment", object{"prepayment_id": prepayment, "invoice_id": id, "amount": n("100")}))
	f := b.refuse("ap.invoice.prepayment_in_use", "treasurer", "ap.void_payment", object{"payment_id": payment, "reason": "bank took it back"})
	require.Equal(t, "100", f.Attributes["used"])
	b.execute("ap_clerk", "ap.unapply_prepayment", object{"invoice_id": id, "application_id": applied[0].data["application_id"], "reason": "wrong invoice"})
	b.execute("treasurer", "ap.void_payment", object{"payment_id": payment, "reason": "bank took it back"})
}

// TestExportRun makes the same file twice, with count and control sum, and no account number in
// any event. A requested bank change stops it.
func TestExportRun(t *testing.T) {
	t.Parallel()
	b := newPayingBooks(t)
	b.payee("V2")
	one, two := b.posted("invoice", documentPayload("V1", "1", "100", nil)), b.posted("invoice", documentPayload("V2", "1", "50.5", object{"currency": "USD"}))
	run := b.propose("MAIN", nil, object{"invoice_id": one}, object{"invoice_id": two}).Stream.ID
	export := object{"run_id": run}
	b.refuse("ap.payment_run.wrong_state", "treasurer", "ap.export_payment_run", export)
	b.execute("controller:carla", "ap.approve_payment_run", export)
	first := b.events(b.execute("treasurer", "ap.export_payment_run", export))[0]
	require.Equal(t, []any{run, "2", "150.5"}, []any{first.data["message_id"], fmt.Sprint(first.data["count"]), fmt.Sprint(first.data["control_sum"])})
	require.NotContains(t, string(first.Payload), iban)
	state := b.run(run)
	message, err := ap.PaymentMessage(state, contract.PayingAccount{IBAN: payingIBAN, BIC: "ABNANL2A", Currency: "EUR"}, b.entity.Name, map[string]pain.Account{
		run + "-P1": {Holder: ibanHolder, IBAN: iban, BIC: "COBADEFFXXX"}, run + "-P2": {Holder: ibanHolder, IBAN: iban, BIC: "COBADEFFXXX"},
	})
	require.NoError(t, err)
	file, err := pain.Write(message)
	require.NoError(t, err)
	require.Equal(t, fmt.Sprintf("%x", sha256.Sum256(file)), first.data["sha256"], "a reader of the accounts makes the same file")
	b.clock.Advance(time.Hour)
	second := b.events(b.execute("treasurer", "ap.export_payment_run", export))[0]
	require.Equal(t, first.data, second.data)

	b.execute("ap_clerk", "ap.request_bank_change", bankRequest("V1", object{"iban": otherIBAN}))
	b.refuse("ap.vendor.bank_pending", "treasurer", "ap.export_payment_run", export)
	b.execute("vendor_admin", "ap.approve_bank_change", object{"request_id": "V1-B3", "verification": "called back"})
	b.refuse("ap.payment_run.changed", "treasurer", "ap.export_payment_run", export)
	entity, _ := b.entityOf("payment_run", run)
	require.Equal(t, []any{"exported", first.data["sha256"]}, []any{entity["status"], entity["sha256"]})
	b.execute("treasurer", "ap.execute_payment", execution(run+"-P1", nil))
}

// TestExportRun_Erasure exports nothing to an account that was erased.
func TestExportRun_Erasure(t *testing.T) {
	t.Parallel()
	b := newPayingBooks(t)
	run := b.propose("MAIN", nil, object{"invoice_id": b.posted("invoice", documentPayload("V1", "1", "100", nil))}).Stream.ID
	b.execute("controller:carla", "ap.approve_payment_run", object{"run_id": run})
	b.keys.erase("vendor:V1")
	b.refuse("ap.vendor.bank_missing", "treasurer", "ap.export_payment_run", object{"run_id": run})
}

// TestPayments_Roles checks that every intent refuses all roles except those that it is for, and
// that the limit of a run is that of the role.
func TestPayments_Roles(t *testing.T) {
	t.Parallel()
	b := newPayingBooks(t)
	roles := []string{"ap_clerk", "approver", "vendor_admin", "treasurer", "gl_accountant", "controller", "cfo", "admin", "auditor", "module", "importer"}
	for intentType, may := range map[string]string{
		"ap.propose_payment_run": "ap_clerk treasurer", "ap.exclude_payment": "ap_clerk treasurer", "ap.approve_payment_run": "controller cfo",
		"ap.reject_payment_run": "controller cfo", "ap.export_payment_run": "treasurer", "ap.execute_payment": "treasurer module",
		"ap.fail_payment": "treasurer module", "ap.void_payment": "treasurer",
	} {
		for _, role := range roles {
			_, err := b.submit(role, intentType, object{})
			require.Equal(t, slices.Contains(strings.Fields(may), role), fault.CodeOf(err) != "intent.forbidden", "%s as %s", intentType, role)
		}
	}
	b.execute("admin", "ap.configure", object{"limits": object{"controller": 99}})
	run := b.propose("MAIN", nil, object{"invoice_id": b.posted("invoice", documentPayload("V1", "1", "100", nil))}).Stream.ID
	f := b.refuse("ap.approval.over_limit", "controller:carla", "ap.approve_payment_run", object{"run_id": run})
	require.Equal(t, []any{"cfo"}, f.Attributes["roles_that_may"])
	b.execute("cfo", "ap.approve_payment_run", object{"run_id": run})
}
