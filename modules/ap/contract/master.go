package contract

import (
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/money"
)

// Terms are terms of payment.
type Terms struct {
	NetDays         int           `json:"net_days"` // days after the invoice date
	DiscountDays    int           `json:"discount_days,omitempty"`
	DiscountPercent *money.Number `json:"discount_percent,omitempty"`
}

// VendorRegistered is the data of ap.vendor.registered, without the personal part.
// Of a natural person it has neither name nor VAT id.
type VendorRegistered struct {
	VendorID          string            `json:"vendor_id"`
	Name              string            `json:"name,omitempty"`
	Country           string            `json:"country"` // ISO 3166-1 alpha-2
	VATID             string            `json:"vat_id,omitempty"`
	VATIDUnverified   bool              `json:"vat_id_unverified,omitempty"` // taken from a paper although its form is wrong
	RegistrationID    string            `json:"registration_id,omitempty"`
	PartyID           string            `json:"party_id,omitempty"`
	NaturalPerson     bool              `json:"natural_person"`
	Currency          string            `json:"currency,omitempty"`
	Terms             *Terms            `json:"terms,omitempty"`
	DefaultAccount    string            `json:"default_account,omitempty"`
	DefaultDimensions map[string]string `json:"default_dimensions,omitempty"`
	WithholdingCode   string            `json:"withholding_code,omitempty"`
	Identity          string            `json:"identity,omitempty"` // business key: "vat:…", "reg:…" or "party:…"
}

// VendorRegistration is the data of ap.vendor.registered version 2 before the person is
// sealed. The payload of ap.register_vendor has the same form.
type VendorRegistration struct {
	VendorRegistered
	Person *Person `json:"person,omitempty"`
}

// Person identifies a vendor who is a natural person. It is personal data of the subject
// vendor:<vendor id>.
type Person struct {
	Name    string `json:"name"`
	Address string `json:"address,omitempty"`
	VATID   string `json:"vat_id,omitempty"`
}

// VendorContactRef names a contact of a vendor: the data of ap.vendor.contact_removed.
// Both ids are surrogates.
type VendorContactRef struct {
	VendorID  string `json:"vendor_id"`
	ContactID string `json:"contact_id"`
}

// VendorContact is the data of ap.vendor.contact_recorded before it is sealed. All but the
// ids is personal data of the subject contact:<contact id>.
type VendorContact struct {
	VendorContactRef
	Name     string `json:"name"`
	Email    string `json:"email,omitempty"`
	Phone    string `json:"phone,omitempty"`
	Function string `json:"function,omitempty"` // of the person at the vendor: "accounting"
}

// SettingsChanged is the data of ap.settings.changed and the payload of
// ap.configure. A section that is given replaces the earlier one, except that limits are
// merged by role; a section that is left out stays. Amounts are in functional currency
// unless said otherwise.
type SettingsChanged struct {
	Limits              map[string]*money.Number   `json:"limits,omitempty"` // role → largest document, gross; null is no limit
	SecondApproverAbove *money.Number              `json:"second_approver_above,omitempty"`
	Tolerances          *Tolerances                `json:"tolerances,omitempty"`
	DuplicateWindowDays *int                       `json:"duplicate_window_days,omitempty"` // same total within so many days is suspect
	DefaultTerms        *Terms                     `json:"default_terms,omitempty"`
	Coding              *[]Coding                  `json:"coding,omitempty"`
	WithholdingCodes    map[string]WithholdingCode `json:"withholding_codes,omitempty"`
	SecondPerson        *bool                      `json:"second_person,omitempty"`
	HoldWarnings        *bool                      `json:"hold_warnings,omitempty"` // warnings of a document's reader hold it
	BankAccounts        map[string]PayingAccount   `json:"bank_accounts,omitempty"` // code → account from which the legal entity pays
	Buyer               *BuyerIdentity             `json:"buyer,omitempty"`
	Match               *MatchSettings             `json:"match,omitempty"`        // comparison with purchase orders
	DiscountTax         string                     `json:"discount_tax,omitempty"` // what a discount does to tax: DiscountTaxCorrect, DiscountTaxKeep
}

// The values of SettingsChanged.DiscountTax.
const (
	DiscountTaxCorrect = "correct" // a discount reduces the tax of its share
	DiscountTaxKeep    = "keep"    // the invoice has tax of the discounted price already
)

// Tolerances are the largest differences for which a document is not held.
type Tolerances struct {
	TaxAmount *money.Number `json:"tax_amount,omitempty"` // per tax line, in document currency
}

// Coding maps a vendor's accounting reference to an account and dimensions.
type Coding struct {
	AccountingCost string            `json:"accounting_cost"`
	Account        string            `json:"account,omitempty"`
	Dimensions     map[string]string `json:"dimensions,omitempty"`
}

// WithholdingCode is a kind of withholding tax: its rate, and the account on which the
// withheld tax is owed.
type WithholdingCode struct {
	Percent money.Number `json:"percent"`
	Account string       `json:"account,omitempty"` // "" is the posting profile's withholding
}

// Decision is the payload of approve intents.
type Decision struct {
	DocumentRef
	PostingDate *event.Date `json:"posting_date,omitempty"`
	Comment     string      `json:"comment,omitempty"`
}

// Rejection is the payload of reject intents.
type Rejection struct {
	DocumentRef
	Reason string `json:"reason"`
}

// HoldRelease is the payload of ap.release_hold. The hold id alone finds the document; a
// document id may be sent as well and must then belong to the hold.
type HoldRelease struct {
	DocumentRef
	HoldID string `json:"hold_id"`
	Reason string `json:"reason"`
}

// Hold is the payload of hold intents.
type Hold struct {
	DocumentRef
	Kind           string        `json:"kind"` // MANUAL or DISPUTE
	DisputedAmount *money.Number `json:"disputed_amount,omitempty"`
	Reason         string        `json:"reason"`
}

// Void is the payload of void intents.
type Void struct {
	DocumentRef
	PostingDate *event.Date `json:"posting_date,omitempty"` // of the reversal; default: today, or the posting date if that is later
	Reason      string      `json:"reason"`
}

// CreditApplication is the payload of ap.apply_credit.
type CreditApplication struct {
	CreditMemoID string       `json:"credit_memo_id"`
	InvoiceID    string       `json:"invoice_id"`
	Amount       money.Number `json:"amount"` // in the currency of both
	PostingDate  *event.Date  `json:"posting_date,omitempty"`
}

// PrepaymentApplication is the payload of ap.apply_prepayment.
type PrepaymentApplication struct {
	PrepaymentID string       `json:"prepayment_id"` // a paid invoice of document_type prepayment
	InvoiceID    string       `json:"invoice_id"`
	Amount       money.Number `json:"amount"` // gross, in the currency of both
	PostingDate  *event.Date  `json:"posting_date,omitempty"`
}

// ApplicationUndoing is the payload of ap.unapply_credit and ap.unapply_prepayment. An
// application is undone as a whole.
type ApplicationUndoing struct {
	InvoiceID     string      `json:"invoice_id"`
	ApplicationID string      `json:"application_id"`
	PostingDate   *event.Date `json:"posting_date,omitempty"`
	Reason        string      `json:"reason"`
}
