package einvoice

import (
	"strings"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
)

// The functions below check sums. They skip a sum with an amount that is no number, which
// checkTree reports. An absent total counts as 0 where the standard makes it optional; an
// absent required total violates only the rule of its presence.

var (
	one     = money.FromInt(1)
	percent = money.MustNumber("0.01")
)

// isAmount reports whether an element holds a monetary amount that can be booked. Unit
// prices and allowances on them cannot: they may have more decimals.
func isAmount(e *Element) bool {
	if e.Space != NamespaceBasic || !strings.HasSuffix(e.Name, "Amount") || e.Name == "PriceAmount" {
		return false
	}
	charge := e.Parent
	return charge == nil || charge.Tag != tagCharge || charge.Parent == nil || charge.Parent.Tag != "cac:Price"
}

var calculationRules = []Rule{
	required("BR-CO-10", "BT-106", "The sum of line net amounts (BT-106) is the sum of the net amounts of the lines (BT-131).", checkLineSum),
	required("BR-CO-11", "BT-107", "The sum of allowances (BT-107) is the sum of the allowances of the document (BT-92).", chargeSum(false, tagAllowances)),
	required("BR-CO-12", "BT-108", "The sum of charges (BT-108) is the sum of the charges of the document (BT-99).", chargeSum(true, tagCharges)),
	required("BR-CO-13", "BT-109", "The total without VAT (BT-109) is the sum of line net amounts (BT-106) less allowances (BT-107) plus charges (BT-108).", balance(tagExclusive, tagLineNet, tagAllowances, tagCharges)),
	required("BR-CO-14", "BT-110", "The total VAT (BT-110) is the sum of the VAT amounts of the categories (BT-117).", checkTaxSum),
	required("BR-CO-15", "BT-112", "There is one VAT total in the document currency, and the total with VAT (BT-112) is the total without VAT (BT-109) plus the VAT (BT-110).", checkGrossTotal),
	required("BR-CO-16", "BT-115", "The amount due (BT-115) is the total with VAT (BT-112) less the paid amount (BT-113) plus the rounding amount (BT-114).", balance(tagPayable, tagInclusive, tagPrepaid, tagRounding)),
	required("BR-CO-17", "BT-117", "The VAT amount of a category (BT-117) is its taxable amount (BT-116) times its rate (BT-119), rounded to two decimals.", checkCategoryTax),
	required("BR-CO-18", "BG-23", "An invoice has at least one VAT breakdown.", eachHas(document, tagTaxTotal, tagSubtotal)),
}

// decimalRules limit the decimals of single amounts; UBL-DT-01 limits those of every amount.
var decimalRules = []Rule{
	required("BR-DEC-01", "BT-92", "The amount of an allowance of the document has at most two decimals.", each(documentAllowances.below("cbc:Amount"), hasTwoDecimals)),
	required("BR-DEC-02", "BT-93", "The base amount of an allowance of the document has at most two decimals.", each(documentAllowances.below("cbc:BaseAmount"), hasTwoDecimals)),
	required("BR-DEC-05", "BT-99", "The amount of a charge of the document has at most two decimals.", each(documentCharges.below("cbc:Amount"), hasTwoDecimals)),
	required("BR-DEC-06", "BT-100", "The base amount of a charge of the document has at most two decimals.", each(documentCharges.below("cbc:BaseAmount"), hasTwoDecimals)),
	required("BR-DEC-09", "BT-106", "The sum of line net amounts has at most two decimals.", each(at(tagTotals, tagLineNet), hasTwoDecimals)),
	required("BR-DEC-10", "BT-107", "The sum of allowances has at most two decimals.", each(at(tagTotals, tagAllowances), hasTwoDecimals)),
	required("BR-DEC-11", "BT-108", "The sum of charges has at most two decimals.", each(at(tagTotals, tagCharges), hasTwoDecimals)),
	required("BR-DEC-12", "BT-109", "The total without VAT has at most two decimals.", each(at(tagTotals, tagExclusive), hasTwoDecimals)),
	required("BR-DEC-13", "BT-110", "The VAT total has at most two decimals.", each(taxTotalsIn(tagCurrency), hasTwoDecimals)),
	required("BR-DEC-14", "BT-112", "The total with VAT has at most two decimals.", each(at(tagTotals, tagInclusive), hasTwoDecimals)),
	required("BR-DEC-15", "BT-111", "The VAT total in the tax currency has at most two decimals.", each(taxTotalsIn("cbc:TaxCurrencyCode"), hasTwoDecimals)),
	required("BR-DEC-16", "BT-113", "The paid amount has at most two decimals.", each(at(tagTotals, tagPrepaid), hasTwoDecimals)),
	required("BR-DEC-17", "BT-114", "The rounding amount has at most two decimals.", each(at(tagTotals, tagRounding), hasTwoDecimals)),
	required("BR-DEC-18", "BT-115", "The amount due has at most two decimals.", each(at(tagTotals, tagPayable), hasTwoDecimals)),
	required("BR-DEC-19", "BT-116", "The taxable amount of a VAT breakdown has at most two decimals.", each(subtotals.below("cbc:TaxableAmount"), hasTwoDecimals)),
	required("BR-DEC-20", "BT-117", "The VAT amount of a VAT breakdown has at most two decimals.", each(subtotals.below(tagTaxAmount), hasTwoDecimals)),
	required("BR-DEC-23", "BT-131", "The net amount of a line has at most two decimals.", each(inLines(tagLineNet), hasTwoDecimals)),
	required("BR-DEC-24", "BT-136", "The amount of an allowance of a line has at most two decimals.", each(lineAllowances.below("cbc:Amount"), hasTwoDecimals)),
	required("BR-DEC-25", "BT-137", "The base amount of an allowance of a line has at most two decimals.", each(lineAllowances.below("cbc:BaseAmount"), hasTwoDecimals)),
	required("BR-DEC-27", "BT-141", "The amount of a charge of a line has at most two decimals.", each(lineCharges.below("cbc:Amount"), hasTwoDecimals)),
	required("BR-DEC-28", "BT-142", "The base amount of a charge of a line has at most two decimals.", each(lineCharges.below("cbc:BaseAmount"), hasTwoDecimals)),
}

