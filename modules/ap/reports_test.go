package ap_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/ap"
	appostgres "github.com/erpbackbone/backbone/modules/ap/adapters/postgres"
	"github.com/erpbackbone/backbone/ports"
)

// pick are some columns of a row.
func pick(row object, columns ...string) object {
	out := object{}
	for _, c := range columns {
		out[c] = row[c]
	}
	return out
}

// TestReports_DocumentLife follows an invoice and a credit memo through the reports, on both axes.
func TestReports_DocumentLife(t *testing.T) {
	t.Parallel()
	b := newStoredBooks(t)
	b.must("vendor_admin", "ap.register_vendor", object{"vendor_id": "V1", "name": "Vendor V1", "country": "DE", "registration_id": "RV1"})
	id := b.must("ap_clerk", "ap.submit_invoice", documentPayload("V1", "A-1", "1000.00", object{
		"currency": "USD", "due_date": "2025-04-10", "payee_differs": true, "payment_reference": "RF-1", "discount": object{"date": "2025-03-25", "percent": n("2")},
	}))
	submitted := b.ends[len(b.ends)-1]
	corrected := documentPayload("V1", "A-1", "800.00", object{"currency": "USD", "due_date": "2025-04-20", "payee_differs": true})
	delete(corrected, "vendor_id")
	delete(corrected, "invoice_number")
	corrected["invoice_id"], corrected["reason"] = id, "price as agreed"
	b.must("ap_clerk", "ap.correct_invoice", corrected)
	b.must("approver", "ap.approve_invoice", object{"invoice_id": id, "posting_date": "2025-03-16"})
	posted := b.ends[len(b.ends)-1]
	memo := b.must("ap_clerk", "ap.submit_credit_memo", documentPayload("V1", "C-1", "300.00", object{"currency": "USD", "invoice_date": "2025-03-18"}))
	b.must("approver", "ap.approve_credit_memo", object{"credit_memo_id": memo})
	b.must("ap_clerk", "ap.apply_credit", object{"credit_memo_id": memo, "invoice_id": id, "amount": n("100.00"), "posting_date": "2025-03-20"})
	applied := b.ends[len(b.ends)-1]
	b.must("approver", "ap.release_hold", object{"hold_id": id + "-H1", "reason": "contract on file"})

	columns := []string{"number", "due_date", "total", "applied", "open", "open_functional", "state", "days_overdue"}
	items := rowsOf(b.at("ap/open-items", "2025-04-25", applied, nil))
	require.Len(t, items, 2)
	require.Equal(t, object{ // at 0.9512 on 03-16; the credit memo at 0.9033 on 03-18
		"number": "A-1", "due_date": "2025-04-20", "total": "800.00", "applied": "100.00", "open": "700.00", "open_functional": "665.84",
		"state": "partially_paid", "days_overdue": 5.0,
	}, pick(items[1], columns...))
	require.Equal(t, object{
		"number": "C-1", "due_date": "2025-04-17", "total": "-300.00", "applied": "-100.00", "open": "-200.00", "open_functional": "-180.66",
		"state": "partially_paid", "days_overdue": 8.0,
	}, pick(items[0], columns...))
	require.Equal(t, "800.00", rowsOf(b.at("ap/open-items", "2025-03-17", applied, nil))[0]["open"], "before the application")
	require.Equal(t, "800.00", rowsOf(b.at("ap/open-items", "2025-04-25", posted, nil))[0]["open"], "before the application was known")

	work := rowsOf(b.at("ap/documents", "", submitted, nil))
	require.Len(t, work, 1)
	require.Equal(t, object{"state": "submitted", "due_date": "2025-04-10", "total": "1000.00", "next_step": "approve", "next_roles": []any{"approver", "controller", "cfo"}},
		pick(work[0], "state", "due_date", "total", "next_step", "next_roles"), "the body as it was known")
	steps := func(known event.Sequence, params map[string]string) (out []string) {
		for _, r := range rowsOf(b.at("ap/documents", "", known, params)) {
			out = append(out, r["number"].(string)+" "+r["next_step"].(string))
		}
		return out
	}
	require.Equal(t, []string{"A-1 release", "C-1 apply"}, steps(applied, nil))
	require.Equal(t, []string{"A-1 pay", "C-1 apply"}, steps(0, nil))
	require.Equal(t, []string{"A-1 release"}, steps(applied, map[string]string{"hold": "PAYEE_DIFFERS"}))
	require.Equal(t, []string{"A-1 pay", "C-1 apply"}, steps(0, map[string]string{"next_role": "treasurer", "vendor": "V1"}))
	require.Equal(t, []string{"C-1 apply"}, steps(0, map[string]string{"next_role": "ap_clerk", "state": "partially_paid"}))
	require.Empty(t, steps(0, map[string]string{"older_than": "1"}))
	require.Empty(t, steps(0, map[string]string{"state": "draft"}))

	page := b.at("ap/invoices/{id}", "", 0, map[string]string{"id": id})
	require.Equal(t, object{"state": "partially_paid", "total": "800.00", "open": "700.00", "open_functional": "665.84"}, pick(page, "state", "total", "open", "open_functional"))
	require.NotContains(t, page["document"], "vendor_name")
	var actions []string
	for _, r := range rowsOf(page) {
		actions = append(actions, r["action"].(string)+" "+r["state"].(string)+" "+r["actor_id"].(string))
	}
	require.Equal(t, []string{
		"submitted submitted person-ap_clerk", "held submitted person-ap_clerk", "corrected submitted person-ap_clerk", "approved posted person-approver",
		"posted posted person-approver", "credit_applied partially_paid person-ap_clerk", "hold_released partially_paid person-approver",
	}, actions)
	hold := page["holds"].([]any)[0].(object)
	require.Equal(t, object{"kind": "PAYEE_DIFFERS", "open": false}, pick(hold, "kind", "open"))
	require.Equal(t, "person-ap_clerk", hold["placed"].(object)["actor_id"])
	require.Equal(t, object{"actor_id": "person-approver", "reason": "contract on file"}, pick(hold["released"].(object), "actor_id", "reason"))
	require.Equal(t, object{"step": 1.0, "actor_id": "person-approver", "counts": true}, pick(page["approvals"].([]any)[0].(object), "step", "actor_id", "counts"))
	require.Equal(t, object{"action": "credit_applied", "counterpart": memo, "amount": "-100.00", "functional_amount": "-95.12", "date": "2025-03-20"},
		pick(page["applications"].([]any)[0].(object), "action", "counterpart", "amount", "functional_amount", "date"))
	require.Len(t, page["journals"], 2)

	aging := b.at("ap/aging", "2025-04-25", 0, map[string]string{"buckets": "5"})
	require.Equal(t, []object{{
		"vendor_id": "V1", "currency": "USD", "not_due": "0.00", "1-5": "700.00", "over_5": "-200.00", "total": "500.00",
		"not_due_functional": "0.00", "1-5_functional": "665.84", "over_5_functional": "-180.66", "total_functional": "485.18",
	}}, rowsOf(aging))
	require.Equal(t, "485.18", aging["total_functional"])
	for _, by := range []string{"department", "dimension:department"} {
		require.Equal(t, "PROD", rowsOf(b.at("ap/aging", "2025-04-25", 0, map[string]string{"by": by}))[0][by])
	}
	named := b.at("ap/aging", "2025-04-25", 0, map[string]string{"by": "dimension:currency"})
	require.Equal(t, object{"dimension:currency": "none", "currency": "USD", "total": "500.00"}, pick(rowsOf(named)[0], "dimension:currency", "currency", "total"))

	statement := b.at("ap/vendor-statement", "2025-04-25", 0, map[string]string{"vendor": "V1", "from": "2025-03-17"})
	require.Equal(t, []any{object{"currency": "USD", "balance": "800.00", "functional_balance": "760.96"}}, statement["opening"])
	require.Equal(t, []any{object{"currency": "USD", "balance": "500.00", "functional_balance": "485.18"}}, statement["closing"])
	var lines []object
	for _, r := range rowsOf(statement) {
		lines = append(lines, pick(r, "date", "action", "debit", "credit", "balance", "functional_balance"))
	}
	require.Equal(t, []object{
		{"date": "2025-03-18", "action": "posted", "debit": "300.00", "credit": "0.00", "balance": "500.00", "functional_balance": "489.97"},
		{"date": "2025-03-20", "action": "applied", "debit": "0.00", "credit": "100.00", "balance": "600.00", "functional_balance": "580.30"},
		{"date": "2025-03-20", "action": "credit_applied", "debit": "100.00", "credit": "0.00", "balance": "500.00", "functional_balance": "485.18"},
	}, lines)
}

