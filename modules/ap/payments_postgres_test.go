package ap_test

import (
	"encoding/json"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/fault"
	applugin "github.com/erpbackbone/backbone/modules/ap/adapters/plugin"
	glplugin "github.com/erpbackbone/backbone/modules/gl/adapters/plugin"
	"github.com/erpbackbone/backbone/test/moduletest"
)

// newPostgresBooks opens books in EUR of January 2026 on PostgreSQL, with a vendor V1 who can be paid.
func newPostgresBooks(t *testing.T) *moduletest.Books {
	t.Helper()
	b := moduletest.NewOnPostgres(t, glplugin.New(), applugin.New())
	b.Execute("admin", "gl.configure_ledger", `{"functional_currency":"EUR","default_dimensions":{"department":"FIN"},"second_person":false,"orderly_close":false,
		"posting_profile":{"ap_control":"2000","bank":"1010","default_expense":"6000","retained_earnings":"3100"}}`)
	for _, account := range []string{`"2000","type":"liability","control":"ap"`, `"1010","type":"asset"`, `"6000","type":"expense"`, `"3100","type":"equity"`} {
		b.Execute("gl_accountant", "gl.define_account", `{"name":"Account","code":`+account+`}`)
	}
	b.Execute("gl_accountant", "gl.define_dimension_value", `{"dimension":"department","value":"FIN","name":"Finance"}`)
	b.Execute("controller", "gl.define_fiscal_year", `{"label":"2026","start":"2026-01-01","end":"2026-12-31"}`)
	for _, m := range []string{"gl", "ap"} {
		b.Execute("controller", "gl.open_period", `{"module":"`+m+`","period":"2026-01"}`)
	}
	b.Execute("admin", "ap.configure", `{"second_person":false,"bank_accounts":{"MAIN":{"iban":"NL91ABNA0417164300","currency":"EUR"}}}`)
	b.Execute("vendor_admin", "ap.register_vendor", `{"vendor_id":"V1","name":"Vendor","country":"DE","registration_id":"R1"}`)
	b.Execute("ap_clerk", "ap.request_bank_change", `{"vendor_id":"V1","currency":"EUR","iban":"DE89370400440532013000","holder":"Vendor","evidence_ref":"L1","reason":"first"}`)
	b.Execute("vendor_admin", "ap.approve_bank_change", `{"request_id":"V1-B1","verification":"called back"}`)
	return b
}

// TestPayments_OnPostgres selects due documents from the read model of open items, and lets 16
// clients execute the payment while others settle its invoice with a credit memo.
func TestPayments_OnPostgres(t *testing.T) {
	t.Parallel()
	b := newPostgresBooks(t)
	post := func(kind, number, amount, due string) string {
		id := b.Execute("ap_clerk", "ap.submit_"+kind, `{"vendor_id":"V1","invoice_number":"`+number+`","invoice_date":"2026-01-10","due_date":"`+due+`","currency":"EUR","total_amount":`+amount+
			`,"lines":[{"line_number":1,"amount":`+amount+`,"account":"6000"}]}`).Events[0].Stream.ID
		b.Execute("approver", "ap.approve_"+kind, `{"`+kind+`_id":"`+id+`"}`)
		return id
	}
	due := post("invoice", "A", "100", "2026-01-20")
	post("invoice", "B", "200", "2026-01-21")
	first, second := post("credit_memo", "C", "30", "2026-02-20"), post("credit_memo", "D", "80", "2026-02-20")

	run := b.Execute("ap_clerk:petra", "ap.propose_payment_run", `{"bank_account":"MAIN","pay_date":"2026-01-20","selection":{"due_by":"2026-01-20","vendors":["V1"],"currencies":["EUR"]}}`).Events[0].Stream.ID
	var proposed struct {
		Payments []struct {
			PaymentID    string      `json:"payment_id"`
			Amount       json.Number `json:"amount"`
			Applications []struct {
				InvoiceID    string `json:"invoice_id"`
				CreditMemoID string `json:"credit_memo_id"`
			} `json:"applications"`
		} `json:"payments"`
		LeftOut []struct {
			CreditMemoID string `json:"credit_memo_id"`
		} `json:"left_out"`
	}
	for _, e := range b.Log() {
		if e.Type == "ap.payment_run.proposed" {
			body, err := e.Body()
			require.NoError(t, err)
			require.NoError(t, json.Unmarshal(body.Data, &proposed))
		}
	}
	require.Len(t, proposed.Payments, 1)
	payment := proposed.Payments[0]
	require.Len(t, payment.Applications, 2)
	require.Equal(t, due, payment.Applications[0].InvoiceID)
	netted, free := payment.Applications[1].CreditMemoID, proposed.LeftOut[0].CreditMemoID
	require.ElementsMatch(t, []string{first, second}, []string{netted, free}, "both together exceed what is due")
	b.Execute("controller:carla", "ap.approve_payment_run", `{"run_id":"`+run+`"}`)

	const clients = 16
	codes := make([]string, 2*clients)
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			_, err := b.Submit("treasurer", "ap.execute_payment", `{"payment_id":"`+payment.PaymentID+`","executed_on":"2026-01-20","bank_reference":"B"}`)
			codes[i] = fault.CodeOf(err)
		})
		wg.Go(func() {
			_, err := b.Submit("ap_clerk", "ap.apply_credit", `{"credit_memo_id":"`+free+`","invoice_id":"`+due+`","amount":10,"posting_date":"2026-01-20"}`)
			codes[clients+i] = fault.CodeOf(err)
		})
	}
	wg.Wait()
	allowed := []string{"", "payment.already_executed", "ap.invoice.overapplied", "ap.invoice.wrong_state", "ap.credit_memo.overapplied", "ap.credit_memo.wrong_state", "append.wrong_expected_version"}
	for _, code := range codes {
		require.Contains(t, allowed, code)
	}
	taken := 0
	for _, e := range b.Log() {
		switch e.Type {
		case "ap.invoice.paid":
			taken += 100
		case "ap.invoice.credit_applied":
			taken += 10
		}
	}
	require.LessOrEqual(t, taken, 100, "never more than the invoice")
	require.Positive(t, taken)
}
