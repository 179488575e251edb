package einvoice

import (
	"strings"

	"github.com/erpbackbone/backbone/adapters/xmltree"
)

// Namespaces of UN/CEFACT Cross Industry Invoice, release D16B.
const (
	namespaceInvoiceCII = "urn:un:unece:uncefact:data:standard:CrossIndustryInvoice:100"
	namespaceReusable   = "urn:un:unece:uncefact:data:standard:ReusableAggregateBusinessInformationEntity:100"
	namespaceTypes      = "urn:un:unece:uncefact:data:standard:UnqualifiedDataType:100"
)

// convertCII makes the UBL tree with the same business terms as a CII document, so that one
// set of rules and one mapping serve both syntaxes. The type code decides the root, as CII
// has one root for invoices and credit notes. Every element knows its origin; paths and lines
// in findings are those of the CII document. An element that is repeated stays so, and is
// refused like a repeated one in UBL.
func convertCII(source *Element) *Element {
	exchanged := source.Find("rsm:ExchangedDocument")
	name := "Invoice"
	if _, credit := bookings["CreditNote"][exchanged.Value("ram:TypeCode")]; credit {
		name = "CreditNote"
	}
	root := &Element{Space: NamespaceInvoice, Name: name, Tag: name, Line: source.Line, Origin: source}
	if name == "CreditNote" {
		root.Space = NamespaceCreditNote
	}
	trade := source.Find("rsm:SupplyChainTradeTransaction")
	settlement := trade.Find("ram:ApplicableHeaderTradeSettlement")
	c := ciiConverter{currency: settlement.Value("ram:InvoiceCurrencyCode")}
	c.copy(root, "cbc:CustomizationID", source, "rsm:ExchangedDocumentContext", "ram:GuidelineSpecifiedDocumentContextParameter", "ram:ID")
	c.header(root, exchanged)
	c.settlement(root, settlement)
	c.agreement(root, trade.Find("ram:ApplicableHeaderTradeAgreement"))
	c.delivery(root, trade.Find("ram:ApplicableHeaderTradeDelivery"))
	for _, e := range trade.All("ram:IncludedSupplyChainTradeLineItem") {
		c.line(root, e)
	}
	c.repeated(root, "cbc:ID", source.All("rsm:ExchangedDocument"))
	c.repeated(root, tagTotals, source.All("rsm:SupplyChainTradeTransaction"))
	c.repeated(root, tagTotals, trade.All("ram:ApplicableHeaderTradeSettlement"))
	c.repeated(root, tagSeller, trade.All("ram:ApplicableHeaderTradeAgreement"))
	return root
}

// ciiConverter adds UBL elements for those of CII.
type ciiConverter struct {
	currency string // of the document; CII amounts name none
}

// add adds an element with the text and attributes of its origin.
func (c ciiConverter) add(parent *Element, tag string, origin *Element) *Element {
	prefix, name, _ := strings.Cut(tag, ":")
	e := &Element{
		Space: NamespaceAggregate, Name: name, Tag: tag, Parent: parent, Line: origin.Line,
		Attributes: origin.Attributes, Content: origin.Content, Origin: origin,
	}
	if prefix == "cbc" {
		e.Space, e.Text, e.Cleaned = NamespaceBasic, origin.Text, origin.Cleaned
	}
	parent.Children = append(parent.Children, e)
	return e
}

// repeated adds an element that may occur only once for each section after the first, so that
// the document is refused. Only first sections are converted.
func (c ciiConverter) repeated(root *Element, tag string, sections []*Element) {
	for i, e := range sections {
		if i > 0 {
			c.add(root, tag, e)
		}
	}
}

// copy adds an element for each one down a path.
func (c ciiConverter) copy(parent *Element, tag string, from *Element, path ...string) {
	for _, origin := range from.All(path...) {
		e := c.add(parent, tag, origin)
		if strings.HasSuffix(tag, "Amount") && e.Attribute("currencyID") == "" {
			e.Attributes = []xmltree.Attribute{{Name: "currencyID", Value: c.currency}}
		}
	}
}

