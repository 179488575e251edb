package einvoice

import (
	"unicode/utf8"

	"github.com/erpbackbone/backbone/domain/fault"
)

// Parties of a document.
const (
	tagSeller         = "cac:AccountingSupplierParty"
	tagBuyer          = "cac:AccountingCustomerParty"
	tagParty          = "cac:Party"
	tagPayee          = "cac:PayeeParty"
	tagRepresentative = "cac:TaxRepresentativeParty"
	tagAddress        = "cac:PostalAddress"
	tagMeans          = "cac:PaymentMeans"
)

var (
	documentAllowances = at(tagCharge).where(isAllowance)
	documentCharges    = at(tagCharge).where(isCharge)
	lineAllowances     = inLines(tagCharge).where(isAllowance)
	lineCharges        = inLines(tagCharge).where(isCharge)
	subtotals          = at(tagTaxTotal, tagSubtotal)
	hasReason          = either("cbc:AllowanceChargeReason", "cbc:AllowanceChargeReasonCode")
)

// presenceRules demand that values are there, and that some are plausible.
var presenceRules = []Rule{
	required("BR-01", "BT-24", "An invoice names the specification that it follows.", eachHas(document, "cbc:CustomizationID")),
	required("BR-02", "BT-1", "An invoice has a number.", present("cbc:ID")),
	required("BR-03", "BT-2", "An invoice has an issue date.", present("cbc:IssueDate")),
	required("BR-04", "BT-3", "An invoice has a type code.", presentTypeCode),
	required("BR-05", "BT-5", "An invoice has a currency code.", present(tagCurrency)),
	required("BR-06", "BT-27", "An invoice has the seller's name.", eachHas(document, tagSeller, tagParty, "cac:PartyLegalEntity", "cbc:RegistrationName")),
	required("BR-07", "BT-44", "An invoice has the buyer's name.", eachHas(document, tagBuyer, tagParty, "cac:PartyLegalEntity", "cbc:RegistrationName")),
	required("BR-08", "BG-5", "An invoice has the seller's postal address.", eachHas(document, tagSeller, tagParty, tagAddress)),
	required("BR-09", "BT-40", "The seller's postal address has a country.", eachHas(at(tagSeller, tagParty, tagAddress), "cac:Country", "cbc:IdentificationCode")),
	required("BR-10", "BG-8", "An invoice has the buyer's postal address.", eachHas(document, tagBuyer, tagParty, tagAddress)),
	required("BR-11", "BT-55", "The buyer's postal address has a country.", eachHas(at(tagBuyer, tagParty, tagAddress), "cac:Country", "cbc:IdentificationCode")),
	required("BR-12", "BT-106", "An invoice has the sum of its line net amounts.", present(tagTotals, tagLineNet)),
	required("BR-13", "BT-109", "An invoice has a total without VAT.", present(tagTotals, tagExclusive)),
	required("BR-14", "BT-112", "An invoice has a total with VAT.", present(tagTotals, tagInclusive)),
	required("BR-15", "BT-115", "An invoice has the amount due for payment.", present(tagTotals, tagPayable)),
	required("BR-16", "BG-25", "An invoice has at least one line.", checkAnyLine),
	required("BR-17", "BT-59", "A payee has a name and is another party than the seller.", each(at(tagPayee), isOtherPayee)),
	required("BR-18", "BT-62", "The seller's tax representative has a name.", eachHas(at(tagRepresentative), "cac:PartyName", "cbc:Name")),
	required("BR-19", "BG-12", "The seller's tax representative has a postal address.", eachHas(at(tagRepresentative), tagAddress)),
	required("BR-20", "BT-69", "The address of the seller's tax representative has a country.", eachHas(at(tagRepresentative, tagAddress), "cac:Country", "cbc:IdentificationCode")),
	required("BR-21", "BT-126", "Each line has an identifier.", presentInLines("cbc:ID")),
	required("BR-22", "BT-129", "Each line has a quantity.", each(inLines(), either("cbc:InvoicedQuantity", "cbc:CreditedQuantity"))),
	required("BR-23", "BT-130", "Each quantity has a unit.", each(inLines(), hasUnit)),
	required("BR-24", "BT-131", "Each line has a net amount.", presentInLines(tagLineNet)),
	required("BR-25", "BT-153", "Each line has the item's name.", eachHas(inLines(), "cac:Item", "cbc:Name")),
	required("BR-26", "BT-146", "Each line has the item's net price.", eachHas(inLines(), "cac:Price", "cbc:PriceAmount")),
	required("BR-27", "BT-146", "The item's net price is not negative.", each(inLines("cac:Price", "cbc:PriceAmount"), isNotNegative)),
	required("BR-28", "BT-148", "The item's gross price is not negative.", each(inLines("cac:Price", tagCharge, "cbc:BaseAmount"), isNotNegative)),
	required("BR-29", "BT-74", "The invoicing period does not end before it begins.", each(at("cac:InvoicePeriod"), isOrderedPeriod)),
	required("BR-30", "BT-135", "The period of a line does not end before it begins.", each(inLines("cac:InvoicePeriod"), isOrderedPeriod)),
	required("BR-31", "BT-92", "Each allowance of the document has an amount.", eachHas(documentAllowances, "cbc:Amount")),
	required("BR-32", "BT-95", "Each allowance of the document has a VAT category.", each(documentAllowances, hasVATCategory)),
	required("BR-33", "BT-97", "Each allowance of the document has a reason.", each(documentAllowances, hasReason)),
	required("BR-36", "BT-99", "Each charge of the document has an amount.", eachHas(documentCharges, "cbc:Amount")),
	required("BR-37", "BT-102", "Each charge of the document has a VAT category.", each(documentCharges, hasVATCategory)),
	required("BR-38", "BT-104", "Each charge of the document has a reason.", each(documentCharges, hasReason)),
	required("BR-41", "BT-136", "Each allowance of a line has an amount.", eachHas(lineAllowances, "cbc:Amount")),
	required("BR-42", "BT-139", "Each allowance of a line has a reason.", each(lineAllowances, hasReason)),
	required("BR-43", "BT-141", "Each charge of a line has an amount.", eachHas(lineCharges, "cbc:Amount")),
	required("BR-44", "BT-144", "Each charge of a line has a reason.", each(lineCharges, hasReason)),
	required("BR-45", "BT-116", "Each VAT breakdown has a taxable amount.", eachHas(subtotals, "cbc:TaxableAmount")),
	required("BR-46", "BT-117", "Each VAT breakdown has a VAT amount.", eachHas(subtotals, tagTaxAmount)),
	required("BR-47", "BT-118", "Each VAT breakdown has a VAT category.", each(subtotals, hasVATCategory)),
	required("BR-48", "BT-119", "Each VAT breakdown has a rate, unless it is not subject to VAT.", each(subtotals, hasRate)),
	required("BR-49", "BT-81", "Payment instructions have the code of a payment means.", eachHas(at(tagMeans), "cbc:PaymentMeansCode")),
	required("BR-50", "BT-84", "The account for a credit transfer has an identifier.", eachHas(at(tagMeans).where(isCreditTransfer).below("cac:PayeeFinancialAccount"), "cbc:ID")),
	advised("BR-51", "BT-87", "A document has at most the first six and last four digits of a payment card.", each(at(tagMeans, "cac:CardAccount", "cbc:PrimaryAccountNumberID"), isShortened)),
	required("BR-52", "BT-122", "Each supporting document has a reference.", eachHas(at("cac:AdditionalDocumentReference"), "cbc:ID")),
	required("BR-53", "BT-111", "An invoice with a tax currency has the VAT total in that currency.", checkTaxCurrencyTotal),
	required("BR-54", "BG-32", "Each attribute of an item has a name and a value.", each(anywhere("cac:AdditionalItemProperty"), func(e *Element) bool { return has(e, "cbc:Name") && has(e, "cbc:Value") })),
	required("BR-55", "BT-25", "Each reference to a preceding invoice has its number.", eachHas(at("cac:BillingReference"), "cac:InvoiceDocumentReference", "cbc:ID")),
	required("BR-56", "BT-63", "The seller's tax representative has a VAT identifier.", each(at(tagRepresentative), hasVATID)),
	required("BR-57", "BT-80", "The address of delivery has a country.", eachHas(at("cac:Delivery", "cac:DeliveryLocation", "cac:Address"), "cac:Country", "cbc:IdentificationCode")),
	required("BR-61", "BT-84", "A credit transfer names the account to which to pay.", eachHas(at(tagMeans).where(isCreditTransfer), "cac:PayeeFinancialAccount", "cbc:ID")),
	required("BR-62", "BT-34", "The seller's electronic address has a scheme.", each(at(tagSeller, tagParty, "cbc:EndpointID"), hasAttribute("schemeID"))),
	required("BR-63", "BT-49", "The buyer's electronic address has a scheme.", each(at(tagBuyer, tagParty, "cbc:EndpointID"), hasAttribute("schemeID"))),
	required("BR-64", "BT-157", "The standard identifier of an item has a scheme.", each(inLines("cac:Item", "cac:StandardItemIdentification", "cbc:ID"), hasAttribute("schemeID"))),
	required("BR-65", "BT-158", "The classification of an item names its list.", each(inLines("cac:Item", "cac:CommodityClassification", "cbc:ItemClassificationCode"), hasAttribute("listID"))),
	required("BR-CO-03", "BT-7", "A tax point date and a tax point date code exclude each other.", checkTaxPoint),
	required("BR-CO-04", "BT-151", "Each line has a VAT category.", each(inLines(), hasLineCategory)),
	required("BR-CO-09", "BT-31", "A VAT identifier begins with the code of its country, or with EL for Greece.", each(anywhere("cac:PartyTaxScheme").where(isVAT).below("cbc:CompanyID"), hasCountryPrefix)),
	required("BR-CO-19", "BG-14", "An invoicing period has a first or last day, or a tax point date code.", each(at("cac:InvoicePeriod"), func(e *Element) bool { return hasPeriod(e) || has(e, "cbc:DescriptionCode") })),
	required("BR-CO-20", "BG-26", "The period of a line has a first or last day.", each(inLines("cac:InvoicePeriod"), hasPeriod)),
	required("BR-CO-21", "BG-20", "Each allowance of the document has a reason or a reason code.", each(documentAllowances, hasReason)),
	required("BR-CO-22", "BG-21", "Each charge of the document has a reason or a reason code.", each(documentCharges, hasReason)),
	required("BR-CO-23", "BG-27", "Each allowance of a line has a reason or a reason code.", each(lineAllowances, hasReason)),
	required("BR-CO-24", "BG-28", "Each charge of a line has a reason or a reason code.", each(lineCharges, hasReason)),
	required("BR-CO-26", "BT-29", "The seller has a VAT identifier, a registration identifier or another identifier.", checkSellerIdentified),
}

