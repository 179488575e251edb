package einvoice

import (
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
)

// slack is the difference that the arithmetic of Peppol tolerates.
var slack = money.MustNumber("0.02")

const tagMultiplier = "cbc:MultiplierFactorNumeric"

var everyCharge = scope(func(root *Element) []*Element {
	return append(at(tagCharge)(root), inLines(tagCharge)(root)...)
})

// peppolRules are the arithmetic of Peppol BIS Billing 3.0. EN 16931 does not know it, so a
// violation is reported only; the settings of accounts payable may hold the document.
var peppolRules = []Rule{
	advised("PEPPOL-EN16931-R040", "BT-92", "An allowance or charge is its base amount times its percentage, to within 0.02.", checkChargeAmount),
	advised("PEPPOL-EN16931-R041", "BT-93", "An allowance or charge with a percentage has its base amount.", each(everyCharge, func(e *Element) bool {
		return !has(e, tagMultiplier) || has(e, "cbc:BaseAmount")
	})),
	advised("PEPPOL-EN16931-R042", "BT-94", "An allowance or charge with a base amount has its percentage.", each(everyCharge, func(e *Element) bool {
		return !has(e, "cbc:BaseAmount") || has(e, tagMultiplier)
	})),
	advised("PEPPOL-EN16931-R043", "", "The indicator of an allowance or charge is true or false.", each(everyCharge, func(e *Element) bool {
		indicator := e.Value("cbc:ChargeIndicator")
		return indicator == "true" || indicator == "false"
	})),
	advised("PEPPOL-EN16931-R044", "BT-147", "A price has no charge, only a discount.", each(inLines("cac:Price", tagCharge), isAllowance)),
	advised("PEPPOL-EN16931-R046", "BT-146", "The net price is the gross price less the discount.", checkNetPrice),
	advised("PEPPOL-EN16931-R053", "BT-110", "There is exactly one VAT total with a breakdown.", checkTotalsWithBreakdown),
	advised("PEPPOL-EN16931-R054", "BT-111", "There is one VAT total without breakdown if there is a tax currency, else none.", checkTotalsWithoutBreakdown),
	advised("PEPPOL-EN16931-R110", "BT-134", "The period of a line begins within the invoicing period.", each(inLines("cac:InvoicePeriod", "cbc:StartDate"), beginsWithin)),
	advised("PEPPOL-EN16931-R111", "BT-135", "The period of a line ends within the invoicing period.", each(inLines("cac:InvoicePeriod", "cbc:EndDate"), endsWithin)),
	advised("PEPPOL-EN16931-R120", "BT-131", "The net amount of a line is quantity times price per base quantity, plus its charges, less its allowances, to within 0.02.", checkLineNet),
	advised("PEPPOL-EN16931-R121", "BT-149", "The base quantity of a price is above 0.", each(inLines("cac:Price", "cbc:BaseQuantity"), func(e *Element) bool {
		n, ok := number(e)
		return !ok || e.Text == "" || n.Sign() > 0
	})),
	advised("PEPPOL-EN16931-R130", "BT-150", "The unit of a price's base quantity is that of the quantity.", each(inLines("cac:Price", "cbc:BaseQuantity"), hasUnitOfQuantity)),
}

func checkChargeAmount(r Rule, root *Element) []fault.Violation {
	var out []fault.Violation
	currency := root.Value(tagCurrency)
	for _, e := range everyCharge(root) {
		n, ok := numbers(e.Find("cbc:BaseAmount"), e.Find(tagMultiplier), e.Find("cbc:Amount"))
		if !ok || !has(e, "cbc:BaseAmount") || !has(e, tagMultiplier) || len(out) > MaxFindings {
			continue
		}
		expected := n[0].Mul(n[1]).Mul(percent)
		if n[2].Sub(expected).Abs().Cmp(slack) > 0 {
			out = append(out, r.differing(currency, e, "cbc:Amount", expected.Round(amountDecimals), n[2]))
		}
	}
	return out
}

