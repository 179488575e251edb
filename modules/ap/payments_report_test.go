package ap_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/money"
	applugin "github.com/erpbackbone/backbone/modules/ap/adapters/plugin"
	"github.com/erpbackbone/backbone/modules/ap/contract"
	glplugin "github.com/erpbackbone/backbone/modules/gl/adapters/plugin"
	"github.com/erpbackbone/backbone/test/moduletest"
)

type reportedStep struct {
	Step    string `json:"step"`
	At      string `json:"at"`
	By      string `json:"by"`
	Date    string `json:"date"`
	EventID string `json:"event_id"`
}

type reportedPayment struct {
	RunID         string         `json:"run_id"`
	PaymentID     string         `json:"payment_id"`
	VendorID      string         `json:"vendor_id"`
	Currency      string         `json:"currency"`
	Amount        string         `json:"amount"`
	Discount      string         `json:"discount"`
	Documents     int            `json:"documents"`
	State         string         `json:"state"`
	InTransit     bool           `json:"in_transit"`
	BankAccount   string         `json:"bank_account"`
	PayDate       string         `json:"pay_date"`
	ExecutedOn    *string        `json:"executed_on"`
	BankReference string         `json:"bank_reference"`
	BankStatus    string         `json:"bank_status"`
	ReasonCode    string         `json:"reason_code"`
	FileSHA256    string         `json:"file_sha256"`
	Steps         []reportedStep `json:"steps"`
	EventID       string         `json:"event_id"`
}

type reportedRun struct {
	RunID       string `json:"run_id"`
	State       string `json:"state"`
	BankAccount string `json:"bank_account"`
	PayDate     string `json:"pay_date"`
	Payments    int    `json:"payments"`
	InTransit   bool   `json:"in_transit"`
	Totals      []struct {
		Currency  string `json:"currency"`
		Payments  int    `json:"payments"`
		Amount    string `json:"amount"`
		Executed  string `json:"executed"`
		Failed    string `json:"failed"`
		Voided    string `json:"voided"`
		InTransit string `json:"in_transit"`
		Excluded  string `json:"excluded"`
	} `json:"totals"`
	MessageID  string         `json:"message_id"`
	FileSHA256 string         `json:"file_sha256"`
	Steps      []reportedStep `json:"steps"`
	EventID    string         `json:"event_id"`
}

