package gl

import (
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/modules/gl/domain"
)

// ProjectionLedger is the projection of journals with their lines, account names and the
// functional currency. Both read models query its rows.
const ProjectionLedger = "gl.ledger"

// Paths of the ledger's read models.
const (
	ReadModelTrialBalance      = "trial-balance"
	ReadModelAccountLedger     = "accounts/{account}/ledger"
	ReadModelAccounts          = "accounts"
	ReadModelDimensionBalances = "dimension-balances"
	ReadModelJournals          = "journals"
	ReadModelJournal           = "journals/{number}"
	ReadModelJournalLines      = "journal-lines"
	ReadModelNumberGaps        = "number-gaps"
	ReadModelPeriods           = "periods"
	ReadModelRates             = "rates"
)

// Parameters that several read models have.
var (
	paramFrom       = module.Param{Name: "from", Type: module.ParamDate, Description: "first effective date"}
	paramDimensions = module.Param{Name: "dimensions", Type: module.ParamString, Description: "only lines with these values, as department=ENG,project=none; none is no value"}
)

func registerReadModels(r *module.Registrar) {
	registerBalances(r)
	registerClosing(r)
	registerBankReconciliation(r)
	registerFigures(r)
	r.Projection(module.Projection{
		Name: ProjectionLedger, Version: 2,
		EventTypes: []string{
			domain.EventJournalPosted, domain.EventJournalReversed, domain.EventLedgerConfigured,
			domain.EventAccountDefined, domain.EventAccountChanged, domain.EventAccountBlocked, domain.EventAccountUnblocked, domain.EventCalendarExtended,
			domain.EventPeriodOpened, domain.EventPeriodSoftClosed, domain.EventPeriodHardClosed, domain.EventPeriodReopened, domain.EventExchangeRateSet,
		},
	})
	r.ReadModel(module.ReadModel{
		Name: ReadModelTrialBalance, Projection: ProjectionLedger, RowsName: "accounts", Flat: true, Example: "--from 2026-01-01",
		Description: "Debit, credit and balance per account in functional currency, as of an effective date and as known at a recorded time. Accounts without lines are left out. " +
			"unclosed_years lists fiscal years before as_of whose income and expense are not closed.",
		Params: []module.Param{
			{Name: "from", Type: module.ParamDate, Description: "first effective date of debit and credit; earlier lines are the opening balance"},
			{Name: "currency", Type: module.ParamString, Description: "only lines in this currency, with amounts in it"},
			{Name: "level", Type: module.ParamInteger, Description: "level of the chart to which accounts below are added; 1 for accounts without a parent"},
			{Name: "include_closing", Type: module.ParamBool, Description: "false leaves out the journals that close the fiscal year of as_of (default true)"},
			paramDimensions,
		},
		Columns: []module.Column{
			{Name: "account", Type: "string", Description: "account code"},
			{Name: "name", Type: "string", Description: "name of the account"},
			{Name: "type", Type: "string", Description: "asset, liability, equity, income or expense"},
			{Name: "opening", Type: "amount", Description: "balance before from; only with from"},
			{Name: "debit", Type: "amount", Description: "sum of debits, functional currency"},
			{Name: "credit", Type: "amount", Description: "sum of credits, functional currency"},
			{Name: "balance", Type: "amount", Description: "opening and debit less credit, functional currency; positive is a debit balance"},
		},
	})
	registerChart(r)
	registerJournals(r)
	registerCalendar(r)
	r.ReadModel(module.ReadModel{
		Name: ReadModelAccountLedger, Projection: ProjectionLedger, Command: "account", Example: "2000 --from 2026-03-01",
		Description: "The lines of one account by effective date, with the running balance in functional currency.",
		Params: []module.Param{
			{Name: "account", Type: module.ParamString, Required: true, InPath: true, Description: "account code"},
			{Name: "from", Type: module.ParamDate, Description: "first effective date shown; earlier lines make up opening_balance"},
			{Name: "currency", Type: module.ParamString, Description: "only lines in this currency; balances then are in it"},
			paramDimensions,
		},
		Columns: []module.Column{
			{Name: "effective_date", Type: "date", Description: "posting date"},
			{Name: "recorded_at", Type: "time", Description: "when the log took it", Detail: true},
			{Name: "sequence", Type: "string", Description: "place of the event in the legal entity's log", Detail: true},
			{Name: "event_id", Type: "string", Description: "event gl.journal.posted", Detail: true},
			{Name: "journal_id", Type: "string", Description: "stream of the journal", Detail: true},
			{Name: "journal_number", Type: "string", Description: "gap-free number"},
			{Name: "line_number", Type: "integer", Description: "line of the journal", Detail: true},
			{Name: "type", Type: "string", Description: "journal type", Detail: true},
			{Name: "description", Type: "string", Description: "of the line, else of the journal"},
			{Name: "side", Type: "string", Description: "debit or credit"},
			{Name: "amount", Type: "amount", Description: "in currency"},
			{Name: "currency", Type: "string", Description: "ISO 4217 code"},
			{Name: "functional_amount", Type: "amount", Description: "in functional currency"},
			{Name: "rate", Type: "string", Description: "functional units per 1 currency", Detail: true},
			{Name: "rate_date", Type: "date", Description: "day of the rate", Detail: true},
			{Name: "dimensions", Type: "object", Description: "of the line"},
			{Name: "running_balance", Type: "amount", Description: "after the line; positive is a debit balance"},
			{Name: "source_module", Type: "string", Description: "module that caused the journal", Detail: true},
			{Name: "source_event_id", Type: "string", Description: "event that caused the journal", Detail: true},
			{Name: "reversed_by", Type: "string", Description: "id of the reversing journal, if it was reversed", Detail: true},
		},
	})
}

