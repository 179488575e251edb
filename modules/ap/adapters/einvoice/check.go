package einvoice

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/domain/shredding"
)

// The longest accepted texts, in characters.
const (
	maxNumber           = 50  // as the payload allows
	maxCode             = 10  // codes of two or three characters
	maxReference        = 100 // identifiers of documents, parties, items and accounts
	maxAccounts         = 20  // as the payload allows
	maxPaymentReference = 140 // as a credit transfer can carry
	maxName             = 200
	maxAddress          = 500
	maxDescription      = 1000
)

// checker reads values and collects a finding for each one that does not fit its field.
// Findings never contain the text, which may name a person.
type checker struct{ findings []fault.Violation }

func (c *checker) add(e *Element, code, bt, detail string) *fault.Violation {
	if len(c.findings) > MaxFindings {
		return &fault.Violation{} // the list is cut anyway
	}
	c.findings = append(c.findings, fault.Violation{
		Code: code, Severity: SeverityError, BT: bt, Detail: detail, Element: e.Path(), Line: e.Line,
	})
	return &c.findings[len(c.findings)-1]
}

func (c *checker) invalid(e *Element, bt, detail string) { c.add(e, CodeValueInvalid, bt, detail) }

// text reads an identifier or a reference and reports one longer than longest characters. An
// account number is left out: it would be kept for ever.
func (c *checker) text(e *Element, bt string, longest int) string {
	s := e.Value()
	c.checkLength(e, s, bt, longest)
	c.reportCleaned(e, bt)
	if shredding.CheckNoIBAN("", s) != nil {
		c.add(e, CodeAccountRemoved, bt, "This value has an account number, which is left out.").Severity = SeverityWarning
		return ""
	}
	return s
}

// freeText reads a text for people. Account and card numbers in it are masked.
func (c *checker) freeText(e *Element, bt string, longest int) string {
	s := e.Value()
	c.checkLength(e, s, bt, longest)
	c.reportCleaned(e, bt)
	masked := shredding.MaskAccountNumbers(s)
	if masked != s {
		c.add(e, CodeAccountRemoved, bt, "This text has an account or card number, which is masked.").Severity = SeverityWarning
	}
	return cut(masked, longest)
}

// reportCleaned warns of a text with characters that its reader did not see.
func (c *checker) reportCleaned(e *Element, bt string) {
	if e != nil && e.Cleaned {
		c.add(e, CodeTextCleaned, bt, "This text has characters that are not shown, such as controls of direction. They are left out.").Severity = SeverityWarning
	}
}

func (c *checker) checkLength(e *Element, s, bt string, longest int) {
	if n := utf8.RuneCountInString(s); n > longest {
		v := c.add(e, CodeFieldTooLong, bt, "This text is longer than its field.")
		v.Expected = "at most " + strconv.Itoa(longest) + " characters"
		v.Got = strconv.Itoa(n) + " characters"
	}
}

func (c *checker) date(e *Element, bt string) (event.Date, bool) {
	if e.Value() == "" {
		return 0, false
	}
	d, ok := parseDate(e.Value())
	if !ok {
		c.invalid(e, bt, "A date is written as year, month and day, for example 2026-03-31.")
	}
	return d, ok
}

// quantity reads a quantity or a unit price.
func (c *checker) quantity(e *Element, bt string) *money.Number {
	return c.boundedDecimal(e, bt, money.QuantityDecimals)
}

func (c *checker) percent(e *Element, bt string) *money.Number {
	return c.boundedDecimal(e, bt, money.PercentDecimals)
}

// boundedDecimal reads a number with at most scale decimals, not counting zeros at the end.
func (c *checker) boundedDecimal(e *Element, bt string, scale int) *money.Number {
	if e.Value() == "" {
		return nil
	}
	n, ok := parseDecimal(e.Value())
	if !ok {
		c.invalid(e, bt, "This is a decimal number of at most 15 digits.")
		return nil
	}
	if n.Scale() > scale {
		short, err := n.Rescale(scale)
		if err != nil {
			v := c.add(e, CodeValueInvalid, bt, "This number has too many decimals.")
			v.Expected = "at most " + strconv.Itoa(scale) + " decimals"
			v.Got = strconv.Itoa(n.Scale()) + " decimals"
			return nil
		}
		n = short
	}
	return &n
}

