package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/erpbackbone/backbone/modules/gl/adapters/postgres/internal/gldb"
	"github.com/erpbackbone/backbone/ports"
)

// NewPeriods makes the source of gl/periods.
func NewPeriods(pool *pgxpool.Pool) ports.ReadModelSource { return newSource(pool, (*source).periods) }

type periodRow struct {
	Module     string   `json:"module"`
	FiscalYear string   `json:"fiscal_year"`
	Period     string   `json:"period"`
	Start      string   `json:"start"`
	End        string   `json:"end"`
	State      string   `json:"state"`
	ChangedAt  string   `json:"changed_at,omitempty"`
	ActorID    string   `json:"actor_id,omitempty"`
	Approvers  []string `json:"approvers"`
	Reason     string   `json:"reason,omitempty"`
	IntentID   string   `json:"intent_id,omitempty"`
	EventID    string   `json:"event_id,omitempty"`
}

// periods lists the periods with the state that each module's posting sees. States have no
// effective date: what counts is what was recorded.
func (s *source) periods(ctx context.Context, q ports.ReadModelQuery) (ports.Report, error) {
	_, header, err := s.bookHeader(ctx, q)
	if err != nil {
		return ports.Report{}, err
	}
	found, err := s.queries.Periods(ctx, s.pool, &gldb.PeriodsParams{
		Known: int64(q.Known), PartitionID: int32(q.Partition), Version: int32(q.Version), Module: q.Params["module"],
		FiscalYear: q.Params["fiscal_year"], Period: q.Params["period"], State: q.Params["state"],
	})
	if err != nil {
		return ports.Report{}, fmt.Errorf("periods: %w", err)
	}
	rows := make([]any, 0, len(found))
	for _, r := range found {
		row := periodRow{
			Module: r.Module, FiscalYear: r.FiscalYear, Period: r.Period, Start: dateText(r.PeriodStart), End: dateText(r.PeriodEnd), State: r.State,
			ActorID: r.ActorID, Approvers: r.Approvers, Reason: r.Reason, IntentID: uuidText(r.IntentID), EventID: uuidText(r.EventID),
		}
		if r.EventID.Valid {
			row.ChangedAt = formatTime(r.ChangedAt)
		}
		rows = append(rows, row)
	}
	return wholeReport(q, header, rows)
}
