package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/gl/adapters/postgres/internal/gldb"
	"github.com/erpbackbone/backbone/ports"
)

// TrialBalance answers gl/trial-balance.
type TrialBalance struct {
	pool    *pgxpool.Pool
	queries *gldb.Queries
}

var _ ports.ReadModelSource = (*TrialBalance)(nil)

// NewTrialBalance makes the source. The role of the pool must be able to read the schema
// gl.
func NewTrialBalance(pool *pgxpool.Pool) *TrialBalance {
	return &TrialBalance{pool: pool, queries: gldb.New()}
}

type trialBalanceRow struct {
	Account string `json:"account"`
	Name    string `json:"name"`
	Debit   string `json:"debit"`
	Credit  string `json:"credit"`
	Balance string `json:"balance"`
}

// Query implements ports.ReadModelSource. It sums the journal lines per account as of an
// effective date and as known at a sequence, so a query can be repeated later with the same
// result. total_debit equals total_credit, as domain.CheckJournal admits only balanced
// journals; every page has the totals of all accounts. Before the ledger is configured the
// currency is "" and there are no accounts. Journals of raw appends with another functional
// currency are left out. Fault: cursor.malformed.
func (b *TrialBalance) Query(ctx context.Context, q ports.ReadModelQuery) (ports.Report, error) {
	currency, err := functionalCurrency(ctx, b.pool, b.queries, q)
	if err != nil {
		return ports.Report{}, err
	}
	found, err := b.queries.TrialBalance(ctx, b.pool, &gldb.TrialBalanceParams{
		PartitionID: int32(q.Partition), Version: int32(q.Version), Known: int64(q.Known), AsOf: date(q.AsOf), FunctionalCurrency: currency.Code,
	})
	if err != nil {
		return ports.Report{}, fmt.Errorf("trial balance: %w", err)
	}
	first := 0
	if q.Cursor != "" { // the last account of the previous page; all pages read as of one sequence, so it is found
		last := slices.IndexFunc(found, func(r gldb.TrialBalanceRow) bool { return r.Account == q.Cursor })
		if first = last + 1; last < 0 {
			return ports.Report{}, malformed()
		}
	}
	end := min(first+q.Limit, len(found))
	var totalDebit, totalCredit money.Number
	rows := make([]any, 0, end-first)
	for i, r := range found {
		var debit, credit money.Number
		if err := errors.Join(debit.Scan(r.Debit), credit.Scan(r.Credit)); err != nil {
			return ports.Report{}, err
		}
		totalDebit, totalCredit = totalDebit.Add(debit), totalCredit.Add(credit)
		if i < first || i >= end {
			continue
		}
		rows = append(rows, trialBalanceRow{
			Account: r.Account, Name: r.Name, Debit: debit.Fixed(currency.MinorUnit), Credit: credit.Fixed(currency.MinorUnit),
			Balance: debit.Sub(credit).Fixed(currency.MinorUnit),
		})
	}
	report := ports.Report{
		Header: []ports.ReportField{
			{Name: "legal_entity", Value: q.Entity.Code}, {Name: "currency", Value: currency.Code},
			{Name: "as_of", Value: q.AsOf.String()}, {Name: "known_at", Value: q.KnownAt},
		},
		RowsName: "accounts", Rows: rows, Flat: true,
		Footer: []ports.ReportField{
			{Name: "total_debit", Value: totalDebit.Fixed(currency.MinorUnit)},
			{Name: "total_credit", Value: totalCredit.Fixed(currency.MinorUnit)},
		},
	}
	if end < len(found) {
		report.HasMore, report.NextCursor = true, found[end-1].Account
	}
	return report, nil
}

// functionalCurrency returns the functional currency as known at the query's sequence, the
// zero Currency if the ledger was not configured by then.
func functionalCurrency(ctx context.Context, db gldb.DBTX, queries *gldb.Queries, q ports.ReadModelQuery) (money.Currency, error) {
	code, err := queries.LedgerCurrency(ctx, db, &gldb.LedgerCurrencyParams{PartitionID: int32(q.Partition), Version: int32(q.Version), Known: int64(q.Known)})
	if errors.Is(err, pgx.ErrNoRows) {
		return money.Currency{}, nil
	}
	if err != nil {
		return money.Currency{}, fmt.Errorf("functional currency: %w", err)
	}
	return money.LookupCurrency(code, time.Time{})
}