// TestReports_Parameters checks that reports refuse what they cannot answer, and do not answer from
// rows of an earlier release.
func TestReports_Parameters(t *testing.T) {
	t.Parallel()
	p := pool(t)
	sources := map[string]ports.ReadModelSource{
		"documents": appostgres.NewWorklist(p), "aging": appostgres.NewAging(p), "statement": appostgres.NewVendorStatement(p), "invoice": appostgres.NewDocument(p, ap.PurchaseOrders),
		"history": appostgres.NewPaymentHistory(p, ap.OpenItems), "tax lines": appostgres.NewTaxLines(p),
	}
	for _, c := range []struct{ source, code, param, value string }{
		{"documents", "report.parameter_invalid", "state", "lost"}, {"documents", "report.parameter_invalid", "next_role", "auditor"},
		{"documents", "report.parameter_invalid", "older_than", "-1"}, {"documents", "report.parameter_invalid", "kind", "toast"},
		{"aging", "report.parameter_invalid", "buckets", "30,30"}, {"aging", "report.parameter_invalid", "buckets", "a"},
		{"aging", "report.parameter_invalid", "by", "no such'"}, {"aging", "report.parameter_invalid", "by", "currency"},
		{"aging", "report.parameter_invalid", "by", "vendor_id"}, {"aging", "report.parameter_invalid", "by", "over_90_functional"},
		{"aging", "report.parameter_invalid", "by", "dimension:"}, {"aging", "report.parameter_invalid", "by", "dimension:a:b"}, {"statement", "report.parameter_invalid", "from", "May"},
		{"invoice", "ap.invoice.not_found", "id", "X"}, {"history", "report.parameter_invalid", "vendor", "V1"}, {"history", "report.parameter_invalid", "payment", "P1"},
		{"tax lines", "report.parameter_invalid", "from", "May"},
	} {
		_, err := sources[c.source].Query(t.Context(), ports.ReadModelQuery{Version: 2, Limit: 1, Params: map[string]string{c.param: c.value}})
		require.Equal(t, c.code, fault.CodeOf(err), "%s %s=%s", c.source, c.param, c.value)
	}
	for _, name := range []string{"documents", "aging", "statement"} {
		_, err := sources[name].Query(t.Context(), ports.ReadModelQuery{Version: 2, Limit: 1, Cursor: "x"})
		require.Equal(t, "cursor.invalid", fault.CodeOf(err), name)
	}
	// A row as the release before wrote it: open items are read from it, other reports wait.
	_, err := p.Exec(t.Context(), `INSERT INTO ap.ledgers (sequence, partition_id, functional_currency) VALUES (1, 7, 'EUR');
		INSERT INTO ap.documents (sequence, partition_id, invoice_date, due_date, document_id, vendor_id, kind, invoice_number, currency, dimensions)
			VALUES (2, 7, '2025-03-01', '2025-04-01', 'D1', 'V1', 'invoice', 'A-1', 'EUR', '{}');
		INSERT INTO ap.document_entries (sequence, partition_id, effective_date, event_id, document_id, action, amount, functional_amount, functional_currency)
			VALUES (3, 7, '2025-03-01', gen_random_uuid(), 'D1', 'posted', 10, 10, 'EUR')`)
	require.NoError(t, err)
	q := ports.ReadModelQuery{Partition: 7, Version: 1, AsOf: event.MustDate("2025-03-31"), Known: 9, Limit: 10, Params: map[string]string{"vendor": "V1"}}
	delete(sources, "history") // of other projections
	delete(sources, "tax lines")
	for name, source := range sources {
		_, err := source.Query(t.Context(), q)
		require.Equal(t, "read.rebuilding", fault.CodeOf(err), name)
	}
	report, err := appostgres.NewOpenItems(p).Query(t.Context(), q)
	require.NoError(t, err)
	rows := items(t, report)
	require.Len(t, rows, 1)
	require.Equal(t, "10.00 2025-04-01", rows[0].Open+" "+rows[0].DueDate)
}

