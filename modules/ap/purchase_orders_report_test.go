package ap_test

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
)

// naiveDocument is a document as its own events tell it.
type naiveDocument struct {
	kind     string
	quantity money.Number
	bills    bool // names the order
	active   bool
	approved bool
	holds    map[string]string // id → kind, of those not released because the finding was gone
}

// naiveOrder sums the quantities of the only line of PO-1 from events of documents and receipts,
// without those of what documents bill.
type naiveOrder struct {
	received  money.Number
	documents map[string]*naiveDocument
	taken     bool // a credit memo was voided after others took what it gave back
}

func (o *naiveOrder) apply(t *testing.T, e event.Recorded) {
	t.Helper()
	body, err := e.Body()
	require.NoError(t, err)
	var lines struct {
		Lines []struct {
			Reference string       `json:"po_line_reference"`
			Quantity  money.Number `json:"quantity"`
		} `json:"lines"`
	}
	var d struct {
		HoldID      string `json:"hold_id"`
		Kind        string `json:"kind"`
		FindingGone bool   `json:"finding_gone"`
	}
	if e.Type == "ap.goods_receipt.recorded" {
		require.NoError(t, json.Unmarshal(body.Data, &lines))
		o.received = o.received.Add(lines.Lines[0].Quantity)
		return
	}
	kind, isDocument := strings.CutPrefix(e.Stream.Type, "ap.")
	if !isDocument || kind != "invoice" && kind != "credit_memo" {
		return
	}
	require.NoError(t, json.Unmarshal(body.Data, &d))
	n := o.documents[e.Stream.ID]
	if n == nil {
		n = &naiveDocument{kind: kind, holds: map[string]string{}}
		o.documents[e.Stream.ID] = n
	}
	switch strings.TrimPrefix(e.Type, e.Stream.Type+".") {
	case "submitted", "corrected", "reinstated":
		require.NoError(t, json.Unmarshal(body.Data, &lines))
		n.active, n.approved, n.quantity, n.bills = true, false, lines.Lines[0].Quantity, lines.Lines[0].Reference != ""
		if strings.HasSuffix(e.Type, "reinstated") {
			clear(n.holds)
		}
	case "held":
		n.holds[d.HoldID] = d.Kind
	case "hold_released":
		if d.FindingGone {
			delete(n.holds, d.HoldID)
		}
	case "approved":
		n.approved = true
	case "rejected", "voided":
		o.taken = o.taken || kind == "credit_memo" && n.approved
		n.active = false
	}
}

// billed sums what documents bill. free is the part of invoices that nothing holds, or held, for
// their quantity.
func (o *naiveOrder) billed() (all, free money.Number) {
	for _, d := range o.documents {
		switch {
		case !d.active || !d.bills:
		case d.kind == "invoice":
			all = all.Add(d.quantity)
			held := false
			for _, kind := range d.holds {
				held = held || kind == "QTY_ORDERED"
			}
			if !held {
				free = free.Add(d.quantity)
			}
		case d.approved:
			all, free = all.Sub(d.quantity), free.Sub(d.quantity)
		}
	}
	return all, free
}

