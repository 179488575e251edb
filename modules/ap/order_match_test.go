package ap_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/fault"
)

// match turns the comparison with purchase orders on, and registers the vendor V1.
func (b *books) match(policy string, more object) {
	b.tb.Helper()
	settings := object{"policy": policy}
	for k, v := range more {
		settings[k] = v
	}
	b.execute("admin", "ap.configure", object{"match": settings})
	b.vendor("V1", nil)
}

// orderPayload is the first revision of PO-1: 100 pieces for 25.00 each.
func orderPayload(more object) object {
	p := object{
		"po_reference": "PO-1", "revision": 1, "vendor_id": "V1", "currency": "EUR", "status": "open",
		"lines": []object{{"po_line_reference": "1", "quantity": 100, "unit_price": n("25.00"), "account": "6100", "dimensions": object{"department": "ENG"}}},
	}
	for k, v := range more {
		p[k] = v
	}
	return p
}

func (b *books) order(more object) {
	b.tb.Helper()
	b.execute("ap_clerk", "ap.record_purchase_order", orderPayload(more))
}

func (b *books) receive(number, quantity string) {
	b.tb.Helper()
	b.execute("module", "ap.record_goods_receipt", object{"receipt_number": number, "po_reference": "PO-1", "lines": []object{{"po_line_reference": "PO-1-1", "quantity": n(quantity)}}})
}

// orderInvoice is an invoice for a quantity of the order's line.
func orderInvoice(number, quantity, amount string, more object) object {
	p := documentPayload("V1", number, amount, object{
		"po_reference": "PO-1",
		"lines":        []object{{"line_number": 1, "po_line_reference": "PO-1-1", "quantity": n(quantity), "amount": n(amount)}},
	})
	for k, v := range more {
		if p[k] = v; v == nil {
			delete(p, k)
		}
	}
	return p
}

// findings lists the open holds of a document: "KIND expected/got".
func findings(events []recorded) []string {
	out := []string{}
	for _, e := range events {
		if f, ok := e.data["finding"].(object); ok && strings.HasSuffix(e.Type, ".held") {
			out = append(out, fmt.Sprintf("%s %s: %s, got %s", e.data["kind"], f["differs"], f["expected"], f["got"]))
		}
	}
	return out
}

// billing lists what events change in what documents bill: "quantity (change)".
func billing(events []recorded) []string {
	out := []string{}
	for _, e := range events {
		if e.Type == "ap.purchase_order.billed" {
			for _, l := range e.data["lines"].([]any) {
				line := l.(object)
				out = append(out, fmt.Sprintf("%s (%s)", line["quantity"], line["change"]))
			}
		}
	}
	return out
}

