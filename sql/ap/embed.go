// Package apsql carries the SQL of the read models of accounts payable:
// migrations, applied in order and only forward. The queries beside them are the
// input of sqlc.
package apsql

import "embed"

// FS holds goose files named migrations/NNNNN_subject.sql.
//
//go:embed migrations/*.sql
var FS embed.FS
