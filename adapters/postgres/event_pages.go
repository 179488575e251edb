package postgres

import (
	"context"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/backbonedb"
	"github.com/erpbackbone/backbone/domain/event"
)

// eventsWithin is eventsAfter up to a number of bytes of payloads: it ends before the
// event that exceeds it, but never before the first. 0 bytes are no bound.
func (s *Store) eventsWithin(ctx context.Context, db backbonedb.DBTX, p event.PartitionID, after event.Sequence, limit, bytes int, types []string) ([]event.Recorded, error) {
	if bytes <= 0 || limit == 1 {
		return s.eventsAfter(ctx, db, p, after, limit, types)
	}
	if types == nil {
		types = []string{}
	}
	rows, err := s.queries.ListEventsWithin(ctx, db, &backbonedb.ListEventsWithinParams{
		PartitionID: int32(p), After: int64(after), PageSize: pageSize(limit), Bytes: int64(bytes), Types: types,
	})
	if err != nil {
		return nil, translate(ctx, err)
	}
	return recordedAll(rows, func(r *backbonedb.ListEventsWithinRow) (*backbonedb.BackboneEvent, []byte, []byte) {
		return &r.BackboneEvent, r.Salt, r.Payload
	})
}

// payloadSizes gives the bytes of what is stored of events.
func (s *Store) payloadSizes(ctx context.Context, db backbonedb.DBTX, p event.PartitionID, sequences []event.Sequence) (map[event.Sequence]int, error) {
	wanted := make([]int64, len(sequences))
	for i, n := range sequences {
		wanted[i] = int64(n)
	}
	rows, err := s.queries.ListPayloadSizes(ctx, db, &backbonedb.ListPayloadSizesParams{PartitionID: int32(p), Sequences: wanted})
	if err != nil {
		return nil, translate(ctx, err)
	}
	out := make(map[event.Sequence]int, len(rows))
	for i := range rows {
		out[event.Sequence(rows[i].Sequence)] = int(rows[i].Bytes)
	}
	return out, nil
}
