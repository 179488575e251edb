package postgres

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

	"github.com/erpbackbone/backbone/adapters/postgres/internal/backbonedb"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// Reader reads the log: events by id, by stream, by cause and by search, and the heads of
// its partitions.
type Reader struct {
	db        *Database
	queries   *backbonedb.Queries
	scattered *scattered
	// large are partitions whose events are so large that a page had to be cut.
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

func newReader(db *Database) *Reader {
	queries := backbonedb.New()
	return &Reader{db: db, queries: queries, scattered: &scattered{pool: db.reads, queries: queries}}
}

func eventNotFound(id event.ID) error {
	return fault.New(fault.NotFound, "event.not_found", "there is no event %s in this legal entity; check the id and the legal entity", id)
}

func uuid(id event.ID) pgtype.UUID { return pgtype.UUID{Bytes: id, Valid: true} }

// pageSize turns a limit of 0, which reads to the end, into a number for LIMIT.
func pageSize(limit int) int32 {
	if limit <= 0 || limit > math.MaxInt32 {
		return math.MaxInt32
	}
	return int32(limit)
}

// recorded puts a row together. Absent text is "", absent JSON nil.
func recorded(e *backbonedb.BackboneEvent, salt, payload []byte) (event.Recorded, error) {
	r := event.Recorded{
		Skeleton: event.Skeleton{
			Partition: event.PartitionID(e.PartitionID), Sequence: event.Sequence(e.Sequence), ID: e.ID.Bytes,
			Type: e.Type, SchemaVersion: uint32(e.SchemaVersion),
			OccurredAt: e.OccurredAt.UTC(), RecordedAt: e.RecordedAt.UTC(), EffectiveDate: event.DateOf(e.EffectiveDate.Time),
			Scope: event.Scope{
				TenantID: e.TenantID, LegalEntity: e.LegalEntity,
				Division: e.Division.String, Region: e.Region.String, Site: e.Site.String, Custom: e.CustomScopes,
			},
			ActorType: event.ActorType(e.ActorType), ActorID: e.ActorID, ActorName: e.ActorName.String, ActorDetails: e.ActorDetails,
			CausedBy: e.CausedBy.Bytes, CausedByPartition: event.PartitionID(e.CausedByPartition.Int32), IntentID: e.IntentID.Bytes,
			CorrelationID: e.CorrelationID, Stream: event.StreamID{Type: e.StreamType, ID: e.StreamID}, StreamVersion: event.Version(e.StreamVersion),
			Tags:           e.Tags,
			Source:         event.Source{System: e.SourceSystem.String, Channel: e.SourceChannel.String, Reference: e.SourceReference.String},
			RulesEvaluated: e.RulesEvaluated, ContentEncoding: e.ContentEncoding.String,
		},
		Payload: payload,
	}
	// A byte more would be cut off here and never be noticed.
	if copy(r.PayloadHash[:], e.PayloadHash) != len(e.PayloadHash) || copy(r.Checksum[:], e.Checksum) != len(e.Checksum) || copy(r.Salt[:], salt) != len(salt) {
		return r, undecodable(r.ID)
	}
	if len(e.Pii) > 0 {
		if err := json.Unmarshal(e.Pii, &r.PII); err != nil {
			return r, undecodable(r.ID) // the cause might quote the text
		}
	}
	return r, nil
}

func undecodable(id event.ID) error {
	return fault.New(fault.Internal, codeInternal, "event %s cannot be decoded; verify the log", id)
}

func recordedAll[R any](rows []R, row func(*R) (*backbonedb.BackboneEvent, []byte, []byte)) ([]event.Recorded, error) {
	out := make([]event.Recorded, len(rows))
	for i := range rows {
		e, salt, payload := row(&rows[i])
		r, err := recorded(e, salt, payload)
		if err != nil {
			return nil, err
		}
		out[i] = r
	}
	return out, nil
}

// EventByID implements ports.EventReader.
func (s *Reader) EventByID(ctx context.Context, p event.PartitionID, id event.ID) (event.Recorded, error) {
	row, err := s.queries.GetEventByID(ctx, s.db.reads, &backbonedb.GetEventByIDParams{PartitionID: int32(p), ID: uuid(id)})
	if errors.Is(err, pgx.ErrNoRows) {
		return event.Recorded{}, eventNotFound(id)
	}
	if err != nil {
		return event.Recorded{}, translate(ctx, err)
	}
	return recorded(&row.BackboneEvent, row.Salt, row.Payload)
}

// EventsOfStream implements ports.EventReader. A limit of 0 reads to the end.
func (s *Reader) EventsOfStream(ctx context.Context, p event.PartitionID, stream event.StreamID, from event.Version, limit int) ([]event.Recorded, error) {
	return s.eventsOfStream(ctx, s.db.reads, p, stream, from, limit)
}

func (s *Reader) eventsOfStream(ctx context.Context, db backbonedb.DBTX, p event.PartitionID, stream event.StreamID, from event.Version, limit int) ([]event.Recorded, error) {
	rows, err := s.queries.ListEventsOfStream(ctx, db, &backbonedb.ListEventsOfStreamParams{
		PartitionID: int32(p), StreamType: stream.Type, StreamID: stream.ID, FromVersion: int64(min(from, math.MaxInt64)), PageSize: pageSize(limit),
	})
	if err != nil {
		return nil, translate(ctx, err)
	}
	return recordedAll(rows, func(r *backbonedb.ListEventsOfStreamRow) (*backbonedb.BackboneEvent, []byte, []byte) {
		return &r.BackboneEvent, r.Salt, r.Payload
	})
}

// eventsAfter reads the log itself. Payloads come with the given types only, with
// all when none is named.
func (s *Reader) eventsAfter(ctx context.Context, db backbonedb.DBTX, p event.PartitionID, after event.Sequence, limit int, types []string) ([]event.Recorded, error) {
	if types == nil {
		types = []string{}
	}
	rows, err := s.queries.ListEventsAfter(ctx, db, &backbonedb.ListEventsAfterParams{
		PartitionID: int32(p), After: int64(after), PageSize: pageSize(limit), Types: types,
	})
	if err != nil {
		return nil, translate(ctx, err)
	}
	return recordedAll(rows, func(r *backbonedb.ListEventsAfterRow) (*backbonedb.BackboneEvent, []byte, []byte) {
		return &r.BackboneEvent, r.Salt, r.Payload
	})
}

// ChainPage implements ports.ChainReader. A limit of 0 reads to the end.
func (s *Audit) ChainPage(ctx context.Context, p event.PartitionID, after event.Sequence, limit int) ([]event.Recorded, error) {
	return s.events.eventsAfter(ctx, s.db.reads, p, after, limit, nil)
}

// Head implements ports.EventReader.
func (s *Reader) Head(ctx context.Context, p event.PartitionID) (ports.Head, error) {
	row, err := s.queries.GetPartitionHead(ctx, s.db.reads, int32(p))
	if errors.Is(err, pgx.ErrNoRows) {
		return ports.Head{}, unknownLegalEntity()
	}
	if err != nil {
		return ports.Head{}, translate(ctx, err)
	}
	return headOf(row.Genesis, row.Sequence, row.RecordedAt, row.Checksum), nil
}

// Heads implements ports.EventReader.
func (s *Reader) Heads(ctx context.Context, partitions []event.PartitionID) (map[event.PartitionID]ports.Head, error) {
	ids := make([]int32, len(partitions))
	for i, p := range partitions {
		ids[i] = int32(p)
	}
	rows, err := s.queries.ListHeads(ctx, s.db.reads, ids)
	if err != nil {
		return nil, translate(ctx, err)
	}
	out := make(map[event.PartitionID]ports.Head, len(rows))
	for i := range rows {
		r := &rows[i]
		out[event.PartitionID(r.PartitionID)] = headOf(r.Genesis, r.Sequence, r.RecordedAt, r.Checksum)
	}
	return out, nil
}

func headOf(genesis []byte, sequence int64, recordedAt time.Time, checksum []byte) ports.Head {
	var h ports.Head
	copy(h.Genesis[:], genesis)
	h.Checksum = h.Genesis
	if sequence > 0 {
		h.Sequence, h.RecordedAt = event.Sequence(sequence), recordedAt.UTC()
		copy(h.Checksum[:], checksum)
	}
	return h
}

// PartitionHeads implements ports.Projections.
func (s *ProjectionCheckpoints) PartitionHeads(ctx context.Context) (map[event.PartitionID]ports.Head, error) {
	rows, err := s.queries.ListPartitionHeads(ctx, s.db.reads)
	if err != nil {
		return nil, translate(ctx, err)
	}
	out := make(map[event.PartitionID]ports.Head, len(rows))
	for i := range rows {
		r := &rows[i]
		out[event.PartitionID(r.PartitionID)] = headOf(r.Genesis, r.Sequence, r.RecordedAt, r.Checksum)
	}
	return out, nil
}

// RecordedAt implements ports.Projections.
func (s *ProjectionCheckpoints) RecordedAt(ctx context.Context, places []ports.EventPlace) (map[ports.EventPlace]time.Time, error) {
	out := make(map[ports.EventPlace]time.Time, len(places))
	if len(places) == 0 {
		return out, nil
	}
	partitions, sequences := make([]int32, len(places)), make([]int64, len(places))
	for i, p := range places {
		partitions[i], sequences[i] = int32(p.Partition), int64(p.Sequence)
	}
	rows, err := s.queries.ListRecordingTimes(ctx, s.db.reads, &backbonedb.ListRecordingTimesParams{PartitionIds: partitions, Sequences: sequences})
	if err != nil {
		return nil, translate(ctx, err)
	}
	for _, r := range rows {
		out[ports.EventPlace{Partition: event.PartitionID(r.PartitionID), Sequence: event.Sequence(r.Sequence)}] = r.RecordedAt.UTC()
	}
	return out, nil
}

// SequenceAt implements ports.EventReader.
func (s *Reader) SequenceAt(ctx context.Context, p event.PartitionID, t time.Time) (event.Sequence, error) {
	head, err := s.Head(ctx, p)
	if fault.CodeOf(err) == "legal_entity.not_found" {
		return 0, nil
	}
	if err != nil || head.Sequence == 0 {
		return 0, err
	}
	n, err := s.queries.GetSequenceAt(ctx, s.db.reads, &backbonedb.GetSequenceAtParams{Head: int64(head.Sequence), At: t, PartitionID: int32(p)})
	if err != nil {
		return 0, translate(ctx, err)
	}
	return event.Sequence(n), nil
}

// Lineage implements ports.CausalityReader. maxDepth counts the causes that are
// followed; the event itself is always there.
func (s *Reader) Lineage(ctx context.Context, p event.PartitionID, id event.ID, maxDepth, bytes int) (chain []event.Recorded, truncated bool, err error) {
	maxDepth = min(max(maxDepth, 0), math.MaxInt32-2)
	rows, err := s.queries.ListLineage(ctx, s.db.reads, &backbonedb.ListLineageParams{
		PartitionID: int32(p), ID: uuid(id), MaxDepth: int32(maxDepth + 2), // one more, to see whether there is one
	})
	if err != nil {
		return nil, false, translate(ctx, err)
	}
	if len(rows) == 0 {
		return nil, false, eventNotFound(id)
	}
	if len(rows) > maxDepth+1 {
		rows, truncated = rows[:maxDepth+1], true
	}
	sequences := make([]int64, len(rows))
	for i, r := range rows {
		sequences[i] = r.Sequence
	}
	chain, cut, err := s.fetchWithin(ctx, p, "", sequences, true, bytes)
	slices.Reverse(chain)
	return chain, truncated || cut, err
}
