package postgres

import (
	"context"
	"iter"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/backbonedb"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

var _ ports.ChainAudit = (*Store)(nil)

// Redactions implements ports.RedactionReader.
func (s *Store) Redactions(ctx context.Context, p event.PartitionID) ([]ports.Redaction, error) {
	return listRedactions(ctx, s.queries, s.reads, p)
}

// CountEvents implements ports.ChainAudit.
func (s *Store) CountEvents(ctx context.Context, p event.PartitionID, until event.Sequence) (uint64, error) {
	n, err := s.queries.CountEventsUntil(ctx, s.reads, &backbonedb.CountEventsUntilParams{PartitionID: int32(p), Until: int64(until)})
	if err != nil {
		return 0, translate(ctx, err)
	}
	return uint64(n), nil
}

// PersonalRows implements ports.ChainAudit. It keeps a connection until it ends.
func (s *Store) PersonalRows(ctx context.Context, p event.PartitionID, until event.Sequence) iter.Seq2[ports.PersonalRow, error] {
	return func(yield func(ports.PersonalRow, error) bool) {
		rows, err := s.reads.Query(ctx, backbonedb.ListEventPIISubjects, int32(p), int64(until))
		if err != nil {
			yield(ports.PersonalRow{}, translate(ctx, err))
			return
		}
		defer rows.Close()
		for rows.Next() {
			var r backbonedb.ListEventPIISubjectsRow
			if err := rows.Scan(&r.Sequence, &r.SubjectID, &r.Class, &r.Paths); err != nil {
				yield(ports.PersonalRow{}, translate(ctx, err))
				return
			}
			if !yield(ports.PersonalRow{
				Sequence: event.Sequence(r.Sequence), Subject: r.SubjectID, KeyClass: uint8(r.Class), Pointers: r.Paths,
			}, nil) {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield(ports.PersonalRow{}, translate(ctx, err))
		}
	}
}

func listRedactions(ctx context.Context, queries *backbonedb.Queries, pool *pgxpool.Pool, p event.PartitionID) ([]ports.Redaction, error) {
	rows, err := queries.ListRedactions(ctx, pool, int32(p))
	if err != nil {
		return nil, translate(ctx, err)
	}
	out := make([]ports.Redaction, len(rows))
	for i := range rows {
		r := &rows[i]
		out[i] = ports.Redaction{
			ID: r.ID.Bytes, Partition: p, Sequence: event.Sequence(r.Sequence), EventID: r.EventID.Bytes, Pointers: r.Pointers, Reason: r.Reason,
			RequestedBy: r.RequestedBy, ApprovedBy: r.ApprovedBy, RedactedAt: r.RedactedAt.UTC(),
			OldPayloadHash: hashOf(r.OldPayloadHash), NewPayloadHash: hashOf(r.NewPayloadHash),
		}
	}
	return out, nil
}

// hashOf is the zero hash, which nothing has, unless there are 32 bytes.
func hashOf(b []byte) (h event.Hash) {
	if len(b) == len(h) {
		copy(h[:], b)
	}
	return h
}
