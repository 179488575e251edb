package ap_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/ap/contract"
)

// taxed is a document with lines in tax groups. Each part is group, net and tax.
func taxed(number string, more object, parts ...[3]string) object {
	total, tax := money.Number{}, money.Number{}
	var lines, taxLines []object
	for i, p := range parts {
		net, charged := money.MustNumber(p[1]), money.MustNumber(p[2])
		total, tax = total.Add(net).Add(charged), tax.Add(charged)
		lines = append(lines, object{"line_number": i + 1, "amount": n(p[1]), "account": "5100", "tax_group": p[0], "dimensions": object{"department": "PROD"}})
		taxLines = append(taxLines, object{"taxable_amount": n(p[1]), "tax_amount": n(p[2]), "tax_group": p[0]})
	}
	p := documentPayload("V1", number, total.String(), object{"tax_amount": n(tax.String()), "lines": lines, "tax_lines": taxLines})
	for k, v := range more {
		p[k] = v
	}
	return p
}

// granted is a discount of a percentage for payments of the tests.
func granted(percent string) object {
	return object{"discount": object{"date": "2025-03-31", "percent": n(percent)}}
}

// TestExecutePayment_DiscountTax compares what a discount does to tax with calculations by hand.
func TestExecutePayment_DiscountTax(t *testing.T) {
	t.Parallel()
	mixed := [][3]string{{"S/19", "1000.00", "190.00"}, {"S/7", "500.00", "35.00"}} // half of the 7 % is recoverable
	for _, c := range []struct {
		name    string
		setting string
		percent string
		more    object
		parts   [][3]string
		want    map[string]string // functional
		shares  []any
	}{
		// 2 % of 1,725.00 are 34.50: 20.00 and 10.00 net, 3.80 and 0.35 of input tax, and 0.35 that was a cost.
		{"two rates", "", "2", nil, mixed, map[string]string{"5100": "1517.50", "1400": "203.35", "4700": "-30.35", "1010": "-1690.50"}, []any{
			object{"tax_group": "S/19", "net": n("20.00"), "input_tax": n("3.80")},
			object{"tax_group": "S/7", "net": n("10.00"), "input_tax": n("0.35"), "not_recoverable": n("0.35")},
		}},
		{"kept", "keep", "2", nil, mixed, map[string]string{"5100": "1517.50", "1400": "207.50", "4700": "-34.50", "1010": "-1690.50"}, nil},
		{"corrected again", "correct", "2", nil, mixed[:1], map[string]string{"5100": "1000.00", "1400": "186.20", "4700": "-20.00", "1010": "-1166.20"}, []any{
			object{"tax_group": "S/19", "net": n("20.00"), "input_tax": n("3.80")},
		}},
		{"not recoverable", "", "3", nil, [][3]string{{"S/10", "100.00", "10.00"}}, map[string]string{"5100": "100.00", "6900": "10.00", "4700": "-3.30", "1010": "-106.70"}, []any{
			object{"tax_group": "S/10", "net": n("3.00"), "not_recoverable": n("0.30")},
		}},
		// No tax was paid: 9.00 of 300.00 are income. 1.71 of 57.00 leave both tax accounts.
		{"reverse charge", "", "3", nil, [][3]string{{"AE/0", "300.00", "0"}}, map[string]string{"5100": "300.00", "1400": "55.29", "2200": "-55.29", "4700": "-9.00", "1010": "-291.00"}, []any{
			object{"tax_group": "AE/0", "net": n("9.00"), "input_tax": n("1.71"), "output_tax": n("1.71")},
		}},
		// Of 57.00 only 22.80 were deducted: 0.68 of them are corrected, and 1.03 of the cost.
		{"reverse charge, recovered in part", "", "3", nil, [][3]string{{"K/0", "300.00", "0"}},
			map[string]string{"5100": "334.20", "1400": "22.12", "2200": "-55.29", "4700": "-10.03", "1010": "-291.00"}, []any{
				object{"tax_group": "K/0", "net": n("9.00"), "input_tax": n("0.68"), "not_recoverable": n("1.03"), "output_tax": n("1.71")},
			}},
		{"without tax", "", "3", nil, [][3]string{{"Z/0", "100.00", "0"}}, map[string]string{"5100": "100.00", "4700": "-3.00", "1010": "-97.00"}, []any{
			object{"tax_group": "Z/0", "net": n("3.00")},
		}},
		// 1,090.00 are owed after 100.00 were withheld; 21.80 of the 1,190.00 are 18.32 and 3.48.
		{"withheld", "", "2", object{"withholding": []object{{"code": "W10", "amount": n("100.00")}}}, mixed[:1],
			map[string]string{"5100": "1000.00", "1400": "186.52", "2300": "-100.00", "4700": "-18.32", "1010": "-1068.20"}, []any{
				object{"tax_group": "S/19", "net": n("18.32"), "input_tax": n("3.48")},
			}},
		// The books that an opening item is from have deducted its tax.
		{"opening item", "", "2", object{"document_type": "opening"}, mixed[:1], map[string]string{"3900": "1190.00", "4700": "-23.80", "1010": "-1166.20"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newPayingBooks(t)
			if c.setting != "" {
				b.execute("admin", "ap.configure", object{"discount_tax": "keep"})
				b.execute("admin", "ap.configure", object{"discount_tax": c.setting})
			}
			more := granted(c.percent)
			for k, v := range c.more {
				more[k] = v
			}
			id := b.posted("invoice", taxed("1", more, c.parts...))
			before := b.balances()
			payment := b.approvedRun("MAIN", object{"take_discount": true}, object{"invoice_id": id})[0]
			executed := b.events(b.execute("treasurer", "ap.execute_payment", execution(payment, nil)))
			functional := map[string]string{}
			for key, amount := range b.balances() {
				if len(key) == 4 {
					functional[key] = amount
				}
			}
			require.Equal(t, c.want, functional)
			for _, data := range []object{executed[2].data, executed[0].data["applications"].([]any)[0].(object)} {
				shares, _ := data["discount_shares"].([]any)
				require.Equal(t, c.shares, shares)
			}
			b.execute("treasurer", "ap.void_payment", object{"payment_id": payment, "reason": "bank took it back"})
			require.Equal(t, before, b.balances())
		})
	}
}

