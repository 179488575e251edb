// Package plugin joins the general ledger with its adapters for cmd/app.
package plugin

import (
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/erpbackbone/backbone/adapters/plugin"
	"github.com/erpbackbone/backbone/modules/gl"
	"github.com/erpbackbone/backbone/modules/gl/adapters/cli"
	"github.com/erpbackbone/backbone/modules/gl/adapters/postgres"
	"github.com/erpbackbone/backbone/ports"
	glsql "github.com/erpbackbone/backbone/sql/gl"
)

// New makes the general ledger.
func New() plugin.Module {
	m := gl.New()
	return plugin.Module{
		Module:     m,
		Migrations: glsql.FS,
		Projections: map[string]ports.ProjectionHandler{
			gl.ProjectionLedger: postgres.NewProjection(), gl.ProjectionClosing: postgres.NewClosingProjection(), gl.ProjectionBank: postgres.NewBankProjection(),
		},
		ReadModels: func(pool *pgxpool.Pool) map[string]ports.ReadModelSource {
			return map[string]ports.ReadModelSource{
				gl.ReadModelTrialBalance:       postgres.NewTrialBalance(pool),
				gl.ReadModelAccountLedger:      postgres.NewAccountLedger(pool),
				gl.ReadModelAccounts:           postgres.NewChart(pool),
				gl.ReadModelDimensionBalances:  postgres.NewDimensionBalances(pool),
				gl.ReadModelJournals:           postgres.NewJournals(pool),
				gl.ReadModelJournal:            postgres.NewJournal(pool),
				gl.ReadModelJournalLines:       postgres.NewJournalLines(pool),
				gl.ReadModelNumberGaps:         postgres.NewNumberGaps(pool),
				gl.ReadModelPeriods:            postgres.NewPeriods(pool),
				gl.ReadModelRates:              postgres.NewRates(pool),
				gl.ReadModelBalances:           postgres.NewBalances(pool),
				gl.ReadModelCloseChecklist:     postgres.NewCloseChecklist(pool, m.PostingIntents),
				gl.ReadModelIntercompany:       postgres.NewIntercompany(pool),
				gl.ReadModelRevaluation:        postgres.NewRevaluations(pool),
				gl.ReadModelBankReconciliation: postgres.NewBankReconciliation(pool),
			}
		},
		Command: cli.Command,
		Demo:    plugin.Demo{Books: books},
	}
}
