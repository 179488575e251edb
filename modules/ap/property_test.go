package ap_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/erpbackbone/backbone/domain/money"
)

// TestApprove_JournalsBalance checks on random consistent documents that the approval posts a
// journal that balances per currency and in functional currency, and whose control line is
// the document's total with its rounding.
func TestApprove_JournalsBalance(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.vendor("V1", nil)
	groups := []string{"S/19", "S/7", "S/10", "AE/0", "K/0", "S/5", "AE/10", ""}
	rates := map[string]int64{"S/19": 19, "S/7": 7, "S/10": 10, "S/5": 5}
	eur, err := money.LookupCurrency("EUR", b.clock.Now())
	require.NoError(t, err)
	number := 0
	rapid.Check(t, func(r *rapid.T) {
		number++
		cents := func(label string, low, high int64) money.Number {
			c := rapid.Int64Range(low, high).Draw(r, label)
			return money.MustNumber(fmt.Sprintf("%d.%02d", c/100, c%100))
		}
		var net money.Number
		bases := map[string]money.Number{}
		var order []string
		ls := make([]object, rapid.IntRange(1, 6).Draw(r, "lines"))
		for i := range ls {
			amount := cents("amount", 0, 900_000)
			if i > 0 && amount.Cmp(net) <= 0 && rapid.Bool().Draw(r, "allowance") {
				amount = amount.Neg()
			}
			group := rapid.SampledFrom(groups).Draw(r, "group")
			if _, seen := bases[group]; !seen {
				order = append(order, group)
			}
			net, bases[group] = net.Add(amount), bases[group].Add(amount)
			ls[i] = object{"line_number": i + 1, "amount": amount, "account": rapid.SampledFrom([]string{"5100", "6000", "6100"}).Draw(r, "account"),
				"dimensions": object{"department": rapid.SampledFrom([]string{"ENG", "PROD"}).Draw(r, "department")}}
			if group != "" {
				ls[i]["tax_group"] = group
			}
		}
		var tax money.Number
		var taxLines []object
		for _, group := range order {
			if bases[group].Sign() < 0 {
				continue // tax amounts are not negative
			}
			charged := money.Percent(bases[group], money.FromInt(rates[group]), eur)
			tax = tax.Add(charged)
			taxLines = append(taxLines, object{"taxable_amount": bases[group], "rate": rates[group], "tax_amount": charged, "tax_group": group})
		}
		rounding := cents("rounding", 0, 4)
		total := net.Add(tax)
		p := documentPayload("V1", fmt.Sprintf("P%dX", number), total.String(), object{
			"lines": ls, "tax_amount": tax, "rounding_amount": rounding, "currency": rapid.SampledFrom([]string{"EUR", "USD"}).Draw(r, "currency"),
			"invoice_date": fmt.Sprintf("2025-03-%02d", 1+number%28),
		})
		if len(taxLines) > 0 {
			p["tax_lines"] = taxLines
		}
		kind := rapid.SampledFrom([]string{"invoice", "credit_memo"}).Draw(r, "kind")
		submitted := b.events(b.execute("ap_clerk", "ap.submit_"+kind, p))
		id := submitted[0].Stream.ID
		for _, e := range submitted {
			if hold, held := e.data["hold_id"]; held {
				b.execute("approver", "ap.release_hold", object{"hold_id": hold, "reason": "generated"})
			}
		}
		events := b.events(b.execute("cfo", "ap.approve_"+kind, object{kind + "_id": id}))
		if total.IsZero() && rounding.IsZero() {
			return
		}
		functionalTotals(b.tb, events[1])
		if !total.Add(rounding).IsZero() {
			posted := money.MustNumber(fmt.Sprint(events[2].data["amount"]))
			require.True(t, posted.Equal(total.Add(rounding)), "posted %s of %s", posted, total)
		}
	})
}
