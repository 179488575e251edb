package cli_test

import (
	"bytes"
	"encoding/xml"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/gl/adapters/cli"
	"github.com/erpbackbone/backbone/modules/gl/domain"
)

var update = flag.Bool("update", false, "rewrite the files in testdata")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o750))
		require.NoError(t, os.WriteFile(file, got, 0o600))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got))
}

// auditSchema finds a published schema, which is not part of the repository: in the folder
// BACKBONE_AUDIT_SCHEMAS, or beside the test data of invoices.
func auditSchema(t *testing.T, name string) string {
	t.Helper()
	if _, err := exec.LookPath("xmllint"); err != nil {
		t.Skip("xmllint is not installed; apt-get install libxml2-utils")
	}
	for _, folder := range []string{os.Getenv("BACKBONE_AUDIT_SCHEMAS"), filepath.Join("..", "..", "..", "..", "..", "shared", "data", "audit")} {
		if folder == "" {
			continue
		}
		if file := filepath.Join(folder, name); fileExists(file) {
			return file
		}
	}
	t.Skipf("the schema %s is absent; set BACKBONE_AUDIT_SCHEMAS to its folder", name)
	return ""
}

func fileExists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

func xmllint(t *testing.T, args ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "xmllint", append([]string{"--noout", "--nonet"}, args...)...).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

var company = cli.Company{
	RegistrationNumber: "987654321", TaxRegistrationNumber: "987654321MVA",
	Address:  cli.Address{Street: "Storgata", Number: "1", PostalCode: "0155", City: "Oslo", Country: "NO"},
	Contact:  cli.Contact{FirstName: "Ola", LastName: "Nordmann", Telephone: "+47 22 00 00 00"},
	Grouping: map[string]cli.Grouping{"1000": {Category: "balanseverdiForOmloepsmiddel", Code: "1920"}},
	TaxCodes: map[string]string{"S25": "1"},
}