// copyIn adds a group with one element for each element down a path.
func (c ciiConverter) copyIn(parent *Element, group, tag string, from *Element, path ...string) {
	for _, origin := range from.All(path...) {
		c.add(c.add(parent, group, origin), tag, origin)
	}
}

// copyDate adds a date for each date of CII, in the form of UBL.
func (c ciiConverter) copyDate(parent *Element, tag string, from *Element, path ...string) {
	for _, origin := range from.All(path...) {
		c.add(parent, tag, origin).Text = isoDate(origin)
	}
}

// isoDate rewrites a date of format 102, as 20260331. Mapping refuses any other text.
func isoDate(e *Element) string {
	s, format := e.Text, e.Attribute("format")
	if len(s) != 8 || !allDigits(s) || format != "" && format != "102" {
		return s
	}
	return s[:4] + "-" + s[4:6] + "-" + s[6:]
}

func (c ciiConverter) header(root, exchanged *Element) {
	c.copy(root, "cbc:ID", exchanged, "ram:ID")
	c.copyDate(root, "cbc:IssueDate", exchanged, "ram:IssueDateTime", "udt:DateTimeString")
	c.copy(root, typeCodeTag(root), exchanged, "ram:TypeCode")
	for _, note := range exchanged.All("ram:IncludedNote") {
		e := c.add(root, "cbc:Note", note)
		e.Text = note.Value("ram:Content")
		if subject := note.Value("ram:SubjectCode"); subject != "" {
			e.Text = "#" + subject + "#" + e.Text
		}
	}
}

func (c ciiConverter) agreement(root, from *Element) {
	c.copy(root, "cbc:BuyerReference", from, "ram:BuyerReference")
	c.copyIn(root, "cac:OrderReference", "cbc:ID", from, "ram:BuyerOrderReferencedDocument", "ram:IssuerAssignedID")
	c.copyIn(root, "cac:ContractDocumentReference", "cbc:ID", from, "ram:ContractReferencedDocument", "ram:IssuerAssignedID")
	c.copyIn(root, "cac:ProjectReference", "cbc:ID", from, "ram:SpecifiedProcuringProject", "ram:ID")
	for _, origin := range from.All("ram:AdditionalReferencedDocument") {
		c.additionalDocument(root, origin)
	}
	for _, party := range []struct{ ubl, cii string }{{tagSeller, "ram:SellerTradeParty"}, {tagBuyer, "ram:BuyerTradeParty"}} {
		for _, origin := range from.All(party.cii) {
			c.party(c.add(c.add(root, party.ubl, origin), tagParty, origin), origin)
		}
	}
	for _, origin := range from.All("ram:SellerTaxRepresentativeTradeParty") {
		e := c.add(root, tagRepresentative, origin)
		c.copyIn(e, "cac:PartyName", "cbc:Name", origin, "ram:Name")
		c.address(e, tagAddress, origin)
		c.taxRegistrations(e, origin)
	}
}

// The type codes of documents that are referred to: a tender (BT-17) is no supporting
// document.
const (
	typeTender     = "50"
	typeSupporting = "916"
)

func (c ciiConverter) additionalDocument(root, origin *Element) {
	code := origin.Value("ram:TypeCode")
	if code == typeTender {
		c.copyIn(root, "cac:OriginatorDocumentReference", "cbc:ID", origin, "ram:IssuerAssignedID")
		return
	}
	e := c.add(root, "cac:AdditionalDocumentReference", origin)
	c.copy(e, "cbc:ID", origin, "ram:IssuerAssignedID")
	if code != typeSupporting {
		c.copy(e, "cbc:DocumentTypeCode", origin, "ram:TypeCode")
	}
	if scheme := origin.Value("ram:ReferenceTypeCode"); scheme != "" {
		if id := e.Find("cbc:ID"); id != nil {
			id.Attributes = []xmltree.Attribute{{Name: "schemeID", Value: scheme}}
		}
	}
	c.copyIn(e, "cac:Attachment", "cbc:EmbeddedDocumentBinaryObject", origin, "ram:AttachmentBinaryObject")
}

