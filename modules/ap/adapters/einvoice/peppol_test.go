package einvoice_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/modules/ap/adapters/einvoice"
)

// The arithmetic of Peppol is reported and never refuses a document.
func TestRead_PeppolWarnings(t *testing.T) {
	t.Parallel()
	const line = "<cac:Item><cbc:Name>Bolts"
	charge := func(inner string) string {
		return "<cac:AllowanceCharge>" + inner + "<cbc:AllowanceChargeReason>Fee</cbc:AllowanceChargeReason></cac:AllowanceCharge>" + line
	}
	zero := `<cbc:Amount currencyID="EUR">0</cbc:Amount>`
	for name, c := range map[string]struct {
		rule  string // "" for a document without finding
		edits []string
	}{
		"sound":                         {"", nil},
		"price per 100":                 {"", []string{"12.500000000000</cbc:PriceAmount>", `1250.0</cbc:PriceAmount><cbc:BaseQuantity unitCode="H87">100</cbc:BaseQuantity>`}},
		"within 0.02":                   {"", []string{"12.500000000000", "12.5025"}},
		"quantity times price":          {"R120", []string{"12.500000000000", "12.5026"}},
		"base quantity of zero":         {"R121", []string{"12.500000000000</cbc:PriceAmount>", `12.5</cbc:PriceAmount><cbc:BaseQuantity>0</cbc:BaseQuantity>`}},
		"another unit":                  {"R130", []string{"12.500000000000</cbc:PriceAmount>", `12.5</cbc:PriceAmount><cbc:BaseQuantity unitCode="KGM">1</cbc:BaseQuantity>`}},
		"percentage":                    {"R040", []string{line, charge(`<cbc:ChargeIndicator>true</cbc:ChargeIndicator><cbc:MultiplierFactorNumeric>3</cbc:MultiplierFactorNumeric>` + zero + `<cbc:BaseAmount currencyID="EUR">1</cbc:BaseAmount>`)}},
		"percentage without base":       {"R041", []string{line, charge(`<cbc:ChargeIndicator>true</cbc:ChargeIndicator><cbc:MultiplierFactorNumeric>2</cbc:MultiplierFactorNumeric>` + zero)}},
		"base without percentage":       {"R042", []string{line, charge(`<cbc:ChargeIndicator>true</cbc:ChargeIndicator>` + zero + `<cbc:BaseAmount currencyID="EUR">1</cbc:BaseAmount>`)}},
		"indicator 1":                   {"R043", []string{line, charge(`<cbc:ChargeIndicator>1</cbc:ChargeIndicator>` + zero)}},
		"charge on a price":             {"R044", []string{"12.500000000000</cbc:PriceAmount>", `12.5</cbc:PriceAmount><cac:AllowanceCharge><cbc:ChargeIndicator>true</cbc:ChargeIndicator>` + zero + `</cac:AllowanceCharge>`}},
		"gross price":                   {"R046", []string{"12.500000000000</cbc:PriceAmount>", `12.5</cbc:PriceAmount><cac:AllowanceCharge><cbc:ChargeIndicator>false</cbc:ChargeIndicator>` + zero + `<cbc:BaseAmount currencyID="EUR">13</cbc:BaseAmount></cac:AllowanceCharge>`}},
		"no total in the tax currency":  {"R054", []string{"</cbc:DocumentCurrencyCode>", "</cbc:DocumentCurrencyCode><cbc:TaxCurrencyCode>EUR</cbc:TaxCurrencyCode>"}},
		"line begins before its period": {"R110", []string{"<cac:AccountingSupplierParty>", "<cac:InvoicePeriod><cbc:StartDate>2026-03-02</cbc:StartDate></cac:InvoicePeriod><cac:AccountingSupplierParty>", line, "<cac:InvoicePeriod><cbc:StartDate>2026-03-01</cbc:StartDate></cac:InvoicePeriod>" + line}},
		"line ends after its period":    {"R111", []string{"<cac:AccountingSupplierParty>", "<cac:InvoicePeriod><cbc:EndDate>2026-03-30</cbc:EndDate></cac:InvoicePeriod><cac:AccountingSupplierParty>", line, "<cac:InvoicePeriod><cbc:EndDate>2026-03-31</cbc:EndDate></cac:InvoicePeriod>" + line}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, err := readText(invoice(c.edits...))
			require.NoError(t, err, violations(err))
			var got []string
			for _, w := range d.Warnings {
				require.Equal(t, einvoice.SeverityWarning, w.Severity)
				got = append(got, w.Rule)
			}
			if c.rule == "" {
				require.Empty(t, got)
				return
			}
			require.Equal(t, []string{"PEPPOL-EN16931-" + c.rule}, got)
		})
	}
}
