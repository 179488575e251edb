package eventlog

import (
	"context"
	"math"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/eventlogdb"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/ports"
)

// Descendants implements ports.CausalityReader. A limit of 0 reads to the end.
func (s *Reader) Descendants(ctx context.Context, q ports.DescendantQuery) (found []ports.Descendant, more bool, err error) {
	if len(q.Causes) == 0 || q.MaxDepth < 1 {
		return []ports.Descendant{}, false, nil
	}
	limit := pg.PageSize(q.Limit)
	p := &eventlogdb.ListDescendantsParams{
		PartitionID: int32(q.Partition), Stop: int64(q.Stop), MaxDepth: int32(min(q.MaxDepth, math.MaxInt32)),
		PageSize: min(limit, math.MaxInt32-1) + 1, // one more shows whether there are more
		Causes:   make([]pgtype.UUID, len(q.Causes)), CausePartitions: make([]int32, len(q.Causes)),
	}
	for i, c := range q.Causes {
		p.Causes[i], p.CausePartitions[i] = pg.UUID(c.ID), int32(c.Partition)
	}
	rows, err := s.queries.ListDescendants(ctx, s.db.Reads, p)
	if err != nil {
		return nil, false, pg.Translate(ctx, err)
	}
	if len(rows) > int(limit) {
		rows, more = rows[:limit], true
	}
	sequences := pg.Map(rows, func(r *eventlogdb.ListDescendantsRow) int64 { return r.Sequence })
	events, cut, err := s.fetchWithin(ctx, q.Partition, "", sequences, !q.WithoutData, q.Bytes)
	if err != nil {
		return nil, false, err
	}
	more = more || cut
	// events and rows have the same order; a cut leaves out the last ones.
	found = make([]ports.Descendant, len(events))
	for i := range events {
		found[i] = ports.Descendant{Event: events[i], Depth: int(rows[i].Depth)}
	}
	return found, more, nil
}
