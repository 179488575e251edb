package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// brief runs a statement that waits so long for each lock of others, in one round trip,
// and gives its rows by position. After a lock that it missed, isLockTimeout tells.
func brief[T any](ctx context.Context, s *Database, wait time.Duration, sql string, args ...any) ([]T, error) {
	return collect(ctx, s, wait, pgx.RowToStructByPos[T], sql, args)
}

// briefColumn is brief for rows of one column.
func briefColumn[T any](ctx context.Context, s *Database, wait time.Duration, sql string, args ...any) ([]T, error) {
	return collect(ctx, s, wait, pgx.RowTo[T], sql, args)
}

func collect[T any](ctx context.Context, s *Database, wait time.Duration, scan pgx.RowToFunc[T], sql string, args []any) (out []T, err error) {
	var batch pgx.Batch // without BEGIN it is one transaction by itself
	batch.Queue(setLockTimeout, milliseconds(wait))
	batch.Queue(sql, args...).Query(func(rows pgx.Rows) (err error) {
		out, err = pgx.CollectRows(rows, scan)
		return err
	})
	err = s.reads.SendBatch(ctx, &batch).Close()
	return out, err
}
