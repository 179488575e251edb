package einvoice_test

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/xmltree"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/modules/ap/adapters/einvoice"
	"github.com/erpbackbone/backbone/modules/ap/contract"
)

const namespaces = `xmlns:cac="` + einvoice.NamespaceAggregate + `" xmlns:cbc="` + einvoice.NamespaceBasic + `"`

const buyer = `<cac:AccountingCustomerParty><cac:Party><cac:PostalAddress><cac:Country><cbc:IdentificationCode>DE</cbc:IdentificationCode></cac:Country></cac:PostalAddress>` +
	`<cac:PartyLegalEntity><cbc:RegistrationName>Buyer</cbc:RegistrationName></cac:PartyLegalEntity></cac:Party></cac:AccountingCustomerParty>`

// invoice is a sound document of one line; each pair of edits replaces the first
// text by the second.
func invoice(edits ...string) string {
	const text = `<Invoice xmlns="` + einvoice.NamespaceInvoice + `" ` + namespaces + `><cbc:CustomizationID>urn:cen.eu:en16931:2017</cbc:CustomizationID>
<cbc:ID>A-1</cbc:ID>
<cbc:IssueDate>2026-03-31</cbc:IssueDate>
<cbc:InvoiceTypeCode>380</cbc:InvoiceTypeCode>
<cbc:DocumentCurrencyCode>EUR</cbc:DocumentCurrencyCode>
<cac:AccountingSupplierParty><cac:Party>
<cac:PartyName><cbc:Name>Trade</cbc:Name></cac:PartyName><cac:PostalAddress><cac:Country><cbc:IdentificationCode>GR</cbc:IdentificationCode></cac:Country></cac:PostalAddress>
<cac:PartyTaxScheme><cbc:CompanyID>EL 999.000.100</cbc:CompanyID><cac:TaxScheme><cbc:ID>VAT</cbc:ID></cac:TaxScheme></cac:PartyTaxScheme>
<cac:PartyLegalEntity><cbc:RegistrationName>Legal</cbc:RegistrationName></cac:PartyLegalEntity>
</cac:Party></cac:AccountingSupplierParty>` + buyer + `
<cac:TaxTotal><cbc:TaxAmount currencyID="EUR">24.00</cbc:TaxAmount><cac:TaxSubtotal>
<cbc:TaxableAmount currencyID="EUR">100</cbc:TaxableAmount><cbc:TaxAmount currencyID="EUR">24.0</cbc:TaxAmount>
<cac:TaxCategory><cbc:ID>S</cbc:ID><cbc:Percent>24.00</cbc:Percent><cac:TaxScheme><cbc:ID>VAT</cbc:ID></cac:TaxScheme></cac:TaxCategory></cac:TaxSubtotal></cac:TaxTotal>
<cac:LegalMonetaryTotal><cbc:LineExtensionAmount currencyID="EUR"> +100 </cbc:LineExtensionAmount>
<cbc:TaxExclusiveAmount currencyID="EUR">100</cbc:TaxExclusiveAmount><cbc:TaxInclusiveAmount currencyID="EUR">124.00</cbc:TaxInclusiveAmount>
<cbc:PayableAmount currencyID="EUR">124.00</cbc:PayableAmount></cac:LegalMonetaryTotal>
<cac:InvoiceLine><cbc:ID>1</cbc:ID><cbc:InvoicedQuantity unitCode="H87">8</cbc:InvoicedQuantity><cbc:LineExtensionAmount currencyID="EUR">100.00</cbc:LineExtensionAmount>
<cac:Item><cbc:Name>Bolts</cbc:Name><cac:ClassifiedTaxCategory><cbc:ID>S</cbc:ID><cbc:Percent>24</cbc:Percent><cac:TaxScheme><cbc:ID>VAT</cbc:ID></cac:TaxScheme></cac:ClassifiedTaxCategory></cac:Item>
<cac:Price><cbc:PriceAmount currencyID="EUR">12.500000000000</cbc:PriceAmount></cac:Price></cac:InvoiceLine>
</Invoice>`
	return strings.NewReplacer(edits...).Replace(text)
}

func readText(text string) (einvoice.Document, error) { return einvoice.Read(strings.NewReader(text)) }

