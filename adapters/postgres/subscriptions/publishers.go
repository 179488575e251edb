package subscriptions

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/subscriptionsdb"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// Publishers keeps how far publishers of partitions have come.
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
	return fault.New(fault.Conflict, "publisher.fenced", "another node publishes this partition since; leave it to that one")
}

func publisherCursor(publisher string, p, through, term int64, moved pgtype.Timestamptz, failures int32, lastError pgtype.Text, failed pgtype.Timestamptz) ports.PublisherCursor {
	c := ports.PublisherCursor{
		Publisher: publisher, Partition: event.PartitionID(p), PublishedThrough: event.Sequence(through), Term: uint64(term),
		Failures: int(failures), LastError: lastError.String,
	}
	if moved.Valid {
		c.MovedAt = moved.Time.UTC()
	}
	if failed.Valid {
		c.FailedAt = failed.Time.UTC()
	}
	return c
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
	r := rows[0]
	return publisherCursor(r.Publisher, int64(r.PartitionID), r.PublishedThrough, r.Term, r.MovedAt, r.Failures, r.LastError, r.FailedAt), nil
}

// onCursor runs change in a transaction that holds the cursor's row, if the term is
// the one that has begun on it. It waits only briefly for somebody else who holds the
// row: the other partitions of a publisher share few workers with this one.
func (s *Publishers) onCursor(ctx context.Context, publisher string, p event.PartitionID, term uint64, change func(tx pgx.Tx, through event.Sequence) error) error {
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
	return s.onCursor(ctx, publisher, p, term, func(tx pgx.Tx, through event.Sequence) error {
		if through != from || to <= from {
			return fault.New(fault.Conflict, "publisher.cursor_moved", "the cursor is at %d and cannot move from %d to %d; begin again", through, from, to)
		}
		return s.queries.MovePublisherCursor(ctx, tx, &subscriptionsdb.MovePublisherCursorParams{
			Publisher: publisher, PartitionID: int32(p), PublishedThrough: int64(to), MovedAt: pgtype.Timestamptz{Time: s.db.Now(), Valid: true},
		})
	})
}

// NotePublishFailure implements ports.PublisherCursors.
func (s *Publishers) NotePublishFailure(ctx context.Context, publisher string, p event.PartitionID, term uint64, code string) error {
	return s.onCursor(ctx, publisher, p, term, func(tx pgx.Tx, _ event.Sequence) error {
		return s.queries.NotePublishFailure(ctx, tx, &subscriptionsdb.NotePublishFailureParams{
			Publisher: publisher, PartitionID: int32(p), LastError: pg.OptionalText(code), FailedAt: pgtype.Timestamptz{Time: s.db.Now(), Valid: true},
		})
	})
}

// PublisherCursors implements ports.PublisherCursors.
func (s *Publishers) PublisherCursors(ctx context.Context, publisher string) ([]ports.PublisherCursor, error) {
	rows, err := s.queries.ListPublisherCursors(ctx, s.db.Reads, publisher)
	if err != nil {
		return nil, pg.Translate(ctx, err)
	}
	out := make([]ports.PublisherCursor, len(rows))
	for i, r := range rows {
		out[i] = publisherCursor(r.Publisher, int64(r.PartitionID), r.PublishedThrough, r.Term, r.MovedAt, r.Failures, r.LastError, r.FailedAt)
	}
	return out, nil
}
