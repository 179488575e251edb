package contract

// Buyer identifies the buyer as the paper names it. It is compared with the legal entity, and
// neither an event nor the stored intent has it: another buyer may be a person.
type Buyer struct {
	VATID          string   `json:"vat_id,omitempty"`
	RegistrationID string   `json:"registration_id,omitempty"`
	EndpointID     string   `json:"endpoint_id,omitempty"` // electronic address, as scheme:id where it has a scheme
	Names          []string `json:"names,omitempty"`       // legal name, trade name
}

// BuyerIdentity is what identifies the legal entity as the buyer on papers.
type BuyerIdentity struct {
	VATIDs          []string `json:"vat_ids,omitempty"`
	RegistrationIDs []string `json:"registration_ids,omitempty"`
	EndpointIDs     []string `json:"endpoint_ids,omitempty"`
	Names           []string `json:"names,omitempty"`
}

// How the buyer on a paper was recognised as the legal entity, the values of buyer_match. "" is a
// document that was submitted without a buyer.
const (
	BuyerByVATID          = "vat_id"
	BuyerByRegistrationID = "registration_id"
	BuyerByEndpointID     = "endpoint_id"
	BuyerByName           = "name"
	BuyerDiffers          = "differs"
	BuyerNotChecked       = "not_checked" // nothing on the paper can be compared
)

// How the name of a seller who may be a natural person was recognised as the vendor's, the values of
// seller_match. "" is a document that was submitted without it.
const (
	SellerByName     = "name"
	SellerDiffers    = "differs"
	SellerNotChecked = "not_checked" // the vendor's name is not known, or was erased
)
