package migrate

import (
	"context"
	"errors"
	"io/fs"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/domain/fault"
	backbonesql "github.com/erpbackbone/backbone/sql/backbone"
	keystoresql "github.com/erpbackbone/backbone/sql/keystore"
)

// keyStoreOwner owns the key store. Neither the server nor backbone_owner can
// become it.
const keyStoreOwner = "backbone_ks_owner"

// KeyStore brings the key store of a database to the newest version: roles,
// the schema keystore, its tables and functions. Migrate does it for the database
// of the log; a key store with an address of its own is migrated by this. The DSN
// is that of a superuser or of a member of backbone_ks_owner who may create
// schemas; not through a transaction pooler. Any other user is welcome as long as
// there is nothing to do.
//
// Faults: store.key_store_owner (FailedPrecondition: this user cannot become the
// key store's owner), store.migration_failed. progress may be nil.
func KeyStore(ctx context.Context, dsn string, progress func(string)) error {
	if progress == nil {
		progress = func(string) {}
	}
	files, err := fs.Sub(keystoresql.Migrations, "migrations")
	if err != nil {
		return err
	}
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return pg.InvalidDSN("the address of the key store's database")
	}
	todo, err := prepareKeyStore(ctx, config, files, progress)
	if err != nil || !todo {
		return err
	}
	db := stdlib.OpenDB(*config, stdlib.OptionAfterConnect(func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "SET ROLE "+keyStoreOwner)
		return err
	}))
	defer db.Close()
	where := bookkeeping{versions: "keystore.migrations", lock: "keystore.migration_lock", lockID: 1}
	return migrateSet(ctx, db, Set{Name: "keystore", FS: files}, where, progress)
}

// prepareKeyStore creates the roles and the schema and reports whether migrations
// may and must run.
func prepareKeyStore(ctx context.Context, config *pgx.ConnConfig, files fs.FS, progress func(string)) (todo bool, err error) {
	const step = "preparing the key store"
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return false, migrationFault(step, err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, backbonesql.Roles); err != nil {
		return false, migrationFault(step, err)
	}
	var member, exists bool
	if err := conn.QueryRow(ctx, `SELECT pg_has_role(session_user, '`+keyStoreOwner+`', 'MEMBER'), to_regnamespace('keystore') IS NOT NULL`).
		Scan(&member, &exists); err != nil {
		return false, migrationFault(step, err)
	}
	if !member {
		if exists && newest(ctx, conn, files) {
			return false, nil
		}
		return false, keyStoreOwnerFault()
	}
	if exists {
		return true, nil
	}
	progress("creating schema keystore")
	// The address may set another role.
	if _, err := conn.Exec(ctx, "SET ROLE NONE"); err != nil {
		return false, migrationFault(step, err)
	}
	_, err = conn.Exec(ctx, keystoresql.Schema)
	switch pgErr, ok := errors.AsType[*pgconn.PgError](err); {
	case err == nil, pg.ViolatesConstraint(err, "pg_namespace_nspname_index"): // another process was faster
		return true, nil
	case ok && pgErr.Code == pg.SQLStateDenied:
		return false, keyStoreOwnerFault()
	default:
		return false, migrationFault(step, err)
	}
}

// newest reports whether the last of the files has been applied; a key store whose
// version cannot be read is not.
func newest(ctx context.Context, conn *pgx.Conn, files fs.FS) bool {
	entries, err := fs.ReadDir(files, ".")
	if err != nil || len(entries) == 0 {
		return false
	}
	wanted, err := goose.NumericComponent(entries[len(entries)-1].Name())
	if err != nil {
		return false
	}
	var applied int64
	err = conn.QueryRow(ctx, `SELECT coalesce(keystore.schema_version(), 0)`).Scan(&applied)
	return err == nil && applied >= wanted
}

func keyStoreOwnerFault() *fault.Error {
	return fault.New(fault.FailedPrecondition, "store.key_store_owner",
		"the key store belongs to %s, which the user of this address cannot become or for which it cannot create a schema; "+
			"run the migration with the address of a superuser, or of a user who is a member of %s and may create schemas in the database", keyStoreOwner, keyStoreOwner)
}