func (c ciiConverter) party(e, origin *Element) {
	c.copy(e, "cbc:EndpointID", origin, "ram:URIUniversalCommunication", "ram:URIID")
	c.copyIn(e, "cac:PartyIdentification", "cbc:ID", origin, "ram:ID")
	c.copyIn(e, "cac:PartyIdentification", "cbc:ID", origin, "ram:GlobalID")
	c.copyIn(e, "cac:PartyName", "cbc:Name", origin, "ram:SpecifiedLegalOrganization", "ram:TradingBusinessName")
	c.address(e, tagAddress, origin)
	c.taxRegistrations(e, origin)
	legal := c.add(e, "cac:PartyLegalEntity", origin)
	c.copy(legal, "cbc:RegistrationName", origin, "ram:Name")
	c.copy(legal, "cbc:CompanyID", origin, "ram:SpecifiedLegalOrganization", "ram:ID")
}

func (c ciiConverter) address(parent *Element, tag string, party *Element) {
	for _, origin := range party.All("ram:PostalTradeAddress") {
		e := c.add(parent, tag, origin)
		c.copy(e, "cbc:StreetName", origin, "ram:LineOne")
		c.copy(e, "cbc:AdditionalStreetName", origin, "ram:LineTwo")
		c.copyIn(e, "cac:AddressLine", "cbc:Line", origin, "ram:LineThree")
		c.copy(e, "cbc:CityName", origin, "ram:CityName")
		c.copy(e, "cbc:PostalZone", origin, "ram:PostcodeCode")
		c.copy(e, "cbc:CountrySubentity", origin, "ram:CountrySubDivisionName")
		c.copyIn(e, "cac:Country", "cbc:IdentificationCode", origin, "ram:CountryID")
	}
}

func (c ciiConverter) taxRegistrations(parent, party *Element) {
	for _, origin := range party.All("ram:SpecifiedTaxRegistration", "ram:ID") {
		e := c.add(parent, "cac:PartyTaxScheme", origin)
		c.add(e, "cbc:CompanyID", origin)
		scheme := c.add(c.add(e, "cac:TaxScheme", origin), "cbc:ID", origin)
		scheme.Attributes = nil
		if scheme.Text = origin.Attribute("schemeID"); scheme.Text == "VA" {
			scheme.Text = "VAT"
		}
	}
}

func (c ciiConverter) delivery(root, from *Element) {
	c.copyIn(root, "cac:DespatchDocumentReference", "cbc:ID", from, "ram:DespatchAdviceReferencedDocument", "ram:IssuerAssignedID")
	c.copyIn(root, "cac:ReceiptDocumentReference", "cbc:ID", from, "ram:ReceivingAdviceReferencedDocument", "ram:IssuerAssignedID")
	dates, places := from.All("ram:ActualDeliverySupplyChainEvent", "ram:OccurrenceDateTime", "udt:DateTimeString"), from.All("ram:ShipToTradeParty")
	if len(dates)+len(places) == 0 {
		return
	}
	e := c.add(root, "cac:Delivery", from)
	c.copyDate(e, "cbc:ActualDeliveryDate", from, "ram:ActualDeliverySupplyChainEvent", "ram:OccurrenceDateTime", "udt:DateTimeString")
	for _, origin := range places {
		place := c.add(e, "cac:DeliveryLocation", origin)
		c.copy(place, "cbc:ID", origin, "ram:GlobalID")
		c.address(place, "cac:Address", origin)
	}
}

// taxPointCodes are the codes of UNTDID 2475 that CII has for those of UNTDID 2005 in UBL.
var taxPointCodes = map[string]string{"5": "3", "29": "35", "72": "432"}

