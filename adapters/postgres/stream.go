package postgres

import (
	"context"
	"math"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/backbonedb"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

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
