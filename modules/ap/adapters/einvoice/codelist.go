package einvoice

import (
	"embed"
	"fmt"
	"strings"
)

//go:embed codelist/*.txt
var codeFiles embed.FS

// codeList is a list of codes that the standard allows for a value. The lists are those of
// the validation artefacts of EN 16931, release 1.3.16.
type codeList map[string]bool

func (l codeList) contains(code string) bool { return l[code] }

// loadCodes reads codes separated by blanks from codelist/<name>.txt.
func loadCodes(name string) codeList {
	text, err := codeFiles.ReadFile("codelist/" + name + ".txt")
	if err != nil {
		panic(fmt.Sprintf("einvoice: the code list %s is not embedded: %v", name, err))
	}
	return codes(string(text))
}

func codes(text string) codeList {
	list := codeList{}
	for code := range strings.FieldsSeq(text) {
		list[code] = true
	}
	return list
}

var (
	countries         = loadCodes("country")           // ISO 3166-1, with 1A for Kosovo and XI for Northern Ireland
	currencies        = loadCodes("currency")          // ISO 4217
	identifierSchemes = loadCodes("identifier-scheme") // ISO 6523
	vatCategoryCodes  = codes("AE L M E S Z G O K B")  // UNCL 5305, restricted
	mimeTypes         = codes("application/pdf image/png image/jpeg text/csv " +
		"application/vnd.openxmlformats-officedocument.spreadsheetml.sheet application/vnd.oasis.opendocument.spreadsheet")
)

// invoicedObject is the type code of a reference to the object that is invoiced (BT-18).
const invoicedObject = "130"

// amountsWithCurrency are the amounts whose currency must be a code of the list.
var amountsWithCurrency = []string{
	"cbc:Amount", "cbc:BaseAmount", "cbc:PriceAmount", tagTaxAmount, "cbc:TaxableAmount", tagLineNet, tagExclusive,
	tagInclusive, tagAllowances, tagCharges, tagPrepaid, tagRounding, tagPayable,
}

var codeRules = []Rule{
	required("BR-CL-01", "BT-3", "The type code is one for invoices or for credit notes, as the root element says.", each(document, hasKnownType)),
	required("BR-CL-03", "", "The currency of an amount is a code of ISO 4217.", each(everyAmount, hasKnownCurrency)),
	required("BR-CL-04", "BT-5", "The currency of an invoice is a code of ISO 4217.", each(anywhere(tagCurrency), isOneOf(currencies))),
	required("BR-CL-05", "BT-6", "The tax currency is a code of ISO 4217.", each(anywhere("cbc:TaxCurrencyCode"), isOneOf(currencies))),
	required("BR-CL-06", "BT-8", "The tax point date code is one of UNTDID 2005: 3, 35 or 432.", each(anywhere("cac:InvoicePeriod", "cbc:DescriptionCode"), isOneOf(loadCodes("tax-point")))),
	required("BR-CL-07", "BT-18", "The scheme of an invoiced object is a code of UNTDID 1153.", each(invoicedObjects, attributeIsOneOf("schemeID", loadCodes("reference-scheme")))),
	required("BR-CL-08", "BT-21", "The subject of a note is a code of UNTDID 4451.", each(at("cbc:Note"), hasKnownSubject)),
	required("BR-CL-10", "", "The scheme of a party identifier is a code of ISO 6523, or SEPA.", each(anywhere("cac:PartyIdentification", "cbc:ID"), isPartyScheme)),
	required("BR-CL-11", "", "The scheme of a registration identifier is a code of ISO 6523.", each(anywhere("cac:PartyLegalEntity", "cbc:CompanyID"), attributeIsOneOf("schemeID", identifierSchemes))),
	required("BR-CL-13", "BT-158", "The list of an item's classification is a code of UNTDID 7143.", each(anywhere("cac:CommodityClassification", "cbc:ItemClassificationCode"), attributeIsOneOf("listID", loadCodes("item-scheme")))),
	required("BR-CL-14", "", "A country is a code of ISO 3166-1.", each(anywhere("cac:Country", "cbc:IdentificationCode"), isOneOf(countries))),
	required("BR-CL-15", "BT-159", "The country of origin is a code of ISO 3166-1.", each(anywhere("cac:OriginCountry", "cbc:IdentificationCode"), isOneOf(countries))),
	required("BR-CL-16", "BT-81", "The payment means is a code of UNCL 4461.", each(anywhere(tagMeans, "cbc:PaymentMeansCode"), isOneOf(loadCodes("payment-means")))),
	required("BR-CL-17", "BT-118", "A VAT category of the document is one of the standard's codes of UNCL 5305.", each(anywhere("cac:TaxCategory", "cbc:ID"), isOneOf(vatCategoryCodes))),
	required("BR-CL-18", "BT-151", "A VAT category of a line is one of the standard's codes of UNCL 5305.", each(anywhere("cac:ClassifiedTaxCategory", "cbc:ID"), isOneOf(vatCategoryCodes))),
	required("BR-CL-19", "BT-98", "The reason code of an allowance is one of UNCL 5189.", each(anywhere(tagCharge).where(isAllowance).below("cbc:AllowanceChargeReasonCode"), isOneOf(loadCodes("allowance-reason")))),
	required("BR-CL-20", "BT-105", "The reason code of a charge is one of UNCL 7161.", each(anywhere(tagCharge).where(isCharge).below("cbc:AllowanceChargeReasonCode"), isOneOf(loadCodes("charge-reason")))),
	required("BR-CL-21", "BT-157", "The scheme of an item's standard identifier is a code of ISO 6523.", each(anywhere("cac:StandardItemIdentification", "cbc:ID"), attributeIsOneOf("schemeID", identifierSchemes))),
	required("BR-CL-22", "BT-121", "The code of an exemption is one of the list VATEX.", each(anywhere("cbc:TaxExemptionReasonCode"), isExemptionCode(loadCodes("exemption-reason")))),
	required("BR-CL-23", "BT-130", "A unit is a code of UN/ECE Recommendation 20 or 21.", each(anywhereOf("cbc:InvoicedQuantity", "cbc:BaseQuantity", "cbc:CreditedQuantity"), attributeIsOneOf("unitCode", units))),
	required("BR-CL-24", "BT-125", "The type of an embedded file is PDF, PNG, JPEG, CSV, XLSX or ODS.", each(anywhere("cbc:EmbeddedDocumentBinaryObject"), attributeIsOneOf("mimeCode", mimeTypes))),
	required("BR-CL-25", "", "The scheme of an electronic address is a code of the list EAS.", each(anywhere("cbc:EndpointID"), attributeIsOneOf("schemeID", loadCodes("endpoint-scheme")))),
	required("BR-CL-26", "BT-71", "The scheme of a place of delivery is a code of ISO 6523.", each(anywhere("cac:DeliveryLocation", "cbc:ID"), attributeIsOneOf("schemeID", identifierSchemes))),
}