func (c ciiConverter) settlement(root, from *Element) {
	c.copy(root, tagCurrency, from, "ram:InvoiceCurrencyCode")
	c.copy(root, "cbc:TaxCurrencyCode", from, "ram:TaxCurrencyCode")
	if accounts := from.All("ram:ReceivableSpecifiedTradeAccountingAccount", "ram:ID"); len(accounts) > 0 {
		c.add(root, "cbc:AccountingCost", accounts[0])
	}
	c.copyDate(root, "cbc:DueDate", from, "ram:SpecifiedTradePaymentTerms", "ram:DueDateDateTime", "udt:DateTimeString")
	c.copyIn(root, "cac:PaymentTerms", "cbc:Note", from, "ram:SpecifiedTradePaymentTerms", "ram:Description")
	for _, origin := range from.All("ram:InvoiceReferencedDocument") {
		c.copyIn(c.add(root, "cac:BillingReference", origin), "cac:InvoiceDocumentReference", "cbc:ID", origin, "ram:IssuerAssignedID")
	}
	c.period(root, from)
	if dates := from.All("ram:ApplicableTradeTax", "ram:TaxPointDate", "udt:DateString"); len(dates) > 0 {
		c.add(root, "cbc:TaxPointDate", dates[0]).Text = isoDate(dates[0])
	}
	if codes := from.All("ram:ApplicableTradeTax", "ram:DueDateTypeCode"); len(codes) > 0 {
		period := root.Find("cac:InvoicePeriod")
		if period == nil {
			period = c.add(root, "cac:InvoicePeriod", codes[0])
		}
		e := c.add(period, "cbc:DescriptionCode", codes[0])
		if code, known := taxPointCodes[e.Text]; known {
			e.Text = code
		}
	}
	for _, origin := range from.All("ram:PayeeTradeParty") {
		e := c.add(root, tagPayee, origin)
		c.copyIn(e, "cac:PartyIdentification", "cbc:ID", origin, "ram:ID")
		c.copyIn(e, "cac:PartyIdentification", "cbc:ID", origin, "ram:GlobalID")
		c.copyIn(e, "cac:PartyName", "cbc:Name", origin, "ram:Name")
		c.copyIn(e, "cac:PartyLegalEntity", "cbc:CompanyID", origin, "ram:SpecifiedLegalOrganization", "ram:ID")
	}
	for _, origin := range from.All("ram:SpecifiedTradeSettlementPaymentMeans") {
		e := c.add(root, tagMeans, origin)
		c.copy(e, "cbc:PaymentMeansCode", origin, "ram:TypeCode")
		if reference := from.Find("ram:PaymentReference"); reference != nil {
			c.add(e, "cbc:PaymentID", reference)
		}
		c.copyIn(e, "cac:CardAccount", "cbc:PrimaryAccountNumberID", origin, "ram:ApplicableTradeSettlementFinancialCard", "ram:ID")
		c.copyIn(e, "cac:PayeeFinancialAccount", "cbc:ID", origin, "ram:PayeePartyCreditorFinancialAccount", "ram:IBANID")
		c.copyIn(e, "cac:PayeeFinancialAccount", "cbc:ID", origin, "ram:PayeePartyCreditorFinancialAccount", "ram:ProprietaryID")
	}
	c.charges(root, from)
	c.totals(root, from)
}

func (c ciiConverter) period(parent, from *Element) {
	for _, origin := range from.All("ram:BillingSpecifiedPeriod") {
		e := c.add(parent, "cac:InvoicePeriod", origin)
		c.copyDate(e, "cbc:StartDate", origin, "ram:StartDateTime", "udt:DateTimeString")
		c.copyDate(e, "cbc:EndDate", origin, "ram:EndDateTime", "udt:DateTimeString")
	}
}

