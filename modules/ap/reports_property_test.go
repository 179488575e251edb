package ap_test

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/plugin"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
	applugin "github.com/erpbackbone/backbone/modules/ap/adapters/plugin"
	glplugin "github.com/erpbackbone/backbone/modules/gl/adapters/plugin"
	"github.com/erpbackbone/backbone/test/moduletest"
)

// storedBooks are books on PostgreSQL whose read models follow the log.
type storedBooks struct {
	*moduletest.Books
	t    *testing.T
	ends []event.Sequence // of the batches that intents appended
}

func newStoredBooks(t *testing.T) *storedBooks {
	t.Helper()
	b := &storedBooks{Books: moduletest.NewOnPostgres(t, []plugin.Module{glplugin.New(), applugin.New()}...), t: t}
	setUpBooks(func(who, intentType string, payload object) {
		t.Helper()
		_, err := b.try(who, intentType, payload)
		require.NoError(t, err, intentType)
	})
	for date, rate := range map[string]string{"2025-03-10": "0.9512", "2025-03-18": "0.9033"} {
		_, err := b.try("module", "gl.set_exchange_rate", object{"from": "USD", "to": "EUR", "date": date, "rate": n(rate)})
		require.NoError(t, err)
	}
	return b
}

// try submits an intent and returns the id of the first event's stream.
func (b *storedBooks) try(who, intentType string, payload object) (string, error) {
	b.t.Helper()
	raw, err := json.Marshal(payload)
	require.NoError(b.t, err)
	out, err := b.Submit(who, intentType, string(raw))
	if err != nil {
		return "", err
	}
	require.NotEmpty(b.t, out.Events, "%s %s", intentType, out.Status)
	b.ends = append(b.ends, out.Events[len(out.Events)-1].Sequence)
	return out.Events[0].Stream.ID, nil
}

func (b *storedBooks) must(who, intentType string, payload object) string {
	b.t.Helper()
	id, err := b.try(who, intentType, payload)
	require.NoError(b.t, err, "%s", intentType)
	return id
}

// at asks a report and decodes it as one object: header, rows and footer.
func (b *storedBooks) at(path, asOf string, known event.Sequence, params map[string]string) object {
	b.t.Helper()
	knownAt := ""
	if known > 0 {
		knownAt = fmt.Sprintf("seq:%d", known)
	}
	report := b.ReportAt(path, asOf, knownAt, params)
	out := object{"rows": report.Rows}
	for _, f := range append(slices.Clone(report.Header), report.Footer...) {
		out[f.Name] = f.Value
	}
	text, err := json.Marshal(out)
	require.NoError(b.t, err)
	var decoded object
	require.NoError(b.t, json.Unmarshal(text, &decoded))
	if decoded["rows"] == nil {
		decoded["rows"] = []any{}
	}
	return decoded
}

func rowsOf(report object) []object {
	var rows []object
	for _, r := range report["rows"].([]any) {
		rows = append(rows, r.(object))
	}
	return rows
}

func sumOf(rows []object, column string) money.Number {
	var sum money.Number
	for _, r := range rows {
		sum = sum.Add(money.MustNumber(r[column].(string)))
	}
	return sum
}

// control is the credit balance of the control account.
func (b *storedBooks) control(asOf string, known event.Sequence) money.Number {
	b.t.Helper()
	for _, r := range rowsOf(b.at("gl/trial-balance", asOf, known, nil)) {
		if r["account"] == "2000" {
			return money.MustNumber(r["balance"].(string)).Neg()
		}
	}
	return money.Number{}
}

