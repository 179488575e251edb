package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/erpbackbone/backbone/ports"
)

// Items answers GET /api/skeleton/items.
type Items struct{ Pool *pgxpool.Pool }

type itemRow struct {
	ItemID   string `json:"item_id"`
	Code     string `json:"code"`
	Quantity int64  `json:"quantity"`
}

// Query lists the items as of an effective date and as known at a place in the log. The
// same query gives the same answer for ever.
func (s Items) Query(ctx context.Context, q ports.ReadModelQuery) (ports.Report, error) {
	rows, err := s.Pool.Query(ctx, `SELECT item_id, code, quantity FROM skeleton.items
		WHERE partition_id = $1 AND version = $2 AND sequence <= $3 AND effective <= $4
			AND (removed_seq IS NULL OR removed_seq > $3 OR removed_date > $4) AND item_id > $5
		ORDER BY item_id LIMIT $6`,
		int32(q.Partition), q.Version, int64(q.Known), q.AsOf.String(), q.Cursor, q.Limit+1)
	if err != nil {
		return ports.Report{}, err
	}
	items, err := pgx.CollectRows(rows, pgx.RowToStructByPos[itemRow])
	if err != nil {
		return ports.Report{}, err
	}
	report := ports.Report{Header: ports.ReportFields{
		{Name: "legal_entity", Value: q.Entity.Code}, {Name: "as_of", Value: q.AsOf.String()}, {Name: "known_at", Value: q.KnownAt},
	}}
	for i, row := range items {
		if i == q.Limit {
			report.HasMore, report.NextCursor = true, items[i-1].ItemID
			break
		}
		report.Rows = append(report.Rows, row)
	}
	return report, nil
}