func TestMatch_Findings(t *testing.T) {
	t.Parallel()
	line := func(more object) []object {
		l := object{"line_number": 1, "po_line_reference": "1", "quantity": 10, "amount": n("250.00")}
		for k, v := range more {
			if l[k] = v; v == nil {
				delete(l, k)
			}
		}
		return []object{l}
	}
	items := func(ids ...string) (lines []object) { // the n-th line orders n pieces for 25.00 each
		for i, id := range ids {
			lines = append(lines, object{"po_line_reference": fmt.Sprint(i + 1), "item_id": id, "quantity": i + 1, "unit_price": n("25.00")})
		}
		return lines
	}
	inUnit := func(unit string) []object {
		return []object{{"po_line_reference": "1", "quantity": 100, "unit": unit, "unit_price": n("25.00")}}
	}
	for name, tc := range map[string]struct {
		policy   string // default three_way
		settings object
		order    object
		received string
		document object
		want     []string
	}{
		"fits":                        {received: "10"},
		"two way ignores receipts":    {policy: "two_way"},
		"off compares nothing":        {policy: "off", order: object{"status": "closed"}},
		"nothing received":            {want: []string{"QTY_RECEIVED quantity: 0, got 10"}},
		"less received":               {received: "9.9999999999", want: []string{"QTY_RECEIVED quantity: 9.9999999999, got 10"}},
		"more than ordered":           {received: "101", document: object{"lines": line(object{"quantity": n("100.5"), "amount": n("2512.50")}), "total_amount": n("2512.50")}, want: []string{"QTY_ORDERED quantity: 100, got 100.5"}},
		"over within its percent":     {settings: object{"over_ordered_percent": 1, "over_received_percent": 1}, received: "100", document: object{"lines": line(object{"quantity": 101, "amount": n("2525.00")}), "total_amount": n("2525.00")}},
		"over by more than percent":   {settings: object{"over_ordered_percent": 1, "over_received_percent": n("1.5")}, received: "100", document: object{"lines": line(object{"quantity": n("101.01"), "amount": n("2525.25")}), "total_amount": n("2525.25")}, want: []string{"QTY_ORDERED quantity: 100, got 101.01"}},
		"price at the percent":        {received: "10", document: object{"lines": line(object{"amount": n("252.50")}), "total_amount": n("252.50")}},
		"price over the percent":      {received: "10", document: object{"lines": line(object{"amount": n("252.51")}), "total_amount": n("252.51")}, want: []string{"PRICE_VARIANCE unit_price: 25.00, got 252.51 / 10"}},
		"price under the percent":     {received: "10", document: object{"lines": line(object{"amount": n("247.49")}), "total_amount": n("247.49")}, want: []string{"PRICE_VARIANCE unit_price: 25.00, got 247.49 / 10"}},
		"unit price alone is no fact": {received: "10", document: object{"lines": line(object{"unit_price": n("99.00")})}},
		"price at the amount": {received: "10", order: object{"lines": []object{{"po_line_reference": "1", "quantity": 1, "unit_price": n("5000")}}},
			document: object{"lines": line(object{"quantity": 1, "amount": n("5010.00")}), "total_amount": n("5010.00")}},
		"price over the amount": {received: "10", order: object{"lines": []object{{"po_line_reference": "1", "quantity": 1, "unit_price": n("5000")}}},
			document: object{"lines": line(object{"quantity": 1, "amount": n("5010.01")}), "total_amount": n("5010.01")}, want: []string{"PRICE_VARIANCE unit_price: 5000, got 5010.01 / 1"}},
		"price of a dozen": {received: "10", order: object{"lines": []object{{"po_line_reference": "1", "quantity": 10, "unit_price": n("1.00"), "price_base_quantity": 12}}},
			document: object{"lines": line(object{"amount": n("0.83")}), "total_amount": n("0.83")}},
		"price of a dozen differs": {received: "10", order: object{"lines": []object{{"po_line_reference": "1", "quantity": 10, "unit_price": n("1.00"), "price_base_quantity": 12}}},
			document: object{"lines": line(object{"amount": n("0.85")}), "total_amount": n("0.85")}, want: []string{"PRICE_VARIANCE unit_price: 1.00 / 12, got 0.85 / 10"}},
		"rounded to a cent": {received: "10", order: object{"lines": []object{{"po_line_reference": "1", "quantity": 10, "unit_price": n("0.0125")}}},
			document: object{"lines": line(object{"quantity": 1, "amount": n("0.01")}), "total_amount": n("0.01")}},
		"no tolerance": {received: "10", settings: object{"unit_price_percent": 0, "unit_price_amount": 0}, document: object{"lines": line(object{"amount": n("250.01")}), "total_amount": n("250.01")},
			want: []string{"PRICE_VARIANCE unit_price: 25.00, got 250.01 / 10"}},
		"no quantity":      {received: "10", document: object{"lines": line(object{"quantity": nil})}, want: []string{"QTY_ORDERED quantity: a quantity, got none"}},
		"no order named":   {document: object{"po_reference": nil, "lines": []object{{"line_number": 1, "amount": n("250.00")}}}},
		"line of no order": {document: object{"po_reference": nil}, want: []string{"PO_MISSING order: a recorded order, got "}},
		"unknown order":    {document: object{"po_reference": "PO-2"}, want: []string{"PO_MISSING order: a recorded order, got PO-2"}},
		"impossible order": {document: object{"po_reference": "no order / 7"}, want: []string{"PO_MISSING order: a recorded order, got no order / 7"}},
		"no line named":    {received: "10", document: object{"lines": line(object{"po_line_reference": nil})}, want: []string{"PO_MISSING line: a line of the order, got "}},
		"unknown line":     {received: "10", document: object{"lines": line(object{"po_line_reference": "PO-1-7"})}, want: []string{"PO_MISSING line: a line of the order, got PO-1-7"}},
		"line of no name":  {received: "10", document: object{"lines": line(object{"po_line_reference": "PO-1-"})}, want: []string{"PO_MISSING line: a line of the order, got PO-1-"}},
		"by the item": {policy: "two_way", order: object{"lines": items("A", "B")}, document: object{"lines": line(object{"po_line_reference": nil, "item_id": "B"})},
			want: []string{"QTY_ORDERED quantity: 2, got 10"}},
		"item of several lines": {policy: "two_way", order: object{"lines": items("A", "A")}, document: object{"lines": line(object{"po_line_reference": nil, "item_id": "A"})},
			want: []string{"PO_MISSING line: a line of the order, got A"}},
		"item of no line": {policy: "two_way", order: object{"lines": items("A", "")}, document: object{"lines": line(object{"po_line_reference": nil, "item_id": "B"})},
			want: []string{"PO_MISSING line: a line of the order, got B"}},
		"reference before the item": {policy: "two_way", order: object{"lines": items("A", "B", "C", "D", "E", "F", "G", "H", "I", "J")}, document: object{"lines": line(object{"po_line_reference": "10", "item_id": "B"})}},
		"same unit":                 {received: "10", order: object{"lines": inUnit("KGM")}, document: object{"lines": line(object{"unit": "KGM"})}},
		"unit of the order alone":   {received: "10", order: object{"lines": inUnit("KGM")}},
		"unit of the paper alone":   {received: "10", document: object{"lines": line(object{"unit": "KGM"})}},
		"another unit":              {order: object{"lines": inUnit("KGM")}, document: object{"lines": line(object{"unit": "H87", "amount": n("900.00")}), "total_amount": n("900.00")}, want: []string{"UNIT_DIFFERS unit: KGM, got H87"}},
		"unit without a quantity":   {received: "10", order: object{"lines": inUnit("KGM")}, document: object{"lines": line(object{"unit": "H87", "quantity": nil})}, want: []string{"QTY_ORDERED quantity: a quantity, got none"}},
		"freight":                   {received: "10", document: object{"lines": append(line(nil), object{"line_number": 2, "kind": "charge", "amount": n("5.00")}), "total_amount": n("255.00")}},
		"two lines of one": {received: "15", document: object{"lines": append(line(nil), object{"line_number": 2, "po_line_reference": "PO-1-1", "quantity": 10, "amount": n("250.00")}), "total_amount": n("500.00")},
			want: []string{"QTY_RECEIVED quantity: 15, got 20"}},
		"closed order":     {received: "10", order: object{"status": "closed"}, want: []string{"PO_MISSING status: open, got closed"}},
		"currency differs": {received: "10", document: object{"currency": "USD"}, want: []string{"PRICE_VARIANCE currency: EUR, got USD"}},
		"another vendor":   {document: object{"vendor_id": "V2"}, want: []string{"PO_MISSING vendor: V1, got V2"}},
		"prepayment":       {document: object{"document_type": "prepayment"}},
		"price and quantity": {document: object{"lines": line(object{"amount": n("300.00")}), "total_amount": n("300.00")},
			want: []string{"PRICE_VARIANCE unit_price: 25.00, got 300.00 / 10", "QTY_RECEIVED quantity: 0, got 10"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBooks(t)
			if tc.policy == "" {
				tc.policy = "three_way"
			}
			b.match(tc.policy, tc.settings)
			b.vendor("V2", nil)
			b.order(tc.order)
			if tc.received != "" {
				b.receive("R1", tc.received)
			}
			p := orderInvoice("A", "10", "250.00", object{"lines": line(nil)})
			for k, v := range tc.document {
				if p[k] = v; v == nil {
					delete(p, k)
				}
			}
			events := b.events(b.execute("ap_clerk", "ap.submit_invoice", p))
			if tc.want == nil {
				tc.want = []string{}
			}
			require.Equal(t, tc.want, findings(events))
			require.Equal(t, len(tc.want) == 0, slices.Contains(types(events), "ap.invoice.validated"))
			for _, e := range events {
				if e.Type == "ap.invoice.held" {
					require.Equal(t, "approval", e.data["blocks"])
				}
			}
		})
	}
}

