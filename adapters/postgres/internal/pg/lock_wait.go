package pg

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// QueryWithLockTimeout runs a statement that waits so long for each lock of others, in one round trip,
// and gives its rows by position. After a lock that it missed, isLockTimeout tells.
func QueryWithLockTimeout[T any](ctx context.Context, s *Database, wait time.Duration, sql string, args ...any) ([]T, error) {
	return collect(ctx, s, wait, pgx.RowToStructByPos[T], sql, args)
}

// QueryColumnWithLockTimeout is brief for rows of one column.
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