// foldPayments folds the events up to a sequence and a date into the rows of both read models,
// event by event.
func foldPayments(t *testing.T, log []event.Recorded, asOf event.Date, known event.Sequence) (payments []*reportedPayment, runs map[string]*reportedRun) {
	t.Helper()
	byID, runs := map[string]*reportedPayment{}, map[string]*reportedRun{}
	for _, e := range log {
		if e.Sequence > known || e.EffectiveDate > asOf || (e.Stream.Type != contract.StreamPaymentRun && e.Stream.Type != contract.StreamPayment) {
			continue
		}
		raw, err := e.Data()
		require.NoError(t, err)
		actor, err := e.Actor()
		require.NoError(t, err)
		step := reportedStep{Step: e.Type[strings.LastIndexByte(e.Type, '.')+1:], At: e.RecordedAt.UTC().Format("2006-01-02T15:04:05.000000Z"), By: actor.ID, Date: e.EffectiveDate.String(), EventID: e.ID.String()}
		if e.Type == contract.EventPaymentExcluded {
			step.Step = "excluded"
		}
		if e.Stream.Type == contract.StreamPayment {
			p := byID[e.Stream.ID]
			if p == nil {
				continue
			}
			p.Steps = append(p.Steps, step)
			switch e.Type {
			case contract.EventPaymentStatus:
				var x contract.PaymentStatusReported
				require.NoError(t, json.Unmarshal(raw, &x))
				p.BankStatus = x.Status
				if x.ReasonCode != "" {
					p.ReasonCode = x.ReasonCode
				}
				continue
			case contract.EventPaymentExecuted:
				var x contract.PaymentExecuted
				require.NoError(t, json.Unmarshal(raw, &x))
				day := x.ExecutedOn.String()
				p.ExecutedOn, p.BankReference = &day, x.BankReference
			case contract.EventPaymentFailed:
				var x contract.PaymentFailed
				require.NoError(t, json.Unmarshal(raw, &x))
				p.ReasonCode = x.ReasonCode
			}
			p.State = step.Step
			continue
		}
		run := runs[e.Stream.ID]
		var exported contract.PaymentRunExported
		switch e.Type {
		case contract.EventRunProposed:
			var x contract.PaymentRunProposed
			require.NoError(t, json.Unmarshal(raw, &x))
			if x.Part == 1 {
				run = &reportedRun{RunID: e.Stream.ID, BankAccount: x.BankAccount, PayDate: x.PayDate.String(), EventID: e.ID.String()}
				runs[run.RunID] = run
			}
			for _, p := range x.Payments {
				currency, err := money.LookupCurrency(p.Currency, e.RecordedAt)
				require.NoError(t, err)
				row := &reportedPayment{
					RunID: x.RunID, PaymentID: p.PaymentID, VendorID: p.VendorID, Currency: p.Currency, Amount: p.Amount.Fixed(currency.MinorUnit), Discount: p.Discount.Fixed(currency.MinorUnit),
					Documents: len(p.Applications), BankAccount: x.BankAccount, PayDate: x.PayDate.String(), EventID: e.ID.String(),
				}
				byID[p.PaymentID] = row
				payments = append(payments, row)
			}
		case contract.EventPaymentExcluded:
			var x contract.PaymentExcluded
			require.NoError(t, json.Unmarshal(raw, &x))
			byID[x.PaymentID].State = "excluded"
			byID[x.PaymentID].Steps = append(byID[x.PaymentID].Steps, step)
			continue
		case contract.EventRunExported:
			require.NoError(t, json.Unmarshal(raw, &exported))
			run.MessageID, run.FileSHA256 = exported.MessageID, exported.SHA256
		}
		run.State, run.Steps = step.Step, append(run.Steps, step)
		for _, p := range payments {
			if p.RunID != run.RunID || p.State == "excluded" {
				continue
			}
			p.Steps = append(p.Steps, step)
			if exported.SHA256 != "" {
				p.FileSHA256 = exported.SHA256
			}
			if !slices.Contains([]string{"executed", "failed", "voided"}, p.State) {
				p.State = step.Step
			}
		}
	}
	for _, p := range payments {
		run := runs[p.RunID]
		p.InTransit = p.State == "exported"
		run.InTransit = run.InTransit || p.InTransit
		if p.State != "excluded" {
			run.Payments++
		}
	}
	return payments, runs
}

