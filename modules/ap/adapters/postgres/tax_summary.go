package postgres

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/ap/adapters/postgres/internal/apdb"
	"github.com/erpbackbone/backbone/ports"
)

// TaxSummary answers ap/tax-summary.
type TaxSummary struct {
	pool    *pgxpool.Pool
	queries *apdb.Queries
}

var _ ports.ReadModelSource = (*TaxSummary)(nil)

// NewTaxSummary makes the source. The role of the pool must be able to read the schema ap.
func NewTaxSummary(pool *pgxpool.Pool) *TaxSummary {
	return &TaxSummary{pool: pool, queries: apdb.New()}
}

const byPeriod = "period"

type taxRow struct {
	Period                   string `json:"period"`
	TaxGroup                 string `json:"tax_group"`
	Category                 string `json:"category"`
	Rate                     string `json:"rate"`
	Currency                 string `json:"currency"`
	Taxable                  string `json:"taxable"`
	Tax                      string `json:"tax"`
	Recoverable              string `json:"recoverable"`
	NotRecoverable           string `json:"not_recoverable"`
	Output                   string `json:"output"`
	TaxableFunctional        string `json:"taxable_functional"`
	TaxFunctional            string `json:"tax_functional"`
	RecoverableFunctional    string `json:"recoverable_functional"`
	NotRecoverableFunctional string `json:"not_recoverable_functional"`
	OutputFunctional         string `json:"output_functional"`
}

// Query implements ports.ReadModelSource. The totals of the footer are of all pages, in functional
// currency. Faults: report.parameter_invalid, cursor.invalid.
func (s *TaxSummary) Query(ctx context.Context, q ports.ReadModelQuery) (ports.Report, error) {
	from := event.MustDate("0001-01-01")
	if text := q.Params[paramFrom]; text != "" {
		var err error
		if from, err = event.ParseDate(text); err != nil {
			return ports.Report{}, parameterFault(paramFrom, "an ISO date such as 2026-03-31")
		}
	}
	by := q.Params[paramBy]
	if by != "" && by != byPeriod {
		return ports.Report{}, parameterFault(paramBy, byPeriod)
	}
	first := 0 // row of the page
	if q.Cursor != "" {
		if err := readCursor(q.Cursor, &first); err != nil {
			return ports.Report{}, err
		}
	}
	book, err := taxCurrency(ctx, s.pool, s.queries, q)
	if err != nil {
		return ports.Report{}, err
	}
	found, err := s.queries.TaxSummary(ctx, s.pool, &apdb.TaxSummaryParams{
		PartitionID: int32(q.Partition), Version: int32(q.Version), Known: int64(q.Known), ByPeriod: by == byPeriod, FromDate: date(from), AsOf: date(q.AsOf),
		FunctionalCurrency: book.Code,
	})
	if err != nil {
		return ports.Report{}, fmt.Errorf("tax summary: %w", err)
	}
	report := ports.Report{Header: header(q, book, paramFrom, paramBy)}
	var recoverable, output money.Number
	var rows []taxRow
	for i := range found {
		row, sums, err := toTaxRow(&found[i], book)
		if err != nil {
			return ports.Report{}, fmt.Errorf("tax group %s: %w", found[i].TaxGroup, err)
		}
		rows = append(rows, row)
		recoverable, output = recoverable.Add(sums[0]), output.Add(sums[1])
	}
	rows = rows[min(max(first, 0), len(rows)):]
	if report.HasMore = len(rows) > q.Limit; report.HasMore {
		rows = rows[:q.Limit]
		if report.NextCursor, err = cursorText(first + q.Limit); err != nil {
			return ports.Report{}, err
		}
	}
	for _, r := range rows {
		report.Rows = append(report.Rows, r)
	}
	report.Footer = ports.ReportFields{
		{Name: "recoverable_functional", Value: formatAmount(recoverable, book)}, {Name: "output_functional", Value: formatAmount(output, book)},
		{Name: "payable_functional", Value: formatAmount(output.Sub(recoverable), book)},
	}
	return report, nil
}

// toTaxRow makes a row and returns its recoverable and output tax in functional currency.
func toTaxRow(r *apdb.TaxSummaryRow, book money.Currency) (row taxRow, sums [2]money.Number, err error) {
	currency, err := money.LookupCurrency(r.Currency, time.Time{})
	if err != nil {
		return row, sums, err
	}
	row = taxRow{Period: r.Period, TaxGroup: r.TaxGroup, Rate: r.Rate, Currency: r.Currency}
	category, rate, _ := strings.Cut(r.TaxGroup, "/")
	if row.Category = category; row.Rate == "" {
		row.Rate = rate
	}
	var n [8]money.Number
	for i, text := range []string{
		r.Base, r.Recoverable, r.NotRecoverable, r.Output, r.BaseFunctional, r.RecoverableFunctional, r.NotRecoverableFunctional, r.OutputFunctional,
	} {
		if err := n[i].Scan(text); err != nil {
			return row, sums, err
		}
	}
	for i, to := range []*string{&row.Taxable, &row.Recoverable, &row.NotRecoverable, &row.Output} {
		*to = formatAmount(n[i], currency)
	}
	for i, to := range []*string{&row.TaxableFunctional, &row.RecoverableFunctional, &row.NotRecoverableFunctional, &row.OutputFunctional} {
		*to = formatAmount(n[4+i], book)
	}
	row.Tax, row.TaxFunctional = formatAmount(n[1].Add(n[2]), currency), formatAmount(n[5].Add(n[6]), book)
	return row, [2]money.Number{n[5], n[7]}, nil
}