// smallBook has two periods of a fiscal year with another label than its number, a document
// with tax, foreign currency and a vendor, and a reversal in the next period.
func smallBook(t *testing.T) *bookFixture {
	t.Helper()
	b := newBookFixture(t)
	b.add(domain.EventLedgerConfigured, "2026-01-01", `{"functional_currency": "EUR", "posting_profile": {"input_tax": "1200"}, "tax_groups": {
		"S25": {"rate": 25, "recoverable_percent": 100, "description": "Input tax"}, "Z0": {"rate": 0}}}`)
	b.add(domain.EventCalendarExtended, "2026-01-01", `{"label": "FY26", "start": "2026-02-01", "end": "2027-01-31", "periods": [
		{"period": "2026-P1", "start": "2026-02-01", "end": "2026-02-28"}, {"period": "2026-P2", "start": "2026-03-01", "end": "2027-01-31"}]}`)
	b.add(domain.EventAccountDefined, "2026-01-01", `{"code": "2100", "name": "Payables", "type": "liability", "control": "ap", "postable": true}`)
	b.add(domain.EventAccountDefined, "2026-01-01", `{"code": "3", "name": "Heading", "type": "income", "postable": false}`)
	b.add(domain.EventJournalPosted, "2026-02-10", `{"journal_number": "GJ-FY26-000001", "journal_type": "general", "description": "Opening & more", "functional_currency": "EUR", "fiscal_year": "FY26", "period": "2026-P1", "lines": [
		{"line_number": 1, "account": "1000", "debit_credit": "debit", "amount": 500, "currency": "EUR", "amount_in_reporting_currency": 500},
		{"line_number": 2, "account": "4000", "debit_credit": "credit", "amount": 500, "currency": "EUR", "amount_in_reporting_currency": 500}]}`)
	b.add(domain.EventJournalPosted, "2026-03-02", `{"journal_number": "SL-FY26-000001", "journal_type": "subledger", "description": "Invoice R<1>", "document_date": "2026-02-27", "source_module": "ap", "source_event_id": "01ARZ3NDEKTSV4RRFFQ69G5FAV", "functional_currency": "EUR", "fiscal_year": "FY26", "period": "2026-P2", "lines": [
		{"line_number": 1, "account": "6000", "debit_credit": "debit", "amount": 80, "currency": "USD", "amount_in_reporting_currency": 72, "exchange_rate": 0.9, "tax_code": "S25", "description": "Paper", "dimensions": {"department": "Research, and everything else that has a long name", "project": "P1"}},
		{"line_number": 2, "account": "6000", "debit_credit": "debit", "amount": 10, "currency": "USD", "amount_in_reporting_currency": 9, "exchange_rate": 0.9, "tax_code": "Z0", "dimensions": {"department": "Research, and everything else that has another long name", "departmental": "x"}},
		{"line_number": 3, "account": "1200", "debit_credit": "debit", "amount": 20, "currency": "USD", "amount_in_reporting_currency": 18, "exchange_rate": 0.9, "tax_code": "S25"},
		{"line_number": 4, "account": "2100", "debit_credit": "credit", "amount": 110, "currency": "USD", "amount_in_reporting_currency": 99, "exchange_rate": 0.9, "dimensions": {"vendor": "V-000001"}}]}`)
	b.add(domain.EventJournalPosted, "2026-03-31", `{"journal_number": "RV-FY26-000001", "journal_type": "reversal", "description": "", "functional_currency": "EUR", "fiscal_year": "FY26", "period": "2026-P2", "lines": [
		{"line_number": 1, "account": "4000", "debit_credit": "debit", "amount": 1.234, "currency": "KWD", "amount_in_reporting_currency": 3.70, "exchange_rate": 2.998379254457},
		{"line_number": 2, "account": "1000", "debit_credit": "credit", "amount": 1.234, "currency": "KWD", "amount_in_reporting_currency": 3.70, "exchange_rate": 2.998379254457}]}`)
	b.apply(t)
	b.payables = map[string]string{
		"ap/vendors": `{"rows": [{"vendor_id": "V-000001", "name": "Papir AS", "country": "NO", "status": "active"},
			{"vendor_id": "V-000002", "name": {"name": "[MASKED]"}, "country": "DE", "status": "active", "natural_person": true}]}`,
		"gl/subledger-control?as_of=2026-02-28": `{"rows": [{"control_account": "2100", "vendor_id": "V-000002", "ledger_functional": "-5.00"}]}`,
		"gl/subledger-control?as_of=2026-12-31": `{"rows": [{"control_account": "2100", "vendor_id": "V-000001", "ledger_functional": "99.00"}, {"control_account": "", "vendor_id": "", "ledger_functional": "1.00"}]}`,
		"ap/documents":                          `{"rows": []}`,
		"ap/open-items":                         `{"rows": [{"document_id": "01ARZ3NDEKTSV4RRFFQ69G5FAV", "vendor_id": "V-000001", "number": "-1", "kind": "invoice", "invoice_date": "2026-03-01", "due_date": "2026-03-31", "currency": "USD", "total": "110.00", "applied": "0.00", "open": "110.00", "open_functional": "99.00"}]}`,
		"ap/tax-summary":                        `{"rows": [{"period": "2026-P2", "tax_group": "S25", "rate": "25", "currency": "USD", "taxable": "80.00", "tax": "20.00"}]}`,
	}
	return b
}

