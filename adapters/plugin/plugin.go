// Package plugin is the door through which business modules enter the program. A Module
// joins what a module declares (application/module) with its adapters: tables, projection
// handlers, sources of read models, commands, and a demonstration. Each module makes its
// own in modules/<name>/adapters/plugin; cmd/app takes a list of them, those of other
// repositories too. The package holds values and functions only: it opens no database,
// starts nothing, and knows no module.
package plugin

import (
	"io/fs"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/ports"
)

// Module is a business module with its adapters. Only the declarations are required.
type Module struct {
	// Module declares event types, intents, roles, policies, folds, projections and read
	// models.
	module.Module
	// Migrations holds goose files in its folder migrations, forward only. They create the
	// module's schema, which has the module's name, and grant rights on it to backbone_app
	// and backbone_reader. They run after Backbone's own, in the order of the modules.
	Migrations fs.FS
	// Projections has the handler of every declared projection, by its name.
	Projections map[string]ports.ProjectionHandler
	// ReadModels makes the source of every declared read model, by the name that its
	// declaration has. The pool may read the module's schema and write no row.
	ReadModels func(pool *pgxpool.Pool) map[string]ports.ReadModelSource
	// Command makes `backbone <module>`. An error with a method ExitCode() int ends the
	// process with that code, any other with 1.
	Command func() *cobra.Command
	// Demo is the module's part of `backbone dev`.
	Demo Demo
}
