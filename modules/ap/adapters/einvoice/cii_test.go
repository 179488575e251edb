package einvoice_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/modules/ap/adapters/einvoice"
	"github.com/erpbackbone/backbone/modules/ap/contract"
)

func ciiSample(tb testing.TB, name string) string {
	tb.Helper()
	return fileText(tb, filepath.Join(repositoryRoot(tb), "test", "samples", "cii", name))
}

// The same invoice in both syntaxes gives the same payloads, but for the file itself.
func TestReadCII_EqualsUBL(t *testing.T) {
	t.Parallel()
	cii, err := readText(ciiSample(t, "01-invoice-two-rates.xml"))
	require.NoError(t, err, violations(err))
	require.Equal(t, einvoice.SyntaxCII, cii.Syntax)
	require.Empty(t, cii.Warnings)
	ubl := sample(t, "01-invoice-two-rates.xml")
	require.Equal(t, einvoice.SyntaxUBL, ubl.Syntax)

	submission := einvoice.Submission{VendorID: "V-1"}
	want, err := ubl.IntentPayload(submission)
	require.NoError(t, err)
	got, err := cii.IntentPayload(submission)
	require.NoError(t, err)
	require.JSONEq(t, strings.NewReplacer(ubl.SHA256, cii.SHA256, einvoice.SyntaxUBL, einvoice.SyntaxCII).Replace(string(want)), string(got))

	want, err = ubl.VendorPayload(30)
	require.NoError(t, err)
	got, err = cii.VendorPayload(30)
	require.NoError(t, err)
	require.JSONEq(t, string(want), string(got))
}

// The type code makes a CII document a credit note, as there is one root for both.
func TestReadCII_CreditNote(t *testing.T) {
	t.Parallel()
	d, err := readText(ciiSample(t, "02-credit-note.xml"))
	require.NoError(t, err, violations(err))
	require.Empty(t, d.Warnings)
	require.Equal(t, contract.CreditMemo, d.Kind)
	require.Equal(t, []string{"NBA-2026-1047"}, d.PrecedingInvoices)
	require.Equal(t, "439.11", d.Totals.Gross.String())
	require.Len(t, d.Lines, 2)
	require.Equal(t, "-20.00", d.Lines[1].Amount.String())
	requireBalanced(t, d)
}