// charges adds the allowances and charges of the document or of a line.
func (c ciiConverter) charges(parent, from *Element) {
	for _, origin := range from.All("ram:SpecifiedTradeAllowanceCharge") {
		e := c.add(parent, tagCharge, origin)
		c.copy(e, "cbc:ChargeIndicator", origin, "ram:ChargeIndicator", "udt:Indicator")
		c.copy(e, "cbc:AllowanceChargeReasonCode", origin, "ram:ReasonCode")
		c.copy(e, "cbc:AllowanceChargeReason", origin, "ram:Reason")
		c.copy(e, tagMultiplier, origin, "ram:CalculationPercent")
		c.copy(e, "cbc:Amount", origin, "ram:ActualAmount")
		c.copy(e, "cbc:BaseAmount", origin, "ram:BasisAmount")
		for _, tax := range origin.All("ram:CategoryTradeTax") {
			c.category(e, "cac:TaxCategory", tax)
		}
	}
}

func (c ciiConverter) category(parent *Element, tag string, origin *Element) {
	e := c.add(parent, tag, origin)
	c.copy(e, "cbc:ID", origin, "ram:CategoryCode")
	c.copy(e, "cbc:Percent", origin, "ram:RateApplicablePercent")
	c.copy(e, "cbc:TaxExemptionReasonCode", origin, "ram:ExemptionReasonCode")
	c.copy(e, "cbc:TaxExemptionReason", origin, "ram:ExemptionReason")
	c.copyIn(e, "cac:TaxScheme", "cbc:ID", origin, "ram:TypeCode")
}

// totals adds the VAT totals and the totals of the document. The breakdown belongs to the
// VAT total in the document currency. If there is none, the VAT total is 0, as the standard
// makes it optional.
func (c ciiConverter) totals(root, from *Element) {
	summations := from.All("ram:SpecifiedTradeSettlementHeaderMonetarySummation")
	c.repeated(root, tagTotals, summations)
	var own *Element
	if len(summations) > 0 {
		own = c.summation(root, summations[0])
	}
	taxes := from.All("ram:ApplicableTradeTax")
	if own == nil && len(taxes) > 0 {
		own = c.add(root, tagTaxTotal, from)
	}
	for _, origin := range taxes {
		e := c.add(own, tagSubtotal, origin)
		c.copy(e, "cbc:TaxableAmount", origin, "ram:BasisAmount")
		c.copy(e, tagTaxAmount, origin, "ram:CalculatedAmount")
		c.category(e, "cac:TaxCategory", origin)
	}
}

// summation adds the totals of the document and returns the VAT total in its currency.
func (c ciiConverter) summation(root, sums *Element) (own *Element) {
	for _, origin := range sums.All("ram:TaxTotalAmount") {
		e := c.add(root, tagTaxTotal, origin)
		amount := c.add(e, tagTaxAmount, origin)
		if amount.Attribute("currencyID") == "" {
			amount.Attributes = []xmltree.Attribute{{Name: "currencyID", Value: c.currency}}
		}
		if own == nil && amount.Attribute("currencyID") == c.currency {
			own = e
		}
	}
	if own == nil {
		own = c.add(root, tagTaxTotal, sums)
		zero := c.add(own, tagTaxAmount, sums)
		zero.Text, zero.Attributes = "0", []xmltree.Attribute{{Name: "currencyID", Value: c.currency}}
	}
	e := c.add(root, tagTotals, sums)
	for _, t := range []struct{ ubl, cii string }{
		{tagLineNet, "ram:LineTotalAmount"}, {tagAllowances, "ram:AllowanceTotalAmount"}, {tagCharges, "ram:ChargeTotalAmount"},
		{tagExclusive, "ram:TaxBasisTotalAmount"}, {tagInclusive, "ram:GrandTotalAmount"}, {tagPrepaid, "ram:TotalPrepaidAmount"},
		{tagRounding, "ram:RoundingAmount"}, {tagPayable, "ram:DuePayableAmount"},
	} {
		c.copy(e, t.ubl, sums, t.cii)
	}
	return own
}

