package postgres_test

import (
	"context"
	"log/slog"
	"net/url"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/postgres"
	"github.com/erpbackbone/backbone/ports"
	backbonesql "github.com/erpbackbone/backbone/sql/backbone"
	keystoresql "github.com/erpbackbone/backbone/sql/keystore"
	"github.com/erpbackbone/backbone/test/testkit"
)

// logName is the name of every log in these tests.
const logName = "test.example.org"

// aWhile ends a wait for what is certain to come, so that a test that is wrong fails
// instead of hanging. It says nothing about how fast anything is.
const aWhile = time.Minute

// receive is what comes out of a channel.
func receive[T any](t testing.TB, from <-chan T, what string) (v T) {
	t.Helper()
	limit := time.NewTimer(aWhile)
	defer limit.Stop()
	select {
	case v = <-from:
	case <-limit.C:
		require.Fail(t, "it did not come: "+what)
	}
	return v
}

// database is a migrated database of the test's own, as a superuser sees it.
func database(t testing.TB) string {
	t.Helper()
	fingerprint, err := testkit.Fingerprint(backbonesql.Migrations, keystoresql.Migrations)
	require.NoError(t, err)
	return testkit.Database(t, func(ctx context.Context, dsn string) error {
		return postgres.Migrate(ctx, dsn, nil)
	}, "backbone_"+fingerprint)
}

// as is the same database for one of our roles. Passwords belong to the whole
// server, so the superuser connects and takes the role's rights.
func as(role, dsn string) string {
	u, err := url.Parse(dsn)
	if err != nil {
		panic(err)
	}
	q := u.Query()
	q.Set("role", role)
	u.RawQuery = q.Encode()
	return u.String()
}

// option changes the configuration of a store under test.
type option func(*postgres.Config)

func withClock(c ports.Clock) option {
	return func(config *postgres.Config) { config.Clock, config.MaxClockSkew = c, -1 }
}

// usual is for tests of how long a store waits, and lets itself be waited for.
func usual(c *postgres.Config) { postgres.Usual(c) }

// open opens a store as the application's role. Tests stop it, and what it waits for, in
// the middle, and a slow machine does the same: nothing ends because of that.
func open(t testing.TB, superuserDSN string, options ...option) *postgres.Store {
	t.Helper()
	config := postgres.Config{DSN: as("backbone_app", superuserDSN), Logger: testLogger(), ReadPoolSize: 4, Metrics: &groups{}}
	postgres.Unhurried(&config, 2*aWhile)
	for _, o := range options {
		o(&config)
	}
	s, err := postgres.Open(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

// connect is a connection of the test's own.
func connect(t testing.TB, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func execute(t testing.TB, dsn, statement string) {
	t.Helper()
	conn := connect(t, dsn)
	_, err := conn.Exec(t.Context(), statement)
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))
}

// testLogger is silent unless BACKBONE_TEST_LOG is set.
func testLogger() *slog.Logger {
	if os.Getenv("BACKBONE_TEST_LOG") == "" {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, nil))
}

func withoutPhysicalPartitions(c *postgres.Config) { c.PhysicalPartitions = -1 }

func legalEntity(code string) ports.LegalEntity {
	return ports.LegalEntity{TenantID: "demo", Code: code, TimeZone: "UTC"}
}
