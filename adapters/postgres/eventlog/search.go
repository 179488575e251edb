package eventlog

import (
	"context"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/eventlogdb"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

// searchPage is how many candidates a search with filters in addition to its index reads at a time.
const searchPage = 1000

// searchTime bounds a search with a scan limit: after it the search ends with its current
// page, because large payloads make candidates more expensive than their number shows.
const searchTime = 3 * time.Second

// Events implements ports.EventReader. A limit of 0 reads to the end.
func (s *Reader) Events(ctx context.Context, q ports.EventQuery) ([]event.Recorded, error) {
	if q.Direction == ports.Forward && leaderOf(&q) == byLog && !hasFilters(&q) && !q.OnlineOnly {
		b, empty, err := s.bounds(ctx, &q)
		if err != nil || empty {
			return []event.Recorded{}, err
		}
		if b.until == math.MaxInt64 { // the log itself
			var types []string
			if q.WithoutData {
				types = []string{""} // payloads of no type
			}
			return s.EventsWithin(ctx, s.db.Reads, q.Partition, event.Sequence(b.after), q.Limit, q.Bytes, types)
		}
	}
	found, err := s.SearchEvents(ctx, q, 0)
	return found.Events, err
}

// SearchEvents implements ports.EventSearcher. A scan of 0 reads to the end. It reads a page
// of candidates from one index, filters the page, and fetches the remaining events by primary
// key.
func (s *Reader) SearchEvents(ctx context.Context, q ports.EventQuery, scan int) (ports.EventScan, error) {
	out := ports.EventScan{Events: []event.Recorded{}}
	b, empty, err := s.bounds(ctx, &q)
	if err != nil || empty {
		return out, err
	}
	sequences, err := s.search(ctx, &q, b, scan, &out)
	if err != nil {
		return out, pg.Translate(ctx, err)
	}
	correlation := ""
	if leaderOf(&q) == byCorrelation && !hasFilters(&q) {
		correlation = q.CorrelationID
	}
	fetch := s.fetchWithin
	if q.OnlineOnly {
		fetch = s.fetchStored
	}
	events, cut, err := fetch(ctx, q.Partition, correlation, sequences, !q.WithoutData, q.Bytes)
	if err != nil {
		return ports.EventScan{Events: []event.Recorded{}}, err
	}
	if out.Events = events; cut {
		out.Stopped, out.Reached = true, events[len(events)-1].Sequence
	}
	return out, nil
}

// span is a range of sequences: after < n <= until.
type span struct{ after, until int64 }

// bounds resolves After and Until for the direction, and recorded times, which never decrease
// within a partition, to sequences.
func (s *Reader) bounds(ctx context.Context, q *ports.EventQuery) (b span, empty bool, err error) {
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
	if q.From != 0 {
		b.after = max(b.after, int64(q.From)-1)
	}
	if q.To != 0 {
		b.until = min(b.until, int64(q.To))
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

// leader is the index that leads a search.
type leader int

const (
	byLog leader = iota
	byKey
	byCorrelation
	byActor
	byTypes
)

// leaderOf picks the index: key, then correlation, actor, types, then the log.
func leaderOf(q *ports.EventQuery) leader {
	switch {
	case q.Key != "":
		return byKey
	case q.CorrelationID != "":
		return byCorrelation
	case q.ActorID != "":
		return byActor
	case len(q.Types) > 0:
		return byTypes
	default:
		return byLog
	}
}

// hasFilters reports whether the query asks for more than its leader and bounds.
func hasFilters(q *ports.EventQuery) bool {
	lead := leaderOf(q)
	return len(q.Types) > 0 && lead != byTypes || q.CorrelationID != "" && lead != byCorrelation || q.ActorID != "" && lead != byActor ||
		!q.OccurredFrom.IsZero() || !q.OccurredTo.IsZero() || q.EffectiveFrom != nil || q.EffectiveTo != nil ||
		q.Division != "" || q.Region != "" || q.Site != "" || q.SchemaVersion != 0 || q.Source != (event.Source{}) ||
		q.Dimension.Name != "" || q.Predicate != nil
}

// search finds the sequences that the query selects. Without filters that is one page of
// candidates. With filters it reads pages until it reaches the limit, the end or the scan
// limit; for the last it sets out.Stopped.
func (s *Reader) search(ctx context.Context, q *ports.EventQuery, b span, scan int, out *ports.EventScan) ([]int64, error) {
	if !hasFilters(q) {
		return s.candidates(ctx, q, b, pg.PageSize(q.Limit))
	}
	match, err := filterParams(q)
	if err != nil {
		return nil, err
	}
	page, limit := int32(searchPage), int(pg.PageSize(q.Limit))
	if n := len(q.Types); leaderOf(q) == byTypes && n > 4 { // the statement reads a page for each type
		page = max(int32(4*searchPage/n), 100)
	}
	var found []int64
	started := time.Now()
	for looked := 0; ; {
		size := page
		if scan > 0 {
			size = min(size, int32(scan-looked))
		}
		candidates, err := s.candidates(ctx, q, b, size)
		if err != nil || len(candidates) == 0 {
			return found, err
		}
		match.Sequences = candidates
		passed, err := s.match(ctx, match)
		if err != nil {
			return nil, err
		}
		slices.Sort(passed)
		if q.Direction == ports.Backward {
			slices.Reverse(passed)
		}
		found = append(found, passed[:min(len(passed), limit-len(found))]...)
		if len(found) >= limit || len(candidates) < int(size) {
			return found, nil
		}
		last := candidates[len(candidates)-1]
		if q.Direction == ports.Backward {
			b.until = last - 1
		} else {
			b.after = last
		}
		if looked += len(candidates); scan > 0 && (looked >= scan || time.Since(started) > searchTime) {
			out.Stopped, out.Reached = true, event.Sequence(last)
			return found, nil
		}
	}
}

// match finds the candidates that pass all filters, also those whose payloads are archived.
func (s *Reader) match(ctx context.Context, filters *eventlogdb.MatchEventsParams) ([]int64, error) {
	passed, err := s.queries.MatchEvents(ctx, s.db.Reads, filters)
	if err != nil || !filters.Dimension.Valid && !filters.JsonPath.Valid {
		return passed, err
	}
	archived, err := s.matchArchived(ctx, filters)
	passed = append(passed, archived...) // those of a range that are in the database are in both
	slices.Sort(passed)
	return slices.Compact(passed), err
}

// matchArchived finds the candidates with archived payloads that pass. It reads the payloads of those alone that pass
// all other filters.
func (s *Reader) matchArchived(ctx context.Context, filters *eventlogdb.MatchEventsParams) ([]int64, error) {
	a, err := s.archivedOf(ctx, s.db.Reads, event.PartitionID(filters.PartitionID), filters.Sequences)
	if err != nil || len(a.segments) == 0 {
		return nil, err
	}
	skeletons := *filters
	skeletons.Dimension, skeletons.JsonPath = pgtype.Text{}, pgtype.Text{}
	skeletons.Sequences = slices.DeleteFunc(slices.Clone(filters.Sequences), func(n int64) bool {
		_, found := a.segmentOf(event.Sequence(n))
		return !found
	})
	candidates, err := s.queries.MatchEvents(ctx, s.db.Reads, &skeletons)
	if err != nil || len(candidates) == 0 {
		return nil, err
	}
	slices.Sort(candidates)
	var passed []int64
	for len(candidates) > 0 { // a few payloads at a time
		events, _, err := s.fetchWithin(ctx, event.PartitionID(filters.PartitionID), "", candidates, true, matchBytes)
		if err != nil {
			return nil, err
		}
		if len(events) == 0 {
			break
		}
		within := *filters
		within.Sequences = nil
		for _, e := range events {
			within.Sequences, within.ArchivedSequences = append(within.Sequences, int64(e.Sequence)), append(within.ArchivedSequences, int64(e.Sequence))
			within.ArchivedPayloads = append(within.ArchivedPayloads, string(e.Payload))
		}
		some, err := s.queries.MatchEvents(ctx, s.db.Reads, &within)
		if err != nil {
			return nil, err
		}
		passed, candidates = append(passed, some...), candidates[len(events):]
	}
	return passed, nil
}

// matchBytes bounds the archived payloads that one statement gets.
const matchBytes = 8 << 20

// candidates reads a page of the leading index.
func (s *Reader) candidates(ctx context.Context, q *ports.EventQuery, b span, size int32) ([]int64, error) {
	partition, back := int32(q.Partition), q.Direction == ports.Backward
	switch leaderOf(q) {
	case byKey:
		p := &eventlogdb.SearchKeyParams{PartitionID: partition, Key: q.Key, After: b.after, Until: b.until, PageSize: size}
		if back {
			return s.queries.SearchKeyBackward(ctx, s.db.Reads, (*eventlogdb.SearchKeyBackwardParams)(p))
		}
		return s.queries.SearchKey(ctx, s.db.Reads, p)
	case byCorrelation:
		p := &eventlogdb.SearchCorrelationParams{PartitionID: partition, Correlation: q.CorrelationID, After: b.after, Until: b.until, PageSize: size}
		if back {
			return s.queries.SearchCorrelationBackward(ctx, s.db.Reads, (*eventlogdb.SearchCorrelationBackwardParams)(p))
		}
		return s.queries.SearchCorrelation(ctx, s.db.Reads, p)
	case byActor:
		p := &eventlogdb.SearchActorParams{PartitionID: partition, Actor: q.ActorID, After: b.after, Until: b.until, PageSize: size}
		if back {
			return s.queries.SearchActorBackward(ctx, s.db.Reads, (*eventlogdb.SearchActorBackwardParams)(p))
		}
		return s.queries.SearchActor(ctx, s.db.Reads, p)
	case byTypes:
		p := &eventlogdb.SearchTypesParams{Types: distinct(q.Types), PartitionID: partition, After: b.after, Until: b.until, PageSize: size}
		if back {
			return s.queries.SearchTypesBackward(ctx, s.db.Reads, (*eventlogdb.SearchTypesBackwardParams)(p))
		}
		return s.queries.SearchTypes(ctx, s.db.Reads, p)
	default:
		p := &eventlogdb.SearchLogParams{PartitionID: partition, After: b.after, Until: b.until, PageSize: size}
		if back {
			return s.queries.SearchLogBackward(ctx, s.db.Reads, (*eventlogdb.SearchLogBackwardParams)(p))
		}
		return s.queries.SearchLog(ctx, s.db.Reads, p)
	}
}

// filterParams converts the query's filters to parameters of MatchEvents.
func filterParams(q *ports.EventQuery) (*eventlogdb.MatchEventsParams, error) {
	p := &eventlogdb.MatchEventsParams{
		PartitionID: int32(q.Partition), Types: q.Types, SchemaVersion: pgtype.Int4{Int32: int32(q.SchemaVersion), Valid: q.SchemaVersion != 0},
		CorrelationID: pg.OptionalText(q.CorrelationID), ActorID: pg.OptionalText(q.ActorID),
		OccurredFrom: pg.OptionalTime(q.OccurredFrom), OccurredTo: pg.OptionalTime(q.OccurredTo),
		EffectiveFrom: pg.OptionalDate(q.EffectiveFrom), EffectiveTo: pg.OptionalDate(q.EffectiveTo),
		Division: pg.OptionalText(q.Division), Region: pg.OptionalText(q.Region), Site: pg.OptionalText(q.Site),
		SourceSystem: pg.OptionalText(q.Source.System), SourceChannel: pg.OptionalText(q.Source.Channel), SourceReference: pg.OptionalText(q.Source.Reference),
		Dimension: pg.OptionalText(q.Dimension.Name), DimensionValue: pgtype.Text{String: q.Dimension.Value, Valid: q.Dimension.Name != ""},
		JsonVars: []byte("{}"), ArchivedSequences: []int64{}, ArchivedPayloads: []string{},
	}
	if p.Types == nil {
		p.Types = []string{}
	}
	if q.Predicate == nil {
		return p, nil
	}
	path := jsonPath(q.Predicate.Path)
	p.JsonPath = pg.OptionalText(path)
	var err error
	switch op := q.Predicate.Operator; op {
	case event.Exists:
	case event.Contains:
		p.JsonPath.String, p.Part = path+` ? (@.type() == "string")`, pg.OptionalText(q.Predicate.Text())
	case event.NotEqual:
		p.EqualPath = pg.OptionalText(path + " ? (@ == $value)")
		p.JsonVars, err = json.Marshal(map[string]json.RawMessage{"value": q.Predicate.Value})
	default:
		p.JsonPath.String = path + " ? (@ " + comparisons[op] + " $value)"
		p.JsonVars, err = json.Marshal(map[string]json.RawMessage{"value": q.Predicate.Value})
	}
	return p, err
}

var comparisons = map[event.Operator]string{
	event.Equal: "==", event.Greater: ">", event.GreaterOrEqual: ">=", event.Less: "<", event.LessOrEqual: "<=",
}

// jsonPath renders a predicate's path as SQL/JSON path. Its names consist of letters, digits,
// _ and - only, so nothing is escaped.
func jsonPath(steps []string) string {
	var b strings.Builder
	b.WriteString("$.data")
	for _, step := range steps {
		if step == event.EachElement {
			b.WriteString(step)
			continue
		}
		b.WriteString(`."` + step + `"`)
	}
	return b.String()
}