// TestExecutePayment_DiscountTaxInParts pays 119.00 in three parts with discounts of 0.10, 0.10 and
// 3.37: together 0.57 of tax, as of 3.57 at once. Each part alone would correct 0.02, 0.02 and 0.54.
func TestExecutePayment_DiscountTaxInParts(t *testing.T) {
	t.Parallel()
	b := newPayingBooks(t)
	id := b.posted("invoice", taxed("1", granted("3"), [3]string{"S/19", "100.00", "19.00"}))
	pay := func(amount string) (payment, tax string) {
		p := object{"invoice_id": id}
		if amount != "" {
			p["amount"] = n(amount)
		}
		payment = b.approvedRun("MAIN", object{"take_discount": true}, p)[0]
		executed := b.events(b.execute("treasurer", "ap.execute_payment", execution(payment, nil)))
		share := executed[2].data["discount_shares"].([]any)[0].(object)
		return payment, fmt.Sprint(share["input_tax"])
	}
	first, tax := pay("3.33")
	require.Equal(t, "0.02", tax)
	_, tax = pay("3.33")
	require.Equal(t, "0.01", tax)
	_, tax = pay("")
	require.Equal(t, "0.54", tax)
	want := map[string]string{"5100": "100.00", "5100 EUR": "100.00", "1400": "18.43", "1400 EUR": "18.43", "4700": "-3.00", "4700 EUR": "-3.00", "1010": "-115.43", "1010 EUR": "-115.43"}
	require.Equal(t, want, b.balances())

	b.execute("treasurer", "ap.void_payment", object{"payment_id": first, "reason": "bank took it back"})
	require.Equal(t, "18.45", b.balances()["1400"])
	_, tax = pay("")
	require.Equal(t, "0.02", tax)
	require.Equal(t, want, b.balances())
	d := b.document(contract.Invoice, id)
	require.Equal(t, []any{"3.00", "0.57"}, []any{d.Discounts[0].Net.Fixed(2), d.Discounts[0].InputTax.Fixed(2)})
}