func (c ciiConverter) line(root, from *Element) {
	e := c.add(root, lineTag(root), from)
	agreement, settlement := from.Find("ram:SpecifiedLineTradeAgreement"), from.Find("ram:SpecifiedLineTradeSettlement")
	c.copy(e, "cbc:ID", from, "ram:AssociatedDocumentLineDocument", "ram:LineID")
	quantity := "cbc:InvoicedQuantity"
	if root.Name == "CreditNote" {
		quantity = "cbc:CreditedQuantity"
	}
	c.copy(e, quantity, from, "ram:SpecifiedLineTradeDelivery", "ram:BilledQuantity")
	c.copy(e, tagLineNet, from, "ram:SpecifiedLineTradeSettlement", "ram:SpecifiedTradeSettlementLineMonetarySummation", "ram:LineTotalAmount")
	if accounts := settlement.All("ram:ReceivableSpecifiedTradeAccountingAccount", "ram:ID"); len(accounts) > 0 {
		c.add(e, "cbc:AccountingCost", accounts[0])
	}
	c.period(e, settlement)
	c.copyIn(e, "cac:OrderLineReference", "cbc:LineID", agreement, "ram:BuyerOrderReferencedDocument", "ram:LineID")
	c.charges(e, settlement)
	products := from.All("ram:SpecifiedTradeProduct")
	if len(products) > 0 {
		c.item(e, products[0], settlement.All("ram:ApplicableTradeTax"))
	}
	c.repeated(e, "cac:Item", products)
	c.price(e, from)
}

func (c ciiConverter) item(line, origin *Element, taxes []*Element) {
	e := c.add(line, "cac:Item", origin)
	c.copy(e, "cbc:Name", origin, "ram:Name")
	c.copyIn(e, "cac:BuyersItemIdentification", "cbc:ID", origin, "ram:BuyerAssignedID")
	c.copyIn(e, "cac:SellersItemIdentification", "cbc:ID", origin, "ram:SellerAssignedID")
	c.copyIn(e, "cac:StandardItemIdentification", "cbc:ID", origin, "ram:GlobalID")
	c.copyIn(e, "cac:OriginCountry", "cbc:IdentificationCode", origin, "ram:OriginTradeCountry", "ram:ID")
	c.copyIn(e, "cac:CommodityClassification", "cbc:ItemClassificationCode", origin, "ram:DesignatedProductClassification", "ram:ClassCode")
	for _, tax := range taxes {
		c.category(e, "cac:ClassifiedTaxCategory", tax)
	}
	for _, property := range origin.All("ram:ApplicableProductCharacteristic") {
		p := c.add(e, "cac:AdditionalItemProperty", property)
		c.copy(p, "cbc:Name", property, "ram:Description")
		c.copy(p, "cbc:Value", property, "ram:Value")
	}
}

// price adds the net price, and the gross price with its discount.
func (c ciiConverter) price(line, from *Element) {
	gross := from.Find("ram:SpecifiedLineTradeAgreement", "ram:GrossPriceProductTradePrice")
	prices := from.All("ram:SpecifiedLineTradeAgreement", "ram:NetPriceProductTradePrice")
	c.repeated(line, "cac:Price", prices)
	for _, net := range prices[:min(1, len(prices))] {
		e := c.add(line, "cac:Price", net)
		c.copy(e, "cbc:PriceAmount", net, "ram:ChargeAmount")
		c.copy(e, "cbc:BaseQuantity", net, "ram:BasisQuantity")
		if gross == nil {
			continue
		}
		if net.Find("ram:BasisQuantity") == nil {
			c.copy(e, "cbc:BaseQuantity", gross, "ram:BasisQuantity")
		}
		discount := c.add(e, tagCharge, gross)
		c.add(discount, "cbc:ChargeIndicator", gross).Text = "false"
		if given := gross.Find("ram:AppliedTradeAllowanceCharge", "ram:ChargeIndicator", "udt:Indicator"); given != nil {
			discount.Find("cbc:ChargeIndicator").Text = given.Text
		}
		c.copy(discount, "cbc:Amount", gross, "ram:AppliedTradeAllowanceCharge", "ram:ActualAmount")
		c.copy(discount, "cbc:BaseAmount", gross, "ram:ChargeAmount")
	}
}
