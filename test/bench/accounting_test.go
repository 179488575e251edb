//go:build bench

package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	apiclient "github.com/erpbackbone/backbone/adapters/client"
	"github.com/erpbackbone/backbone/adapters/embeddedpg"
	"github.com/erpbackbone/backbone/cmd/cli"
	"github.com/erpbackbone/backbone/cmd/wire"
	"github.com/erpbackbone/backbone/configs"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/modules"
	apcli "github.com/erpbackbone/backbone/modules/ap/adapters/cli"
)

const (
	journalLines   = 2000   // the most lines of a journal
	runDocuments   = 10_000 // the most of a payment run
	importFiles    = 1000
	importLines    = 20 // of each file, which has about 16 KB
	reportRequests = 200
)

// accountingFixture is a node with the books of the demonstration and its projections.
type accountingFixture struct {
	t       *testing.T
	server  *wire.Server
	address string
	tokens  map[string]string
	keys    atomic.Int64
}

// clients are callers with a role.
func (a *accountingFixture) clients(n int, role string) []*client {
	return newClients(a.t, n, a.address, a.tokens[role])
}

// submit sends an intent and returns the answer, which is valid until the client's next request.
func (a *accountingFixture) submit(c *client, intentType, payload string) ([]byte, error) {
	body := fmt.Appendf(nil, `{"type":%q,"legal_entity":%q,"payload":%s}`, intentType, intentEntity, payload)
	return c.want(http.StatusCreated, http.MethodPost, "/api/intents", fmt.Sprintf("accounting-%d", a.keys.Add(1)), body)
}

// execute sends an intent of a role and returns the id of the stream of its first event.
func (a *accountingFixture) execute(role, intentType, payload string) string {
	a.t.Helper()
	answer, err := a.submit(a.clients(1, role)[0], intentType, payload)
	require.NoError(a.t, err)
	id, err := streamID(answer)
	require.NoError(a.t, err)
	return id
}

// streamID is the id of the stream of the first event that an intent wrote.
func streamID(answer []byte) (string, error) {
	var outcome struct {
		Events []struct{ Stream string } // type/id
	}
	if err := json.Unmarshal(answer, &outcome); err != nil {
		return "", err
	}
	if len(outcome.Events) == 0 {
		return "", fmt.Errorf("no event in %.300s", answer)
	}
	_, id, _ := strings.Cut(outcome.Events[0].Stream, "/")
	return id, nil
}

// repeat lets callers do n steps together, numbered from 1.
func (a *accountingFixture) repeat(callers, n int, step func(caller int, number int64) error) sample {
	var number atomic.Int64
	return drive(a.t, callers, time.Hour, func(_ context.Context, caller int) (int, error) {
		next := number.Add(1)
		if next > int64(n) {
			return 0, context.Canceled // ends all callers
		}
		return 1, step(caller, next)
	})
}

// ask measures a report. Each request has another date, so that no answer is the repetition of
// one before.
func (a *accountingFixture) ask(path string) sample {
	c := a.clients(1, "auditor")[0]
	day := event.MustDate("2025-04-01")
	s := drive(a.t, 1, time.Hour, func(_ context.Context, _ int) (int, error) {
		if day = day.AddDays(1); day > event.MustDate("2025-04-01").AddDays(reportRequests) {
			return 0, context.Canceled
		}
		_, err := c.want(http.StatusOK, http.MethodGet, fmt.Sprintf(path, intentEntity, day), "", nil)
		return 1, err
	})
	return s
}

