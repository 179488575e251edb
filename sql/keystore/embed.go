// Package keystore carries the SQL of the key store: the schema, its migrations,
// applied in order and only forward, and in them the functions that are its only
// interface. The queries beside them are the input of sqlc.
package keystore

import "embed"

// Migrations are goose files named NNNNN_subject.sql.
//
//go:embed migrations/*.sql
var Migrations embed.FS

// Schema makes the schema for its owner. Who runs it must be able to become that
// owner and to create schemas.
//
//go:embed schema.sql
var Schema string
