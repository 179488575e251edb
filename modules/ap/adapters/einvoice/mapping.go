package einvoice

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/erpbackbone/backbone/domain/country"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/modules/ap/contract"
)

// mapDocument maps the tree to a Document. A value that does not fit is reported to the
// checker, and the finding refuses the document.
func mapDocument(root *Element, c *checker) Document {
	d := Document{
		Syntax:            syntaxOf(root),
		Root:              root.Name,
		TypeCode:          c.text(root.Find(typeCodeTag(root)), "BT-3", maxCode),
		Number:            c.text(root.Find("cbc:ID"), "BT-1", maxNumber),
		Currency:          root.Value(tagCurrency),
		PaymentTerms:      root.Value("cac:PaymentTerms", "cbc:Note"),
		TaxCurrency:       root.Value("cbc:TaxCurrencyCode"),
		BuyerReference:    c.text(root.Find("cbc:BuyerReference"), "BT-10", maxReference),
		ProjectReference:  c.text(root.Find("cac:ProjectReference", "cbc:ID"), "BT-11", maxReference),
		ContractReference: c.text(root.Find("cac:ContractDocumentReference", "cbc:ID"), "BT-12", maxReference),
		OrderReference:    c.text(root.Find("cac:OrderReference", "cbc:ID"), "BT-13", maxReference),
		ReceiptReference:  c.text(root.Find("cac:ReceiptDocumentReference", "cbc:ID"), "BT-15", maxReference),
		AccountingCost:    c.text(root.Find("cbc:AccountingCost"), "BT-19", maxReference),
		Supplier:          readSupplier(root),
		Buyer:             readBuyer(root),
		PayeeDiffers:      payeeDiffers(root),
		Totals:            readTotals(root),
	}
	booked := c.book(root)
	d.Kind, d.DocumentType = booked.kind, booked.documentType
	if date, ok := c.date(root.Find("cbc:IssueDate"), "BT-2"); ok {
		d.IssueDate = date
	}
	d.DueDate = readDueDate(root, c)
	for _, e := range root.All("cac:BillingReference", "cac:InvoiceDocumentReference", "cbc:ID") {
		if id := c.text(e, "BT-25", maxReference); id != "" {
			d.PrecedingInvoices = append(d.PrecedingInvoices, id)
		}
	}
	c.checkSupplier(root, d.Supplier)
	if d.Supplier.NaturalPerson() {
		d.Supplier.Person = Person{name: d.Supplier.Name(), address: readAddress(root)}
		d.Supplier.LegalName, d.Supplier.TradeName = "", ""
	}
	readPayment(root, c, &d)
	readTax(root, c, &d)
	readLines(root, c, &d)
	readAttachments(root, c, &d)
	d.SwapNegative()
	return d
}

func syntaxOf(root *Element) string {
	if root.Origin != nil {
		return SyntaxCII
	}
	return SyntaxUBL
}

// readAddress joins the seller's address (BG-5) to one text. An address that is too long
// becomes "": it is no reason to refuse a document.
func readAddress(root *Element) string {
	at := root.Find("cac:AccountingSupplierParty", "cac:Party", "cac:PostalAddress")
	var parts []string
	for _, e := range []*Element{
		at.Find("cbc:StreetName"), at.Find("cbc:AdditionalStreetName"), at.Find("cac:AddressLine", "cbc:Line"),
		at.Find("cbc:PostalZone"), at.Find("cbc:CityName"), at.Find("cbc:CountrySubentity"),
	} {
		if s := e.Value(); s != "" {
			parts = append(parts, s)
		}
	}
	address := strings.Join(parts, ", ")
	if utf8.RuneCountInString(address) > maxAddress {
		return ""
	}
	return address
}

