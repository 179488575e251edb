package ap

import (
	"strings"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/modules/ap/contract"
	"github.com/erpbackbone/backbone/modules/ap/domain"
	gl "github.com/erpbackbone/backbone/modules/gl/contract"
)

// OpenItems is the projection of documents and its read models. A change of the rows needs a
// higher version, which a rebuild builds from the events beside the active one.
const (
	OpenItems          = "ap.open-items"
	OpenItemsVersion   = 2
	ReadModelOpenItems = "open-items"
	ReadModelDocuments = "documents"
	ReadModelDocument  = "invoices/{id}"
	ReadModelAging     = "aging"
	ReadModelStatement = "vendor-statement"
)

// Vendors is the projection of vendors and their contacts, and its read model.
const (
	Vendors          = "ap.vendors"
	VendorsVersion   = 2
	ReadModelVendors = "vendors"
)

// Tax is the projection of the tax lines of journals that the module posted, and its read models.
const (
	Tax                 = "ap.tax"
	TaxVersion          = 2
	ReadModelTaxSummary = "tax-summary"
	ReadModelTaxLines   = "tax-lines"
)

// eventLedgerConfigured is an event of the general ledger. The projection of open items
// reads it for the functional currency.
const eventLedgerConfigured = "gl.ledger.configured"

// documentEventTypes lists the event types of the documents' streams.
func documentEventTypes() []string {
	var types []string
	for _, k := range contract.Kinds() {
		actions := []string{
			contract.Drafted, contract.Discarded, contract.Submitted, contract.Corrected, contract.Validated, contract.Held, contract.HoldReleased,
			contract.ApprovalRecorded, contract.Approved, contract.Posted, contract.Rejected, contract.Voided, contract.Reinstated,
			contract.Paid, contract.PartiallyPaid, contract.PaymentReversed,
		}
		if k == contract.CreditMemo {
			actions = append(actions, contract.Applied, contract.Unapplied)
		} else {
			actions = append(actions, contract.CreditApplied, contract.CreditUnapplied, contract.PrepaymentUsed, contract.PrepaymentReturned,
				contract.PrepaymentApplied, contract.PrepaymentUndone)
		}
		for _, action := range actions {
			types = append(types, k.Event(action))
		}
	}
	return types
}

func registerReadModels(r *module.Registrar) {
	r.Projection(module.Projection{Name: OpenItems, Version: OpenItemsVersion, EventTypes: append(documentEventTypes(), eventLedgerConfigured)})
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
			{Name: "discount", Type: "object", Description: "granted for payment until a date: date, percent; null for none"},
			{Name: "dimensions", Type: "object", Description: "dimensions of the document as a whole"},
			{Name: "event_id", Type: "string", Description: "event that posted the document"},
		},
	})
	r.ReadModel(worklist())
	r.ReadModel(documentHistory())
	r.ReadModel(aging())
	r.ReadModel(vendorStatement())
	registerSubledgerControl(r)
	registerCloseChecklist(r)
	registerPaymentReadModels(r)
	registerFigures(r)
	registerPurchaseOrders(r)
	r.Projection(module.Projection{Name: Tax, Version: TaxVersion, EventTypes: []string{gl.EventJournalPosted, eventLedgerConfigured}})
	r.ReadModel(taxSummary())
	r.ReadModel(taxLines())
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

func worklist() module.ReadModel {
	return module.ReadModel{
		Name: ReadModelDocuments, Projection: OpenItems,
		Description: "Documents that wait for an action, the oldest first: drafts, undecided documents, and those with an open amount. States are those known at the sequence; as_of decides the ages only.",
		Params: []module.Param{
			{Name: "state", Type: module.ParamString, Description: "one state: draft, submitted, validated, posted, partially_paid; also paid, rejected, voided or discarded, which are left out otherwise"},
			{Name: "hold", Type: module.ParamString, Description: "with an open hold of this kind"},
			{Name: "vendor", Type: module.ParamString, Description: "vendor id"},
			{Name: "kind", Type: module.ParamString, Description: "invoice, prepayment, opening or credit_memo"},
			{Name: "next_role", Type: module.ParamString, Description: "that this role can act on next: ap_clerk, approver, controller, cfo or treasurer"},
			{Name: "older_than", Type: module.ParamInteger, Description: "that came in more than so many days before as_of"},
		},
		Columns: []module.Column{
			{Name: "vendor_id", Type: "string", Description: "vendor; of a draft as far as it is known"},
			{Name: "document_id", Type: "string", Description: "id of the document, the last part of its stream"},
			{Name: "number", Type: "string", Description: "the vendor's document number"},
			{Name: "kind", Type: "string", Description: "invoice, prepayment, opening or credit_memo"},
			{Name: "state", Type: "string", Description: "state of the document"},
			{Name: "invoice_date", Type: "date", Description: "date of the document"},
			{Name: "due_date", Type: "date", Description: "due date"},
			{Name: "currency", Type: "string", Description: "document currency"},
			{Name: "total", Type: "amount", Description: "gross total of the latest body, document currency; of a credit memo negative"},
			{Name: "open", Type: "amount", Description: "open on the control account, document currency"},
			{Name: "open_functional", Type: "amount", Description: "carrying amount of open, functional currency"},
			{Name: "holds", Type: "object", Description: "open holds: hold_id, kind, blocks, age_days (days)"},
			{Name: "age_days", Type: "integer", Description: "days from the first event to as_of"},
			{Name: "state_days", Type: "integer", Description: "days in the state"},
			{Name: "next_step", Type: "string", Description: "submit, correct_or_release, approve, release, pay, apply or reinstate"},
			{Name: "next_roles", Type: "object", Description: "roles that may do the next step"},
			{Name: "event_id", Type: "string", Description: "event of the latest body"},
		},
	}
}

