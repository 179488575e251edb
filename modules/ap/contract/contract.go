// Package contract is the part of accounts payable that other modules and adapters may
// import: names of intents, events, streams and entities, and the types of payloads and
// event data. It has no rules.
package contract

import (
	"strings"

	"github.com/erpbackbone/backbone/domain/event"
)

// ModuleName is the module's own name, also in period checks.
const ModuleName = "ap"

// Kind distinguishes invoices from credit memos. Both have the same life cycle; names of
// events, streams, fields and codes differ by the kind alone.
type Kind string

// The kinds.
const (
	Invoice    Kind = "invoice"
	CreditMemo Kind = "credit_memo"
)

// Kinds lists the kinds.
func Kinds() []Kind { return []Kind{Invoice, CreditMemo} }

// Noun is the kind in running text.
func (k Kind) Noun() string {
	if k == CreditMemo {
		return "credit memo"
	}
	return "invoice"
}

// Event is the name of the kind's event: Event("submitted") is
// "ap.invoice.submitted".
func (k Kind) Event(action string) string { return "ap." + string(k) + "." + action }

// Action is the last part of the name of one of the kind's events, for example "submitted".
func (k Kind) Action(eventType string) (string, bool) {
	return strings.CutPrefix(eventType, k.Event(""))
}

// Intent is the name of an intent on documents of the kind: Intent("submit") is
// "ap.submit_invoice".
func (k Kind) Intent(verb string) string { return "ap." + verb + "_" + string(k) }

// Code is the code of a refusal: Code("duplicate") is "ap.invoice.duplicate".
func (k Kind) Code(name string) string { return "ap." + string(k) + "." + name }

// IDField is the member of data that names the document.
func (k Kind) IDField() string { return string(k) + "_id" }

// StreamType is the type of the documents' streams.
func (k Kind) StreamType() string { return "ap." + string(k) }

// Stream is a document's stream.
func (k Kind) Stream(id string) event.StreamID { return event.StreamID{Type: k.StreamType(), ID: id} }

// KindOfStream finds the kind by the type of a stream.
func KindOfStream(streamType string) (Kind, bool) {
	for _, k := range Kinds() {
		if k.StreamType() == streamType {
			return k, true
		}
	}
	return "", false
}

// Actions of documents: the last parts of their events' names.
const (
	Drafted          = "drafted"
	Discarded        = "discarded" // a draft
	Submitted        = "submitted"
	Corrected        = "corrected" // before approval
	Validated        = "validated"
	Held             = "held"
	HoldReleased     = "hold_released"
	ApprovalRecorded = "approval_recorded"
	Approved         = "approved"
	Posted           = "posted"
	Paid             = "paid"
	Rejected         = "rejected"
	Voided           = "voided"
	Reinstated       = "reinstated" // after a rejection or void
)

// Actions of documents that settle each other.
const (
	Applied            = "applied"   // credit memos: against an invoice
	Unapplied          = "unapplied" // credit memos
	CreditApplied      = "credit_applied"
	CreditUnapplied    = "credit_unapplied"
	PrepaymentUsed     = "prepayment_used"    // of a prepayment
	PrepaymentApplied  = "prepayment_applied" // to an invoice
	PrepaymentReturned = "prepayment_returned"
	PrepaymentUndone   = "prepayment_unapplied"
)

// Other event types.
const (
	EventVendorRegistered = "ap.vendor.registered"
	EventContactRecorded  = "ap.vendor.contact_recorded"
	EventContactRemoved   = "ap.vendor.contact_removed"
	EventVendorChanged    = "ap.vendor.changed"
	EventVendorBlocked    = "ap.vendor.blocked"
	EventVendorUnblocked  = "ap.vendor.unblocked"
	EventBankRequested    = "ap.vendor.bank_change_requested"
	EventBankChanged      = "ap.vendor.bank_changed"
	EventBankRejected     = "ap.vendor.bank_change_rejected"
	EventSettingsChanged  = "ap.settings.changed"
)

