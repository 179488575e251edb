package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// brief runs a statement that waits only briefly for locks of others, in one round trip,
// and gives its rows by position. After a lock that it missed, isLockTimeout tells.
func brief[T any](ctx context.Context, s *Store, sql string, args ...any) ([]T, error) {
	return collect(ctx, s, pgx.RowToStructByPos[T], sql, args)
}

// briefColumn is brief for rows of one column.
func briefColumn[T any](ctx context.Context, s *Store, sql string, args ...any) ([]T, error) {
	return collect(ctx, s, pgx.RowTo[T], sql, args)
}

func collect[T any](ctx context.Context, s *Store, scan pgx.RowToFunc[T], sql string, args []any) (out []T, err error) {
	var batch pgx.Batch // without BEGIN it is one transaction by itself
	batch.Queue(setLockTimeout, milliseconds(briefly))
	batch.Queue(sql, args...).Query(func(rows pgx.Rows) (err error) {
		out, err = pgx.CollectRows(rows, scan)
		return err
	})
	err = s.reads.SendBatch(ctx, &batch).Close()
	return out, err
}