func registerChart(r *module.Registrar) {
	r.ReadModel(module.ReadModel{
		Name: ReadModelAccounts, Projection: ProjectionLedger, Description: "The chart of accounts, as known at a recorded time.",
		Params: []module.Param{
			{Name: "type", Type: module.ParamString, Description: "asset, liability, equity, income or expense"},
			{Name: "control", Type: module.ParamString, Description: "module that owns the account, or none"},
			{Name: "status", Type: module.ParamString, Description: "active or blocked"},
		},
		Columns: []module.Column{
			{Name: "account", Type: "string", Description: "account code"},
			{Name: "name", Type: "string", Description: "name of the account"},
			{Name: "type", Type: "string", Description: "asset, liability, equity, income or expense"},
			{Name: "normal_side", Type: "string", Description: "side that increases it, debit or credit"},
			{Name: "parent", Type: "string", Description: "account above it in the chart"},
			{Name: "postable", Type: "bool", Description: "takes lines"},
			{Name: "control", Type: "string", Description: "module that alone posts to it, or none"},
			{Name: "status", Type: "string", Description: "active or blocked"},
			{Name: "event_id", Type: "string", Description: "event that defined it", Detail: true},
		},
	})
	r.ReadModel(module.ReadModel{
		Name: ReadModelDimensionBalances, Projection: ProjectionLedger, Example: "--dimensions department,project",
		Description: "Debit, credit and balance per account and values of dimensions, in functional currency. Lines without a value are in the row none, so the balances of an account's rows add up to account_balance.",
		Params: []module.Param{
			{Name: "dimensions", Type: module.ParamString, Required: true, Description: "names of the dimensions, as department,project"},
			paramFrom,
			{Name: "account", Type: module.ParamString, Description: "account code"},
		},
		Columns: []module.Column{
			{Name: "account", Type: "string", Description: "account code"},
			{Name: "dimensions", Type: "object", Description: "value of each dimension, or none"},
			{Name: "debit", Type: "amount", Description: "sum of debits, functional currency"},
			{Name: "credit", Type: "amount", Description: "sum of credits, functional currency"},
			{Name: "balance", Type: "amount", Description: "debit less credit, functional currency; positive is a debit balance"},
			{Name: "account_balance", Type: "amount", Description: "balance of all rows of the account, functional currency"},
		},
	})
}