func TestRead_SoundDocument(t *testing.T) {
	t.Parallel()
	d, err := readText(invoice())
	require.NoError(t, err, violations(err))
	require.Equal(t, "A-1", d.Number)
	require.Equal(t, contract.Invoice, d.Kind)
	require.Equal(t, "GR", d.Supplier.Country) // from the VAT prefix, which is no country code
	require.Equal(t, "vat:EL999000100", d.Supplier.Identity())
	require.Equal(t, "Legal", d.Supplier.Name())
	require.Equal(t, "100", d.Totals.Lines.String())
	require.Equal(t, "12.5000000000", d.Lines[0].UnitPrice.String())
	require.Empty(t, d.Warnings)
	b := payload(t, d, einvoice.Submission{VendorID: "V-1"})
	require.Nil(t, b.DueDate) // the vendor's terms decide
	require.Empty(t, b.DueDateSource)
	require.Equal(t, "S/24", b.TaxLines[0].TaxGroup)
	require.Equal(t, "S/24", b.Lines[0].TaxGroup)
	require.Equal(t, "none", b.PayeeBank)
	_, err = d.IntentPayload(einvoice.Submission{})
	require.Error(t, err)
}

func TestRead_Refusals(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("<cac:X>", xmltree.MaxDepth) + strings.Repeat("</cac:X>", xmltree.MaxDepth)
	cases := []struct {
		name, text, code string
		rules            []string // rules violated, or codes of other findings
	}{
		{name: "doctype", text: `<!DOCTYPE Invoice SYSTEM "x.dtd">` + invoice(), code: einvoice.CodeDoctypeForbidden},
		{name: "doctype in small letters", text: `<!doctype Invoice>` + invoice(), code: einvoice.CodeDoctypeForbidden},
		{name: "entity", text: invoice("Bolts", "&bolts;"), code: einvoice.CodeXMLMalformed},
		{name: "empty", text: "", code: einvoice.CodeXMLMalformed},
		{name: "no XML", text: "ID;Date\n1;2", code: einvoice.CodeXMLMalformed},
		{name: "cut off", text: invoice()[:800], code: einvoice.CodeXMLMalformed},
		{name: "second root", text: invoice() + invoice(), code: einvoice.CodeXMLMalformed},
		{name: "text after the root", text: invoice() + "x", code: einvoice.CodeXMLMalformed},
		{name: "invalid UTF-8", text: invoice("Bolts", "\xff"), code: einvoice.CodeXMLMalformed},
		{name: "unknown encoding", text: `<?xml version="1.0" encoding="EBCDIC"?>` + invoice(), code: einvoice.CodeXMLMalformed},
		{name: "not ASCII", text: `<?xml version="1.0" encoding="US-ASCII"?>` + invoice("Bolts", "\xe4"), code: einvoice.CodeXMLMalformed},
		{name: "repeated attribute", text: invoice(`<cbc:TaxAmount currencyID="EUR">24.00`, `<cbc:TaxAmount currencyID="EUR" currencyID="USD">24.00`), code: einvoice.CodeXMLMalformed},
		{name: "too deep", text: invoice("</Invoice>", deep+"</Invoice>"), code: einvoice.CodeXMLMalformed},
		{name: "other root", text: `<Order xmlns="urn:oasis:names:specification:ubl:schema:xsd:Order-2"/>`, code: einvoice.CodeKindUnsupported},
		{name: "root without namespace", text: `<Invoice/>`, code: einvoice.CodeRootUnsupported},
		{name: "credit note in the namespace of invoices", text: `<CreditNote xmlns="` + einvoice.NamespaceInvoice + `"/>`, code: einvoice.CodeRootUnsupported},
		{name: "date", text: invoice("2026-03-31", "31.03.2026"), code: einvoice.CodeValueInvalid, rules: []string{einvoice.CodeValueInvalid}},
		{name: "exponent", text: invoice(">124.00<", ">1.24e2<"), code: einvoice.CodeValueInvalid, rules: []string{einvoice.CodeValueInvalid, einvoice.CodeValueInvalid}},
		{name: "sixteen digits", text: invoice(">8<", ">1234567890123456<"), code: einvoice.CodeValueInvalid, rules: []string{einvoice.CodeValueInvalid}},
		{name: "price with eleven decimals", text: invoice("12.500000000000", "12.50000000001"), code: einvoice.CodeValueInvalid, rules: []string{einvoice.CodeValueInvalid}},
		{name: "two totals", text: invoice("<cac:InvoiceLine>", "<cac:LegalMonetaryTotal/><cac:InvoiceLine>"), code: einvoice.CodeValueInvalid, rules: []string{einvoice.CodeValueInvalid}},
		{name: "long number", text: invoice("A-1", strings.Repeat("ä", 51)), code: einvoice.CodeFieldTooLong, rules: []string{einvoice.CodeFieldTooLong}},
		{name: "line in another currency", text: invoice(`currencyID="EUR">100.00`, `currencyID="USD">100.00`), code: einvoice.CodeCurrencyMismatch, rules: []string{einvoice.CodeCurrencyMismatch}},
		{name: "unknown currency", text: invoice("EUR", "EUX"), code: "money.currency_unsupported", rules: append(slices.Insert(slices.Repeat([]string{"BR-CL-03"}, 9), 0, "money.currency_unsupported"), "BR-CL-04")},
		{name: "decimals of the yen", text: invoice("\"EUR\">24.00<", "\"JPY\">24.10<", "24.0<", "24.10<", "124.00", "124.10", "EUR", "JPY"), code: "money.scale", rules: []string{"money.scale", "money.scale", "money.scale", "money.scale", "BR-CO-17"}},
		{name: "placeholder for the number", text: invoice("A-1", "n/a"), code: einvoice.CodeRuleViolated, rules: []string{"BR-02"}},
		{name: "seller known by a bank mandate only", text: invoice("</cbc:CompanyID><cac:TaxScheme><cbc:ID>VAT", "</cbc:CompanyID><cac:TaxScheme><cbc:ID>LOC", "<cac:PartyName>", `<cac:PartyIdentification><cbc:ID schemeID="SEPA">DE98ZZZ09999999999</cbc:ID></cac:PartyIdentification><cac:PartyName>`), code: einvoice.CodeRuleViolated, rules: []string{"BR-CO-26"}},
		{name: "no totals", text: invoice("cac:LegalMonetaryTotal", "cac:Other"), code: einvoice.CodeRuleViolated, rules: []string{"BR-12", "BR-13", "BR-14", "BR-15"}},
		{name: "VAT off by one", text: invoice(">24.0<", ">25.0<", `"EUR">24.00<`, `"EUR">25.00<`, "124.00", "125.00"), code: einvoice.CodeRuleViolated, rules: []string{"BR-CO-17", "BR-S-09"}},
		{name: "several sums", text: invoice(">24.0<", ">23.0<", "</cbc:TaxInclusiveAmount>", "</cbc:TaxInclusiveAmount><cbc:PrepaidAmount currencyID=\"EUR\">1</cbc:PrepaidAmount>"), code: einvoice.CodeRuleViolated, rules: []string{"BR-CO-14", "BR-CO-16", "BR-CO-17", "BR-S-09"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d, err := readText(c.text)
			f, ok := fault.As(err)
			require.True(t, ok, "%v", err)
			require.Equal(t, c.code, f.Code)
			require.Equal(t, fault.Invalid, f.Kind)
			require.Len(t, d.SHA256, 64)
			require.Equal(t, d.SHA256, f.Attributes["sha256"])
			var got []string
			for _, v := range f.Violations {
				require.NotEmpty(t, v.Element)
				require.Positive(t, v.Line)
				if v.Rule != "" {
					require.Equal(t, einvoice.CodeRuleViolated, v.Code)
					got = append(got, v.Rule)
				} else {
					got = append(got, v.Code)
				}
			}
			require.Equal(t, c.rules, got)
		})
	}
}

