// Package intents reads stored intents and the outcomes of idempotency keys, and deletes
// expired keys. application/pipeline reads through its Store. It inserts and updates neither:
// the append engine (eventlog/appender) does, in the transaction of the events.
package intents

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/erpbackbone/backbone/adapters/postgres/directory"
	"github.com/erpbackbone/backbone/adapters/postgres/eventlog"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/intentsdb"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/ports"
)

// Store implements ports.IntentReader, ports.IntentAudit and ports.IdempotencyReader. It sees what is committed;
// the append engine checks revisions and keys again under its lock.
type Store struct {
	db        *pg.Database
	queries   *intentsdb.Queries
	directory *directory.Store
	events    *eventlog.Reader
}

var (
	_ ports.IntentReader      = (*Store)(nil)
	_ ports.IdempotencyReader = (*Store)(nil)
	_ ports.IntentAudit       = (*Store)(nil)
)

// New makes a Store over db.
func New(db *pg.Database, directory *directory.Store, events *eventlog.Reader) *Store {
	return &Store{db: db, queries: intentsdb.New(), directory: directory, events: events}
}

// IdempotencyOutcome implements ports.IdempotencyReader.
func (s *Store) IdempotencyOutcome(ctx context.Context, p event.PartitionID, key string, now time.Time) (ports.IdempotencyOutcome, bool, error) {
	row, err := s.queries.GetIdempotencyKey(ctx, s.db.Reads, &intentsdb.GetIdempotencyKeyParams{PartitionID: int32(p), Key: key, Now: now})
	if errors.Is(err, pgx.ErrNoRows) {
		return ports.IdempotencyOutcome{}, false, nil
	}
	if err != nil {
		return ports.IdempotencyOutcome{}, false, pg.Translate(ctx, err)
	}
	o := ports.IdempotencyOutcome{IntentID: row.IntentID.Bytes, FirstSequence: event.Sequence(row.FirstSequence), EventCount: int(row.EventCount)}
	copy(o.StoredHash[:], row.Fingerprint)
	return o, true, nil
}

// DeleteExpiredIdempotencyKeys makes room; an expired key is free already. It
// goes partition by partition and returns how many rows it deleted, also on an error.
func (s *Store) DeleteExpiredIdempotencyKeys(ctx context.Context, now time.Time) (int64, error) {
	partitions, err := s.directory.Partitions(ctx, "")
	if err != nil {
		return 0, err
	}
	var deleted int64
	for _, le := range partitions {
		n, err := s.queries.DeleteExpiredIdempotencyKeys(ctx, s.db.Reads, &intentsdb.DeleteExpiredIdempotencyKeysParams{PartitionID: int32(le.Partition), Now: now})
		if err != nil {
			return deleted, pg.Translate(ctx, err)
		}
		deleted += n
	}
	return deleted, nil
}

// Intent implements ports.IntentReader.
func (s *Store) Intent(ctx context.Context, p event.PartitionID, id event.ID) (intent.Intent, error) {
	row, err := s.queries.GetIntent(ctx, s.db.Reads, &intentsdb.GetIntentParams{PartitionID: int32(p), ID: pg.UUID(id)})
	if errors.Is(err, pgx.ErrNoRows) {
		return intent.Intent{}, intent.NotFound(id)
	}
	if err != nil {
		return intent.Intent{}, pg.Translate(ctx, err)
	}
	return storedIntent(&row.BackboneIntent)
}

// HasRedactions implements ports.IntentReader.
func (s *Store) HasRedactions(ctx context.Context, in *intent.Intent) (bool, error) {
	first := int64(in.FirstSequence)
	found, err := s.queries.HasRedactions(ctx, s.db.Reads, &intentsdb.HasRedactionsParams{
		PartitionID: int32(in.Partition), FirstSequence: first, LastSequence: first + int64(in.EventCount) - 1,
	})
	return found, pg.Translate(ctx, err)
}

// WaitingIntents implements ports.IntentReader.
func (s *Store) WaitingIntents(ctx context.Context, p event.PartitionID, limit int) ([]intent.Intent, error) {
	rows, err := s.queries.ListWaitingIntents(ctx, s.db.Reads, &intentsdb.ListWaitingIntentsParams{PartitionID: int32(p), PageSize: pg.PageSize(limit)})
	return storedIntents(ctx, rows, err, func(r intentsdb.ListWaitingIntentsRow) intentsdb.BackboneIntent { return r.BackboneIntent })
}