// checkSupplier checks the texts that identify the seller.
func (c *checker) checkSupplier(root *Element, s Supplier) {
	party := root.Find("cac:AccountingSupplierParty", "cac:Party")
	if party == nil {
		return
	}
	c.checkLength(party, s.VATID, "BT-31", maxReference)
	c.checkLength(party, s.RegistrationID, "BT-30", maxReference)
	for _, id := range s.PartyIDs {
		c.checkLength(party, id, "BT-29", maxReference)
	}
	c.checkLength(party, s.LegalName, "BT-27", maxName)
	c.checkLength(party, s.TradeName, "BT-28", maxName)
	party.Walk(func(e *Element) {
		if e.Tag == "cbc:CompanyID" || e.Tag == "cbc:RegistrationName" || e.Tag == "cbc:Name" || e.Tag == "cbc:ID" {
			c.reportCleaned(e, "")
		}
	})
	if !s.HasPlausibleVATID() {
		c.add(party, CodeVATIDInvalid, "BT-31", "The seller's VAT identifier has not the form of its country, or its check digits do not fit.").Severity = SeverityWarning
	}
}

// singletons are elements that decide amounts or identity and may occur only once in their
// parent. With a second one, a rule could check another value than the one that is mapped.
var singletons = map[string]bool{
	"cbc:ID": true, "cbc:IssueDate": true, "cbc:DueDate": true, "cbc:InvoiceTypeCode": true, "cbc:CreditNoteTypeCode": true,
	tagCurrency: true, "cbc:TaxCurrencyCode": true, "cac:AccountingSupplierParty": true, "cac:PayeeParty": true, "cac:Party": true,
	tagTotals: true, tagLineNet: true, tagExclusive: true, tagInclusive: true, tagAllowances: true, tagCharges: true,
	tagPrepaid: true, tagRounding: true, tagPayable: true, tagTaxAmount: true, "cbc:TaxableAmount": true,
	"cbc:Amount": true, "cbc:ChargeIndicator": true, "cac:Item": true, "cac:Price": true, "cbc:PriceAmount": true,
	"cbc:BaseQuantity": true, "cbc:InvoicedQuantity": true, "cbc:CreditedQuantity": true, "cbc:Percent": true, "cbc:CompanyID": true,
}

// checkTree checks two things that no rule of the standard covers: singletons are not
// repeated, and amounts are numbers in the document's currency. It returns that currency,
// and whether it is supported.
func (c *checker) checkTree(root *Element) (money.Currency, bool) {
	root.Walk(func(e *Element) {
		seen := make(map[string]bool, min(len(e.Children), len(singletons)))
		for _, child := range e.Children {
			if singletons[child.Tag] && seen[child.Tag] {
				c.invalid(child, "", "This element may occur only once here.")
			}
			if singletons[child.Tag] {
				seen[child.Tag] = true
			}
		}
	})
	currency, supported := c.lookupCurrency(root)
	code, taxCode := root.Value(tagCurrency), root.Value("cbc:TaxCurrencyCode")
	root.Walk(func(e *Element) {
		if len(c.findings) > MaxFindings || e.Space != NamespaceBasic || !strings.HasSuffix(e.Name, "Amount") {
			return
		}
		own := e.Attribute("currencyID")
		// The VAT total may be stated a second time in the currency of the tax report.
		stated := own != "" && own == taxCode && inTaxTotal(e)
		if own != "" && own != code && !stated {
			c.add(e, CodeCurrencyMismatch, termOf(e), "This amount is in another currency than the document.")
		}
		if isAmount(e) && e.Value() != "" {
			c.checkAmount(e, currency, supported && !stated)
		}
	})
	return currency, supported
}

// inTaxTotal reports whether an element belongs to the VAT totals of the document.
func inTaxTotal(e *Element) bool {
	for ; e.Parent != nil; e = e.Parent {
		if e.Tag == tagTaxTotal {
			return e.Parent.Parent == nil
		}
	}
	return false
}

func (c *checker) checkAmount(e *Element, currency money.Currency, limited bool) {
	n, ok := parseDecimal(e.Value())
	if !ok {
		c.invalid(e, termOf(e), "An amount is a decimal number of at most 15 digits.")
		return
	}
	// The rule UBL-DT-01 reports more than amountDecimals, so they need no second finding.
	if !limited || n.Scale() <= currency.MinorUnit || n.Scale() > amountDecimals {
		return
	}
	if _, err := n.Rescale(currency.MinorUnit); err != nil {
		v := c.add(e, fault.CodeOf(err), termOf(e), "This amount has more decimals than its currency.")
		v.Got, v.Currency = n.String(), currency.Code
	}
}

// lookupCurrency looks up the currency as of the issue date. The rule BR-05 reports an
// absent one.
func (c *checker) lookupCurrency(root *Element) (money.Currency, bool) {
	e := root.Find(tagCurrency)
	day, ok := parseDate(root.Value("cbc:IssueDate"))
	if e.Value() == "" || !ok {
		return money.Currency{}, false
	}
	currency, err := money.LookupCurrency(e.Value(), day.Time())
	if err != nil {
		c.add(e, fault.CodeOf(err), "BT-5", "The currency is not one that was in use on the issue date.")
		return money.Currency{}, false
	}
	return currency, true
}
