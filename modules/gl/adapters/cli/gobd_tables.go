package cli

// documentStates are the states of ap/documents, of which it shows unfinished ones only unless
// it is asked for another.
var documentStates = []string{"draft", "submitted", "validated", "posted", "partially_paid", "paid", "rejected", "voided", "discarded"}

func accountsTable() gobdTable {
	return gobdTable{file: "accounts.csv", description: "Chart of accounts", keys: 1, columns: []*gobdColumn{
		column("account string", "account code"),
		column("name string", "name of the account"),
		column("type string", "asset, liability, equity, income or expense"),
		column("normal_side string", "side that increases it, debit or credit"),
		column("parent string", "account above it in the chart"),
		column("postable string", "takes lines"),
		column("control string", "module that alone posts to it, or none"),
		column("status string", "active or blocked"),
	}}
}

func balancesTable() gobdTable {
	return gobdTable{file: "balances.csv", description: "Trial balance of the time, functional currency", keys: 1, columns: []*gobdColumn{
		column("account string > accounts.csv", "account code"),
		column("name string", "name of the account"),
		column("type string", "asset, liability, equity, income or expense"),
		column("opening amount", "balance before the first day; positive is a debit balance"),
		column("debit amount", "sum of debits"),
		column("credit amount", "sum of credits"),
		column("balance amount", "opening and debit less credit"),
	}}
}

func journalsTable() gobdTable {
	return gobdTable{file: "journals.csv", description: "Posted journals in the order in which they were recorded", keys: 1, columns: []*gobdColumn{
		column("event_id string", "event gl.journal.posted"),
		column("journal_number string", "gap-free number"),
		column("effective_date date", "posting date"),
		column("document_date date", "date of the paper, where it has one"),
		column("recorded_at time", "when the log took it, UTC"),
		column("type string", "journal type"),
		column("period string", "period of the posting date"),
		column("fiscal_year string", "fiscal year of the posting date"),
		column("description string", "of the journal"),
		column("total amount", "sum of debits, functional currency"),
		column("functional_currency string", "of total, ISO 4217"),
		column("lines number", "number of lines"),
		column("reverses string", "number of the journal that it reverses"),
		column("reversed_by string", "number of the journal that reverses it"),
		column("source_module string", "module that caused it"),
		column("source_event_id string", "event that caused it"),
		column("actor_id string", "who posted it"),
		column("approvers string", "persons who approved its intent"),
		column("intent_id string", "intent that posted it"),
		column("correlation_id string", "process that it belongs to"),
		column("journal_id string", "stream of the journal"),
		column("sequence number", "place of the event in the legal entity's log"),
	}}
}

func linesTable(hasPayables bool) gobdTable {
	vendor := "vendor_id string"
	if hasPayables {
		vendor += " > vendors.csv"
	}
	return gobdTable{file: "journal_lines.csv", description: "Lines of the journals as they were posted", keys: 2, columns: []*gobdColumn{
		column("event_id string > journals.csv", "event gl.journal.posted"),
		column("line_number number", "line of the journal"),
		column("journal_number string", "gap-free number"),
		column("effective_date date", "posting date"),
		column("document_date date", "date of the paper, where it has one"),
		column("recorded_at time", "when the log took it, UTC"),
		column("type string", "journal type"),
		column("journal_description string", "of the journal"),
		column("account string > accounts.csv", "account code"),
		column("account_name string", "name of the account"),
		column("description string", "of the line"),
		column("side string", "debit or credit"),
		column("amount amount", "in currency"),
		column("currency string", "ISO 4217"),
		column("functional_amount amount", "in functional currency"),
		column("functional_currency string", "ISO 4217"),
		column("rate amount", "functional units per 1 currency"),
		column("tax_code string", "tax group of the line"),
		column(vendor, "vendor of a line on a control account"),
		column("fiscal_year string", "fiscal year of the posting date"),
		column("period string", "period of the posting date"),
		column("source_event_id string", "event that caused the journal"),
		column("correlation_id string", "process that the journal belongs to"),
		column("intent_id string", "intent that posted the journal"),
		column("journal_id string", "stream of the journal"),
		column("sequence number", "place of the event in the legal entity's log"),
	}}
}

func lineDimensionsTable() gobdTable {
	return gobdTable{file: "line_dimensions.csv", description: "Dimensions of the journal lines", keys: 3, columns: []*gobdColumn{
		column("event_id string > journals.csv", "event gl.journal.posted"),
		column("line_number number", "line of the journal"),
		column("dimension string", "name of the dimension"),
		column("value string", "value of the line"),
	}}
}

func vendorsTable() gobdTable {
	return gobdTable{file: "vendors.csv", description: "Vendors", keys: 1, columns: []*gobdColumn{
		column("vendor_id string", "vendor"),
		column("name string", "name; [MASKED] is not for the reader, [REDACTED] was erased"),
		column("country string", "ISO 3166-1 alpha-2"),
		column("status string", "active, payment_blocked or blocked"),
		column("natural_person string", "true: the vendor is a person, not a company"),
	}}
}

func documentsTable() gobdTable {
	return gobdTable{file: "documents.csv", description: "Documents of vendors, with the state known at the sequence", keys: 1, columns: []*gobdColumn{
		column("document_id string", "id of the document"),
		column("vendor_id string > vendors.csv", "vendor"),
		column("number string", "the vendor's document number"),
		column("kind string", "invoice, prepayment, opening or credit_memo"),
		column("state string", "state of the document"),
		column("invoice_date date", "date of the document"),
		column("due_date date", "due date"),
		column("currency string", "document currency, ISO 4217"),
		column("total amount", "gross total, document currency; of a credit memo negative"),
		column("open amount", "open on the control account, document currency"),
		column("open_functional amount", "carrying amount of open, functional currency"),
		column("event_id string", "event of the latest body"),
	}}
}

func openItemsTable() gobdTable {
	return gobdTable{file: "open_items.csv", description: "Posted documents that are not settled on the last day", keys: 1, columns: []*gobdColumn{
		column("document_id string > documents.csv", "id of the document"),
		column("vendor_id string > vendors.csv", "vendor"),
		column("number string", "the vendor's document number"),
		column("kind string", "invoice, prepayment, opening or credit_memo"),
		column("invoice_date date", "date of the document"),
		column("due_date date", "due date"),
		column("currency string", "document currency, ISO 4217"),
		column("total amount", "what was posted to the control account, document currency"),
		column("applied amount", "payments and credits, document currency"),
		column("open amount", "total less applied, document currency"),
		column("open_functional amount", "carrying amount of open, functional currency"),
	}}
}

func taxTable() gobdTable {
	t := gobdTable{file: "tax.csv", description: "Tax of the vendors' documents by period, group and currency", columns: []*gobdColumn{
		column("period string", "period of the journals"),
		column("tax_group string", "tax group of the ledger's settings"),
		column("category string", "category of the group"),
		column("rate amount", "percent"),
		column("currency string", "document currency, ISO 4217"),
	}}
	for _, in := range []struct{ suffix, currency string }{{"", "document currency"}, {"_functional", "functional currency"}} {
		for _, c := range []struct{ name, description string }{
			{"taxable", "amount of the lines in the group"}, {"tax", "recoverable and not recoverable tax"}, {"recoverable", "input tax to deduct"},
			{"not_recoverable", "tax that is an expense"}, {"output", "tax owed to the tax office"},
		} {
			t.columns = append(t.columns, column(c.name+in.suffix+" amount", c.description+", "+in.currency))
		}
	}
	return t
}