// TestReports_TaxSummary compares the summary with the ledger's tax accounts, also after a void.
func TestReports_TaxSummary(t *testing.T) {
	t.Parallel()
	b := newStoredBooks(t)
	b.must("vendor_admin", "ap.register_vendor", object{"vendor_id": "V1", "name": "Vendor V1", "country": "DE", "registration_id": "RV1"})
	post := func(kind, number, group, net, tax, day string) string {
		total := money.MustNumber(net).Add(money.MustNumber(tax))
		id := b.must("ap_clerk", "ap.submit_"+kind, documentPayload("V1", number, total.String(), object{
			"invoice_date": day, "tax_amount": n(tax), "tax_lines": []object{{"taxable_amount": n(net), "tax_amount": n(tax), "tax_group": group}},
			"lines": []object{{"line_number": 1, "amount": n(net), "account": "5100", "tax_group": group, "dimensions": object{"department": "PROD"}}},
		}))
		b.must("cfo", "ap.approve_"+kind, object{kind + "_id": id})
		return id
	}
	post("invoice", "T-1", "S/19", "1000.00", "190.00", "2025-03-03")
	post("invoice", "T-2", "S/7", "200.00", "14.00", "2025-03-04") // half of it is recoverable
	post("invoice", "T-3", "AE/0", "300.00", "0.00", "2025-03-05") // reverse charge at 19 %
	post("credit_memo", "T-4", "S/19", "100.00", "19.00", "2025-04-02")
	void := post("invoice", "T-5", "S/10", "50.00", "5.00", "2025-03-06")
	b.must("controller", "ap.void_invoice", object{"invoice_id": void, "reason": "booked in error", "posting_date": "2025-04-07"})

	march := rowsOf(b.at("ap/tax-summary", "2025-03-31", 0, nil))
	columns := []string{"tax_group", "category", "rate", "taxable", "tax", "recoverable", "not_recoverable", "output"}
	row := func(group, category, rate, taxable, tax, recoverable, expense, output string) object {
		return object{
			"tax_group": group, "category": category, "rate": rate, "taxable": taxable, "tax": tax, "recoverable": recoverable, "not_recoverable": expense, "output": output,
		}
	}
	var got []object
	for _, r := range march {
		got = append(got, pick(r, columns...))
	}
	require.Equal(t, []object{
		row("AE/0", "AE", "19", "300.00", "57.00", "57.00", "0.00", "57.00"),
		row("S/10", "S", "10", "50.00", "5.00", "0.00", "5.00", "0.00"),
		row("S/19", "S", "19", "1000.00", "190.00", "190.00", "0.00", "0.00"),
		row("S/7", "S", "7", "200.00", "14.00", "7.00", "7.00", "0.00"),
	}, got)
	april := rowsOf(b.at("ap/tax-summary", "2025-04-30", 0, map[string]string{"from": "2025-04-01", "by": "period"}))
	require.Len(t, april, 2)
	require.Equal(t, object{"period": "2025-04", "tax_group": "S/10", "taxable": "-50.00", "tax": "-5.00"}, pick(april[0], "period", "tax_group", "taxable", "tax"))
	require.Equal(t, "-19.00", april[1]["recoverable"])

	for _, known := range b.ends {
		report := b.at("ap/tax-summary", "2025-12-31", known, nil)
		balances := map[string]money.Number{}
		for _, r := range rowsOf(b.at("gl/trial-balance", "2025-12-31", known, nil)) {
			balances[r["account"].(string)] = money.MustNumber(r["balance"].(string))
		}
		input := balances["1400"].Add(balances["1410"])
		require.Equal(t, input.Fixed(2), report["recoverable_functional"], "known at %d", known)
		require.Equal(t, balances["2200"].Neg().Fixed(2), report["output_functional"], "known at %d", known)
	}
}

