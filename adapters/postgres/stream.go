package postgres

import (
	"context"
	"errors"
	"math"

	"github.com/jackc/pgx/v5"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/backbonedb"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

// StreamStatus implements ports.StreamReader.
func (s *Store) StreamStatus(ctx context.Context, p event.PartitionID, id event.StreamID) (ports.StreamStatus, error) {
	row, err := s.queries.GetStreamStatus(ctx, s.reads, &backbonedb.GetStreamStatusParams{PartitionID: int32(p), StreamType: id.Type, StreamID: id.ID})
	if errors.Is(err, pgx.ErrNoRows) {
		return ports.StreamStatus{}, nil
	}
	if err != nil {
		return ports.StreamStatus{}, translate(ctx, err)
	}
	return ports.StreamStatus{
		State: event.ParseStreamState(row.Lifecycle.String), Version: event.Version(row.Version), ReadableFrom: event.Version(row.ReadableFrom.Int64),
		Settings: row.Metadata, MetadataVersion: event.Version(row.MetadataVersion.Int64),
	}, nil
}

// ReadStream implements ports.StreamReader. A limit of 0 reads to the end.
func (s *Store) ReadStream(ctx context.Context, q ports.StreamQuery) ([]event.Recorded, error) {
	if q.Direction == ports.Forward {
		events, err := s.EventsOfStream(ctx, q.Partition, q.Stream, q.From, q.Limit)
		if q.WithoutData {
			for i := range events {
				events[i].Payload, events[i].Salt = nil, event.Salt{}
			}
		}
		return events, err
	}
	from := int64(q.From)
	if q.From == 0 || q.From > math.MaxInt64 {
		from = math.MaxInt64
	}
	rows, err := s.queries.ListEventsOfStreamBackward(ctx, s.reads, &backbonedb.ListEventsOfStreamBackwardParams{
		PartitionID: int32(q.Partition), StreamType: q.Stream.Type, StreamID: q.Stream.ID, FromVersion: from,
		WithPayload: !q.WithoutData, PageSize: pageSize(q.Limit),
	})
	if err != nil {
		return nil, translate(ctx, err)
	}
	return recordedAll(rows, func(r *backbonedb.ListEventsOfStreamBackwardRow) (*backbonedb.BackboneEvent, []byte, []byte) {
		return &r.BackboneEvent, r.Salt, r.Payload
	})
}