// ListIntents implements ports.IntentReader.
func (s *Store) ListIntents(ctx context.Context, q ports.IntentQuery) ([]intent.Intent, error) {
	p, before := int32(q.Partition), pg.UUID(q.Before)
	if q.Before == (event.ID{}) {
		before.Bytes = maxID
	}
	after, page := pg.UUID(q.After), pg.PageSize(q.Limit)
	switch backward := q.Direction == ports.Backward; {
	case q.Status == "" && backward:
		rows, err := s.queries.ListIntentsBackward(ctx, s.db.Reads, &intentsdb.ListIntentsBackwardParams{PartitionID: p, AfterID: after, BeforeID: before, PageSize: page})
		return listed(ctx, rows, err, func(r intentsdb.ListIntentsBackwardRow) intentsdb.BackboneIntent { return intentsdb.BackboneIntent(r) })
	case q.Status == "":
		rows, err := s.queries.ListIntents(ctx, s.db.Reads, &intentsdb.ListIntentsParams{PartitionID: p, AfterID: after, BeforeID: before, PageSize: page})
		return listed(ctx, rows, err, func(r intentsdb.ListIntentsRow) intentsdb.BackboneIntent { return intentsdb.BackboneIntent(r) })
	case backward:
		rows, err := s.queries.ListIntentsOfStatusBackward(ctx, s.db.Reads, &intentsdb.ListIntentsOfStatusBackwardParams{PartitionID: p, Status: string(q.Status), AfterID: after, BeforeID: before, PageSize: page})
		return listed(ctx, rows, err, func(r intentsdb.ListIntentsOfStatusBackwardRow) intentsdb.BackboneIntent {
			return intentsdb.BackboneIntent(r)
		})
	default:
		rows, err := s.queries.ListIntentsOfStatus(ctx, s.db.Reads, &intentsdb.ListIntentsOfStatusParams{PartitionID: p, Status: string(q.Status), AfterID: after, BeforeID: before, PageSize: page})
		return listed(ctx, rows, err, func(r intentsdb.ListIntentsOfStatusRow) intentsdb.BackboneIntent { return intentsdb.BackboneIntent(r) })
	}
}