// Rules find the same faults as in UBL, at the elements of the file.
func TestReadCII_Findings(t *testing.T) {
	t.Parallel()
	text := ciiSample(t, "01-invoice-two-rates.xml")
	const settlement = "/CrossIndustryInvoice/rsm:SupplyChainTradeTransaction/ram:ApplicableHeaderTradeSettlement"
	for name, c := range map[string]struct {
		from, to, rule, element string
	}{
		"total":               {"GrandTotalAmount>2166.22<", "GrandTotalAmount>2166.23<", "BR-CO-15", settlement + "/ram:SpecifiedTradeSettlementHeaderMonetarySummation/ram:GrandTotalAmount"},
		"VAT of a category":   {">295.64<", ">297.64<", "BR-CO-17", settlement + "/ram:ApplicableTradeTax[1]/ram:CalculatedAmount"},
		"taxable amount":      {"BasisAmount>1556.00<", "BasisAmount>1556.01<", "BR-S-08", settlement + "/ram:ApplicableTradeTax[1]/ram:BasisAmount"},
		"no country":          {"<ram:CountryID>DE</ram:CountryID>", "", "BR-09", "/CrossIndustryInvoice/rsm:SupplyChainTradeTransaction/ram:ApplicableHeaderTradeAgreement/ram:SellerTradeParty/ram:PostalTradeAddress"},
		"unknown unit":        {`unitCode="C62">4`, `unitCode="PIECE">4`, "BR-CL-23", "/CrossIndustryInvoice/rsm:SupplyChainTradeTransaction/ram:IncludedSupplyChainTradeLineItem[1]/ram:SpecifiedLineTradeDelivery/ram:BilledQuantity"},
		"price of a line":     {">389.00<", ">388.00<", "PEPPOL-EN16931-R120", "/CrossIndustryInvoice/rsm:SupplyChainTradeTransaction/ram:IncludedSupplyChainTradeLineItem[1]/ram:SpecifiedLineTradeSettlement/ram:SpecifiedTradeSettlementLineMonetarySummation/ram:LineTotalAmount"},
		"proforma":            {">380<", ">325<", einvoice.CodeTypeUnsupported, "/CrossIndustryInvoice/rsm:ExchangedDocument/ram:TypeCode"},
		"date":                {">20260304<", ">04.03.2026<", einvoice.CodeValueInvalid, "/CrossIndustryInvoice/rsm:ExchangedDocument/ram:IssueDateTime/udt:DateTimeString"},
		"two totals":          {"<ram:GrandTotalAmount>", "<ram:GrandTotalAmount>1.00</ram:GrandTotalAmount><ram:GrandTotalAmount>", einvoice.CodeValueInvalid, settlement + "/ram:SpecifiedTradeSettlementHeaderMonetarySummation/ram:GrandTotalAmount[2]"},
		"two settlements":     {"</ram:ApplicableHeaderTradeSettlement>", "</ram:ApplicableHeaderTradeSettlement><ram:ApplicableHeaderTradeSettlement><ram:InvoiceCurrencyCode>EUR</ram:InvoiceCurrencyCode></ram:ApplicableHeaderTradeSettlement>", einvoice.CodeValueInvalid, "/CrossIndustryInvoice/rsm:SupplyChainTradeTransaction/ram:ApplicableHeaderTradeSettlement[2]"},
		"VAT in another coin": {`<ram:TaxTotalAmount currencyID="EUR">`, `<ram:TaxTotalAmount currencyID="USD">`, einvoice.CodeCurrencyMismatch, settlement + "/ram:SpecifiedTradeSettlementHeaderMonetarySummation/ram:TaxTotalAmount"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Contains(t, text, c.from)
			d, err := readText(strings.Replace(text, c.from, c.to, 1))
			found := append(violations(err), d.Warnings...)
			require.NotEmpty(t, found)
			for _, v := range found {
				if v.Rule == c.rule || v.Code == c.rule {
					require.Equal(t, c.element, v.Element)
					require.Positive(t, v.Line)
					return
				}
			}
			require.Failf(t, "not found", "%s in %v", c.rule, found)
		})
	}
}

// The payment reference of CII needs no payment means.
func TestReadCII_ReferenceWithoutMeans(t *testing.T) {
	t.Parallel()
	text := ciiSample(t, "01-invoice-two-rates.xml")
	before, rest, _ := strings.Cut(text, "<ram:SpecifiedTradeSettlementPaymentMeans>")
	_, after, _ := strings.Cut(rest, "</ram:SpecifiedTradeSettlementPaymentMeans>")
	d, err := readText(before + after)
	require.NoError(t, err, violations(err))
	require.Equal(t, "NBA-2026-1047", d.PaymentReference)
}

// A document without VAT total has the VAT total 0, so its sums still have to agree.
func TestReadCII_WithoutVATTotal(t *testing.T) {
	t.Parallel()
	text := strings.NewReplacer(
		`<ram:TaxTotalAmount currencyID="EUR">316.22</ram:TaxTotalAmount>`, "", ">2166.22<", ">1850.00<", ">295.64<", ">0<", ">20.58<", ">0<",
		"<ram:CategoryCode>S</ram:CategoryCode>", "<ram:CategoryCode>E</ram:CategoryCode><ram:ExemptionReason>Charity</ram:ExemptionReason>",
		">19</ram:RateApplicablePercent>", ">0</ram:RateApplicablePercent>", ">7</ram:RateApplicablePercent>", ">0</ram:RateApplicablePercent>",
	).Replace(ciiSample(t, "01-invoice-two-rates.xml"))
	d, err := readText(text)
	require.Equal(t, einvoice.CodeRuleViolated, fault.CodeOf(err)) // two breakdowns of one category
	require.Equal(t, "1850.00", d.Totals.Gross.String())
	first, last := strings.LastIndex(text, "<ram:ApplicableTradeTax>\n        <ram:CalculatedAmount>"), strings.LastIndex(text, "</ram:ApplicableTradeTax>")
	one := strings.Replace(text[:first]+text[last+len("</ram:ApplicableTradeTax>"):], "<ram:BasisAmount>1556.00<", "<ram:BasisAmount>1850.00<", 1)
	d, err = readText(one)
	require.NoError(t, err, violations(err))
	require.True(t, d.Totals.Tax.IsZero())
	requireBalanced(t, d)
}
