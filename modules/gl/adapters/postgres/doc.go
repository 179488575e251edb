// Package postgres keeps the general ledger's read models in PostgreSQL, in the
// schema gl: the projection that writes them and the sources that answer from
// them.
package postgres