// TestReports_TaxSummaryOfDiscounts shows what a discount corrects in the period of the payment, and
// takes it back in that of its void. The subledger equals its control account throughout.
func TestReports_TaxSummaryOfDiscounts(t *testing.T) {
	t.Parallel()
	b := newStoredBooks(t)
	for _, a := range []object{{"code": "1010", "type": "asset"}, {"code": "4700", "type": "income"}} {
		a["name"] = "Account"
		b.must("gl_accountant", "gl.define_account", a)
	}
	b.must("admin", "ap.configure", object{"bank_accounts": object{"MAIN": object{"iban": payingIBAN, "currency": "EUR"}}})
	b.must("vendor_admin", "ap.register_vendor", object{"vendor_id": "V1", "name": "Vendor V1", "country": "DE", "registration_id": "RV1"})
	b.must("ap_clerk", "ap.request_bank_change", bankRequest("V1", nil))
	b.must("vendor_admin", "ap.approve_bank_change", object{"request_id": "V1-B1", "verification": "called back"})
	more := object{"discount": object{"date": "2025-04-30", "percent": n("2")}}
	var documents []object
	for i, parts := range [][][3]string{{{"S/19", "1000.00", "190.00"}, {"S/7", "500.00", "35.00"}}, {{"K/0", "300.00", "0"}}} {
		id := b.must("ap_clerk", "ap.submit_invoice", taxed(fmt.Sprintf("D-%dX", i), more, parts...))
		b.must("cfo", "ap.approve_invoice", object{"invoice_id": id})
		documents = append(documents, object{"invoice_id": id})
	}
	run := b.must("ap_clerk:petra", "ap.propose_payment_run", object{"bank_account": "MAIN", "pay_date": "2025-04-10", "take_discount": true, "documents": documents})
	b.must("controller:carla", "ap.approve_payment_run", object{"run_id": run})
	b.must("treasurer", "ap.execute_payment", execution(run+"-P1", object{"executed_on": "2025-04-10"}))
	b.must("treasurer", "ap.void_payment", object{"payment_id": run + "-P1", "reason": "bank took it back", "posting_date": "2025-05-05"})

	month := func(from, to string) (rows []object) {
		for _, r := range rowsOf(b.at("ap/tax-summary", to, 0, map[string]string{"from": from, "by": "period"})) {
			rows = append(rows, pick(r, "tax_group", "taxable", "recoverable", "not_recoverable", "output"))
		}
		return rows
	}
	row := func(group, taxable, recoverable, expense, output string) object {
		return object{"tax_group": group, "taxable": taxable, "recoverable": recoverable, "not_recoverable": expense, "output": output}
	}
	require.Equal(t, []object{
		row("K/0", "300.00", "22.80", "34.20", "57.00"), row("S/19", "1000.00", "190.00", "0.00", "0.00"), row("S/7", "500.00", "17.50", "17.50", "0.00"),
	}, month("2025-03-01", "2025-03-31"))
	require.Equal(t, []object{ // 2 % of each
		row("K/0", "-6.00", "-0.46", "-0.68", "-1.14"), row("S/19", "-20.00", "-3.80", "0.00", "0.00"), row("S/7", "-10.00", "-0.35", "-0.35", "0.00"),
	}, month("2025-04-01", "2025-04-30"))
	require.Equal(t, []object{
		row("K/0", "6.00", "0.46", "0.68", "1.14"), row("S/19", "20.00", "3.80", "0.00", "0.00"), row("S/7", "10.00", "0.35", "0.35", "0.00"),
	}, month("2025-05-01", "2025-05-31"))
	for _, asOf := range []string{"2025-03-31", "2025-04-30", "2025-05-31"} {
		for _, r := range rowsOf(b.at("gl/subledger-control", asOf, 0, nil)) {
			require.Equal(t, []any{"0.00", "0.00"}, []any{r["difference"], r["difference_functional"]}, asOf)
		}
	}

	b.requireTaxLines("2025-05-31")
	lines := rowsOf(b.at("ap/tax-lines", "2025-05-31", 0, map[string]string{"tax_group": "S/19", "period": "2025-04"}))
	require.Len(t, lines, 2)
	require.Equal(t, object{"part": "base", "amount": "-20.00", "functional_amount": "-20.00", "payment_id": run + "-P1", "document_id": "", "date": "2025-04-10"},
		pick(lines[0], "part", "amount", "functional_amount", "payment_id", "document_id", "date"))
	booked := rowsOf(b.at("ap/tax-lines", "2025-05-31", 0, map[string]string{"tax_group": "K/0", "period": "2025-03"}))
	require.Equal(t, object{"document_id": documents[1]["invoice_id"], "payment_id": ""}, pick(booked[0], "document_id", "payment_id"))

	history := func(asOf string, params map[string]string) (out []string) {
		for _, r := range rowsOf(b.at("ap/payment-history", asOf, 0, params)) {
			require.NotEmpty(t, r["event_id"])
			out = append(out, fmt.Sprint(r["step"], " ", r["amount"]))
		}
		return out
	}
	settled := []string{"1725.00", "300.00"}
	want := []string{"proposed ", "approved ", "executed 1984.50"}
	for _, amount := range settled {
		want = append(want, "paid -"+amount, "posted "+amount)
	}
	april := len(want)
	want = append(want, "voided 1984.50")
	for _, amount := range settled {
		want = append(want, "payment_reversed "+amount, "posted "+amount)
	}
	for _, params := range []map[string]string{{"run": run}, {"payment": run + "-P1"}} {
		require.Equal(t, want, history("2099-12-31", params))
		require.Equal(t, want[2:april], history("2025-04-30", params), "proposal and approval are dated on the day of the test's clock")
	}
	require.Equal(t, want[:2], history("2099-12-31", map[string]string{"payment": run + "-P9"}), "of the run alone")
	require.Empty(t, history("2099-12-31", map[string]string{"run": "unknown"}))
}

