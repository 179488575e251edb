package postgres

import (
	"context"
	"errors"
	"math"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

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
	if q.Until != 0 || q.EffectiveTo != nil {
		return s.readStreamAsOf(ctx, q)
	}
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

// readStreamAsOf is ReadStream of what was known, or took effect, up to a point.
func (s *Store) readStreamAsOf(ctx context.Context, q ports.StreamQuery) ([]event.Recorded, error) {
	until, effective := int64(math.MaxInt64), pgtype.Date{InfinityModifier: pgtype.Infinity, Valid: true}
	if q.Until != 0 && q.Until <= math.MaxInt64 {
		until = int64(q.Until)
	}
	if q.EffectiveTo != nil {
		effective = pgDate(*q.EffectiveTo)
	}
	if q.Direction == ports.Forward {
		rows, err := s.queries.ListEventsOfStreamAsOf(ctx, s.reads, &backbonedb.ListEventsOfStreamAsOfParams{
			PartitionID: int32(q.Partition), StreamType: q.Stream.Type, StreamID: q.Stream.ID, FromVersion: int64(min(q.From, math.MaxInt64)),
			Until: until, EffectiveTo: effective, WithPayload: !q.WithoutData, PageSize: pageSize(q.Limit),
		})
		if err != nil {
			return nil, translate(ctx, err)
		}
		return recordedAll(rows, func(r *backbonedb.ListEventsOfStreamAsOfRow) (*backbonedb.BackboneEvent, []byte, []byte) {
			return &r.BackboneEvent, r.Salt, r.Payload
		})
	}
	from := int64(math.MaxInt64)
	if q.From != 0 && q.From <= math.MaxInt64 {
		from = int64(q.From)
	}
	rows, err := s.queries.ListEventsOfStreamAsOfBackward(ctx, s.reads, &backbonedb.ListEventsOfStreamAsOfBackwardParams{
		PartitionID: int32(q.Partition), StreamType: q.Stream.Type, StreamID: q.Stream.ID, FromVersion: from,
		Until: until, EffectiveTo: effective, WithPayload: !q.WithoutData, PageSize: pageSize(q.Limit),
	})
	if err != nil {
		return nil, translate(ctx, err)
	}
	return recordedAll(rows, func(r *backbonedb.ListEventsOfStreamAsOfBackwardRow) (*backbonedb.BackboneEvent, []byte, []byte) {
		return &r.BackboneEvent, r.Salt, r.Payload
	})
}
