package einvoice

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"

	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/ap/contract"
)

// Submission has the values of an intent that are not in the document.
type Submission struct {
	VendorID string // of the registered vendor
	Paper    string // id of the file as it is kept; "": it is not
	// Attachments are the ids of the document's attachments as they are kept, in their order.
	Attachments []string
	// Dimensions returns the dimensions of a line, or nil. May be nil.
	Dimensions func(Line) map[string]string
}

// intentPayload is a contract.Document whose lines end with the accounting cost. Members of
// the outer struct follow those of the embedded one.
type intentPayload struct {
	contract.Document
	Lines       []linePayload         `json:"lines"`
	Attachments []contract.Attachment `json:"attachments,omitempty"`
	// PayeeAccounts are compared with the vendor's, and sealed where the intent is stored.
	PayeeAccounts []string `json:"payee_accounts,omitempty"`
	// Buyer is compared with the legal entity, and not stored.
	Buyer *contract.Buyer `json:"buyer,omitempty"`
	// SellerName is compared with the vendor's, and not stored.
	SellerName string `json:"seller_name,omitempty"`
}

type linePayload struct {
	contract.Line
	AccountingCost string            `json:"accounting_cost,omitempty"`
	Dimensions     map[string]string `json:"dimensions,omitempty"`
}

// Intent is the type of the intent that submits the document.
func (d Document) Intent() string { return d.Kind.Intent("submit") }

// IntentPayload makes the payload of the intent of type Intent, a contract.Submission, for
// a document that Read accepted. The same document and submission give the same bytes. The
// sum of the line amounts and tax_amount is total_amount. A document without due date has
// neither due_date nor due_date_source, so that the terms agreed with the vendor apply.
func (d Document) IntentPayload(s Submission) (json.RawMessage, error) {
	if s.VendorID == "" {
		return nil, errors.New("einvoice: a payload needs the vendor's id")
	}
	p := intentPayload{Document: contract.Document{
		InvoiceNumber:     d.Number,
		VendorID:          s.VendorID,
		VendorName:        d.Supplier.Name(),
		InvoiceDate:       d.IssueDate,
		Currency:          d.Currency,
		TotalAmount:       d.Totals.Gross,
		TaxAmount:         &d.Totals.Tax,
		DocumentType:      d.DocumentType,
		POReference:       d.OrderReference,
		ExternalReference: d.BuyerReference,
		PrepaidAmount:     d.Totals.Prepaid,
		RoundingAmount:    d.Totals.Rounding,
		PayableAmount:     &d.Totals.Payable,
		PaymentReference:  d.PaymentReference,
		PayeeBank:         contract.PayeeBankNone,
		PayeeDiffers:      d.PayeeDiffers,
		DueDate:           d.DueDate,
		SourceDocument:    &contract.SourceDocument{Syntax: d.Syntax, SHA256: d.SHA256, TypeCode: d.TypeCode, Warnings: d.warningCodes(), Paper: s.Paper},
	}}
	p.PayeeAccounts = d.PaymentAccounts.ids[:min(len(d.PaymentAccounts.ids), maxAccounts)]
	if !d.Buyer.isEmpty() {
		p.Buyer = &d.Buyer.party
	}
	if name := []rune(d.Supplier.Person.name); len(name) <= maxSellerName {
		p.SellerName = string(name)
	}
	if d.DueDate != nil {
		p.DueDateSource = contract.DueDateFromDocument
	}
	if d.Kind == contract.CreditMemo && len(d.PrecedingInvoices) > 0 {
		p.PrecedingInvoice = d.PrecedingInvoices[0]
	}
	for _, t := range d.TaxLines {
		rate := t.Rate
		if rate == nil {
			rate = new(money.Number)
		}
		p.TaxLines = append(p.TaxLines, contract.TaxLine{
			Category: t.Category, Rate: rate, TaxableAmount: &t.Taxable, TaxAmount: t.Tax,
			TaxGroup: TaxGroup(t.Category, t.Rate), ExemptionCode: t.ExemptionCode,
		})
	}
	for i, l := range d.Lines {
		line := linePayload{Line: contract.Line{
			LineNumber: i + 1, Kind: string(l.Kind), Description: l.Description,
			Quantity: l.Quantity, Unit: l.Unit, UnitPrice: l.UnitPrice, PriceBaseQuantity: l.PriceBaseQuantity,
			Amount: l.Amount, TaxGroup: TaxGroup(l.TaxCategory, l.TaxRate),
			ItemID: l.ItemID,
		}, AccountingCost: l.AccountingCost}
		if d.OrderReference != "" && l.OrderLine != "" {
			line.POLineReference = d.OrderReference + "-" + l.OrderLine
		}
		if s.Dimensions != nil {
			line.Dimensions = s.Dimensions(l)
		}
		p.Lines = append(p.Lines, line)
	}
	for i, a := range d.Attachments {
		attachment := contract.Attachment{ID: a.SHA256, FileName: a.FileName, ContentType: a.ContentType, SizeBytes: a.Size}
		if i < len(s.Attachments) {
			attachment.Paper = contract.OpenText(s.Attachments[i])
		}
		p.Attachments = append(p.Attachments, attachment)
	}
	if s.Paper != "" { // the attachments are in it
		p.SourceDocument.SHA256 = ReferenceOf(s.Paper)
		for i := range p.Attachments {
			p.Attachments[i].ID = ""
		}
	}
	return json.Marshal(p)
}