// A file of a known kind is named as what it is.
func TestRead_KindsOfFiles(t *testing.T) {
	t.Parallel()
	for text, kind := range map[string]string{
		`<a:Order xmlns:a="urn:oasis:names:specification:ubl:schema:xsd:Order-2"/>`:                                   "UBL Order",
		`<ApplicationResponse xmlns="urn:oasis:names:specification:ubl:schema:xsd:ApplicationResponse-2"/>`:           "UBL ApplicationResponse",
		`<DespatchAdvice xmlns="urn:oasis:names:specification:ubl:schema:xsd:DespatchAdvice-2"/>`:                     "UBL DespatchAdvice",
		`<Document xmlns="urn:iso:std:iso:20022:tech:xsd:pain.001.001.09"/>`:                                          "ISO 20022 pain.001.001.09",
		`<rsm:CrossIndustryDocument xmlns:rsm="urn:ferd:CrossIndustryDocument:invoice:1p0"/>`:                         "ZUGFeRD 1.0",
		`<rsm:CrossIndustryOrder xmlns:rsm="urn:un:unece:uncefact:data:standard:SCRDMCCBDACIOMessageStructure:100"/>`: "UN/CEFACT CrossIndustryOrder",
		`<FatturaElettronica xmlns="http://ivaservizi.agenziaentrate.gov.it/docs/xsd/fatture/v1.2"/>`:                 "FatturaPA",
		`<html><body/></html>`: "HTML",
		"PK\x03\x04rest":       "ZIP",
		"PK\x03\x04\x14\x00\x06\x00\x08\x00\x00\x00[Content_Types].xml":                    "Office document (xlsx, docx)",
		"PK\x03\x04\x14\x00\x06\x00\x08\x00\x00\x00xl/workbook.xml":                        "Excel document (xlsx)",
		"PK\x03\x04\x14\x00\x00\x00mimetypeapplication/vnd.oasis.opendocument.spreadsheet": "OpenDocument",
		"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1":                                                 "Office document before 2007 (xls, doc)",
		"\xff\xd8\xff\xe0":                                                                 "JPEG image",
		"II*\x00":                                                                          "TIFF image",
		"MM\x00*":                                                                          "TIFF image",
		"{\\rtf1":                                                                          "RTF",
		"MIME-Version: 1.0":                                                                "e-mail message",
		"number;date;total\n1;2026-01-01;12,50\n":                                          "CSV",
		"UNAME,date,total\n1,2026-01-01,12.50":                                             "CSV",
		"UNA:+.? 'UNB+UNOC:3+1+2":                                                          "EDIFACT",
		"\r\nUNB+UNOC:3+1+2":                                                               "EDIFACT",
		"\x89PNG\r\n":                                                                      "PNG image",
		"{\"invoice\": 1}":                                                                 "JSON",
	} {
		_, err := readText(text)
		f, ok := fault.As(err)
		require.True(t, ok, text)
		require.Equal(t, einvoice.CodeKindUnsupported, f.Code, text)
		require.Equal(t, kind, f.Attributes["kind"])
		require.Contains(t, f.Detail, kind)
		require.NotEmpty(t, f.Attributes["sha256"])
	}
	_, err := readText(`<Secret xmlns="urn:secret"/>`)
	require.Equal(t, einvoice.CodeRootUnsupported, fault.CodeOf(err))
	require.NotContains(t, err.Error(), "ecret")
}

