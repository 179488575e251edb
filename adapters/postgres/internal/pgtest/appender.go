package pgtest

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/postgres"
	"github.com/erpbackbone/backbone/domain/event"
)

// LockHead locks a partition's head row until release.
func LockHead(t *testing.T, dsn string, p event.PartitionID) (release func()) {
	t.Helper()
	conn := Connect(t, dsn)
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "SELECT FROM backbone.partition_heads WHERE partition_id = $1 FOR UPDATE", int32(p))
	require.NoError(t, err)
	return func() { require.NoError(t, tx.Rollback(context.Background())) }
}

// CountLockWaiters counts the sessions that wait for a lock in the test's database.
func CountLockWaiters(t *testing.T, conn *pgx.Conn) int {
	t.Helper()
	var n int
	require.NoError(t, conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
		WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&n))
	return n
}

// Groups records the groups, queue depth and stalled partitions of an engine, and can pause it.
type Groups struct {
	mu         sync.Mutex
	requests   []int
	codes      []string
	queued     int
	gate       *gate // of the next group
	Stalled    atomic.Int64
	MaxStalled atomic.Int64 // the highest Stalled
}

type gate struct{ reached, open chan struct{} }

func (g *Groups) ObserveAppend(_ time.Duration, _ int, code string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.codes = append(g.codes, code)
}

// Codes are those of the answered requests, "" for success.
func (g *Groups) Codes() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]string(nil), g.codes...)
}

func (g *Groups) ObserveGroup(requests, _ int, _ time.Duration) {
	g.mu.Lock()
	g.requests = append(g.requests, requests)
	at := g.gate
	g.gate = nil
	g.mu.Unlock()
	if at != nil {
		close(at.reached)
		<-at.open
	}
}

// PauseAfterCommit pauses the appender of the next group after its commit and before its
// answers, until resume. The paused appender holds no lock and takes no other request.
func (g *Groups) PauseAfterCommit(t *testing.T) (reached <-chan struct{}, resume func()) {
	t.Helper()
	at := &gate{make(chan struct{}), make(chan struct{})}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.gate = at
	resume = sync.OnceFunc(func() { close(at.open) })
	t.Cleanup(resume)
	return at.reached, resume
}

func (g *Groups) ObserveQueue(_, requests, _ int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.queued = requests
}

func (g *Groups) ObserveStalledPartitions(partitions int) {
	g.Stalled.Store(int64(partitions))
	g.MaxStalled.Store(max(g.MaxStalled.Load(), int64(partitions))) // calls do not overlap
}

func (g *Groups) Seen() []int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]int(nil), g.requests...)
}

func SingleAppender(c *postgres.Config) { c.Appenders = 1 }

// RequireVerified checks that a partition has no gap and that its chain verifies.
func RequireVerified(t *testing.T, s *postgres.Database, p event.PartitionID) (events int) {
	t.Helper()
	head, err := s.Events.Head(t.Context(), p)
	require.NoError(t, err)
	checksum := head.Genesis
	all, err := s.Audit.ChainPage(t.Context(), p, 0, 0)
	require.NoError(t, err)
	for i, e := range all {
		require.Equal(t, event.Sequence(i+1), e.Sequence)
		require.Equal(t, event.HashPayload(e.Salt, e.Payload), e.PayloadHash)
		checksum, _ = e.ChainChecksum(checksum, nil)
		require.Equal(t, checksum, e.Checksum)
	}
	require.Equal(t, head.Sequence, event.Sequence(len(all)))
	return len(all)
}
