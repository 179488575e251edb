package einvoice_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/ap/adapters/einvoice"
	"github.com/erpbackbone/backbone/modules/ap/contract"
)

func fileText(tb testing.TB, path string) string {
	tb.Helper()
	data, err := os.ReadFile(path)
	require.NoError(tb, err)
	return string(data)
}

func sample(tb testing.TB, name string) einvoice.Document {
	tb.Helper()
	d, err := read(tb, filepath.Join(repositoryRoot(tb), "test", "samples", "ubl", name))
	require.NoErrorf(tb, err, "%s: %v", name, violations(err))
	return d
}

// requireBalancedAmounts checks the sums on the document.
func requireBalancedAmounts(tb testing.TB, d einvoice.Document) {
	tb.Helper()
	sum := d.Totals.Tax
	for _, l := range d.Lines {
		sum = sum.Add(l.Amount)
	}
	require.True(tb, sum.Equal(d.Totals.Gross))
	require.False(tb, d.Totals.Gross.Sign() < 0)
}

func TestRead_Samples(t *testing.T) {
	t.Parallel()
	paths := samples(t, "")
	require.Len(t, paths, 6)
	for _, path := range paths {
		d, err := read(t, path)
		require.NoErrorf(t, err, "%s: %v", filepath.Base(path), violations(err))
		require.Empty(t, d.Warnings)
		requireBalanced(t, d)
	}
	got := importInOrder(t, append(paths, filepath.Join(filepath.Dir(paths[0]), "refused", "number-used-again.xml")))
	require.Equal(t, 4, got.invoices)
	require.Equal(t, 2, got.creditMemos)
	require.Equal(t, 1, got.refused)
	require.Len(t, got.vendors, 5)
}

func TestRead_RefusedSamples(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(repositoryRoot(t), "test", "samples", "ubl", "refused")
	_, err := read(t, filepath.Join(dir, "doctype.xml"))
	require.Equal(t, einvoice.CodeDoctypeForbidden, fault.CodeOf(err))
	_, err = read(t, filepath.Join(dir, "number-used-again.xml"))
	require.NoError(t, err)
	_, err = read(t, filepath.Join(dir, "total-does-not-add-up.xml"))
	require.Equal(t, einvoice.CodeRuleViolated, fault.CodeOf(err))
	require.Len(t, violations(err), 1)
	require.Equal(t, "BR-CO-15", violations(err)[0].Rule)
	require.Equal(t, "0.10", violations(err)[0].Difference)
}

func TestInvoicePayload(t *testing.T) {
	t.Parallel()
	d := sample(t, "01-invoice-two-rates.xml")
	raw, err := d.IntentPayload(einvoice.Submission{
		VendorID:   "V-7",
		Dimensions: func(l einvoice.Line) map[string]string { return map[string]string{"cost_center": l.AccountingCost} },
	})
	require.NoError(t, err)
	require.Equal(t, contract.Invoice.Intent("submit"), d.Intent())
	want := `{"invoice_number":"NBA-2026-1047","vendor_id":"V-7","vendor_name":"Nordlicht Bueroausstattung GmbH",` +
		`"invoice_date":"2026-03-04","due_date":"2026-04-03","due_date_source":"document","currency":"EUR",` +
		`"total_amount":2166.22,"tax_amount":316.22,"document_type":"standard","po_reference":"PO-2026-0031","external_reference":"Purchasing 42",` +
		`"tax_lines":[{"category":"S","rate":19,"taxable_amount":1556.00,"tax_amount":295.64,"tax_group":"S/19"},` +
		`{"category":"S","rate":7,"taxable_amount":294.00,"tax_amount":20.58,"tax_group":"S/7"}],` +
		`"payable_amount":2166.22,"payment_reference":"NBA-2026-1047","payee_bank":"none",` +
		`"source_document":{"syntax":"UBL 2.1","sha256":"` + d.SHA256 + `","type_code":"380"},` +
		`"lines":[{"line_number":1,"kind":"item","description":"Standing desk, oak, 160 x 80 cm","quantity":4,"unit":"C62","unit_price":389.00,"amount":1556.00,` +
		`"tax_group":"S/19","po_line_reference":"PO-2026-0031-1","item_id":"NL-4711","accounting_cost":"CC-4200","dimensions":{"cost_center":"CC-4200"}},` +
		`{"line_number":2,"kind":"item","description":"Handbook of machine safety","quantity":12,"unit":"C62","unit_price":24.50,"amount":294.00,` +
		`"tax_group":"S/7","po_line_reference":"PO-2026-0031-2","item_id":"NL-0815","accounting_cost":"CC-4300","dimensions":{"cost_center":"CC-4300"}}],"payee_accounts":["DE48999900000123456789"],"buyer":{"vat_id":"DE999000197","names":["Demo Manufacturing GmbH"]}}`
	require.Equal(t, want, string(raw))
	vendor, err := d.VendorPayload(14)
	require.NoError(t, err)
	require.Equal(t, `{"name":"Nordlicht Bueroausstattung GmbH","country":"DE","vat_id":"DE999000105","registration_id":"HRB 99104",`+
		`"natural_person":false,"currency":"EUR","terms":{"net_days":14}}`, string(vendor))
}

