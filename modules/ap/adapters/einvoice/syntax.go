package einvoice

import (
	"strings"

	"github.com/erpbackbone/backbone/domain/fault"
)

var (
	vatSchemes   = func(tags ...string) scope { return at(append(tags, "cac:PartyTaxScheme")...).where(isVAT) }
	otherSchemes = func(tags ...string) scope {
		return at(append(tags, "cac:PartyTaxScheme")...).where(func(e *Element) bool { return !isVAT(e) && has(e, "cac:TaxScheme", "cbc:ID") })
	}
	payee = at(tagPayee)
)

// syntaxRules are the rules of the binding to UBL: a value that the standard knows once may
// not be there twice.
var syntaxRules = []Rule{
	required("UBL-DT-01", "", "An amount has at most two decimals.", checkDecimals),
	required("UBL-DT-06", "BT-125", "An embedded file has a type.", each(anywhere("cbc:EmbeddedDocumentBinaryObject"), hasAttribute("mimeCode"))),
	required("UBL-DT-07", "BT-125", "An embedded file has a name.", each(anywhere("cbc:EmbeddedDocumentBinaryObject"), hasAttribute("filename"))),
	required("UBL-SR-01", "BT-12", "There is at most one contract.", atMost(1, document, "cac:ContractDocumentReference", "cbc:ID")),
	required("UBL-SR-02", "BT-15", "There is at most one receipt.", atMost(1, document, "cac:ReceiptDocumentReference", "cbc:ID")),
	required("UBL-SR-03", "BT-16", "There is at most one despatch advice.", atMost(1, document, "cac:DespatchDocumentReference", "cbc:ID")),
	required("UBL-SR-04", "BT-18", "There is at most one invoiced object.", single(at("cac:AdditionalDocumentReference").where(func(e *Element) bool {
		return e.Value("cbc:DocumentTypeCode") == invoicedObject
	}).below("cbc:ID"))),
	required("UBL-SR-05", "BT-20", "There is at most one note on the payment terms.", atMost(1, document, "cac:PaymentTerms", "cbc:Note")),
	required("UBL-SR-06", "BT-25", "A reference to a preceding invoice names one invoice.", atMost(1, at("cac:BillingReference"), "cac:InvoiceDocumentReference")),
	required("UBL-SR-07", "BT-25", "A reference to a preceding invoice has its number.", eachHas(at("cac:BillingReference"), "cac:InvoiceDocumentReference", "cbc:ID")),
	required("UBL-SR-08", "BG-14", "There is at most one invoicing period.", atMost(1, document, "cac:InvoicePeriod")),
	required("UBL-SR-09", "BT-27", "The seller has at most one legal name.", atMost(1, document, tagSeller, tagParty, "cac:PartyLegalEntity", "cbc:RegistrationName")),
	required("UBL-SR-10", "BT-28", "The seller has at most one trade name.", atMost(1, document, tagSeller, tagParty, "cac:PartyName", "cbc:Name")),
	required("UBL-SR-11", "BT-30", "The seller has at most one registration identifier.", atMost(1, document, tagSeller, tagParty, "cac:PartyLegalEntity", "cbc:CompanyID")),
	required("UBL-SR-12", "BT-31", "The seller has at most one VAT identifier.", single(vatSchemes(tagSeller, tagParty).below("cbc:CompanyID"))),
	required("UBL-SR-13", "BT-32", "The seller has at most one other tax registration.", single(otherSchemes(tagSeller, tagParty).below("cbc:CompanyID"))),
	required("UBL-SR-14", "BT-33", "The seller has at most one text on its legal form.", atMost(1, document, tagSeller, tagParty, "cac:PartyLegalEntity", "cbc:CompanyLegalForm")),
	required("UBL-SR-15", "BT-44", "The buyer has at most one legal name.", atMost(1, document, tagBuyer, tagParty, "cac:PartyLegalEntity", "cbc:RegistrationName")),
	required("UBL-SR-16", "BT-46", "The buyer has at most one identifier.", atMost(1, document, tagBuyer, tagParty, "cac:PartyIdentification", "cbc:ID")),
	required("UBL-SR-17", "BT-47", "The buyer has at most one registration identifier.", atMost(1, document, tagBuyer, tagParty, "cac:PartyLegalEntity", "cbc:CompanyID")),
	required("UBL-SR-18", "BT-48", "The buyer has at most one VAT identifier.", single(vatSchemes(tagBuyer, tagParty).below("cbc:CompanyID"))),
	required("UBL-SR-19", "BT-59", "The payee has at most one name.", atMost(1, payee, "cac:PartyName", "cbc:Name")),
	required("UBL-SR-20", "BT-60", "The payee has at most one identifier, not counting that of SEPA.", single(payee.below("cac:PartyIdentification", "cbc:ID").where(isNotSEPA))),
	required("UBL-SR-21", "BT-61", "The payee has at most one registration identifier.", atMost(1, payee, "cac:PartyLegalEntity", "cbc:CompanyID")),
	required("UBL-SR-22", "BT-62", "The tax representative has at most one name.", atMost(1, at(tagRepresentative), "cac:PartyName", "cbc:Name")),
	required("UBL-SR-23", "BT-63", "The tax representative has at most one VAT identifier.", atMost(1, at(tagRepresentative), "cac:PartyTaxScheme", "cbc:CompanyID")),
	required("UBL-SR-24", "BG-13", "There is at most one delivery.", atMost(1, document, "cac:Delivery")),
	required("UBL-SR-25", "BT-70", "The party of delivery has at most one name.", atMost(1, at("cac:Delivery"), "cac:DeliveryParty", "cac:PartyName", "cbc:Name")),
	required("UBL-SR-26", "BT-83", "Payment instructions have at most one reference.", atMost(1, at(tagMeans), "cbc:PaymentID")),
	required("UBL-SR-27", "BT-81", "Payment instructions have at most one payment means.", atMost(1, at(tagMeans), "cbc:PaymentMeansCode")),
	required("UBL-SR-28", "BT-89", "Payment instructions have at most one mandate.", atMost(1, at(tagMeans), "cac:PaymentMandate", "cbc:ID")),
	required("UBL-SR-29", "BT-90", "There is at most one creditor identifier of SEPA.", single(anywhere("cac:PartyIdentification", "cbc:ID").where(func(e *Element) bool { return !isNotSEPA(e) }))),
	required("UBL-SR-30", "BT-97", "An allowance has at most one reason.", atMost(1, anywhere(tagCharge).where(isAllowance), "cbc:AllowanceChargeReason")),
	required("UBL-SR-31", "BT-104", "A charge has at most one reason.", atMost(1, anywhere(tagCharge).where(isCharge), "cbc:AllowanceChargeReason")),
	required("UBL-SR-32", "BT-120", "A VAT breakdown has at most one reason of exemption.", atMost(1, anywhere(tagSubtotal), "cac:TaxCategory", "cbc:TaxExemptionReason")),
	required("UBL-SR-33", "BT-123", "A supporting document has at most one description.", atMost(1, at("cac:AdditionalDocumentReference"), "cbc:DocumentDescription")),
	required("UBL-SR-34", "BT-127", "A line has at most one note.", atMost(1, inLines(), "cbc:Note")),
	required("UBL-SR-35", "BT-132", "A line refers to at most one line of an order.", atMost(1, inLines(), "cac:OrderLineReference", "cbc:LineID")),
	required("UBL-SR-36", "BG-26", "A line has at most one period.", atMost(1, inLines(), "cac:InvoicePeriod")),
	required("UBL-SR-37", "BT-147", "A price has at most one discount.", atMost(1, inLines(), "cac:Price", tagCharge, "cbc:Amount")),
	required("UBL-SR-39", "BT-11", "There is at most one project.", atMost(1, document, "cac:ProjectReference", "cbc:ID")),
	required("UBL-SR-40", "BT-45", "The buyer has at most one trade name.", atMost(1, document, tagBuyer, tagParty, "cac:PartyName", "cbc:Name")),
	required("UBL-SR-42", "BG-4", "The seller has at most two tax registrations.", atMost(2, at(tagSeller, tagParty), "cac:PartyTaxScheme")),
	required("UBL-SR-43", "BT-18", "Only the identifier of an invoiced object has a scheme.", each(at("cac:AdditionalDocumentReference"), hasObjectScheme)),
	required("UBL-SR-44", "BT-83", "All payment instructions have the same reference.", equalValues("cbc:PaymentID")),
	required("UBL-SR-45", "BT-9", "There is at most one due date.", atMost(1, document, tagMeans, "cbc:PaymentDueDate")),
	required("UBL-SR-47", "BT-81", "All payment instructions have the same payment means.", equalValues("cbc:PaymentMeansCode")),
	required("UBL-SR-48", "BT-151", "A line has exactly one VAT category.", each(inLines(), func(line *Element) bool {
		return len(line.All("cac:Item", "cac:ClassifiedTaxCategory")) == 1
	})),
	required("UBL-SR-49", "BT-8", "There is at most one tax point date code.", atMost(1, document, "cac:InvoicePeriod", "cbc:DescriptionCode")),
	required("UBL-SR-50", "BT-154", "An item has at most one description.", atMost(1, inLines(), "cac:Item", "cbc:Description")),
	required("UBL-SR-51", "", "An address has at most one third line.", atMost(1, anywhereOf(tagAddress, "cac:Address"), "cac:AddressLine")),
	required("UBL-SR-52", "BT-128", "A line refers to at most one document.", atMost(1, inLines(), "cac:DocumentReference")),
	required("UBL-SR-53", "BT-31", "A tax registration has an identifier and a scheme.", each(anywhere("cac:PartyTaxScheme"), func(e *Element) bool {
		return has(e, "cac:TaxScheme", "cbc:ID") && has(e, "cbc:CompanyID")
	})),
	required("UBL-SR-54", "BG-18", "There is at most one payment card.", atMost(1, document, tagMeans, "cac:CardAccount")),
	required("UBL-SR-55", "BG-19", "There is at most one direct debit mandate.", atMost(1, document, tagMeans, "cac:PaymentMandate")),
	required("UBL-SR-56", "BT-17", "There is at most one reference to a tender.", atMost(1, document, "cac:OriginatorDocumentReference", "cbc:ID")),
}

// single makes the check that a scope has at most one element.
func single(s scope) check {
	return func(r Rule, root *Element) (out []fault.Violation) {
		if found := s(root); len(found) > 1 {
			out = append(out, r.violation(found[1]))
		}
		return out
	}
}

// equalValues makes the check that all elements with a tag have the same value.
func equalValues(tag string) check {
	return func(r Rule, root *Element) []fault.Violation {
		found := anywhere(tag)(root)
		for _, e := range found {
			if e.Text != found[0].Text {
				return []fault.Violation{r.violation(e)}
			}
		}
		return nil
	}
}

func isNotSEPA(e *Element) bool { return !strings.EqualFold(e.Attribute("schemeID"), "SEPA") }

// hasObjectScheme reports whether a supporting document is an invoiced object, or has
// neither scheme nor type code.
func hasObjectScheme(e *Element) bool {
	code := e.Value("cbc:DocumentTypeCode")
	return code == invoicedObject || e.Parent.Name == "CreditNote" && code == "50" ||
		e.Find("cbc:ID").Attribute("schemeID") == "" && e.Find("cbc:DocumentTypeCode") == nil
}
