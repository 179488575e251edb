package einvoice

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/modules/ap/contract"
)

// notBooked are the codes of the standard that are no demand for payment, as proforma
// invoices, applications and customs papers, and the credit note that an Invoice may hold.
const notBooked = "81 130 202 203 204 211 325 456 457 751 935"

func TestBookings_CoverTheCodeLists(t *testing.T) {
	t.Parallel()
	unbooked := codes(notBooked)
	for code := range invoiceTypes {
		_, booked := bookings["Invoice"][code]
		require.NotEqual(t, booked, unbooked.contains(code), code)
	}
	for code := range creditNoteTypes {
		require.Contains(t, bookings["CreditNote"], code)
	}
	for root, known := range map[string]codeList{"Invoice": invoiceTypes, "CreditNote": creditNoteTypes} {
		for code := range bookings[root] {
			require.Truef(t, known.contains(code), "%s %s is no code of the standard", root, code)
		}
	}
}

func TestBook(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		root, code   string
		kind         contract.Kind
		documentType string
		finding      string
	}{
		{"Invoice", "380", contract.Invoice, contract.TypeStandard, ""},
		{"Invoice", "389", contract.Invoice, contract.TypeStandard, ""},
		{"Invoice", "386", contract.Invoice, contract.TypePrepayment, ""},
		{"Invoice", "384", contract.Invoice, contract.TypeStandard, CodeCorrectsAnother},
		{"Invoice", "381", contract.Invoice, contract.TypeStandard, CodeTypeUnsupported},
		{"Invoice", "81", contract.Invoice, contract.TypeStandard, CodeTypeUnsupported},
		{"Invoice", "325", contract.Invoice, contract.TypeStandard, CodeTypeUnsupported},
		{"Invoice", "999", contract.Invoice, contract.TypeStandard, CodeTypeUnsupported},
		{"CreditNote", "381", contract.CreditMemo, contract.TypeStandard, ""},
		{"CreditNote", "396", contract.CreditMemo, contract.TypeStandard, ""},
		{"CreditNote", "380", contract.CreditMemo, contract.TypeStandard, CodeTypeUnsupported},
	} {
		root, _, err := Parse(strings.NewReader(fmt.Sprintf(`<%[1]s xmlns="urn:oasis:names:specification:ubl:schema:xsd:%[1]s-2" xmlns:cbc="%[2]s">`+
			`<cbc:%[1]sTypeCode>%[3]s</cbc:%[1]sTypeCode></%[1]s>`, c.root, NamespaceBasic, c.code)))
		require.NoError(t, err)
		var check checker
		b := check.book(root)
		require.Equal(t, c.kind, b.kind, c)
		require.Equal(t, c.documentType, b.documentType, c)
		var found []fault.Violation
		if c.finding != "" {
			require.Len(t, check.findings, 1, c)
			require.Equal(t, c.finding, check.findings[0].Code, c)
			continue
		}
		require.Equal(t, found, check.findings, c)
	}
}
