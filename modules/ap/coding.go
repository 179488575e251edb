package ap

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/modules/ap/contract"
	"github.com/erpbackbone/backbone/modules/ap/domain"
	gl "github.com/erpbackbone/backbone/modules/gl/contract"
)

// envelopeDimensions are the dimensions that the submitted event may carry as a whole.
var envelopeDimensions = []string{gl.DimensionDepartment, "cost_center", "project"}

const dimensionCostCenter = "cost_center"

// coding is the outcome of codeLines beside the lines.
type coding struct {
	findings []domain.Finding
	warnings []contract.Warning
	rule     event.RuleEvaluation
}

// codeLines gives every line its account and dimensions. The account is the line's own,
// else that of its line of the purchase order, else that of the coding table for the line's
// accounting reference, else the vendor's default, else the posting profile's. order is nil for
// a document that is not compared with one. An accounting reference that is not in the table
// becomes the cost center if a cost center has that code; otherwise codeLines warns. A
// line without an account is a finding. The slice d.Lines is replaced, its lines are not
// written to.
func codeLines(ctx context.Context, ledger *gl.Ledger, settings *domain.Settings, vendor *domain.Vendor, books gl.Settings, order *domain.PurchaseOrder, d *contract.Document) (coding, error) {
	c := coding{rule: event.RuleEvaluation{RuleID: "ap.submit.coding", RuleName: "Account and dimensions of each line", Result: event.RuleFired}}
	lines := make([]contract.Line, len(d.Lines))
	for i, l := range d.Lines {
		source := "line"
		if ordered, found := order.DocumentLine(&l); found {
			if l.Account == "" && ordered.Account != "" {
				l.Account, source = ordered.Account, "purchase_order"
			}
			l.Dimensions = withDefaults(l.Dimensions, ordered.Dimensions)
		}
		if l.AccountingCost != "" {
			entry, known := settings.Coding(l.AccountingCost)
			switch {
			case known:
				if l.Account == "" && entry.Account != "" {
					l.Account, source = entry.Account, "coding_table"
				}
				l.Dimensions = withDefaults(l.Dimensions, entry.Dimensions)
			default:
				isCostCenter, err := ledger.DimensionValueDefined(ctx, dimensionCostCenter, l.AccountingCost)
				if err != nil {
					return coding{}, err
				}
				if isCostCenter {
					l.Dimensions = withDefaults(l.Dimensions, map[string]string{dimensionCostCenter: l.AccountingCost})
				} else {
					c.warnings = append(c.warnings, contract.Warning{Code: "ap.coding.entry_missing", LineNumber: l.LineNumber})
				}
			}
		}
		if isStandard(d) && l.Account == "" {
			l.Account, source = defaultAccount(vendor, books)
		}
		if isStandard(d) && l.Account == "" {
			c.findings = append(c.findings, domain.Finding{
				Kind: contract.HoldCodingMissing, Blocks: contract.BlocksApproval,
				Reason: fmt.Sprintf("line %d has no account, and neither the vendor nor the posting profile has one for it", l.LineNumber),
				Detail: map[string]any{"line_number": l.LineNumber},
			})
			source = "none"
		}
		c.rule.ActionsTaken = append(c.rule.ActionsTaken, fmt.Sprintf("line %d: %s", l.LineNumber, source))
		lines[i] = l
	}
	if len(c.rule.ActionsTaken) > maxTracedLines {
		c.rule.ActionsTaken = append(c.rule.ActionsTaken[:maxTracedLines], "and so on")
	}
	d.Lines = lines
	return c, nil
}

// codingFindings finds what is wrong with the accounts and dimensions of lines, so that the
// clerk meets it and not the approver. head are the dimensions of the document as a whole.
func codingFindings(ctx context.Context, ledger *gl.Ledger, d *contract.Document, head map[string]string, date event.Date) ([]domain.Finding, error) {
	var found []domain.Finding
	if !isStandard(d) {
		return nil, nil
	}
	for i := range d.Lines {
		l := &d.Lines[i]
		if l.Account == "" || l.Amount.IsZero() {
			continue
		}
		err := ledger.CheckLine(ctx, l.Account, d.Currency, withDefaults(l.Dimensions, head), date)
		if err == nil {
			continue
		}
		f, ok := fault.As(err)
		if !ok || !strings.HasPrefix(f.Code, "gl.account.") {
			return nil, err
		}
		found = append(found, domain.Finding{
			Kind: contract.HoldCodingInvalid, Blocks: contract.BlocksApproval,
			Reason: fmt.Sprintf("line %d cannot be posted: %s", l.LineNumber, f.Detail),
			Detail: map[string]any{"line_number": l.LineNumber, "account": l.Account, "code": f.Code},
		})
		if len(found) == maxCodingFindings {
			break
		}
	}
	return found, nil
}

// maxCodingFindings bounds the holds for lines that cannot be posted. Those after it are found
// when the document is checked again.
const maxCodingFindings = 20

// maxTracedLines bounds the rule trace of long documents.
const maxTracedLines = 20

// isStandard reports whether each line is posted to its own account. Prepayments and
// opening items are posted to one account of the posting profile.
func isStandard(d *contract.Document) bool {
	return d.DocumentType == "" || d.DocumentType == contract.TypeStandard
}

// defaultAccount returns the account of a line that names none, and its source for the
// rule trace.
func defaultAccount(vendor *domain.Vendor, books gl.Settings) (account, source string) {
	if vendor.Master.DefaultAccount != "" {
		return vendor.Master.DefaultAccount, "vendor"
	}
	return books.PostingProfile[gl.RoleDefaultExpense], "posting_profile"
}

// withDefaults adds the defaults that own lacks. It changes neither map.
func withDefaults(own, defaults map[string]string) map[string]string {
	out, copied := own, false
	for name, v := range defaults {
		if own[name] != "" || v == "" {
			continue
		}
		if !copied {
			out, copied = make(map[string]string, len(own)+len(defaults)), true
			maps.Copy(out, own)
		}
		out[name] = v
	}
	return out
}

// headDimensions returns the dimensions of the document as a whole: the value that all
// lines have, else the vendor's default, else the ledger's. It refuses a document without
// a department, as every journal line needs one.
func headDimensions(k contract.Kind, d *contract.Document, vendor *domain.Vendor, books gl.Settings) (map[string]string, error) {
	out := map[string]string{}
	for _, name := range envelopeDimensions {
		v := commonDimension(d.Lines, name)
		if v == "" {
			v = vendor.Master.DefaultDimensions[name]
		}
		if v == "" {
			v = books.DefaultDimensions[name]
		}
		if v != "" {
			out[name] = v
		}
	}
	if out[gl.DimensionDepartment] == "" {
		return nil, fault.New(fault.FailedPrecondition, k.Code("dimension_missing"),
			"the lines agree on no department, and neither the vendor nor the ledger has a default; add lines[].dimensions.department").
			WithField("/lines").With("dimension", gl.DimensionDepartment)
	}
	return out, nil
}

// commonDimension returns the value that all lines have, "" if they differ.
func commonDimension(lines []contract.Line, dimension string) string {
	v := lines[0].Dimensions[dimension]
	for i := range lines {
		if lines[i].Dimensions[dimension] != v {
			return ""
		}
	}
	return v
}
