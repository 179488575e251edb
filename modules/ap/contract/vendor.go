package contract

// VendorChange is the payload of ap.change_vendor, and the data of ap.vendor.changed before the
// person is sealed. A member that is given replaces the earlier one as a whole.
type VendorChange struct {
	VendorID          string            `json:"vendor_id"`
	Name              string            `json:"name,omitempty"`
	Country           string            `json:"country,omitempty"`
	RegistrationID    string            `json:"registration_id,omitempty"`
	PartyID           string            `json:"party_id,omitempty"`
	Currency          string            `json:"currency,omitempty"`
	Terms             *Terms            `json:"terms,omitempty"`
	DefaultAccount    string            `json:"default_account,omitempty"`
	DefaultDimensions map[string]string `json:"default_dimensions,omitempty"`
	WithholdingCode   string            `json:"withholding_code,omitempty"`
	OrderRequired     string            `json:"order_required,omitempty"` // OrderRequiredAlways and others
	Person            *Person           `json:"person,omitempty"`
	VATIDUnverified   bool              `json:"vat_id_unverified,omitempty"` // that of Person is taken from a paper although its form is wrong
	Reason            string            `json:"reason"`
}

// Whether invoices of a vendor must name a purchase order, the values of order_required.
const (
	OrderRequiredAlways  = "always"
	OrderRequiredNever   = "never"
	OrderRequiredDefault = "default" // as the settings say
)

// What a block of a vendor stops, the values of scope. BlockAll includes payments.
const (
	BlockPayment = "payment"
	BlockAll     = "all"
)

// The states of a vendor, the values of status.
const (
	VendorActive         = "active"
	VendorPaymentBlocked = "payment_blocked"
	VendorBlocked        = "blocked"
)

// VendorBlock is the payload of ap.block_vendor and ap.unblock_vendor. The data of
// ap.vendor.blocked and ap.vendor.unblocked have the status that results as well.
type VendorBlock struct {
	VendorID string `json:"vendor_id"`
	Scope    string `json:"scope"`
	Reason   string `json:"reason"`
	Status   string `json:"status,omitempty"`
}

// BankAccount is an account of a vendor. All of it is personal data of the subject
// vendor:<vendor id>, of companies too.
type BankAccount struct {
	IBAN    string `json:"iban,omitempty"`
	Account string `json:"account,omitempty"` // where there is no IBAN
	Bank    string `json:"bank,omitempty"`    // that keeps Account: its clearing code or name
	BIC     string `json:"bic,omitempty"`
	Holder  string `json:"holder"`
}

// BankChangeRequest is the payload of ap.request_bank_change, and the data of
// ap.vendor.bank_change_requested before the account is sealed.
type BankChangeRequest struct {
	VendorID  string `json:"vendor_id"`
	RequestID string `json:"request_id,omitempty"` // in the event
	Currency  string `json:"currency"`             // of the payments that go to the account
	BankAccount
	EvidenceRef string `json:"evidence_ref"` // the paper that asks for the change
	Reason      string `json:"reason"`
}

// BankDecision is the payload of ap.approve_bank_change and ap.reject_bank_change. The data of
// ap.vendor.bank_changed and ap.vendor.bank_change_rejected name vendor and currency as well. The
// account is in the event of the request.
type BankDecision struct {
	VendorID     string `json:"vendor_id,omitempty"`
	RequestID    string `json:"request_id"`
	Currency     string `json:"currency,omitempty"`
	Verification string `json:"verification,omitempty"` // how the vendor was called back
	Reason       string `json:"reason,omitempty"`       // of a rejection
}
