// Package eventlog reads the log. Reader answers queries for events, streams, causes and
// heads; Audit reads the rows that verification compares; PersonalRecords finds the events and
// intents that hold values of a person; Redactor replaces payloads. Only package appender
// writes events.
//
// Reader returns events as they are stored, in their own schema version, and also events of
// deleted and tombstoned streams: application/upcasting converts to the newest version, and
// application/query leaves out what the deletion of a stream hides. It takes no lock that an
// append waits for: a head may have grown when the caller gets it.
//
// Most pages are bounded in bytes as well as in events (pages.go, fetch.go), so that a reader of
// large events holds a page of them in memory, not all. Only the bytes of payloads count. A page
// ends before the event that exceeds them, but never before the first, so that a reader makes
// progress whatever the size of an event; 0 is no bound.
//
// No code changes the skeleton of an event. The sessions of Reader and of the append engine may
// not change payloads either: Redactor connects as another role, and PostgreSQL replaces a payload
// only for a request that a second person has approved.
package eventlog

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/eventlogdb"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// Reader reads the log: events by id, by stream, by cause and by search, and the heads of
// its partitions.
type Reader struct {
	db        *pg.Database
	queries   *eventlogdb.Queries
	scattered *scattered // for statements whose rows lie far apart in their table
	// large is the set of partitions (event.PartitionID, without values) whose events are so large
	// that their bytes cut a page. Their next pages are measured or read in small parts.
	large sync.Map
}

var (
	_ ports.EventReader     = (*Reader)(nil)
	_ ports.EventSearcher   = (*Reader)(nil)
	_ ports.StreamReader    = (*Reader)(nil)
	_ ports.CausalityReader = (*Reader)(nil)
	_ ports.MatchReader     = (*Reader)(nil)
	_ ports.WakeUps         = (*Reader)(nil)
)

// NewReader makes the reader of the log over db.
func NewReader(db *pg.Database) *Reader {
	queries := eventlogdb.New()
	return &Reader{db: db, queries: queries, scattered: &scattered{pool: db.Reads, queries: queries}}
}

func eventNotFound(id event.ID) error {
	return fault.New(fault.NotFound, "event.not_found", "there is no event %s in this legal entity; check the id and the legal entity", id)
}

// payloadRow is a row of the log with the columns of its payload, which are nil if the payload
// was not read.
type payloadRow struct {
	event      *eventlogdb.BackboneEvent
	salt       []byte
	redactions []byte // JSON
	payload    []byte
}

// decode converts a row to an event in r.
func (row payloadRow) decode(r *event.Recorded) error {
	e := row.event
	for i := range EnvelopeColumns {
		EnvelopeColumns[i].read(&r.Skeleton, e)
	}
	r.Payload = row.payload
	// copy would cut longer values off silently.
	if len(e.PayloadHash) > len(r.PayloadHash) || len(e.Checksum) > len(r.Checksum) || copy(r.Salt[:], row.salt) != len(row.salt) {
		return UndecodableFault(r.ID)
	}
	if len(e.Pii) > 0 {
		if err := json.Unmarshal(e.Pii, &r.PII); err != nil {
			return UndecodableFault(r.ID) // the cause might quote the text
		}
	}
	var err error
	if r.Redactions, err = DecodeRedactions(row.redactions); err != nil {
		return UndecodableFault(r.ID)
	}
	return nil
}

// DecodeRedactions reads the mark that a redaction leaves beside the payload; nil for none.
func DecodeRedactions(stored []byte) ([]event.Redaction, error) {
	if len(stored) == 0 {
		return nil, nil
	}
	var rows []struct {
		Request  pgtype.UUID `json:"request"`
		Pointers []string    `json:"pointers"`
		At       time.Time   `json:"at"`
	}
	if err := json.Unmarshal(stored, &rows); err != nil {
		return nil, err
	}
	out := make([]event.Redaction, len(rows))
	for i, r := range rows {
		out[i] = event.Redaction{RequestID: r.Request.Bytes, Pointers: r.Pointers, At: r.At.UTC()}
	}
	return out, nil
}

// UndecodableFault is the fault of an event whose row cannot be read.
func UndecodableFault(id event.ID) error {
	return fault.New(fault.Internal, pg.CodeInternal, "event %s cannot be decoded; verify the log", id)
}

