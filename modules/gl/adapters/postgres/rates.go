package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/modules/gl/adapters/postgres/internal/gldb"
	"github.com/erpbackbone/backbone/ports"
)

// NewRates makes the source of gl/rates.
func NewRates(pool *pgxpool.Pool) ports.ReadModelSource { return newSource(pool, (*source).rates) }

type rateRow struct {
	From       string `json:"from_currency"`
	To         string `json:"to_currency"`
	RateType   string `json:"rate_type"`
	Date       string `json:"date"`
	Rate       string `json:"rate"`
	Age        int    `json:"age"`
	RecordedAt string `json:"recorded_at"`
	ActorID    string `json:"actor_id"`
	Reason     string `json:"reason,omitempty"`
	EventID    string `json:"event_id"`
}

// rates lists the exchange rates of days up to as_of. A rate that was set again for its day
// is shown as it was set last.
func (s *source) rates(ctx context.Context, q ports.ReadModelQuery) (ports.Report, error) {
	_, header, err := s.bookHeader(ctx, q)
	if err != nil {
		return ports.Report{}, err
	}
	found, err := s.queries.ExchangeRates(ctx, s.pool, &gldb.ExchangeRatesParams{
		PartitionID: int32(q.Partition), Version: int32(q.Version), Known: int64(q.Known), AsOf: date(q.AsOf),
		FromCurrency: q.Params["from_currency"], ToCurrency: q.Params["to_currency"], RateType: q.Params["rate_type"], Latest: q.Params["latest"] == "true",
	})
	if err != nil {
		return ports.Report{}, fmt.Errorf("exchange rates: %w", err)
	}
	rows := make([]any, 0, len(found))
	for _, r := range found {
		day := event.DateOf(r.RateDate.Time)
		rows = append(rows, rateRow{
			From: r.FromCurrency, To: r.ToCurrency, RateType: r.RateType, Date: day.String(), Rate: r.Rate, Age: int(q.AsOf - day),
			RecordedAt: formatTime(r.RecordedAt), ActorID: r.ActorID, Reason: r.Reason, EventID: uuidText(r.EventID),
		})
	}
	return wholeReport(q, header, rows)
}
