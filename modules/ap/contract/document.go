package contract

import (
	"encoding/json"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/money"
)

// Document is the data of ap.invoice.submitted and ap.credit_memo.submitted.
// Amounts are in units of Currency and positive for both kinds; single lines may
// be negative. The sum of the lines and TaxAmount is TotalAmount.
type Document struct {
	InvoiceID    string `json:"invoice_id,omitempty"`
	CreditMemoID string `json:"credit_memo_id,omitempty"`

	InvoiceNumber     string        `json:"invoice_number"` // the vendor's, for credit memos too
	VendorID          string        `json:"vendor_id"`
	VendorName        string        `json:"vendor_name,omitempty"` // never of a natural person
	InvoiceDate       event.Date    `json:"invoice_date"`
	DueDate           *event.Date   `json:"due_date,omitempty"` // always there in events
	DueDateSource     string        `json:"due_date_source,omitempty"`
	Currency          string        `json:"currency"`
	TotalAmount       money.Number  `json:"total_amount"` // gross
	TaxAmount         *money.Number `json:"tax_amount,omitempty"`
	DocumentType      string        `json:"document_type,omitempty"`
	Description       string        `json:"description,omitempty"`
	POReference       string        `json:"po_reference,omitempty"`
	ExternalReference string        `json:"external_reference,omitempty"`
	PrecedingInvoice  string        `json:"preceding_invoice,omitempty"` // number of the invoice a credit memo is about

	TaxLines         []TaxLine       `json:"tax_lines,omitempty"`
	PrepaidAmount    *money.Number   `json:"prepaid_amount,omitempty"`
	RoundingAmount   *money.Number   `json:"rounding_amount,omitempty"`
	PayableAmount    *money.Number   `json:"payable_amount,omitempty"` // total − prepaid + rounding
	Withholding      []Withholding   `json:"withholding,omitempty"`
	Discount         *Discount       `json:"discount,omitempty"`
	PaymentReference string          `json:"payment_reference,omitempty"`
	PayeeBank        string          `json:"payee_bank,omitempty"` // PayeeBankMatch and others
	PayeeDiffers     bool            `json:"payee_differs,omitempty"`
	BuyerMatch       string          `json:"buyer_match,omitempty"`  // BuyerByVATID and others
	SellerMatch      OpenText        `json:"seller_match,omitempty"` // SellerByName and others
	SourceDocument   *SourceDocument `json:"source_document,omitempty"`

	Lines       []Line       `json:"lines"`
	Attachments []Attachment `json:"attachments,omitempty"`
}

// ID is the document's own id, "" where the writer gave none.
func (d *Document) ID() string {
	if d.CreditMemoID != "" {
		return d.CreditMemoID
	}
	return d.InvoiceID
}

// SetID sets the id field of the kind.
func (d *Document) SetID(k Kind, id string) {
	if k == CreditMemo {
		d.CreditMemoID = id
		return
	}
	d.InvoiceID = id
}

// TaxLine is the tax of one category and rate.
type TaxLine struct {
	Category      string        `json:"category,omitempty"`
	Rate          *money.Number `json:"rate,omitempty"` // percent
	TaxableAmount *money.Number `json:"taxable_amount,omitempty"`
	TaxAmount     money.Number  `json:"tax_amount"`
	TaxGroup      string        `json:"tax_group,omitempty"` // key of the ledger's tax groups, as "S/25"
	ExemptionCode string        `json:"exemption_code,omitempty"`
}

// Withholding is tax that the payer withholds and pays to the tax office for the vendor.
type Withholding struct {
	Code   string       `json:"code"` // of the settings' withholding codes
	Amount money.Number `json:"amount"`
}

// Discount is granted for payment until a date.
type Discount struct {
	Date    event.Date   `json:"date"`
	Percent money.Number `json:"percent"`
}

// SourceDocument identifies the file a document came from.
type SourceDocument struct {
	Syntax string `json:"syntax"`
	// SHA256 tells files apart: it is the digest of the file, or of the id of its paper. A file that
	// names a person could be guessed by its own digest after the person was erased.
	SHA256   string `json:"sha256"`
	TypeCode string `json:"type_code,omitempty"`
	Paper    string `json:"paper,omitempty"` // id of the file as it was received, kept by the backbone
	// Warnings are the rules and codes of the reader's findings that did not refuse the file,
	// each once.
	Warnings []string `json:"warnings,omitempty"`
}

