package e2e

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/test/testkit"
)

type keptPaper struct {
	ID       string `json:"id"`
	Subject  string `json:"subject"`
	FileName string `json:"file_name"`
	EventID  string `json:"event_id"`
}

// TestPapers keeps papers of a sole trader and erases the trader.
func TestPapers(t *testing.T) {
	t.Parallel()
	d := startOn(t, copyOfBooks(t), recoveryStart)
	clerk, auditor := d.as(t, "ap_clerk"), d.as(t, "auditor")
	officer, approver := d.as(t, "compliance"), d.as(t, "compliance_approver")
	const entity, subject, file = "DEMF", "vendor:V-SOLE", "<Invoice>Mira Sandvik, Birkenweg 9</Invoice>"
	path := func(subject, retention string) string {
		return "/api/papers?" + url.Values{"legal_entity": {entity}, "subject": {subject}, "retention": {retention}}.Encode()
	}
	keep := func(status int, subject, retention, file string) (p keptPaper) {
		t.Helper()
		require.NoError(t, clerk.want(status, &p, "POST", path(subject, retention), file, "Content-Type", "text/xml; charset=utf-8"))
		return p
	}

	first := keep(http.StatusCreated, subject, "pii_subject", file)
	require.Equal(t, first, keep(http.StatusOK, subject, "pii_subject", file), "the same bytes are kept once")
	retained := keep(http.StatusCreated, subject, "regulatory", file)
	other := keep(http.StatusCreated, "vendor:V-FIRM", "pii_subject", file)
	require.NotEqual(t, first.ID, retained.ID)
	require.NotEqual(t, first.ID, other.ID)

	// Who may: persons of the business and services keep; those who read the class download.
	for _, persona := range []string{"auditor", "compliance", "compliance_approver", "admin", "operator"} {
		expect(t, http.StatusForbidden, "", must(d.as(t, persona).do("POST", path(subject, "regulatory"), file, "Content-Type", "application/xml")))
	}
	for _, persona := range []string{"module", "importer", "compliance", "admin", "operator"} {
		expect(t, http.StatusForbidden, "", must(d.as(t, persona).do("GET", "/api/papers/"+first.ID, "")))
	}
	for _, persona := range []string{"auditor", "gl_accountant"} { // they may see that there is one
		expect(t, http.StatusForbidden, "paper.forbidden", must(d.as(t, persona).do("GET", "/api/papers/"+first.ID, "")))
	}
	for code, refused := range map[string]func() (answer, error){
		"paper.media_type_unsupported": func() (answer, error) {
			return clerk.do("POST", path(subject, "regulatory"), "<script>", "Content-Type", "text/html")
		},
		"pii.subject_invalid": func() (answer, error) {
			return clerk.do("POST", path("Mira Sandvik", "regulatory"), file, "Content-Type", "text/xml")
		},
		"request.parameter_invalid": func() (answer, error) {
			return clerk.do("POST", path(subject, "standard"), file, "Content-Type", "text/xml")
		},
		"paper.empty": func() (answer, error) {
			return clerk.do("POST", path(subject, "regulatory"), "", "Content-Type", "text/xml")
		},
		"paper.not_found": func() (answer, error) { return clerk.do("GET", "/api/papers/01JQ8E6Z6G3V5T8C9N2M4K7R1P", "") },
		"http.body_too_large": func() (answer, error) {
			return clerk.do("POST", path(subject, "regulatory"), strings.Repeat("x", 20<<20+1), "Content-Type", "application/pdf")
		},
	} {
		a := must(refused())
		require.Equal(t, code, a.code(), a)
	}

	download := must(clerk.do("GET", "/api/papers/"+first.ID+"?legal_entity="+entity, ""))
	require.Equal(t, http.StatusOK, download.status, download)
	require.Equal(t, file, string(download.body))
	require.Equal(t, "application/xml", download.header.Get("Content-Type"))
	require.Equal(t, `attachment; filename="`+first.FileName+`"`, download.header.Get("Content-Disposition"))
	require.Equal(t, "nosniff", download.header.Get("X-Content-Type-Options"))
	require.Contains(t, download.header.Get("Content-Security-Policy"), "sandbox")
	require.Equal(t, "no-store", download.header.Get("Cache-Control"))
	require.NotContains(t, first.FileName, "Mira")
	accesses := must(auditor.do("GET", "/api/access-log?subject="+url.QueryEscape(subject), ""))
	require.Contains(t, string(accesses.body), "getPaper")

	done := eraseSubject(t, officer, approver, subject, entity)
	require.Equal(t, []string{entity}, done.LegalEntities)
	for _, persona := range []string{"ap_clerk", "auditor", "gl_accountant"} {
		expect(t, http.StatusGone, "paper.erased", must(d.as(t, persona).do("GET", "/api/papers/"+first.ID, "")))
	}
	expect(t, http.StatusGone, "pii.subject_erased", must(clerk.do("POST", path(subject, "pii_subject"), file, "Content-Type", "text/xml")))
	expect(t, http.StatusGone, "pii.subject_erased", must(clerk.do("POST", path(subject, "pii_subject"), "another", "Content-Type", "text/xml")))
	for _, p := range []keptPaper{retained, other} { // the law keeps the one for ten years, and the other is about a firm
		require.Equal(t, file, string(must(clerk.do("GET", "/api/papers/"+p.ID, "")).body))
	}

	attachmentsOfSoleTrader(t, d)
	require.Zero(t, command(t, nil, "verify", "--data-dir", d.dataDir).code)
}