// readSupplier reads the seller's identifiers, names and country, and no contacts.
func readSupplier(root *Element) Supplier {
	party := root.Find("cac:AccountingSupplierParty", "cac:Party")
	s := Supplier{
		VATID:          vatIDOf(party),
		RegistrationID: party.Value("cac:PartyLegalEntity", "cbc:CompanyID"),
		LegalName:      shredding.MaskAccountNumbers(party.Value("cac:PartyLegalEntity", "cbc:RegistrationName")),
		TradeName:      shredding.MaskAccountNumbers(party.Value("cac:PartyName", "cbc:Name")),
		Country:        strings.ToUpper(party.Value("cac:PostalAddress", "cac:Country", "cbc:IdentificationCode")),
	}
	for _, id := range party.All("cac:PartyIdentification", "cbc:ID") {
		// A SEPA creditor identifier (BT-90) belongs to a direct debit mandate.
		if id.Value() != "" && !strings.EqualFold(id.Attribute("schemeID"), "SEPA") {
			s.PartyIDs = append(s.PartyIDs, id.Value())
		}
	}
	if !country.Known(s.Country) {
		s.Country = vatCountry(s.Country) // the standard has codes for Northern Ireland and Kosovo
	}
	if s.Country == "" && len(s.VATID) > 2 {
		s.Country = vatCountry(strings.ToUpper(s.VATID[:2]))
	}
	return s
}

// readBuyer reads what identifies the buyer. A text that is too long is cut: it is compared only,
// and no reason to refuse a document.
func readBuyer(root *Element) Buyer {
	party := root.Find(tagBuyer, tagParty)
	b := contract.Buyer{
		VATID:          cut(vatIDOf(party), maxReference),
		RegistrationID: cut(party.Value("cac:PartyLegalEntity", "cbc:CompanyID"), maxReference),
		EndpointID:     party.Value("cbc:EndpointID"),
	}
	if scheme := party.Find("cbc:EndpointID").Attribute("schemeID"); scheme != "" && b.EndpointID != "" {
		b.EndpointID = scheme + ":" + b.EndpointID
	}
	b.EndpointID = cut(b.EndpointID, maxName)
	for _, name := range []string{party.Value("cac:PartyLegalEntity", "cbc:RegistrationName"), party.Value("cac:PartyName", "cbc:Name")} {
		if name != "" {
			b.Names = append(b.Names, cut(name, maxName))
		}
	}
	return Buyer{b}
}

// vatIDOf is the VAT identifier of a party. Other tax schemes hold a local tax number, as BT-32,
// which is not unique across countries.
func vatIDOf(party *Element) string {
	for _, scheme := range party.All("cac:PartyTaxScheme") {
		if isVAT(scheme) && scheme.Value("cbc:CompanyID") != "" {
			return scheme.Value("cbc:CompanyID")
		}
	}
	return ""
}

// cut returns the first characters of a text.
func cut(s string, longest int) string {
	if r := []rune(s); len(r) > longest {
		return string(r[:longest])
	}
	return s
}

// vatCountry returns the ISO 3166-1 code for a VAT prefix, "" if it is none. The prefixes
// of Greece and Northern Ireland are not country codes.
func vatCountry(prefix string) string {
	switch {
	case prefix == "EL":
		return "GR"
	case prefix == "XI":
		return "GB"
	case country.Known(prefix):
		return prefix
	}
	return ""
}

// payeeDiffers reports whether the payee (BG-10) is not the seller. It compares
// identifiers, and names only if the payee has no identifier.
func payeeDiffers(root *Element) bool {
	payee := root.Find("cac:PayeeParty")
	if payee == nil {
		return false
	}
	seller := readSupplier(root)
	known := map[string]bool{compact(seller.VATID): true, compact(seller.RegistrationID): true}
	for _, id := range seller.PartyIDs {
		known[compact(id)] = true
	}
	delete(known, "")
	identified := false
	for _, path := range [][]string{{"cac:PartyIdentification", "cbc:ID"}, {"cac:PartyLegalEntity", "cbc:CompanyID"}} {
		for _, id := range payee.All(path...) {
			if id.Value() == "" {
				continue
			}
			if known[compact(id.Value())] {
				return false
			}
			identified = true
		}
	}
	name := payee.Value("cac:PartyName", "cbc:Name")
	if identified || name == "" {
		return identified
	}
	return !strings.EqualFold(name, seller.LegalName) && !strings.EqualFold(name, seller.TradeName)
}