// reportAccounting measures what accountants wait for: journals, approvals, a payment run, an
// import, and the reports over large books.
func reportAccounting(t *testing.T, o options, cluster *embeddedpg.Cluster, figures *table) {
	dsn := newDatabase(t, cluster, "accounting", func(ctx context.Context, dsn string) error { return wire.Migrate(ctx, dsn, nil, modules.BuiltIn()...) })
	a := &accountingFixture{t: t}
	var stop func()
	a.server, a.address, stop = startNode(t, dsn, true, func(c *configs.Config, _ *wire.Options) {
		// The accounts of vendors are sealed.
		c.KMS.LocalDirectory, c.KMS.AllowLocal, c.Erasure.ExportDirectory = filepath.Join(t.TempDir(), "keys"), true, t.TempDir()
		c.Database.EraserDSN = configs.DSN(dsn)
	})
	t.Cleanup(stop)
	var err error
	a.tokens, err = cli.SetUpDemo(t.Context(), a.server.App, modules.BuiltIn(), nil, true, nil)
	require.NoError(t, err)
	registerVendors(t, a.clients(1, "vendor_admin")[0])
	meter, statements := newMeter(t, cluster), newStatistics(t, cluster, o)

	a.reportJournals(o, meter, statements, figures)
	a.reportImport(figures)
	a.reportInvoices(o, meter, figures)
	awaitCaughtUp(t, a.server.App)
	execute(t, dsn, "VACUUM ANALYZE")
	a.reportReports(o, figures)
	a.reportPaymentRun(o, figures)
	awaitCaughtUp(t, a.server.App)
	a.reportReplay(figures)
}

// reportJournals measures journals of two lines, and fills the ledger with large ones.
func (a *accountingFixture) reportJournals(o options, meter cpuMeter, statements *statistics, figures *table) {
	accountants := a.clients(intentClients, "gl_accountant")
	post := func(_ context.Context, caller int) (int, error) {
		_, err := a.submit(accountants[caller], "gl.post_journal",
			`{"description":"Rent","posting_date":"2025-03-15","lines":[{"account":"6100","debit_credit":"debit","amount":100.00,"currency":"USD"},{"account":"1000","debit_credit":"credit","amount":100.00,"currency":"USD"}]}`)
		return 1, err
	}
	drive(a.t, intentClients, min(o.period, 2*time.Second), post)
	var rates []float64
	statements.reset(a.t)
	before, started := meter.read(), time.Now()
	v := &variant{}
	o.profiled(a.t, "journals", func() {
		for range o.rounds {
			s := drive(a.t, intentClients, o.period, post)
			v.samples, rates = append(v.samples, s), append(rates, s.rate())
		}
	})
	effort := meter.spent(before, time.Since(started))
	statements.write(a.t, "journals")
	const aim = 4000
	figures.add(figure{name: "Journals of two lines over HTTP, 64 clients", value: perSecond(median(rates), "journals"), target: ">= 4,000", ok: median(rates) >= aim})
	latencies := v.latencies()
	figures.addText("   latency p50, p99", "%s, %s", latency(quantile(latencies, 0.5)), latency(quantile(latencies, 0.99)))
	figures.addText("   processor", "%s", effort)

	var lines strings.Builder
	accounts := []string{"5000", "5100", "5200", "6000", "6100", "6200", "6300", "6400", "6500", "6900"}
	departments := []string{"ENG", "PROD", "SALES", "OPS", "HR", "FIN"}
	for i := range journalLines / 2 {
		if i > 0 {
			lines.WriteByte(',')
		}
		fmt.Fprintf(&lines, `{"account":%q,"debit_credit":"debit","amount":10.00,"currency":"USD","dimensions":{"department":%q}},{"account":"1000","debit_credit":"credit","amount":10.00,"currency":"USD"}`,
			accounts[i%len(accounts)], departments[i%len(departments)])
	}
	s := a.repeat(8, o.lines/journalLines, func(caller int, n int64) error {
		_, err := a.submit(accountants[caller], "gl.post_journal",
			fmt.Sprintf(`{"description":"Payroll","posting_date":"2025-%02d-10","lines":[%s]}`, 1+n%12, lines.String()))
		return err
	})
	figures.addText("Journals of 2,000 lines", "%s", perSecond(s.rate()*journalLines, "lines"))
}