// Line is one line of a document.
type Line struct {
	LineNumber        int               `json:"line_number"`
	Kind              string            `json:"kind,omitempty"` // item, allowance, charge
	Description       string            `json:"description,omitempty"`
	Quantity          *money.Number     `json:"quantity,omitempty"`
	Unit              string            `json:"unit,omitempty"`       // of Quantity: a code of UN/ECE Recommendation 20
	UnitPrice         *money.Number     `json:"unit_price,omitempty"` // for PriceBaseQuantity units
	PriceBaseQuantity *money.Number     `json:"price_base_quantity,omitempty"`
	Amount            money.Number      `json:"amount"` // without tax
	Account           string            `json:"account,omitempty"`
	AccountingCost    string            `json:"accounting_cost,omitempty"`
	TaxGroup          string            `json:"tax_group,omitempty"`
	POLineReference   string            `json:"po_line_reference,omitempty"`
	ItemID            string            `json:"item_id,omitempty"`
	Dimensions        map[string]string `json:"dimensions,omitempty"`
}

// Attachment describes a file that came with the document.
type Attachment struct {
	ID          string   `json:"id,omitempty"` // SHA-256 of the content; none in a document whose paper is kept
	FileName    string   `json:"filename,omitempty"`
	ContentType string   `json:"content_type,omitempty"`
	SizeBytes   int64    `json:"size_bytes,omitempty"`
	Paper       OpenText `json:"paper,omitempty"` // under which the backbone keeps the file; "": it is in the document's paper at most
}

// OpenText is a text of an object that an event type declares open: it cannot declare the member for
// events that may hold anything under its name (ADR 64), so what is not a text is none.
type OpenText string

// UnmarshalJSON reads a text; any other value is none.
func (t *OpenText) UnmarshalJSON(data []byte) error {
	var text string
	if json.Unmarshal(data, &text) != nil {
		text = ""
	}
	*t = OpenText(text)
	return nil
}

// Submission is the payload of ap.submit_invoice and ap.submit_credit_memo: a document, with the
// date that decides the period. It has an id only if it was drafted before.
type Submission struct {
	Document
	PostingDate *event.Date `json:"posting_date,omitempty"` // default: the intent's effective date, else the invoice date
	// PayeeAccounts are the bank accounts that the paper asks to pay to. They are personal data,
	// and forged ones divert payments: they are compared, and no event has them.
	PayeeAccounts []string `json:"payee_accounts,omitempty"`
	Buyer         *Buyer   `json:"buyer,omitempty"`
	// SellerName is the name of a seller who may be a natural person, as the paper has it. It is
	// compared with the vendor's, sealed in a stored refusal, and in no event.
	SellerName string `json:"seller_name,omitempty"`
}

// Correction is the payload of correct and reinstate intents: the whole new body of a document.
// Its vendor and its number stay.
type Correction struct {
	Submission
	Reason string `json:"reason"`
}

// DocumentCorrected is the data of ap.invoice.corrected and ap.invoice.reinstated, and of the
// same events of credit memos: the document as it is from now on.
type DocumentCorrected struct {
	Document
	Reason string `json:"reason"`
}

// DocumentDiscarded is the data of ap.invoice.discarded and ap.credit_memo.discarded.
type DocumentDiscarded struct {
	DocumentRef
	Reason string `json:"reason,omitempty"`
}

// How the accounts on a paper relate to the vendor's approved ones, the values of payee_bank.
const (
	PayeeBankMatch    = "match"    // every account is approved
	PayeeBankMismatch = "mismatch" // an account is not approved
	PayeeBankNone     = "none"     // nothing to compare: the paper names no account, or the vendor has none
)

// DocumentValidated is the data of ap.invoice.validated and ap.credit_memo.validated: the
// document passed every check.
type DocumentValidated struct {
	DocumentRef
	Match    string        `json:"match"`              // MatchOff, MatchNoOrder or the policy by which the document was compared
	Lines    []MatchedLine `json:"lines,omitempty"`    // those compared
	Warnings []Warning     `json:"warnings,omitempty"` // findings that block nothing
}

// Warning is a finding that blocks nothing.
type Warning struct {
	Code       string `json:"code"`
	LineNumber int    `json:"line_number,omitempty"`
}

// DocumentRef names a document of either kind.
type DocumentRef struct {
	InvoiceID    string `json:"invoice_id,omitempty"`
	CreditMemoID string `json:"credit_memo_id,omitempty"`
}

// RefTo names a document.
func RefTo(k Kind, id string) DocumentRef {
	if k == CreditMemo {
		return DocumentRef{CreditMemoID: id}
	}
	return DocumentRef{InvoiceID: id}
}

// ID is the document's id.
func (r DocumentRef) ID() string {
	if r.CreditMemoID != "" {
		return r.CreditMemoID
	}
	return r.InvoiceID
}

// DocumentHeld is the data of ap.invoice.held and ap.credit_memo.held.
type DocumentHeld struct {
	DocumentRef
	HoldID  string `json:"hold_id"`
	Kind    string `json:"kind"`
	Reason  string `json:"reason"`
	Blocks  string `json:"blocks"` // approval (and payment), or payment only
	Finding any    `json:"finding,omitempty"`
}