func readDueDate(root *Element, c *checker) *event.Date {
	dates := append(root.All("cbc:DueDate"), root.All("cac:PaymentMeans", "cbc:PaymentDueDate")...)
	first := slices.IndexFunc(dates, func(e *Element) bool { return e.Value() != "" })
	if first < 0 {
		return nil
	}
	if date, ok := c.date(dates[first], "BT-9"); ok {
		return &date
	}
	return nil
}

func readPayment(root *Element, c *checker, d *Document) {
	references := root.All("cac:PaymentMeans", "cbc:PaymentID")
	if len(references) == 0 && root.Origin != nil {
		// In CII the reference needs no payment means.
		references = root.Origin.All("rsm:SupplyChainTradeTransaction", "ram:ApplicableHeaderTradeSettlement", "ram:PaymentReference")
	}
	for _, e := range references {
		if ref := c.text(e, "BT-83", maxPaymentReference); ref != "" && d.PaymentReference == "" {
			d.PaymentReference = ref
		}
	}
	seen := map[string]bool{"": true}
	for _, e := range root.All("cac:PaymentMeans", "cac:PayeeFinancialAccount", "cbc:ID") {
		c.checkLength(e, e.Value(), "BT-84", maxReference)
		if id := compact(e.Value()); !seen[id] {
			seen[id] = true
			d.PaymentAccounts.ids = append(d.PaymentAccounts.ids, id)
		}
	}
}

func readTotals(root *Element) Totals {
	t := root.Find(tagTotals)
	return Totals{
		Lines:      amount(t.Find(tagLineNet)),
		Allowances: amount(t.Find(tagAllowances)),
		Charges:    amount(t.Find(tagCharges)),
		Net:        amount(t.Find(tagExclusive)),
		Gross:      amount(t.Find(tagInclusive)),
		Prepaid:    optionalAmount(t.Find(tagPrepaid)),
		Rounding:   optionalAmount(t.Find(tagRounding)),
		Payable:    amount(t.Find(tagPayable)),
	}
}

// amount reads an amount; checkTree has reported one that is no number.
func amount(e *Element) money.Number {
	n, _ := number(e)
	return n
}

func optionalAmount(e *Element) *money.Number {
	if e.Value() == "" {
		return nil
	}
	n := amount(e)
	return &n
}

func readTax(root *Element, c *checker, d *Document) {
	if found := taxTotals(root, d.Currency); len(found) > 0 {
		d.Totals.Tax = amount(found[0].Find(tagTaxAmount))
		for _, s := range found[0].All(tagSubtotal) {
			category := s.Find("cac:TaxCategory")
			d.TaxLines = append(d.TaxLines, TaxLine{
				Category:      c.text(category.Find("cbc:ID"), "BT-118", maxCode),
				Rate:          c.percent(category.Find("cbc:Percent"), "BT-119"),
				Taxable:       amount(s.Find("cbc:TaxableAmount")),
				Tax:           amount(s.Find(tagTaxAmount)),
				ExemptionCode: c.text(category.Find("cbc:TaxExemptionReasonCode"), "BT-121", maxReference),
			})
		}
	}
	if d.TaxCurrency == "" || d.TaxCurrency == d.Currency {
		return
	}
	if found := taxTotals(root, d.TaxCurrency); len(found) > 0 {
		d.TaxAmountInTaxCurrency = optionalAmount(found[0].Find(tagTaxAmount))
	}
}