// presentInLines makes the check that each line has an element that is neither empty nor a
// placeholder.
func presentInLines(tags ...string) check {
	return func(r Rule, root *Element) []fault.Violation {
		var out []fault.Violation
		for _, line := range root.All(lineTag(root)) {
			if len(out) <= MaxFindings && line.Value(tags...) == "" {
				out = append(out, r.missing(line, tags...)...)
			}
		}
		return out
	}
}

func checkAnyLine(r Rule, root *Element) []fault.Violation {
	if root.Find(lineTag(root)) != nil {
		return nil
	}
	return r.missing(root, lineTag(root))
}

func checkTaxPoint(r Rule, root *Element) []fault.Violation {
	date := root.Find("cbc:TaxPointDate")
	code := root.Value("cac:InvoicePeriod", "cbc:DescriptionCode")
	if date.Value() == "" || code == "" {
		return nil
	}
	return []fault.Violation{r.violation(date)}
}

func checkSellerIdentified(r Rule, root *Element) []fault.Violation {
	s := readSupplier(root)
	if s.VATID != "" || s.RegistrationID != "" || len(s.PartyIDs) > 0 {
		return nil
	}
	return r.missing(root, tagSeller, tagParty, "cac:PartyIdentification", "cbc:ID")
}

func checkTaxCurrencyTotal(r Rule, root *Element) []fault.Violation {
	code := root.Find("cbc:TaxCurrencyCode")
	if code == nil || len(taxTotals(root, code.Text)) > 0 {
		return nil
	}
	return []fault.Violation{r.violation(code)}
}