func TestRead_ViolationDetails(t *testing.T) {
	t.Parallel()
	d, err := readText(invoice("124.00</cbc:TaxInclusive", "124.10</cbc:TaxInclusive", "124.00</cbc:Payable", "124.1</cbc:Payable"))
	require.Error(t, err)
	require.Equal(t, "A-1", d.Number)
	require.Equal(t, []fault.Violation{{
		Code: "ubl.rule_violated", Rule: "BR-CO-15", Severity: "error", BT: "BT-112",
		Expected: "124.00", Got: "124.10", Difference: "0.10", Currency: "EUR",
		Element: "/Invoice/cac:LegalMonetaryTotal/cbc:TaxInclusiveAmount", Line: 15,
		Detail: "There is one VAT total in the document currency, and the total with VAT (BT-112) is the total without VAT (BT-109) plus the VAT (BT-110).",
	}}, violations(err))
}

func TestRead_SmallTaxDifference(t *testing.T) {
	t.Parallel()
	d, err := readText(invoice(">24.0<", ">24.99<", `"EUR">24.00<`, `"EUR">24.99<`, "124.00", "124.99"))
	require.NoError(t, err)
	require.Len(t, d.Warnings, 1)
	require.Equal(t, "BR-CO-17", d.Warnings[0].Rule)
	require.Equal(t, "0.99", d.Warnings[0].Difference)
}

