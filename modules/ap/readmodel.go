package ap

import (
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/modules/ap/contract"
)

// OpenItems is the projection of open documents and its read model. A change of the rows
// needs a higher version, which a rebuild builds from the events beside the active one.
const (
	OpenItems          = "ap.open-items"
	OpenItemsVersion   = 1
	ReadModelOpenItems = "open-items"
)

// Vendors is the projection of vendors and their contacts, and its read model.
const (
	Vendors          = "ap.vendors"
	VendorsVersion   = 2
	ReadModelVendors = "vendors"
)

// eventLedgerConfigured is an event of the general ledger. The projection of open items
// reads it for the functional currency.
const eventLedgerConfigured = "gl.ledger.configured"

func registerReadModels(r *module.Registrar) {
	types := []string{eventLedgerConfigured}
	for _, k := range contract.Kinds() {
		for _, action := range []string{contract.Submitted, contract.Held, contract.HoldReleased, contract.Posted} {
			types = append(types, k.Event(action))
		}
	}
	r.Projection(module.Projection{Name: OpenItems, Version: OpenItemsVersion, EventTypes: types})
	r.ReadModel(module.ReadModel{
		Name: ReadModelOpenItems, Projection: OpenItems,
		Description: "Posted documents that are not settled. Amounts are payable positive: those of credit memos are negative, so that open_functional over all rows is the credit balance of the control account.",
		Params: []module.Param{
			{Name: "vendor", Type: module.ParamString, Description: "vendor id"},
			{Name: "currency", Type: module.ParamString, Description: "document currency, ISO 4217"},
			{Name: "due_before", Type: module.ParamDate, Description: "due on an earlier date"},
			{Name: "held", Type: module.ParamBool, Description: "with (true) or without (false) open holds"},
			{Name: "kind", Type: module.ParamString, Description: "invoice, prepayment, opening or credit_memo"},
		},
		Columns: []module.Column{
			{Name: "vendor_id", Type: "string", Description: "vendor"},
			{Name: "document_id", Type: "string", Description: "id of the document, the last part of its stream"},
			{Name: "number", Type: "string", Description: "the vendor's document number"},
			{Name: "kind", Type: "string", Description: "invoice, prepayment, opening or credit_memo"},
			{Name: "invoice_date", Type: "date", Description: "date of the document"},
			{Name: "due_date", Type: "date", Description: "due date"},
			{Name: "currency", Type: "string", Description: "document currency"},
			{Name: "total", Type: "amount", Description: "what was posted to the control account, document currency"},
			{Name: "applied", Type: "amount", Description: "payments and credits, document currency"},
			{Name: "open", Type: "amount", Description: "total less applied, document currency"},
			{Name: "open_functional", Type: "amount", Description: "carrying amount of open, functional currency"},
			{Name: "state", Type: "string", Description: "posted or partially_paid"},
			{Name: "holds", Type: "object", Description: "open holds: id, kind, blocks"},
			{Name: "days_overdue", Type: "integer", Description: "days from the due date to as_of, 0 if not due"},
			{Name: "dimensions", Type: "object", Description: "dimensions of the document as a whole"},
			{Name: "event_id", Type: "string", Description: "event that posted the document"},
		},
	})
	registerSubledgerControl(r)
	r.Projection(module.Projection{Name: Vendors, Version: VendorsVersion, EventTypes: []string{
		contract.EventVendorRegistered, contract.EventVendorChanged, contract.EventVendorBlocked, contract.EventVendorUnblocked,
		contract.EventContactRecorded, contract.EventContactRemoved,
		contract.EventBankRequested, contract.EventBankChanged, contract.EventBankRejected,
	}})
	r.ReadModel(module.ReadModel{
		Name: ReadModelVendors, Projection: Vendors,
		Description: "Vendors, their contacts and bank accounts. Personal data is shown to those who may read its class: [MASKED] is not for the reader, [REDACTED] was erased.",
		Params:      []module.Param{{Name: "vendor", Type: module.ParamString, Description: "vendor id"}},
		Columns: []module.Column{
			{Name: "vendor_id", Type: "string", Description: "vendor"},
			{Name: "name", Type: "object", Description: "a company's name, a text; of a natural person name, address and vat_id as far as they are known; null if not known"},
			{Name: "country", Type: "string", Description: "ISO 3166-1 alpha-2"},
			{Name: "status", Type: "string", Description: "active, payment_blocked or blocked"},
			{Name: "natural_person", Type: "bool", Description: "the vendor is a person, not a company"},
			{Name: "contacts", Type: "object", Description: "contacts: contact_id, name, email, phone, function"},
			{Name: "bank", Type: "object", Description: "bank accounts: state (none, pending, approved), accounts by currency, and the open request: request_id, currency, iban, account, bank, bic, holder"},
			{Name: "event_id", Type: "string", Description: "event that registered the vendor"},
		},
	})
}