// isOtherPayee reports whether a payee has a name and shares neither name nor identifier
// with the seller.
func isOtherPayee(payee *Element) bool {
	seller := payee.Parent.Find(tagSeller, tagParty)
	return has(payee, "cac:PartyName", "cbc:Name") &&
		!shares(payee, seller, "cac:PartyName", "cbc:Name") && !shares(payee, seller, "cac:PartyIdentification", "cbc:ID")
}

// shares reports whether two elements have an equal value down the same path.
func shares(a, b *Element, tags ...string) bool {
	known := map[string]bool{}
	for _, e := range a.All(tags...) {
		known[e.Text] = true
	}
	for _, e := range b.All(tags...) {
		if known[e.Text] {
			return true
		}
	}
	return false
}

func hasUnit(line *Element) bool {
	for _, tag := range []string{"cbc:InvoicedQuantity", "cbc:CreditedQuantity"} {
		if line.Find(tag).Attribute("unitCode") != "" {
			return true
		}
	}
	return false
}

// isNotNegative reports whether a number is not negative. Mapping refuses a text that is no
// number.
func isNotNegative(e *Element) bool {
	n, ok := number(e)
	return !ok || n.Sign() >= 0
}

// isOrderedPeriod reports whether a period does not end before it begins. A period without
// one of the days, or with one that is no date, has no order.
func isOrderedPeriod(period *Element) bool {
	start, first := parseDate(period.Value("cbc:StartDate"))
	end, last := parseDate(period.Value("cbc:EndDate"))
	return !first || !last || end >= start
}

