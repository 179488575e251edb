package subscriptions

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/subscriptionsdb"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

// Pauses between attempts to lock a subscription's cursor that another session holds, the
// first and the longest. No connection is held during a pause.
const (
	firstCursorPause = 20 * time.Millisecond
	maxCursorPause   = 3 * pg.ShortLockWait
)

// cursorWaits keeps polls that wait for locked cursors from using up the pool. Of all polls
// that want one cursor, one waits in the database, and all cursors together leave a quarter
// of the connections to reads.
type cursorWaits struct {
	connections chan struct{} // as many tokens as connections may wait
	mu          sync.Mutex
	gates       map[cursorKey]*cursorGate
}

type cursorKey struct {
	subscription event.ID
	partition    event.PartitionID
}

type cursorGate struct {
	token   chan struct{} // of the poll that waits in the database
	waiters int
}

func newCursorWaits(connections int) *cursorWaits {
	return &cursorWaits{connections: make(chan struct{}, max(connections*3/4, 1)), gates: map[cursorKey]*cursorGate{}}
}

// enter waits until no other poll of this node waits for the cursor.
func (c *cursorWaits) enter(ctx context.Context, k cursorKey) (leave func(), err error) {
	c.mu.Lock()
	g := c.gates[k]
	if g == nil {
		g = &cursorGate{token: make(chan struct{}, 1)}
		c.gates[k] = g
	}
	g.waiters++
	c.mu.Unlock()
	release, err := acquire(ctx, g.token)
	if release == nil {
		release = func() {}
	}
	leave = sync.OnceFunc(func() {
		release()
		c.mu.Lock()
		defer c.mu.Unlock()
		if g.waiters--; g.waiters == 0 {
			delete(c.gates, k)
		}
	})
	if err != nil {
		leave()
	}
	return leave, err
}

// acquire waits for a token of a channel.
func acquire(ctx context.Context, tokens chan struct{}) (release func(), err error) {
	select {
	case tokens <- struct{}{}:
		return sync.OnceFunc(func() { <-tokens }), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// cursorLocked is the error of a cursor that another session holds; nothing was written.
type cursorLocked struct{ error }

func (c cursorLocked) Unwrap() error { return c.error }

// retryWhileLocked repeats attempt while another session holds the cursor, for at most the lock
// timeout.
func (s *Store) retryWhileLocked(ctx context.Context, k cursorKey, attempt func(locked func()) error) error {
	bounded, cancel := context.WithTimeout(ctx, s.db.Config.Limits.LockTimeout)
	defer cancel()
	translate := func(err error) error {
		if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
			return pg.LockHeldFault(err)
		}
		return err
	}
	leave, err := s.cursors.enter(bounded, k)
	if err != nil {
		return translate(err)
	}
	defer leave()
	for pause := firstCursorPause; ; pause = min(2*pause, maxCursorPause) {
		release, err := acquire(bounded, s.cursors.connections)
		if err != nil {
			return translate(err)
		}
		err = attempt(func() { release(); leave() })
		release()
		if _, held := errors.AsType[cursorLocked](err); !held {
			return err
		}
		if err := ports.Sleep(bounded, pause); err != nil {
			return translate(err)
		}
	}
}

// waitForCursor locks a cursor in one round trip, with a short lock timeout. Later statements
// of the transaction have the usual one.
func (s *Store) waitForCursor(ctx context.Context, tx pgx.Tx, k cursorKey) (row subscriptionsdb.LockSubscriptionCursorRow, err error) {
	var batch pgx.Batch
	batch.Queue(pg.SetLockTimeout, pg.Milliseconds(pg.ShortLockWait))
	batch.Queue(subscriptionsdb.LockSubscriptionCursor, pg.UUID(k.subscription), int32(k.partition)).Query(func(rows pgx.Rows) (err error) {
		row, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[subscriptionsdb.LockSubscriptionCursorRow])
		return err
	})
	batch.Queue(pg.SetLockTimeout, pg.Milliseconds(s.db.Config.Limits.LockTimeout))
	if err = tx.SendBatch(ctx, &batch).Close(); pg.IsLockTimeout(err) {
		err = cursorLocked{err}
	}
	return row, err
}
