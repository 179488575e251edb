package einvoice

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/domain/vatid"
	"github.com/erpbackbone/backbone/modules/ap/contract"
	"github.com/erpbackbone/backbone/modules/ap/domain"
)

// Document has the parts of a supplier document that accounts payable uses. Amounts are in
// units of Currency. Totals.Gross is never negative: a document with a negative total is
// mapped to the other Kind with all amounts and quantities negated. Absent texts are
// empty; placeholders count as absent.
type Document struct {
	SHA256       string // of the file, lower case hexadecimal
	Syntax       string // SyntaxUBL or SyntaxCII
	Root         string // Invoice or CreditNote
	Kind         contract.Kind
	Flipped      bool   // the total was negative
	DocumentType string // standard or prepayment
	TypeCode     string // BT-3, as written
	Number       string // BT-1
	IssueDate    event.Date
	Currency     string      // BT-5, ISO 4217
	DueDate      *event.Date // BT-9
	PaymentTerms string      // BT-20, free text; not parsed

	TaxCurrency            string        // BT-6
	TaxAmountInTaxCurrency *money.Number // BT-111, in TaxCurrency; for information

	BuyerReference    string   // BT-10
	ProjectReference  string   // BT-11
	ContractReference string   // BT-12
	OrderReference    string   // BT-13
	ReceiptReference  string   // BT-15
	AccountingCost    string   // BT-19
	PrecedingInvoices []string // BT-25, in document order

	Supplier         Supplier
	Buyer            Buyer
	PayeeDiffers     bool     // the payee (BG-10) is not the seller
	PaymentReference string   // BT-83, the first
	PaymentAccounts  Accounts // BT-84

	Lines       []Line // items first, then allowances and charges of the document
	TaxLines    []TaxLine
	Totals      Totals
	Attachments []Attachment
	Warnings    []fault.Violation // findings that do not refuse the document
}

// Buyer identifies the buyer (BG-7). Another buyer than the legal entity may be a person, so it
// can only be compared: formatting and marshalling reveal nothing. IntentPayload alone reads it.
type Buyer struct{ party contract.Buyer }

// Format writes whether the buyer is known, for every verb.
func (b Buyer) Format(s fmt.State, _ rune) { _, _ = fmt.Fprintf(s, "known: %t", !b.isEmpty()) }

// MarshalJSON writes null.
func (b Buyer) MarshalJSON() ([]byte, error) { return []byte("null"), nil }

func (b Buyer) isEmpty() bool {
	p := b.party
	return p.VATID == "" && p.RegistrationID == "" && p.EndpointID == "" && len(p.Names) == 0
}

// Supplier identifies the seller (BG-4).
type Supplier struct {
	VATID          string   // BT-31
	RegistrationID string   // BT-30
	PartyIDs       []string // BT-29, without creditor identifiers of SEPA
	LegalName      string   // BT-27, empty for a natural person
	TradeName      string   // BT-28, empty for a natural person
	Country        string   // BT-40, else the country of the VAT identifier; ISO 3166-1
	Person         Person   // of a natural person only
}

// Person is the name and address of a seller who may be a natural person. VendorPayload reads them,
// for the registration that seals them, and IntentPayload the name, to compare it. Formatting and marshalling a
// Person reveals neither.
type Person struct{ name, address string }

// Format writes whether the name is known, for every verb.
func (p Person) Format(s fmt.State, _ rune) { _, _ = fmt.Fprintf(s, "known: %t", p.name != "") }

// MarshalJSON writes null.
func (p Person) MarshalJSON() ([]byte, error) { return []byte("null"), nil }

// NaturalPerson reports whether the seller may be a natural person: it has neither a VAT
// identifier nor a registration identifier. Its name and address are then only in Person.
func (s Supplier) NaturalPerson() bool { return s.VATID == "" && s.RegistrationID == "" }