func hasPeriod(e *Element) bool { return has(e, "cbc:StartDate") || has(e, "cbc:EndDate") }

// vatCategories lists the VAT categories of a subtotal, an allowance or a charge.
func vatCategories(e *Element) []*Element {
	var out []*Element
	for _, c := range e.All("cac:TaxCategory") {
		if isVAT(c) {
			out = append(out, c)
		}
	}
	return out
}

func hasVATCategory(e *Element) bool {
	for _, c := range vatCategories(e) {
		if has(c, "cbc:ID") {
			return true
		}
	}
	return false
}

func hasRate(e *Element) bool {
	for _, c := range vatCategories(e) {
		if has(c, "cbc:Percent") || c.Value("cbc:ID") == "O" {
			return true
		}
	}
	return false
}

func hasLineCategory(line *Element) bool {
	for _, c := range line.All("cac:Item", "cac:ClassifiedTaxCategory") {
		if isVAT(c) && has(c, "cbc:ID") {
			return true
		}
	}
	return false
}

func isCreditTransfer(means *Element) bool {
	code := means.Value("cbc:PaymentMeansCode")
	return code == "30" || code == "58"
}

func isShortened(card *Element) bool { return utf8.RuneCountInString(card.Text) <= 10 }

// hasVATID reports whether a party is registered for VAT.
func hasVATID(party *Element) bool {
	for _, scheme := range party.All("cac:PartyTaxScheme") {
		if isVAT(scheme) && has(scheme, "cbc:CompanyID") {
			return true
		}
	}
	return false
}

// hasCountryPrefix reports whether a VAT identifier begins with a country of the code list,
// or with the prefix that Greece uses instead of its code.
func hasCountryPrefix(id *Element) bool {
	return len(id.Text) >= 2 && (id.Text[:2] == "EL" || countries.contains(id.Text[:2]))
}

func hasAttribute(name string) func(*Element) bool {
	return func(e *Element) bool { return e.Attribute(name) != "" }
}