func checkNetPrice(r Rule, root *Element) []fault.Violation {
	var out []fault.Violation
	for _, e := range inLines("cac:Price", tagCharge)(root) {
		n, ok := numbers(e.Find("cbc:BaseAmount"), e.Find("cbc:Amount"), e.Parent.Find("cbc:PriceAmount"))
		if ok && has(e, "cbc:BaseAmount") && len(out) <= MaxFindings && !n[2].Equal(n[0].Sub(n[1])) {
			out = append(out, r.violation(e))
		}
	}
	return out
}

func checkTotalsWithBreakdown(r Rule, root *Element) []fault.Violation {
	found := at(tagTaxTotal).where(func(e *Element) bool { return e.Find(tagSubtotal) != nil })(root)
	switch len(found) {
	case 0:
		return r.missing(root, tagTaxTotal, tagSubtotal)
	case 1:
		return nil
	default:
		return []fault.Violation{r.violation(found[1])}
	}
}

func checkTotalsWithoutBreakdown(r Rule, root *Element) []fault.Violation {
	found := at(tagTaxTotal).where(func(e *Element) bool { return e.Find(tagSubtotal) == nil })(root)
	wanted := 0
	if has(root, "cbc:TaxCurrencyCode") {
		wanted = 1
	}
	switch {
	case len(found) == wanted:
		return nil
	case len(found) > wanted:
		return []fault.Violation{r.violation(found[wanted])}
	default:
		return r.missing(root, tagTaxTotal, tagTaxAmount)
	}
}

func beginsWithin(start *Element) bool {
	first, ok := parseDate(start.Parent.Parent.Parent.Value("cac:InvoicePeriod", "cbc:StartDate"))
	day, valid := parseDate(start.Text)
	return !ok || !valid || day >= first
}

func endsWithin(end *Element) bool {
	last, ok := parseDate(end.Parent.Parent.Parent.Value("cac:InvoicePeriod", "cbc:EndDate"))
	day, valid := parseDate(end.Text)
	return !ok || !valid || day <= last
}

// quantityOf is the quantity of a line, nil if it has none.
func quantityOf(line *Element) *Element {
	if e := line.Find("cbc:InvoicedQuantity"); e != nil {
		return e
	}
	return line.Find("cbc:CreditedQuantity")
}

// checkLineNet compares net amounts with quantities and prices. It multiplies by the base
// quantity instead of dividing the price by it, so that the comparison is exact.
func checkLineNet(r Rule, root *Element) []fault.Violation {
	var out []fault.Violation
	currency := root.Value(tagCurrency)
	for _, line := range inLines()(root) {
		if len(out) > MaxFindings {
			break
		}
		quantity, price := quantityOf(line), line.Find("cac:Price", "cbc:PriceAmount")
		n, ok := numbers(line.Find(tagLineNet), quantity, price, line.Find("cac:Price", "cbc:BaseQuantity"))
		if !ok || quantity == nil || price == nil || line.Find(tagLineNet) == nil {
			continue
		}
		base := n[3]
		if !has(line, "cac:Price", "cbc:BaseQuantity") {
			base = one
		}
		goods := n[0]
		for _, e := range line.All(tagCharge) {
			amount, valid := number(e.Find("cbc:Amount"))
			ok = ok && valid
			switch {
			case isCharge(e):
				goods = goods.Sub(amount)
			case isAllowance(e):
				goods = goods.Add(amount)
			}
		}
		if ok && base.Sign() > 0 && goods.Mul(base).Sub(n[1].Mul(n[2])).Abs().Cmp(slack.Mul(base)) > 0 {
			v := r.violation(line.Find(tagLineNet))
			v.Got, v.Currency = n[0].Fixed(amountDecimals), currencyOf(line.Find(tagLineNet))
			if v.Currency == "" && len(currency) == 3 {
				v.Currency = currency
			}
			out = append(out, v)
		}
	}
	return out
}

// hasUnitOfQuantity reports whether a price's base quantity has the unit of its line's
// quantity, or none.
func hasUnitOfQuantity(base *Element) bool {
	quantity := quantityOf(base.Parent.Parent)
	unit := base.Attribute("unitCode")
	return unit == "" || quantity == nil || unit == quantity.Attribute("unitCode")
}
