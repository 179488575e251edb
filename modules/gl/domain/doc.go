// Package domain holds the general ledger's own values: accounts, the calendar,
// periods, rates and journals, how they are folded from their events, and the
// checks that make a journal true whoever wrote it. It is pure.
package domain
