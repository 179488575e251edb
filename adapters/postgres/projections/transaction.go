package projections

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/erpbackbone/backbone/adapters/postgres/eventlog"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/projectionsdb"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
)

// work has the transactions and locks of checkpoints that all stores of this package share.
type work struct {
	db      *pg.Database
	queries *projectionsdb.Queries
	events  *eventlog.Reader
}

const (
	// transactionTries is how often a transaction runs that meets deadlocks.
	transactionTries = 3
	systemActor      = "system" // changes that no person ordered
)

// untranslatedError is an error that callers receive unchanged, such as one of a handler.
type untranslatedError struct{ error }

func (e untranslatedError) Unwrap() error { return e.error }

// markHandlerError passes the error of a handler on unchanged, unless it comes from PostgreSQL:
// that may quote a value, and an unavailable database is no failure of the event.
func markHandlerError(ctx context.Context, err error) error {
	if pg.IsSerializationFailure(err) || pg.IsLockTimeout(err) {
		return err
	}
	if _, database := errors.AsType[*pgconn.PgError](err); database || pg.IsUnavailable(err) {
		return pg.Translate(ctx, err)
	}
	return untranslatedError{err}
}

// retry runs f in a transaction, and again after a deadlock or errVersionStarted.
func (s *work) retry(ctx context.Context, level pgx.TxIsoLevel, f func(tx pgx.Tx) error) (err error) {
	for range transactionTries {
		err = pgx.BeginTxFunc(ctx, s.db.Reads, pgx.TxOptions{IsoLevel: level}, f)
		if !pg.IsSerializationFailure(err) && !errors.Is(err, errVersionStarted) {
			break
		}
	}
	return err
}

// inTransaction is retry with the lock timeout.
func (s *work) inTransaction(ctx context.Context, level pgx.TxIsoLevel, f func(tx pgx.Tx) error) error {
	return translate(ctx, s.retry(ctx, level, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, pg.SetLockTimeout, pg.Milliseconds(s.db.Config.Limits.LockTimeout)); err != nil {
			return err
		}
		return f(tx)
	}))
}

func translate(ctx context.Context, err error) error {
	if unchanged, ok := errors.AsType[untranslatedError](err); ok {
		return unchanged.error
	}
	return pg.Translate(ctx, err)
}

// onCheckpoint runs f in a transaction that has locked the checkpoint and then verified the
// lease, and writes the checkpoint if f returns true. Fault projection.busy when another
// session holds a lock for longer than the lock timeout.
func (s *work) onCheckpoint(ctx context.Context, w ports.ProjectionWork, f func(pgx.Tx, *ports.Checkpoint) (bool, error)) (c ports.Checkpoint, err error) {
	var before ports.Checkpoint
	err = s.retry(ctx, "", func(tx pgx.Tx) error {
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
	if pg.IsLockTimeout(err) {
		return c, projection.Busy().WithCause(pg.RedactError(err))
	}
	return c, translate(ctx, err)
}

// recompute runs f under the lock of a checkpoint and raises the generation if f changed rows,
// so that cursors of earlier pages are refused. A dry run is rolled back.
func (s *work) recompute(ctx context.Context, w ports.ProjectionWork, dryRun bool, f func(pgx.Tx, *ports.Checkpoint) (ports.TargetChange, error)) (change ports.TargetChange, err error) {
	_, err = s.onCheckpoint(ctx, w, func(tx pgx.Tx, c *ports.Checkpoint) (bool, error) {
		if change, err = f(tx, c); err != nil {
			return false, err
		}
		if dryRun {
			return false, untranslatedError{errDryRun}
		}
		if change.Rows() == 0 {
			return false, nil
		}
		return false, s.queries.RaiseGeneration(ctx, tx, &projectionsdb.RaiseGenerationParams{
			Projection: w.Projection, Version: int32(w.Version), PartitionID: int32(w.Partition),
		})
	})
	if err != nil && !errors.Is(err, errDryRun) {
		return ports.TargetChange{}, err
	}
	return change, nil
}

// errDryRun rolls a recomputation back whose changes are only counted.
var errDryRun = errors.New("dry run")

func (s *work) writeCheckpoint(ctx context.Context, tx pgx.Tx, c ports.Checkpoint) error {
	return s.queries.UpdateCheckpoint(ctx, tx, &projectionsdb.UpdateCheckpointParams{
		Projection: c.Projection, Version: int32(c.Version), PartitionID: int32(c.Partition), Sequence: int64(c.Sequence),
		Status: c.Status, Error: pg.OptionalText(c.Error), Attempts: int32(c.Attempts), UpdatedAt: c.UpdatedAt,
		FirstFailedAt: pg.OptionalTime(c.FirstFailedAt), LastFailedAt: pg.OptionalTime(c.LastFailedAt), NextAttemptAt: pg.OptionalTime(c.NextAttemptAt),
		LastEventAt: pg.OptionalTime(c.LastEventAt), Term: int64(c.Term),
		Processed: int64(c.Processed), Skipped: int64(c.Skipped), Failed: int64(c.Failed),
	})
}

// lockCheckpoint locks the row and then reads the lease in a second statement: another node may
// have taken over while the first one waited, and a statement sees only what was committed
// before it started. It inserts the row of a partition that has none.
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

// readLocked sends all statements in one batch.
func (s *work) readLocked(ctx context.Context, tx pgx.Tx, w ports.ProjectionWork) (c ports.Checkpoint, found bool, err error) {
	lockWait := w.LockWait
	if lockWait <= 0 {
		lockWait = s.db.Config.Limits.LockTimeout
	}
	batch := &pgx.Batch{}
	batch.Queue(pg.SetLockTimeout, pg.Milliseconds(lockWait))
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
