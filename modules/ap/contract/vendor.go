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
	Person            *Person           `json:"person,omitempty"`
	Reason            string            `json:"reason"`
}

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
