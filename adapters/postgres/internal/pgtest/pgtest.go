// Package pgtest holds the fixtures that the tests of several packages share: migrated
// databases, open stores, partitions, invoices and a key store. Only tests import it.
package pgtest

import (
	"context"
	"log/slog"
	"net/url"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/postgres"
	"github.com/erpbackbone/backbone/adapters/postgres/migrate"
	"github.com/erpbackbone/backbone/configs"
	"github.com/erpbackbone/backbone/ports"
	backbonesql "github.com/erpbackbone/backbone/sql/backbone"
	keystoresql "github.com/erpbackbone/backbone/sql/keystore"
	"github.com/erpbackbone/backbone/test/testkit"
)

// LogName is the name of every log in these tests.
const LogName = "test.example.org"

// WaitLimit bounds a test's wait for something that must happen, so that a failing test ends
// instead of hanging. It is no expectation of speed.
const WaitLimit = time.Minute

// Receive reads a value from a channel and fails the test after WaitLimit.
func Receive[T any](t testing.TB, from <-chan T, what string) (v T) {
	t.Helper()
	limit := time.NewTimer(WaitLimit)
	defer limit.Stop()
	select {
	case v = <-from:
	case <-limit.C:
		require.Fail(t, "it did not come: "+what)
	}
	return v
}

// Database creates a migrated database for the test and returns its superuser DSN.
func Database(t testing.TB) string {
	t.Helper()
	fingerprint, err := testkit.Fingerprint(backbonesql.Migrations, keystoresql.Migrations)
	require.NoError(t, err)
	return testkit.Database(t, func(ctx context.Context, dsn string) error {
		return migrate.Run(ctx, dsn, nil)
	}, "backbone_"+fingerprint)
}

// As changes a superuser's DSN so that its sessions have the rights of a role. Passwords of
// roles belong to the whole server, which all tests share, so none are set.
func As(role, dsn string) string {
	u, err := url.Parse(dsn)
	if err != nil {
		panic(err)
	}
	q := u.Query()
	q.Set("role", role)
	u.RawQuery = q.Encode()
	return u.String()
}

// machineClock is the clock of this machine.
type machineClock struct{}

func (machineClock) Now() time.Time { return time.Now() }

// Option changes the configuration of a store under test.
type Option func(*postgres.Config)

func WithClock(c ports.Clock) Option {
	return func(config *postgres.Config) { config.Clock, config.Limits.MaxClockSkew = c, -1 }
}

// Config is the default configuration of a server, with a small pool.
func Config(dsn string) postgres.Config {
	defaults := configs.Default()
	return postgres.Config{
		DSN: dsn, ReadPool: 4, Appenders: defaults.Database.Appenders, PhysicalPartitions: defaults.Database.PhysicalPartitions,
		Limits: postgres.Limits(defaults.Engine), Clock: machineClock{}, Logger: testLogger(), Metrics: &Groups{},
	}
}

// Open opens a store as the application's role. Its timeouts are so long that none ends a
// session while a test, or a slow machine, pauses it.
func Open(t testing.TB, superuserDSN string, options ...Option) *postgres.Database {
	t.Helper()
	config := Config(As("backbone_app", superuserDSN))
	SetTimeouts(&config, 2*WaitLimit)
	for _, o := range options {
		o(&config)
	}
	s, err := postgres.Open(t.Context(), config)
	require.NoError(t, err)
	observers.Store(s, config.Metrics)
	t.Cleanup(func() { s.Close(); observers.Delete(s) })
	return s
}

// observers holds the metrics of open stores by *postgres.Database.
var observers sync.Map

// Observer returns the metrics of a store.
func Observer(s *postgres.Database) *Groups {
	m, _ := observers.Load(s)
	g, _ := m.(*Groups)
	return g
}

// Connect opens a connection that ends with the test.
func Connect(t testing.TB, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func Execute(t testing.TB, dsn, statement string) {
	t.Helper()
	conn := Connect(t, dsn)
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

func WithoutPhysicalPartitions(c *postgres.Config) { c.PhysicalPartitions = 0 }

// WithPhysicalPartitions gives the first n legal entities tables of their own.
func WithPhysicalPartitions(n int) Option {
	return func(c *postgres.Config) { c.PhysicalPartitions = n }
}

func LegalEntity(code string) ports.LegalEntity {
	return ports.LegalEntity{TenantID: "demo", Code: code, TimeZone: "UTC"}
}

// SetTimeouts sets all timeouts of a store's sessions to d.
func SetTimeouts(c *postgres.Config, d time.Duration) {
	l := &c.Limits
	l.GroupTimeout, l.LockTimeout, l.LeaseLockTimeout, l.IdleTimeout, l.ProjectionIdleTimeout, l.NotifyTimeout = d, d, d, d, d, d
}

// WithDefaultLimits gives a store the limits and timeouts of a server.
func WithDefaultLimits(c *postgres.Config) { c.Limits = postgres.Limits(configs.Default().Engine) }

// SetLockTimeout bounds how long a store's sessions wait for locks.
func SetLockTimeout(c *postgres.Config, d time.Duration) { c.Limits.LockTimeout = d }