func registerJournals(r *module.Registrar) {
	r.ReadModel(module.ReadModel{
		Name: ReadModelJournals, Projection: ProjectionLedger, Description: "Posted journals in the order in which they were recorded.", Example: "--type reversal",
		Params: []module.Param{
			paramFrom,
			{Name: "type", Type: module.ParamString, Description: "general, subledger, reversal, closing, opening, allocation, revaluation or intercompany"},
			{Name: "period", Type: module.ParamString, Description: "period, as 2026-03"},
			{Name: "number_from", Type: module.ParamString, Description: "first journal number"},
			{Name: "number_to", Type: module.ParamString, Description: "last journal number"},
		},
		Columns: []module.Column{
			{Name: "journal_number", Type: "string", Description: "gap-free number"},
			{Name: "effective_date", Type: "date", Description: "posting date"},
			{Name: "document_date", Type: "date", Description: "date of the paper that it books, where it has one", Detail: true},
			{Name: "recorded_at", Type: "time", Description: "when the log took it", Detail: true},
			{Name: "type", Type: "string", Description: "journal type"},
			{Name: "period", Type: "string", Description: "period of the posting date"},
			{Name: "fiscal_year", Type: "string", Description: "fiscal year of the posting date", Detail: true},
			{Name: "description", Type: "string", Description: "of the journal"},
			{Name: "total", Type: "amount", Description: "sum of debits, functional currency"},
			{Name: "functional_currency", Type: "string", Description: "of total"},
			{Name: "lines", Type: "integer", Description: "number of lines"},
			{Name: "reverses", Type: "string", Description: "number of the journal that it reverses"},
			{Name: "reverses_journal_id", Type: "string", Description: "id of that journal", Detail: true},
			{Name: "reversed_by", Type: "string", Description: "number of the journal that reverses it"},
			{Name: "reversed_by_journal_id", Type: "string", Description: "id of that journal", Detail: true},
			{Name: "source_module", Type: "string", Description: "module that caused it", Detail: true},
			{Name: "source_event_id", Type: "string", Description: "event that caused it", Detail: true},
			{Name: "actor_id", Type: "string", Description: "who posted it"},
			{Name: "approvers", Type: "object", Description: "persons who approved its intent"},
			{Name: "intent_id", Type: "string", Description: "intent that posted it", Detail: true},
			{Name: "correlation_id", Type: "string", Description: "process that it belongs to", Detail: true},
			{Name: "journal_id", Type: "string", Description: "stream of the journal", Detail: true},
			{Name: "event_id", Type: "string", Description: "event gl.journal.posted", Detail: true},
			{Name: "sequence", Type: "string", Description: "place of the event in the legal entity's log", Detail: true},
		},
	})
	r.ReadModel(module.ReadModel{
		Name: ReadModelJournal, Projection: ProjectionLedger, Command: "journal", Example: "SL-2026-000001",
		Description: "One journal: its header, with reversals, source, intent and approvers, and its lines.",
		Params:      []module.Param{{Name: "number", Type: module.ParamString, Required: true, InPath: true, Description: "journal number or id"}},
		Columns:     lineColumns(true),
	})
	r.ReadModel(module.ReadModel{
		Name: ReadModelJournalLines, Projection: ProjectionLedger,
		Description: "The lines of all journals as they were posted, in the order in which they were recorded.",
		Params: []module.Param{
			paramFrom,
			{Name: "account", Type: module.ParamString, Description: "account code"},
			{Name: "tax_code", Type: module.ParamString, Description: "tax group of the line"},
		},
		Columns: lineColumns(false),
	})
	r.ReadModel(module.ReadModel{
		Name: ReadModelNumberGaps, Projection: ProjectionLedger,
		Description: "Each series of journal numbers, with the numbers that are missing or repeated, of which there must be none. Journals of all effective dates count.",
		Params: []module.Param{
			{Name: "type", Type: module.ParamString, Description: "journal type"},
			{Name: "fiscal_year", Type: module.ParamString, Description: "label of the fiscal year"},
		},
		Columns: []module.Column{
			{Name: "series", Type: "string", Description: "type and fiscal year of the numbers"},
			{Name: "type", Type: "string", Description: "journal type"},
			{Name: "fiscal_year", Type: "string", Description: "label of the fiscal year"},
			{Name: "first", Type: "integer", Description: "lowest number"},
			{Name: "last", Type: "integer", Description: "highest number"},
			{Name: "count", Type: "integer", Description: "journals"},
			{Name: "expected", Type: "integer", Description: "journals from 1 to last"},
			{Name: "missing", Type: "object", Description: "ranges of missing numbers: first, last"},
			{Name: "repeated", Type: "object", Description: "numbers of more than one journal"},
		},
	})
}

