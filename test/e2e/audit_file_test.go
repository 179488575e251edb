package e2e

import (
	"encoding/csv"
	"encoding/xml"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const companyFile = `{"registration_number": "HRB 4711", "address": {"city": "Köln", "country": "DE"}, "contact": {"first_name": "Kim", "last_name": "Beispiel", "telephone": "+49 221 1"}}`

// exportAuditFiles exports the books after the samples as SAF-T and GoBD. The sums are those of
// the trial balance, and persons are masked for an auditor without a grant.
func exportAuditFiles(t *testing.T, d *dev) {
	t.Helper()
	const person = "Mira Sandvik" // the sample of a natural person
	postings, items := requireBooksAgree(t, d, "DEMF")
	auditor, folder := d.as(t, "auditor"), t.TempDir()
	head, err := auditor.head("DEMF")
	require.NoError(t, err)
	company := filepath.Join(folder, "company.json")
	require.NoError(t, os.WriteFile(company, []byte(companyFile), 0o600))
	export := func(format, output string, more ...string) result {
		args := []string{"gl", "export", "--format", format, "--legal-entity", "DEMF", "--from", "2026-01-01", "--known-at", "seq:" + head, "-o", output}
		return auditor.command(t, append(args, more...)...)
	}

	file := filepath.Join(folder, "saft.xml")
	r := export("saf-t", file, "--company", company)
	require.Zero(t, r.code, r)
	require.Contains(t, r.stdout, "journals written")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NotContains(t, string(text), person)
	require.Contains(t, string(text), "known at sequence "+head+"<")
	var f struct {
		Suppliers   []string `xml:"MasterFiles>Suppliers>Supplier>Name"`
		TotalDebit  string   `xml:"GeneralLedgerEntries>TotalDebit"`
		TotalCredit string   `xml:"GeneralLedgerEntries>TotalCredit"`
		TaxCodes    []string `xml:"GeneralLedgerEntries>Journal>Transaction>Line>TaxInformation>TaxCode"`
	}
	require.NoError(t, xml.Unmarshal(text, &f))
	require.Equal(t, []string{postings.TotalDebit, postings.TotalCredit}, []string{f.TotalDebit, f.TotalCredit})
	require.Len(t, f.Suppliers, 5)
	require.Contains(t, f.Suppliers, "[MASKED]")
	require.NotEmpty(t, f.TaxCodes)
	if schema := filepath.Join(os.Getenv("BACKBONE_AUDIT_SCHEMAS"), "Norwegian_SAF-T_Financial_Schema_v_1.30.xsd"); len(os.Getenv("BACKBONE_AUDIT_SCHEMAS")) > 0 {
		out, err := exec.CommandContext(t.Context(), "xmllint", "--noout", "--nonet", "--schema", schema, file).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	again := filepath.Join(folder, "again.xml")
	r = export("saf-t", again, "--company", company)
	require.Zero(t, r.code, r)
	second, err := os.ReadFile(again)
	require.NoError(t, err)
	require.Equal(t, string(text), string(second))

	z3 := filepath.Join(folder, "z3")
	r = export("gobd", z3)
	require.Zero(t, r.code, r)
	rows := func(name string) [][]string {
		in, err := os.Open(filepath.Join(z3, name))
		require.NoError(t, err)
		defer func() { _ = in.Close() }()
		rows, err := csv.NewReader(in).ReadAll()
		require.NoError(t, err)
		return rows[1:]
	}
	require.Len(t, rows("open_items.csv"), items)
	require.Len(t, rows("vendors.csv"), 5)
	require.NotEmpty(t, rows("tax.csv"))
	require.NotEmpty(t, rows("documents.csv"))
	sum := rat(t, "0")
	for _, row := range rows("journal_lines.csv") {
		if row[11] == "debit" {
			sum.Add(sum, rat(t, row[14]))
		}
	}
	require.Zero(t, sum.Cmp(rat(t, postings.TotalDebit)))
	vendors, err := os.ReadFile(filepath.Join(z3, "vendors.csv"))
	require.NoError(t, err)
	require.NotContains(t, string(vendors), person)

	for want, r := range map[string]result{
		"export.folder_exists":      export("gobd", z3),
		"export.company_incomplete": export("saf-t", filepath.Join(folder, "new"), "--company", emptyObject(t)),
		"file.not_written":          export("gobd", filepath.Join(folder, "absent", "new")),
	} {
		require.Equal(t, 1, r.code, r)
		require.Contains(t, r.stderr, want)
	}
	require.Equal(t, 2, export("saf-t", filepath.Join(folder, "new")).code)
	entries, err := os.ReadDir(folder)
	require.NoError(t, err)
	for _, e := range entries {
		require.False(t, strings.HasSuffix(e.Name(), ".part"), e.Name())
	}
	require.NoFileExists(t, filepath.Join(folder, "new"))

	// Those who may read no report get no file.
	r = d.as(t, "compliance").command(t, "gl", "export", "--format", "gobd", "--legal-entity", "DEMF", "--from", "2026-01-01", "-o", filepath.Join(folder, "new"))
	require.Equal(t, 1, r.code, r)
	require.Contains(t, r.stderr, "auth.forbidden")
	require.NoDirExists(t, filepath.Join(folder, "new"))
}

func emptyObject(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "empty.json")
	require.NoError(t, os.WriteFile(name, []byte("{}"), 0o600))
	return name
}
