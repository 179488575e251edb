// Package postgres keeps the general ledger's read models in the PostgreSQL schema gl.
// Projection writes the rows from events; TrialBalance and AccountLedger answer queries
// from them. Rows are keyed by partition and version, so that a rebuild can write a new
// version while queries read the active one.
package postgres