// TestPaymentReports_OnPostgres compares the read models with a fold of all events, at random
// dates and sequences.
func TestPaymentReports_OnPostgres(t *testing.T) {
	t.Parallel()
	b := moduletest.NewOnPostgres(t, glplugin.New(), applugin.New())
	b.Execute("admin", "gl.configure_ledger", `{"functional_currency":"EUR","rate_age_days":3660,"default_dimensions":{"department":"FIN"},"second_person":false,"orderly_close":false,
		"posting_profile":{"ap_control":"2000","bank":"1010","default_expense":"6000","retained_earnings":"3100","fx_gain":"7000","fx_loss":"7010","fx_clearing":"1090"}}`)
	for _, account := range []string{`"2000","type":"liability","control":"ap"`, `"1010","type":"asset"`, `"1011","type":"asset"`, `"1090","type":"asset"`, `"6000","type":"expense"`, `"3100","type":"equity"`, `"7000","type":"income"`, `"7010","type":"expense"`} {
		b.Execute("gl_accountant", "gl.define_account", `{"name":"Account","code":`+account+`}`)
	}
	b.Execute("gl_accountant", "gl.define_dimension_value", `{"dimension":"department","value":"FIN","name":"Finance"}`)
	b.Execute("controller", "gl.define_fiscal_year", `{"label":"2026","start":"2026-01-01","end":"2026-12-31"}`)
	for _, period := range []string{"2026-01", "2026-02"} {
		for _, m := range []string{"gl", "ap"} {
			b.Execute("controller", "gl.open_period", `{"module":"`+m+`","period":"`+period+`"}`)
		}
	}
	b.Execute("module", "gl.set_exchange_rate", `{"from":"JPY","to":"EUR","date":"2026-01-01","rate":0.0062}`)
	b.Execute("admin", "ap.configure", `{"second_person":false,"bank_accounts":{"MAIN":{"iban":"NL91ABNA0417164300","currency":"EUR"},"YEN":{"iban":"NL91ABNA0417164300","currency":"JPY","account":"1011"}}}`)
	for _, v := range []string{"V1", "V2"} {
		b.Execute("vendor_admin", "ap.register_vendor", `{"vendor_id":"`+v+`","name":"Vendor `+v+`","country":"DE","registration_id":"R`+v+`"}`)
		for i, currency := range []string{"EUR", "JPY"} {
			b.Execute("ap_clerk", "ap.request_bank_change", `{"vendor_id":"`+v+`","currency":"`+currency+`","iban":"DE89370400440532013000","holder":"Vendor","evidence_ref":"L1","reason":"first"}`)
			b.Execute("vendor_admin", "ap.approve_bank_change", fmt.Sprintf(`{"request_id":"%s-B%d","verification":"called back"}`, v, i+1))
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	submit := func(who, intentType, payload string, day int) string {
		t.Helper()
		out, err := b.SubmitOn(who, intentType, payload, event.MustDate(fmt.Sprintf("2026-01-%02d", day)))
		require.NoError(t, err, "%s %s", intentType, payload)
		return out.Events[0].Stream.ID
	}
	number := 0
	invoice := func(vendor, currency string) string {
		number++
		id := b.Execute("ap_clerk", "ap.submit_invoice", fmt.Sprintf(`{"vendor_id":"%s","invoice_number":"%d","invoice_date":"2026-01-05","due_date":"2026-01-20","currency":"%s","total_amount":%d,"lines":[{"line_number":1,"amount":%[4]d,"account":"6000"}]}`,
			vendor, number, currency, 100+number)).Events[0].Stream.ID
		b.Execute("approver", "ap.approve_invoice", `{"invoice_id":"`+id+`"}`)
		return id
	}
	for i := range 7 {
		var documents []string
		for _, v := range []string{"V1", "V2"} {
			for _, c := range []string{"EUR", "JPY"} {
				documents = append(documents, `{"invoice_id":"`+invoice(v, c)+`"}`)
			}
		}
		account := []string{"MAIN", "YEN"}[i%2]
		run := submit("ap_clerk:petra", "ap.propose_payment_run", fmt.Sprintf(`{"bank_account":"%s","pay_date":"2026-01-%02d","documents":[%s]}`, account, 10+i, strings.Join(documents, ",")), 5+random.IntN(5))
		id := `{"run_id":"` + run + `"}`
		if i == 5 {
			submit("controller:carla", "ap.reject_payment_run", id, 6+random.IntN(6))
			continue
		}
		if i%3 == 0 {
			submit("ap_clerk", "ap.exclude_payment", `{"payment_id":"`+run+`-P2","reason":"later"}`, 6+random.IntN(6))
		}
		if i == 6 {
			continue
		}
		submit("controller:carla", "ap.approve_payment_run", id, 8+random.IntN(6))
		if i == 4 {
			continue
		}
		for range 1 + i%2 {
			submit("treasurer", "ap.export_payment_run", id, 10+random.IntN(6))
		}
		for p := 1; p <= 4; p++ {
			payment := fmt.Sprintf("%s-P%d", run, p)
			if p == 2 && i%3 == 0 {
				continue
			}
			day := 10 + random.IntN(10)
			if random.IntN(2) == 0 {
				submit("treasurer", "ap.import_payment_status", `{"payment_id":"`+payment+`","message_id":"B1","status":"ACSP","reason_code":"G000"}`, day)
			}
			switch random.IntN(3) {
			case 0:
				submit("treasurer", "ap.import_payment_status", `{"payment_id":"`+payment+`","message_id":"B2","status":"RJCT","reason_code":"AC04"}`, day)
			case 1:
				b.Execute("treasurer", "ap.execute_payment", fmt.Sprintf(`{"payment_id":"%s","executed_on":"2026-01-%02d","bank_reference":"R-%d"%s}`, payment, day, p, bankAmount(account, p)))
				if random.IntN(2) == 0 {
					b.Execute("treasurer", "ap.void_payment", `{"payment_id":"`+payment+`","reason":"returned","posting_date":"2026-01-25"}`)
				}
			}
			if i == 3 && p == 3 {
				submit("treasurer", "ap.export_payment_run", id, 20)
			}
		}
	}

	log := b.Log()
	head := log[len(log)-1].Sequence
	for try := range 60 {
		known, asOf := event.Sequence(1+random.IntN(int(head))), event.MustDate("2026-01-01").AddDays(random.IntN(28))
		if try == 0 {
			known, asOf = head, event.MustDate("2026-12-31")
		}
		at := fmt.Sprintf("seq:%d", known)
		report := b.ReportAt("ap/payments", asOf.String(), at, nil)
		for _, f := range report.Header {
			if f.Name == "sequence" { // the end of the batch
				_, err := fmt.Sscan(fmt.Sprint(f.Value), &known)
				require.NoError(t, err)
			}
		}
		wantPayments, wantRuns := foldPayments(t, log, asOf, known)
		var got []*reportedPayment
		decodeRows(t, report.Rows, &got)
		slices.SortStableFunc(wantPayments, func(a, b *reportedPayment) int { return strings.Compare(a.RunID, b.RunID) })
		require.Equal(t, wantPayments, got, "as of %s, known at %s", asOf, at)
		for _, filter := range []map[string]string{{"state": "exported"}, {"vendor": "V2"}, {"from": "2026-01-12", "to": "2026-01-14"}} {
			var filtered []*reportedPayment
			decodeRows(t, b.ReportAt("ap/payments", asOf.String(), at, filter).Rows, &filtered)
			want := slices.DeleteFunc(slices.Clone(wantPayments), func(p *reportedPayment) bool {
				return filter["state"] != "" && p.State != filter["state"] || filter["vendor"] != "" && p.VendorID != filter["vendor"] ||
					filter["from"] != "" && (p.PayDate < filter["from"] || p.PayDate > filter["to"])
			})
			require.ElementsMatch(t, want, filtered, "%v", filter)
		}
		var runs []*reportedRun
		decodeRows(t, b.ReportAt("ap/payment-runs", asOf.String(), at, nil).Rows, &runs)
		require.Len(t, runs, len(wantRuns))
		for _, run := range runs {
			want := wantRuns[run.RunID]
			requireTotals(t, run, wantPayments)
			run.Totals = nil
			require.Equal(t, want, run, "as of %s, known at %s", asOf, at)
		}
	}
}

// requireTotals compares the totals of a run with sums over its payments.
func requireTotals(t *testing.T, run *reportedRun, payments []*reportedPayment) {
	t.Helper()
	sums := map[string]map[string]money.Number{}
	for _, p := range payments {
		if p.RunID != run.RunID {
			continue
		}
		if sums[p.Currency] == nil {
			sums[p.Currency] = map[string]money.Number{}
		}
		add := func(name string) { sums[p.Currency][name] = sums[p.Currency][name].Add(money.MustNumber(p.Amount)) }
		if add(p.State); p.State != "excluded" {
			add("amount")
		}
	}
	require.Len(t, run.Totals, len(sums))
	for _, total := range run.Totals {
		for name, got := range map[string]string{
			"amount": total.Amount, "executed": total.Executed, "failed": total.Failed, "voided": total.Voided, "exported": total.InTransit, "excluded": total.Excluded,
		} {
			require.True(t, sums[total.Currency][name].Equal(money.MustNumber(got)), "%s %s: %s", total.Currency, name, got)
		}
	}
}

// bankAmount is the member that a payment in another currency than its account needs: payments 2
// and 4 are in JPY, the others in EUR.
func bankAmount(account string, payment int) string {
	if (account == "YEN") == (payment%2 == 0) {
		return ""
	}
	return `,"bank_amount":100`
}

func decodeRows(t *testing.T, rows []any, into any) {
	t.Helper()
	text, err := json.Marshal(rows)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, into))
}
