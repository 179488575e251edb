// Package plugin joins the module with its adapters for the program.
package plugin

import (
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/erpbackbone/backbone/adapters/plugin"
	"github.com/erpbackbone/backbone/cmd/scaffold/skeleton"
	"github.com/erpbackbone/backbone/cmd/scaffold/skeleton/postgres"
	"github.com/erpbackbone/backbone/ports"
)

// New makes the module.
func New() plugin.Module {
	return plugin.Module{
		Module:      skeleton.Module{},
		Migrations:  postgres.Migrations,
		Projections: map[string]ports.ProjectionHandler{skeleton.ProjectionItems: postgres.Projection{}},
		ReadModels: func(pool *pgxpool.Pool) map[string]ports.ReadModelSource {
			return map[string]ports.ReadModelSource{skeleton.ReadModelItems: postgres.Items{Pool: pool}}
		},
	}
}
