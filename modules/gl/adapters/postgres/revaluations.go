package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/gl/adapters/postgres/internal/gldb"
	"github.com/erpbackbone/backbone/modules/gl/contract"
	"github.com/erpbackbone/backbone/modules/gl/domain"
	"github.com/erpbackbone/backbone/ports"
)

// NewRevaluations makes the source of gl/revaluations/{period}.
func NewRevaluations(pool *pgxpool.Pool) ports.ReadModelSource {
	return newSource(pool, (*source).revaluations)
}

type revaluationRow struct {
	Run        int      `json:"run"`
	Date       string   `json:"date"`
	Account    string   `json:"account"`
	Currency   string   `json:"currency"`
	Balance    string   `json:"balance"`
	Rate       string   `json:"rate"`
	RateDate   string   `json:"rate_date"`
	Old        string   `json:"old"`
	New        string   `json:"new"`
	Delta      string   `json:"delta"`
	PostedTo   string   `json:"posted_to"`
	JournalIDs []string `json:"journal_ids"`
	Reversed   bool     `json:"reversed"`
	ActorID    string   `json:"actor_id"`
	EventID    string   `json:"event_id"`
}

// revaluations lists the worksheets of a period. The footer has the sum of the differences of
// the runs that are not reversed.
func (s *source) revaluations(ctx context.Context, q ports.ReadModelQuery) (ports.Report, error) {
	ledger := ledgerQuery(q)
	book, header, err := s.bookHeader(ctx, ledger)
	if err != nil {
		return ports.Report{}, err
	}
	if _, err := s.periodParam(ctx, ledger); err != nil {
		return ports.Report{}, err
	}
	steps, err := s.queries.CloseSteps(ctx, s.pool, &gldb.CloseStepsParams{
		PartitionID: int32(q.Partition), Version: int32(q.Version), Known: int64(q.Known), Kinds: []string{stepRevaluation}, Item: q.Params[contract.ParamPeriod],
	})
	if err != nil {
		return ports.Report{}, fmt.Errorf("revaluations: %w", err)
	}
	reversed, err := s.reversedJournals(ctx, q)
	if err != nil {
		return ports.Report{}, err
	}
	var rows []any
	var total money.Number
	for i, step := range steps {
		var run domain.RevaluationCompleted
		if err := json.Unmarshal([]byte(step.Data), &run); err != nil {
			return ports.Report{}, fmt.Errorf("revaluation %d: %w", step.Sequence, err)
		}
		isReversed := len(run.JournalIDs) > 0
		for _, id := range run.JournalIDs {
			isReversed = isReversed && reversed[id]
		}
		for _, w := range run.Worksheet {
			if isFiltered(q, "account", w.Account) || isFiltered(q, "currency", w.Currency) {
				continue
			}
			currency, err := money.LookupCurrency(w.Currency, time.Time{})
			if err != nil {
				return ports.Report{}, err
			}
			row := revaluationRow{
				Run: i + 1, Date: run.Date.String(), Account: w.Account, Currency: w.Currency, Balance: w.Balance.Fixed(currency.MinorUnit), Rate: optionalNumber(w.Rate),
				RateDate: optionalDate(w.RateDate), Old: w.Old.Fixed(book.MinorUnit), New: w.New.Fixed(book.MinorUnit), Delta: w.Delta.Fixed(book.MinorUnit),
				PostedTo: w.PostedTo, JournalIDs: append([]string{}, run.JournalIDs...), Reversed: isReversed, ActorID: step.ActorID, EventID: uuidText(step.EventID),
			}
			if row.PostedTo == "" {
				row.PostedTo = w.Account
			}
			if !isReversed {
				total = total.Add(w.Delta)
			}
			rows = append(rows, row)
		}
	}
	report, err := wholeReport(q, header, rows)
	report.Footer = ports.ReportFields{{Name: "total_delta", Value: total.Fixed(book.MinorUnit)}}
	return report, err
}
