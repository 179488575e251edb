// Package domain holds the general ledger's own values: accounts, the calendar,
// periods, rates and journals, how they are folded from their events, and the
// checks that every journal passes, whatever its origin. It is pure.
package domain