func TestAllowanceChargeAndAttachment(t *testing.T) {
	t.Parallel()
	b := payload(t, sample(t, "02-invoice-usd-allowance-charge.xml"), einvoice.Submission{VendorID: "V-1"})
	require.Len(t, b.Lines, 4)
	require.Equal(t, "allowance", b.Lines[2].Kind)
	require.Equal(t, "-100.00", b.Lines[2].Amount.String())
	require.Equal(t, "charge", b.Lines[3].Kind)
	require.Equal(t, "45.00", b.Lines[3].Amount.String())
	require.Equal(t, "CC-1300", b.Lines[0].AccountingCost) // of the header
	require.Equal(t, "CC-1400", b.Lines[1].AccountingCost) // the line wins
	require.Equal(t, "CC-1300", b.Lines[3].AccountingCost)
	require.Equal(t, "G/0", b.Lines[2].TaxGroup)
	require.Len(t, b.Attachments, 1)
	require.Equal(t, "attachment-1.csv", b.Attachments[0].FileName)
	require.Equal(t, "text/csv", b.Attachments[0].ContentType)
	require.EqualValues(t, 61, b.Attachments[0].SizeBytes)
	require.Len(t, b.Attachments[0].ID, 64)
}

func TestCreditNoteReference(t *testing.T) {
	t.Parallel()
	d := sample(t, "03-credit-note.xml")
	require.Equal(t, contract.CreditMemo.Intent("submit"), d.Intent())
	require.False(t, d.Flipped)
	b := payload(t, d, einvoice.Submission{VendorID: "V-1"})
	require.Equal(t, "NBA-2026-1047", b.PrecedingInvoice)
	require.Nil(t, b.DueDate)
	require.Equal(t, "381", b.SourceDocument.TypeCode)
	require.Equal(t, "462.91", b.TotalAmount.String())
}

func TestNegativeInvoice(t *testing.T) {
	t.Parallel()
	d := sample(t, "04-negative-invoice.xml")
	require.True(t, d.Flipped)
	require.Equal(t, "Invoice", d.Root)
	require.Equal(t, contract.CreditMemo, d.Kind)
	b := payload(t, d, einvoice.Submission{VendorID: "V-1"})
	require.Equal(t, "380", b.SourceDocument.TypeCode)
	require.Equal(t, "293.04", b.TotalAmount.String())
	require.Equal(t, "48.84", b.TaxAmount.String())
	require.Equal(t, "48.84", b.TaxLines[0].TaxAmount.String())
	require.Equal(t, "1200", b.Lines[0].Quantity.String())
	require.Equal(t, "0.2185", b.Lines[0].UnitPrice.String())
	require.Equal(t, "262.20", b.Lines[0].Amount.String())
	require.Equal(t, "-18.00", b.Lines[1].Amount.String())
}

func TestNaturalPersonRegistration(t *testing.T) {
	t.Parallel()
	path := filepath.Join(repositoryRoot(t), "test", "samples", "ubl", "05-invoice-natural-person.xml")
	require.Contains(t, fileText(t, path), "Mira Sandvik")
	d, err := read(t, path)
	require.NoError(t, err)
	vendor, err := d.VendorPayload(30)
	require.NoError(t, err)
	require.Equal(t, `{"country":"SE","party_id":"7350000000014","natural_person":true,`+
		`"person":{"name":"Mira Sandvik","address":"Birkenweg 9, 22100, Lund"},"currency":"EUR","terms":{"net_days":30}}`, string(vendor))
	whole, err := json.Marshal(d)
	require.NoError(t, err)
	for _, s := range []string{string(whole), fmt.Sprintf("%v %+v %#v %s %q %d", d, d, d, d.Supplier, d.Supplier.Person, d.Supplier.Person)} {
		require.NotContains(t, s, "Mira")
		require.NotContains(t, s, "Birkenweg")
	}
	raw, err := d.IntentPayload(einvoice.Submission{VendorID: "V-1"})
	require.NoError(t, err)
	require.Contains(t, string(raw), `"seller_name":"Mira Sandvik"`, "for the server, which compares and drops it")
	require.NotContains(t, string(raw), "Birkenweg")
	b := payload(t, d, einvoice.Submission{VendorID: "V-1"})
	require.Nil(t, b.VendorName)
	require.Equal(t, "O/0", b.Lines[0].TaxGroup)
	require.Equal(t, "O/0", b.TaxLines[0].TaxGroup)
}

func TestPriceBaseQuantityAndRounding(t *testing.T) {
	t.Parallel()
	d := sample(t, "06-invoice-dkk-rounding.xml")
	raw, err := d.IntentPayload(einvoice.Submission{VendorID: "V-1"})
	require.NoError(t, err)
	for _, part := range []string{
		`"unit_price":12.40,"price_base_quantity":100,"amount":310.00`, `"rounding_amount":0.50,"payable_amount":388.00`, `"invoice_number":"OP 2026/318"`,
	} {
		require.Contains(t, string(raw), part)
	}
}