// TestMatch_OrderRequired submits invoices that name no order.
func TestMatch_OrderRequired(t *testing.T) {
	t.Parallel()
	const missing = "PO_MISSING order: a recorded order, got "
	for name, tc := range map[string]struct {
		policy   string // default two_way
		settings object
		vendor   string // order_required of the vendor
		intent   string // default ap.submit_invoice
		document object
		want     []string
	}{
		"not required":                 {},
		"required":                     {settings: object{"order_required": true}, want: []string{missing}},
		"matching is off":              {policy: "off", settings: object{"order_required": true}, vendor: "always"},
		"limit alone requires nothing": {settings: object{"order_required_above": 1}},
		"at the limit":                 {settings: object{"order_required": true, "order_required_above": n("250.00")}},
		"above the limit":              {settings: object{"order_required": true, "order_required_above": n("249.99")}, want: []string{missing}},
		"in book currency below":       {settings: object{"order_required": true, "order_required_above": n("231.13")}, document: object{"currency": "USD"}},
		"in book currency above":       {settings: object{"order_required": true, "order_required_above": n("231.12")}, document: object{"currency": "USD"}, want: []string{missing}},
		"no rate":                      {settings: object{"order_required": true, "order_required_above": 1000}, document: object{"currency": "GBP"}, want: []string{missing}},
		"vendor always":                {settings: object{"order_required_above": 1000}, vendor: "always", want: []string{missing}},
		"vendor never":                 {settings: object{"order_required": true}, vendor: "never"},
		"vendor as the settings say":   {settings: object{"order_required": true}, vendor: "default", want: []string{missing}},
		"credit memo":                  {settings: object{"order_required": true}, vendor: "always", intent: "ap.submit_credit_memo"},
		"prepayment":                   {settings: object{"order_required": true}, vendor: "always", document: object{"document_type": "prepayment"}},
		"opening item":                 {settings: object{"order_required": true}, document: object{"document_type": "opening"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBooks(t)
			b.match(cmp.Or(tc.policy, "two_way"), tc.settings)
			if tc.vendor != "" {
				b.execute("vendor_admin", "ap.change_vendor", object{"vendor_id": "V1", "order_required": "never", "reason": "before"})
				b.execute("vendor_admin", "ap.change_vendor", object{"vendor_id": "V1", "order_required": tc.vendor, "reason": "exception"})
				entity, _ := b.entityOf("vendor", "V1")
				require.Equal(t, tc.vendor, entity["order_required"])
			}
			events := b.events(b.execute("ap_clerk", cmp.Or(tc.intent, "ap.submit_invoice"), documentPayload("V1", "A", "250.00", tc.document)))
			require.Equal(t, append([]string{}, tc.want...), findings(events))
		})
	}
}

