// Package contract is the part of the general ledger that other modules may import. A
// planner makes a Ledger to read settings, periods, rates and accounts, and calls
// PlanSubledgerJournal or PlanReversal for the draft of a journal, which it appends
// together with its own events. The package writes nothing. It reads through module.State,
// so every stream that it reads becomes an expectation of the append.
package contract

import (
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/modules/gl/domain"
)

// Event types that a planner of another module may emit through this package.
const (
	EventJournalPosted   = domain.EventJournalPosted
	EventJournalReversed = domain.EventJournalReversed
)

// ModuleName is the ledger's name, also in period checks.
const ModuleName = "gl"

type (
	// Settings are the ledger's configuration.
	Settings = domain.Settings
	// TaxGroup is how tax of one kind is posted.
	TaxGroup = domain.TaxGroup
	// Account is an account of the chart.
	Account = domain.Account
	// Side is debit or credit.
	Side = domain.Side
	// JournalType is the reason why a journal was posted.
	JournalType = domain.JournalType
	// DocumentDate is the date of the paper that a journal books.
	DocumentDate = domain.DocumentDate
	// PostedLine is a line of a posted journal.
	PostedLine = domain.Line
)

// The sides of a line.
const (
	Debit  = domain.Debit
	Credit = domain.Credit
)

// Roles of the posting profile, keys of Settings.PostingProfile.
const (
	RoleAPControl      = "ap_control"
	RoleInputTax       = "input_tax"
	RoleOutputTax      = "output_tax"
	RoleWithholding    = "withholding"
	RolePrepayment     = "prepayment"
	RoleRounding       = "rounding"
	RoleOpening        = "opening" // open items taken over from earlier books are posted against its account
	RoleDefaultExpense = "default_expense"
	RoleFXGain         = "fx_gain" // realised by settlements
	RoleFXLoss         = "fx_loss"
	RoleBank           = "bank"        // of bank accounts without an account of their own
	RoleDiscount       = "discount"    // taken when invoices are paid
	RoleFXClearing     = "fx_clearing" // between both currencies of one payment

	RoleRetainedEarnings = "retained_earnings" // takes the result of a year
	RoleFXUnrealised     = "fx_unrealised"     // takes the differences of a revaluation
	RoleAPRevaluation    = "ap_revaluation"    // has the revaluation of ap_control, which only the subledger posts to
	RoleDueTo            = "due_to"            // owed to other legal entities
	RoleDueFrom          = "due_from"          // owed by other legal entities
)

// DocumentDateOf makes a document date.
func DocumentDateOf(d event.Date) DocumentDate { return domain.DocumentDateOf(d) }

// EventID is the id that the i-th draft (from 0) of an intent's plan will have.
func EventID(in module.Input, i int) event.ID { return module.EventID(in.IntentID, i) }

// NumberTag is the tag of a journal by which a search finds it by number.
func NumberTag(number string) string { return "journal:" + number }

// TagReversalDue is the tag of journals with a reversal date, and of the marks that they
// were reversed, so that one search finds those that are still to be reversed.
const TagReversalDue = "reversal_due"

// TagOpeningBalances is the tag of journals with opening balances, and of the marks that
// they were reversed.
const TagOpeningBalances = "opening_balances"

// TagRecurring is the tag of definitions of recurring journals and of journals posted from
// them.
const TagRecurring = "recurring"

// stateTags are the tags that a journal and the mark of its reversal share.
func stateTags(j domain.JournalPosted) []string {
	var tags []string
	if j.ReversalDate != nil {
		tags = append(tags, TagReversalDue)
	}
	if j.JournalType == domain.Opening {
		tags = append(tags, TagOpeningBalances)
	}
	return tags
}

// SeriesToken is the placeholder of a journal's number in drafts. The store assigns the
// number in the transaction of the append, so that a failed append leaves no gap, and
// replaces the token by it; see event.SeriesNumber.
func SeriesToken(journal event.ID) string { return "series:" + journal.String() }
