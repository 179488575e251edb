package einvoice_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/modules/ap/adapters/einvoice"
)

// A real paper is not refused for characters that are not shown or for an account number in a text:
// they are left out, and the document has a warning.
func TestRead_TextsOfPapers(t *testing.T) {
	t.Parallel()
	const line, number, reference = "Standing desk, oak, 160 x 80 cm", "<cbc:ID>NBA-2026-1047</cbc:ID>", "<cbc:PaymentID>NBA-2026-1047</cbc:PaymentID>"
	original := fileText(t, filepath.Join(repositoryRoot(t), "test", "samples", "ubl", "01-invoice-two-rates.xml"))
	read := func(old, replacement string) (einvoice.Document, []string) {
		t.Helper()
		require.Contains(t, original, old)
		d, err := readText(strings.ReplaceAll(original, old, replacement))
		require.NoError(t, err)
		var codes []string
		for _, w := range d.Warnings {
			codes = append(codes, w.Code+" "+w.BT)
		}
		return d, codes
	}
	d, codes := read(line, "Stand\u00ading desk, \u202eoak")
	require.Equal(t, "Standing desk, oak", d.Lines[0].Description)
	require.Equal(t, []string{"ubl.text_cleaned BT-153"}, codes)
	d, codes = read(number, "<cbc:ID>NBA-\u200b2026-1047\ufeff</cbc:ID>")
	require.Equal(t, "NBA-2026-1047", d.Number, "the number is what a reader sees, so that it is found again")
	require.Equal(t, []string{"ubl.text_cleaned BT-1"}, codes)
	d, codes = read(line, "Pay to DE89 3704 0044 0532 0130 00 or card 4111 1111 1111 1111")
	require.Equal(t, "Pay to [account number] or card [account number]", d.Lines[0].Description)
	require.Equal(t, []string{"ubl.account_removed BT-153"}, codes)
	d, codes = read(reference, "<cbc:PaymentID>DE89370400440532013000</cbc:PaymentID>")
	require.Empty(t, d.PaymentReference)
	require.Equal(t, []string{"ubl.account_removed BT-83"}, codes)
	d, codes = read(reference, "<cbc:PaymentID>4111111111111111</cbc:PaymentID>")
	require.Equal(t, "4111111111111111", d.PaymentReference, "references often have the check digit of a card")
	require.Empty(t, codes)
	d, codes = read("Nordlicht Bueroausstattung GmbH", "Nordlicht\u200b Bueroausstattung GmbH")
	require.Equal(t, "Nordlicht Bueroausstattung GmbH", d.Supplier.LegalName)
	require.Equal(t, "ubl.text_cleaned ", codes[0])
}
