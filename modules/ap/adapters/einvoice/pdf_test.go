package einvoice_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/pdfcpu/pdfcpu/pkg/api"
	"github.com/pdfcpu/pdfcpu/pkg/pdfcpu/model"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/xmltree"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/modules/ap/adapters/einvoice"
)

// page is a PDF file of one empty page.
func page() []byte {
	var b bytes.Buffer
	b.WriteString("%PDF-1.7\n")
	var offsets []int
	for i, object := range []string{
		"<</Type/Catalog/Pages 2 0 R>>", "<</Type/Pages/Kids[3 0 R]/Count 1>>", "<</Type/Page/Parent 2 0 R/MediaBox[0 0 595 842]/Resources<<>>>>",
	} {
		offsets = append(offsets, b.Len())
		fmt.Fprintf(&b, "%d 0 obj\n%s\nendobj\n", i+1, object)
	}
	start := b.Len()
	b.WriteString("xref\n0 4\n0000000000 65535 f \n")
	for _, o := range offsets {
		fmt.Fprintf(&b, "%010d 00000 n \n", o)
	}
	fmt.Fprintf(&b, "trailer\n<</Size 4/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF\n", start)
	return b.Bytes()
}

// hybrid is a PDF file with embedded files, by name.
func hybrid(tb testing.TB, files map[string]string) []byte {
	tb.Helper()
	api.DisableConfigDir()
	file := page()
	for name, content := range files {
		settings := model.NewDefaultConfiguration()
		settings.Cmd = model.ADDATTACHMENTS
		document, err := api.ReadValidateAndOptimize(bytes.NewReader(file), settings)
		require.NoError(tb, err)
		require.NoError(tb, document.AddAttachment(model.Attachment{Reader: strings.NewReader(content), ID: name, FileName: name}, false))
		var out bytes.Buffer
		require.NoError(tb, api.WriteContext(document, &out))
		file = out.Bytes()
	}
	return file
}

// The tests of PDF files share the settings of the library, so they do not run in parallel.
func TestReadPDF(t *testing.T) { //nolint:paralleltest // see above
	cii := ciiSample(t, "01-invoice-two-rates.xml")
	want, err := readText(cii)
	require.NoError(t, err)
	for name, files := range map[string]map[string]string{
		"Factur-X":             {"factur-x.xml": cii, "timesheet.csv": "a;b"},
		"XRechnung":            {"xrechnung.xml": cii, "other.xml": "<other/>"},
		"any name":             {"invoice-4711.XML": cii},
		"UBL":                  {"xrechnung.xml": invoice()},
		"with byte order mark": {"factur-x.xml": "\xef\xbb\xbf" + cii},
	} {
		t.Run(name, func(t *testing.T) { //nolint:paralleltest // see above
			file := hybrid(t, files)
			d, err := einvoice.Read(bytes.NewReader(file))
			require.NoError(t, err, violations(err))
			require.Len(t, d.SHA256, 64)
			require.NotEqual(t, want.SHA256, d.SHA256, "the digest is that of the whole file")
			if name != "UBL" {
				require.Equal(t, want.Number, d.Number)
				require.Equal(t, want.Lines, d.Lines)
				require.Equal(t, einvoice.SyntaxCII, d.Syntax)
			}
		})
	}
}

func TestReadPDF_Refusals(t *testing.T) { //nolint:paralleltest // see above
	cii := ciiSample(t, "01-invoice-two-rates.xml")
	for name, c := range map[string]struct {
		file []byte
		code string
		kind any
	}{
		"no embedded file":       {page(), einvoice.CodeKindUnsupported, "PDF without an embedded invoice"},
		"no embedded invoice":    {hybrid(t, map[string]string{"a.csv": "a"}), einvoice.CodeKindUnsupported, "PDF without an embedded invoice"},
		"two embedded documents": {hybrid(t, map[string]string{"a.xml": cii, "b.xml": cii}), einvoice.CodePDFAmbiguous, nil},
		"PDF in a PDF":           {hybrid(t, map[string]string{"factur-x.xml": string(page())}), einvoice.CodeKindUnsupported, "PDF in a PDF"},
		"order":                  {hybrid(t, map[string]string{"factur-x.xml": `<Order xmlns="urn:oasis:names:specification:ubl:schema:xsd:Order-2"/>`}), einvoice.CodeKindUnsupported, "UBL Order"},
		"damaged":                {page()[:40], einvoice.CodePDFUnreadable, nil},
		"only a header":          {[]byte("%PDF-1.7"), einvoice.CodePDFUnreadable, nil},
		"no XML":                 {hybrid(t, map[string]string{"factur-x.xml": "text"}), einvoice.CodeXMLMalformed, nil},
		"embedded file expands beyond the limit": {
			hybrid(t, map[string]string{"factur-x.xml": strings.Repeat(" ", xmltree.MaxBytes+1)}), einvoice.CodePDFUnreadable, nil,
		},
		"too large": {append([]byte("%PDF-1.7\n"), bytes.Repeat([]byte(" "), xmltree.MaxBytes)...), einvoice.CodeTooLarge, nil},
	} {
		t.Run(name, func(t *testing.T) { //nolint:paralleltest // see above
			_, err := einvoice.Read(bytes.NewReader(c.file))
			f, ok := fault.As(err)
			require.True(t, ok, "%v", err)
			require.Equal(t, c.code, f.Code, "%v %v", f, f.Unwrap())
			require.Equal(t, c.kind, f.Attributes["kind"])
		})
	}
}

// Rules refuse the invoice in a PDF file like any other.
func TestReadPDF_Rules(t *testing.T) { //nolint:paralleltest // see above
	_, err := einvoice.Read(bytes.NewReader(hybrid(t, map[string]string{
		"factur-x.xml": strings.Replace(ciiSample(t, "01-invoice-two-rates.xml"), "GrandTotalAmount>2166.22<", "GrandTotalAmount>2166.23<", 1),
	})))
	require.Equal(t, einvoice.CodeRuleViolated, fault.CodeOf(err))
	require.Equal(t, "BR-CO-15", violations(err)[0].Rule)
}
