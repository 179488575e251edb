package eventlog

import (
	"context"
	"errors"
	"math"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/eventlogdb"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

// StreamStatus implements ports.StreamReader.
func (s *Reader) StreamStatus(ctx context.Context, p event.PartitionID, id event.StreamID) (ports.StreamStatus, error) {
	row, err := s.queries.GetStreamStatus(ctx, s.db.Reads, &eventlogdb.GetStreamStatusParams{PartitionID: int32(p), StreamType: id.Type, StreamID: id.ID})
	if errors.Is(err, pgx.ErrNoRows) {
		return ports.StreamStatus{}, nil
	}
	if err != nil {
		return ports.StreamStatus{}, pg.Translate(ctx, err)
	}
	return ports.StreamStatus{
		State: event.ParseStreamState(row.Lifecycle.String), Version: event.Version(row.Version), ReadableFrom: event.Version(row.ReadableFrom.Int64),
		Settings: row.Metadata, MetadataVersion: event.Version(row.MetadataVersion.Int64),
	}, nil
}

// ReadStream implements ports.StreamReader. A limit of 0 reads to the end.
func (s *Reader) ReadStream(ctx context.Context, q ports.StreamQuery) (events []event.Recorded, more bool, err error) {
	events, more, err = s.readStored(ctx, q)
	if err != nil || q.WithoutData || q.OnlineOnly {
		return events, more, err
	}
	events, cut, err := s.FillArchived(ctx, s.db.Reads, events, q.Bytes, Every)
	return events, more || cut, err
}

// readStored is ReadStream without payloads of the archive.
func (s *Reader) readStored(ctx context.Context, q ports.StreamQuery) (events []event.Recorded, more bool, err error) {
	if q.Bytes <= 0 || q.WithoutData {
		events, err = s.StreamPage(ctx, s.db.Reads, &q)
		return events, false, err
	}
	if _, large := s.large.Load(q.Partition); large {
		return s.readStreamInParts(ctx, q)
	}
	cut := &byteCutter{DBTX: s.db.Reads, left: q.Bytes}
	events, err = s.StreamPage(ctx, cut, &q)
	if cut.cut {
		s.large.Store(q.Partition, nil)
	}
	return events, cut.cut, err
}

// readStreamInParts is ReadStream for partitions with large events. It reads a few events at a
// time, so that it reads few of those that the bytes leave out.
func (s *Reader) readStreamInParts(ctx context.Context, q ports.StreamQuery) ([]event.Recorded, bool, error) {
	limit := int(pg.PageSize(q.Limit))
	out := []event.Recorded{}
	for left := q.Bytes; ; {
		q.Limit = min(limit-len(out), largeEventsPage)
		part, err := s.StreamPage(ctx, s.db.Reads, &q)
		if err != nil {
			return nil, false, err
		}
		for i := range part {
			if left -= len(part[i].Payload); left < 0 && len(out) > 0 {
				return out, true, nil
			}
			out = append(out, part[i])
		}
		if len(part) < q.Limit || len(out) == limit {
			if len(out) > largeEventsPage {
				s.large.Delete(q.Partition) // its events are no longer so large that the bytes cut a page
			}
			return out, false, nil
		}
		if q.From = part[len(part)-1].StreamVersion + 1; q.Direction == ports.Backward {
			if q.From -= 2; q.From == 0 { // there is no version 0, and a From of 0 would read from the end
				return out, false, nil
			}
		}
	}
}

// StreamPage reads one page of a stream through db, which may be a transaction. It ignores
// the query's bytes, and reads no payloads of the archive.
func (s *Reader) StreamPage(ctx context.Context, db eventlogdb.DBTX, q *ports.StreamQuery) ([]event.Recorded, error) {
	if q.Until != 0 || q.EffectiveTo != nil || q.Direction == ports.Forward && q.WithoutData {
		return s.readStreamAsOf(ctx, db, q)
	}
	if q.Direction == ports.Forward {
		return s.eventsOfStream(ctx, db, q.Partition, q.Stream, q.From, q.Limit)
	}
	from := int64(q.From)
	if q.From == 0 || q.From > math.MaxInt64 {
		from = math.MaxInt64
	}
	rows, err := s.queries.ListEventsOfStreamBackward(ctx, db, &eventlogdb.ListEventsOfStreamBackwardParams{
		PartitionID: int32(q.Partition), StreamType: q.Stream.Type, StreamID: q.Stream.ID, FromVersion: from,
		WithPayload: !q.WithoutData, PageSize: pg.PageSize(q.Limit),
	})
	return decodeRows(ctx, rows, err, func(r *eventlogdb.ListEventsOfStreamBackwardRow) payloadRow {
		return payloadRow{&r.BackboneEvent, r.Salt, r.Redactions, r.Payload}
	})
}

// readStreamAsOf is StreamPage for the events recorded, or effective, up to a point.
func (s *Reader) readStreamAsOf(ctx context.Context, db eventlogdb.DBTX, q *ports.StreamQuery) ([]event.Recorded, error) {
	until, effective := int64(math.MaxInt64), pgtype.Date{InfinityModifier: pgtype.Infinity, Valid: true}
	if q.Until != 0 && q.Until <= math.MaxInt64 {
		until = int64(q.Until)
	}
	if q.EffectiveTo != nil {
		effective = pg.Date(*q.EffectiveTo)
	}
	if q.Direction == ports.Forward {
		rows, err := s.queries.ListEventsOfStreamAsOf(ctx, db, &eventlogdb.ListEventsOfStreamAsOfParams{
			PartitionID: int32(q.Partition), StreamType: q.Stream.Type, StreamID: q.Stream.ID, FromVersion: int64(min(q.From, math.MaxInt64)),
			Until: until, EffectiveTo: effective, WithPayload: !q.WithoutData, PageSize: pg.PageSize(q.Limit),
		})
		return decodeRows(ctx, rows, err, func(r *eventlogdb.ListEventsOfStreamAsOfRow) payloadRow {
			return payloadRow{&r.BackboneEvent, r.Salt, r.Redactions, r.Payload}
		})
	}
	from := int64(math.MaxInt64)
	if q.From != 0 && q.From <= math.MaxInt64 {
		from = int64(q.From)
	}
	rows, err := s.queries.ListEventsOfStreamAsOfBackward(ctx, db, &eventlogdb.ListEventsOfStreamAsOfBackwardParams{
		PartitionID: int32(q.Partition), StreamType: q.Stream.Type, StreamID: q.Stream.ID, FromVersion: from,
		Until: until, EffectiveTo: effective, WithPayload: !q.WithoutData, PageSize: pg.PageSize(q.Limit),
	})
	return decodeRows(ctx, rows, err, func(r *eventlogdb.ListEventsOfStreamAsOfBackwardRow) payloadRow {
		return payloadRow{&r.BackboneEvent, r.Salt, r.Redactions, r.Payload}
	})
}