// reportImport measures the import of invoices in UBL, each with 20 lines.
func (a *accountingFixture) reportImport(figures *table) {
	dir := a.t.TempDir()
	var files []string
	for n := range importFiles {
		file := filepath.Join(dir, fmt.Sprintf("invoice-%04d.xml", n))
		require.NoError(a.t, os.WriteFile(file, ublInvoice(n), 0o600))
		files = append(files, file)
	}
	api, err := apiclient.New(apiclient.Config{Server: "http://" + a.address, Token: a.tokens["ap_clerk"], Attempts: 1})
	require.NoError(a.t, err)
	started := time.Now()
	report := apcli.Import(a.t.Context(), api, files, apcli.Options{LegalEntity: "DEMF"})
	elapsed := time.Since(started)
	require.Equal(a.t, importFiles, report.Totals.Accepted, "%+v", report.Files[0])
	figures.addText("backbone ap import, 1,000 files of 20 lines", "%s", perSecond(importFiles/elapsed.Seconds(), "files"))
}

// reportInvoices measures submissions and approvals, which leave the open items.
func (a *accountingFixture) reportInvoices(o options, meter cpuMeter, figures *table) {
	clerks, approvers := a.clients(intentClients, "ap_clerk"), a.clients(intentClients, "approver")
	ids := make([]string, o.items)
	submitted := a.repeat(intentClients, o.items, func(caller int, n int64) error {
		answer, err := clerks[caller].want(http.StatusCreated, http.MethodPost, "/api/intents", fmt.Sprintf("invoice-%d", n), submission(n))
		if err == nil {
			ids[n-1], err = streamID(answer)
		}
		return err
	})
	before := meter.read()
	approved := a.repeat(intentClients, o.items, func(caller int, n int64) error {
		_, err := a.submit(approvers[caller], "ap.approve_invoice", `{"invoice_id":"`+ids[n-1]+`"}`)
		return err
	})
	figures.addText("ap.submit_invoice over HTTP, until all items are open", "%s", perSecond(submitted.rate(), "intents"))
	figures.addText("ap.approve_invoice over HTTP, 64 clients", "%s", perSecond(approved.rate(), "intents"))
	figures.addText("   latency p50, p99", "%s, %s", latency(approved.quantile(0.5)), latency(approved.quantile(0.99)))
	figures.addText("   processor", "%s", meter.spent(before, approved.elapsed))
}

// reportReports measures the reports, one request after another.
func (a *accountingFixture) reportReports(o options, figures *table) {
	for _, report := range []struct {
		name, path string
		limit      time.Duration
	}{
		{fmt.Sprintf("Trial balance, %d lines", o.lines), "/api/gl/trial-balance?legal_entity=%s&as_of=%s", 50 * time.Millisecond},
		{fmt.Sprintf("Aging, %d open items", o.items), "/api/ap/aging?legal_entity=%s&as_of=%s", 100 * time.Millisecond},
		{fmt.Sprintf("Aging by department, %d open items", o.items), "/api/ap/aging?by=department&legal_entity=%s&as_of=%s", 0},
		{"Open items, a page of 200", "/api/ap/open-items?limit=200&legal_entity=%s&as_of=%s", 0},
		{"Subledger control", "/api/gl/subledger-control?legal_entity=%s&as_of=%s", 0},
	} {
		var s sample
		o.profiled(a.t, "report", func() { s = a.ask(report.path) })
		p99 := s.quantile(0.99)
		f := figure{name: report.name + ", p50, p99", value: latency(s.quantile(0.5)) + ", " + latency(p99)}
		if report.limit > 0 {
			f.target, f.ok = "< "+latency(report.limit), p99 < report.limit
		}
		figures.add(f)
	}
}

