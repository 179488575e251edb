package domain

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/ap/contract"
)

// Finding is a reason to hold a document.
type Finding struct {
	Kind   string
	Blocks string
	Reason string
	Detail any // figures, for the event
}

// TaxFinding has the figures of a tax line that does not fit its rate.
type TaxFinding struct {
	TaxGroup   string       `json:"tax_group,omitempty"`
	Expected   money.Number `json:"expected"`
	Got        money.Number `json:"got"`
	Difference money.Number `json:"difference"`
	Currency   string       `json:"currency"`
}

// TaxFindings checks each tax line. A tax group that the ledger does not know is a finding, since
// nothing says whether its tax can be recovered or is owed by the buyer; so is tax without a
// group. Otherwise tax = taxable × rate / 100 to the currency's minor unit, within the
// tolerance; of groups with reverse charge the vendor must charge none. group tells whether the
// ledger knows a group and whether the buyer owes its tax.
func TaxFindings(d *contract.Document, c money.Currency, tolerance money.Number, group func(string) (reverseCharge, known bool)) []Finding {
	var found []Finding
	for _, name := range unknownGroups(d, group) {
		detail, reason := map[string]any{"tax_group": name}, fmt.Sprintf("the ledger has no tax group %q", name)
		if name == "" {
			detail, reason = map[string]any{}, "tax is charged without a tax group"
		}
		found = append(found, Finding{Kind: contract.HoldTaxGroupUnknown, Blocks: contract.BlocksApproval, Reason: reason, Detail: detail})
	}
	for i := range d.TaxLines {
		t := &d.TaxLines[i]
		expected := money.Number{}
		reverseCharge, _ := group(t.TaxGroup)
		switch {
		case reverseCharge:
		case t.Rate == nil || t.TaxableAmount == nil:
			continue
		default:
			expected = money.Percent(*t.TaxableAmount, *t.Rate, c)
		}
		difference := t.TaxAmount.Sub(expected)
		if difference.Abs().Cmp(tolerance) <= 0 {
			continue
		}
		found = append(found, Finding{
			Kind: contract.HoldTaxVariance, Blocks: contract.BlocksApproval,
			Reason: fmt.Sprintf("tax line %d differs from its rate by more than the tolerance", i+1),
			Detail: TaxFinding{TaxGroup: t.TaxGroup, Expected: expected, Got: t.TaxAmount, Difference: difference, Currency: d.Currency},
		})
	}
	return found
}

// unknownGroups lists the tax groups of a document that the ledger does not know, in order, each
// once. Opening items post no tax, so theirs do not matter.
func unknownGroups(d *contract.Document, group func(string) (reverseCharge, known bool)) []string {
	var unknown []string
	check := func(name string) {
		if _, known := group(name); !known && !slices.Contains(unknown, name) {
			unknown = append(unknown, name)
		}
	}
	switch {
	case d.DocumentType == contract.TypeOpening:
	case len(d.TaxLines) > 0:
		for i := range d.TaxLines {
			check(d.TaxLines[i].TaxGroup)
		}
	case value(d.TaxAmount).IsZero():
		for i := range d.Lines {
			if d.Lines[i].TaxGroup != "" {
				check(d.Lines[i].TaxGroup)
			}
		}
	default:
		if name, single := singleGroup(d.Lines); single {
			check(name)
		} else {
			check("") // nothing says which part of the tax belongs to which group
		}
	}
	return unknown
}

func singleGroup(lines []contract.Line) (string, bool) {
	for i := range lines {
		if lines[i].TaxGroup != lines[0].TaxGroup {
			return "", false
		}
	}
	return lines[0].TaxGroup, true
}

// WithholdingFindings compares withheld tax with its code's rate on the net amount, within the
// tolerance for tax. That of opening items was computed in earlier books.
func WithholdingFindings(d *contract.Document, c money.Currency, settings *Settings) []Finding {
	if d.DocumentType == contract.TypeOpening {
		return nil
	}
	var found []Finding
	for _, w := range d.Withholding {
		expected := money.Percent(Net(d), settings.WithholdingCodes[w.Code].Percent, c)
		difference := w.Amount.Sub(expected)
		if difference.Abs().Cmp(settings.TaxTolerance) <= 0 {
			continue
		}
		found = append(found, Finding{
			Kind: contract.HoldWithholding, Blocks: contract.BlocksApproval,
			Reason: "withholding " + w.Code + " differs from its rate by more than the tolerance",
			Detail: TaxFinding{TaxGroup: w.Code, Expected: expected, Got: w.Amount, Difference: difference, Currency: d.Currency},
		})
	}
	return found
}

// WarningFindings holds a document for what the reader of its file found.
func WarningFindings(d *contract.Document) []Finding {
	if d.SourceDocument == nil || len(d.SourceDocument.Warnings) == 0 {
		return nil
	}
	return []Finding{{
		Kind: contract.HoldDocumentWarning, Blocks: contract.BlocksApproval,
		Reason: "the file of the document has findings that its reader reported",
		Detail: map[string]any{"warnings": d.SourceDocument.Warnings},
	}}
}

// PayeeFindings checks the document's statements about payment: a payee other than the
// vendor, an account that is not approved, and a prepaid amount.
func PayeeFindings(d *contract.Document) []Finding {
	var found []Finding
	if d.PayeeDiffers {
		found = append(found, Finding{Kind: contract.HoldPayeeDiffers, Blocks: contract.BlocksPayment,
			Reason: "the document names another payee than the vendor"})
	}
	if d.PayeeBank == contract.PayeeBankMismatch {
		found = append(found, Finding{Kind: contract.HoldBankMismatch, Blocks: contract.BlocksPayment,
			Reason: "the document names a bank account that is not approved for the vendor"})
	}
	if value(d.PrepaidAmount).Sign() > 0 && d.DocumentType != contract.TypePrepayment {
		found = append(found, Finding{Kind: contract.HoldPrepaidUnmatched, Blocks: contract.BlocksPayment,
			Reason: "the document claims a prepaid amount that no prepayment is applied for",
			Detail: map[string]any{"prepaid_amount": *d.PrepaidAmount, "currency": d.Currency}})
	}
	return found
}

// CoveredBy reports whether an earlier hold was placed for the finding: for the same figures, or,
// of a quantity that is billed in excess, for at least that excess.
func (f Finding) CoveredBy(h Hold) bool {
	if f.Kind != h.Kind {
		return false
	}
	if coveredExcess(f, h) {
		return true
	}
	own, err := json.Marshal(f.Detail)
	return err == nil && bytes.Equal(normalJSON(own), normalJSON(h.Finding))
}

// normalJSON writes JSON with sorted members and without blanks, as nil if there is none.
func normalJSON(text []byte) []byte {
	if len(text) == 0 || string(text) == "null" {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var value any
	if decoder.Decode(&value) != nil {
		return nil
	}
	out, err := json.Marshal(value)
	if err != nil {
		return nil
	}
	return out
}
