package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/ap/adapters/postgres/internal/apdb"
	"github.com/erpbackbone/backbone/modules/ap/contract"
	"github.com/erpbackbone/backbone/ports"
)

const paramPayment = "payment"

// PaymentHistory answers ap/payment-history.
type PaymentHistory struct {
	pool      *pgxpool.Pool
	queries   *apdb.Queries
	openItems string
}

var _ ports.ReadModelSource = (*PaymentHistory)(nil)

// NewPaymentHistory makes the source, with the name of the projection of open items. The role of the
// pool must be able to read the schema ap.
func NewPaymentHistory(pool *pgxpool.Pool, openItems string) *PaymentHistory {
	return &PaymentHistory{pool: pool, queries: apdb.New(), openItems: openItems}
}

type paymentHistoryRow struct {
	Step       string     `json:"step"`
	At         string     `json:"at"`
	By         string     `json:"by"`
	Date       event.Date `json:"date"`
	PaymentID  string     `json:"payment_id"`
	DocumentID string     `json:"document_id"`
	Currency   string     `json:"currency"`
	Amount     string     `json:"amount"`
	MessageID  string     `json:"message_id"`
	FileSHA256 string     `json:"file_sha256"`
	EventID    string     `json:"event_id"`
}

// historyCursor is the last row of a page.
type historyCursor struct {
	Sequence int64 `json:"s"`
	Position int32 `json:"p"`
}

// Query implements ports.ReadModelSource. Faults: report.parameter_invalid, cursor.invalid.
func (s *PaymentHistory) Query(ctx context.Context, q ports.ReadModelQuery) (ports.Report, error) {
	run, payment := q.Params[paramRun], q.Params[paramPayment]
	if (run == "") == (payment == "") {
		return ports.Report{}, parameterFault(paramPayment, "given, or run is, and not both")
	}
	if payment != "" {
		if run = contract.RunOfPayment(payment); run == "" {
			return ports.Report{}, parameterFault(paramPayment, "the id of a payment, such as 01KWXYZ8M3V2N5Q7R9T1B4C6D8-P1")
		}
	}
	var after historyCursor
	if q.Cursor != "" {
		if err := readCursor(q.Cursor, &after); err != nil {
			return ports.Report{}, err
		}
	}
	found, err := s.queries.PaymentHistory(ctx, s.pool, &apdb.PaymentHistoryParams{
		PartitionID: int32(q.Partition), Version: int32(q.Version), ItemsVersion: int32(q.Versions[s.openItems]), Known: int64(q.Known), AsOf: date(q.AsOf),
		RunID: run, PaymentID: payment, AfterSequence: after.Sequence, AfterPosition: after.Position, PageSize: int32(q.Limit + 1),
	})
	if err != nil {
		return ports.Report{}, fmt.Errorf("history of payments: %w", err)
	}
	report := ports.Report{Header: header(q, money.Currency{}, paramRun, paramPayment)}
	if report.HasMore = len(found) > q.Limit; report.HasMore {
		found = found[:q.Limit]
		last := &found[q.Limit-1]
		if report.NextCursor, err = cursorText(historyCursor{last.Sequence, last.Position}); err != nil {
			return ports.Report{}, err
		}
	}
	for i := range found {
		r := &found[i]
		row := paymentHistoryRow{
			Step: r.Step, At: formatTime(r.RecordedAt), By: r.Actor, Date: event.DateOf(r.EffectiveDate.Time), PaymentID: r.PaymentID,
			DocumentID: r.DocumentID, Currency: r.Currency, MessageID: r.MessageID, FileSHA256: r.FileSha256,
		}
		if row.EventID, err = eventIDText(r.EventID); err != nil {
			return ports.Report{}, err
		}
		if r.Amount != "" {
			if row.Amount, _, err = formatTexts(r.Currency, r.Amount, "0"); err != nil {
				return ports.Report{}, fmt.Errorf("amount of event %s: %w", row.EventID, err)
			}
		}
		report.Rows = append(report.Rows, row)
	}
	return report, nil
}