// TestMatch_OrderRequiredReleased follows a hold for a missing order to its release: by a person, by an
// order that the correction names, and by the settings.
func TestMatch_OrderRequiredReleased(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.match("two_way", object{"order_required": true})
	b.order(nil)
	validated := func(id string) recorded {
		t.Helper()
		events := b.events(b.execute("ap_clerk", "ap.validate_invoice", object{"invoice_id": id}))
		require.Equal(t, "ap.invoice.validated", events[len(events)-1].Type)
		return events[len(events)-1]
	}
	released := b.invoice(documentPayload("V1", "A", "10", nil))
	b.refuse("ap.invoice.on_hold", "approver", "ap.approve_invoice", object{"invoice_id": released})
	b.execute("approver", "ap.release_hold", object{"hold_id": released + "-H1", "reason": "rent"})
	require.Equal(t, "no_order", validated(released).data["match"], "a released finding does not come back")

	corrected := b.invoice(documentPayload("V1", "B", "250", nil))
	body := orderInvoice("", "10", "250", object{"vendor_id": nil, "invoice_number": nil, "invoice_id": corrected, "reason": "order"})
	require.Contains(t, types(b.events(b.execute("ap_clerk", "ap.correct_invoice", body))), "ap.invoice.validated")

	waiting := b.invoice(documentPayload("V1", "C", "30", nil))
	b.refuse("ap.invoice.on_hold", "ap_clerk", "ap.validate_invoice", object{"invoice_id": waiting})
	b.execute("admin", "ap.configure", object{"match": object{"order_required": false}})
	validated(waiting)
}

// TestMatch_Validated shows what the validated event says of each line, and that lines without an
// account take that of the order.
func TestMatch_Validated(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.match("three_way", nil)
	b.order(nil)
	b.receive("R1", "40")
	events := b.events(b.execute("ap_clerk", "ap.submit_invoice", orderInvoice("A", "40", "1000.00", nil)))
	require.Equal(t, []string{"ap.invoice.submitted", "ap.purchase_order.billed", "ap.invoice.validated"}, types(events))
	submitted := events[0].data["lines"].([]any)[0].(object)
	require.Equal(t, "6100", submitted["account"])
	require.Equal(t, object{"department": "ENG"}, submitted["dimensions"])
	require.Equal(t, "three_way", events[2].data["match"])
	require.Equal(t, []any{object{"line_number": n("1"), "po_line_reference": "1", "quantity": "40", "ordered": "100", "received": "40", "billed": "40"}}, events[2].data["lines"])

	own := b.events(b.execute("ap_clerk", "ap.submit_invoice", orderInvoice("B", "1", "25.00", object{
		"lines": []object{{"line_number": 1, "po_line_reference": "1", "quantity": 1, "amount": n("25.00"), "account": "5100", "dimensions": object{"department": "PROD"}}},
	})))[0].data["lines"].([]any)[0].(object)
	require.Equal(t, "5100", own["account"], "the document's own account comes first")
	require.Equal(t, object{"department": "PROD"}, own["dimensions"])
}

