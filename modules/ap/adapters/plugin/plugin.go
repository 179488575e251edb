// Package plugin joins accounts payable with its adapters for cmd/app.
package plugin

import (
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/erpbackbone/backbone/adapters/plugin"
	"github.com/erpbackbone/backbone/modules/ap"
	"github.com/erpbackbone/backbone/modules/ap/adapters/cli"
	"github.com/erpbackbone/backbone/modules/ap/adapters/postgres"
	"github.com/erpbackbone/backbone/ports"
	apsql "github.com/erpbackbone/backbone/sql/ap"
)

// New makes accounts payable. It posts into the general ledger, which comes before it in
// the list of modules.
func New() plugin.Module {
	return plugin.Module{
		Module:     ap.New(),
		Migrations: apsql.FS,
		Projections: map[string]ports.ProjectionHandler{
			ap.OpenItems:      postgres.NewProjection(),
			ap.Vendors:        postgres.NewVendorProjection(),
			ap.Tax:            postgres.NewTaxProjection(),
			ap.Payments:       postgres.NewPaymentProjection(),
			ap.PurchaseOrders: postgres.NewPurchaseOrderProjection(),
		},
		ReadModels: func(pool *pgxpool.Pool) map[string]ports.ReadModelSource {
			return map[string]ports.ReadModelSource{
				ap.ReadModelOpenItems:        postgres.NewOpenItems(pool),
				ap.ReadModelVendors:          postgres.NewVendors(pool),
				ap.ReadModelDocuments:        postgres.NewWorklist(pool),
				ap.ReadModelDocument:         postgres.NewDocument(pool, ap.PurchaseOrders),
				ap.ReadModelAging:            postgres.NewAging(pool),
				ap.ReadModelStatement:        postgres.NewVendorStatement(pool),
				ap.ReadModelTaxSummary:       postgres.NewTaxSummary(pool),
				ap.ReadModelTaxLines:         postgres.NewTaxLines(pool),
				ap.ReadModelPayments:         postgres.NewPayments(pool),
				ap.ReadModelPaymentHistory:   postgres.NewPaymentHistory(pool, ap.OpenItems),
				ap.ReadModelPaymentRuns:      postgres.NewPaymentRuns(pool),
				ap.ReadModelCloseChecklist:   postgres.NewCloseChecklist(pool, ap.LedgerProjection),
				ap.ReadModelPurchaseOrders:   postgres.NewPurchaseOrders(pool),
				ap.ReadModelSubledgerControl: postgres.NewSubledgerControl(pool, ap.LedgerProjection),
			}
		},
		Command: cli.Command,
		Demo:    plugin.Demo{Books: books, Sample: cli.Sample, Hints: cli.Hints},
	}
}
