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

// StreamRows implements ports.ChainAudit.
func (s *Store) StreamRows(ctx context.Context, p event.PartitionID, streams []event.StreamID) ([]ports.StreamRow, error) {
	q := &backbonedb.ListStreamRowsParams{PartitionID: int32(p), StreamTypes: make([]string, len(streams)), StreamIds: make([]string, len(streams))}
	for i, id := range streams {
		q.StreamTypes[i], q.StreamIds[i] = id.Type, id.ID
	}
	rows, err := s.queries.ListStreamRows(ctx, s.reads, q)
	if err != nil {
		return nil, translate(ctx, err)
	}
	out := make([]ports.StreamRow, len(rows))
	for i := range rows {
		out[i] = streamRowOf(&rows[i])
	}
	return out, nil
}

func streamRowOf(r *backbonedb.ListStreamRowsRow) ports.StreamRow {
	return ports.StreamRow{
		Stream: event.StreamID{Type: r.StreamType, ID: r.StreamID}, First: event.Sequence(r.FirstSequence), Last: event.Sequence(r.LastSequence),
		StreamStatus: ports.StreamStatus{
			State: event.ParseStreamState(r.Lifecycle.String), Version: event.Version(r.Version), ReadableFrom: event.Version(r.ReadableFrom.Int64),
			Settings: r.Metadata, MetadataVersion: event.Version(r.MetadataVersion.Int64),
		},
	}
}

// StreamRowsWithEnds implements ports.ChainAudit.
func (s *Store) StreamRowsWithEnds(ctx context.Context, p event.PartitionID, after event.StreamID, limit int) ([]ports.StreamRowWithEnds, error) {
	rows, err := s.queries.ListStreamRowsWithEnds(ctx, s.reads, &backbonedb.ListStreamRowsWithEndsParams{
		PartitionID: int32(p), AfterType: after.Type, AfterID: after.ID, PageSize: pageSize(limit),
	})
	if err != nil {
		return nil, translate(ctx, err)
	}
	out := make([]ports.StreamRowWithEnds, len(rows))
	for i := range rows {
		r := &rows[i]
		out[i] = ports.StreamRowWithEnds{
			StreamRow: streamRowOf(&backbonedb.ListStreamRowsRow{
				StreamType: r.StreamType, StreamID: r.StreamID, Version: r.Version, FirstSequence: r.FirstSequence, LastSequence: r.LastSequence,
				Lifecycle: r.Lifecycle, ReadableFrom: r.ReadableFrom, Metadata: r.Metadata, MetadataVersion: r.MetadataVersion,
			}),
			FirstEvent: event.Sequence(r.FirstEvent), LastEvent: event.Sequence(r.LastEvent), LastEventVersion: event.Version(r.LastEventVersion),
			LastEventType: r.LastEventType, MetadataEventType: r.MetadataEventType, ReadableEventType: r.ReadableEventType,
		}
	}
	return out, nil
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
