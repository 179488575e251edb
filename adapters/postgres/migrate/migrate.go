// Package migrate brings databases to the newest schema: Run the log's, with the schemas of
// modules, and KeyStore that of a key store. Both connect as the owner; the server never
// does.
package migrate

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
	backbonesql "github.com/erpbackbone/backbone/sql/backbone"
)

// ownerRole owns everything that migrations create.
const ownerRole = "backbone_owner"

// Set is the migrations of one module: goose files, forward only, with
// their own version table.
type Set struct {
	Name string // lower-case letters, digits and underscores
	FS   fs.FS  // files at its root
}

var setName = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)

// Run brings the database to the newest version: roles, the store's own schema, the key
// store (see KeyStore), then each module's set in the given order. Callers may run it
// again at any time, also in several processes at once: with a lock row that does not
// depend on the session (poolers), one of them works while the other ones wait. The DSN is that of a
// superuser, of a member of backbone_owner, or of backbone_owner itself; through
// a transaction pooler it must be backbone_owner. progress may be nil; it receives
// one line per step. Fault store.migration_failed names the file that failed.
func Run(ctx context.Context, ownerDSN string, progress func(string), sets ...Set) error {
	if progress == nil {
		progress = func(string) {}
	}
	if err := prepareOwner(ctx, ownerDSN, progress); err != nil {
		return migrationFault("preparing the roles", err)
	}
	config, err := pgx.ParseConfig(ownerDSN)
	if err != nil {
		return pg.InvalidDSN("the database address")
	}
	db := stdlib.OpenDB(*config, stdlib.OptionAfterConnect(becomeOwner))
	defer db.Close()
	own, err := fs.Sub(backbonesql.Migrations, "migrations")
	if err != nil {
		return err
	}
	for i, set := range append([]Set{{Name: "backbone", FS: own}}, sets...) {
		if !setName.MatchString(set.Name) {
			return fault.New(fault.Internal, pg.CodeInternal, "migration set %q is not a lower-case name", set.Name)
		}
		where := bookkeeping{versions: "backbone.migrations_" + set.Name, lock: "backbone.migration_lock", lockID: int64(i + 1)}
		if err := migrateSet(ctx, db, set, where, progress); err != nil {
			return err
		}
		if i == 0 {
			if err := KeyStore(ctx, ownerDSN, progress); err != nil {
				return err
			}
		}
	}
	return nil
}

// becomeOwner makes backbone_owner the owner of what the session creates. A
// session that is that role already needs nothing, which is how poolers work.
func becomeOwner(ctx context.Context, conn *pgx.Conn) error {
	if conn.Config().User == ownerRole {
		return nil
	}
	_, err := conn.Exec(ctx, "SET ROLE "+ownerRole)
	return err
}

// prepareOwner creates what the migrations cannot: roles, the right to create
// schemas, and the schema that holds the version tables.
func prepareOwner(ctx context.Context, dsn string, progress func(string)) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, backbonesql.Roles); err != nil {
		return err
	}
	var mayCreate, exists bool
	if err := conn.QueryRow(ctx, `SELECT has_database_privilege('`+ownerRole+`', current_database(), 'CREATE'),
		to_regnamespace('backbone') IS NOT NULL`).Scan(&mayCreate, &exists); err != nil {
		return err
	}
	if !mayCreate {
		// Concurrent grants on one database row fail with "tuple concurrently updated".
		if err := retryConcurrentUpdate(ctx, func() error {
			_, err := conn.Exec(ctx, `GRANT CREATE ON DATABASE `+pgx.Identifier{conn.Config().Database}.Sanitize()+` TO `+ownerRole)
			return err
		}); err != nil {
			return err
		}
	}
	if exists {
		return nil
	}
	if err := becomeOwner(ctx, conn); err != nil {
		return err
	}
	progress("creating schema backbone")
	_, err = conn.Exec(ctx, "CREATE SCHEMA IF NOT EXISTS backbone")
	if pg.ViolatesConstraint(err, "pg_namespace_nspname_index") {
		return nil // another process was faster
	}
	return err
}

func retryConcurrentUpdate(ctx context.Context, f func() error) error {
	var err error
	for range 5 {
		if err = f(); err == nil {
			return nil
		}
		var pgErr interface{ SQLState() string }
		if !errors.As(err, &pgErr) || pgErr.SQLState() != "XX000" {
			return err
		}
		if err := ports.Sleep(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	return err
}

// bookkeeping names the tables in which a set's versions and lock are kept.
type bookkeeping struct {
	versions string
	lock     string
	lockID   int64
}

func migrateSet(ctx context.Context, db *sql.DB, set Set, where bookkeeping, progress func(string)) error {
	locker, err := lock.NewPostgresTableLocker(
		lock.WithTableName(where.lock), lock.WithTableLockID(where.lockID),
		lock.WithTableLockTimeout(time.Second, 300))
	if err != nil {
		return migrationFault("preparing the lock", err)
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, db, set.FS,
		goose.WithTableName(where.versions),
		goose.WithLocker(locker), goose.WithDisableGlobalRegistry(true), goose.WithLogger(goose.NopLogger()))
	if errors.Is(err, goose.ErrNoMigrations) {
		return nil
	}
	if err != nil {
		return migrationFault("reading the migrations of "+set.Name, err)
	}
	results, err := provider.Up(ctx)
	for _, r := range results {
		if r.Error == nil {
			progress(fmt.Sprintf("%s: %s (%s)", set.Name, r.Source.Path, r.Duration.Round(time.Millisecond)))
		}
	}
	if err != nil {
		step := "migrating " + set.Name
		if partial, ok := errors.AsType[*goose.PartialError](err); ok && partial.Failed != nil {
			step = fmt.Sprintf("%s of %s", partial.Failed.Source.Path, set.Name)
		}
		return migrationFault(step, err)
	}
	return nil
}

// migrationFault may keep the whole cause: migrations hold no values of callers.
func migrationFault(step string, err error) error {
	return fault.New(fault.Internal, "store.migration_failed", "migration stopped at: %s; correct the cause in the log and run it again", step).WithCause(err)
}
