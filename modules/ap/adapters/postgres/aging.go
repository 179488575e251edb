package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/ap/adapters/postgres/internal/apdb"
	"github.com/erpbackbone/backbone/modules/ap/domain"
	"github.com/erpbackbone/backbone/ports"
)

// Aging answers ap/aging.
type Aging struct {
	pool    *pgxpool.Pool
	queries *apdb.Queries
}

var _ ports.ReadModelSource = (*Aging)(nil)

// NewAging makes the source. The role of the pool must be able to read the schema ap.
func NewAging(pool *pgxpool.Pool) *Aging { return &Aging{pool: pool, queries: apdb.New()} }

// Parameters of aging.
const paramBuckets = "buckets"

// Query implements ports.ReadModelSource. A row is a vendor, or a value of a dimension, in one
// currency. The totals of the footer are of all pages. Faults: report.parameter_invalid,
// cursor.invalid, read.rebuilding.
func (a *Aging) Query(ctx context.Context, q ports.ReadModelQuery) (ports.Report, error) {
	if err := requireRows(ctx, a.pool, a.queries, q); err != nil {
		return ports.Report{}, err
	}
	book, err := functionalCurrency(ctx, a.pool, a.queries, q)
	if err != nil {
		return ports.Report{}, err
	}
	buckets, ok := domain.ParseAgingBuckets(q.Params[paramBuckets])
	if !ok {
		return ports.Report{}, parameterFault(paramBuckets, fmt.Sprintf("up to %d ascending numbers of days such as %s", domain.MaxAgingBuckets, domain.DefaultAgingBuckets))
	}
	key, ok := domain.ParseAgingKey(q.Params[paramBy], buckets)
	if !ok {
		return ports.Report{}, parameterFault(paramBy, "vendor, the name of a dimension such as department, or dimension:currency for a name that another column has")
	}
	var after [2]string // value and currency
	if q.Cursor != "" {
		if err := readCursor(q.Cursor, &after); err != nil {
			return ports.Report{}, err
		}
	}
	found, err := a.sums(ctx, q, book, key.Dimension, buckets)
	if err != nil {
		return ports.Report{}, fmt.Errorf("aging: %w", err)
	}
	rows, totals, functional, err := pivot(buckets, found)
	if err != nil {
		return ports.Report{}, fmt.Errorf("aging: %w", err)
	}
	report := ports.Report{Header: header(q, book, paramVendor, paramCurrency)}
	report.Header = append(report.Header, ports.ReportField{Name: paramBy, Value: key.By}, ports.ReportField{Name: paramBuckets, Value: buckets.String()})
	if q.Cursor != "" {
		rows = slices.DeleteFunc(rows, func(r agingRow) bool { return slices.Compare([]string{r.value, r.currency}, after[:]) <= 0 })
	}
	if report.HasMore = len(rows) > q.Limit; report.HasMore {
		rows = rows[:q.Limit]
		if report.NextCursor, err = cursorText([2]string{rows[q.Limit-1].value, rows[q.Limit-1].currency}); err != nil {
			return ports.Report{}, err
		}
	}
	for _, r := range rows {
		row, err := agingFields(buckets, r, book, ports.ReportField{Name: key.Column(), Value: r.value}, ports.ReportField{Name: domain.AgingCurrency, Value: r.currency})
		if err != nil {
			return ports.Report{}, err
		}
		report.Rows = append(report.Rows, row)
	}
	sums := []ports.ReportFields{}
	for _, r := range totals {
		row, err := agingFields(buckets, r, book, ports.ReportField{Name: domain.AgingCurrency, Value: r.currency})
		if err != nil {
			return ports.Report{}, err
		}
		sums = append(sums, row)
	}
	report.Footer = ports.ReportFields{{Name: "totals", Value: sums}, {Name: "total_functional", Value: formatAmount(functional, book)}}
	return report, nil
}

