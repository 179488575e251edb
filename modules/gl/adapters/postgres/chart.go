package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/erpbackbone/backbone/modules/gl/adapters/postgres/internal/gldb"
	"github.com/erpbackbone/backbone/ports"
)

// NewChart makes the source of gl/accounts.
func NewChart(pool *pgxpool.Pool) ports.ReadModelSource { return newSource(pool, (*source).chart) }

type chartRow struct {
	Account    string `json:"account"`
	Name       string `json:"name"`
	Type       string `json:"type"`
	NormalSide string `json:"normal_side"`
	Parent     string `json:"parent,omitempty"`
	Postable   bool   `json:"postable"`
	Control    string `json:"control"`
	Status     string `json:"status"`
	EventID    string `json:"event_id,omitempty"`
}

func (s *source) chart(ctx context.Context, q ports.ReadModelQuery) (ports.Report, error) {
	_, header, err := s.bookHeader(ctx, q)
	if err != nil {
		return ports.Report{}, err
	}
	found, err := loadChart(ctx, s.pool, s.queries, q)
	if err != nil {
		return ports.Report{}, err
	}
	var rows []any
	for _, a := range found {
		row := chartRow{
			Account: a.Code, Name: a.Name, Type: a.Type, NormalSide: a.NormalSide, Parent: a.Parent, Postable: a.Postable, Control: a.Control,
			Status: "active", EventID: uuidText(a.EventID),
		}
		if a.Blocked {
			row.Status = "blocked"
		}
		if isFiltered(q, "type", row.Type) || isFiltered(q, "control", row.Control) || isFiltered(q, "status", row.Status) {
			continue
		}
		rows = append(rows, row)
	}
	return wholeReport(q, header, rows)
}

// isFiltered reports whether a parameter asks for another value.
func isFiltered(q ports.ReadModelQuery, parameter, value string) bool {
	want := q.Params[parameter]
	return want != "" && want != value
}

// loadChart returns the accounts by code, as known at the query's sequence.
func loadChart(ctx context.Context, db gldb.DBTX, queries *gldb.Queries, q ports.ReadModelQuery) ([]gldb.ChartRow, error) {
	found, err := queries.Chart(ctx, db, &gldb.ChartParams{PartitionID: int32(q.Partition), Version: int32(q.Version), Known: int64(q.Known)})
	if err != nil {
		return nil, fmt.Errorf("chart of accounts: %w", err)
	}
	return found, nil
}

// maxLevels bounds how deep a chart is followed, should accounts be parents of one another.
const maxLevels = 20

// ancestor returns the account at a level above or at an account; level 1 has no parent.
func ancestor(chart map[string]gldb.ChartRow, code string, level int) string {
	path := []string{code}
	for parent := chart[code].Parent; parent != "" && len(path) < maxLevels; parent = chart[parent].Parent {
		path = append(path, parent)
	}
	return path[max(len(path)-level, 0)]
}
