package gl

import (
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/modules/gl/domain"
)

// ProjectionBank is the projection of bank statements, discards, matches, and payments of journals.
const ProjectionBank = "gl.bank"

// ReadModelBankReconciliation compares a bank account with its statements.
const ReadModelBankReconciliation = "bank-reconciliation"

func registerBankReconciliation(r *module.Registrar) {
	r.Projection(module.Projection{
		Name: ProjectionBank, Version: 2,
		EventTypes: []string{
			domain.EventBankStatementImported, domain.EventBankStatementDiscarded, domain.EventBankStatementReimported,
			domain.EventBankLineMatched, domain.EventBankLineUnmatched, domain.EventJournalPosted,
		},
	})
	r.ReadModel(module.ReadModel{
		Name: ReadModelBankReconciliation, Projection: ProjectionBank, Reads: []string{ProjectionLedger}, Example: "--account 1000 --as-of 2026-03-31",
		Description: "A bank account beside its statements: both balances, and every line of either side that is not matched with the other. The difference of the balances is what is not matched in the books less what is not matched in the statements; unexplained must be 0. " +
			"A match counts from the last day of its lines. A statement that does not begin with the balance with which the one before ended has a row missing_statement with the difference. A statement that was discarded counts until then on the axis known_at.",
		Params: []module.Param{
			{Name: "account", Type: module.ParamString, Required: true, Description: "code of the bank account"},
			{Name: "currency", Type: module.ParamString, Description: "currency of statements and lines; default that of the newest statement"},
		},
		Columns: []module.Column{
			{Name: "item", Type: "string", Description: "statement_line, opening_balance, missing_statement or book_line"},
			{Name: "date", Type: "date", Description: "booking date or posting date"},
			{Name: "amount", Type: "amount", Description: "in currency; negative is money that went out"},
			{Name: "currency", Type: "string", Description: "ISO 4217 code"},
			{Name: "statement_id", Type: "string", Description: "statement of the line"},
			{Name: "part", Type: "integer", Description: "part of the statement", Detail: true},
			{Name: "journal_number", Type: "string", Description: "journal of the line"},
			{Name: "journal_id", Type: "string", Description: "stream of the journal", Detail: true},
			{Name: "line_number", Type: "integer", Description: "line of the statement or of the journal"},
			{Name: "value_date", Type: "date", Description: "when the bank counts the amount", Detail: true},
			{Name: "reference", Type: "string", Description: "reference of the statement line"},
			{Name: "end_to_end_id", Type: "string", Description: "of the statement line, or the payment that the journal settles"},
			{Name: "description", Type: "string", Description: "of the line"},
			{Name: "proposed_journal_id", Type: "string", Description: "journal with the same reference and amount", Detail: true},
			{Name: "proposed_line", Type: "integer", Description: "line of that journal", Detail: true},
			{Name: "sequence", Type: "string", Description: "place of the event in the legal entity's log", Detail: true},
		},
	})
}
