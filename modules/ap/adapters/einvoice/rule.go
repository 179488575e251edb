package einvoice

import (
	"slices"
	"strings"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
)

// Rule is one rule of EN 16931. Each can be checked alone, on a whole document or on a
// part of one. A violation refuses the document unless its severity is warning.
type Rule struct {
	ID        string // "BR-CO-15"
	BT        string // the business term that is wrong when the rule is violated
	Statement string // the rule in one sentence
	check     func(Rule, *Element) []fault.Violation
}

// Check returns the violations of this rule in document order.
func (r Rule) Check(root *Element) []fault.Violation { return r.check(r, root) }

// Rules lists every rule that is enforced.
func Rules() []Rule { return slices.Clone(rules) }

// Elements that several rules use.
const (
	tagTotals     = "cac:LegalMonetaryTotal"
	tagTaxTotal   = "cac:TaxTotal"
	tagSubtotal   = "cac:TaxSubtotal"
	tagCharge     = "cac:AllowanceCharge"
	tagLineNet    = "cbc:LineExtensionAmount"
	tagTaxAmount  = "cbc:TaxAmount"
	tagCurrency   = "cbc:DocumentCurrencyCode"
	tagExclusive  = "cbc:TaxExclusiveAmount"
	tagInclusive  = "cbc:TaxInclusiveAmount"
	tagAllowances = "cbc:AllowanceTotalAmount"
	tagCharges    = "cbc:ChargeTotalAmount"
	tagPrepaid    = "cbc:PrepaidAmount"
	tagRounding   = "cbc:PayableRoundingAmount"
	tagPayable    = "cbc:PayableAmount"
)

// amountDecimals is the number of decimals that UBL-DT-01 allows, whatever the
// currency.
const amountDecimals = 2

var rules = []Rule{
	{"BR-02", "BT-1", "An invoice has a number.", present("cbc:ID")},
	{"BR-03", "BT-2", "An invoice has an issue date.", present("cbc:IssueDate")},
	{"BR-04", "BT-3", "An invoice has a type code.", presentTypeCode},
	{"BR-05", "BT-5", "An invoice has a currency code.", present(tagCurrency)},
	{"BR-12", "BT-106", "An invoice has the sum of its line net amounts.", present(tagTotals, tagLineNet)},
	{"BR-13", "BT-109", "An invoice has a total without VAT.", present(tagTotals, tagExclusive)},
	{"BR-14", "BT-112", "An invoice has a total with VAT.", present(tagTotals, tagInclusive)},
	{"BR-15", "BT-115", "An invoice has the amount due for payment.", present(tagTotals, tagPayable)},
	{"BR-16", "BG-25", "An invoice has at least one line.", checkAnyLine},
	{"BR-21", "BT-126", "Each line has an identifier.", presentInLines("cbc:ID")},
	{"BR-24", "BT-131", "Each line has a net amount.", presentInLines(tagLineNet)},
	{"BR-CO-03", "BT-7", "A tax point date and a tax point date code exclude each other.", checkTaxPoint},
	{"BR-CO-04", "BT-151", "Each line has a VAT category.", presentInLines("cac:Item", "cac:ClassifiedTaxCategory", "cbc:ID")},
	{"BR-CO-26", "BT-29", "The seller has a VAT identifier, a registration identifier or another identifier.", checkSellerIdentified},
	{"UBL-DT-01", "", "An amount has at most two decimals.", checkDecimals},
	{"BR-CO-10", "BT-106", "The sum of line net amounts (BT-106) is the sum of the net amounts of the lines (BT-131).", checkLineSum},
	{"BR-CO-11", "BT-107", "The sum of allowances (BT-107) is the sum of the allowances of the document (BT-92).", chargeSum(false, tagAllowances)},
	{"BR-CO-12", "BT-108", "The sum of charges (BT-108) is the sum of the charges of the document (BT-99).", chargeSum(true, tagCharges)},
	{"BR-CO-13", "BT-109", "The total without VAT (BT-109) is the sum of line net amounts (BT-106) less allowances (BT-107) plus charges (BT-108).", balance(tagExclusive, tagLineNet, tagAllowances, tagCharges)},
	{"BR-CO-14", "BT-110", "The total VAT (BT-110) is the sum of the VAT amounts of the categories (BT-117).", checkTaxSum},
	{"BR-CO-15", "BT-112", "There is one VAT total in the document currency, and the total with VAT (BT-112) is the total without VAT (BT-109) plus the VAT (BT-110).", checkGrossTotal},
	{"BR-CO-16", "BT-115", "The amount due (BT-115) is the total with VAT (BT-112) less the paid amount (BT-113) plus the rounding amount (BT-114).", balance(tagPayable, tagInclusive, tagPrepaid, tagRounding)},
	{"BR-CO-17", "BT-117", "The VAT amount of a category (BT-117) is its taxable amount (BT-116) times its rate (BT-119), rounded to two decimals.", checkCategoryTax},
	{"BR-CO-18", "BG-23", "An invoice has at least one VAT breakdown.", checkAnySubtotal},
}

