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
	ReadModelTrialBalance  = "trial-balance"
	ReadModelAccountLedger = "accounts/{account}/ledger"
)

func registerReadModels(r *module.Registrar) {
	registerBalances(r)
	r.Projection(module.Projection{
		Name: ProjectionLedger, Version: 2,
		EventTypes: []string{
			domain.EventJournalPosted, domain.EventJournalReversed, domain.EventLedgerConfigured, domain.EventAccountDefined,
			domain.EventAccountChanged,
		},
	})
	r.ReadModel(module.ReadModel{
		Name: ReadModelTrialBalance, Projection: ProjectionLedger, RowsName: "accounts", Flat: true,
		Description: "Debit, credit and balance per account in functional currency, as of an effective date and as known at a recorded time. Accounts without lines are left out.",
		Columns: []module.Column{
			{Name: "account", Type: "string", Description: "account code"},
			{Name: "name", Type: "string", Description: "name of the account"},
			{Name: "debit", Type: "amount", Description: "sum of debits, functional currency"},
			{Name: "credit", Type: "amount", Description: "sum of credits, functional currency"},
			{Name: "balance", Type: "amount", Description: "debit less credit, functional currency; positive is a debit balance"},
		},
	})
	r.ReadModel(module.ReadModel{
		Name: ReadModelAccountLedger, Projection: ProjectionLedger, Command: "account", Example: "2000 --from 2026-03-01",
		Description: "The lines of one account by effective date, with the running balance in functional currency.",
		Params: []module.Param{
			{Name: "account", Type: module.ParamString, Required: true, InPath: true, Description: "account code"},
			{Name: "from", Type: module.ParamDate, Description: "first effective date shown; earlier lines make up opening_balance"},
			{Name: "currency", Type: module.ParamString, Description: "only lines in this currency; balances then are in it"},
		},
		Columns: []module.Column{
			{Name: "effective_date", Type: "date", Description: "posting date"},
			{Name: "recorded_at", Type: "time", Description: "when the log took it"},
			{Name: "sequence", Type: "string", Description: "place of the event in the legal entity's log"},
			{Name: "event_id", Type: "string", Description: "event gl.journal.posted"},
			{Name: "journal_id", Type: "string", Description: "stream of the journal"},
			{Name: "journal_number", Type: "string", Description: "gap-free number"},
			{Name: "line_number", Type: "integer", Description: "line of the journal"},
			{Name: "type", Type: "string", Description: "journal type"},
			{Name: "description", Type: "string", Description: "of the line, else of the journal"},
			{Name: "side", Type: "string", Description: "debit or credit"},
			{Name: "amount", Type: "amount", Description: "in currency"},
			{Name: "currency", Type: "string", Description: "ISO 4217 code"},
			{Name: "functional_amount", Type: "amount", Description: "in functional currency"},
			{Name: "rate", Type: "string", Description: "functional units per 1 currency"},
			{Name: "rate_date", Type: "date", Description: "day of the rate"},
			{Name: "dimensions", Type: "object", Description: "of the line"},
			{Name: "running_balance", Type: "amount", Description: "after the line; positive is a debit balance"},
			{Name: "source_module", Type: "string", Description: "module that caused the journal"},
			{Name: "source_event_id", Type: "string", Description: "event that caused the journal"},
			{Name: "reversed_by", Type: "string", Description: "id of the reversing journal, if it was reversed"},
		},
	})
}
