package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/gl/adapters/postgres/internal/gldb"
	"github.com/erpbackbone/backbone/ports"
)

// NewDimensionBalances makes the source of gl/dimension-balances.
func NewDimensionBalances(pool *pgxpool.Pool) ports.ReadModelSource {
	return newSource(pool, (*source).dimensionBalances)
}

type dimensionBalanceRow struct {
	Account        string            `json:"account"`
	Dimensions     map[string]string `json:"dimensions"`
	Debit          string            `json:"debit"`
	Credit         string            `json:"credit"`
	Balance        string            `json:"balance"`
	AccountBalance string            `json:"account_balance"`
}

// dimensionBalances sums the lines per account and values of the named dimensions. Lines
// without a value are in the row "none", so the rows of an account add up to its balance.
func (s *source) dimensionBalances(ctx context.Context, q ports.ReadModelQuery) (ports.Report, error) {
	book, header, err := s.bookHeader(ctx, q)
	if err != nil {
		return ports.Report{}, err
	}
	from, err := fromDate(q)
	if err != nil {
		return ports.Report{}, err
	}
	dimensions := strings.Split(q.Params["dimensions"], ",")
	seen := map[string]bool{"": true}
	for _, name := range dimensions {
		if seen[name] || strings.Contains(name, "=") {
			return ports.Report{}, invalid("dimensions", "a list of names such as department,project")
		}
		seen[name] = true
	}
	found, err := s.queries.DimensionBalances(ctx, s.pool, &gldb.DimensionBalancesParams{
		Dimensions: dimensions, PartitionID: int32(q.Partition), Version: int32(q.Version), Account: q.Params["account"], FromDate: date(from),
		AsOf: date(q.AsOf), Known: int64(q.Known), FunctionalCurrency: book.Code,
	})
	if err != nil {
		return ports.Report{}, fmt.Errorf("dimension balances: %w", err)
	}
	rows := make([]any, 0, len(found))
	for _, r := range found {
		var values []*string
		var debit, credit, account money.Number
		if err := errors.Join(json.Unmarshal([]byte(r.DimensionValues), &values), debit.Scan(r.Debit), credit.Scan(r.Credit), account.Scan(r.AccountBalance)); err != nil {
			return ports.Report{}, err
		}
		row := dimensionBalanceRow{
			Account: r.Account, Dimensions: map[string]string{}, Debit: debit.Fixed(book.MinorUnit), Credit: credit.Fixed(book.MinorUnit),
			Balance: debit.Sub(credit).Fixed(book.MinorUnit), AccountBalance: account.Fixed(book.MinorUnit),
		}
		for i, value := range values {
			row.Dimensions[dimensions[i]] = dimensionNone
			if value != nil {
				row.Dimensions[dimensions[i]] = *value
			}
		}
		rows = append(rows, row)
	}
	return wholeReport(q, header, rows)
}