// HoldReleasedData is the data of ap.invoice.hold_released and ap.credit_memo.hold_released.
type HoldReleasedData struct {
	DocumentRef
	HoldID string `json:"hold_id"`
	Kind   string `json:"kind"`
	Reason string `json:"reason"`
	// FindingGone says that a check released the hold, not a person. Events from before purchase
	// orders lack it.
	FindingGone bool `json:"finding_gone,omitempty"`
}

// DocumentApproved is the data of ap.invoice.approved and ap.invoice.approval_recorded,
// and of the same events of credit memos.
type DocumentApproved struct {
	DocumentRef
	PostingDate        event.Date   `json:"posting_date"`
	FunctionalAmount   money.Number `json:"functional_amount"` // gross, the figure that limits are compared with
	FunctionalCurrency string       `json:"functional_currency"`
	Step               int          `json:"step"`           // 1 or 2
	StepsRequired      int          `json:"steps_required"` // 2 above the second approver's threshold
	Comment            string       `json:"comment,omitempty"`
	JournalID          string       `json:"journal_id,omitempty"`     // of the last approval; a document without amounts has no journal
	ApproverRoles      []string     `json:"approver_roles,omitempty"` // roles of the approver whose limits count; absent: the limit of one covered the amount
}

// DocumentPosted is the data of ap.invoice.posted and ap.credit_memo.posted: a copy of the
// journal's line on the control account, so that readers of AP need no journal.
type DocumentPosted struct {
	DocumentRef
	JournalID          string       `json:"journal_id"`
	JournalEventID     string       `json:"journal_event_id"`
	ControlAccount     string       `json:"control_account"`
	Side               string       `json:"debit_credit"` // credit for invoices, debit for credit memos
	Amount             money.Number `json:"amount"`       // in Currency
	Currency           string       `json:"currency"`
	FunctionalAmount   money.Number `json:"functional_amount"`
	FunctionalCurrency string       `json:"functional_currency"`
	Rate               money.Number `json:"rate"` // functional units per 1 Currency
	RateDate           *event.Date  `json:"rate_date,omitempty"`
}

// DocumentVoided is the data of ap.invoice.voided and ap.credit_memo.voided.
type DocumentVoided struct {
	DocumentRef
	Reason string `json:"reason"`
	// Of a posted document: the reversal of its journal, and what leaves the control account.
	JournalID          string        `json:"journal_id,omitempty"`
	Amount             *money.Number `json:"amount,omitempty"` // in Currency
	Currency           string        `json:"currency,omitempty"`
	FunctionalAmount   *money.Number `json:"functional_amount,omitempty"`
	FunctionalCurrency string        `json:"functional_currency,omitempty"`
}

// Application is the data of the events by which two documents settle each other, on the stream
// of each: ap.credit_memo.applied and ap.invoice.credit_applied, ap.invoice.prepayment_applied,
// and the same for their undoing. Amounts are not negative.
type Application struct {
	DocumentRef                // the document whose stream has the event
	ApplicationID string       `json:"application_id"`
	With          DocumentRef  `json:"with"`   // the other document
	Amount        money.Number `json:"amount"` // in Currency
	Currency      string       `json:"currency"`
	Functional    money.Number `json:"functional_amount"` // carrying amount that the document loses, or regains when undone
	OpenAfter     money.Number `json:"open_after"`        // of the document, in Currency
	JournalID     string       `json:"journal_id,omitempty"`
}

// PrepaymentUse is the data of ap.invoice.prepayment_used and ap.invoice.prepayment_returned.
type PrepaymentUse struct {
	DocumentRef                // the prepayment
	ApplicationID string       `json:"application_id"`
	With          DocumentRef  `json:"with"` // the invoice
	Amount        money.Number `json:"amount"`
	Currency      string       `json:"currency"`
	UnusedAfter   money.Number `json:"unused_after"`
	JournalID     string       `json:"journal_id"`
}

// DocumentPaid is the data of ap.invoice.paid, .partially_paid and .payment_reversed, and of the
// same events of credit memos, which payments net. A document that owes nothing is paid without
// a payment and has the first two members only.
type DocumentPaid struct {
	DocumentRef
	Applied    money.Number  `json:"applied"`
	OpenAfter  money.Number  `json:"open_after"`
	PaymentID  string        `json:"payment_id,omitempty"`
	Currency   string        `json:"currency,omitempty"`
	Functional *money.Number `json:"functional_amount,omitempty"` // carrying amount that the document loses, or regains
	Discount   *money.Number `json:"discount,omitempty"`          // part of Applied that was not paid
	JournalID  string        `json:"journal_id,omitempty"`

	DiscountShares []DiscountShare `json:"discount_shares,omitempty"` // of Discount
}

// DocumentRejected is the data of ap.invoice.rejected and ap.credit_memo.rejected.
type DocumentRejected struct {
	DocumentRef
	Reason string `json:"reason"`
}
