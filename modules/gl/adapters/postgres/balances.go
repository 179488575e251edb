package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/gl/adapters/postgres/internal/gldb"
	"github.com/erpbackbone/backbone/ports"
)

// Balances answers gl/balances.
type Balances struct {
	pool    *pgxpool.Pool
	queries *gldb.Queries
}

var _ ports.ReadModelSource = (*Balances)(nil)

// NewBalances makes the source. The role of the pool must be able to read the schema gl.
func NewBalances(pool *pgxpool.Pool) *Balances {
	return &Balances{pool: pool, queries: gldb.New()}
}

type balanceRow struct {
	Account           string          `json:"account"`
	Name              string          `json:"name"`
	Type              string          `json:"type"`
	Currency          string          `json:"currency"`
	Dimensions        json.RawMessage `json:"dimensions"`
	Balance           string          `json:"balance"`
	FunctionalBalance string          `json:"functional_balance"`
}

// Query implements ports.ReadModelSource. Rows whose two balances are 0 are left out.
// Faults: report.parameter_invalid, cursor.malformed.
func (b *Balances) Query(ctx context.Context, q ports.ReadModelQuery) (ports.Report, error) {
	functional, err := functionalCurrency(ctx, b.pool, b.queries, q)
	if err != nil {
		return ports.Report{}, err
	}
	params := gldb.BalancesParams{
		PartitionID: int32(q.Partition), Version: int32(q.Version), Known: int64(q.Known), AsOf: date(q.AsOf), FunctionalCurrency: functional.Code,
		FromDate: pgtype.Date{InfinityModifier: pgtype.NegativeInfinity, Valid: true}, Account: q.Params["account"], Statement: q.Params["statement"],
		MaxRows: int32(q.Limit + 1),
	}
	switch params.Statement {
	case "", "income", "position":
	default:
		return ports.Report{}, fault.New(fault.Invalid, "report.parameter_invalid", "parameter %q is income or position", "statement").WithField("statement")
	}
	if q.Params["from"] != "" {
		from, err := event.ParseDate(q.Params["from"])
		if err != nil {
			return ports.Report{}, err
		}
		params.FromDate = date(from)
	}
	if q.Cursor != "" {
		var after [3]string
		if json.Unmarshal([]byte(q.Cursor), &after) != nil {
			return ports.Report{}, malformed()
		}
		params.AfterAccount, params.AfterCurrency, params.AfterDimensions = after[0], after[1], after[2]
	}
	found, err := b.queries.Balances(ctx, b.pool, &params)
	if err != nil {
		return ports.Report{}, fmt.Errorf("balances: %w", err)
	}
	report := ports.Report{Header: ports.ReportFields{
		{Name: "legal_entity", Value: q.Entity.Code}, {Name: "functional_currency", Value: functional.Code},
		{Name: "as_of", Value: q.AsOf.String()}, {Name: "known_at", Value: q.KnownAt},
	}}
	if len(found) > q.Limit {
		found = found[:q.Limit]
		last := found[q.Limit-1]
		cursor, err := json.Marshal([3]string{last.Account, last.Currency, last.Dimensions})
		if err != nil {
			return ports.Report{}, err
		}
		report.HasMore, report.NextCursor = true, string(cursor)
	}
	for _, r := range found {
		currency, err := money.LookupCurrency(r.Currency, time.Time{})
		if err != nil {
			return ports.Report{}, err
		}
		var amount, functionalAmount money.Number
		if err := errors.Join(amount.Scan(r.Amount), functionalAmount.Scan(r.FunctionalAmount)); err != nil {
			return ports.Report{}, err
		}
		report.Rows = append(report.Rows, balanceRow{
			Account: r.Account, Name: r.Name, Type: r.Type, Currency: r.Currency, Dimensions: json.RawMessage(r.Dimensions),
			Balance: amount.Fixed(currency.MinorUnit), FunctionalBalance: functionalAmount.Fixed(functional.MinorUnit),
		})
	}
	return report, nil
}
