// Package projections moves read models along the log. Checkpoints runs a handler in the
// transaction that holds the checkpoint of a projection in a partition; Versions builds a
// new version beside the active one and switches to it; Rows keeps the rows of custom
// projections; Snapshots saves the rows of a version; Targets rebuilds single entities.
// Every object takes the checkpoint's row lock before anything else.
package projections

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/erpbackbone/backbone/adapters/postgres/eventlog"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/projectionsdb"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
)

// work is what all objects of this room share: the checkpoints' locks and the
// transactions around them.
type work struct {
	db      *pg.Database
	queries *projectionsdb.Queries
	events  *eventlog.Reader
}

// Checkpoints advances projections and keeps how far each has come in each
// partition.
type Checkpoints struct{ *work }

var _ ports.Projections = (*Checkpoints)(nil)

// New makes the store of checkpoints over db.
func New(db *pg.Database, events *eventlog.Reader) *Checkpoints {
	return &Checkpoints{&work{db: db, queries: projectionsdb.New(), events: events}}
}

const advanceTries = 3

// Advance implements ports.Projections. The handler's transaction is a pgx.Tx at
// READ COMMITTED. A deadlock or serialization failure runs all of it again, so the
// handler may be called again with the same events in a new transaction. The checkpoint
// passes events of other types too.
func (s *Checkpoints) Advance(ctx context.Context, a ports.ProjectionAdvance, h ports.ProjectionHandler) (c ports.Checkpoint, passed int, err error) {
	c, err = s.onCheckpoint(ctx, a.ProjectionWork, func(tx pgx.Tx, c *ports.Checkpoint) (bool, error) {
		passed = 0
		if c.Status == projection.Halted {
			return false, nil
		}
		passed, err = s.apply(ctx, tx, a, h, c)
		return passed > 0, err
	})
	if err != nil {
		passed = 0
	}
	return c, passed, err
}

// apply hands the events after a checkpoint, which tx holds, to the handler.
func (s *work) apply(ctx context.Context, tx pgx.Tx, a ports.ProjectionAdvance, h ports.ProjectionHandler, c *ports.Checkpoint) (passed int, err error) {
	events, last, err := s.events.EventsOf(ctx, tx, &a, c.Sequence)
	if err != nil || last == nil {
		return 0, err
	}
	passed = int(last.Sequence - c.Sequence)
	if len(events) > 0 {
		b := ports.ProjectionBatch{Projection: a.Projection, Version: a.Version, Partition: a.Partition, Events: events}
		if err := h.Apply(ctx, tx, b); err != nil {
			return 0, markHandlerError(ctx, err)
		}
	}
	if c.IsFailing() {
		if err := s.resolveLetters(ctx, tx, a.ProjectionWork, last.Sequence, ports.LetterResolved, "", ""); err != nil {
			return 0, err
		}
	}
	c.Advance(last.Sequence, len(events), last.RecordedAt, s.db.Now())
	return passed, nil
}

// untranslatedError is an error in a handler's own words, which are the caller's to judge.
type untranslatedError struct{ error }

func (s untranslatedError) Unwrap() error { return s.error }

// markHandlerError keeps what a handler says, unless it is what PostgreSQL says: that may quote
// a value, and a database that is away is not the event's fault.
func markHandlerError(ctx context.Context, err error) error {
	if pg.IsSerializationFailure(err) || pg.IsLockTimeout(err) {
		return err
	}
	if _, database := errors.AsType[*pgconn.PgError](err); database || pg.IsUnavailable(err) {
		return pg.Translate(ctx, err)
	}
	return untranslatedError{err}
}