// TestPurchaseOrders_Property takes random receipts, invoices and credit memos of one order line
// through their lives, and compares the report, as it was known after each of many batches, with a
// fold over the documents' own events. What is billed without a hold never exceeds the order.
func TestPurchaseOrders_Property(t *testing.T) {
	t.Parallel()
	b := newStoredBooks(t)
	b.must("admin", "ap.configure", object{"match": object{"policy": "three_way"}})
	b.must("vendor_admin", "ap.register_vendor", object{"vendor_id": "V1", "name": "V", "country": "DE", "registration_id": "R1"})
	random := rand.New(rand.NewSource(7))
	type document struct{ kind, id string }
	var documents []document
	body := func(number int) object {
		quarters := 1 + random.Intn(160)
		text := func(hundredths int) string { return fmt.Sprintf("%d.%02d", hundredths/100, hundredths%100) }
		p := orderInvoice(fmt.Sprintf("N%dX", number), text(quarters*25), text(quarters*625), object{"invoice_date": fmt.Sprintf("2025-03-%02d", 1+number%20)})
		if random.Intn(8) == 0 {
			delete(p, "po_reference")
			delete(p["lines"].([]object)[0], "po_line_reference")
		}
		return p
	}
	for step := range 160 {
		if step == 5 {
			b.must("module", "ap.record_purchase_order", orderPayload(nil))
		}
		var err error
		if action := random.Intn(12); action < 3 || len(documents) == 0 {
			kind := []string{"invoice", "invoice", "credit_memo"}[random.Intn(3)]
			var id string
			if id, err = b.try("ap_clerk", "ap.submit_"+kind, body(step)); err == nil {
				documents = append(documents, document{kind, id})
			}
		} else if action < 5 {
			_, err = b.try("module", "ap.record_goods_receipt", object{"receipt_number": fmt.Sprint("R", step), "po_reference": "PO-1", "lines": []object{
				{"po_line_reference": "1", "quantity": n([]string{"12.5", "-3.25", "0.75"}[random.Intn(3)])},
			}})
		} else {
			d := documents[random.Intn(len(documents))]
			p := object{d.kind + "_id": d.id, "reason": "random"}
			change := func() object {
				c := body(step)
				delete(c, "vendor_id")
				delete(c, "invoice_number")
				c[d.kind+"_id"], c["reason"] = d.id, "random"
				return c
			}
			switch action {
			case 5, 6:
				delete(p, "reason")
				_, err = b.try("ap_clerk", "ap.validate_"+d.kind, p)
			case 7, 8:
				delete(p, "reason")
				_, err = b.try("approver", "ap.approve_"+d.kind, p)
			case 9:
				_, err = b.try("ap_clerk", "ap.correct_"+d.kind, change())
			case 10:
				_, err = b.try("ap_clerk", "ap.reinstate_"+d.kind, change())
			default:
				if random.Intn(2) == 0 {
					_, err = b.try("approver", "ap.reject_"+d.kind, p)
				} else if out, submitErr := b.Submit("controller", "ap.void_"+d.kind, payloadText(t, p)); submitErr == nil {
					b.ends = append(b.ends, out.Events[len(out.Events)-1].Sequence)
				} else {
					err = submitErr
				}
			}
		}
		if err != nil {
			_, refused := fault.As(err)
			require.True(t, refused, "%v", err)
			require.NotContains(t, fault.CodeOf(err), "schema", "%v", err)
		}
	}
	compared := 0
	order := naiveOrder{documents: map[string]*naiveDocument{}}
	log := b.Log()
	for i, e := range log {
		order.apply(t, e)
		if !slices.Contains(b.ends, e.Sequence) {
			continue
		}
		all, free := order.billed()
		if !order.taken {
			require.LessOrEqual(t, free.Cmp(money.FromInt(100)), 0, "%s billed without a hold at %d", free, e.Sequence)
		}
		if compared++; compared%10 != 0 && i < len(log)-20 {
			continue
		}
		rows := b.at("ap/purchase-orders", "2099-12-31", e.Sequence, nil)["rows"].([]any)
		if len(rows) == 0 {
			continue // before the order
		}
		require.Len(t, rows, 1)
		row := rows[0].(object)
		for column, want := range map[string]money.Number{"received": order.received, "billed": all, "open": money.FromInt(100).Sub(all)} {
			var got money.Number
			require.NoError(t, got.Scan(row[column]))
			require.True(t, want.Equal(got), "%s at %d: %s, got %s", column, e.Sequence, want, got)
		}
	}
	require.Greater(t, compared, 60)
}

func payloadText(t *testing.T, p object) string {
	t.Helper()
	text, err := json.Marshal(p)
	require.NoError(t, err)
	return string(text)
}

