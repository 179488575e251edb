package pgtest

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/erpbackbone/backbone/adapters/postgres"
	"github.com/erpbackbone/backbone/test/testkit"
)

// AwaitStalled waits until a partition is stalled, or has been.
func AwaitStalled(t *testing.T, g *Groups) {
	t.Helper()
	testkit.Eventually(t, WaitLimit, func() bool { return g.MaxStalled.Load() > 0 }, "a partition is stalled")
}

// AwaitLockWait waits until a stalled partition of the store waits for its lock in PostgreSQL.
// From then on it waits there until its deadline.
func AwaitLockWait(t *testing.T, s *postgres.Database, superuser *pgx.Conn) {
	t.Helper()
	AwaitStalled(t, Observer(s))
	testkit.Eventually(t, WaitLimit, func() bool { return CountLockWaiters(t, superuser) > 0 }, "it waits for the lock")
}