// ReferenceOf is the digest by which the log tells a kept file apart: that of its paper's id, which is keyed.
// With the file's own digest the log would confirm a guess of a file from which a person was erased.
func ReferenceOf(paper string) string {
	digest := sha256.Sum256([]byte(paper))
	return hex.EncodeToString(digest[:])
}

// maxSellerName is the longest name of a seller, in characters, that a payload takes.
const maxSellerName = 200

// maxWarningCodes is how many codes of warnings a payload takes.
const maxWarningCodes = 50

// warningCodes lists the rules of the warnings, or their codes, in order and each once.
func (d Document) warningCodes() []string {
	var out []string
	for _, w := range d.Warnings {
		if code := cmp.Or(w.Rule, w.Code); len(out) < maxWarningCodes && !slices.Contains(out, code) {
			out = append(out, code)
		}
	}
	return out
}

// vendorPayload has the members of contract.VendorRegistration that a document has.
type vendorPayload struct {
	Name           string           `json:"name,omitempty"`
	Country        string           `json:"country,omitempty"`
	VATID          string           `json:"vat_id,omitempty"`
	Unverified     bool             `json:"vat_id_unverified,omitempty"`
	RegistrationID string           `json:"registration_id,omitempty"`
	PartyID        string           `json:"party_id,omitempty"`
	NaturalPerson  bool             `json:"natural_person"`
	Person         *contract.Person `json:"person,omitempty"` // sealed where it is stored
	Currency       string           `json:"currency"`
	Terms          contract.Terms   `json:"terms"`
}

// VendorPayload makes the payload of ap.register_vendor for the seller, with terms of
// netDays after the invoice date. Name and address of a seller who may be a natural person
// are in the member person, which the server seals. A VAT identifier of wrong form is
// registered as it is printed, and says so: the document has a warning.
func (d Document) VendorPayload(netDays int) (json.RawMessage, error) {
	s := d.Supplier
	p := vendorPayload{
		Name: s.Name(), Country: s.Country, VATID: s.VATID, Unverified: !s.HasPlausibleVATID(), RegistrationID: s.RegistrationID,
		NaturalPerson: s.NaturalPerson(), Currency: d.Currency, Terms: contract.Terms{NetDays: netDays},
	}
	if len(s.PartyIDs) > 0 {
		p.PartyID = s.PartyIDs[0]
	}
	if s.Person.name != "" {
		p.Person = &contract.Person{Name: s.Person.name, Address: s.Person.address}
	}
	return json.Marshal(p)
}
