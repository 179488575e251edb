package einvoice

import (
	"cmp"
	"io"
	"slices"
	"strings"

	"github.com/erpbackbone/backbone/domain/fault"
)

// Read reads one document and checks it. Warnings are in the Document.
//
// A refused document returns a *fault.Error whose violations list all findings, with the
// attribute sha256 if the file could be read to its end. The code is CodeRuleViolated if
// only rules of the standard are violated, else that of the first other finding. The
// Document then has the parts that could be read and serves only to describe the file.
func Read(r io.Reader) (Document, error) {
	var p parser
	root, digest, err := p.read(r)
	if err != nil {
		if f, ok := fault.As(err); ok && digest != "" {
			err = f.With("sha256", digest)
		}
		return Document{SHA256: digest}, err
	}
	document, findings := interpret(root)
	document.SHA256 = digest
	if document.addEmbeddings(p.beside, false) {
		findings = append(findings, fault.Violation{
			Code: CodeAttachmentsLeftOut, Severity: SeverityWarning, BT: "BT-125", Detail: attachmentsLeftOut, Element: root.Path(), Line: root.Line,
		})
	}
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

// ReadAttachments reads the attachments of a file that Read accepted, in the same order, with their
// bytes. The errors are those of Read.
func ReadAttachments(r io.Reader) ([]Attachment, error) {
	p := parser{keepBytes: true}
	root, _, err := p.read(r)
	if err != nil {
		return nil, err
	}
	var d Document
	readAttachments(root, new(checker), &d)
	d.addEmbeddings(p.beside, true)
	return d.Attachments, nil
}

// interpret checks a tree by every rule and maps it. It returns at most MaxFindings
// findings: values that cannot be read, then violated rules in the order of the table. If
// it has to cut the list, errors come before warnings. The document may be booked only if
// no finding has the severity error.
func interpret(root *Element) (Document, []fault.Violation) {
	var c checker
	currency, supported := c.checkTree(root)
	document := mapDocument(root, &c)
	if supported {
		document.dropExtraZeros(currency.MinorUnit)
	}
	findings := c.findings
	for _, rule := range rules {
		if !rule.appliesTo(root) {
			continue
		}
		findings = append(findings, rule.Check(root)...)
	}
	if len(findings) > MaxFindings {
		// Errors first, so that warnings never displace the reason of a refusal.
		slices.SortStableFunc(findings, func(a, b fault.Violation) int { return strings.Compare(a.Severity, b.Severity) })
		findings = slices.Clone(findings[:MaxFindings])
	}
	return document, findings
}

// refusal makes the fault of a refused document.
func refusal(findings, refusals []fault.Violation) *fault.Error {
	code := CodeRuleViolated
	var names []string
	for _, v := range refusals {
		if v.Code != CodeRuleViolated && code == CodeRuleViolated {
			code = v.Code
		}
		if name := cmp.Or(v.Rule, v.Code); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return fault.New(fault.Invalid, code,
		"The document breaks %s. Ask the supplier for a corrected document; the violations say what and where.",
		strings.Join(names, ", ")).WithViolations(findings...)
}
