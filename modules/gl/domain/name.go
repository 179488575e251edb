package domain

import "github.com/erpbackbone/backbone/domain/event"

// Event types of the ledger.
const (
	EventJournalPosted         = "gl.journal.posted"
	EventJournalReversed       = "gl.journal.reversed"
	EventLedgerConfigured      = "gl.ledger.configured"
	EventAccountDefined        = "gl.account.defined"
	EventAccountChanged        = "gl.account.changed"
	EventAccountBlocked        = "gl.account.blocked"
	EventAccountUnblocked      = "gl.account.unblocked"
	EventDimensionValueDefined = "gl.dimension_value.defined"
	EventFiscalYearDefined     = "gl.fiscal_year.defined"
	EventCalendarExtended      = "gl.calendar.extended"
	EventPeriodOpened          = "gl.period.opened"
	EventPeriodSoftClosed      = "gl.period.soft_closed"
	EventPeriodHardClosed      = "gl.period.hard_closed"
	EventPeriodReopened        = "gl.period.reopened"
	EventExchangeRateSet       = "gl.exchange_rate.set"
	EventIntercompanyInitiated = "gl.intercompany.initiated"
	EventIntercompanyMirrored  = "gl.intercompany.mirrored"
	EventIntercompanyRefused   = "gl.intercompany.refused"
	EventRecurringDefined      = "gl.recurring.defined"
)

// Stream types of the ledger.
const (
	StreamLedger       = "gl.ledger"        // id "main": the settings
	StreamCalendar     = "gl.calendar"      // id "main": every fiscal year with its periods, so that one read finds a date's period
	StreamFiscalYear   = "gl.fiscal_year"   // id: label
	StreamPeriod       = "gl.period"        // id: module ":" period
	StreamAccount      = "gl.account"       // id: code
	StreamDimension    = "gl.dimension"     // id: dimension
	StreamExchangeRate = "gl.exchange_rate" // id: FROM "-" TO
	StreamJournal      = "gl.journal"       // id: ULID
	StreamIntercompany = "gl.intercompany"  // id: pair, which is the id of the first side's journal
	StreamRecurring    = "gl.recurring"     // id: recurring_id
)

// MainStream is the id of streams that exist once per ledger.
const MainStream = "main"

// LedgerStream holds the settings.
func LedgerStream() event.StreamID { return event.StreamID{Type: StreamLedger, ID: MainStream} }

// CalendarStream holds all fiscal years.
func CalendarStream() event.StreamID { return event.StreamID{Type: StreamCalendar, ID: MainStream} }

// PeriodStream holds the state of a period for a module.
func PeriodStream(module, period string) event.StreamID {
	return event.StreamID{Type: StreamPeriod, ID: module + ":" + period}
}

// AccountStream holds an account.
func AccountStream(code string) event.StreamID {
	return event.StreamID{Type: StreamAccount, ID: code}
}

// DimensionStream holds the values of a dimension.
func DimensionStream(dimension string) event.StreamID {
	return event.StreamID{Type: StreamDimension, ID: dimension}
}

// FiscalYearStream holds a fiscal year.
func FiscalYearStream(label string) event.StreamID {
	return event.StreamID{Type: StreamFiscalYear, ID: label}
}

// RateStream holds the rates of a currency pair, units of to per 1 from.
func RateStream(from, to string) event.StreamID {
	return event.StreamID{Type: StreamExchangeRate, ID: from + "-" + to}
}

// IntercompanyStream holds what one legal entity knows of a pair.
func IntercompanyStream(pair string) event.StreamID {
	return event.StreamID{Type: StreamIntercompany, ID: pair}
}

// RecurringStream holds the definitions of a recurring journal.
func RecurringStream(id string) event.StreamID {
	return event.StreamID{Type: StreamRecurring, ID: id}
}

// JournalStream holds a journal and the mark that it was reversed.
func JournalStream(id string) event.StreamID {
	return event.StreamID{Type: StreamJournal, ID: id}
}
