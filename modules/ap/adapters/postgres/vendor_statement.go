package postgres

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/ap/adapters/postgres/internal/apdb"
	"github.com/erpbackbone/backbone/ports"
)

// VendorStatement answers ap/vendor-statement.
type VendorStatement struct {
	pool    *pgxpool.Pool
	queries *apdb.Queries
}

var _ ports.ReadModelSource = (*VendorStatement)(nil)

// NewVendorStatement makes the source. The role of the pool must be able to read the schema ap.
func NewVendorStatement(pool *pgxpool.Pool) *VendorStatement {
	return &VendorStatement{pool: pool, queries: apdb.New()}
}

type statementRow struct {
	Date              event.Date `json:"date"`
	DocumentID        string     `json:"document_id"`
	Number            string     `json:"number"`
	Kind              string     `json:"kind"`
	Action            string     `json:"action"`
	Reference         string     `json:"reference"`
	Counterpart       string     `json:"counterpart"`
	Currency          string     `json:"currency"`
	Debit             string     `json:"debit"`
	Credit            string     `json:"credit"`
	Balance           string     `json:"balance"`
	FunctionalAmount  string     `json:"functional_amount"`
	FunctionalBalance string     `json:"functional_balance"`
	EventID           string     `json:"event_id"`
}

// statementBalance is what is owed to the vendor in one currency.
type statementBalance struct {
	Currency   string `json:"currency"`
	Balance    string `json:"balance"`
	Functional string `json:"functional_balance"`
}

// statementCursor is the last row of a page.
type statementCursor struct {
	Date     event.Date `json:"d"`
	Sequence int64      `json:"s"`
}

// Query implements ports.ReadModelSource. Positive balances are owed to the vendor; that in
// document currency runs for each currency alone. Faults: report.parameter_invalid,
// cursor.invalid, read.rebuilding.
func (v *VendorStatement) Query(ctx context.Context, q ports.ReadModelQuery) (ports.Report, error) {
	if err := requireRows(ctx, v.pool, v.queries, q); err != nil {
		return ports.Report{}, err
	}
	from := event.MustDate("0001-01-01")
	var err error
	if text := q.Params[paramFrom]; text != "" {
		if from, err = event.ParseDate(text); err != nil {
			return ports.Report{}, parameterFault(paramFrom, "an ISO date such as 2026-03-31")
		}
	}
	after := statementCursor{Date: from - 1, Sequence: math.MaxInt64}
	if q.Cursor != "" {
		if err := readCursor(q.Cursor, &after); err != nil {
			return ports.Report{}, err
		}
	}
	var report ports.Report
	// One snapshot for the balances and the rows.
	err = pgx.BeginTxFunc(ctx, v.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		report, err = v.page(ctx, tx, q, from, after)
		return err
	})
	return report, err
}

func (v *VendorStatement) page(ctx context.Context, tx pgx.Tx, q ports.ReadModelQuery, from event.Date, after statementCursor) (ports.Report, error) {
	book, err := functionalCurrency(ctx, tx, v.queries, q)
	if err != nil {
		return ports.Report{}, err
	}
	found, err := v.queries.VendorStatement(ctx, tx, &apdb.VendorStatementParams{
		PartitionID: int32(q.Partition), Version: int32(q.Version), VendorID: q.Params[paramVendor], AsOf: date(q.AsOf), Known: int64(q.Known),
		FunctionalCurrency: book.Code, Currency: q.Params[paramCurrency], AfterDate: date(after.Date), AfterSequence: after.Sequence, PageSize: int32(q.Limit + 1),
	})
	if err != nil {
		return ports.Report{}, fmt.Errorf("vendor statement: %w", err)
	}
	balances, err := v.queries.VendorBalances(ctx, tx, &apdb.VendorBalancesParams{
		FromDate: date(from), PartitionID: int32(q.Partition), Version: int32(q.Version), VendorID: q.Params[paramVendor], AsOf: date(q.AsOf),
		Known: int64(q.Known), FunctionalCurrency: book.Code, Currency: q.Params[paramCurrency],
	})
	if err != nil {
		return ports.Report{}, fmt.Errorf("vendor balances: %w", err)
	}
	opening, closing := []statementBalance{}, []statementBalance{}
	for _, b := range balances {
		o, err := toBalance(b.Currency, b.Opening, b.OpeningFunctional, book)
		if err != nil {
			return ports.Report{}, err
		}
		c, err := toBalance(b.Currency, b.Closing, b.ClosingFunctional, book)
		if err != nil {
			return ports.Report{}, err
		}
		opening, closing = append(opening, o), append(closing, c)
	}
	report := ports.Report{
		Header: append(header(q, book, paramVendor, paramCurrency, paramFrom), ports.ReportField{Name: "opening", Value: opening}),
		Footer: ports.ReportFields{{Name: "closing", Value: closing}},
	}
	if report.HasMore = len(found) > q.Limit; report.HasMore {
		found = found[:q.Limit]
		last := &found[q.Limit-1]
		if report.NextCursor, err = cursorText(statementCursor{event.DateOf(last.EffectiveDate.Time), last.Sequence}); err != nil {
			return ports.Report{}, err
		}
	}
	for i := range found {
		row, err := toStatementRow(&found[i], book)
		if err != nil {
			return ports.Report{}, fmt.Errorf("document %s: %w", found[i].DocumentID, err)
		}
		report.Rows = append(report.Rows, row)
	}
	return report, nil
}

func toBalance(code, balance, functional string, book money.Currency) (statementBalance, error) {
	c, err := money.LookupCurrency(code, time.Time{})
	if err != nil {
		return statementBalance{}, err
	}
	var b, f money.Number
	if err := errors.Join(b.Scan(balance), f.Scan(functional)); err != nil {
		return statementBalance{}, err
	}
	return statementBalance{code, formatAmount(b, c), formatAmount(f, book)}, nil
}

func toStatementRow(r *apdb.VendorStatementRow, book money.Currency) (statementRow, error) {
	c, err := money.LookupCurrency(r.Currency, time.Time{})
	if err != nil {
		return statementRow{}, err
	}
	var amount, functional, balance, functionalBalance money.Number
	if err := errors.Join(amount.Scan(r.Amount), functional.Scan(r.FunctionalAmount), balance.Scan(r.Balance), functionalBalance.Scan(r.FunctionalBalance)); err != nil {
		return statementRow{}, err
	}
	eventID, err := eventIDText(r.EventID)
	if err != nil {
		return statementRow{}, err
	}
	row := statementRow{
		Date: event.DateOf(r.EffectiveDate.Time), DocumentID: r.DocumentID, Number: r.InvoiceNumber, Kind: r.Kind, Action: r.Action, Reference: r.Reference,
		Counterpart: r.Counterpart, Currency: r.Currency, Debit: formatAmount(money.Number{}, c), Credit: formatAmount(amount, c),
		Balance: formatAmount(balance, c), FunctionalAmount: formatAmount(functional, book), FunctionalBalance: formatAmount(functionalBalance, book), EventID: eventID,
	}
	if amount.Sign() < 0 {
		row.Debit, row.Credit = formatAmount(amount.Neg(), c), formatAmount(money.Number{}, c)
	}
	return row, nil
}
