package einvoice_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/modules/ap/adapters/einvoice"
)

// The page lists what the code does. To write it again, set BACKBONE_WRITE_DOCS=1.
func TestCoverageTable_EqualsThePage(t *testing.T) {
	t.Parallel()
	const begin, end = "<!-- rules: begin -->\n", "<!-- rules: end -->"
	path := filepath.Join(repositoryRoot(t), "docs", "en16931.md")
	page := fileText(t, path)
	head, rest, ok := strings.Cut(page, begin)
	require.True(t, ok, "%s has no %q", path, begin)
	table, tail, ok := strings.Cut(rest, end)
	require.True(t, ok, "%s has no %q", path, end)
	if os.Getenv("BACKBONE_WRITE_DOCS") != "" {
		require.NoError(t, os.WriteFile(path, []byte(head+begin+einvoice.CoverageTable()+end+tail), 0o600))
		return
	}
	require.Equal(t, einvoice.CoverageTable(), table)
}

// Every rule for which the standard publishes a fragment is in the table.
func TestCoverage_KnowsEveryLabel(t *testing.T) {
	t.Parallel()
	dir := standardData(t, "test")
	known := map[string]bool{"BR-CO-25": true} // not checked
	for _, c := range einvoice.Coverages() {
		known[c.IDs] = true
	}
	for _, folder := range []string{"Invoice-unit-UBL", "CreditNote-unit-UBL"} {
		for _, path := range xmlFiles(t, filepath.Join(dir, folder)) {
			for _, f := range fragments(t, path) {
				require.Truef(t, known[f.rule], "%s of %s", f.rule, filepath.Base(path))
			}
		}
	}
}

// Every rule of the standard's Schematron file is in the table, with the severity of its flag.
// The file is found by the variable BACKBONE_EN16931_SCHEMATRON, as it is not part of the
// test data.
func TestCoverage_KnowsTheSchematron(t *testing.T) {
	t.Parallel()
	path := os.Getenv("BACKBONE_EN16931_SCHEMATRON")
	if path == "" {
		t.Skip("BACKBONE_EN16931_SCHEMATRON does not name the Schematron file of EN 16931 for UBL")
	}
	severities := map[string]string{}
	for _, r := range einvoice.Rules() {
		severities[r.ID] = r.Severity
	}
	d := xml.NewDecoder(bytes.NewReader([]byte(fileText(t, path))))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
		assertion, ok := token.(xml.StartElement)
		if !ok || assertion.Name.Local != "assert" {
			continue
		}
		var id, flag string
		for _, a := range assertion.Attr {
			switch a.Name.Local {
			case "id":
				id = a.Value
			case "flag":
				flag = a.Value
			}
		}
		severity, checked := severities[id]
		if !checked {
			require.Truef(t, isListed(id), "%s is neither checked nor listed", id)
			continue
		}
		require.Equalf(t, map[string]string{"fatal": einvoice.SeverityError, "warning": einvoice.SeverityWarning}[flag], severity, id)
	}
}

// isListed reports whether an id is in a range of ids that are not checked.
func isListed(id string) bool {
	for _, c := range einvoice.Coverages() {
		for ids := range strings.SplitSeq(c.IDs, ", ") {
			first, last, _ := strings.Cut(ids, " to ")
			if last == "" {
				last = first
			}
			if c.Treatment == einvoice.NotChecked && len(id) == len(first) && first <= id && id <= last {
				return true
			}
		}
	}
	return false
}