// lineColumns are those of journal lines. In a report of one journal those of the journal
// are details.
func lineColumns(ofOneJournal bool) []module.Column {
	return []module.Column{
		{Name: "journal_number", Type: "string", Description: "gap-free number", Detail: ofOneJournal},
		{Name: "effective_date", Type: "date", Description: "posting date", Detail: ofOneJournal},
		{Name: "document_date", Type: "date", Description: "date of the paper that the journal books, where it has one", Detail: true},
		{Name: "recorded_at", Type: "time", Description: "when the log took it", Detail: true},
		{Name: "type", Type: "string", Description: "journal type", Detail: true},
		{Name: "journal_description", Type: "string", Description: "of the journal", Detail: true},
		{Name: "line_number", Type: "integer", Description: "line of the journal"},
		{Name: "account", Type: "string", Description: "account code"},
		{Name: "account_name", Type: "string", Description: "name of the account"},
		{Name: "description", Type: "string", Description: "of the line"},
		{Name: "side", Type: "string", Description: "debit or credit"},
		{Name: "amount", Type: "amount", Description: "in currency"},
		{Name: "currency", Type: "string", Description: "ISO 4217 code"},
		{Name: "functional_amount", Type: "amount", Description: "in functional currency"},
		{Name: "functional_currency", Type: "string", Description: "ISO 4217 code", Detail: true},
		{Name: "rate", Type: "string", Description: "functional units per 1 currency", Detail: true},
		{Name: "rate_date", Type: "date", Description: "day of the rate", Detail: true},
		{Name: "tax_code", Type: "string", Description: "tax group of the line", Detail: true},
		{Name: "dimensions", Type: "object", Description: "of the line"},
		{Name: "fiscal_year", Type: "string", Description: "fiscal year of the posting date", Detail: true},
		{Name: "period", Type: "string", Description: "period of the posting date", Detail: true},
		{Name: "source_module", Type: "string", Description: "module that caused the journal", Detail: true},
		{Name: "source_event_id", Type: "string", Description: "event that caused the journal", Detail: true},
		{Name: "correlation_id", Type: "string", Description: "process that the journal belongs to", Detail: true},
		{Name: "intent_id", Type: "string", Description: "intent that posted the journal", Detail: true},
		{Name: "journal_id", Type: "string", Description: "stream of the journal", Detail: true},
		{Name: "event_id", Type: "string", Description: "event gl.journal.posted", Detail: true},
		{Name: "sequence", Type: "string", Description: "place of the event in the legal entity's log", Detail: true},
	}
}

func registerCalendar(r *module.Registrar) {
	r.ReadModel(module.ReadModel{
		Name: ReadModelPeriods, Projection: ProjectionLedger,
		Description: "Periods with their state for each module, and who changed it when, as known at a recorded time.",
		Params: []module.Param{
			{Name: "module", Type: module.ParamString, Description: "gl or ap"},
			{Name: "fiscal_year", Type: module.ParamString, Description: "label of the fiscal year"},
			{Name: "period", Type: module.ParamString, Description: "period, as 2026-03"},
			{Name: "state", Type: module.ParamString, Description: "not_open, open, soft_closed or hard_closed"},
		},
		Columns: []module.Column{
			{Name: "module", Type: "string", Description: "gl or ap"},
			{Name: "fiscal_year", Type: "string", Description: "label of the fiscal year"},
			{Name: "period", Type: "string", Description: "name of the period"},
			{Name: "start", Type: "date", Description: "first day"},
			{Name: "end", Type: "date", Description: "last day"},
			{Name: "state", Type: "string", Description: "not_open, open, soft_closed or hard_closed"},
			{Name: "changed_at", Type: "time", Description: "when the state was recorded"},
			{Name: "actor_id", Type: "string", Description: "who changed it"},
			{Name: "approvers", Type: "object", Description: "persons who approved the change"},
			{Name: "reason", Type: "string", Description: "why it was changed"},
			{Name: "intent_id", Type: "string", Description: "intent that changed it", Detail: true},
			{Name: "event_id", Type: "string", Description: "event that changed it", Detail: true},
		},
	})
	r.ReadModel(module.ReadModel{
		Name: ReadModelRates, Projection: ProjectionLedger, Description: "Exchange rates of days up to as_of, with their age.", Example: "--from-currency USD --latest",
		Params: []module.Param{
			{Name: "from_currency", Type: module.ParamString, Description: "ISO 4217 code"},
			{Name: "to_currency", Type: module.ParamString, Description: "ISO 4217 code"},
			{Name: "rate_type", Type: module.ParamString, Description: "spot or closing"},
			{Name: "latest", Type: module.ParamBool, Description: "true shows the last rate of each pair and type only"},
		},
		Columns: []module.Column{
			{Name: "from_currency", Type: "string", Description: "ISO 4217 code"},
			{Name: "to_currency", Type: "string", Description: "ISO 4217 code"},
			{Name: "rate_type", Type: "string", Description: "spot or closing"},
			{Name: "date", Type: "date", Description: "day of the rate"},
			{Name: "rate", Type: "string", Description: "units of to_currency per 1 from_currency"},
			{Name: "age", Type: "integer", Description: "days from date to as_of"},
			{Name: "recorded_at", Type: "time", Description: "when it was recorded", Detail: true},
			{Name: "actor_id", Type: "string", Description: "who set it"},
			{Name: "reason", Type: "string", Description: "why it was set again"},
			{Name: "event_id", Type: "string", Description: "event that set it", Detail: true},
		},
	})
}