func TestWriteSAFT_SmallBook(t *testing.T) {
	t.Parallel()
	b := smallBook(t)
	options := cli.Options{LegalEntity: "DEMF", From: "2026-03-01", AsOf: "2026-12-31", Version: "1.2.3"}
	var text bytes.Buffer
	result, err := cli.WriteSAFT(t.Context(), b, &text, options, company)
	require.NoError(t, err)
	require.Equal(t, cli.SAFTResult{Journals: 2, Ungrouped: 4, InexactAmounts: 2, Unassigned: "1.00"}, result)
	golden(t, "saft.xml", text.Bytes())

	// The same question later gives the same bytes.
	known := int(b.sequence)
	b.add(domain.EventJournalPosted, "2026-03-05", `{"journal_number": "GJ-FY26-000002", "journal_type": "general", "description": "late", "functional_currency": "EUR", "lines": [
		{"line_number": 1, "account": "1000", "debit_credit": "debit", "amount": 1, "currency": "EUR", "amount_in_reporting_currency": 1},
		{"line_number": 2, "account": "4000", "debit_credit": "credit", "amount": 1, "currency": "EUR", "amount_in_reporting_currency": 1}]}`)
	b.apply(t)
	var again bytes.Buffer
	options.KnownAt = "seq:" + strconv.Itoa(known)
	_, err = cli.WriteSAFT(t.Context(), b, &again, options, company)
	require.NoError(t, err)
	require.Equal(t, text.String(), again.String())

	t.Run("schema", func(t *testing.T) {
		schema := auditSchema(t, "Norwegian_SAF-T_Financial_Schema_v_1.30.xsd")
		file := filepath.Join(t.TempDir(), "saft.xml")
		require.NoError(t, os.WriteFile(file, text.Bytes(), 0o600))
		xmllint(t, "--schema", schema, file)
	})
}

// auditFile is what the tests read of a SAF-T file.
type auditFile struct {
	Accounts []struct {
		ID            string `xml:"AccountID"`
		OpeningDebit  string `xml:"OpeningDebitBalance"`
		OpeningCredit string `xml:"OpeningCreditBalance"`
		ClosingDebit  string `xml:"ClosingDebitBalance"`
		ClosingCredit string `xml:"ClosingCreditBalance"`
	} `xml:"MasterFiles>GeneralLedgerAccounts>Account"`
	Entries struct {
		Number   int    `xml:"NumberOfEntries"`
		Debit    string `xml:"TotalDebit"`
		Credit   string `xml:"TotalCredit"`
		Journals []struct {
			Transactions []struct {
				ID    string `xml:"TransactionID"`
				Lines []struct {
					Account string `xml:"AccountID"`
					Debit   string `xml:"DebitAmount>Amount"`
					Credit  string `xml:"CreditAmount>Amount"`
				} `xml:"Line"`
			} `xml:"Transaction"`
		} `xml:"Journal"`
	} `xml:"GeneralLedgerEntries"`
}

// TestWriteSAFT_Sums adds the lines of random months up: with the opening balances they are the
// closing balances, and both are those of the trial balance, on both axes of time.
func TestWriteSAFT_Sums(t *testing.T) {
	t.Parallel()
	b := newBookFixture(t)
	b.randomMonth(t)
	number := func(debit, credit string) money.Number {
		var d, c money.Number
		if debit != "" {
			d = money.MustNumber(debit)
		}
		if credit != "" {
			c = money.MustNumber(credit)
		}
		return d.Sub(c)
	}
	for _, c := range []struct {
		from, to string
		known    int
	}{{"2026-01-01", "2026-12-31", int(b.sequence)}, {"2026-03-05", "2026-03-17", int(b.sequence)}, {"2026-03-10", "2026-03-31", int(b.sequence) / 2}, {"2026-04-01", "2026-04-30", int(b.sequence)}} {
		var text bytes.Buffer
		result, err := cli.WriteSAFT(t.Context(), b, &text, cli.Options{LegalEntity: "DEMF", From: c.from, AsOf: c.to, KnownAt: "seq:" + strconv.Itoa(c.known)}, company)
		require.NoError(t, err)
		require.NotContains(t, text.String(), "<Supplier>") // the fixture has no accounts payable
		var f auditFile
		require.NoError(t, xml.Unmarshal(text.Bytes(), &f))
		require.Equal(t, result.Journals, f.Entries.Number)

		moved, transactions := map[string]money.Number{}, 0
		var debit, credit money.Number
		for _, j := range f.Entries.Journals {
			for _, transaction := range j.Transactions {
				transactions++
				var sum money.Number
				for _, l := range transaction.Lines {
					n := number(l.Debit, l.Credit)
					moved[l.Account] = moved[l.Account].Add(n)
					sum = sum.Add(n)
					if l.Debit != "" {
						debit = debit.Add(n)
					} else {
						credit = credit.Sub(n)
					}
				}
				require.True(t, sum.IsZero(), transaction.ID)
			}
		}
		require.Equal(t, f.Entries.Number, transactions)
		require.True(t, debit.Equal(money.MustNumber(f.Entries.Debit)) && credit.Equal(money.MustNumber(f.Entries.Credit)))
		closing := map[string]string{}
		for _, a := range f.Accounts {
			end := number(a.ClosingDebit, a.ClosingCredit)
			require.True(t, number(a.OpeningDebit, a.OpeningCredit).Add(moved[a.ID]).Equal(end), a.ID)
			if !end.IsZero() {
				closing[a.ID+" EUR"] = end.String()
			}
		}
		require.Equal(t, b.balances(t, c.to, c.known, "functional"), closing)
		if schema := os.Getenv("BACKBONE_AUDIT_SCHEMAS"); schema != "" {
			file := filepath.Join(t.TempDir(), "saft.xml")
			require.NoError(t, os.WriteFile(file, text.Bytes(), 0o600))
			xmllint(t, "--schema", auditSchema(t, "Norwegian_SAF-T_Financial_Schema_v_1.30.xsd"), file)
		}
	}
}

