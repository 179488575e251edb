package ubl

import (
	"encoding/json"
	"errors"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/money"
)

// Intents that a document becomes.
const (
	IntentSubmitInvoice    = "ap.submit_invoice"
	IntentSubmitCreditMemo = "ap.submit_credit_memo"
	IntentRegisterVendor   = "ap.register_vendor"
)

// dueDateFromDocument is the payload's due_date_source. A document without due
// date leaves both members out, and the terms agreed with the vendor apply.
const dueDateFromDocument = "document"

// Submission is what a document does not say and its intent needs.
type Submission struct {
	VendorID string // of the registered vendor
	// PayeeBank is the outcome of Accounts.Compare; "" is PayeeBankNone.
	PayeeBank string
	// Dimensions gives the dimensions of a line, nil for none. Nil leaves every
	// line without.
	Dimensions func(Line) map[string]string
}

// The payload of ap.submit_invoice and ap.submit_credit_memo, in the order in
// which a reader expects its members. Amounts are bare numbers.
type intentPayload struct {
	InvoiceNumber     string              `json:"invoice_number"`
	VendorID          string              `json:"vendor_id"`
	VendorName        string              `json:"vendor_name,omitempty"`
	InvoiceDate       event.Date          `json:"invoice_date"`
	DueDate           *event.Date         `json:"due_date,omitempty"`
	DueDateSource     string              `json:"due_date_source,omitempty"`
	Currency          string              `json:"currency"`
	TotalAmount       money.Number        `json:"total_amount"`
	TaxAmount         money.Number        `json:"tax_amount"`
	DocumentType      string              `json:"document_type"`
	POReference       string              `json:"po_reference,omitempty"`
	ExternalReference string              `json:"external_reference,omitempty"`
	PrecedingInvoice  string              `json:"preceding_invoice,omitempty"`
	TaxLines          []taxLinePayload    `json:"tax_lines,omitempty"`
	PrepaidAmount     *money.Number       `json:"prepaid_amount,omitempty"`
	RoundingAmount    *money.Number       `json:"rounding_amount,omitempty"`
	PayableAmount     money.Number        `json:"payable_amount"`
	PaymentReference  string              `json:"payment_reference,omitempty"`
	PayeeBank         string              `json:"payee_bank"`
	PayeeDiffers      bool                `json:"payee_differs,omitempty"`
	SourceDocument    sourcePayload       `json:"source_document"`
	Lines             []linePayload       `json:"lines"`
	Attachments       []attachmentPayload `json:"attachments,omitempty"`
}

type taxLinePayload struct {
	Category      string       `json:"category"`
	Rate          money.Number `json:"rate"` // percent
	TaxableAmount money.Number `json:"taxable_amount"`
	TaxAmount     money.Number `json:"tax_amount"`
	TaxGroup      string       `json:"tax_group"`
	ExemptionCode string       `json:"exemption_code,omitempty"`
}

type sourcePayload struct {
	Syntax   string `json:"syntax"`
	SHA256   string `json:"sha256"`
	TypeCode string `json:"type_code,omitempty"`
}

type linePayload struct {
	LineNumber        int               `json:"line_number"`
	Kind              LineKind          `json:"kind"`
	Description       string            `json:"description,omitempty"`
	Quantity          *money.Number     `json:"quantity,omitempty"`
	UnitPrice         *money.Number     `json:"unit_price,omitempty"`
	PriceBaseQuantity *money.Number     `json:"price_base_quantity,omitempty"`
	Amount            money.Number      `json:"amount"`
	TaxGroup          string            `json:"tax_group,omitempty"`
	POLineReference   string            `json:"po_line_reference,omitempty"`
	ItemID            string            `json:"item_id,omitempty"`
	AccountingCost    string            `json:"accounting_cost,omitempty"`
	Dimensions        map[string]string `json:"dimensions,omitempty"`
}

type attachmentPayload struct {
	ID          string `json:"id"` // SHA-256 of the content
	FileName    string `json:"filename"`
	ContentType string `json:"content_type"`
	SizeBytes   int64  `json:"size_bytes"`
}

// Intent gives the type of the intent that books the document.
func (d Document) Intent() string {
	if d.Kind == KindCreditMemo {
		return IntentSubmitCreditMemo
	}
	return IntentSubmitInvoice
}