// TestExecutePayment_DiscountTaxExchange corrects tax at the rate of the document. 1,190.00 USD are
// carried at 1,100.16 EUR, the discount of 23.80 USD at 22.00, of which 3.51 are tax. The bank takes
// 1,166.20 USD, 1,078.15 EUR, and the cent that remains is an exchange difference.
func TestExecutePayment_DiscountTaxExchange(t *testing.T) {
	t.Parallel()
	b := newPayingBooks(t)
	more := granted("2")
	more["currency"] = "USD"
	id := b.posted("invoice", taxed("1", more, [3]string{"S/19", "1000.00", "190.00"}))
	payment := b.approvedRun("USD", object{"take_discount": true}, object{"invoice_id": id})[0]
	b.execute("treasurer", "ap.execute_payment", execution(payment, nil))
	require.Equal(t, map[string]string{
		"5100 USD": "1000.00", "5100": "924.50", "1400 USD": "186.20", "1400": "172.15", "4700 USD": "-20.00", "4700": "-18.49",
		"1011 USD": "-1166.20", "1011": "-1078.15", "7000": "-0.01",
	}, b.balances())
}

// TestExecutePayment_DiscountTaxAsPosted corrects tax where the document was posted to, also after
// the ledger's settings changed, and of a document that was voided and is booked again.
func TestExecutePayment_DiscountTaxAsPosted(t *testing.T) {
	t.Parallel()
	b := newPayingBooks(t)
	id := b.posted("invoice", taxed("1", granted("2"), [3]string{"S/19", "1000.00", "190.00"}))
	pay := func() {
		payment := b.approvedRun("MAIN", object{"take_discount": true}, object{"invoice_id": id})[0]
		b.execute("treasurer", "ap.execute_payment", execution(payment, nil))
		require.Equal(t, "-20.00", b.balances()["4700"])
		b.execute("treasurer", "ap.void_payment", object{"payment_id": payment, "reason": "bank took it back"})
	}
	pay()
	b.execute("controller", "ap.void_invoice", object{"invoice_id": id, "reason": "wrong rate"})
	again := taxed("1", granted("2"), [3]string{"S/5", "1000.00", "50.00"})
	delete(again, "vendor_id")
	delete(again, "invoice_number")
	again["invoice_id"], again["reason"] = id, "right rate"
	b.execute("ap_clerk", "ap.reinstate_invoice", again)
	b.execute("approver", "ap.approve_invoice", object{"invoice_id": id})
	payload := ledgerPayload()
	payload["tax_groups"] = object{"S/5": object{"rate": 5, "account": "1400"}}
	b.execute("admin", "gl.configure_ledger", payload)
	pay()
	payment := b.approvedRun("MAIN", object{"take_discount": true}, object{"invoice_id": id})[0]
	b.execute("treasurer", "ap.execute_payment", execution(payment, nil))
	require.Equal(t, "49.00", b.balances()["1410"])
}

// TestExecutePayment_DiscountTaxOfManyDocuments adds the shares of documents up, so that a payment of
// many documents has few lines.
func TestExecutePayment_DiscountTaxOfManyDocuments(t *testing.T) {
	t.Parallel()
	b := newPayingBooks(t)
	var documents []object
	for i := range 5 {
		documents = append(documents, object{"invoice_id": b.posted("invoice", taxed(fmt.Sprintf("N%dX", i), granted("2"), [3]string{"S/19", fmt.Sprintf("%d.00", 100*(i+1)), fmt.Sprintf("%d.00", 19*(i+1))}))})
	}
	payment := b.approvedRun("MAIN", object{"take_discount": true}, documents...)[0]
	journal := b.events(b.execute("treasurer", "ap.execute_payment", execution(payment, nil)))[1]
	require.Len(t, journal.data["lines"], 5+3)
	balances := b.balances()
	require.Equal(t, []any{"-30.00", "279.30"}, []any{balances["4700"], balances["1400"]})
}
