package einvoice

import (
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
)

// registration is whose tax registration a VAT category demands.
type registration int

const (
	sellerTax        registration = iota // of the seller for any tax, or of its representative for VAT
	sellerVAT                            // of the seller or of its representative for VAT
	sellerTaxBuyerID                     // as sellerTax, and the buyer's for VAT or its legal registration
	bothVAT                              // as sellerVAT, and the buyer's for VAT
	neitherVAT                           // neither party may have a VAT identifier
)

// category describes a VAT category of EN 16931, which has ten rules of its own.
type category struct {
	rules        string // "BR-S"
	code         string // "S", UNCL 5305
	name         string
	registration registration
	taxed        bool // it has rates; each has its breakdown. Other categories have one breakdown
	zeroAllowed  bool // of a taxed category: the rate may be 0
	exempt       bool // a breakdown states why no VAT is charged
}

// The Canary Islands and Ceuta and Melilla have taxes of their own: IGIC (rules BR-AF,
// also known as BR-IG) and IPSI (rules BR-AG, also known as BR-IP).
var categories = []category{
	{rules: "BR-S", code: "S", name: "standard rate", taxed: true},
	{rules: "BR-Z", code: "Z", name: "zero rate"},
	{rules: "BR-E", code: "E", name: "exempt", exempt: true},
	{rules: "BR-AE", code: "AE", name: "reverse charge", registration: sellerTaxBuyerID, exempt: true},
	{rules: "BR-IC", code: "K", name: "intra-community supply", registration: bothVAT, exempt: true},
	{rules: "BR-G", code: "G", name: "export", registration: sellerVAT, exempt: true},
	{rules: "BR-O", code: "O", name: "not subject to VAT", registration: neitherVAT, exempt: true},
	{rules: "BR-AF", code: "L", name: "IGIC", taxed: true, zeroAllowed: true},
	{rules: "BR-AG", code: "M", name: "IPSI", taxed: true, zeroAllowed: true},
}

var (
	lineCategories      = inLines("cac:Item", "cac:ClassifiedTaxCategory").where(isVAT)
	allowanceCategories = anywhere(tagCharge).where(isAllowance).below("cac:TaxCategory").where(isVAT)
	chargeCategories    = anywhere(tagCharge).where(isCharge).below("cac:TaxCategory").where(isVAT)
	everyCategory       = anywhereOf("cac:TaxCategory", "cac:ClassifiedTaxCategory")
	breakdowns          = subtotals.below("cac:TaxCategory").where(isVAT)
)

// categoryRules makes the rules of every category from its description.
func categoryRules() []Rule {
	var out []Rule
	for _, c := range categories {
		is := func(e *Element) bool { return e.Value("cbc:ID") == c.code }
		lines, allowances, charges := lineCategories.where(is), allowanceCategories.where(is), chargeCategories.where(is)
		breakdown := breakdowns.where(is)
		add := func(number, bt, statement string, check check) {
			out = append(out, required(c.rules+"-"+number, bt, statement, check))
		}
		subject := "(" + c.name + ")"
		add("01", "BG-23", "A VAT category "+subject+" that is used has "+c.breakdowns()+", and none without use.", c.checkBreakdown)
		add("02", "BT-31", "Lines "+subject+" need "+c.registration.String()+".", c.registration.check(lines))
		add("03", "BT-31", "Allowances "+subject+" need "+c.registration.String()+".", c.registration.check(allowances))
		add("04", "BT-31", "Charges "+subject+" need "+c.registration.String()+".", c.registration.check(charges))
		add("05", "BT-152", "A line "+subject+" has "+c.rate()+".", each(lines, c.hasRate))
		add("06", "BT-96", "An allowance "+subject+" has "+c.rate()+".", each(allowances, c.hasRate))
		add("07", "BT-103", "A charge "+subject+" has "+c.rate()+".", each(charges, c.hasRate))
		add("08", "BT-116", "The taxable amount "+subject+" (BT-116) is the sum of its lines (BT-131) less allowances (BT-92) plus charges (BT-99).", c.checkTaxable)
		if c.taxed {
			add("09", "BT-117", "The VAT amount "+subject+" (BT-117) is its taxable amount (BT-116) times its rate (BT-119).", c.checkTaxAmount)
		} else {
			add("09", "BT-117", "The VAT amount "+subject+" (BT-117) is 0.", c.checkNoTax)
		}
		if c.exempt {
			add("10", "BT-120", "A VAT breakdown "+subject+" states the reason or its code.", each(breakdown, either("cbc:TaxExemptionReason", "cbc:TaxExemptionReasonCode")))
		} else {
			add("10", "BT-120", "A VAT breakdown "+subject+" has no reason of exemption.", each(breakdown, func(e *Element) bool {
				return !has(e, "cbc:TaxExemptionReason") && !has(e, "cbc:TaxExemptionReasonCode")
			}))
		}
		switch c.code {
		case "K":
			add("11", "BT-72", "An intra-community supply has a date of delivery or an invoicing period.", each(document, hasDelivery))
			add("12", "BT-80", "An intra-community supply names the country of delivery.", each(document, hasDeliveryCountry))
		case "O":
			other := func(e *Element) bool { return has(e, "cbc:ID") && !is(e) }
			add("11", "BG-23", "A document that is not subject to VAT has no other VAT breakdown.", exclusive(breakdown, breakdowns.where(other)))
			add("12", "BT-151", "A document that is not subject to VAT has no line of another VAT category.", exclusive(breakdown, lineCategories.where(other)))
			add("13", "BT-95", "A document that is not subject to VAT has no allowance of another VAT category.", exclusive(breakdown, allowanceCategories.where(other)))
			add("14", "BT-102", "A document that is not subject to VAT has no charge of another VAT category.", exclusive(breakdown, chargeCategories.where(other)))
		}
	}
	return out
}