func documentHistory() module.ReadModel {
	return module.ReadModel{
		Name: ReadModelDocument, Projection: OpenItems, Reads: []string{PurchaseOrders}, RowsName: "timeline", Flat: true, Command: "document", Example: "01ARZ3NDEKTSV4RRFFQ69G5FAV",
		Description: "An invoice or credit memo: the document as it is known (its file is GET /api/papers/{source_document.paper}, and that of an attachment GET /api/papers/{attachments[].paper}), its events with actor and time, and holds (who placed and who released them), approvals, applications, journals and its lines beside those of the purchase order (match).",
		Params:      []module.Param{{Name: "id", Type: module.ParamString, Required: true, InPath: true, Description: "id of the document"}},
		Columns: []module.Column{
			{Name: "sequence", Type: "string", Description: "place of the event in the legal entity's log"},
			{Name: "recorded_at", Type: "time", Description: "when the log took it"},
			{Name: "effective_date", Type: "date", Description: "date from which it counts"},
			{Name: "action", Type: "string", Description: "last part of the event's type"},
			{Name: "state", Type: "string", Description: "state of the document afterwards"},
			{Name: "actor_type", Type: "string", Description: "human, agent, system, external or import"},
			{Name: "actor_id", Type: "string", Description: "who did it"},
			{Name: "on_behalf_of", Type: "string", Description: "for whom the actor acted"},
			{Name: "data", Type: "object", Description: "data of the event; of a new body its reason only"},
			{Name: "event_id", Type: "string", Description: "the event"},
		},
	}
}

func aging() module.ReadModel {
	return module.ReadModel{
		Name: ReadModelAging, Projection: OpenItems,
		Description: "Open amounts by days overdue at as_of, for each vendor or value of a dimension and currency. Amounts are payable positive; their functional sum is the credit balance of the control account. The columns depend on by and buckets; these are those without them.",
		Params: []module.Param{
			{Name: "by", Type: module.ParamString, Description: "vendor (default), or a dimension of documents such as department; dimension:currency for one whose name another column has"},
			{Name: "buckets", Type: module.ParamString, Description: "last days overdue of each bucket, ascending; default 30,60,90"},
			{Name: "vendor", Type: module.ParamString, Description: "vendor id"},
			{Name: "currency", Type: module.ParamString, Description: "document currency, ISO 4217"},
		},
		Columns:     agingColumns(nil),
		VaryColumns: agingColumns,
	}
}

// agingColumns are the columns of aging: the vendor or value, and the sums of the buckets.
func agingColumns(params map[string]string) []module.Column {
	buckets, _ := domain.ParseAgingBuckets(params["buckets"])
	key, _ := domain.ParseAgingKey(params["by"], buckets)
	columns := []module.Column{
		{Name: key.Column(), Type: "string", Description: "vendor; with by, the column has the value of by as its name, and none for documents without a value"},
		{Name: domain.AgingCurrency, Type: "string", Description: "document currency"},
	}
	for _, column := range buckets.Sums() {
		name, currency := column, "document currency"
		if cut, isFunctional := strings.CutSuffix(column, "_functional"); isFunctional {
			name, currency = cut, "functional currency"
		}
		days, isLast := strings.CutPrefix(name, "over_")
		description := days + " days overdue"
		switch {
		case isLast:
			description = "more than " + description
		case name == "not_due":
			description = "due on as_of or later"
		case name == "total":
			description = "open in all"
		}
		columns = append(columns, module.Column{Name: column, Type: "amount", Description: description + ", " + currency})
	}
	return columns
}

