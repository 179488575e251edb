// Package glsql carries the SQL of the general ledger's read models: migrations,
// applied in order and only forward. The queries beside them are the input of
// sqlc.
package glsql

import "embed"

// FS holds goose files named migrations/NNNNN_subject.sql.
//
//go:embed migrations/*.sql
var FS embed.FS
