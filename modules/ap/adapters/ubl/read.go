package ubl

import (
	"io"
	"slices"
	"strings"

	"github.com/erpbackbone/backbone/domain/fault"
)

// Read reads one document and checks it. Warnings are in the Document.
//
// A document that is refused gives a *fault.Error whose violations list everything
// that was found, with the attribute sha256 when the file could be read to its
// end. Its code is CodeRuleViolated if only rules of the standard are violated,
// else the code of the first finding that is none. The Document is then whatever
// could be read, at least SHA256, and only good for naming the file.
func Read(r io.Reader) (Document, error) {
	root, digest, err := Parse(r)
	if err != nil {
		if f, ok := fault.As(err); ok && digest != "" {
			err = f.With("sha256", digest)
		}
		return Document{SHA256: digest}, err
	}
	document, findings := Interpret(root)
	document.SHA256 = digest
	var refusals []fault.Violation
	for _, v := range findings {
		if v.Severity == SeverityWarning {
			document.Warnings = append(document.Warnings, v)
		} else {
			refusals = append(refusals, v)
		}
	}
	if len(refusals) > 0 {
		return document, refusal(findings, refusals).With("sha256", digest)
	}
	return document, nil
}

// Interpret checks a tree by every rule and maps it. All findings are returned,
// values that cannot be read first, then rules in the order of the table; the
// document may be booked only if none has the severity error. Of a hostile file
// with more than MaxFindings of them the first MaxFindings are returned.
func Interpret(root *Element) (Document, []fault.Violation) {
	var c checker
	currency, supported := c.checkTree(root)
	document := mapDocument(root, &c)
	if supported {
		document.dropExtraZeros(currency.MinorUnit)
	}
	findings := c.findings
	for _, rule := range rules {
		findings = append(findings, rule.Check(root)...)
	}
	if len(findings) > MaxFindings {
		// Errors first, so that warnings never hide what refuses the document.
		slices.SortStableFunc(findings, func(a, b fault.Violation) int { return strings.Compare(a.Severity, b.Severity) })
		findings = slices.Clone(findings[:MaxFindings])
	}
	return document, findings
}

// refusal makes the fault of a document that is not taken.
func refusal(findings, refusals []fault.Violation) *fault.Error {
	code := CodeRuleViolated
	var names []string
	for _, v := range refusals {
		if v.Code != CodeRuleViolated && code == CodeRuleViolated {
			code = v.Code
		}
		name := v.Rule
		if name == "" {
			name = v.Code
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return fault.New(fault.Invalid, code,
		"The document breaks %s. Ask the supplier for a corrected document; the violations say what and where.",
		strings.Join(names, ", ")).WithViolations(findings...)
}
