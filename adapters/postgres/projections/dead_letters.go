package projections

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/projectionsdb"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

// settleLetters gives the waiting dead letters up to a sequence their final status; by "" is the
// system.
func (s *work) settleLetters(ctx context.Context, tx pgx.Tx, w ports.ProjectionWork, through event.Sequence, status, by, reason string) error {
	return s.queries.SettleDeadLetters(ctx, tx, &projectionsdb.SettleDeadLettersParams{
		Kind: ports.LetterOfProjection, Name: w.Projection, Version: int32(w.Version), PartitionID: int32(w.Partition), Through: int64(through),
		Status: status, SettledAt: pg.OptionalTime(s.db.Now()), SettledBy: pg.OptionalText(by), Reason: pg.OptionalText(reason),
	})
}

// ListDeadLetters implements ports.DeadLetters.
func (s *Versions) ListDeadLetters(ctx context.Context, q ports.DeadLetterQuery) ([]ports.DeadLetter, error) {
	p := &projectionsdb.ListDeadLettersParams{Kind: q.Kind, Name: q.Name, Statuses: q.Statuses, PartitionIds: pg.Partitions(q.Partitions), PageSize: pg.PageSize(q.Limit), AfterPartitionID: -1}
	if p.Statuses == nil {
		p.Statuses = []string{}
	}
	if a := q.After; a != nil {
		p.AfterKind, p.AfterName, p.AfterVersion, p.AfterPartitionID, p.AfterSequence = a.Kind, a.Name, int32(a.Version), int32(a.Partition), int64(a.Sequence)
	}
	rows, err := s.queries.ListDeadLetters(ctx, s.db.Reads, p)
	return pg.MapRows(ctx, rows, err, func(row *projectionsdb.ListDeadLettersRow) ports.DeadLetter {
		r := &row.BackboneDeadLetter
		return ports.DeadLetter{
			Kind: r.Kind, Name: r.Name, Version: int(r.Version), Partition: event.PartitionID(r.PartitionID), Sequence: event.Sequence(r.Sequence),
			EventID: r.EventID.Bytes, Code: r.Code, Detail: r.Detail, Attempts: int(r.Attempts),
			FirstFailedAt: r.FirstFailedAt.UTC(), LastFailedAt: r.LastFailedAt.UTC(), Status: r.Status,
			SettledAt: pg.TimeOrZero(r.SettledAt), SettledBy: r.SettledBy.String, Reason: r.Reason.String,
		}
	})
}

const resolveLetter = `UPDATE backbone.dead_letters SET status = 'resolved', settled_at = $6, settled_by = $7
	WHERE kind = $1 AND name = $2 AND version = $3 AND partition_id = $4 AND sequence = $5`

// resolveSkipped resolves the dead letter of a skipped event that was applied later.
func (s *work) resolveSkipped(ctx context.Context, tx pgx.Tx, w ports.ProjectionWork, sequence event.Sequence, by string) error {
	_, err := tx.Exec(ctx, resolveLetter, ports.LetterOfProjection, w.Projection, int32(w.Version), int32(w.Partition), int64(sequence), s.db.Now(), pg.OptionalText(by))
	return err
}