// HasPlausibleVATID reports whether the VAT identifier has the form of its country, is of a
// country whose form is not known, or is absent.
func (s Supplier) HasPlausibleVATID() bool {
	verdict := vatid.Check(s.VATID)
	return s.VATID == "" || verdict == vatid.Valid || verdict == vatid.Unknown
}

// Name is the legal name, else the trade name.
func (s Supplier) Name() string { return cmp.Or(s.LegalName, s.TradeName) }

// Identity is the business key of the supplier as a vendor, "" if it has no identifier; see
// domain.Identity. Of several party identifiers the first one counts.
func (s Supplier) Identity() string {
	party := ""
	if len(s.PartyIDs) > 0 {
		party = s.PartyIDs[0]
	}
	return domain.Identity(s.VATID, s.RegistrationID, party)
}

// compact removes blanks and folds case, for comparison.
func compact(s string) string {
	return strings.ToUpper(strings.Join(strings.Fields(s), ""))
}

// Accounts are the bank accounts to which a document asks for payment. They may be
// personal data, and a forged one diverts the payment, so they can only be compared:
// formatting and marshalling reveal none.
type Accounts struct{ ids []string }

// Format writes the number of accounts, for every verb.
func (a Accounts) Format(s fmt.State, _ rune) { _, _ = fmt.Fprintf(s, "%d account(s)", len(a.ids)) }

// MarshalJSON writes null.
func (a Accounts) MarshalJSON() ([]byte, error) { return []byte("null"), nil }

// LineKind distinguishes lines of goods and services from those made of an allowance or a
// charge of the whole document.
type LineKind string

// The kinds of lines.
const (
	LineItem      LineKind = "item"
	LineAllowance LineKind = "allowance"
	LineCharge    LineKind = "charge"
)

// Line is one line to book. Amounts of lines sum up to the total without VAT.
type Line struct {
	Kind              LineKind
	ID                string        // BT-126, the supplier's; empty for allowances and charges
	Description       string        // BT-153, or the reason of the allowance or charge
	Quantity          *money.Number // BT-129
	Unit              string        // BT-130
	UnitPrice         *money.Number // BT-146, for PriceBaseQuantity units
	PriceBaseQuantity *money.Number // BT-149
	Amount            money.Number  // BT-131, BT-99, or BT-92 negated
	TaxCategory       string        // BT-151, BT-95, BT-102
	TaxRate           *money.Number // BT-152, BT-96, BT-103, percent
	OrderLine         string        // BT-132
	ItemID            string        // BT-156, else BT-155, else BT-157
	AccountingCost    string        // BT-133, else BT-19
}

// TaxLine is one VAT breakdown (BG-23) in the document currency.
type TaxLine struct {
	Category      string        // BT-118
	Rate          *money.Number // BT-119, percent
	Taxable       money.Number  // BT-116
	Tax           money.Number  // BT-117
	ExemptionCode string        // BT-121
}

// TaxGroup is the ledger's tax group for a category and rate: "S/25", "E/0" for a category
// without rate, and "" without category.
func TaxGroup(category string, rate *money.Number) string {
	if category == "" {
		return ""
	}
	if rate == nil {
		return category + "/0"
	}
	return category + "/" + rate.Fixed(0)
}

// Totals are the totals of the document (BG-22) in its currency. Absent totals are
// 0, except those that may be absent in the payload too.
type Totals struct {
	Lines      money.Number  // BT-106
	Allowances money.Number  // BT-107
	Charges    money.Number  // BT-108
	Net        money.Number  // BT-109
	Tax        money.Number  // BT-110
	Gross      money.Number  // BT-112
	Prepaid    *money.Number // BT-113
	Rounding   *money.Number // BT-114
	Payable    money.Number  // BT-115
}

// Attachment describes a file embedded in the document (BT-125), or in the PDF file beside the
// document. FileName is generated from the type: names given by senders may name persons.
type Attachment struct {
	SHA256      string // of the content, lower case hexadecimal
	FileName    string // attachment-1.pdf
	ContentType string // one that papers have
	Size        int64  // bytes
	Bytes       []byte // of ReadAttachments alone
}