// hasTwoDecimals reports whether an amount has at most two decimals. Mapping refuses a text
// that is no number.
func hasTwoDecimals(e *Element) bool {
	_, ok := parseDecimal(e.Text)
	return !ok || decimals(e.Text) <= amountDecimals
}

// taxTotalsIn selects the VAT totals in the currency that an element of the document names.
func taxTotalsIn(tag string) scope {
	return func(root *Element) []*Element {
		var out []*Element
		for _, t := range taxTotals(root, root.Value(tag)) {
			out = append(out, t.All(tagTaxAmount)...)
		}
		return out
	}
}

func checkDecimals(r Rule, root *Element) []fault.Violation {
	var out []fault.Violation
	root.Walk(func(e *Element) {
		if len(out) > MaxFindings || !isAmount(e) || decimals(e.Text) <= amountDecimals {
			return
		}
		n, ok := parseDecimal(e.Text)
		if !ok {
			return
		}
		v := r.violation(e)
		v.BT, v.Got, v.Currency = termOf(e), n.String(), currencyOf(e)
		out = append(out, v)
	})
	return out
}

// currencyOf returns the currency attribute of an amount, "" if it cannot be a code.
func currencyOf(e *Element) string {
	if code := e.Attribute("currencyID"); len(code) == 3 {
		return code
	}
	return ""
}

// numbers reads several elements; ok is false if one is no number.
func numbers(elements ...*Element) (out []money.Number, ok bool) {
	for _, e := range elements {
		n, ok := number(e)
		if !ok {
			return nil, false
		}
		out = append(out, n)
	}
	return out, true
}

func checkLineSum(r Rule, root *Element) []fault.Violation {
	total := root.Find(tagTotals, tagLineNet)
	if total.Value() == "" {
		return nil
	}
	parts, ok := numbers(root.All(lineTag(root), tagLineNet)...)
	got, valid := number(total)
	if !ok || !valid {
		return nil
	}
	return r.compare(root.Value(tagCurrency), total.Parent, tagLineNet, money.Sum(parts...), got)
}

// chargeSum makes the check that a total is the sum of the document's charges, or of its
// allowances.
func chargeSum(charges bool, tag string) check {
	return func(r Rule, root *Element) []fault.Violation {
		totals := root.Find(tagTotals)
		if totals == nil {
			return nil
		}
		var elements []*Element
		for _, e := range root.All(tagCharge) {
			if charges && isCharge(e) || !charges && isAllowance(e) {
				elements = append(elements, e.Find("cbc:Amount"))
			}
		}
		parts, ok := numbers(elements...)
		got, valid := number(totals.Find(tag))
		if !ok || !valid {
			return nil
		}
		return r.compare(root.Value(tagCurrency), totals, tag, money.Sum(parts...), got)
	}
}

// balance makes the check that a total is base - less + plus. Without total or base nothing
// is checked.
func balance(total, base, less, plus string) check {
	return func(r Rule, root *Element) []fault.Violation {
		t := root.Find(tagTotals)
		n, ok := numbers(t.Find(total), t.Find(base), t.Find(less), t.Find(plus))
		if !ok || t.Value(total) == "" || t.Value(base) == "" {
			return nil
		}
		return r.compare(root.Value(tagCurrency), t, total, n[1].Sub(n[2]).Add(n[3]), n[0])
	}
}

