// Package domain holds the general ledger's types as pure code: accounts, the calendar,
// periods, rates, settings and journals, the states that their streams fold into, and
// CheckJournal, which every journal passes before it is appended.
package domain