// TestMatch_Remainder follows what documents bill of one line through correction, rejection, void,
// reinstatement and a credit memo.
func TestMatch_Remainder(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.match("two_way", nil)
	b.order(nil)
	run := func(who, intentType string, payload object) []recorded {
		t.Helper()
		return b.events(b.execute(who, intentType, payload))
	}
	submit := func(number, quantity, amount string) (id string, events []recorded) {
		t.Helper()
		events = run("ap_clerk", "ap.submit_invoice", orderInvoice(number, quantity, amount, nil))
		return events[0].Stream.ID, events
	}
	validate := func(id string) []recorded {
		t.Helper()
		return run("ap_clerk", "ap.validate_invoice", object{"invoice_id": id})
	}
	correction := func(id, quantity, amount string) object {
		p := orderInvoice("", quantity, amount, object{"vendor_id": nil, "invoice_number": nil})
		p["invoice_id"], p["reason"] = id, "quantity"
		return p
	}
	a, _ := submit("A", "60", "1500.00")
	second, events := submit("B", "50", "1250.00")
	require.Equal(t, []string{"QTY_ORDERED quantity: 100, got 110"}, findings(events))
	require.Equal(t, []string{"ap.invoice.validated"}, types(validate(a)), "what came later holds no earlier document")
	b.refuse("ap.invoice.on_hold", "ap_clerk", "ap.validate_invoice", object{"invoice_id": second})

	events = run("ap_clerk", "ap.correct_invoice", correction(a, "45", "1125.00"))
	require.Equal(t, []string{"45 (-15)"}, billing(events))
	require.Equal(t, []string{"ap.invoice.hold_released", "ap.invoice.validated"}, types(validate(second)))
	events = run("ap_clerk", "ap.correct_invoice", correction(a, "60", "1500.00"))
	require.Equal(t, []string{"QTY_ORDERED quantity: 100, got 110"}, findings(events), "who bills more gets behind the others")

	require.Equal(t, []string{"0 (-50)"}, billing(run("approver", "ap.reject_invoice", object{"invoice_id": second, "reason": "wrong"})))
	validate(a)
	run("approver", "ap.approve_invoice", object{"invoice_id": a})
	_, events = submit("C", "50", "1250.00")
	require.Equal(t, []string{"QTY_ORDERED quantity: 100, got 110"}, findings(events))
	c := events[0].Stream.ID

	credit := orderInvoice("D", "20", "500.00", nil)
	events = run("ap_clerk", "ap.submit_credit_memo", credit)
	memo := object{"credit_memo_id": events[0].Stream.ID}
	require.Empty(t, billing(events), "an undecided credit memo gives nothing back")
	b.refuse("ap.invoice.on_hold", "ap_clerk", "ap.validate_invoice", object{"invoice_id": c})
	require.Equal(t, []string{"-20 (-20)"}, billing(run("approver", "ap.approve_credit_memo", memo)))
	require.Contains(t, types(validate(c)), "ap.invoice.validated")
	memo["reason"] = "wrong"
	require.Equal(t, []string{"0 (20)"}, billing(run("controller", "ap.void_credit_memo", memo)))

	events = run("controller", "ap.void_invoice", object{"invoice_id": a, "reason": "wrong"})
	require.Equal(t, []string{"0 (-60)"}, billing(events))
	events = run("ap_clerk", "ap.reinstate_invoice", correction(a, "60", "1500.00"))
	require.Equal(t, []string{"60 (60)"}, billing(events))
	require.Equal(t, []string{"QTY_ORDERED quantity: 100, got 110"}, findings(events))
	events = run("ap_clerk", "ap.correct_invoice", func() object {
		p := correction(a, "60", "1500.00")
		p["po_reference"] = nil
		delete(p, "po_reference")
		p["lines"] = []object{{"line_number": 1, "amount": n("1500.00"), "account": "5100"}}
		return p
	}())
	require.Equal(t, []string{"0 (-60)"}, billing(events))
	require.Contains(t, types(events), "ap.invoice.validated")
}