func TestWriteSAFT_Refusals(t *testing.T) {
	t.Parallel()
	b := newBookFixture(t)
	options := cli.Options{LegalEntity: "DEMF", From: "2026-03-01", AsOf: "2026-03-31"}
	_, err := cli.WriteSAFT(t.Context(), b, &bytes.Buffer{}, options, cli.Company{Name: "x"})
	require.Equal(t, "export.company_incomplete", fault.CodeOf(err))
	require.ErrorContains(t, err, "registration_number, contact.first_name, contact.last_name, contact.telephone")

	post := func(amount, account string) {
		b.add(domain.EventJournalPosted, "2026-03-02", fmt.Sprintf(`{"journal_number": "GJ-%d", "journal_type": "general", "functional_currency": "EUR", "lines": [
			{"line_number": 1, "account": %[3]q, "debit_credit": "debit", "amount": %[2]s, "currency": "EUR", "amount_in_reporting_currency": %[2]s},
			{"line_number": 2, "account": "1000", "debit_credit": "credit", "amount": 1, "currency": "EUR", "amount_in_reporting_currency": 1}]}`, b.sequence, amount, account))
		b.apply(t)
	}
	post("2", strings.Repeat("9", 71))
	_, err = cli.WriteSAFT(t.Context(), b, &bytes.Buffer{}, options, company)
	require.Equal(t, "export.value_too_long", fault.CodeOf(err))

	options.From = "2026-03-03" // the balance of a raw append is an opening balance then
	_, err = cli.WriteSAFT(t.Context(), b, &bytes.Buffer{}, options, company)
	require.Equal(t, "export.value_too_long", fault.CodeOf(err))

	b = newBookFixture(t)
	post("2", "2000")
	_, err = cli.WriteSAFT(t.Context(), b, &bytes.Buffer{}, cli.Options{LegalEntity: "DEMF", From: "2026-03-01", AsOf: "2026-03-31"}, company)
	require.Equal(t, "export.sums_differ", fault.CodeOf(err))
}

func TestReadCompany(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"registration_number": "1", "contact": {"first_name": "A", "last_name": "B", "telephone": "2"}}`: "",
		`{"registration": "1"}`:                 "members that docs/export.md lists",
		`{} {}`:                                 "one JSON object",
		`{"address": {"country": "Norway"}}`:    "two letters",
		`{"grouping": {"1000": {"code": "1"}}}`: "grouping of account 1000 lacks",
	} {
		file := filepath.Join(t.TempDir(), "company.json")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		_, err := cli.ReadCompany(file)
		if want == "" {
			require.NoError(t, err)
			continue
		}
		require.Equal(t, "export.company_invalid", fault.CodeOf(err), text)
		require.ErrorContains(t, err, want)
	}
	_, err := cli.ReadCompany(t.TempDir())
	require.Equal(t, "export.company_invalid", fault.CodeOf(err))
}
