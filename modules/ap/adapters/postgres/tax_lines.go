package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/ap/adapters/postgres/internal/apdb"
	"github.com/erpbackbone/backbone/ports"
)

// Parameters of the lines of a tax group.
const (
	paramTaxGroup = "tax_group"
	paramPeriod   = "period"
)

// TaxLines answers ap/tax-lines.
type TaxLines struct {
	pool    *pgxpool.Pool
	queries *apdb.Queries
}

var _ ports.ReadModelSource = (*TaxLines)(nil)

// NewTaxLines makes the source. The role of the pool must be able to read the schema ap.
func NewTaxLines(pool *pgxpool.Pool) *TaxLines { return &TaxLines{pool: pool, queries: apdb.New()} }

type taxLineRow struct {
	Date             event.Date `json:"date"`
	Period           string     `json:"period"`
	Part             string     `json:"part"`
	DocumentID       string     `json:"document_id"`
	PaymentID        string     `json:"payment_id"`
	JournalNumber    string     `json:"journal_number"`
	Currency         string     `json:"currency"`
	Amount           string     `json:"amount"`
	FunctionalAmount string     `json:"functional_amount"`
	EventID          string     `json:"event_id"`
}

// taxLineCursor is the last line of a page.
type taxLineCursor struct {
	Sequence int64 `json:"s"`
	Line     int32 `json:"l"`
}

// Query implements ports.ReadModelSource. Faults: report.parameter_invalid, cursor.invalid.
func (s *TaxLines) Query(ctx context.Context, q ports.ReadModelQuery) (ports.Report, error) {
	from := event.MustDate("0001-01-01")
	if text := q.Params[paramFrom]; text != "" {
		var err error
		if from, err = event.ParseDate(text); err != nil {
			return ports.Report{}, parameterFault(paramFrom, "an ISO date such as 2026-03-31")
		}
	}
	var after taxLineCursor
	if q.Cursor != "" {
		if err := readCursor(q.Cursor, &after); err != nil {
			return ports.Report{}, err
		}
	}
	book, err := taxCurrency(ctx, s.pool, s.queries, q)
	if err != nil {
		return ports.Report{}, err
	}
	found, err := s.queries.TaxLines(ctx, s.pool, &apdb.TaxLinesParams{
		PartitionID: int32(q.Partition), Version: int32(q.Version), Known: int64(q.Known), FromDate: date(from), AsOf: date(q.AsOf), FunctionalCurrency: book.Code,
		TaxGroup: q.Params[paramTaxGroup], Period: q.Params[paramPeriod], AfterSequence: after.Sequence, AfterLine: after.Line, PageSize: int32(q.Limit + 1),
	})
	if err != nil {
		return ports.Report{}, fmt.Errorf("tax lines: %w", err)
	}
	report := ports.Report{Header: header(q, book, paramTaxGroup, paramPeriod, paramFrom)}
	if report.HasMore = len(found) > q.Limit; report.HasMore {
		found = found[:q.Limit]
		last := &found[q.Limit-1]
		if report.NextCursor, err = cursorText(taxLineCursor{last.Sequence, last.LineNumber}); err != nil {
			return ports.Report{}, err
		}
	}
	for i := range found {
		row, err := toTaxLineRow(&found[i], book)
		if err != nil {
			return ports.Report{}, fmt.Errorf("line %d of event %d: %w", found[i].LineNumber, found[i].Sequence, err)
		}
		report.Rows = append(report.Rows, row)
	}
	return report, nil
}

func toTaxLineRow(r *apdb.TaxLinesRow, book money.Currency) (taxLineRow, error) {
	row := taxLineRow{
		Date: event.DateOf(r.EffectiveDate.Time), Period: r.Period, Part: r.Part, DocumentID: r.DocumentID, PaymentID: r.PaymentID,
		JournalNumber: r.JournalNumber, Currency: r.Currency,
	}
	currency, err := money.LookupCurrency(r.Currency, time.Time{})
	if err != nil {
		return row, err
	}
	var amount, functional money.Number
	if err := errors.Join(amount.Scan(r.Amount), functional.Scan(r.FunctionalAmount)); err != nil {
		return row, err
	}
	row.Amount, row.FunctionalAmount = formatAmount(amount, currency), formatAmount(functional, book)
	if r.EventID != "" { // an earlier version of the rows has none
		row.EventID, err = eventIDText(r.EventID)
	}
	return row, err
}

// taxCurrency is the functional currency as the projection of tax knows it, the zero Currency before
// the ledger was configured.
func taxCurrency(ctx context.Context, db apdb.DBTX, queries *apdb.Queries, q ports.ReadModelQuery) (money.Currency, error) {
	code, err := queries.TaxCurrency(ctx, db, &apdb.TaxCurrencyParams{PartitionID: int32(q.Partition), Version: int32(q.Version), Known: int64(q.Known)})
	if errors.Is(err, pgx.ErrNoRows) {
		return money.Currency{}, nil
	}
	if err != nil {
		return money.Currency{}, fmt.Errorf("functional currency: %w", err)
	}
	return money.LookupCurrency(code, time.Time{})
}