func TestRead_ToleratedForms(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"byte order mark":   "\xef\xbb\xbf" + invoice(),
		"other prefixes":    invoice("cbc", "b", "cac", "a", "<Invoice", "<u:Invoice", "</Invoice", "</u:Invoice", "xmlns=", "xmlns:u="),
		"unknown elements":  invoice("<cbc:ID>A-1", `<x:Y xmlns:x="urn:x"><cbc:ID>other</cbc:ID></x:Y><cbc:Unknown/><cac:Unknown><cbc:ID>9</cbc:ID></cac:Unknown><cbc:ID>A-1`),
		"comment in a text": invoice(">A-1<", "> A<!-- x -->-1\n<"),
		"character data":    invoice(">A-1<", "><![CDATA[A-1]]><"),
		"time zone":         invoice("2026-03-31", "2026-03-31+02:00"),
		"ISO-8859-1":        `<?xml version="1.0" encoding="ISO-8859-1"?>` + invoice("Bolts", "\xd6sen"),
		"no comma":          invoice(">24.0<", ">024<", ">100<", ">100.<"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, err := readText(text)
			require.NoError(t, err, violations(err))
			require.Equal(t, "A-1", d.Number)
			require.Equal(t, "2026-03-31", d.IssueDate.String())
			if name == "ISO-8859-1" {
				require.Equal(t, "Ösen", d.Lines[0].Description)
			}
		})
	}
}

func TestRead_Limits(t *testing.T) {
	t.Parallel()
	_, err := einvoice.Read(io.MultiReader(strings.NewReader(`<Invoice xmlns="`+einvoice.NamespaceInvoice+`">`), blanks{}))
	require.Equal(t, einvoice.CodeTooLarge, fault.CodeOf(err))
	require.Equal(t, fault.TooLarge, fault.KindOf(err))

	many := `<Invoice xmlns="` + einvoice.NamespaceInvoice + `" ` + namespaces + `>` + strings.Repeat("<cac:X/>", xmltree.MaxElements) + "<cac:X/></Invoice>"
	_, err = readText(many)
	require.Equal(t, einvoice.CodeTooLarge, fault.CodeOf(err))

	lines := strings.Repeat("<cac:InvoiceLine/>", xmltree.MaxElements/2)
	_, err = readText(invoice("<cac:InvoiceLine>", lines+"<cac:InvoiceLine>"))
	require.Equal(t, einvoice.CodeRuleViolated, fault.CodeOf(err))
	require.Len(t, violations(err), einvoice.MaxFindings)

	wrong := strings.Repeat("<cbc:XAmount>1.234</cbc:XAmount>", xmltree.MaxElements/2)
	_, err = readText(invoice("<cac:InvoiceLine>", "<cac:AllowanceCharge>"+wrong+"</cac:AllowanceCharge><cac:InvoiceLine>"))
	require.Equal(t, einvoice.CodeValueInvalid, fault.CodeOf(err)) // no indicator
	require.Len(t, violations(err), einvoice.MaxFindings)

	broken := errors.New("disk")
	_, err = einvoice.Read(io.MultiReader(strings.NewReader(invoice()[:100]), iotest.ErrReader(broken)))
	require.ErrorIs(t, err, broken)
	require.Equal(t, fault.Internal, fault.KindOf(err))
}

