package eventlog

import (
	"context"
	"math"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/eventlogdb"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

// EventsWithin is EventsAfter up to a number of bytes of payloads: it ends before the
// event that exceeds them, but never before the first. 0 bytes are no bound.
func (s *Reader) EventsWithin(ctx context.Context, db eventlogdb.DBTX, p event.PartitionID, after event.Sequence, limit, bytes int, types []string) ([]event.Recorded, error) {
	if bytes <= 0 || limit == 1 {
		return s.EventsAfter(ctx, db, p, after, limit, types)
	}
	if _, large := s.large.Load(p); large {
		return s.eventsMeasured(ctx, db, p, after, limit, bytes, types)
	}
	cut := &byteCutter{DBTX: db, left: bytes}
	events, err := s.eventsAfter(ctx, cut, p, after, limit, types)
	if cut.cut {
		s.large.Store(p, nil)
	}
	if err != nil {
		return nil, err
	}
	events, _, err = s.FillArchived(ctx, db, events, bytes, ofTypes(types))
	return events, err
}

// EventsOf reads the next batch of a projection: the events of its types, within its limit
// and bytes, and last, the last event that was read whatever its type; nil if there is none.
func (s *Reader) EventsOf(ctx context.Context, db eventlogdb.DBTX, a *ports.ProjectionAdvance, after event.Sequence) (events []event.Recorded, last *event.Skeleton, err error) {
	if _, large := s.large.Load(a.Partition); large || len(a.Types) == 0 {
		events, err = s.EventsWithin(ctx, db, a.Partition, after, a.Limit, a.Bytes, a.Types)
	} else {
		events, err = s.eventsOfTypes(ctx, db, a, after)
	}
	if err != nil || len(events) == 0 {
		return nil, nil, err
	}
	end := events[len(events)-1].Skeleton
	if len(a.Types) > 0 {
		events = slices.DeleteFunc(events, func(e event.Recorded) bool { return !slices.Contains(a.Types, e.Type) })
	}
	return events, &end, nil
}

func (s *Reader) eventsOfTypes(ctx context.Context, db eventlogdb.DBTX, a *ports.ProjectionAdvance, after event.Sequence) ([]event.Recorded, error) {
	cut := &byteCutter{DBTX: db, left: a.Bytes}
	if a.Bytes <= 0 {
		cut.left = math.MaxInt
	}
	rows, err := s.queries.ListEventsOfTypesAfter(ctx, cut, &eventlogdb.ListEventsOfTypesAfterParams{
		PartitionID: int32(a.Partition), After: int64(after), Through: int64(after) + int64(pg.PageSize(a.Limit)), Types: a.Types,
	})
	if cut.cut {
		s.large.Store(a.Partition, nil)
	}
	events, err := decodeRows(ctx, rows, err, func(r *eventlogdb.ListEventsOfTypesAfterRow) payloadRow {
		return payloadRow{&r.BackboneEvent, r.Salt, r.Redactions, r.Payload}
	})
	if err != nil {
		return nil, err
	}
	events, _, err = s.FillArchived(ctx, db, events, a.Bytes, ofTypes(a.Types))
	return events, err
}

// byteCutter ends the rows of a query before the one whose last column, the payload, exceeds
// left, but never before the first. The database could measure payloads before it sends them,
// but would then read each twice, and nearly all pages fit. The client reads and discards the
// rest of a page that does not fit. To avoid that the next time, Reader.large remembers the
// partition, and the database measures its pages from then on.
type byteCutter struct {
	eventlogdb.DBTX
	left int
	cut  bool
}

// Query implements eventlogdb.DBTX.
func (c *byteCutter) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	rows, err := c.DBTX.Query(ctx, sql, args...)
	return &cutRows{Rows: rows, cutter: c}, err
}

type cutRows struct {
	pgx.Rows
	cutter *byteCutter
	hasRow bool
}

// Next implements pgx.Rows.
func (r *cutRows) Next() bool {
	if r.cutter.cut || !r.Rows.Next() {
		return false
	}
	values := r.RawValues()
	r.cutter.left -= len(values[len(values)-1])
	if r.cutter.left < 0 && r.hasRow {
		r.cutter.cut = true
		r.Close()
		return false
	}
	r.hasRow = true
	return true
}

// eventsMeasured is EventsWithin for partitions with large events: the database measures the
// payloads and sends only those that fit.
func (s *Reader) eventsMeasured(ctx context.Context, db eventlogdb.DBTX, p event.PartitionID, after event.Sequence, limit, bytes int, types []string) ([]event.Recorded, error) {
	if types == nil {
		types = []string{}
	}
	rows, err := s.queries.ListEventsWithin(ctx, db, &eventlogdb.ListEventsWithinParams{
		PartitionID: int32(p), After: int64(after), PageSize: pg.PageSize(limit), Bytes: int64(bytes), Types: types,
	})
	if err == nil && len(rows) == limit {
		s.large.Delete(p) // its events are no longer so large that the bytes cut a page
	}
	events, err := decodeRows(ctx, rows, err, func(r *eventlogdb.ListEventsWithinRow) payloadRow {
		return payloadRow{&r.BackboneEvent, r.Salt, r.Redactions, r.Payload}
	})
	if err != nil {
		return nil, err
	}
	events, _, err = s.FillArchived(ctx, db, events, bytes, ofTypes(types))
	return events, err
}

// PayloadSizes reads the stored sizes of payloads, in bytes; events without one are left out.
func (s *Reader) PayloadSizes(ctx context.Context, db eventlogdb.DBTX, p event.PartitionID, sequences []event.Sequence) (map[event.Sequence]int, error) {
	rows, err := s.queries.ListPayloadSizes(ctx, db, &eventlogdb.ListPayloadSizesParams{PartitionID: int32(p), Sequences: pg.Sequences(sequences)})
	if err != nil {
		return nil, pg.Translate(ctx, err)
	}
	out := make(map[event.Sequence]int, len(rows))
	for i := range rows {
		out[event.Sequence(rows[i].Sequence)] = int(rows[i].Bytes)
	}
	return out, nil
}