// attachmentsOfSoleTrader imports an invoice with a time sheet of a sole trader. The erasure of the trader
// reaches both papers alike, and the law keeps both.
func attachmentsOfSoleTrader(t *testing.T, d *dev) {
	t.Helper()
	const entity, hours = "DEMF", "day;hours\n2026-03-23;8\n"
	text, err := os.ReadFile(filepath.Join(testkit.RepoRoot(t), "test", "samples", "ubl", "05-invoice-natural-person.xml"))
	require.NoError(t, err)
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "a.xml"), []byte(strings.NewReplacer(
		"<cbc:ID>MS-19</cbc:ID>", "<cbc:ID>MS-20</cbc:ID>", "7350000000014", "7350000000021",
		"<cac:AccountingSupplierParty>", `<cac:AdditionalDocumentReference><cbc:ID>1</cbc:ID><cac:Attachment><cbc:EmbeddedDocumentBinaryObject mimeCode="text/csv" filename="Mira.csv">`+
			base64.StdEncoding.EncodeToString([]byte(hours))+`</cbc:EmbeddedDocumentBinaryObject></cac:Attachment></cac:AdditionalDocumentReference><cac:AccountingSupplierParty>`,
	).Replace(string(text))), 0o600))
	var report struct {
		Files []struct {
			DocumentID  string   `json:"document_id"`
			VendorID    string   `json:"vendor_id"`
			Paper       string   `json:"paper"`
			Attachments []string `json:"attachments"`
		} `json:"files"`
	}
	require.NoError(t, json.Unmarshal([]byte(d.as(t, "importer").succeed(t, "ap", "import", "--json", "--legal-entity", entity, folder)), &report))
	file := report.Files[0]
	require.Len(t, file.Attachments, 1)

	clerk, saved := d.as(t, "ap_clerk"), filepath.Join(folder, "hours.csv")
	require.Contains(t, clerk.succeed(t, "ap", "paper", "--legal-entity", entity, file.DocumentID, "--attachment", "1", "-o", saved), "text/csv")
	written, err := os.ReadFile(saved)
	require.NoError(t, err)
	require.Equal(t, hours, string(written))
	var document struct {
		Document struct {
			SellerMatch string           `json:"seller_match"`
			Attachments []map[string]any `json:"attachments"`
		} `json:"document"`
	}
	require.NoError(t, clerk.want(http.StatusOK, &document, "GET", "/api/ap/invoices/"+file.DocumentID+"?legal_entity="+entity, ""))
	require.Equal(t, []map[string]any{{"filename": "attachment-1.csv", "content_type": "text/csv", "size_bytes": json.Number(strconv.Itoa(len(hours))), "paper": file.Attachments[0]}}, document.Document.Attachments)
	require.Equal(t, "name", document.Document.SellerMatch, "the vendor was registered from the same paper")

	done := eraseSubject(t, d.as(t, "compliance"), d.as(t, "compliance_approver"), "vendor:"+file.VendorID, entity)
	papers := int64(0)
	for _, p := range done.Preview.Types {
		if p.Type == "backbone.paper.retained" {
			papers = p.Events
		}
	}
	require.EqualValues(t, 2, papers, "the invoice and its attachment: %+v", done.Preview.Types)
	for _, id := range []string{file.Paper, file.Attachments[0]} {
		require.Equal(t, http.StatusOK, must(clerk.do("GET", "/api/papers/"+id, "")).status)
	}
}