// decodeRows converts the rows of a query that returned err; row returns the columns of one
// row.
func decodeRows[R any](ctx context.Context, rows []R, err error, row func(*R) payloadRow) ([]event.Recorded, error) {
	if err != nil {
		return nil, pg.Translate(ctx, err)
	}
	out := make([]event.Recorded, len(rows))
	for i := range rows {
		if err := row(&rows[i]).decode(&out[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// EventByID implements ports.EventReader.
func (s *Reader) EventByID(ctx context.Context, p event.PartitionID, id event.ID) (event.Recorded, error) {
	row, err := s.queries.GetEventByID(ctx, s.db.Reads, &eventlogdb.GetEventByIDParams{PartitionID: int32(p), ID: pg.UUID(id)})
	if errors.Is(err, pgx.ErrNoRows) {
		return event.Recorded{}, eventNotFound(id)
	}
	if err != nil {
		return event.Recorded{}, pg.Translate(ctx, err)
	}
	var r event.Recorded
	if err = (payloadRow{&row.BackboneEvent, row.Salt, row.Redactions, row.Payload}).decode(&r); err != nil {
		return event.Recorded{}, err
	}
	filled, _, err := s.FillArchived(ctx, s.db.Reads, []event.Recorded{r}, 0, Every)
	if err != nil {
		return event.Recorded{}, err
	}
	return filled[0], nil
}

// TypesOf implements ports.EventReader.
func (s *Reader) TypesOf(ctx context.Context, events []ports.Cause) (map[ports.Cause]string, error) {
	out := make(map[ports.Cause]string, len(events))
	if len(events) == 0 {
		return out, nil
	}
	p := &eventlogdb.ListEventTypesParams{PartitionIds: make([]int32, len(events)), Ids: make([]pgtype.UUID, len(events))}
	for i, e := range events {
		p.PartitionIds[i], p.Ids[i] = int32(e.Partition), pg.UUID(e.ID)
	}
	rows, err := s.queries.ListEventTypes(ctx, s.db.Reads, p)
	if err != nil {
		return nil, pg.Translate(ctx, err)
	}
	for _, r := range rows {
		out[ports.Cause{Partition: event.PartitionID(r.PartitionID), ID: r.ID.Bytes}] = r.Type
	}
	return out, nil
}

// EventsOfStream implements ports.EventReader. A limit of 0 reads to the end.
func (s *Reader) EventsOfStream(ctx context.Context, p event.PartitionID, stream event.StreamID, from event.Version, limit int) ([]event.Recorded, error) {
	events, err := s.eventsOfStream(ctx, s.db.Reads, p, stream, from, limit)
	if err != nil {
		return nil, err
	}
	events, _, err = s.FillArchived(ctx, s.db.Reads, events, 0, Every)
	return events, err
}

func (s *Reader) eventsOfStream(ctx context.Context, db eventlogdb.DBTX, p event.PartitionID, stream event.StreamID, from event.Version, limit int) ([]event.Recorded, error) {
	rows, err := s.queries.ListEventsOfStream(ctx, db, &eventlogdb.ListEventsOfStreamParams{
		PartitionID: int32(p), StreamType: stream.Type, StreamID: stream.ID, FromVersion: int64(min(from, math.MaxInt64)), PageSize: pg.PageSize(limit),
	})
	return decodeRows(ctx, rows, err, func(r *eventlogdb.ListEventsOfStreamRow) payloadRow {
		return payloadRow{&r.BackboneEvent, r.Salt, r.Redactions, r.Payload}
	})
}

// EventsAfter reads events in the order of the log. Only events of the given types have
// payloads; with no types, all have.
func (s *Reader) EventsAfter(ctx context.Context, db eventlogdb.DBTX, p event.PartitionID, after event.Sequence, limit int, types []string) ([]event.Recorded, error) {
	events, err := s.eventsAfter(ctx, db, p, after, limit, types)
	if err != nil {
		return nil, err
	}
	events, _, err = s.FillArchived(ctx, db, events, 0, ofTypes(types))
	return events, err
}

// eventsAfter is EventsAfter without payloads of the archive.
func (s *Reader) eventsAfter(ctx context.Context, db eventlogdb.DBTX, p event.PartitionID, after event.Sequence, limit int, types []string) ([]event.Recorded, error) {
	if types == nil {
		types = []string{}
	}
	rows, err := s.queries.ListEventsAfter(ctx, db, &eventlogdb.ListEventsAfterParams{
		PartitionID: int32(p), After: int64(after), PageSize: pg.PageSize(limit), Types: types,
	})
	return decodeRows(ctx, rows, err, func(r *eventlogdb.ListEventsAfterRow) payloadRow {
		return payloadRow{&r.BackboneEvent, r.Salt, r.Redactions, r.Payload}
	})
}

// Head implements ports.EventReader.
func (s *Reader) Head(ctx context.Context, p event.PartitionID) (ports.Head, error) {
	row, err := s.queries.GetPartitionHead(ctx, s.db.Reads, int32(p))
	if errors.Is(err, pgx.ErrNoRows) {
		return ports.Head{}, pg.UnknownLegalEntity()
	}
	if err != nil {
		return ports.Head{}, pg.Translate(ctx, err)
	}
	return HeadOf(row.Genesis, row.Sequence, row.RecordedAt, row.Checksum), nil
}

// Heads implements ports.EventReader.
func (s *Reader) Heads(ctx context.Context, partitions []event.PartitionID) (map[event.PartitionID]ports.Head, error) {
	rows, err := s.queries.ListHeads(ctx, s.db.Reads, pg.Partitions(partitions))
	if err != nil {
		return nil, pg.Translate(ctx, err)
	}
	return headsOf(pg.Map(rows, func(r *eventlogdb.ListHeadsRow) eventlogdb.ListPartitionHeadsRow {
		return eventlogdb.ListPartitionHeadsRow{PartitionID: r.PartitionID, Genesis: r.Genesis, Sequence: r.Sequence, RecordedAt: r.RecordedAt, Checksum: r.Checksum}
	})), nil
}

// HeadOf builds a head from its columns. A partition without events (sequence 0) has its
// genesis as checksum.
func HeadOf(genesis []byte, sequence int64, recordedAt time.Time, checksum []byte) ports.Head {
	var h ports.Head
	copy(h.Genesis[:], genesis)
	h.Checksum = h.Genesis
	if sequence > 0 {
		h.Sequence, h.RecordedAt = event.Sequence(sequence), recordedAt.UTC()
		copy(h.Checksum[:], checksum)
	}
	return h
}

// SequenceAt implements ports.EventReader. An unknown partition has no events, so it gives 0.
func (s *Reader) SequenceAt(ctx context.Context, p event.PartitionID, t time.Time) (event.Sequence, error) {
	head, err := s.Head(ctx, p)
	if fault.CodeOf(err) == "legal_entity.not_found" {
		return 0, nil
	}
	if err != nil || head.Sequence == 0 {
		return 0, err
	}
	n, err := s.queries.GetSequenceAt(ctx, s.db.Reads, &eventlogdb.GetSequenceAtParams{Head: int64(head.Sequence), At: t, PartitionID: int32(p)})
	if err != nil {
		return 0, pg.Translate(ctx, err)
	}
	return event.Sequence(n), nil
}

// Lineage implements ports.CausalityReader. maxDepth counts causes; the event itself is always
// returned.
func (s *Reader) Lineage(ctx context.Context, p event.PartitionID, id event.ID, maxDepth, bytes int) (chain []event.Recorded, truncated bool, err error) {
	maxDepth = min(max(maxDepth, 0), math.MaxInt32-2)
	rows, err := s.queries.ListLineage(ctx, s.db.Reads, &eventlogdb.ListLineageParams{
		PartitionID: int32(p), ID: pg.UUID(id), MaxDepth: int32(maxDepth + 2), // the event itself, and one cause more, which shows whether the chain is truncated
	})
	if err != nil {
		return nil, false, pg.Translate(ctx, err)
	}
	if len(rows) == 0 {
		return nil, false, eventNotFound(id)
	}
	if len(rows) > maxDepth+1 {
		rows, truncated = rows[:maxDepth+1], true
	}
	sequences := pg.Map(rows, func(r *eventlogdb.ListLineageRow) int64 { return r.Sequence })
	chain, cut, err := s.fetchWithin(ctx, p, "", sequences, true, bytes)
	slices.Reverse(chain)
	return chain, truncated || cut, err
}

// PartitionHeads implements ports.HeadReader.
func (s *Reader) PartitionHeads(ctx context.Context) (map[event.PartitionID]ports.Head, error) {
	rows, err := s.queries.ListPartitionHeads(ctx, s.db.Reads)
	if err != nil {
		return nil, pg.Translate(ctx, err)
	}
	return headsOf(rows), nil
}

func headsOf(rows []eventlogdb.ListPartitionHeadsRow) map[event.PartitionID]ports.Head {
	out := make(map[event.PartitionID]ports.Head, len(rows))
	for i := range rows {
		r := &rows[i]
		head := HeadOf(r.Genesis, r.Sequence, r.RecordedAt, r.Checksum)
		head.Administrative = r.Administrative
		out[event.PartitionID(r.PartitionID)] = head
	}
	return out
}

// RecordedAt implements ports.LogPositions.
func (s *Reader) RecordedAt(ctx context.Context, positions []ports.EventPosition) (map[ports.EventPosition]time.Time, error) {
	out := make(map[ports.EventPosition]time.Time, len(positions))
	if len(positions) == 0 {
		return out, nil
	}
	partitions, sequences := make([]int32, len(positions)), make([]int64, len(positions))
	for i, p := range positions {
		partitions[i], sequences[i] = int32(p.Partition), int64(p.Sequence)
	}
	rows, err := s.queries.ListRecordingTimes(ctx, s.db.Reads, &eventlogdb.ListRecordingTimesParams{PartitionIds: partitions, Sequences: sequences})
	if err != nil {
		return nil, pg.Translate(ctx, err)
	}
	for _, r := range rows {
		out[ports.EventPosition{Partition: event.PartitionID(r.PartitionID), Sequence: event.Sequence(r.Sequence)}] = r.RecordedAt.UTC()
	}
	return out, nil
}
