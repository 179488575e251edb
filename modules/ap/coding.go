package ap

import (
	"context"
	"fmt"
	"maps"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/modules/ap/contract"
	"github.com/erpbackbone/backbone/modules/ap/domain"
	gl "github.com/erpbackbone/backbone/modules/gl/contract"
)

// envelopeDimensions are the dimensions that a document's events may carry.
var envelopeDimensions = []string{gl.DimensionDepartment, "cost_center", "project"}

const dimensionCostCenter = "cost_center"

// coding is what became of a document's lines.
type coding struct {
	findings []domain.Finding
	warnings []contract.Warning
	rule     event.RuleEvaluation
}

// code gives every line its account and dimensions: its own, else those that the
// coding table has for its accounting reference, else the vendor's account, else
// the posting profile's default. An accounting reference that the table does not
// know is taken as a cost center if there is such a one, else it stays as it is,
// with a warning. The lines of d are replaced, not changed.
func code(ctx context.Context, ledger *gl.Ledger, settings *domain.Settings, vendor *domain.Vendor, books gl.Settings, d *contract.Document) (coding, error) {
	c := coding{rule: event.RuleEvaluation{RuleID: "ap.submit.coding", RuleName: "Account and dimensions of each line", Result: event.RuleFired}}
	lines := make([]contract.Line, len(d.Lines))
	for i, l := range d.Lines {
		source := "line"
		if l.AccountingCost != "" {
			entry, known := settings.Coding(l.AccountingCost)
			switch {
			case known:
				if l.Account == "" && entry.Account != "" {
					l.Account, source = entry.Account, "coding_table"
				}
				l.Dimensions = filled(l.Dimensions, entry.Dimensions)
			default:
				isCostCenter, err := ledger.DimensionValueDefined(ctx, dimensionCostCenter, l.AccountingCost)
				if err != nil {
					return coding{}, err
				}
				if isCostCenter {
					l.Dimensions = filled(l.Dimensions, map[string]string{dimensionCostCenter: l.AccountingCost})
				} else {
					c.warnings = append(c.warnings, contract.Warning{Code: "ap.coding.entry_missing", LineNumber: l.LineNumber})
				}
			}
		}
		if standard(d) && l.Account == "" {
			l.Account, source = defaultAccount(vendor, books)
		}
		if standard(d) && l.Account == "" {
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

// maxTracedLines bounds the rule trace of long documents.
const maxTracedLines = 20

// standard reports whether the lines are posted to accounts of their own.
func standard(d *contract.Document) bool {
	return d.DocumentType == "" || d.DocumentType == contract.TypeStandard
}

// defaultAccount is the account of a line that names none, and where it is from.
func defaultAccount(vendor *domain.Vendor, books gl.Settings) (account, source string) {
	if vendor.Master.DefaultAccount != "" {
		return vendor.Master.DefaultAccount, "vendor"
	}
	return books.PostingProfile[gl.RoleDefaultExpense], "posting_profile"
}

// filled adds what is missing; neither map is changed.
func filled(own, defaults map[string]string) map[string]string {
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

// headDimensions are the dimensions of a document as a whole: what all lines
// agree on, else the vendor's defaults, else the ledger's. A department there
// must be.
func headDimensions(k contract.Kind, d *contract.Document, vendor *domain.Vendor, books gl.Settings) (map[string]string, error) {
	out := map[string]string{}
	for _, name := range envelopeDimensions {
		v := agreed(d.Lines, name)
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

// agreed is the value that all lines have, "" if they differ or one lacks it.
func agreed(lines []contract.Line, dimension string) string {
	v := lines[0].Dimensions[dimension]
	for i := range lines {
		if lines[i].Dimensions[dimension] != v {
			return ""
		}
	}
	return v
}