// TestMatch_Item follows documents whose lines name an item: they bill the line that has it, also after a
// revision moved the item, and take the account of that line.
func TestMatch_Item(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.match("two_way", nil)
	revision := func(number int, items ...string) object {
		lines := []object{}
		for i, id := range items {
			lines = append(lines, object{"po_line_reference": fmt.Sprint(i + 1), "item_id": id, "quantity": 10, "unit_price": n("25.00"), "account": "6100"})
		}
		return orderPayload(object{"revision": number, "lines": lines})
	}
	byItem := func(number, quantity, amount string) object {
		return orderInvoice(number, quantity, amount, object{"lines": []object{{"line_number": 1, "item_id": "B", "quantity": n(quantity), "amount": n(amount)}}})
	}
	billed := func() any { e, _ := b.entityOf("purchase_order", "PO-1"); return e["billed"] }
	run := func(who, intentType string, payload object) []recorded {
		t.Helper()
		return b.events(b.execute(who, intentType, payload))
	}
	early := run("ap_clerk", "ap.submit_invoice", byItem("A", "4", "100.00"))
	require.Equal(t, []string{"PO_MISSING order: a recorded order, got PO-1"}, findings(early))
	require.Equal(t, []string{"ap.purchase_order.recorded"}, types(run("module", "ap.record_purchase_order", revision(1, "A", "B"))), "it bills nothing yet")
	a := object{"invoice_id": early[0].Stream.ID}
	validated := run("ap_clerk", "ap.validate_invoice", a)
	require.Equal(t, []string{"4 (4)"}, billing(validated))
	require.Equal(t, "2", validated[len(validated)-1].data["lines"].([]any)[0].(object)["po_line_reference"])

	second := run("ap_clerk", "ap.submit_invoice", byItem("B", "6", "150.00"))
	require.Equal(t, "6100", second[0].data["lines"].([]any)[0].(object)["account"])
	third := run("ap_clerk", "ap.submit_invoice", byItem("C", "1", "25.00"))
	require.Equal(t, []string{"QTY_ORDERED quantity: 10, got 11"}, findings(third))
	require.Equal(t, object{"2": "11"}, billed())

	run("approver", "ap.approve_invoice", a)
	moved := run("module", "ap.record_purchase_order", revision(2, "B", "C"))
	require.Equal(t, []string{"6 (6)", "0 (-6)", "1 (1)", "0 (-1)"}, billing(moved))
	require.Equal(t, []string{"ap.invoice.validated"}, types(moved)[len(moved)-1:], "4 of the approved document stay on the line that it billed")
	require.Equal(t, object{"1": "7", "2": "4"}, billed())
	twice := run("module", "ap.record_purchase_order", revision(3, "B", "B"))
	require.Equal(t, []string{"PO_MISSING line: a line of the order, got B", "PO_MISSING line: a line of the order, got B"}, findings(twice))
	require.Equal(t, object{"1": "0", "2": "4"}, billed())
	run("module", "ap.record_purchase_order", revision(4, "C", "B"))

	memo := run("ap_clerk", "ap.submit_credit_memo", byItem("D", "3", "75.00"))
	require.Equal(t, []string{"-3 (-3)"}, billing(run("approver", "ap.approve_credit_memo", object{"credit_memo_id": memo[0].Stream.ID})))
	require.Equal(t, object{"1": "0", "2": "1"}, billed())
}

// TestMatch_Unit follows a document in another unit than its order: it bills nothing of it until it is
// corrected.
func TestMatch_Unit(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.match("two_way", nil)
	inUnit := func(number, unit string) object {
		dates := map[string]string{"B": "2025-03-16"} // no two look alike
		return orderInvoice(number, "60", "1500.00", object{"invoice_date": cmp.Or(dates[number], "2025-03-15"), "lines": []object{{"line_number": 1, "po_line_reference": "1", "quantity": 60, "unit": unit, "amount": n("1500.00")}}})
	}
	run := func(who, intentType string, payload object) []recorded {
		t.Helper()
		return b.events(b.execute(who, intentType, payload))
	}
	early := run("ap_clerk", "ap.submit_invoice", inUnit("A", "H87"))
	require.Equal(t, []string{"60 (60)"}, billing(early), "the order's unit is not known yet")
	kilograms := object{"lines": []object{{"po_line_reference": "1", "quantity": 100, "unit": "KGM", "unit_price": n("25.00")}}}
	arrived := run("module", "ap.record_purchase_order", orderPayload(kilograms))
	require.Equal(t, []string{"UNIT_DIFFERS unit: KGM, got H87"}, findings(arrived))
	require.Equal(t, []string{"0 (-60)"}, billing(arrived))
	entity, _ := b.entityOf("purchase_order", "PO-1")
	require.Equal(t, "KGM", entity["lines"].(object)["1"].(object)["unit"])

	fits := run("ap_clerk", "ap.submit_invoice", inUnit("B", "KGM"))
	require.Contains(t, types(fits), "ap.invoice.validated", "what is billed in pieces takes no kilograms")
	body := inUnit("", "KGM")
	delete(body, "vendor_id")
	delete(body, "invoice_number")
	body["invoice_id"], body["reason"] = early[0].Stream.ID, "weight of the pieces"
	require.Equal(t, []string{"QTY_ORDERED quantity: 100, got 120"}, findings(run("ap_clerk", "ap.correct_invoice", body)))

	held := run("ap_clerk", "ap.submit_credit_memo", inUnit("C", "H87"))
	require.Equal(t, []string{"UNIT_DIFFERS unit: KGM, got H87"}, findings(held), "it would give nothing back")
	memo := held[0].Stream.ID
	run("approver", "ap.release_hold", object{"hold_id": memo + "-H1", "reason": "a discount"})
	require.Empty(t, billing(run("approver", "ap.approve_credit_memo", object{"credit_memo_id": memo})))
	b.refuse("intent.schema_invalid", "ap_clerk", "ap.submit_invoice", inUnit("D", "kg"))
}

