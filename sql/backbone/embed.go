// Package backbone carries the SQL of the event store: its migrations, applied in
// order and only forward, and the roles they grant to. The queries beside them
// are the input of sqlc.
package backbone

import "embed"

// Migrations are goose files named NNNNN_subject.sql.
//
//go:embed migrations/*.sql
var Migrations embed.FS

// Roles creates the roles of the cluster where they are missing. It may be run
// any number of times.
//
//go:embed roles.sql
var Roles string