var units = loadCodes("unit")

// IsUnit reports whether a text is a code of UN/ECE Recommendation 20 or 21.
func IsUnit(code string) bool { return units.contains(code) }

var (
	everyAmount     = anywhereOf(amountsWithCurrency...)
	invoicedObjects = anywhereOf("cac:AdditionalDocumentReference", "cac:DocumentReference").
			where(func(e *Element) bool { return e.Value("cbc:DocumentTypeCode") == invoicedObject }).below("cbc:ID")
)

func isOneOf(list codeList) func(*Element) bool {
	return func(e *Element) bool { return list.contains(e.Text) }
}

// attributeIsOneOf reports whether an attribute is a code of the list, or absent.
func attributeIsOneOf(name string, list codeList) func(*Element) bool {
	return func(e *Element) bool {
		value := e.Attribute(name)
		return value == "" || list.contains(value)
	}
}

func hasKnownCurrency(e *Element) bool { return currencies.contains(e.Attribute("currencyID")) }

func isPartyScheme(e *Element) bool {
	scheme := e.Attribute("schemeID")
	return scheme == "" || scheme == "SEPA" && isCreditor(e) || identifierSchemes.contains(scheme)
}

// isCreditor reports whether an element belongs to the seller or the payee, who alone can
// have a creditor identifier of SEPA.
func isCreditor(e *Element) bool {
	for ; e != nil; e = e.Parent {
		if e.Tag == tagSeller || e.Tag == tagPayee {
			return true
		}
	}
	return false
}

var (
	invoiceTypes    = loadCodes("invoice-type")     // UNTDID 1001, for an Invoice
	creditNoteTypes = loadCodes("credit-note-type") // UNTDID 1001, for a CreditNote
)

// hasKnownType reports whether a document has a type code of its root's list, or none.
func hasKnownType(root *Element) bool {
	code := root.Value(typeCodeTag(root))
	if root.Name == "CreditNote" {
		return code == "" || creditNoteTypes.contains(code)
	}
	return code == "" || invoiceTypes.contains(code)
}

func isExemptionCode(list codeList) func(*Element) bool {
	return func(e *Element) bool { return list.contains(strings.ToUpper(e.Text)) }
}

var noteSubjects = loadCodes("note-subject")

// hasKnownSubject reports whether the subject that a note may begin with, as in #AAI#, is a
// code of the list.
func hasKnownSubject(note *Element) bool {
	_, rest, _ := strings.Cut(note.Text, "#")
	subject, _, found := strings.Cut(rest, "#")
	return !found || len(subject) != 3 || noteSubjects.contains(subject)
}
