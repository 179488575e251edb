package eventlog

import (
	"context"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/eventlogdb"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// PersonalRecords finds the events and intents that hold values of a person.
type PersonalRecords struct {
	db      *pg.Database
	queries *eventlogdb.Queries
	events  *Reader
}

var _ ports.PersonalRecords = (*PersonalRecords)(nil)

// NewPersonalRecords makes the reader of sealed records of persons.
func NewPersonalRecords(db *pg.Database, events *Reader) *PersonalRecords {
	return &PersonalRecords{db: db, queries: eventlogdb.New(), events: events}
}

// CountPersonalRecords implements ports.PersonalRecords: events before intents, each
// by type and key class.
func (s *PersonalRecords) CountPersonalRecords(ctx context.Context, p event.PartitionID, subject shredding.Subject) ([]ports.PersonalCount, error) {
	events, err := s.queries.CountPersonalEvents(ctx, s.db.Reads, &eventlogdb.CountPersonalEventsParams{PartitionID: int32(p), SubjectID: string(subject)})
	if err != nil {
		return nil, pg.Translate(ctx, err)
	}
	intents, err := s.queries.CountPersonalIntents(ctx, s.db.Reads, &eventlogdb.CountPersonalIntentsParams{PartitionID: int32(p), SubjectID: string(subject)})
	if err != nil {
		return nil, pg.Translate(ctx, err)
	}
	counts := make([]ports.PersonalCount, 0, len(events)+len(intents))
	for _, r := range events {
		counts = append(counts, ports.PersonalCount{
			Type: r.Type, Class: shredding.KeyClass(r.Class), Records: r.Records, Fields: r.Fields, NewestAt: r.NewestAt.UTC(),
		})
	}
	for _, r := range intents {
		counts = append(counts, ports.PersonalCount{
			Intent: true, Type: r.Type, Class: shredding.KeyClass(r.Class), Records: r.Records, Fields: r.Fields, NewestAt: r.NewestAt.UTC(),
		})
	}
	return counts, nil
}

// PersonalEvents implements ports.PersonalRecords. A limit of 0 reads to the end.
func (s *PersonalRecords) PersonalEvents(ctx context.Context, p event.PartitionID, subject shredding.Subject, after event.Sequence, limit int) ([]event.Recorded, error) {
	sequences, err := s.queries.ListPersonalEvents(ctx, s.db.Reads, &eventlogdb.ListPersonalEventsParams{
		PartitionID: int32(p), SubjectID: string(subject), After: int64(after), PageSize: pg.PageSize(limit),
	})
	if err != nil {
		return nil, pg.Translate(ctx, err)
	}
	events, err := s.events.BySequence(ctx, p, sequences, true)
	return events, pg.Translate(ctx, err)
}

// PersonalIntents implements ports.PersonalRecords. A limit of 0 lists all.
func (s *PersonalRecords) PersonalIntents(ctx context.Context, p event.PartitionID, subject shredding.Subject, after event.ID, limit int) ([]event.ID, error) {
	rows, err := s.queries.ListPersonalIntents(ctx, s.db.Reads, &eventlogdb.ListPersonalIntentsParams{
		PartitionID: int32(p), SubjectID: string(subject), After: pg.UUID(after), PageSize: pg.PageSize(limit),
	})
	return pg.MapRows(ctx, rows, err, func(r *pgtype.UUID) event.ID { return r.Bytes })
}