// onCheckpoint runs f in a transaction that holds the checkpoint, after it has made
// sure of the lease, and writes the checkpoint when f says so. It tries again after a
// deadlock. Fault projection.busy when somebody else's lock outlasts the patience.
func (s *work) onCheckpoint(ctx context.Context, w ports.ProjectionWork, f func(pgx.Tx, *ports.Checkpoint) (bool, error)) (c ports.Checkpoint, err error) {
	for range advanceTries {
		var before ports.Checkpoint
		err = pgx.BeginFunc(ctx, s.db.Reads, func(tx pgx.Tx) error {
			if before, err = s.lockCheckpoint(ctx, tx, w); err != nil {
				return err
			}
			c = before
			write, err := f(tx, &c)
			if err != nil || !write {
				return err
			}
			if w.Lease != nil {
				c.Term = w.Lease.Term
			}
			return s.writeCheckpoint(ctx, tx, c)
		})
		if err != nil {
			c = before
		}
		if !pg.IsSerializationFailure(err) {
			break
		}
	}
	if own, handlers := errors.AsType[untranslatedError](err); handlers {
		return c, own.error
	}
	if pg.IsLockTimeout(err) {
		return c, projection.Busy().WithCause(pg.RedactError(err))
	}
	return c, pg.Translate(ctx, err)
}

func (s *work) writeCheckpoint(ctx context.Context, tx pgx.Tx, c ports.Checkpoint) error {
	return s.queries.UpdateCheckpoint(ctx, tx, &projectionsdb.UpdateCheckpointParams{
		Projection: c.Projection, Version: int32(c.Version), PartitionID: int32(c.Partition), Sequence: int64(c.Sequence),
		Status: c.Status, Error: pg.OptionalText(c.Error), Attempts: int32(c.Attempts), UpdatedAt: c.UpdatedAt,
		FirstFailedAt: pg.OptionalTime(c.FirstFailedAt), LastFailedAt: pg.OptionalTime(c.LastFailedAt), NextAttemptAt: pg.OptionalTime(c.NextAttemptAt),
		LastEventAt: pg.OptionalTime(c.LastEventAt), Term: int64(c.Term),
		Processed: int64(c.Processed), Skipped: int64(c.Skipped), Failed: int64(c.Failed),
	})
}

// lockCheckpoint takes the row's lock first and reads the lease in a statement of its
// own after it: while it waited somebody may have taken over, and a statement sees what
// was committed before it began. A partition without a row gets one.
func (s *work) lockCheckpoint(ctx context.Context, tx pgx.Tx, w ports.ProjectionWork) (ports.Checkpoint, error) {
	c, found, err := s.readLocked(ctx, tx, w)
	if err != nil || found {
		return c, err
	}
	if err := s.requireLive(ctx, tx, w); err != nil {
		return c, err
	}
	if err := s.queries.InsertCheckpoint(ctx, tx, &projectionsdb.InsertCheckpointParams{
		Projection: w.Projection, Version: int32(w.Version), PartitionID: int32(w.Partition), UpdatedAt: s.db.Now(),
	}); err != nil {
		return c, err
	}
	c, _, err = s.readLocked(ctx, tx, w)
	return c, err
}

const advanceTimeouts = `SELECT set_config('idle_in_transaction_session_timeout', $1, true), set_config('lock_timeout', $2, true)`

// readLocked sends all statements at once.
func (s *work) readLocked(ctx context.Context, tx pgx.Tx, w ports.ProjectionWork) (c ports.Checkpoint, found bool, err error) {
	patience := w.LockWait
	if patience <= 0 {
		patience = s.db.Config.Limits.LockTimeout
	}
	batch := &pgx.Batch{}
	batch.Queue(advanceTimeouts, pg.Milliseconds(s.db.Config.Limits.ProjectionIdleTimeout), pg.Milliseconds(patience))
	batch.Queue(projectionsdb.LockCheckpoint, w.Projection, int32(w.Version), int32(w.Partition)).QueryRow(func(row pgx.Row) error {
		var r projectionsdb.BackboneProjectionCheckpoint
		err := row.Scan(&r.Sequence, &r.UpdatedAt, &r.Version, &r.PartitionID, &r.Projection, &r.Status, &r.Error, &r.Term, &r.Processed,
			&r.Skipped, &r.Failed, &r.Attempts, &r.FirstFailedAt, &r.LastFailedAt, &r.NextAttemptAt, &r.LastEventAt,
			&r.Generation, &r.Redactions)
		if errors.Is(err, pgx.ErrNoRows) {
			c = ports.Checkpoint{Projection: w.Projection, Version: w.Version, Partition: w.Partition, Status: projection.Reading}
			return nil
		}
		c, found = checkpoint(&r), err == nil
		return err
	})
	if w.Lease != nil {
		batch.Queue(projectionsdb.LeaseTerm, w.Lease.Name, int32(w.Lease.Partition), w.Lease.Holder).QueryRow(func(row pgx.Row) error {
			var term int64
			err := row.Scan(&term)
			if errors.Is(err, pgx.ErrNoRows) || err == nil && uint64(term) != w.Lease.Term {
				return projection.Fenced()
			}
			return err
		})
	}
	return c, found, tx.SendBatch(ctx, batch).Close()
}

