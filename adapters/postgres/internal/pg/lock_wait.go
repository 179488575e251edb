package pg

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// QueryWithLockTimeout runs a statement in one round trip and returns its rows by position.
// The statement waits at most wait for each lock of another session; IsLockTimeout recognises
// the error of a longer one.
func QueryWithLockTimeout[T any](ctx context.Context, s *Database, wait time.Duration, sql string, args ...any) ([]T, error) {
	return collect(ctx, s, wait, pgx.RowToStructByPos[T], sql, args)
}

// QueryColumnWithLockTimeout is QueryWithLockTimeout for rows of one column.
func QueryColumnWithLockTimeout[T any](ctx context.Context, s *Database, wait time.Duration, sql string, args ...any) ([]T, error) {
	return collect(ctx, s, wait, pgx.RowTo[T], sql, args)
}

func collect[T any](ctx context.Context, s *Database, wait time.Duration, scan pgx.RowToFunc[T], sql string, args []any) (out []T, err error) {
	var batch pgx.Batch // without BEGIN it is one transaction by itself
	batch.Queue(SetLockTimeout, Milliseconds(wait))
	batch.Queue(sql, args...).Query(func(rows pgx.Rows) (err error) {
		out, err = pgx.CollectRows(rows, scan)
		return err
	})
	err = s.Reads.SendBatch(ctx, &batch).Close()
	return out, err
}

// ShortLockWait is how long a statement waits for a lock whose holder usually gives it back at
// once: longer than other nodes hold a head for a usual group.
const ShortLockWait = 100 * time.Millisecond

// SetLockTimeout is local to the transaction.
const SetLockTimeout = `SELECT set_config('lock_timeout', $1, true)`
