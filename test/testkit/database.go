package testkit

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// buildLock is the advisory lock under which template databases are built, all of
// them: migrations create roles, which belong to the whole server.
const buildLock = 0x6261636b626f6e65

// templates remembers which templates this process has seen complete.
var templates sync.Map // name -> func() error, once

// Database makes a database for the test and returns the superuser's DSN for
// it. The database is a copy of a template, which migrate fills once for all tests
// that name the same template; the database is dropped when the test ends.
//
// A template stays as it is for as long as the server lives, so its name must
// change with what migrate does: make it of a word and [Fingerprint] of the
// migrations. migrate must leave no connection open. A nil migrate makes an empty
// database.
func Database(t testing.TB, migrate func(ctx context.Context, superuserDSN string) error, templateName string) (superuserDSN string) {
	t.Helper()
	superuserDSN, drop, err := CreateDatabase(t.Context(), Server(t), migrate, templateName)
	if err != nil {
		t.Fatalf("testkit: %v", err)
	}
	t.Cleanup(func() {
		if err := drop(); err != nil {
			t.Errorf("testkit: dropping the test's database: %v", err)
		}
	})
	return superuserDSN
}

// CreateDatabase is Database for a database that several tests use. Its caller drops it.
func CreateDatabase(
	ctx context.Context, server string, migrate func(ctx context.Context, superuserDSN string) error, templateName string,
) (superuserDSN string, drop func() error, err error) {
	template := identifier("template_" + templateName)
	once, _ := templates.LoadOrStore(template, sync.OnceValue(func() error {
		return buildTemplate(context.Background(), server, template, migrate)
	}))
	if err := once.(func() error)(); err != nil {
		return "", nil, fmt.Errorf("template database %s: %w", template, err)
	}
	return copyDatabase(ctx, server, template)
}

// Copy makes a copy of a test's database, which is dropped when the test ends. Its caller has closed
// all sessions of the original: PostgreSQL copies no database that a session uses.
func Copy(t testing.TB, superuserDSN string) (copyDSN string) {
	t.Helper()
	config, err := pgx.ParseConfig(superuserDSN)
	if err != nil {
		t.Fatalf("testkit: %v", err)
	}
	copyDSN, drop, err := copyDatabase(t.Context(), Server(t), config.Database)
	if err != nil {
		t.Fatalf("testkit: %v", err)
	}
	t.Cleanup(func() {
		if err := drop(); err != nil {
			t.Errorf("testkit: dropping the copy of a database: %v", err)
		}
	})
	return copyDSN
}

func copyDatabase(ctx context.Context, server, original string) (superuserDSN string, drop func() error, err error) {
	name := "test_" + rand.Text()
	// FILE_COPY: the original is small and the server does not sync, so copying
	// files is cheaper than logging every page.
	err = retryWhileInUse(func() error {
		return administrate(ctx, server, fmt.Sprintf(`CREATE DATABASE %q TEMPLATE %q STRATEGY FILE_COPY`, name, original))
	})
	if err != nil {
		return "", nil, fmt.Errorf("creating a database from %s: %w", original, err)
	}
	return withDatabase(server, name), func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		return retryWhileInUse(func() error {
			return administrate(ctx, server, fmt.Sprintf(`DROP DATABASE IF EXISTS %q WITH (FORCE)`, name))
		})
	}, nil
}

// DropTemplate drops a template that no later run uses.
func DropTemplate(ctx context.Context, server, templateName string) error {
	return execute(ctx, server, fmt.Sprintf(`DROP DATABASE IF EXISTS %q`, identifier("template_"+templateName)))
}

// Fingerprint is a short digest of all files of the given trees, such as embedded
// migrations, for the name of a template.
func Fingerprint(trees ...fs.FS) (string, error) {
	digest := sha256.New()
	for _, tree := range trees {
		err := fs.WalkDir(tree, ".", func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			content, err := fs.ReadFile(tree, path)
			if err != nil {
				return err
			}
			fmt.Fprintf(digest, "%s\x00%d\x00", path, len(content))
			digest.Write(content)
			return nil
		})
		if err != nil {
			return "", fmt.Errorf("testkit: fingerprint: %w", err)
		}
	}
	return hex.EncodeToString(digest.Sum(nil)[:8]), nil
}