func (c category) breakdowns() string {
	if c.taxed {
		return "a VAT breakdown"
	}
	return "exactly one VAT breakdown"
}

func (c category) rate() string {
	switch {
	case c.code == "O":
		return "no rate"
	case c.zeroAllowed:
		return "a rate that is not negative"
	case c.taxed:
		return "a rate above 0"
	default:
		return "the rate 0"
	}
}

func (c category) hasRate(e *Element) bool {
	percent := e.Find("cbc:Percent")
	if c.code == "O" {
		return percent.Value() == ""
	}
	n, ok := number(percent)
	switch {
	case !ok || percent.Value() == "":
		return false
	case c.zeroAllowed:
		return n.Sign() >= 0
	case c.taxed:
		return n.Sign() > 0
	default:
		return n.IsZero()
	}
}

// checkBreakdown compares the use of a category in lines, allowances and charges with its
// breakdowns.
func (c category) checkBreakdown(r Rule, root *Element) []fault.Violation {
	used, broken := 0, 0
	for _, e := range everyCategory(root) {
		switch {
		case e.Value("cbc:ID") != c.code:
		case c.code != "S" && !isVAT(e): // the published rule for S counts other taxes too
		case e.Parent.Tag == tagSubtotal && e.Parent.Parent.Tag == tagTaxTotal:
			broken++
		default:
			used++
		}
	}
	if c.taxed && (used > 0) == (broken > 0) || !c.taxed && (broken == 1 || used+broken == 0) {
		return nil
	}
	if broken == 0 {
		return r.missing(root, tagTaxTotal, tagSubtotal)
	}
	return []fault.Violation{r.violation(root.Find(tagTaxTotal))}
}

func (g registration) String() string {
	switch g {
	case sellerVAT:
		return "the VAT identifier of the seller or of its tax representative"
	case sellerTaxBuyerID:
		return "a tax registration of the seller, and a VAT or registration identifier of the buyer"
	case bothVAT:
		return "the VAT identifiers of the seller and of the buyer"
	case neitherVAT:
		return "that neither seller nor buyer has a VAT identifier"
	default:
		return "a tax registration of the seller, or the VAT identifier of its tax representative"
	}
}

// check makes the check of a registration for documents with an element in the scope.
func (g registration) check(s scope) check {
	return func(r Rule, root *Element) []fault.Violation {
		if len(s(root)) == 0 || g.holds(root) {
			return nil
		}
		at := root.Find(tagSeller, tagParty)
		if at == nil {
			at = root
		}
		return []fault.Violation{r.violation(at)}
	}
}

func (g registration) holds(root *Element) bool {
	seller, buyer := root.Find(tagSeller, tagParty), root.Find(tagBuyer, tagParty)
	represented := hasVATID(root.Find(tagRepresentative))
	switch g {
	case sellerVAT:
		return represented || hasVATID(seller)
	case sellerTaxBuyerID:
		return (represented || has(seller, "cac:PartyTaxScheme", "cbc:CompanyID")) &&
			(hasVATID(buyer) || has(buyer, "cac:PartyLegalEntity", "cbc:CompanyID"))
	case bothVAT:
		return (represented || hasVATID(seller)) && hasVATID(buyer)
	case neitherVAT:
		return !represented && !hasVATID(seller) && !hasVATID(buyer)
	default:
		return represented || has(seller, "cac:PartyTaxScheme", "cbc:CompanyID")
	}
}

// checkTaxable compares the taxable amount of each breakdown with what the document has in
// its category, and in its rate if the category is taxed. Like the published rules for UBL it
// tolerates rounding in taxed categories: a difference below 1.00 is a warning. Those for CII
// tolerate none.
func (c category) checkTaxable(r Rule, root *Element) []fault.Violation {
	found := breakdowns.where(func(e *Element) bool { return e.Value("cbc:ID") == c.code })(root)
	if len(found) == 0 {
		return nil
	}
	sums, ok := c.sums(root)
	if !ok {
		return nil
	}
	var out []fault.Violation
	currency := root.Value(tagCurrency)
	for _, e := range found {
		if len(out) > MaxFindings {
			break
		}
		key, rated := c.rateKey(e)
		got, valid := number(e.Parent.Find("cbc:TaxableAmount"))
		if !valid || c.taxed && !rated {
			continue
		}
		expected, used := sums[key]
		if got.Equal(expected) && (used || !c.taxed) {
			continue
		}
		v := r.differing(currency, e.Parent, "cbc:TaxableAmount", expected, got)
		if c.taxed && used && root.Origin == nil && got.Sub(expected).Abs().Cmp(one) < 0 {
			v.Severity = SeverityWarning
		}
		out = append(out, v)
	}
	return out
}