func checkpoint(r *projectionsdb.BackboneProjectionCheckpoint) ports.Checkpoint {
	return ports.Checkpoint{
		Projection: r.Projection, Version: int(r.Version), Partition: event.PartitionID(r.PartitionID), Sequence: event.Sequence(r.Sequence),
		Status: r.Status, Error: r.Error.String, Attempts: int(r.Attempts), UpdatedAt: r.UpdatedAt.UTC(),
		FirstFailedAt: pg.TimeOrZero(r.FirstFailedAt), LastFailedAt: pg.TimeOrZero(r.LastFailedAt), NextAttemptAt: pg.TimeOrZero(r.NextAttemptAt),
		LastEventAt: pg.TimeOrZero(r.LastEventAt), Term: uint64(r.Term),
		Processed: uint64(r.Processed), Skipped: uint64(r.Skipped), Failed: uint64(r.Failed), Generation: uint64(r.Generation), Redactions: uint64(r.Redactions),
	}
}

// Checkpoints implements ports.Projections, by partition.
func (s *Checkpoints) Checkpoints(ctx context.Context, name string, version int) ([]ports.Checkpoint, error) {
	rows, err := s.queries.ListCheckpoints(ctx, s.db.Reads, &projectionsdb.ListCheckpointsParams{Projection: name, Version: int32(version)})
	if err != nil {
		return nil, pg.Translate(ctx, err)
	}
	out := make([]ports.Checkpoint, len(rows))
	for i := range rows {
		out[i] = checkpoint(&rows[i].BackboneProjectionCheckpoint)
	}
	return out, nil
}

// RecordFailure implements ports.Projections. A projection that failed on its very
// first event gets a checkpoint at sequence 0.
func (s *Checkpoints) RecordFailure(ctx context.Context, f ports.ProjectionFailure) (ports.Checkpoint, error) {
	return s.onCheckpoint(ctx, f.ProjectionWork, func(_ pgx.Tx, c *ports.Checkpoint) (bool, error) {
		if c.Sequence != f.At || c.Status == projection.Halted {
			return false, nil
		}
		c.Fail(f.Code, f.Pause, s.db.Now())
		return true, nil
	})
}

// Isolate implements ports.Projections.
func (s *Checkpoints) Isolate(ctx context.Context, f ports.ProjectionFailure, policy string) (ports.Checkpoint, error) {
	return s.onCheckpoint(ctx, f.ProjectionWork, func(tx pgx.Tx, c *ports.Checkpoint) (bool, error) {
		if c.Sequence != f.At || c.Status == projection.Halted {
			return false, nil
		}
		e, err := s.next(ctx, tx, f.Partition, c.Sequence)
		if err != nil {
			return false, err
		}
		status := ports.LetterWaiting
		c.Halt(f.Code, s.db.Now(), f.Attempts, f.Since)
		letter := &projectionsdb.UpsertDeadLetterParams{
			Kind: ports.LetterOfProjection, Name: f.Projection, Version: int32(f.Version), PartitionID: int32(f.Partition), Sequence: int64(e.Sequence),
			EventID: pg.UUID(e.ID), Code: f.Code, Detail: f.Detail, Attempts: int32(c.Attempts),
			FirstFailedAt: c.FirstFailedAt, LastFailedAt: c.LastFailedAt,
		}
		if policy == projection.SkipEvent {
			status = ports.LetterPassed
			c.SkipEvent(e.Sequence, e.RecordedAt, s.db.Now())
		}
		letter.Status = status
		if err := s.queries.UpsertDeadLetter(ctx, tx, letter); err != nil {
			return false, err
		}
		if policy == projection.StopProjection {
			return true, s.queries.FaultProjection(ctx, tx, &projectionsdb.FaultProjectionParams{
				Name: f.Projection, Version: int32(f.Version), ChangedAt: s.db.Now(), ChangedBy: systemActor,
			})
		}
		return true, nil
	})
}