// Intents that do not belong to a document kind.
const (
	IntentRegisterVendor      = "ap.register_vendor"
	IntentSetVendorContact    = "ap.set_vendor_contact"
	IntentRemoveVendorContact = "ap.remove_vendor_contact"
	IntentChangeVendor        = "ap.change_vendor"
	IntentBlockVendor         = "ap.block_vendor"
	IntentUnblockVendor       = "ap.unblock_vendor"
	IntentRequestBankChange   = "ap.request_bank_change"
	IntentApproveBankChange   = "ap.approve_bank_change"
	IntentRejectBankChange    = "ap.reject_bank_change"
	IntentReleaseHold         = "ap.release_hold"
	IntentDiscardDraft        = "ap.discard_draft"
	IntentApplyCredit         = "ap.apply_credit"
	IntentUnapplyCredit       = "ap.unapply_credit"
	IntentApplyPrepayment     = "ap.apply_prepayment"
	IntentUnapplyPrepayment   = "ap.unapply_prepayment"
	IntentConfigure           = "ap.configure"
)

// Stream types.
const (
	StreamVendor   = "ap.vendor"   // id: vendor id
	StreamSettings = "ap.settings" // id "main"
)

// VendorStream is a vendor's stream.
func VendorStream(id string) event.StreamID { return event.StreamID{Type: StreamVendor, ID: id} }

// SettingsStream holds the module's settings.
func SettingsStream() event.StreamID { return event.StreamID{Type: StreamSettings, ID: "main"} }

// Entity types and roles of references.
const (
	EntityVendor  = "vendor"
	EntityContact = "contact" // a person at a vendor
	RoleSubject   = "subject"
	RoleContact   = "contact"
	RoleDocument  = "document"
	RoleApplied   = "applied_with" // the other document of an application
)

// VendorRef refers to the vendor an event is about.
func VendorRef(id string) event.EntityRef {
	return event.EntityRef{Type: EntityVendor, ID: id, Role: RoleSubject}
}

// ContactRef refers to the contact an event is about.
func ContactRef(id string) event.EntityRef {
	return event.EntityRef{Type: EntityContact, ID: id, Role: RoleContact}
}

// Ref refers to the document an event is about.
func (k Kind) Ref(id string) event.EntityRef {
	return event.EntityRef{Type: string(k), ID: id, Role: RoleDocument}
}

// AppliedRef refers to the other document of an application.
func (k Kind) AppliedRef(id string) event.EntityRef {
	return event.EntityRef{Type: string(k), ID: id, Role: RoleApplied}
}

// Document types, the values of document_type. "" counts as standard.
const (
	TypeStandard   = "standard"
	TypePrepayment = "prepayment" // posted to the prepayment account
	TypeOpening    = "opening"    // an item taken over from earlier books, posted against the opening account
)

// Where a due date comes from, the values of due_date_source.
const (
	DueDateFromDocument = "document"
	DueDateFromVendor   = "vendor_terms"
	DueDateFromDefault  = "default_terms"
)

// Hold kinds. Those of BlocksApproval block approval and payment, those of
// BlocksPayment payment only.
const (
	HoldDuplicateSuspect = "DUPLICATE_SUSPECT"
	HoldTaxVariance      = "TAX_VARIANCE"
	HoldCodingMissing    = "CODING_MISSING"
	HoldPayeeDiffers     = "PAYEE_DIFFERS"
	HoldBankMismatch     = "BANK_MISMATCH"
	HoldDocumentWarning  = "DOCUMENT_WARNING"
	HoldPrepaidUnmatched = "PREPAID_UNMATCHED"
	HoldCodingInvalid    = "CODING_INVALID"
	HoldTaxGroupUnknown  = "TAX_GROUP_UNKNOWN"
	HoldWithholding      = "WITHHOLDING_VARIANCE"
	HoldBuyerDiffers     = "BUYER_DIFFERS"
	HoldSellerDiffers    = "SELLER_DIFFERS"
	HoldManual           = "MANUAL"  // placed by a person
	HoldDispute          = "DISPUTE" // placed by a person
)

// PlacedByPerson reports whether a person places holds of the kind. Checks of the document
// neither place nor release them.
func PlacedByPerson(holdKind string) bool { return holdKind == HoldManual || holdKind == HoldDispute }

// What a hold blocks, the values of blocks.
const (
	BlocksApproval = "approval"
	BlocksPayment  = "payment"
)

// Texts of journal lines that no account tells apart from a document's own lines. Read models
// recognise the lines by them.
const (
	TextNotRecoverable = "Tax that cannot be recovered"
	TextWithholding    = "Withholding " // before the code

	TextDiscountInputTax  = "Input tax of discounts"
	TextDiscountOutputTax = "Reverse charge of discounts"
)
