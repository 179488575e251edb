package ap_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFigures_Payments names the payments, runs and tax groups that events are behind, and no others.
func TestFigures_Payments(t *testing.T) {
	t.Parallel()
	b := newPayingBooks(t)
	withheld := granted("2")
	withheld["withholding"] = []object{{"code": "W10", "amount": n("100.00")}}
	one, two := b.posted("invoice", taxed("1", withheld, [3]string{"S/19", "1000.00", "190.00"})), b.posted("invoice", documentPayload("V1", "2", "50", object{"currency": "USD"}))
	proposed := b.propose("MAIN", object{"take_discount": true}, object{"invoice_id": one}, object{"invoice_id": two})
	run := proposed.Stream.ID
	b.execute("controller:carla", "ap.approve_payment_run", object{"run_id": run})
	b.execute("treasurer", "ap.execute_payment", execution(run+"-P1", nil))
	b.execute("module", "ap.fail_payment", object{"payment_id": run + "-P2", "reason_code": "AC04"})
	b.execute("gl_accountant", "gl.post_journal", object{"description": "by hand", "lines": []object{
		{"account": "6000", "debit_credit": "debit", "amount": n("1"), "currency": "EUR"}, {"account": "1010", "debit_credit": "credit", "amount": n("1"), "currency": "EUR"},
	}})
	got := map[string]map[string][]string{} // figure → type of event → values
	for name, f := range catalog.Figures() {
		got[name] = map[string][]string{}
		for _, e := range b.all() {
			for _, eventType := range f.EventTypes {
				if eventType == e.Type {
					data, err := e.Data()
					require.NoError(t, err)
					got[name][e.Type] = append(got[name][e.Type], f.Values(e, data)...)
				}
			}
			deleted := e
			deleted.Payload = nil
			require.NotPanics(t, func() { f.Values(deleted, nil) }, "of a deleted payload")
		}
	}
	require.Equal(t, map[string][]string{
		"ap.payment_run.proposed": {"", run + "-P1", run + "-P2"}, "ap.payment_run.approved": {""}, "payment.executed": {run + "-P1"}, "payment.failed": {run + "-P2"},
		"ap.invoice.paid": {run + "-P1"},
	}, got["ap:payment"])
	require.Equal(t, map[string][]string{
		"ap.payment_run.proposed": {run}, "ap.payment_run.approved": {run}, "payment.executed": {run}, "payment.failed": {run}, "ap.invoice.paid": {run},
	}, got["ap:payment_run"])
	groups := map[string]int{}
	for _, group := range got["ap:tax"]["gl.journal.posted"] {
		groups[group]++
	}
	delete(groups, "")
	require.Equal(t, map[string]int{"S/19": 4}, groups, "two lines of the invoice and two of the payment; no withholding code")
}
