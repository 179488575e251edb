package subscriptions

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/subscriptionsdb"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// Publishers stores the cursors of publishers.
type Publishers struct {
	db      *pg.Database
	queries *subscriptionsdb.Queries
}

// NewPublishers makes the store of publishers' cursors.
func NewPublishers(db *pg.Database) *Publishers {
	return &Publishers{db: db, queries: subscriptionsdb.New()}
}

var _ ports.PublisherCursors = (*Publishers)(nil)

func publisherFenced() error {
	return fault.New(fault.Conflict, "publisher.fenced", "another node publishes this partition now; leave it to that one")
}

func publisherCursor(r *subscriptionsdb.ListPublisherCursorsRow) ports.PublisherCursor {
	return ports.PublisherCursor{
		Publisher: r.Publisher, Partition: event.PartitionID(r.PartitionID), PublishedThrough: event.Sequence(r.PublishedThrough), Term: uint64(r.Term),
		MovedAt: pg.TimeOrZero(r.MovedAt), Failures: int(r.Failures), LastError: r.LastError.String, FailedAt: pg.TimeOrZero(r.FailedAt),
	}
}

// BeginPublishing implements ports.PublisherCursors.
func (s *Publishers) BeginPublishing(ctx context.Context, publisher string, p event.PartitionID, term uint64) (ports.PublisherCursor, error) {
	rows, err := pg.QueryWithLockTimeout[subscriptionsdb.BeginPublishingRow](ctx, s.db, pg.ShortLockWait, subscriptionsdb.BeginPublishing, publisher, int32(p), int64(term))
	if err != nil {
		return ports.PublisherCursor{}, pg.Translate(ctx, err)
	}
	if len(rows) == 0 {
		return ports.PublisherCursor{}, publisherFenced()
	}
	r := subscriptionsdb.ListPublisherCursorsRow(rows[0])
	return publisherCursor(&r), nil
}

// withCursor runs change in a transaction that holds the cursor's row, if the term is the
// one that has begun on it. It waits only briefly for another session that holds the row,
// because the partitions of a publisher share few workers.
func (s *Publishers) withCursor(ctx context.Context, publisher string, p event.PartitionID, term uint64, change func(tx pgx.Tx, through event.Sequence) error) error {
	return pg.Translate(ctx, pgx.BeginFunc(ctx, s.db.Reads, func(tx pgx.Tx) error {
		var c subscriptionsdb.LockPublisherCursorRow
		var batch pgx.Batch
		batch.Queue(pg.SetLockTimeout, pg.Milliseconds(pg.ShortLockWait))
		batch.Queue(subscriptionsdb.LockPublisherCursor, publisher, int32(p)).QueryRow(func(row pgx.Row) error {
			return row.Scan(&c.PublishedThrough, &c.Term)
		})
		err := tx.SendBatch(ctx, &batch).Close()
		if errors.Is(err, pgx.ErrNoRows) || err == nil && uint64(c.Term) != term {
			return publisherFenced()
		}
		if err != nil {
			return err
		}
		return change(tx, event.Sequence(c.PublishedThrough))
	}))
}

// MovePublished implements ports.PublisherCursors.
func (s *Publishers) MovePublished(ctx context.Context, publisher string, p event.PartitionID, term uint64, from, to event.Sequence) error {
	return s.withCursor(ctx, publisher, p, term, func(tx pgx.Tx, through event.Sequence) error {
		if through != from || to <= from {
			return fault.New(fault.Conflict, "publisher.cursor_moved", "the cursor is at %d and cannot move from %d to %d; begin again", through, from, to)
		}
		return s.queries.MovePublisherCursor(ctx, tx, &subscriptionsdb.MovePublisherCursorParams{
			Publisher: publisher, PartitionID: int32(p), PublishedThrough: int64(to), MovedAt: pg.OptionalTime(s.db.Now()),
		})
	})
}

// RecordPublishFailure implements ports.PublisherCursors.
func (s *Publishers) RecordPublishFailure(ctx context.Context, publisher string, p event.PartitionID, term uint64, code string) error {
	return s.withCursor(ctx, publisher, p, term, func(tx pgx.Tx, _ event.Sequence) error {
		return s.queries.NotePublishFailure(ctx, tx, &subscriptionsdb.NotePublishFailureParams{
			Publisher: publisher, PartitionID: int32(p), LastError: pg.OptionalText(code), FailedAt: pg.OptionalTime(s.db.Now()),
		})
	})
}

// PublisherCursors implements ports.PublisherCursors.
func (s *Publishers) PublisherCursors(ctx context.Context, publisher string) ([]ports.PublisherCursor, error) {
	rows, err := s.queries.ListPublisherCursors(ctx, s.db.Reads, publisher)
	return pg.MapRows(ctx, rows, err, publisherCursor)
}
