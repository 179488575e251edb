package postgres

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/erpbackbone/backbone/modules/gl/adapters/postgres/internal/gldb"
	"github.com/erpbackbone/backbone/modules/gl/domain"
	"github.com/erpbackbone/backbone/ports"
)

// NewNumberGaps makes the source of gl/number-gaps.
func NewNumberGaps(pool *pgxpool.Pool) ports.ReadModelSource {
	return newSource(pool, (*source).numberGaps)
}

// numberRange is a range of numbers, both of which belong to it.
type numberRange struct {
	First int64 `json:"first"`
	Last  int64 `json:"last"`
}

type numberGapsRow struct {
	Series     string        `json:"series"`
	Type       string        `json:"type"`
	FiscalYear string        `json:"fiscal_year"`
	First      int64         `json:"first"`
	Last       int64         `json:"last"`
	Count      int64         `json:"count"`
	Expected   int64         `json:"expected"`
	Missing    []numberRange `json:"missing"`
	Repeated   []int64       `json:"repeated"`
}

// numberGaps compares each series of journal numbers with 1 to its last number. It counts
// journals of all effective dates: numbers follow the order of recording.
func (s *source) numberGaps(ctx context.Context, q ports.ReadModelQuery) (ports.Report, error) {
	_, header, err := s.bookHeader(ctx, q)
	if err != nil {
		return ports.Report{}, err
	}
	found, err := s.queries.NumberSeries(ctx, s.pool, &gldb.NumberSeriesParams{PartitionID: int32(q.Partition), Version: int32(q.Version), Known: int64(q.Known)})
	if err != nil {
		return ports.Report{}, fmt.Errorf("number series: %w", err)
	}
	types := map[string]string{}
	for _, t := range domain.JournalTypes() {
		types[t.Prefix()] = string(t)
	}
	var rows []any
	for _, r := range found {
		prefix, year, _ := strings.Cut(r.Series, "-")
		row := numberGapsRow{
			Series: r.Series, Type: types[prefix], FiscalYear: year, First: r.FirstNumber, Last: r.LastNumber, Count: r.Numbers, Expected: r.LastNumber,
			Missing: []numberRange{}, Repeated: []int64{},
		}
		if isFiltered(q, "type", row.Type) || isFiltered(q, "fiscal_year", year) {
			continue
		}
		if r.Numbers != r.LastNumber || r.Different != r.LastNumber {
			if err := s.addBreaks(ctx, q, &row); err != nil {
				return ports.Report{}, err
			}
		}
		rows = append(rows, row)
	}
	return wholeReport(q, header, rows)
}

func (s *source) addBreaks(ctx context.Context, q ports.ReadModelQuery, row *numberGapsRow) error {
	found, err := s.queries.NumberBreaks(ctx, s.pool, &gldb.NumberBreaksParams{
		PartitionID: int32(q.Partition), Version: int32(q.Version), Known: int64(q.Known), Series: row.Series,
	})
	if err != nil {
		return fmt.Errorf("number series %s: %w", row.Series, err)
	}
	for _, b := range found {
		if b.After == b.Before {
			row.Repeated = append(row.Repeated, b.After)
		} else {
			row.Missing = append(row.Missing, numberRange{b.Before + 1, b.After - 1})
		}
	}
	return nil
}