// TestMatch_Arrival checks documents again when the order, receipts and revisions arrive.
func TestMatch_Arrival(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.match("three_way", nil)
	b.vendor("V2", nil)
	events := b.events(b.execute("ap_clerk", "ap.submit_invoice", orderInvoice("A", "10", "250.00", nil)))
	require.Equal(t, []string{"PO_MISSING order: a recorded order, got PO-1"}, findings(events))
	b.execute("ap_clerk", "ap.submit_invoice", orderInvoice("X", "95", "2375.00", object{"vendor_id": "V2"}))

	events = b.events(b.execute("module", "ap.record_purchase_order", orderPayload(nil)))
	require.Equal(t, []string{"ap.purchase_order.recorded", "ap.invoice.hold_released", "ap.invoice.held"}, types(events))
	require.Equal(t, []string{"QTY_RECEIVED quantity: 0, got 10"}, findings(events), "what the other vendor billed does not count")
	require.Equal(t, events[0].ID, events[1].CausedBy)

	receipt := func(number string, quantity int) object {
		return object{"receipt_number": number, "po_reference": "PO-1", "lines": []object{{"po_line_reference": "1", "quantity": quantity}}}
	}
	events = b.events(b.execute("module", "ap.record_goods_receipt", receipt("R1", 4)))
	require.Equal(t, []string{"ap.goods_receipt.recorded"}, types(events), "less is over: the hold stays")
	events = b.events(b.execute("module", "ap.record_goods_receipt", receipt("R2", 6)))
	require.Equal(t, []string{"ap.goods_receipt.recorded", "ap.invoice.hold_released", "ap.invoice.validated"}, types(events))
	events = b.events(b.execute("module", "ap.record_goods_receipt", receipt("R3", -3)))
	require.Equal(t, []string{"ap.goods_receipt.recorded", "ap.invoice.held"}, types(events))
	require.Equal(t, []string{"QTY_RECEIVED quantity: 7, got 10"}, findings(events), "a finding that was gone comes back")
	events = b.events(b.execute("module", "ap.record_purchase_order", orderPayload(object{"revision": 2, "lines": []object{{"po_line_reference": "1", "quantity": 100, "unit_price": n("24")}}})))
	require.Equal(t, []string{"PRICE_VARIANCE unit_price: 24, got 250.00 / 10"}, findings(events))
}

// TestMatch_Waived checks that a finding which another person released stays released until it
// grows or the body changes.
func TestMatch_Waived(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.match("three_way", nil)
	b.order(nil)
	b.receive("R1", "8")
	p := orderInvoice("A", "10", "250.00", nil)
	id := b.invoice(p)
	ref := object{"invoice_id": id}
	b.refuse("ap.invoice.on_hold", "approver", "ap.approve_invoice", ref)
	release := object{"hold_id": id + "-H1", "reason": "the rest is on its way"}
	require.Equal(t, "S6", b.refuse("sod.same_person", "approver:ap_clerk", "ap.release_hold", release).Attributes["rule"])
	b.execute("approver", "ap.release_hold", release)
	require.Equal(t, []string{"ap.invoice.validated"}, types(b.events(b.execute("ap_clerk", "ap.validate_invoice", ref))))
	b.receive("R2", "1")
	b.receive("R3", "-1")
	require.Equal(t, []string{"ap.invoice.validated"}, types(b.events(b.execute("ap_clerk", "ap.validate_invoice", ref))), "no more is over than was released")
	worse := b.events(b.execute("module", "ap.record_goods_receipt", object{"receipt_number": "R4", "po_reference": "PO-1", "lines": []object{{"po_line_reference": "1", "quantity": -1}}}))
	require.Equal(t, []string{"QTY_RECEIVED quantity: 7, got 10"}, findings(worse))
	b.receive("R5", "1")

	delete(p, "vendor_id")
	delete(p, "invoice_number")
	p["invoice_id"], p["reason"] = id, "text"
	events := b.events(b.execute("ap_clerk", "ap.correct_invoice", p))
	require.Equal(t, []string{"QTY_RECEIVED quantity: 8, got 10"}, findings(events))
	b.refuse("ap.invoice.on_hold", "ap_clerk", "ap.validate_invoice", ref)
}

