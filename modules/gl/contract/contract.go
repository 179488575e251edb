// Package contract is what other modules may use of the general ledger:
// the ledger's settings, calendar, rates and dimensions as a planner sees them,
// and the planning of journals that a subledger causes. It is pure: it reads
// through module.State, which turns everything read into an expectation of the
// append, and returns drafts.
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

// ModuleName is the ledger's own name in period checks.
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
	RoleAPControl      = domain.RoleAPControl
	RoleInputTax       = domain.RoleInputTax
	RoleOutputTax      = domain.RoleOutputTax
	RoleBank           = domain.RoleBank
	RoleDiscount       = domain.RoleDiscount
	RoleWithholding    = domain.RoleWithholding
	RolePrepayment     = domain.RolePrepayment
	RoleRounding       = domain.RoleRounding
	RoleDefaultExpense = domain.RoleDefaultExpense
)

// EventID is the id that the i-th draft (from 0) of an intent's plan will have.
func EventID(in module.Input, i int) event.ID { return module.EventID(in.IntentID, i) }

// NumberTag is on every journal, so that it is found by its number.
func NumberTag(number string) string { return "journal:" + number }

// SeriesToken replaces a journal's number in drafts until the number is known.
func SeriesToken(journal event.ID) string { return "series:" + journal.String() }