// reportPaymentRun measures a run from its proposal to the last payment.
func (a *accountingFixture) reportPaymentRun(o options, figures *table) {
	paid := min(vendors, runDocuments*vendors/o.items) // vendors, each with an equal share of the invoices
	documents := o.items * paid / vendors
	a.execute("admin", "ap.configure", `{"second_person":false,"bank_accounts":{"MAIN":{"iban":"NL91ABNA0417164300","currency":"USD"}}}`)
	var names []string
	for n := range int64(paid) {
		names = append(names, fmt.Sprintf("%q", vendorID(n)))
		a.execute("ap_clerk", "ap.request_bank_change", fmt.Sprintf(
			`{"vendor_id":%q,"currency":"USD","iban":"DE89370400440532013000","holder":"Contoso Supply Ltd","evidence_ref":"L1","reason":"first"}`, vendorID(n)))
		a.execute("vendor_admin", "ap.approve_bank_change", fmt.Sprintf(`{"request_id":"%s-B1","verification":"called back"}`, vendorID(n)))
	}
	started := time.Now()
	run := a.execute("ap_clerk", "ap.propose_payment_run", fmt.Sprintf(
		`{"bank_account":"MAIN","pay_date":"2025-04-28","selection":{"due_by":"2025-04-28","vendors":[%s]}}`, strings.Join(names, ",")))
	proposed := time.Since(started)
	decision := `{"run_id":"` + run + `"}`
	a.execute("cfo", "ap.approve_payment_run", decision)
	a.execute("treasurer", "ap.export_payment_run", decision)
	exported := time.Since(started)

	answer, err := a.clients(1, "treasurer")[0].want(http.StatusOK, http.MethodGet, "/api/entities/payment_run/"+run+"?legal_entity="+intentEntity, "", nil)
	require.NoError(a.t, err)
	var entity struct {
		State struct{ Payments int }
	}
	require.NoError(a.t, json.Unmarshal(answer, &entity))
	payments := entity.State.Payments
	treasurers := a.clients(intentClients, "treasurer")
	a.repeat(intentClients, payments, func(caller int, n int64) error {
		_, err := a.submit(treasurers[caller], "ap.execute_payment",
			fmt.Sprintf(`{"payment_id":"%s-P%d","executed_on":"2025-04-28","bank_reference":"B"}`, run, n))
		return err
	})
	figures.addText(fmt.Sprintf("Payment run of %d documents", documents), "%.1f s", time.Since(started).Seconds())
	figures.addText("   proposed, exported, executed", "%.1f s, %.1f s, %.1f s", proposed.Seconds(), (exported - proposed).Seconds(), (time.Since(started) - exported).Seconds())
}

// reportReplay measures how fast all projections read the books again from their first event, each
// into a version beside the one that is read.
func (a *accountingFixture) reportReplay(figures *table) {
	operator, projections := a.clients(1, "operator")[0], a.server.App.Catalog.Projections
	building := func(method, projection, body string) (passed int, caughtUp bool) {
		answer, err := operator.want(http.StatusOK, method, "/api/admin/projections/"+projection+"/rebuild", "", []byte(body))
		require.NoError(a.t, err)
		var s rebuildStatus
		require.NoError(a.t, json.Unmarshal(answer, &s))
		require.NotNil(a.t, s.Building, projection)
		require.Zero(a.t, s.Building.Faulted, projection)
		passed, err = strconv.Atoi(s.Building.Done)
		require.NoError(a.t, err)
		return passed, s.Building.CaughtUp
	}
	started := time.Now()
	for _, p := range projections {
		building(http.MethodPost, p.Name, `{"switch":false}`)
	}
	events := 0 // that all of them passed
	require.Eventually(a.t, func() bool {
		events = 0
		for _, p := range projections {
			passed, caughtUp := building(http.MethodGet, p.Name, "")
			if !caughtUp {
				return false
			}
			events += passed
		}
		return true
	}, time.Hour, 100*time.Millisecond)
	seconds, each := time.Since(started).Seconds(), float64(events)/float64(len(projections))
	figures.addText(fmt.Sprintf("Books of %.0f events read again by %d projections", each, len(projections)), "%s, %.0f s", perSecond(each/seconds, "events"), seconds)
}