// A text is bounded while it arrives: before, 19 MiB cost up to a gigabyte. The test is not
// parallel, so that it measures its own memory.
func TestRead_LongTokens(t *testing.T) { //nolint:paralleltest // see above
	const size = 19 << 20
	note := func(content string) string {
		return invoice("<cbc:IssueDate>", "<cbc:Note>"+content+"</cbc:Note><cbc:IssueDate>")
	}
	for name, c := range map[string]struct{ text, element string }{
		"text":            {note(strings.Repeat("a ", size/2)), "/Invoice/cbc:Note"},
		"character data":  {note("<![CDATA[" + strings.Repeat("a", size) + "]]>"), "/Invoice/cbc:Note"},
		"pieces of text":  {note(strings.Repeat("a<!-- -->", size/9)), "/Invoice/cbc:Note"},
		"references":      {note(strings.Repeat("&#65;", size/5)), "/Invoice/cbc:Note"},
		"number":          {invoice(">100.00<", ">0."+strings.Repeat("0", size)+"<"), "/Invoice/cac:InvoiceLine/cbc:LineExtensionAmount"},
		"comment":         {note("<!--" + strings.Repeat("a", size) + "-->"), "/Invoice/cbc:Note"},
		"attributes":      {invoice("<cbc:IssueDate>", "<cbc:Note "+strings.Repeat("a='' ", size/5)+"/><cbc:IssueDate>"), "/Invoice"},
		"namespaces":      {invoice("<cbc:IssueDate>", "<cbc:Note "+strings.Repeat("xmlns:a='' ", size/11)+"/><cbc:IssueDate>"), "/Invoice"},
		"name":            {invoice("<cbc:IssueDate>", "<"+strings.Repeat("a", size)+"/><cbc:IssueDate>"), "/Invoice"},
		"before the root": {"<!--" + strings.Repeat("a", size) + "-->" + invoice(), ""},
		"ISO-8859-1":      {`<?xml version="1.0" encoding="ISO-8859-1"?>` + note(strings.Repeat("\xd6", size)), "/Invoice/cbc:Note"},
		"tag in an embedded file": {
			invoice("<cac:InvoiceLine>", "<cbc:EmbeddedDocumentBinaryObject>AAAA<x "+strings.Repeat("a='' ", size/5)+"/></cbc:EmbeddedDocumentBinaryObject><cac:InvoiceLine>"),
			"/Invoice/cbc:EmbeddedDocumentBinaryObject",
		},
	} {
		t.Run(name, func(t *testing.T) { //nolint:paralleltest // see above
			source := strings.NewReader(c.text)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := einvoice.Read(source)
			runtime.ReadMemStats(&after)
			f, ok := fault.As(err)
			require.True(t, ok)
			require.Equal(t, einvoice.CodeFieldTooLong, f.Code)
			require.Equal(t, fault.TooLarge, f.Kind)
			require.Equal(t, c.element, f.Attributes["element"])
			require.Equal(t, xmltree.MaxText, f.Attributes["limit"])
			require.Contains(t, f.Detail, c.element)
			require.Contains(t, f.Detail, "65536")
			require.NotEmpty(t, f.Attributes["sha256"])
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(8<<20))
		})
	}
}

// Embedded files and extensions may be longer than a text: the first are hashed, the second skipped.
func TestRead_LongContents(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("AAAA", 1<<20)
	for name, text := range map[string]string{
		"embedded file":                   invoice("<cac:InvoiceLine>", embedded(long)+"<cac:InvoiceLine>"),
		"embedded file as character data": invoice("<cac:InvoiceLine>", embedded("<![CDATA["+long+"]]>")+"<cac:InvoiceLine>"),
		"extension":                       invoice("<cbc:ID>A-1", `<x:Y xmlns:x="urn:x">`+long+`<x:Z><![CDATA[<z>`+long+`]]></x:Z></x:Y><cbc:ID>A-1`),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, err := readText(text)
			require.NoError(t, err, violations(err))
			if name != "extension" {
				require.EqualValues(t, 3<<20, d.Attachments[0].Size)
			}
		})
	}
}

func embedded(content string) string {
	return "<cac:AdditionalDocumentReference><cbc:ID>1</cbc:ID><cac:Attachment><cbc:EmbeddedDocumentBinaryObject mimeCode='text/csv' filename='x.csv'>" + content +
		"</cbc:EmbeddedDocumentBinaryObject></cac:Attachment></cac:AdditionalDocumentReference>"
}