// maxID is after every id that is in use.
var maxID = event.ID{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// listed converts rows that were read without payloads and rule traces.
func listed[R any](ctx context.Context, rows []R, err error, rowOf func(R) intentsdb.BackboneIntent) ([]intent.Intent, error) {
	out, err := storedIntents(ctx, rows, err, rowOf)
	for i := range out {
		out[i].Payload, out[i].Rules = nil, nil
	}
	return out, err
}

func storedIntents[R any](ctx context.Context, rows []R, err error, rowOf func(R) intentsdb.BackboneIntent) ([]intent.Intent, error) {
	if err != nil {
		return nil, pg.Translate(ctx, err)
	}
	out := make([]intent.Intent, len(rows))
	for i := range rows {
		row := rowOf(rows[i])
		if out[i], err = storedIntent(&row); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// IntentSequences implements ports.IntentAudit.
func (s *Store) IntentSequences(ctx context.Context, p event.PartitionID, ids []event.ID) (map[event.ID]event.Sequence, error) {
	rows, err := s.queries.ListIntentSequences(ctx, s.db.Reads, &intentsdb.ListIntentSequencesParams{PartitionID: int32(p), Ids: pg.UUIDs(ids)})
	if err != nil {
		return nil, pg.Translate(ctx, err)
	}
	out := make(map[event.ID]event.Sequence, len(rows))
	for _, r := range rows {
		out[r.ID.Bytes] = event.Sequence(r.LastSequence)
	}
	return out, nil
}

// BoundIntents implements ports.IntentAudit.
func (s *Store) BoundIntents(ctx context.Context, p event.PartitionID, after event.ID, limit int) ([]ports.BoundIntent, error) {
	rows, err := s.queries.ListBoundIntents(ctx, s.db.Reads, &intentsdb.ListBoundIntentsParams{
		PartitionID: int32(p), AfterID: pg.UUID(after), PageSize: pg.PageSize(limit),
	})
	if err != nil {
		return nil, pg.Translate(ctx, err)
	}
	out := make([]ports.BoundIntent, len(rows))
	for i := range rows {
		r := &rows[i]
		out[i] = ports.BoundIntent{EventIntent: r.EventIntentID.Bytes, EventType: r.EventType, EventPayload: r.EventPayload}
		if out[i].Intent, err = storedIntent(&r.BackboneIntent); err != nil {
			out[i].Intent, out[i].Unreadable = intent.Intent{ID: r.BackboneIntent.ID.Bytes}, true
		}
	}
	return out, s.fillArchived(ctx, p, rows, out)
}

// fillArchived gives the events their payloads that are archived.
func (s *Store) fillArchived(ctx context.Context, p event.PartitionID, rows []intentsdb.ListBoundIntentsRow, out []ports.BoundIntent) error {
	var places []int
	var events []event.Recorded
	for i := range rows {
		if r := &rows[i]; r.EventType != "" && r.EventPayload == nil {
			e := event.Recorded{Skeleton: event.Skeleton{Partition: p, Sequence: event.Sequence(r.BackboneIntent.LastSequence)}}
			copy(e.PayloadHash[:], r.EventPayloadHash)
			places, events = append(places, i), append(events, e)
		}
	}
	filled, err := s.events.FillForAudit(ctx, s.db.Reads, events)
	for i := range filled {
		row := &out[places[i]]
		row.EventPayload, row.Lost = filled[i].Payload, filled[i].Archived && filled[i].Payload == nil
	}
	return err
}

// PersonalIntentRows implements ports.IntentAudit.
func (s *Store) PersonalIntentRows(ctx context.Context, p event.PartitionID, subjects []string, ids []event.ID) ([]ports.PersonalIntent, error) {
	rows, err := s.queries.ListPersonalIntentRows(ctx, s.db.Reads, &intentsdb.ListPersonalIntentRowsParams{PartitionID: int32(p), Subjects: subjects, Ids: pg.UUIDs(ids)})
	return pg.MapRows(ctx, rows, err, func(r *intentsdb.ListPersonalIntentRowsRow) ports.PersonalIntent {
		return ports.PersonalIntent{IntentID: r.IntentID.Bytes, Subject: r.SubjectID, KeyClass: uint8(r.Class)}
	})
}

func storedIntent(r *intentsdb.BackboneIntent) (intent.Intent, error) {
	in := intent.Intent{
		ID: r.ID.Bytes, Partition: event.PartitionID(r.PartitionID), LegalEntity: r.LegalEntity, Type: r.Type, Payload: r.Payload,
		Actor:    event.Actor{Type: event.ActorType(r.ActorType), ID: r.ActorID, Name: r.ActorName.String},
		PersonID: r.PersonID.String, Roles: r.Roles,
		CorrelationID: r.CorrelationID.String, CausedBy: r.CausedBy.Bytes, CausedByPartition: event.PartitionID(r.CausedByPartition.Int32), Documents: r.Documents,
		Source: event.Source{System: r.SourceSystem.String, Channel: r.SourceChannel.String, Reference: r.SourceReference.String},
		Status: intent.Status(r.Status), PlanHash: r.PlanHash.String, Rules: r.Rules,
		FirstSequence: event.Sequence(r.FirstSequence), EventCount: int(r.EventCount), LastSequence: event.Sequence(r.LastSequence), Revision: int(r.Revision),
		CreatedAt: r.CreatedAt.UTC(), UpdatedAt: r.UpdatedAt.UTC(),
	}
	if r.EffectiveDate.Valid {
		in.EffectiveDate, in.HasEffectiveDate = event.DateOf(r.EffectiveDate.Time), true
	}
	var errs []error
	decode := func(text []byte, into any) {
		if len(text) > 0 {
			errs = append(errs, json.Unmarshal(text, into))
		}
	}
	decode(r.ActorDetails, &in.Actor.Details)
	decode(r.Need, &in.Needs)
	decode(r.Approvals, &in.Approvals)
	decode(r.Refusal, &in.Refusal)
	if err := errors.Join(errs...); err != nil {
		return intent.Intent{}, fault.New(fault.Internal, pg.CodeInternal, "intent %s cannot be decoded; report this", in.ID).WithCause(err)
	}
	return in, nil
}