// TestPurchaseOrders_OnPostgres lets 16 clients bill one remainder, and reads the order and a
// document's match table on both axes.
func TestPurchaseOrders_OnPostgres(t *testing.T) {
	t.Parallel()
	b := newStoredBooks(t)
	b.must("admin", "ap.configure", object{"match": object{"policy": "two_way"}})
	b.must("vendor_admin", "ap.register_vendor", object{"vendor_id": "V1", "name": "V", "country": "DE", "registration_id": "R1"})
	b.must("module", "ap.record_purchase_order", orderPayload(nil))
	const clients = 16
	ids := make([]string, clients)
	var wg sync.WaitGroup
	for i := range clients {
		payload := payloadText(t, orderInvoice(fmt.Sprintf("N%dX", i), "30", "750.00", object{"invoice_date": fmt.Sprintf("2025-03-%02d", i+1)}))
		wg.Go(func() {
			for {
				out, err := b.Submit("ap_clerk", "ap.submit_invoice", payload)
				if fault.CodeOf(err) == "append.wrong_expected_version" {
					continue // after the retries; a caller sends it again
				}
				if err == nil {
					ids[i] = out.Events[0].Stream.ID
				}
				return
			}
		})
	}
	wg.Wait()
	require.NotContains(t, ids, "")
	held := map[string]bool{}
	for _, e := range b.Log() {
		if e.Type == "ap.invoice.held" {
			held[e.Stream.ID] = true
		}
	}
	require.Len(t, held, clients-3, "3 × 30 fit into 100")
	var rows []map[string]any
	b.ReportAsOf("ap/purchase-orders", "2099-12-31", map[string]string{"vendor": "V1", "status": "open"}, &rows)
	require.Len(t, rows, 1)
	require.Equal(t, []any{"PO-1", "1", "25", "100", "0", "480", "-380"},
		[]any{rows[0]["po_reference"], rows[0]["po_line_reference"], rows[0]["unit_price"], rows[0]["ordered"], rows[0]["received"], rows[0]["billed"], rows[0]["open"]})
	for _, params := range []map[string]string{{"vendor": "V2"}, {"status": "closed"}, {"po_reference": "PO-2"}} {
		b.ReportAsOf("ap/purchase-orders", "2099-12-31", params, &rows)
		require.Empty(t, rows)
	}

	before := b.at("ap/purchase-orders", "2099-12-31", 0, nil)["sequence"]
	b.must("module", "ap.record_goods_receipt", object{"receipt_number": "R1", "po_reference": "PO-1", "lines": []object{{"po_line_reference": "PO-1-1", "quantity": n("12.5")}}})
	b.must("module", "ap.record_purchase_order", orderPayload(object{"revision": 2, "status": "closed", "lines": []object{{"po_line_reference": "A", "quantity": 7, "unit_price": n("1.00"), "price_base_quantity": 12}}}))
	lines := b.at("ap/purchase-orders", "2099-12-31", 0, nil)["rows"].([]any)
	require.Len(t, lines, 2)
	require.Equal(t, []any{"1", "0", "12.5"}, []any{lines[0].(object)["po_line_reference"], lines[0].(object)["ordered"], lines[0].(object)["received"]}, "the revision removed it")
	require.Equal(t, []any{"A", "7", "12", "closed"}, []any{lines[1].(object)["po_line_reference"], lines[1].(object)["ordered"], lines[1].(object)["price_base_quantity"], lines[1].(object)["status"]})

	want := object{
		"line_number": float64(1), "po_line_reference": "1", "quantity": "30", "amount": "750.00", "ordered": "100", "received": "0", "billed": "480", "billed_by_this": "30",
		"unit_price": "25", "price_base_quantity": "1", "currency": "EUR",
	}
	match := func(knownAt, id string) (got []any) {
		t.Helper()
		for _, f := range b.ReportAt("ap/invoices/{id}", "", knownAt, map[string]string{"id": id}).Footer {
			if f.Name == "match" {
				require.NoError(t, json.Unmarshal([]byte(payloadText(t, object{"m": f.Value})), &struct {
					M *[]any `json:"m"`
				}{&got}))
				return got
			}
		}
		require.Fail(t, "no match table")
		return nil
	}
	require.Equal(t, []any{want}, match("seq:"+fmt.Sprint(before), ids[0]))

	b.must("module", "ap.record_purchase_order", orderPayload(object{"po_reference": "PO-2", "lines": []object{
		{"po_line_reference": "1", "item_id": "A", "quantity": 1, "unit_price": 1}, {"po_line_reference": "2", "item_id": "B", "quantity": 2, "unit_price": 3},
	}}))
	byItem := b.must("ap_clerk", "ap.submit_invoice", orderInvoice("M1X", "2", "6.00", object{"po_reference": "PO-2", "lines": []object{{"line_number": 1, "item_id": "B", "quantity": 2, "amount": n("6.00")}}}))
	found := match("", byItem)
	require.Len(t, found, 1)
	require.Equal(t, []any{"2", "2", "2"}, []any{found[0].(object)["po_line_reference"], found[0].(object)["ordered"], found[0].(object)["billed_by_this"]})
}

// TestPurchaseOrder_Entity reads the entity, with and without a snapshot of it.
func TestPurchaseOrder_Entity(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.match("two_way", nil)
	b.vendor("V2", nil)
	b.invoice(orderInvoice("X", "5", "125.00", object{"vendor_id": "V2"}))
	id := b.invoice(orderInvoice("A", "10", "250.00", nil))
	b.order(nil)
	b.receive("R1", "2.50")
	state, _ := b.entityOf("purchase_order", "PO-1")
	line := object{"quantity": "100", "unit_price": "25.00", "price_base_quantity": "1", "account": "6100", "dimensions": object{"department": "ENG"}}
	require.Equal(t, object{
		"po_reference": "PO-1", "status": "open", "revision": float64(1), "vendor_id": "V1", "currency": "EUR", "lines": object{"1": line},
		"received": object{"1": "2.50"}, "billed": object{"1": "10"}, "documents": object{id: object{"vendor_id": "V1", "quantities": object{"1": "10"}}},
	}, state)
	b.execute("approver", "ap.reject_invoice", object{"invoice_id": id, "reason": "wrong"})
	state, _ = b.entityOf("purchase_order", "PO-1")
	require.Equal(t, object{"1": "0"}, state["billed"])
	require.NotContains(t, state, "documents")
}