// systemActor is who does what nobody asked for.
const systemActor = "system"

// next is the event after a sequence.
func (s *work) next(ctx context.Context, tx pgx.Tx, p event.PartitionID, after event.Sequence) (event.Recorded, error) {
	events, err := s.events.EventsAfter(ctx, tx, p, after, 1, []string{""})
	if err == nil && len(events) == 0 {
		err = fault.New(fault.FailedPrecondition, "projection.no_event", "there is no event after the checkpoint; look at the checkpoints again")
	}
	if err != nil {
		return event.Recorded{}, err
	}
	return events[0], nil
}

// Fix implements ports.Projections.
func (s *Checkpoints) Fix(ctx context.Context, o ports.ProjectionOperation) (ports.Checkpoint, error) {
	return s.onCheckpoint(ctx, o.ProjectionWork, func(tx pgx.Tx, c *ports.Checkpoint) (bool, error) {
		if err := c.Retry(s.db.Now()); err != nil {
			return false, err
		}
		return true, s.bumpRevision(ctx, tx, o)
	})
}

// Skip implements ports.Projections.
func (s *Checkpoints) Skip(ctx context.Context, o ports.ProjectionOperation) (ports.Checkpoint, error) {
	return s.onCheckpoint(ctx, o.ProjectionWork, func(tx pgx.Tx, c *ports.Checkpoint) (bool, error) {
		if err := c.RequireHalted(); err != nil {
			return false, err
		}
		e, err := s.next(ctx, tx, o.Partition, c.Sequence)
		if err != nil {
			return false, err
		}
		c.SkipEvent(e.Sequence, e.RecordedAt, s.db.Now())
		if err := s.resolveLetters(ctx, tx, o.ProjectionWork, e.Sequence, ports.LetterSkipped, o.By, o.Reason); err != nil {
			return false, err
		}
		return true, s.bumpRevision(ctx, tx, o)
	})
}

// Reset implements ports.Projections.
func (s *Checkpoints) Reset(ctx context.Context, o ports.ProjectionOperation, h ports.ProjectionResetter) (ports.Checkpoint, error) {
	return s.onCheckpoint(ctx, o.ProjectionWork, func(tx pgx.Tx, c *ports.Checkpoint) (bool, error) {
		b := ports.ProjectionBatch{Projection: o.Projection, Version: o.Version, Partition: o.Partition}
		if err := h.Reset(ctx, tx, b); err != nil {
			return false, markHandlerError(ctx, err)
		}
		if err := s.queries.BeginAgain(ctx, tx, &projectionsdb.BeginAgainParams{Projection: o.Projection, Version: int32(o.Version), PartitionID: int32(o.Partition)}); err != nil {
			return false, err
		}
		if err := s.resolveLetters(ctx, tx, o.ProjectionWork, maxSequence, ports.LetterDiscarded, o.By, o.Reason); err != nil {
			return false, err
		}
		c.Rewind(s.db.Now())
		return true, s.bumpRevision(ctx, tx, o)
	})
}

func (s *work) bumpRevision(ctx context.Context, tx pgx.Tx, o ports.ProjectionOperation) error {
	return s.queries.TouchProjection(ctx, tx, &projectionsdb.TouchProjectionParams{
		Name: o.Projection, Version: int32(o.Version), ChangedAt: s.db.Now(), ChangedBy: o.By,
	})
}

// PartitionHeads implements ports.Projections.
func (s *Checkpoints) PartitionHeads(ctx context.Context) (map[event.PartitionID]ports.Head, error) {
	return s.events.PartitionHeads(ctx)
}

// RecordedAt implements ports.Projections.
func (s *Checkpoints) RecordedAt(ctx context.Context, places []ports.EventPosition) (map[ports.EventPosition]time.Time, error) {
	return s.events.RecordedAt(ctx, places)
}