// lineTag is the name of a line of this document.
func lineTag(root *Element) string { return "cac:" + root.Name + "Line" }

// typeCodeTag is the name of the type code of this document.
func typeCodeTag(root *Element) string { return "cbc:" + root.Name + "TypeCode" }

// violation makes a violation at an element. Its detail is the rule's statement. Of the
// document's values only amounts are ever added.
func (r Rule) violation(at *Element) fault.Violation {
	return fault.Violation{
		Code: CodeRuleViolated, Rule: r.ID, Severity: SeverityError, BT: r.BT,
		Detail: r.Statement, Element: at.Path(), Line: at.Line,
	}
}

// missing makes the violation for an absent path of tags below an element.
func (r Rule) missing(below *Element, tags ...string) []fault.Violation {
	v := r.violation(below)
	v.Element += "/" + strings.Join(tags, "/")
	v.Detail += " It is missing here."
	return []fault.Violation{v}
}

// compare returns a violation if got differs from expected. tag is the element of the
// amount; below is the element that contains it or should.
func (r Rule) compare(currency string, below *Element, tag string, expected, got money.Number) []fault.Violation {
	if got.Equal(expected) {
		return nil
	}
	return []fault.Violation{r.differing(currency, below, tag, expected, got)}
}

func (r Rule) differing(currency string, below *Element, tag string, expected, got money.Number) fault.Violation {
	var v fault.Violation
	if at := below.find(tag); at != nil {
		v = r.violation(at)
	} else {
		v = r.violation(below)
		v.Element += "/" + tag
	}
	v.Expected = expected.Fixed(amountDecimals)
	v.Got = got.Fixed(amountDecimals)
	v.Difference = got.Sub(expected).Fixed(amountDecimals)
	if len(currency) == 3 {
		v.Currency = currency
	}
	return v
}

// present makes the check that an element exists and is not empty.
func present(tags ...string) func(Rule, *Element) []fault.Violation {
	return func(r Rule, root *Element) []fault.Violation {
		if root.text(tags...) != "" {
			return nil
		}
		return r.missing(root, tags...)
	}
}

func presentTypeCode(r Rule, root *Element) []fault.Violation {
	return present(typeCodeTag(root))(r, root)
}

// presentInLines makes the check that each line has an element that is not empty.
func presentInLines(tags ...string) func(Rule, *Element) []fault.Violation {
	return func(r Rule, root *Element) []fault.Violation {
		var out []fault.Violation
		for _, line := range root.all(lineTag(root)) {
			if line.text(tags...) == "" {
				out = append(out, r.missing(line, tags...)...)
			}
		}
		return out
	}
}

func checkAnyLine(r Rule, root *Element) []fault.Violation {
	if root.find(lineTag(root)) != nil {
		return nil
	}
	return r.missing(root, lineTag(root))
}

func checkAnySubtotal(r Rule, root *Element) []fault.Violation {
	if len(root.all(tagTaxTotal, tagSubtotal)) > 0 {
		return nil
	}
	return r.missing(root, tagTaxTotal, tagSubtotal)
}

func checkTaxPoint(r Rule, root *Element) []fault.Violation {
	date := root.find("cbc:TaxPointDate")
	code := root.text("cac:InvoicePeriod", "cbc:DescriptionCode")
	if date.value() == "" || code == "" {
		return nil
	}
	return []fault.Violation{r.violation(date)}
}

func checkSellerIdentified(r Rule, root *Element) []fault.Violation {
	s := readSupplier(root)
	if s.VATID != "" || s.RegistrationID != "" || len(s.PartyIDs) > 0 {
		return nil
	}
	return r.missing(root, "cac:AccountingSupplierParty", "cac:Party", "cac:PartyIdentification", "cbc:ID")
}
