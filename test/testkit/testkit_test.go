package testkit_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/test/testkit"
)

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	connection, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = connection.Close(context.Background()) }) // the test's database may be gone already
	return connection
}

func TestDatabase(t *testing.T) {
	t.Parallel()
	var built atomic.Int32
	name := "testkit-" + rand.Text() // never used before: templates live as long as the server
	migrate := func(ctx context.Context, dsn string) error {
		built.Add(1)
		connection, err := pgx.Connect(ctx, dsn)
		if err != nil {
			return err
		}
		_, err = connection.Exec(ctx, "CREATE TABLE counters AS SELECT 0 AS n")
		return errors.Join(err, connection.Close(ctx))
	}
	var database string
	t.Run("in use", func(t *testing.T) {
		for i := range 4 {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				connection := connect(t, testkit.Database(t, migrate, name))
				var n int
				require.NoError(t, connection.QueryRow(t.Context(), "UPDATE counters SET n = n + 1 RETURNING n").Scan(&n))
				require.Equal(t, 1, n, "other tests' writes are not here")
				if i == 0 {
					require.NoError(t, connection.QueryRow(t.Context(), "SELECT current_database()").Scan(&database))
				}
			})
		}
	})
	require.EqualValues(t, 1, built.Load(), "the template is built once")
	var exists bool
	admin := connect(t, testkit.Server(t))
	require.NoError(t, admin.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", database).Scan(&exists))
	require.False(t, exists, "the database goes with its test, open connections or not")
}

func TestFingerprint(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, tree := range []fstest.MapFS{
		{"a.sql": {Data: []byte("1")}},
		{"a.sql": {Data: []byte("2")}},
		{"b.sql": {Data: []byte("1")}},
		{"a.sql": {Data: []byte("1")}, "b.sql": {Data: []byte("")}},
	} {
		digest, err := testkit.Fingerprint(tree)
		require.NoError(t, err)
		require.False(t, seen[digest])
		seen[digest] = true
	}
}

func TestClock(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	clock := testkit.NewClock(start)
	require.Equal(t, start, clock.Now())
	clock.Advance(time.Hour)
	require.Equal(t, start.Add(time.Hour), clock.Now())
	clock.Set(start)
	require.Equal(t, start, clock.Now())
}

func TestRunningClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		clock := testkit.NewRunningClock(start)
		<-time.After(time.Minute)
		require.Equal(t, start.Add(time.Minute), clock.Now())
		clock.Advance(time.Hour)
		require.Equal(t, start.Add(time.Hour+time.Minute), clock.Now())
		clock.Set(start)
		<-time.After(time.Second)
		require.Equal(t, start.Add(time.Second), clock.Now())
	})
}

func TestEventually(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		attempts, begun := 0, time.Now()
		testkit.Eventually(t, time.Minute, func() bool { attempts++; return attempts == 3 })
		testkit.EventuallyNoError(t, time.Minute, func() error {
			if attempts++; attempts < 6 {
				return errors.New("not yet")
			}
			return nil
		})
		require.Equal(t, 6, attempts)
		require.Equal(t, 40*time.Millisecond, time.Since(begun), "ten milliseconds after each attempt that failed")
	})
}

func TestRepoRoot(t *testing.T) {
	t.Parallel()
	require.FileExists(t, filepath.Join(testkit.RepoRoot(t), "go.mod"))
}