func checkTaxSum(r Rule, root *Element) []fault.Violation {
	var out []fault.Violation
	currency := root.Value(tagCurrency)
	for _, t := range root.All(tagTaxTotal) {
		if t.Find(tagSubtotal) == nil {
			continue
		}
		parts, ok := numbers(t.All(tagSubtotal, tagTaxAmount)...)
		got, valid := number(t.Find(tagTaxAmount))
		if ok && valid {
			out = append(out, r.compare(currency, t, tagTaxAmount, money.Sum(parts...), got)...)
		}
	}
	return out
}

// taxTotals returns the VAT totals in the given currency.
func taxTotals(root *Element, currency string) []*Element {
	var out []*Element
	for _, t := range root.All(tagTaxTotal) {
		if a := t.Find(tagTaxAmount); a != nil && a.Attribute("currencyID") == currency {
			out = append(out, t)
		}
	}
	return out
}

func checkGrossTotal(r Rule, root *Element) []fault.Violation {
	currency := root.Value(tagCurrency)
	if currency == "" {
		return nil
	}
	switch found := taxTotals(root, currency); len(found) {
	case 0:
		v := r.missing(root, tagTaxTotal, tagTaxAmount)
		v[0].BT = "BT-110"
		return v
	case 1:
		t := root.Find(tagTotals)
		if t.Value(tagInclusive) == "" || t.Value(tagExclusive) == "" {
			return nil
		}
		n, ok := numbers(t.Find(tagInclusive), t.Find(tagExclusive), found[0].Find(tagTaxAmount))
		if !ok {
			return nil
		}
		return r.compare(currency, t, tagInclusive, n[1].Add(n[2]), n[0])
	default:
		var out []fault.Violation
		for _, second := range found[1:] {
			v := r.violation(second)
			v.BT = "BT-110"
			v.Detail += " Here is a second one."
			out = append(out, v)
		}
		return out
	}
}

// checkCategoryTax compares the VAT of each category with its rate. Like the published
// rule it tolerates rounding: a difference below 1.00 is a warning.
func checkCategoryTax(r Rule, root *Element) []fault.Violation {
	var out []fault.Violation
	currency := root.Value(tagCurrency)
	for _, s := range root.All(tagTaxTotal, tagSubtotal) {
		n, ok := numbers(s.Find("cbc:TaxableAmount"), s.Find("cac:TaxCategory", "cbc:Percent"), s.Find(tagTaxAmount))
		if !ok {
			continue
		}
		expected := n[0].Mul(n[1]).Mul(percent).Round(amountDecimals)
		if n[2].Equal(expected) {
			continue
		}
		v := r.differing(currency, s, tagTaxAmount, expected, n[2])
		if n[2].Sub(expected).Abs().Cmp(one) < 0 {
			v.Severity = SeverityWarning
		}
		out = append(out, v)
	}
	return out
}

// businessTerms are the business terms of amounts by the names of group and element.
var businessTerms = map[string]string{
	tagTotals + "/" + tagLineNet:       "BT-106",
	tagTotals + "/" + tagAllowances:    "BT-107",
	tagTotals + "/" + tagCharges:       "BT-108",
	tagTotals + "/" + tagExclusive:     "BT-109",
	tagTotals + "/" + tagInclusive:     "BT-112",
	tagTotals + "/" + tagPrepaid:       "BT-113",
	tagTotals + "/" + tagRounding:      "BT-114",
	tagTotals + "/" + tagPayable:       "BT-115",
	tagTaxTotal + "/" + tagTaxAmount:   "BT-110",
	tagSubtotal + "/cbc:TaxableAmount": "BT-116",
	tagSubtotal + "/" + tagTaxAmount:   "BT-117",
	"cac:InvoiceLine/" + tagLineNet:    "BT-131",
	"cac:CreditNoteLine/" + tagLineNet: "BT-131",
}

// termOf returns the business term of an amount, "" for one outside the standard.
func termOf(e *Element) string {
	group := e.Parent
	if group == nil {
		return ""
	}
	if group.Tag != tagCharge {
		return businessTerms[group.Tag+"/"+e.Tag]
	}
	charge, _ := parseIndicator(group.Value("cbc:ChargeIndicator"))
	var names [4]string // allowance, its base, charge, its base
	switch {
	case group.Parent == nil:
		return ""
	case group.Parent.Tag == "cac:Price":
		names = [4]string{"BT-147", "BT-148", "BT-147", "BT-148"}
	case group.Parent.Parent == nil:
		names = [4]string{"BT-92", "BT-93", "BT-99", "BT-100"}
	default:
		names = [4]string{"BT-136", "BT-137", "BT-141", "BT-142"}
	}
	index := 0
	if charge {
		index = 2
	}
	if e.Tag == "cbc:BaseAmount" {
		index++
	}
	return names[index]
}