// IntentPayload gives the payload of the intent named by Intent, for a document
// that Read took. The same document and submission give the same bytes. The sum
// of the line amounts and tax_amount is total_amount.
func (d Document) IntentPayload(s Submission) (json.RawMessage, error) {
	if s.VendorID == "" {
		return nil, errors.New("ubl: a payload needs the vendor's id")
	}
	p := intentPayload{
		InvoiceNumber:     d.Number,
		VendorID:          s.VendorID,
		VendorName:        d.Supplier.Name(),
		InvoiceDate:       d.IssueDate,
		Currency:          d.Currency,
		TotalAmount:       d.Totals.Gross,
		TaxAmount:         d.Totals.Tax,
		DocumentType:      d.DocumentType,
		POReference:       d.OrderReference,
		ExternalReference: d.BuyerReference,
		PrepaidAmount:     d.Totals.Prepaid,
		RoundingAmount:    d.Totals.Rounding,
		PayableAmount:     d.Totals.Payable,
		PaymentReference:  d.PaymentReference,
		PayeeBank:         s.PayeeBank,
		PayeeDiffers:      d.PayeeDiffers,
		DueDate:           d.DueDate,
		SourceDocument:    sourcePayload{Syntax: Syntax, SHA256: d.SHA256, TypeCode: d.TypeCode},
	}
	if d.DueDate != nil {
		p.DueDateSource = dueDateFromDocument
	}
	if p.PayeeBank == "" {
		p.PayeeBank = PayeeBankNone
	}
	if d.Kind == KindCreditMemo && len(d.PrecedingInvoices) > 0 {
		p.PrecedingInvoice = d.PrecedingInvoices[0]
	}
	for _, t := range d.TaxLines {
		line := taxLinePayload{
			Category: t.Category, TaxableAmount: t.Taxable, TaxAmount: t.Tax,
			TaxGroup: TaxGroup(t.Category, t.Rate), ExemptionCode: t.ExemptionCode,
		}
		if t.Rate != nil {
			line.Rate = *t.Rate
		}
		p.TaxLines = append(p.TaxLines, line)
	}
	for i, l := range d.Lines {
		p.Lines = append(p.Lines, d.linePayload(i+1, l, s))
	}
	for _, a := range d.Attachments {
		p.Attachments = append(p.Attachments, attachmentPayload{
			ID: a.SHA256, FileName: a.FileName, ContentType: a.ContentType, SizeBytes: a.Size,
		})
	}
	return json.Marshal(p)
}

func (d Document) linePayload(number int, l Line, s Submission) linePayload {
	p := linePayload{
		LineNumber: number, Kind: l.Kind, Description: l.Description,
		Quantity: l.Quantity, UnitPrice: l.UnitPrice, PriceBaseQuantity: l.PriceBaseQuantity,
		Amount: l.Amount, TaxGroup: TaxGroup(l.TaxCategory, l.TaxRate),
		ItemID: l.ItemID, AccountingCost: l.AccountingCost,
	}
	if d.OrderReference != "" && l.OrderLine != "" {
		p.POLineReference = d.OrderReference + "-" + l.OrderLine
	}
	if s.Dimensions != nil {
		p.Dimensions = s.Dimensions(l)
	}
	return p
}

type vendorPayload struct {
	Name           string         `json:"name,omitempty"`
	Country        string         `json:"country,omitempty"`
	VATID          string         `json:"vat_id,omitempty"`
	RegistrationID string         `json:"registration_id,omitempty"`
	PartyID        string         `json:"party_id,omitempty"`
	NaturalPerson  bool           `json:"natural_person"`
	Person         *personPayload `json:"person,omitempty"`
	Currency       string         `json:"currency"`
	Terms          termsPayload   `json:"terms"`
}

// personPayload is sealed where it is stored.
type personPayload struct {
	Name    string `json:"name"`
	Address string `json:"address,omitempty"`
}

type termsPayload struct {
	NetDays int `json:"net_days"`
}

// VendorPayload gives the payload of IntentRegisterVendor for the seller, with the
// given terms of payment in days after the invoice date. Of a seller that may be a
// natural person, name and address are in person, where the server seals them.
func (d Document) VendorPayload(netDays int) (json.RawMessage, error) {
	s := d.Supplier
	p := vendorPayload{
		Name: s.Name(), Country: s.Country, VATID: s.VATID, RegistrationID: s.RegistrationID,
		NaturalPerson: s.NaturalPerson(), Currency: d.Currency, Terms: termsPayload{NetDays: netDays},
	}
	if len(s.PartyIDs) > 0 {
		p.PartyID = s.PartyIDs[0]
	}
	if s.Person.name != "" {
		p.Person = &personPayload{Name: s.Person.name, Address: s.Person.address}
	}
	return json.Marshal(p)
}