// ublInvoice is an invoice in UBL of one of ten vendors.
func ublInvoice(n int) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `<?xml version="1.0" encoding="UTF-8"?>
<Invoice xmlns="urn:oasis:names:specification:ubl:schema:xsd:Invoice-2" xmlns:cac="urn:oasis:names:specification:ubl:schema:xsd:CommonAggregateComponents-2" xmlns:cbc="urn:oasis:names:specification:ubl:schema:xsd:CommonBasicComponents-2">
  <cbc:CustomizationID>urn:cen.eu:en16931:2017</cbc:CustomizationID>
  <cbc:ID>UBL-%06d</cbc:ID><cbc:IssueDate>2025-03-04</cbc:IssueDate><cbc:DueDate>2025-04-03</cbc:DueDate>
  <cbc:InvoiceTypeCode>380</cbc:InvoiceTypeCode><cbc:DocumentCurrencyCode>EUR</cbc:DocumentCurrencyCode><cbc:BuyerReference>Purchasing 42</cbc:BuyerReference>
  <cac:AccountingSupplierParty><cac:Party>
    <cac:PostalAddress><cbc:StreetName>Hafenallee 7</cbc:StreetName><cbc:CityName>Kiel</cbc:CityName><cbc:PostalZone>24103</cbc:PostalZone><cac:Country><cbc:IdentificationCode>DE</cbc:IdentificationCode></cac:Country></cac:PostalAddress>
    <cac:PartyTaxScheme><cbc:CompanyID>DE999000105</cbc:CompanyID><cac:TaxScheme><cbc:ID>VAT</cbc:ID></cac:TaxScheme></cac:PartyTaxScheme>
    <cac:PartyLegalEntity><cbc:RegistrationName>Nordlicht Bueroausstattung GmbH</cbc:RegistrationName><cbc:CompanyID>HRB 99104</cbc:CompanyID></cac:PartyLegalEntity>
  </cac:Party></cac:AccountingSupplierParty>
  <cac:AccountingCustomerParty><cac:Party>
    <cac:PostalAddress><cbc:CityName>Kassel</cbc:CityName><cbc:PostalZone>34117</cbc:PostalZone><cac:Country><cbc:IdentificationCode>DE</cbc:IdentificationCode></cac:Country></cac:PostalAddress>
    <cac:PartyLegalEntity><cbc:RegistrationName>Demo Manufacturing GmbH</cbc:RegistrationName></cac:PartyLegalEntity>
  </cac:Party></cac:AccountingCustomerParty>
  <cac:TaxTotal><cbc:TaxAmount currencyID="EUR">%[2]d.00</cbc:TaxAmount><cac:TaxSubtotal>
    <cbc:TaxableAmount currencyID="EUR">%[3]d.00</cbc:TaxableAmount><cbc:TaxAmount currencyID="EUR">%[2]d.00</cbc:TaxAmount>
    <cac:TaxCategory><cbc:ID>S</cbc:ID><cbc:Percent>19</cbc:Percent><cac:TaxScheme><cbc:ID>VAT</cbc:ID></cac:TaxScheme></cac:TaxCategory>
  </cac:TaxSubtotal></cac:TaxTotal>
  <cac:LegalMonetaryTotal>
    <cbc:LineExtensionAmount currencyID="EUR">%[3]d.00</cbc:LineExtensionAmount><cbc:TaxExclusiveAmount currencyID="EUR">%[3]d.00</cbc:TaxExclusiveAmount>
    <cbc:TaxInclusiveAmount currencyID="EUR">%[4]d.00</cbc:TaxInclusiveAmount><cbc:PayableAmount currencyID="EUR">%[4]d.00</cbc:PayableAmount>
  </cac:LegalMonetaryTotal>
`, n, 19*importLines, 100*importLines, 119*importLines)
	for line := range importLines {
		fmt.Fprintf(&b, `  <cac:InvoiceLine>
    <cbc:ID>%d</cbc:ID>
    <cbc:InvoicedQuantity unitCode="C62">4</cbc:InvoicedQuantity>
    <cbc:LineExtensionAmount currencyID="EUR">100.00</cbc:LineExtensionAmount>
    <cac:Item>
      <cbc:Name>Standing desk %d, oak, 160 x 80 cm, delivered</cbc:Name>
      <cac:SellersItemIdentification><cbc:ID>NL-4711</cbc:ID></cac:SellersItemIdentification>
      <cac:ClassifiedTaxCategory><cbc:ID>S</cbc:ID><cbc:Percent>19</cbc:Percent><cac:TaxScheme><cbc:ID>VAT</cbc:ID></cac:TaxScheme></cac:ClassifiedTaxCategory>
    </cac:Item>
    <cac:Price><cbc:PriceAmount currencyID="EUR">25.00</cbc:PriceAmount></cac:Price>
  </cac:InvoiceLine>
`, line+1, n)
	}
	b.WriteString("</Invoice>\n")
	return b.Bytes()
}