// rateKey is the key of a rate in sums: its value without zeros at the end, or "" if the
// category has one rate only.
func (c category) rateKey(e *Element) (key string, ok bool) {
	if !c.taxed {
		return "", true
	}
	percent := e.Find("cbc:Percent")
	n, ok := number(percent)
	return n.Fixed(0), ok && percent.Value() != ""
}

// sums adds up lines, charges and allowances of the category, by rate. ok is false if an
// amount is no number.
func (c category) sums(root *Element) (sums map[string]money.Number, ok bool) {
	sums, ok = map[string]money.Number{}, true
	add := func(amount, category *Element, negative bool) {
		key, rated := c.rateKey(category)
		n, valid := number(amount)
		if negative {
			n = n.Neg()
		}
		if ok = ok && valid; rated {
			sums[key] = sums[key].Add(n)
		}
	}
	for _, line := range root.All(lineTag(root)) {
		for _, e := range line.All("cac:Item", "cac:ClassifiedTaxCategory") {
			if e.Value("cbc:ID") == c.code {
				add(line.Find(tagLineNet), e, false)
				break
			}
		}
	}
	for _, charge := range root.All(tagCharge) {
		if e := charge.Find("cac:TaxCategory"); e.Value("cbc:ID") == c.code && (isCharge(charge) || isAllowance(charge)) {
			add(charge.Find("cbc:Amount"), e, isAllowance(charge))
		}
	}
	return sums, ok
}

// checkTaxAmount is the check of BR-CO-17 for one category. A difference below 1.00, which
// BR-CO-17 reports, is none here.
func (c category) checkTaxAmount(r Rule, root *Element) []fault.Violation {
	var out []fault.Violation
	currency := root.Value(tagCurrency)
	for _, e := range breakdowns(root) {
		s := e.Parent
		n, ok := numbers(s.Find("cbc:TaxableAmount"), e.Find("cbc:Percent"), s.Find(tagTaxAmount))
		if e.Value("cbc:ID") != c.code || !ok || len(out) > MaxFindings {
			continue
		}
		expected := n[0].Mul(n[1]).Mul(percent).Round(amountDecimals)
		if n[2].Sub(expected).Abs().Cmp(one) >= 0 || !has(e, "cbc:Percent") {
			out = append(out, r.differing(currency, s, tagTaxAmount, expected, n[2]))
		}
	}
	return out
}

func (c category) checkNoTax(r Rule, root *Element) []fault.Violation {
	var out []fault.Violation
	currency := root.Value(tagCurrency)
	for _, e := range breakdowns(root) {
		if e.Value("cbc:ID") != c.code || len(out) > MaxFindings {
			continue
		}
		if n, ok := number(e.Parent.Find(tagTaxAmount)); ok && !n.IsZero() {
			out = append(out, r.differing(currency, e.Parent, tagTaxAmount, money.Number{}, n))
		}
	}
	return out
}

// hasCategoryK reports whether a document has a breakdown for an intra-community supply.
func hasCategoryK(root *Element) bool {
	for _, e := range breakdowns(root) {
		if e.Value("cbc:ID") == "K" {
			return true
		}
	}
	return false
}

func hasDelivery(root *Element) bool {
	if !hasCategoryK(root) || has(root, "cac:Delivery", "cbc:ActualDeliveryDate") {
		return true
	}
	for _, period := range root.All("cac:InvoicePeriod") {
		if len(period.Children) > 0 {
			return true
		}
	}
	return false
}

func hasDeliveryCountry(root *Element) bool {
	return !hasCategoryK(root) || has(root, "cac:Delivery", "cac:DeliveryLocation", "cac:Address", "cac:Country", "cbc:IdentificationCode")
}

// exclusive makes the check that a document with an element of the first scope has none of
// the second.
func exclusive(cause, others scope) check {
	return func(r Rule, root *Element) []fault.Violation {
		if len(cause(root)) == 0 {
			return nil
		}
		return each(others, func(*Element) bool { return false })(r, root)
	}
}

// splitPaymentRules are the rules of category B, the split payment of Italy.
var splitPaymentRules = []Rule{
	required("BR-B-01", "BT-151", "Split payment (B) is for documents inside Italy only.", each(document, func(root *Element) bool {
		return !usesCategory(root, "B") || len(anywhere("cbc:IdentificationCode").where(func(e *Element) bool { return e.Text != "IT" })(root)) == 0
	})),
	required("BR-B-02", "BT-151", "A document has not both split payment (B) and the standard rate (S).", each(document, func(root *Element) bool {
		return !usesCategory(root, "B") || !usesCategory(root, "S")
	})),
}

func usesCategory(root *Element, code string) bool {
	return len(everyCategory.where(func(e *Element) bool { return e.Value("cbc:ID") == code })(root)) > 0
}
