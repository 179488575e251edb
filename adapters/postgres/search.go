package postgres

import (
	"context"
	"math"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/backbonedb"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

// A key search with further filters walks the key index in pages of this size.
const searchPage = 1000

// Events implements ports.EventReader. A search through one index finds the
// sequences, then the events are fetched by primary key. A limit of 0 reads to the
// end.
func (s *Store) Events(ctx context.Context, q ports.EventQuery) ([]event.Recorded, error) {
	b, empty, err := s.bounds(ctx, &q)
	if err != nil || empty {
		return []event.Recorded{}, err
	}
	if q.Key == "" && !filtered(&q) && q.Direction == ports.Forward && b.until == math.MaxInt64 && !q.WithoutData {
		return s.eventsAfter(ctx, s.reads, q.Partition, event.Sequence(b.after), q.Limit, nil)
	}
	sequences, err := s.search(ctx, &q, b)
	if err != nil {
		return nil, translate(ctx, err)
	}
	return s.bySequence(ctx, q.Partition, sequences, !q.WithoutData)
}

// span is the searched sequences: after < n <= until.
type span struct{ after, until int64 }

// bounds resolves After and Until for the direction, and the recorded times,
// which never go backwards, to sequences.
func (s *Store) bounds(ctx context.Context, q *ports.EventQuery) (b span, empty bool, err error) {
	b = span{0, math.MaxInt64}
	if q.Until != 0 {
		b.until = int64(q.Until)
	}
	switch {
	case q.Direction == ports.Forward:
		b.after = int64(q.After)
	case q.After != 0:
		b.until = min(b.until, int64(q.After)-1)
	}
	if !q.RecordedFrom.IsZero() {
		n, err := s.SequenceAt(ctx, q.Partition, beforeMicro(q.RecordedFrom))
		if err != nil {
			return b, false, err
		}
		b.after = max(b.after, int64(n))
	}
	if !q.RecordedTo.IsZero() {
		n, err := s.SequenceAt(ctx, q.Partition, beforeMicro(q.RecordedTo))
		if err != nil {
			return b, false, err
		}
		b.until = min(b.until, int64(n))
	}
	return b, b.after >= b.until, nil
}

// beforeMicro is the last stored instant before t.
func beforeMicro(t time.Time) time.Time {
	last := t.Truncate(time.Microsecond)
	if last.Equal(t) {
		last = last.Add(-time.Microsecond)
	}
	return last
}

// filtered reports whether the query asks for more than a key and bounds.
func filtered(q *ports.EventQuery) bool {
	return len(q.Types) > 0 || q.CorrelationID != "" || q.ActorID != "" || !q.OccurredFrom.IsZero() || !q.OccurredTo.IsZero() ||
		q.EffectiveFrom != nil || q.EffectiveTo != nil
}

func optionalTime(t time.Time) pgtype.Timestamptz {
	return pgtype.Timestamptz{Time: t, Valid: !t.IsZero()}
}

func optionalDate(d *event.Date) pgtype.Date {
	if d == nil {
		return pgtype.Date{}
	}
	return pgtype.Date{Time: d.Time(), Valid: true}
}

func optionalText(s string) pgtype.Text { return pgtype.Text{String: s, Valid: s != ""} }

// search picks the index: key, then correlation, actor, types, then the log.
func (s *Store) search(ctx context.Context, q *ports.EventQuery, b span) ([]int64, error) {
	types := q.Types
	if types == nil {
		types = []string{}
	}
	switch {
	case q.Key != "":
		return s.searchKey(ctx, q, b, types)
	case q.CorrelationID != "":
		p := &backbonedb.SearchCorrelationParams{
			PartitionID: int32(q.Partition), Correlation: q.CorrelationID, After: b.after, Until: b.until, Types: types,
			ActorID: optionalText(q.ActorID), OccurredFrom: optionalTime(q.OccurredFrom), OccurredTo: optionalTime(q.OccurredTo),
			EffectiveFrom: optionalDate(q.EffectiveFrom), EffectiveTo: optionalDate(q.EffectiveTo), PageSize: pageSize(q.Limit),
		}
		if q.Direction == ports.Backward {
			return s.queries.SearchCorrelationBackward(ctx, s.reads, (*backbonedb.SearchCorrelationBackwardParams)(p))
		}
		return s.queries.SearchCorrelation(ctx, s.reads, p)
	case q.ActorID != "":
		p := &backbonedb.SearchActorParams{
			PartitionID: int32(q.Partition), Actor: q.ActorID, After: b.after, Until: b.until, Types: types,
			OccurredFrom: optionalTime(q.OccurredFrom), OccurredTo: optionalTime(q.OccurredTo),
			EffectiveFrom: optionalDate(q.EffectiveFrom), EffectiveTo: optionalDate(q.EffectiveTo), PageSize: pageSize(q.Limit),
		}
		if q.Direction == ports.Backward {
			return s.queries.SearchActorBackward(ctx, s.reads, (*backbonedb.SearchActorBackwardParams)(p))
		}
		return s.queries.SearchActor(ctx, s.reads, p)
	case len(types) > 0:
		p := &backbonedb.SearchTypesParams{
			Types: types, PartitionID: int32(q.Partition), After: b.after, Until: b.until,
			OccurredFrom: optionalTime(q.OccurredFrom), OccurredTo: optionalTime(q.OccurredTo),
			EffectiveFrom: optionalDate(q.EffectiveFrom), EffectiveTo: optionalDate(q.EffectiveTo), PageSize: pageSize(q.Limit),
		}
		if q.Direction == ports.Backward {
			return s.queries.SearchTypesBackward(ctx, s.reads, (*backbonedb.SearchTypesBackwardParams)(p))
		}
		return s.queries.SearchTypes(ctx, s.reads, p)
	default:
		p := &backbonedb.SearchLogParams{
			PartitionID: int32(q.Partition), After: b.after, Until: b.until,
			OccurredFrom: optionalTime(q.OccurredFrom), OccurredTo: optionalTime(q.OccurredTo),
			EffectiveFrom: optionalDate(q.EffectiveFrom), EffectiveTo: optionalDate(q.EffectiveTo), PageSize: pageSize(q.Limit),
		}
		if q.Direction == ports.Backward {
			return s.queries.SearchLogBackward(ctx, s.reads, (*backbonedb.SearchLogBackwardParams)(p))
		}
		return s.queries.SearchLog(ctx, s.reads, p)
	}
}

// searchKey walks the key index page by page until the limit is reached or the
// index ends.
func (s *Store) searchKey(ctx context.Context, q *ports.EventQuery, b span, types []string) ([]int64, error) {
	p := &backbonedb.SearchKeyParams{
		Filtered: filtered(q), PartitionID: int32(q.Partition), Key: q.Key, After: b.after, Until: b.until, Types: types,
		CorrelationID: optionalText(q.CorrelationID), ActorID: optionalText(q.ActorID),
		OccurredFrom: optionalTime(q.OccurredFrom), OccurredTo: optionalTime(q.OccurredTo),
		EffectiveFrom: optionalDate(q.EffectiveFrom), EffectiveTo: optionalDate(q.EffectiveTo), PageSize: pageSize(q.Limit),
	}
	if p.Filtered {
		p.PageSize = searchPage
	}
	limit := int(pageSize(q.Limit))
	var found []int64
	for {
		rows, err := s.keyPage(ctx, q.Direction, p)
		if err != nil {
			return nil, err
		}
		for _, r := range rows {
			if r.Matches && len(found) < limit {
				found = append(found, r.Sequence)
			}
		}
		if len(found) >= limit || len(rows) < int(p.PageSize) {
			return found, nil
		}
		last := rows[len(rows)-1].Sequence
		if q.Direction == ports.Backward {
			p.Until = last - 1
		} else {
			p.After = last
		}
	}
}

func (s *Store) keyPage(ctx context.Context, d ports.Direction, p *backbonedb.SearchKeyParams) ([]backbonedb.SearchKeyRow, error) {
	if d == ports.Forward {
		return s.queries.SearchKey(ctx, s.reads, p)
	}
	rows, err := s.queries.SearchKeyBackward(ctx, s.reads, (*backbonedb.SearchKeyBackwardParams)(p))
	out := make([]backbonedb.SearchKeyRow, len(rows))
	for i, r := range rows {
		out[i] = backbonedb.SearchKeyRow(r)
	}
	return out, err
}
