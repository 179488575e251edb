package einvoice_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/ap/adapters/einvoice"
)

// body is the payload as a reader of the wire sees it.
type body struct {
	InvoiceNumber     string       `json:"invoice_number"`
	VendorID          string       `json:"vendor_id"`
	VendorName        *string      `json:"vendor_name"`
	InvoiceDate       event.Date   `json:"invoice_date"`
	DueDate           *event.Date  `json:"due_date"`
	DueDateSource     string       `json:"due_date_source"`
	Currency          string       `json:"currency"`
	TotalAmount       money.Number `json:"total_amount"`
	TaxAmount         money.Number `json:"tax_amount"`
	PayableAmount     money.Number `json:"payable_amount"`
	DocumentType      string       `json:"document_type"`
	POReference       string       `json:"po_reference"`
	ExternalReference string       `json:"external_reference"`
	PrecedingInvoice  string       `json:"preceding_invoice"`
	PaymentReference  string       `json:"payment_reference"`
	PayeeBank         string       `json:"payee_bank"`
	PayeeDiffers      bool         `json:"payee_differs"`
	TaxLines          []struct {
		Category  string       `json:"category"`
		Rate      money.Number `json:"rate"`
		TaxAmount money.Number `json:"tax_amount"`
		TaxGroup  string       `json:"tax_group"`
	} `json:"tax_lines"`
	Lines []struct {
		LineNumber      int               `json:"line_number"`
		Kind            string            `json:"kind"`
		Description     string            `json:"description"`
		Quantity        *money.Number     `json:"quantity"`
		UnitPrice       *money.Number     `json:"unit_price"`
		Amount          money.Number      `json:"amount"`
		TaxGroup        string            `json:"tax_group"`
		POLineReference string            `json:"po_line_reference"`
		ItemID          string            `json:"item_id"`
		AccountingCost  string            `json:"accounting_cost"`
		Dimensions      map[string]string `json:"dimensions"`
	} `json:"lines"`
	SourceDocument struct {
		Syntax   string `json:"syntax"`
		SHA256   string `json:"sha256"`
		TypeCode string `json:"type_code"`
	} `json:"source_document"`
	Attachments []struct {
		ID          string `json:"id"`
		FileName    string `json:"filename"`
		ContentType string `json:"content_type"`
		SizeBytes   int64  `json:"size_bytes"`
	} `json:"attachments"`
}

func payload(tb testing.TB, d einvoice.Document, s einvoice.Submission) body {
	tb.Helper()
	raw, err := d.IntentPayload(s)
	require.NoError(tb, err)
	var b body
	require.NoError(tb, json.Unmarshal(raw, &b))
	require.Equal(tb, s.VendorID, b.VendorID)
	require.Len(tb, b.SourceDocument.SHA256, 64)
	return b
}