// requireTaxLines checks that the lines of each tax group add up to the tax summary, and name what they
// are of.
func (b *storedBooks) requireTaxLines(asOf string) {
	b.t.Helper()
	for _, r := range rowsOf(b.at("ap/tax-summary", asOf, 0, nil)) {
		sums := map[string]money.Number{}
		for _, l := range rowsOf(b.at("ap/tax-lines", asOf, 0, map[string]string{"tax_group": r["tax_group"].(string)})) {
			part := l["part"].(string)
			sums[part] = sums[part].Add(money.MustNumber(l["amount"].(string)))
			require.NotEmpty(b.t, l["event_id"])
			require.NotEmpty(b.t, l["journal_number"])
			require.NotEqual(b.t, l["document_id"] == "", l["payment_id"] == "")
		}
		for column, part := range map[string]string{"taxable": "base", "recoverable": "recoverable", "not_recoverable": "not_recoverable", "output": "output"} {
			require.Equal(b.t, r[column], sums[part].Fixed(2), "%s of %s", column, r["tax_group"])
		}
	}
}

// TestOpenItems_Payments checks the entries of payments, and of a voided one.
func TestOpenItems_Payments(t *testing.T) {
	t.Parallel()
	b, p := newBooks(t), pool(t)
	b.vendor("V1", nil)
	id := b.invoice(documentPayload("V1", "A-1", "1000.00", object{"currency": "USD"}))
	b.execute("approver", "ap.approve_invoice", object{"invoice_id": id})
	project(t, p, appostgres.NewProjection(), b.all(), 100)
	head, posted := b.head(), b.all()[len(b.all())-1]
	pay := func(n event.Sequence, action, data string) event.Recorded {
		e := posted
		e.Sequence, e.Type, e.ID = head+n, "ap.invoice."+action, event.ID{byte(n)}
		e.Payload = []byte(`{"data":` + data + `}`)
		return e
	}
	project(t, p, appostgres.NewProjection(), []event.Recorded{
		pay(1, "partially_paid", `{"applied":400,"open_after":600,"payment_id":"P-1","functional_amount":369.80}`),
		pay(2, "paid", `{"applied":600,"open_after":0,"payment_id":"P-2","functional_amount":554.70}`),
		pay(3, "payment_reversed", `{"applied":400,"open_after":400,"payment_id":"P-1","functional_amount":369.80}`),
	}, 10)
	state := func(known event.Sequence) string {
		report, err := appostgres.NewDocument(p, ap.PurchaseOrders).Query(t.Context(), ports.ReadModelQuery{
			Partition: b.entity.Partition, Entity: b.entity, AsOf: event.MustDate("2025-12-31"), Known: known, Limit: 100, Params: map[string]string{"id": id},
		})
		require.NoError(t, err)
		for _, f := range report.Header {
			if f.Name == "state" {
				return f.Value.(string)
			}
		}
		return ""
	}
	open := func(known event.Sequence) string {
		rows := b.openItems(p, "2025-12-31", known, nil)
		if len(rows) == 0 {
			return ""
		}
		return rows[0].Open + " " + rows[0].OpenFunctional
	}
	require.Equal(t, "1000.00 924.50 posted", open(head)+" "+state(head))
	require.Equal(t, "600.00 554.70 partially_paid", open(head+1)+" "+state(head+1))
	require.Equal(t, " paid", open(head+2)+" "+state(head+2))
	require.Equal(t, "400.00 369.80 partially_paid", open(head+3)+" "+state(head+3))
}