func vendorStatement() module.ReadModel {
	return module.ReadModel{
		Name: ReadModelStatement, Projection: OpenItems, Example: "--vendor V-000001",
		Description: "What was booked for a vendor, by date, with running balances. A positive balance is owed to the vendor. The header has the balances before from, the footer those at as_of, by currency.",
		Params: []module.Param{
			{Name: "vendor", Type: module.ParamString, Required: true, Description: "vendor id"},
			{Name: "from", Type: module.ParamDate, Description: "first date shown; earlier entries make up the opening balances"},
			{Name: "currency", Type: module.ParamString, Description: "entries and balances in this document currency only"},
		},
		Columns: []module.Column{
			{Name: "date", Type: "date", Description: "posting date"},
			{Name: "document_id", Type: "string", Description: "id of the document"},
			{Name: "number", Type: "string", Description: "the vendor's document number"},
			{Name: "kind", Type: "string", Description: "invoice, prepayment, opening or credit_memo"},
			{Name: "action", Type: "string", Description: "what changed the open amount: posted, voided, credit_applied, ..."},
			{Name: "reference", Type: "string", Description: "external or payment reference of the document"},
			{Name: "counterpart", Type: "string", Description: "id of the document or payment that settled this one"},
			{Name: "currency", Type: "string", Description: "document currency"},
			{Name: "debit", Type: "amount", Description: "less is owed, document currency"},
			{Name: "credit", Type: "amount", Description: "more is owed, document currency"},
			{Name: "balance", Type: "amount", Description: "running balance of the currency, document currency"},
			{Name: "functional_amount", Type: "amount", Description: "carrying amount, functional currency; positive is owed"},
			{Name: "functional_balance", Type: "amount", Description: "running balance of all rows, functional currency"},
			{Name: "event_id", Type: "string", Description: "event that changed the open amount"},
		},
	}
}

func taxSummary() module.ReadModel {
	m := module.ReadModel{
		Name: ReadModelTaxSummary, Projection: Tax,
		Description: "Tax of the journals that accounts payable posted, by tax group and currency: a worksheet for the VAT return of a period. The footer has the totals in functional currency: recoverable and output tax, and output less recoverable.",
		Params: []module.Param{
			{Name: "from", Type: module.ParamDate, Description: "first posting date"},
			{Name: "by", Type: module.ParamString, Description: "period: a row for each period"},
		},
		Columns: []module.Column{
			{Name: "period", Type: "string", Description: "period of the journals, with by=period"},
			{Name: "tax_group", Type: "string", Description: "tax group of the ledger's settings"},
			{Name: "category", Type: "string", Description: "category of the group, as S, AE or K"},
			{Name: "rate", Type: "string", Description: "percent, of the settings"},
			{Name: "currency", Type: "string", Description: "document currency"},
		},
	}
	for _, in := range []struct{ suffix, currency string }{{"", "document currency"}, {"_functional", "functional currency"}} {
		for _, c := range []struct{ name, description string }{
			{"taxable", "amount of the lines in the group, less credit memos"}, {"tax", "recoverable and not recoverable tax"}, {"recoverable", "input tax to deduct"},
			{"not_recoverable", "tax that is an expense"}, {"output", "tax owed to the tax office (reverse charge)"},
		} {
			m.Columns = append(m.Columns, module.Column{Name: c.name + in.suffix, Type: "amount", Description: c.description + ", " + in.currency})
		}
	}
	return m
}

func taxLines() module.ReadModel {
	return module.ReadModel{
		Name: ReadModelTaxLines, Projection: Tax, Example: "--tax-group S/19 --period 2026-03",
		Description: "Lines of journals behind the rows of ap/tax-summary in a tax group, with the document or payment that each is of. Their amounts have the signs of the summary and add up to its columns.",
		Params: []module.Param{
			{Name: "tax_group", Type: module.ParamString, Required: true, Description: "tax group of the ledger's settings"},
			{Name: "period", Type: module.ParamString, Description: "period of the journals, such as 2026-03"},
			{Name: "from", Type: module.ParamDate, Description: "first posting date"},
		},
		Columns: []module.Column{
			{Name: "date", Type: "date", Description: "posting date"},
			{Name: "period", Type: "string", Description: "period of the journal"},
			{Name: "part", Type: "string", Description: "base (taxable), recoverable, not_recoverable or output"},
			{Name: "document_id", Type: "string", Description: "document that was booked; empty for the discounts of a payment"},
			{Name: "payment_id", Type: "string", Description: "payment whose discounts correct tax; its documents are in ap/payment-history"},
			{Name: "journal_number", Type: "string", Description: "journal"},
			{Name: "currency", Type: "string", Description: "document currency"},
			{Name: "amount", Type: "amount", Description: "of the part, document currency"},
			{Name: "functional_amount", Type: "amount", Description: "of the part, functional currency"},
			{Name: "event_id", Type: "string", Description: "event that posted the journal", Detail: true},
		},
	}
}