// buildTemplate makes the template database unless it is there already. It is
// built under another name, so a build that was killed is not taken for done.
func buildTemplate(ctx context.Context, admin, template string, migrate func(context.Context, string) error) (err error) {
	connection, err := pgx.Connect(ctx, admin)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, connection.Close(ctx)) }() // releases the lock
	if _, err := connection.Exec(ctx, "SELECT pg_advisory_lock($1)", int64(buildLock)); err != nil {
		return err
	}
	var exists bool
	if err := connection.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", template).Scan(&exists); err != nil || exists {
		return err
	}
	const building = "template_being_built"
	for _, statement := range []string{
		`DROP DATABASE IF EXISTS ` + building + ` WITH (FORCE)`,
		`CREATE DATABASE ` + building + ` TEMPLATE template0`,
	} {
		if _, err := connection.Exec(ctx, statement); err != nil {
			return err
		}
	}
	if migrate != nil {
		if err := migrate(ctx, withDatabase(admin, building)); err != nil {
			return err
		}
	}
	for _, statement := range []string{
		// No session can connect any more, so none blocks a copy.
		`ALTER DATABASE ` + building + ` WITH ALLOW_CONNECTIONS false`,
		`SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = '` + building + `'`,
		fmt.Sprintf(`ALTER DATABASE %s RENAME TO %q`, building, template),
	} {
		err := retryWhileInUse(func() error { _, err := connection.Exec(ctx, statement); return err })
		if err != nil {
			return err
		}
	}
	return nil
}

// objectInUse is the SQLSTATE when sessions that the server has terminated still exist after
// five seconds.
const objectInUse = "55006"

// retryWhileInUse retries while sessions of the database are still ending: on a busy
// machine that takes longer than the five seconds that the server waits for them.
func retryWhileInUse(try func() error) error {
	for until := time.Now().Add(time.Minute); ; {
		err := try()
		refused, ok := errors.AsType[*pgconn.PgError](err)
		if !ok || refused.Code != objectInUse || time.Now().After(until) {
			return err
		}
	}
}

var notIdentifier = regexp.MustCompile(`[^a-z0-9_]+`)

// identifier makes a database name out of any text; what PostgreSQL would cut off
// is replaced by a digest.
func identifier(text string) string {
	name := notIdentifier.ReplaceAllString(text, "_")
	if name == text && len(name) <= 63 {
		return name
	}
	digest := sha256.Sum256([]byte(text))
	return name[:min(len(name), 46)] + "_" + hex.EncodeToString(digest[:8])
}

// withDatabase is the same DSN for another database.
func withDatabase(dsn, database string) string {
	u, err := url.Parse(dsn)
	if err != nil || u.Scheme == "" {
		// Keywords and values: the last one counts.
		return dsn + " dbname=" + database
	}
	u.Path = "/" + database
	return u.String()
}

// idleAdministrators are connections to the server of tests that make and drop databases. A
// connection costs as much processor time as half a database.
var idleAdministrators = make(chan *pgx.Conn, 4)

// administrate executes a statement on a connection of idleAdministrators, or on a new one.
func administrate(ctx context.Context, server, statement string) error {
	var connection *pgx.Conn
	select {
	case connection = <-idleAdministrators:
	default:
		var err error
		if connection, err = pgx.Connect(ctx, server); err != nil {
			return err
		}
	}
	_, err := connection.Exec(ctx, statement)
	if connection.IsClosed() {
		return err
	}
	select {
	case idleAdministrators <- connection:
		return err
	default:
		return errors.Join(err, connection.Close(ctx))
	}
}

func execute(ctx context.Context, dsn, statement string) error {
	connection, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	_, err = connection.Exec(ctx, statement)
	return errors.Join(err, connection.Close(ctx))
}

func ping(ctx context.Context, dsn string) error {
	return execute(ctx, dsn, "SELECT 1")
}