// walk takes documents through random lives. An intent that the rules refuse changes nothing.
func (b *storedBooks) walk(r *rand.Rand, steps int) {
	b.t.Helper()
	var invoices, memos []string
	day := func() string { return fmt.Sprintf("2025-03-%02d", 1+r.Intn(28)) }
	body := func(kind string) object {
		p := documentPayload(fmt.Sprintf("V%d", 1+r.Intn(2)), "", fmt.Sprintf("%d.%02d", 50+r.Intn(500), r.Intn(100)), object{
			"invoice_date": day(), "currency": []string{"EUR", "USD", "USD"}[r.Intn(3)], "due_date": nil,
		})
		if kind == "invoice" && r.Intn(5) == 0 {
			p["document_type"] = "prepayment"
		}
		return p
	}
	pick := func(ids []string) string {
		if len(ids) == 0 {
			return "none"
		}
		return ids[r.Intn(len(ids))]
	}
	for i := range steps {
		kind, known := "invoice", &invoices
		if r.Intn(3) == 0 {
			kind, known = "credit_memo", &memos
		}
		id := pick(*known)
		var err error
		try := func(who, intentType string, payload object) string {
			var id string
			id, err = b.try(who, intentType, payload)
			return id
		}
		switch action := r.Intn(20); {
		case action < 5:
			p := body(kind)
			p["invoice_number"] = fmt.Sprintf("L%dX", i)
			*known = append(*known, try("ap_clerk", "ap.submit_"+kind, p))
		case action < 10:
			try("cfo", "ap.approve_"+kind, object{kind + "_id": id, "posting_date": day()})
		case action < 11:
			p := body(kind)
			delete(p, "invoice_number")
			delete(p, "vendor_id")
			p[kind+"_id"], p["reason"] = id, "typing error"
			try("ap_clerk", "ap."+[]string{"correct_", "reinstate_"}[r.Intn(2)]+kind, p)
		case action < 12:
			try("approver", "ap.hold_"+kind, object{kind + "_id": id, "kind": "DISPUTE", "reason": "short delivery"})
		case action < 13:
			try("approver", "ap.release_hold", object{"hold_id": fmt.Sprintf("%s-H%d", id, 1+r.Intn(2)), "reason": "agreed"})
		case action < 14:
			try("controller", "ap.void_"+kind, object{kind + "_id": id, "reason": "booked in error", "posting_date": day()})
		case action < 15:
			try("approver", "ap.reject_"+kind, object{kind + "_id": id, "reason": "not ordered"})
		case action < 18:
			memo, invoice, amount := b.pair(r)
			try("ap_clerk", "ap.apply_credit", object{"credit_memo_id": memo, "invoice_id": invoice, "amount": n(amount), "posting_date": "2025-03-28"})
		case action < 19:
			prepayment, invoice := b.prepaidPair(r)
			try("ap_clerk", "ap.apply_prepayment", object{"prepayment_id": prepayment, "invoice_id": invoice, "amount": n(fmt.Sprintf("%d.01", r.Intn(20))), "posting_date": "2025-03-29"})
		default:
			b.undoOne(r, try)
		}
		if err != nil {
			f, ok := fault.As(err)
			require.True(b.t, ok && f.Kind != fault.Internal, "%v", err)
		}
	}
}

// pair finds a credit memo and an invoice that can settle each other, with a part or all of what
// both have open.
func (b *storedBooks) pair(r *rand.Rand) (memo, invoice, amount string) {
	items := rowsOf(b.at("ap/open-items", "2025-12-31", 0, nil))
	r.Shuffle(len(items), func(i, j int) { items[i], items[j] = items[j], items[i] })
	for _, m := range items {
		for _, i := range items {
			if m["kind"] == "credit_memo" && i["kind"] != "credit_memo" && m["vendor_id"] == i["vendor_id"] && m["currency"] == i["currency"] {
				fromMemo, fromInvoice := money.MustNumber(m["open"].(string)).Neg(), money.MustNumber(i["open"].(string))
				most := fromInvoice
				if fromMemo.Cmp(most) < 0 {
					most = fromMemo
				}
				if ten := money.FromInt(10); r.Intn(2) == 0 && most.Cmp(ten) > 0 {
					most = ten
				}
				return m["document_id"].(string), i["document_id"].(string), most.Fixed(2)
			}
		}
	}
	return "none", "none", "1.00"
}

// prepaidPair finds a paid prepayment and an invoice of the same vendor and currency.
func (b *storedBooks) prepaidPair(r *rand.Rand) (prepayment, invoice string) {
	paid := rowsOf(b.at("ap/documents", "", 0, map[string]string{"state": "paid", "kind": "prepayment"}))
	items := rowsOf(b.at("ap/open-items", "2025-12-31", 0, map[string]string{"kind": "invoice"}))
	r.Shuffle(len(items), func(i, j int) { items[i], items[j] = items[j], items[i] })
	for _, p := range paid {
		for _, i := range items {
			if p["vendor_id"] == i["vendor_id"] && p["currency"] == i["currency"] {
				return p["document_id"].(string), i["document_id"].(string)
			}
		}
	}
	return "none", "none"
}

// undoOne undoes the latest application of an invoice that has one.
func (b *storedBooks) undoOne(r *rand.Rand, try func(who, intentType string, payload object) string) {
	var settled []object
	for _, state := range []string{"partially_paid", "paid"} {
		settled = append(settled, rowsOf(b.at("ap/documents", "", 0, map[string]string{"state": state}))...)
	}
	r.Shuffle(len(settled), func(i, j int) { settled[i], settled[j] = settled[j], settled[i] })
	for _, d := range settled {
		id, undone := d["document_id"].(string), map[any]bool{}
		for _, a := range slices.Backward(b.at("ap/invoices/{id}", "", 0, map[string]string{"id": id})["applications"].([]any)) {
			applied := a.(object)
			application, intentType := applied["application_id"], ""
			switch applied["action"] {
			case "credit_unapplied", "prepayment_unapplied":
				undone[application] = true
			case "credit_applied":
				intentType = "ap.unapply_credit"
			case "prepayment_applied":
				intentType = "ap.unapply_prepayment"
			}
			if intentType != "" && !undone[application] {
				try("ap_clerk", intentType, object{"invoice_id": id, "application_id": application, "reason": "wrong invoice", "posting_date": "2025-03-30"})
				return
			}
		}
	}
}