// The work is proportional to the size: each amount and each subtotal compares its currency with
// the document's, which is read once, even where it comes last. Work by the square of the size would
// take longer than all other tests of the package also with a quarter of the elements.
func TestRead_ManyElements(t *testing.T) {
	t.Parallel()
	for name, group := range map[string]string{
		"lines":     "<cac:InvoiceLine><cbc:LineExtensionAmount currencyID='EUR'>1</cbc:LineExtensionAmount></cac:InvoiceLine>",
		"tax":       "<cac:TaxTotal><cbc:TaxAmount currencyID='EUR'>1</cbc:TaxAmount></cac:TaxTotal>",
		"charges":   "<cac:AllowanceCharge><cbc:Amount currencyID='USD'>1</cbc:Amount></cac:AllowanceCharge>",
		"subtotals": "<cac:TaxTotal><cac:TaxSubtotal><cbc:TaxAmount currencyID='EUR'>1</cbc:TaxAmount></cac:TaxSubtotal></cac:TaxTotal>",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			many := strings.Repeat(group, xmltree.MaxElements/4/strings.Count(group, "</"))
			_, err := readText(invoice("<cbc:IssueDate>", many+"<cbc:IssueDate>"))
			require.Equal(t, fault.Invalid, fault.KindOf(err))
		})
	}
}

// blanks never ends.
type blanks struct{}

func (blanks) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

func TestRuleTable(t *testing.T) {
	t.Parallel()
	var ids []string
	for _, r := range einvoice.Rules() {
		require.NotEmpty(t, r.Statement)
		require.NotContains(t, ids, r.ID)
		ids = append(ids, r.ID)
	}
	root, _, err := einvoice.Parse(strings.NewReader(`<CreditNote xmlns="` + einvoice.NamespaceCreditNote + `"/>`))
	require.NoError(t, err)
	var violated []string
	for _, r := range einvoice.Rules() {
		for _, v := range r.Check(root) {
			violated = append(violated, v.Rule)
		}
	}
	require.Equal(t, []string{"BR-01", "BR-02", "BR-03", "BR-04", "BR-05", "BR-06", "BR-07", "BR-08", "BR-10", "BR-12", "BR-13", "BR-14", "BR-15", "BR-16", "BR-CO-26", "BR-CO-18", "PEPPOL-EN16931-R053"}, violated)
}

func FuzzRead(f *testing.F) {
	for _, path := range slices.Concat(samples(f, ""), samples(f, "refused")) {
		f.Add(fileText(f, path))
	}
	for _, name := range []string{"01-invoice-two-rates.xml", "02-credit-note.xml"} {
		f.Add(ciiSample(f, name))
	}
	f.Add(invoice())
	f.Add(invoice("<cbc:IssueDate>", "<cbc:Note>"+strings.Repeat("a ", xmltree.MaxText)+"</cbc:Note><cbc:IssueDate>"))
	f.Add(invoice("<cac:InvoiceLine>", embedded("<![CDATA["+strings.Repeat("AAAA", xmltree.MaxText)+"]]>")+"<cac:InvoiceLine>"))
	f.Add(`<?xml version="1.0" encoding="latin1"?><Invoice xmlns="` + einvoice.NamespaceInvoice + `"/>`)
	f.Fuzz(func(t *testing.T, text string) {
		d, err := readText(text)
		if err == nil {
			requireBalancedAmounts(t, d)
			_, err = d.IntentPayload(einvoice.Submission{VendorID: "V-1"})
			require.NoError(t, err)
			_, err = d.VendorPayload(30)
			require.NoError(t, err)
			return
		}
		f, ok := fault.As(err)
		require.True(t, ok)
		require.NotEqual(t, fault.Internal, f.Kind)
	})
}

func Example() {
	d, err := einvoice.Read(strings.NewReader(invoice("124.00</cbc:Payable", "214.00</cbc:Payable")))
	fmt.Println(d.Number, err)
	for _, v := range violations(err) {
		fmt.Println(v.Rule, v.Element, "line", v.Line, "expected", v.Expected, "got", v.Got, v.Currency)
	}
	// Output:
	// A-1 ubl.rule_violated: The document breaks BR-CO-16. Ask the supplier for a corrected document; the violations say what and where.
	// BR-CO-16 /Invoice/cac:LegalMonetaryTotal/cbc:PayableAmount line 16 expected 124.00 got 214.00 EUR
}