// Accounts, names of persons, notes and contents never leave the reader.
func TestPayload_NoPersonalData(t *testing.T) {
	t.Parallel()
	text := invoice(
		"<cbc:DocumentCurrencyCode>", "<cbc:Note>NOTE-secret</cbc:Note><cbc:DocumentCurrencyCode>",
		"</cac:Party></cac:AccountingSupplierParty>", `<cac:Contact><cbc:Name>CONTACT-secret</cbc:Name></cac:Contact></cac:Party></cac:AccountingSupplierParty>
<cac:PayeeParty><cac:PartyName><cbc:Name>PAYEE-secret</cbc:Name></cac:PartyName></cac:PayeeParty>
<cac:Delivery><cac:DeliveryParty><cac:PartyName><cbc:Name>DELIVERY-secret</cbc:Name></cac:PartyName></cac:DeliveryParty></cac:Delivery>
<cac:AdditionalDocumentReference><cbc:ID>DOC-secret</cbc:ID><cac:Attachment><cbc:EmbeddedDocumentBinaryObject mimeCode="text/csv" filename="FILE-secret.pdf">
c2Vj cmV0</cbc:EmbeddedDocumentBinaryObject></cac:Attachment></cac:AdditionalDocumentReference>
<cac:PaymentMeans><cbc:PaymentMeansCode>30</cbc:PaymentMeansCode><cbc:PaymentID>RF18</cbc:PaymentID><cac:PayeeFinancialAccount><cbc:ID>gr16 0110 secret</cbc:ID></cac:PayeeFinancialAccount></cac:PaymentMeans>`)
	d, err := readText(text)
	require.NoError(t, err, violations(err))
	require.True(t, d.PayeeDiffers)
	require.Equal(t, "RF18", d.PaymentReference)
	require.Equal(t, "1 account(s)", fmt.Sprint(d.PaymentAccounts))
	require.Equal(t, []einvoice.Attachment{{
		SHA256:   "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b", // of "secret"
		FileName: "attachment-1.csv", ContentType: "text/csv", Size: 6,
	}}, d.Attachments)
	raw, err := d.IntentPayload(einvoice.Submission{VendorID: "V-1"})
	require.NoError(t, err)
	require.Contains(t, string(raw), `"payee_differs":true`)
	const accounts = `"payee_accounts":["GR160110SECRET"]`
	require.Contains(t, string(raw), accounts, "for the server, which compares and seals it")
	raw = bytes.Replace(raw, []byte(accounts), nil, 1)
	whole, err := json.Marshal(d)
	require.NoError(t, err)
	for _, s := range []string{string(raw), string(whole), fmt.Sprintf("%v %+v %#v", d, d, d)} {
		require.NotContains(t, strings.ToLower(s), "secret")
	}
}

func TestPayee(t *testing.T) {
	t.Parallel()
	payee := func(inner string) string {
		return invoice("<cac:TaxTotal>", "<cac:PayeeParty>"+inner+"</cac:PayeeParty><cac:TaxTotal>")
	}
	for text, differs := range map[string]bool{
		invoice(): false,
		payee(`<cac:PartyName><cbc:Name>TRADE</cbc:Name></cac:PartyName>`):                                                                                           false,
		payee(`<cac:PartyName><cbc:Name>Factor</cbc:Name></cac:PartyName>`):                                                                                          true,
		payee(`<cac:PartyIdentification><cbc:ID>77</cbc:ID></cac:PartyIdentification><cac:PartyName><cbc:Name>Legal</cbc:Name></cac:PartyName>`):                     true,
		payee(`<cac:PartyName><cbc:Name>Other</cbc:Name></cac:PartyName><cac:PartyLegalEntity><cbc:CompanyID>EL 999.000.100</cbc:CompanyID></cac:PartyLegalEntity>`): false,
	} {
		d, err := readText(text)
		require.NoError(t, err)
		require.Equal(t, differs, d.PayeeDiffers, text)
	}
}

func TestPrepaymentAndTaxCurrency(t *testing.T) {
	t.Parallel()
	d, err := readText(invoice(">380<", ">386<",
		"</cbc:DocumentCurrencyCode>", "</cbc:DocumentCurrencyCode><cbc:TaxCurrencyCode>SEK</cbc:TaxCurrencyCode>",
		"<cac:LegalMonetaryTotal>", `<cac:TaxTotal><cbc:TaxAmount currencyID="SEK">275.10</cbc:TaxAmount></cac:TaxTotal><cac:LegalMonetaryTotal>`))
	require.NoError(t, err, violations(err))
	require.Equal(t, contract.TypePrepayment, d.DocumentType)
	require.Equal(t, "24.00", d.Totals.Tax.String())
	require.Equal(t, "275.10", d.TaxAmountInTaxCurrency.String())
}

func TestTrailingZerosOfYen(t *testing.T) {
	t.Parallel()
	d, err := readText(invoice("EUR", "JPY"))
	require.NoError(t, err, violations(err))
	require.Equal(t, "124", d.Totals.Gross.String())
	require.Equal(t, "100", d.Lines[0].Amount.String())
	require.True(t, d.TaxLines[0].Tax.Equal(money.FromInt(24)))
}
