package gl

import (
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/modules/gl/contract"
	"github.com/erpbackbone/backbone/modules/gl/domain"
)

// ProjectionClosing is the projection of what a period's end needs to know: standing and due
// journals, allocations, revaluations, pairs of legal entities, intents that wait.
const ProjectionClosing = "gl.closing"

// Read models of a period's end.
const (
	ReadModelCloseChecklist = "close-checklist"
	ReadModelIntercompany   = "intercompany"
	ReadModelRevaluation    = "revaluations/{period}"
)

func registerClosing(r *module.Registrar) {
	r.Projection(module.Projection{Name: ProjectionClosing, Version: 1, EventTypes: []string{
		domain.EventJournalPosted, domain.EventJournalReversed, domain.EventLedgerConfigured, domain.EventAccountDefined, domain.EventAccountChanged,
		domain.EventRecurringDefined, domain.EventAllocationDefined, domain.EventAllocationCompleted, domain.EventRevaluationCompleted,
		domain.EventIntercompanyInitiated, domain.EventIntercompanyMirrored, domain.EventIntercompanyRefused, domain.EventYearClosed, domain.EventYearReopened,
		intent.Waiting, intent.ApprovalRecorded, intent.Approved, intent.RejectedEvent, intent.WithdrawnEvent, intent.ExpiredEvent,
	}})
	r.ReadModel(module.ReadModel{
		Name: ReadModelCloseChecklist, Projection: ProjectionClosing, Reads: []string{ProjectionLedger, ProjectionBank}, Example: "--period 2026-03",
		Description: "What is left to do before a period is closed for good, as known at a recorded time. With the setting orderly_close a hard close is refused while an item with blocking hard is open; " +
			"waiting intents, due reversals and differences of subledgers refuse it in any case.",
		Params: contract.ChecklistParams(), Columns: contract.ChecklistColumns(),
	})
	r.ReadModel(module.ReadModel{
		Name: ReadModelIntercompany, Projection: ProjectionClosing, Reads: []string{ProjectionLedger}, Example: "--state under_way",
		Description: "Pairs of journals with other legal entities that this one began or is to mirror, with what is under way. Amounts are what each side has on its account due_from or due_to, positive if it is due from the other one. " +
			"known_at holds for this side; the other side, which has a log of its own, is shown as of the same time if known_at is a time, else as it is now.",
		Params: []module.Param{
			{Name: "period", Type: module.ParamString, Description: "period of the posting date, as 2026-03"},
			{Name: "counterparty", Type: module.ParamString, Description: "code of the other legal entity"},
			{Name: "state", Type: module.ParamString, Description: "incoming, under_way, complete, refused_there, refused or reversed"},
		},
		Columns: []module.Column{
			{Name: "pair_id", Type: "string", Description: "id of the pair", Detail: true},
			{Name: "counterparty", Type: "string", Description: "the other legal entity"},
			{Name: "begun_by", Type: "string", Description: "legal entity that began the pair"},
			{Name: "date", Type: "date", Description: "posting date of both journals"},
			{Name: "state", Type: "string", Description: "incoming: to be mirrored here; under_way: to be mirrored there; complete; refused_there: refused by the counterparty; refused: refused, the journal stands; reversed: nothing stands"},
			{Name: "currency", Type: "string", Description: "of the amounts"},
			{Name: "amount", Type: "amount", Description: "of this side, in currency"},
			{Name: "counterparty_amount", Type: "amount", Description: "of the other side, in currency"},
			{Name: "difference", Type: "amount", Description: "sum of both, in currency; 0 when the pair is complete or reversed"},
			{Name: "functional_amount", Type: "amount", Description: "of this side, functional currency"},
			{Name: "journal_number", Type: "string", Description: "journal of this side"},
			{Name: "journal_id", Type: "string", Description: "id of that journal", Detail: true},
			{Name: "counterparty_journal_id", Type: "string", Description: "id of the journal of the other side", Detail: true},
			{Name: "actor_id", Type: "string", Description: "who took the latest step here"},
			{Name: "next_step", Type: "string", Description: "intent that goes on, and where"},
			{Name: "event_id", Type: "string", Description: "latest step here, else the event that began the pair"},
		},
	})
	r.ReadModel(module.ReadModel{
		Name: ReadModelRevaluation, Projection: ProjectionClosing, Reads: []string{ProjectionLedger}, Command: "revaluation", Example: "2026-03",
		Description: "The worksheets of a period's revaluations, in the order in which they ran.",
		Params: []module.Param{
			{Name: "period", Type: module.ParamString, Required: true, InPath: true, Description: "period, as 2026-03"},
			{Name: "account", Type: module.ParamString, Description: "account code"},
			{Name: "currency", Type: module.ParamString, Description: "ISO 4217 code of the balances"},
		},
		Columns: []module.Column{
			{Name: "run", Type: "integer", Description: "number of the run, from 1"},
			{Name: "date", Type: "date", Description: "last day of the period"},
			{Name: "account", Type: "string", Description: "account code"},
			{Name: "currency", Type: "string", Description: "of the balance"},
			{Name: "balance", Type: "amount", Description: "in currency; positive is a debit balance"},
			{Name: "rate", Type: "string", Description: "functional units per 1 currency; empty for a balance of 0"},
			{Name: "rate_date", Type: "date", Description: "day of the rate", Detail: true},
			{Name: "old", Type: "amount", Description: "value before, functional currency"},
			{Name: "new", Type: "amount", Description: "value at the rate, functional currency"},
			{Name: "delta", Type: "amount", Description: "new less old, functional currency"},
			{Name: "posted_to", Type: "string", Description: "account that took the difference"},
			{Name: "journal_ids", Type: "object", Description: "journals of the run", Detail: true},
			{Name: "reversed", Type: "bool", Description: "the journals of the run are reversed"},
			{Name: "actor_id", Type: "string", Description: "who ran it"},
			{Name: "event_id", Type: "string", Description: "event gl.revaluation.completed"},
		},
	})
}
