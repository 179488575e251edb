package migrate

import (
	"context"
	"io/fs"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// MigrateOwn brings the store's own schema to what the files of an earlier release are.
func MigrateOwn(ctx context.Context, dsn string, files fs.FS) error {
	if err := prepareOwner(ctx, dsn, func(string) {}); err != nil {
		return err
	}
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return err
	}
	db := stdlib.OpenDB(*config, stdlib.OptionAfterConnect(becomeOwner))
	defer db.Close()
	where := bookkeeping{versions: "backbone.migrations_backbone", lock: "backbone.migration_lock", lockID: 1}
	return migrateSet(ctx, db, Set{Name: "backbone", FS: files}, where, func(string) {})
}
