package einvoice_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/xmltree"
	"github.com/erpbackbone/backbone/modules/ap/adapters/einvoice"
)

// attached is an embedded file of a document.
func attached(mimeCode, content string) string {
	return fmt.Sprintf(`<cac:AdditionalDocumentReference><cbc:ID>1</cbc:ID><cac:Attachment><cbc:EmbeddedDocumentBinaryObject mimeCode="%s" filename="Jane Doe.htm">%s</cbc:EmbeddedDocumentBinaryObject></cac:Attachment></cac:AdditionalDocumentReference>`,
		mimeCode, base64.StdEncoding.EncodeToString([]byte(content)))
}

// describe lists attachments with their bytes.
func describe(attachments []einvoice.Attachment) (out []string) {
	for _, a := range attachments {
		out = append(out, fmt.Sprintf("%s %s %d %s", a.FileName, a.ContentType, a.Size, a.Bytes))
	}
	return out
}

// TestReadAttachments reads the bytes of the files that Read describes. What a browser could run is
// one of unknown bytes, and no name of a file is taken over.
func TestReadAttachments(t *testing.T) {
	t.Parallel()
	text := invoice("<cac:InvoiceLine>", attached("application/pdf", "%PDF-1.7 hours")+attached("text/csv", "a;b")+
		attached("application/pdf", "%PDF-1.7 hours")+attached("text/csv", "")+"<cac:InvoiceLine>")
	d, err := readText(text)
	require.NoError(t, err, violations(err))
	require.Empty(t, d.Warnings)
	got, err := einvoice.ReadAttachments(strings.NewReader(text))
	require.NoError(t, err)
	require.Equal(t, []string{
		"attachment-1.pdf application/pdf 14 %PDF-1.7 hours", "attachment-2.csv text/csv 3 a;b", "attachment-3.pdf application/pdf 14 %PDF-1.7 hours",
	}, describe(got))
	require.Equal(t, got[0].SHA256, got[2].SHA256)
	for i := range got {
		got[i].Bytes = nil
	}
	require.Equal(t, d.Attachments, got, "files that wait take no memory")

	got, err = einvoice.ReadAttachments(strings.NewReader(invoice("<cac:InvoiceLine>", attached("Text/HTML", "<script>")+attached("text/xml", "<a/>")+"<cac:InvoiceLine>")))
	require.NoError(t, err)
	require.Equal(t, []string{"attachment-1.bin application/octet-stream 8 <script>", "attachment-2.xml application/xml 4 <a/>"}, describe(got))
}

// TestReadAttachments_TooMany leaves out attachments over the limit with one warning.
func TestReadAttachments_TooMany(t *testing.T) {
	t.Parallel()
	var all strings.Builder
	for i := range einvoice.MaxAttachments + 2 {
		all.WriteString(attached("text/csv", fmt.Sprint("row ", i)))
	}
	d, err := readText(invoice("<cac:InvoiceLine>", all.String()+"<cac:InvoiceLine>"))
	require.NoError(t, err, violations(err))
	require.Len(t, d.Attachments, einvoice.MaxAttachments)
	require.Len(t, d.Warnings, 1)
	require.Equal(t, []string{einvoice.CodeAttachmentsLeftOut, "warning", "BT-125"}, []string{d.Warnings[0].Code, d.Warnings[0].Severity, d.Warnings[0].BT})
}

// TestReadAttachments_PDF reads the files of a PDF file beside its invoice, and those in the invoice.
func TestReadAttachments_PDF(t *testing.T) { //nolint:paralleltest // the library has settings for all
	text := invoice("<cac:InvoiceLine>", attached("text/csv", "a;b")+"<cac:InvoiceLine>")
	file := hybrid(t, map[string]string{"xrechnung.xml": text, "Jane Doe hours.PDF": "%PDF-1.7 hours", "page.html": "<html>", "empty.csv": ""})
	d, err := einvoice.Read(bytes.NewReader(file))
	require.NoError(t, err, violations(err))
	require.Empty(t, d.Warnings)
	got, err := einvoice.ReadAttachments(bytes.NewReader(file))
	require.NoError(t, err)
	require.Equal(t, []string{
		"attachment-1.csv text/csv 3 a;b", "attachment-2.pdf application/pdf 14 %PDF-1.7 hours", "attachment-3.bin application/octet-stream 6 <html>",
	}, describe(got))
	for i := range got {
		got[i].Bytes = nil
	}
	require.Equal(t, d.Attachments, got)
}

// TestReadAttachments_PDFTooLarge books an invoice whose other files expand beyond the limit, without
// those.
func TestReadAttachments_PDFTooLarge(t *testing.T) { //nolint:paralleltest // see above
	file := hybrid(t, map[string]string{"xrechnung.xml": invoice(), "bomb.csv": strings.Repeat(" ", xmltree.MaxBytes+1), "note.csv": "a;b"})
	d, err := einvoice.Read(bytes.NewReader(file))
	require.NoError(t, err, violations(err))
	require.Equal(t, []string{"attachment-1.csv text/csv 3 "}, describe(d.Attachments))
	require.Len(t, d.Warnings, 1)
	require.Equal(t, einvoice.CodeAttachmentsLeftOut, d.Warnings[0].Code)
}
