package einvoice

import (
	"fmt"
	"strings"
)

// Coverage says what becomes of a rule of the standard, or of several that are treated alike.
type Coverage struct {
	IDs       string // "BR-CO-15", or a range of ids as in "UBL-CR-001 to UBL-CR-682"
	Treatment string
	Statement string // the rule, or the reason why it is not checked
}

// Treatments of a rule.
const (
	Enforced   = "refuses"
	Reported   = "warns"
	NotChecked = "not checked"
)

// notChecked are the rules of the Schematron files of EN 16931 and of the arithmetic of
// Peppol that have no check of their own here.
var notChecked = []Coverage{
	{"BR-CO-05 to BR-CO-08", NotChecked, "A reason and its code mean the same. No program can tell; the published rules accept every document."},
	{"PEPPOL-EN16931-R045", NotChecked, "Peppol has no rule of this number today."},
	{"BR-CO-25", NotChecked, "A positive amount due has a due date or payment terms. The published rules dropped it; the terms of the vendor give the due date."},
	{"UBL-SR-46", NotChecked, "There is at most one text on the payment means. The text is not read."},
	{"UBL-DT-08 to UBL-DT-28", NotChecked, "An attribute outside the standard is not used (a warning). Such attributes are not read."},
	{"UBL-CR-001 to UBL-CR-682", NotChecked, "An element outside the standard is not used (a warning, for two of them an error). Such elements are not read."},
	{"CII-SR-001 to CII-SR-494, CII-DT-001 to CII-DT-104", NotChecked, "Elements and attributes of CII outside the standard are not used. They are not read. Repeated elements that decide amounts or identity are refused as `ubl.value_invalid`."},
}

// Coverages lists every rule of the standard with its treatment: those that are checked in
// the order of findings, then the others.
func Coverages() []Coverage {
	var out []Coverage
	for _, r := range rules {
		c := Coverage{r.ID, Enforced, r.Statement}
		if r.Severity == SeverityWarning {
			c.Treatment = Reported
		}
		out = append(out, c)
	}
	return append(out, notChecked...)
}

// CoverageTable writes the coverages as a table in Markdown.
func CoverageTable() string {
	var b strings.Builder
	b.WriteString("| Rule | A violation | Statement |\n|---|---|---|\n")
	for _, c := range Coverages() {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", c.IDs, c.Treatment, c.Statement)
	}
	return b.String()
}