// sums adds up the entries by a dimension, or by vendor for none.
func (a *Aging) sums(ctx context.Context, q ports.ReadModelQuery, book money.Currency, dimension string, buckets domain.AgingBuckets) ([]apdb.AgingByVendorRow, error) {
	p := &apdb.AgingByVendorParams{
		PartitionID: int32(q.Partition), Version: int32(q.Version), AsOf: date(q.AsOf), Known: int64(q.Known), FunctionalCurrency: book.Code,
		LastVendorID: lastVendor, Currency: q.Params[paramCurrency],
	}
	if id := q.Params[paramVendor]; id != "" {
		p.FirstVendorID, p.LastVendorID = id, id
	}
	for _, days := range slices.Backward(buckets) {
		p.Bounds = append(p.Bounds, date(q.AsOf.AddDays(-days)))
	}
	p.Bounds = append(p.Bounds, pgtype.Date{Time: q.AsOf.Time(), Valid: true})
	if dimension == "" {
		return a.queries.AgingByVendor(ctx, a.pool, p)
	}
	found, err := a.queries.AgingByDimension(ctx, a.pool, &apdb.AgingByDimensionParams{
		Dimension: dimension, Bounds: p.Bounds, PartitionID: p.PartitionID, Version: p.Version, AsOf: p.AsOf, Known: p.Known,
		FunctionalCurrency: p.FunctionalCurrency, FirstVendorID: p.FirstVendorID, LastVendorID: p.LastVendorID, Currency: p.Currency,
	})
	rows := make([]apdb.AgingByVendorRow, len(found))
	for i := range found {
		rows[i] = apdb.AgingByVendorRow(found[i])
	}
	return rows, err
}

// agingRow has the sums of the buckets, not due first.
type agingRow struct {
	value, currency string
	open            []money.Number
	functional      []money.Number
}

func newAgingRow(b domain.AgingBuckets, value, currency string) agingRow {
	n := len(b) + 2
	return agingRow{value: value, currency: currency, open: make([]money.Number, n), functional: make([]money.Number, n)}
}

// pivot makes rows of sums, the sums of all rows by currency, and the functional sum.
func pivot(b domain.AgingBuckets, sums []apdb.AgingByVendorRow) (rows, totals []agingRow, all money.Number, err error) {
	byCurrency := map[string]agingRow{}
	for _, s := range sums {
		var open, functional money.Number
		if err := open.Scan(s.Open); err != nil {
			return nil, nil, all, err
		}
		if err := functional.Scan(s.OpenFunctional); err != nil {
			return nil, nil, all, err
		}
		if n := len(rows); n == 0 || rows[n-1].value != s.Value || rows[n-1].currency != s.Currency {
			rows = append(rows, newAgingRow(b, s.Value, s.Currency))
		}
		if _, ok := byCurrency[s.Currency]; !ok {
			byCurrency[s.Currency] = newAgingRow(b, "", s.Currency)
			totals = append(totals, byCurrency[s.Currency])
		}
		i := len(b) + 1 - int(s.Bucket)
		for _, r := range []agingRow{rows[len(rows)-1], byCurrency[s.Currency]} {
			r.open[i], r.functional[i] = r.open[i].Add(open), r.functional[i].Add(functional)
		}
		all = all.Add(functional)
	}
	slices.SortFunc(totals, func(a, b agingRow) int { return strings.Compare(a.currency, b.currency) })
	return rows, totals, all, nil
}

// agingFields writes a row: the key, the buckets and their total in document currency, then the same
// in functional currency.
func agingFields(buckets domain.AgingBuckets, r agingRow, book money.Currency, key ...ports.ReportField) (ports.ReportFields, error) {
	currency, err := money.LookupCurrency(r.currency, time.Time{})
	if err != nil {
		return nil, err
	}
	row, names := ports.ReportFields(key), buckets.Sums()
	for _, part := range []struct {
		sums []money.Number
		in   money.Currency
	}{{r.open, currency}, {r.functional, book}} {
		var total money.Number
		for _, n := range part.sums {
			total = total.Add(n)
		}
		for _, n := range append(slices.Clone(part.sums), total) {
			row = append(row, ports.ReportField{Name: names[0], Value: formatAmount(n, part.in)})
			names = names[1:]
		}
	}
	return row, nil
}