// TestReadModels_EqualControlAccount checks on random life cycles that open items, aging and the
// vendors' statements have the balance of the control account on every date, as known after
// every batch.
func TestReadModels_EqualControlAccount(t *testing.T) {
	t.Parallel()
	b := newStoredBooks(t)
	for _, v := range []string{"V1", "V2"} {
		b.must("vendor_admin", "ap.register_vendor", object{"vendor_id": v, "name": "Vendor " + v, "country": "DE", "registration_id": "R" + v})
	}
	r := rand.New(rand.NewSource(13))
	b.walk(r, 260)
	actions := map[string]bool{}
	for _, v := range []string{"V1", "V2"} {
		for _, row := range rowsOf(b.at("ap/vendor-statement", "2025-12-31", 0, map[string]string{"vendor": v})) {
			actions[row["action"].(string)] = true
		}
	}
	for _, action := range []string{"posted", "voided", "applied", "unapplied", "credit_applied", "credit_unapplied"} {
		require.True(t, actions[action], "the walk has no %s, only %v", action, actions)
	}
	for range 60 {
		known := b.ends[r.Intn(len(b.ends))]
		asOf := fmt.Sprintf("2025-03-%02d", 1+r.Intn(31))
		name := fmt.Sprintf("as of %s, known at %d", asOf, known)
		want := b.control(asOf, known)
		got := sumOf(rowsOf(b.at("ap/open-items", asOf, known, nil)), "open_functional")
		require.True(t, got.Equal(want), "%s: open items %s, control account %s", name, got, want)
		aging := b.at("ap/aging", asOf, known, map[string]string{"by": []string{"vendor", "department"}[r.Intn(2)], "buckets": "5,10"})
		require.True(t, sumOf(rowsOf(aging), "total_functional").Equal(want), name)
		require.True(t, money.MustNumber(aging["total_functional"].(string)).Equal(want), name)
		var statements money.Number
		for _, v := range []string{"V1", "V2"} {
			s := b.at("ap/vendor-statement", asOf, known, map[string]string{"vendor": v, "from": "2025-03-10"})
			rows := rowsOf(s)
			closing := money.Number{}
			for _, c := range s["closing"].([]any) {
				closing = closing.Add(money.MustNumber(c.(object)["functional_balance"].(string)))
			}
			if len(rows) > 0 {
				require.Equal(t, closing.Fixed(2), rows[len(rows)-1]["functional_balance"], name)
			}
			statements = statements.Add(closing)
		}
		require.True(t, statements.Equal(want), "%s: statements %s, control account %s", name, statements, want)
	}
	// As known now, the worklist has what is open.
	open := map[string]string{}
	for _, row := range rowsOf(b.at("ap/open-items", "2025-12-31", 0, nil)) {
		open[row["document_id"].(string)] = row["open"].(string) + " " + row["state"].(string)
	}
	listed := map[string]string{}
	for _, row := range rowsOf(b.at("ap/documents", "", 0, nil)) {
		if state := row["state"].(string); state == "posted" || state == "partially_paid" {
			listed[row["document_id"].(string)] = row["open"].(string) + " " + state
		}
		page := b.at("ap/invoices/{id}", "", 0, map[string]string{"id": row["document_id"].(string)})
		require.Equal(t, row["state"], page["state"])
		timeline := rowsOf(page)
		require.Equal(t, row["state"], timeline[len(timeline)-1]["state"], "%v", timeline)
	}
	require.Equal(t, open, listed)
}

// TestSubmit_DuplicateBeforeOtherRefusals checks that a paper that comes again is recognised even if
// its period cannot be posted to any more: the answer says what became of its document.
func TestSubmit_DuplicateBeforeOtherRefusals(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.vendor("V1", nil)
	id := b.invoice(documentPayload("V1", "A-1", "100.00", nil))
	b.execute("approver", "ap.reject_invoice", object{"invoice_id": id, "reason": "not ordered"})
	f := b.refuse("ap.invoice.duplicate", "ap_clerk", "ap.submit_invoice", documentPayload("V1", "A-1", "100.00", object{"invoice_date": "2025-12-05"}))
	require.Equal(t, "rejected", f.Attributes["holder_state"])
	require.Equal(t, []string{"invoice_date"}, f.Attributes["differs"])
}