func readLines(root *Element, c *checker, d *Document) {
	for _, e := range root.All(lineTag(root)) {
		item, price := e.Find("cac:Item"), e.Find("cac:Price")
		quantity := e.Find("cbc:InvoicedQuantity")
		if quantity == nil {
			quantity = e.Find("cbc:CreditedQuantity")
		}
		tax := item.Find("cac:ClassifiedTaxCategory")
		line := Line{
			Kind:              LineItem,
			ID:                c.text(e.Find("cbc:ID"), "BT-126", maxReference),
			Description:       c.freeText(item.Find("cbc:Name"), "BT-153", maxDescription),
			Quantity:          c.quantity(quantity, "BT-129"),
			Unit:              quantity.Attribute("unitCode"),
			UnitPrice:         c.quantity(price.Find("cbc:PriceAmount"), "BT-146"),
			PriceBaseQuantity: c.quantity(price.Find("cbc:BaseQuantity"), "BT-149"),
			Amount:            amount(e.Find(tagLineNet)),
			TaxCategory:       c.text(tax.Find("cbc:ID"), "BT-151", maxCode),
			TaxRate:           c.percent(tax.Find("cbc:Percent"), "BT-152"),
			OrderLine:         c.text(e.Find("cac:OrderLineReference", "cbc:LineID"), "BT-132", maxReference),
			AccountingCost:    c.text(e.Find("cbc:AccountingCost"), "BT-133", maxReference),
		}
		for _, id := range []struct{ group, bt string }{
			{"cac:BuyersItemIdentification", "BT-156"},
			{"cac:SellersItemIdentification", "BT-155"},
			{"cac:StandardItemIdentification", "BT-157"},
		} {
			if line.ItemID == "" {
				line.ItemID = c.text(item.Find(id.group, "cbc:ID"), id.bt, maxReference)
			}
		}
		if line.AccountingCost == "" {
			line.AccountingCost = d.AccountingCost
		}
		d.Lines = append(d.Lines, line)
	}
	for _, e := range root.All(tagCharge) {
		charge, ok := parseIndicator(e.Value("cbc:ChargeIndicator"))
		if !ok {
			c.invalid(e, "", "An allowance or charge has an indicator that is true or false.")
			continue
		}
		line := Line{Kind: LineCharge, Amount: amount(e.Find("cbc:Amount")), AccountingCost: d.AccountingCost}
		bt := [3]string{"BT-104", "BT-102", "BT-103"}
		if !charge {
			line.Kind = LineAllowance
			line.Amount = line.Amount.Neg()
			bt = [3]string{"BT-97", "BT-95", "BT-96"}
		}
		line.Description = c.freeText(e.Find("cbc:AllowanceChargeReason"), bt[0], maxDescription)
		line.TaxCategory = c.text(e.Find("cac:TaxCategory", "cbc:ID"), bt[1], maxCode)
		line.TaxRate = c.percent(e.Find("cac:TaxCategory", "cbc:Percent"), bt[2])
		d.Lines = append(d.Lines, line)
	}
}

// amounts returns every amount in the document currency.
func (d *Document) amounts() []*money.Number {
	t := &d.Totals
	out := []*money.Number{&t.Lines, &t.Allowances, &t.Charges, &t.Net, &t.Tax, &t.Gross, &t.Payable}
	for _, optional := range []*money.Number{t.Prepaid, t.Rounding} {
		if optional != nil {
			out = append(out, optional)
		}
	}
	for i := range d.TaxLines {
		out = append(out, &d.TaxLines[i].Taxable, &d.TaxLines[i].Tax)
	}
	for i := range d.Lines {
		out = append(out, &d.Lines[i].Amount)
	}
	return out
}

// dropExtraZeros drops zeros beyond the minor unit of the currency, as in 100.00 JPY.
func (d *Document) dropExtraZeros(minorUnit int) {
	for _, n := range d.amounts() {
		if n.Scale() <= minorUnit {
			continue
		}
		if short, err := n.Rescale(minorUnit); err == nil {
			*n = short
		}
	}
}

// swapKind makes an invoice a credit memo, or the reverse, and negates its amounts and
// quantities. Prices keep their sign, as the quantities are negated.
func (d *Document) swapKind() {
	d.Flipped = true
	if d.Kind == contract.Invoice {
		d.Kind = contract.CreditMemo
	} else {
		d.Kind = contract.Invoice
	}
	negated := d.amounts()
	for i := range d.Lines {
		if d.Lines[i].Quantity != nil {
			negated = append(negated, d.Lines[i].Quantity)
		}
	}
	if d.TaxAmountInTaxCurrency != nil {
		negated = append(negated, d.TaxAmountInTaxCurrency)
	}
	for _, n := range negated {
		*n = n.Neg()
	}
}

// String identifies the document in logs by kind and digest, without its content.
func (d Document) String() string {
	return fmt.Sprintf("%s %.12s", d.Kind, d.SHA256)
}