// TestMatch_Race lets 16 clients submit invoices for one remainder: exactly those that fit are
// not held.
func TestMatch_Race(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.match("two_way", nil)
	b.order(nil)
	const clients = 16
	free := make([]bool, clients)
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			out, err := b.submit("ap_clerk", "ap.submit_invoice", orderInvoice(fmt.Sprintf("N%d", i), "30", "750.00", object{"invoice_date": fmt.Sprintf("2025-03-%02d", i+1)}))
			if err == nil {
				free[i] = len(out.Events) == 3 && !slices.Contains(types(b.events(out)), "ap.invoice.held")
			}
		})
	}
	wg.Wait()
	count := 0
	for _, f := range free {
		if f {
			count++
		}
	}
	require.Equal(t, 3, count, "3 × 30 fit into 100")
}

func TestPurchaseOrder_Refusals(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.match("two_way", nil)
	b.vendor("V2", nil)
	line := func(more object) object {
		l := object{"po_line_reference": "1", "quantity": 1, "unit_price": 1}
		for k, v := range more {
			l[k] = v
		}
		return object{"lines": []object{l}}
	}
	for name, tc := range map[string]struct {
		code, field string
		more        object
	}{
		"vendor":          {"ap.vendor.not_found", "/vendor_id", object{"vendor_id": "V9"}},
		"currency":        {"money.currency_unsupported", "/currency", object{"currency": "XXX"}},
		"line twice":      {"ap.purchase_order.line_invalid", "/lines/1/po_line_reference", object{"lines": []object{line(nil)["lines"].([]object)[0], line(object{"po_line_reference": "PO-1-1"})["lines"].([]object)[0]}}},
		"line of nothing": {"ap.purchase_order.line_invalid", "/lines/0/po_line_reference", line(object{"po_line_reference": "PO-1-"})},
		"no quantity":     {"ap.purchase_order.line_invalid", "/lines/0/quantity", line(object{"quantity": 0})},
		"no base":         {"ap.purchase_order.line_invalid", "/lines/0/price_base_quantity", line(object{"price_base_quantity": 0})},
		"decimals":        {"money.scale", "/lines/0/unit_price", line(object{"unit_price": n("0.00000000001")})},
	} {
		f := b.refuse(tc.code, "ap_clerk", "ap.record_purchase_order", orderPayload(tc.more))
		require.Equal(t, "/payload"+tc.field, f.Field, name)
	}
	b.refuse("ap.purchase_order.not_found", "ap_clerk", "ap.record_goods_receipt", object{"receipt_number": "R0", "po_reference": "PO-1", "lines": []object{{"po_line_reference": "1", "quantity": 1}}})
	b.order(object{"revision": 3})
	f := b.refuse("ap.purchase_order.duplicate", "ap_clerk", "ap.record_purchase_order", orderPayload(object{"revision": 3, "status": "closed"}))
	require.Equal(t, fault.Conflict, f.Kind)
	require.NotEmpty(t, f.Holder)
	b.refuse("ap.purchase_order.revision_outdated", "ap_clerk", "ap.record_purchase_order", orderPayload(object{"revision": 2}))
	b.refuse("ap.purchase_order.revision_invalid", "ap_clerk", "ap.record_purchase_order", orderPayload(object{"revision": 4, "vendor_id": "V2"}))

	receipt := func(number, line, quantity string) object {
		return object{"receipt_number": number, "po_reference": "PO-1", "lines": []object{{"po_line_reference": line, "quantity": n(quantity)}}}
	}
	b.refuse("ap.purchase_order.line_not_found", "ap_clerk", "ap.record_goods_receipt", receipt("R1", "2", "1"))
	b.refuse("ap.goods_receipt.line_invalid", "ap_clerk", "ap.record_goods_receipt", receipt("R1", "1", "0"))
	b.refuse("ap.goods_receipt.over_returned", "ap_clerk", "ap.record_goods_receipt", receipt("R1", "1", "-1"))
	b.execute("ap_clerk", "ap.record_goods_receipt", receipt("R1", "1", "5"))
	f = b.refuse("ap.goods_receipt.duplicate", "ap_clerk", "ap.record_goods_receipt", receipt("r 1", "1", "5"))
	require.Equal(t, "PO-1", f.Holder.DocumentID)
	f = b.refuse("ap.goods_receipt.over_returned", "ap_clerk", "ap.record_goods_receipt", receipt("R2", "1", "-5.1"))
	require.Equal(t, "5", f.Attributes["received"])
	b.execute("ap_clerk", "ap.record_purchase_order", orderPayload(object{"revision": 5, "lines": []object{{"po_line_reference": "2", "quantity": 1, "unit_price": 1}}}))
	b.refuse("ap.purchase_order.line_not_found", "ap_clerk", "ap.record_goods_receipt", receipt("R2", "1", "1"))
	b.execute("ap_clerk", "ap.record_goods_receipt", receipt("R2", "1", "-5"))
}
