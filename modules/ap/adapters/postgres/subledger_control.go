package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/erpbackbone/backbone/adapters/plugin"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/ap/adapters/postgres/internal/apdb"
	"github.com/erpbackbone/backbone/ports"
)

// SubledgerControl answers gl/subledger-control.
type SubledgerControl struct {
	items            *OpenItems
	ledgerProjection string
}

var _ ports.ReadModelSource = (*SubledgerControl)(nil)

// NewSubledgerControl makes the source. It reads the view gl.control_lines, which the named
// projection of the ledger fills, beside the rows of open items. The role of the pool must be
// able to read both schemas.
func NewSubledgerControl(pool *pgxpool.Pool, ledgerProjection string) *SubledgerControl {
	return &SubledgerControl{items: NewOpenItems(pool), ledgerProjection: ledgerProjection}
}

type subledgerControlRow struct {
	ControlAccount       string `json:"control_account"`
	Vendor               string `json:"vendor_id,omitempty"`
	Currency             string `json:"currency"`
	Subledger            string `json:"subledger"`
	Ledger               string `json:"ledger"`
	Difference           string `json:"difference"`
	SubledgerFunctional  string `json:"subledger_functional"`
	LedgerFunctional     string `json:"ledger_functional"`
	DifferenceFunctional string `json:"difference_functional"`
}

// Query implements ports.ReadModelSource. Each row compares what the documents of accounts
// payable leave open with the balance of the control accounts, as of one day and as known at
// one sequence. The differences must be 0. Faults: cursor.malformed,
// read.rebuilding.
func (c *SubledgerControl) Query(ctx context.Context, q ports.ReadModelQuery) (ports.Report, error) {
	if err := requireRows(ctx, c.items.pool, c.items.queries, q); err != nil {
		return ports.Report{}, err
	}
	book, err := functionalCurrency(ctx, c.items.pool, c.items.queries, q)
	if err != nil {
		return ports.Report{}, err
	}
	vendor := q.Params[paramVendor]
	found, err := c.items.queries.SubledgerControl(ctx, c.items.pool, &apdb.SubledgerControlParams{
		ByVendor: q.Params["by_vendor"] == "true" || vendor != "", PartitionID: int32(q.Partition), Version: int32(q.Version), AsOf: date(q.AsOf), Known: int64(q.Known),
		FunctionalCurrency: book.Code, LedgerVersion: int32(q.Versions[c.ledgerProjection]), VendorID: vendor,
	})
	if err != nil {
		return ports.Report{}, fmt.Errorf("subledger control: %w", err)
	}
	rows := make([]any, 0, len(found))
	var total money.Number
	for i := range found {
		row, difference, err := toControlRow(&found[i], book)
		if err != nil {
			return ports.Report{}, err
		}
		total = total.Add(difference)
		rows = append(rows, row)
	}
	page, next, err := plugin.CutPage(q, rows)
	return ports.Report{
		Header: ports.ReportFields{
			{Name: "legal_entity", Value: q.Entity.Code}, {Name: "functional_currency", Value: book.Code},
			{Name: "as_of", Value: q.AsOf.String()}, {Name: "known_at", Value: q.KnownAt},
		},
		Rows: page, HasMore: next != "", NextCursor: next,
		Footer: ports.ReportFields{{Name: "total_difference_functional", Value: total.Fixed(book.MinorUnit)}},
	}, err
}

func toControlRow(r *apdb.SubledgerControlRow, book money.Currency) (subledgerControlRow, money.Number, error) {
	currency, err := money.LookupCurrency(r.Currency, time.Time{})
	var subledger, ledger, subledgerFunctional, ledgerFunctional money.Number
	if err := errors.Join(err, subledger.Scan(r.Subledger), ledger.Scan(r.Ledger), subledgerFunctional.Scan(r.SubledgerFunctional), ledgerFunctional.Scan(r.LedgerFunctional)); err != nil {
		return subledgerControlRow{}, money.Number{}, err
	}
	difference := subledgerFunctional.Sub(ledgerFunctional)
	return subledgerControlRow{
		ControlAccount: r.Accounts, Vendor: r.Vendor, Currency: r.Currency, Subledger: subledger.Fixed(currency.MinorUnit), Ledger: ledger.Fixed(currency.MinorUnit),
		Difference: subledger.Sub(ledger).Fixed(currency.MinorUnit), SubledgerFunctional: subledgerFunctional.Fixed(book.MinorUnit),
		LedgerFunctional: ledgerFunctional.Fixed(book.MinorUnit), DifferenceFunctional: difference.Fixed(book.MinorUnit),
	}, difference, nil
}
