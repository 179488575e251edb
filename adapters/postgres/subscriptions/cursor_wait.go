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
	cursorPause      = 3 * pg.ShortLockWait
)

// cursorWaits keeps polls that wait for cursors from using up the pool: of all polls that
// want one cursor, one waits in the database, and all cursors together leave a quarter of
// the connections to reads.
type cursorWaits struct {
	slots chan struct{}
	mu    sync.Mutex
	gates map[cursorKey]*cursorGate
}

type cursorKey struct {
	subscription event.ID
	partition    event.PartitionID
}

type cursorGate struct {
	turn    chan struct{} // of capacity 1
	wanting int
}

func newCursorWaits(connections int) *cursorWaits {
	return &cursorWaits{slots: make(chan struct{}, max(connections*3/4, 1)), gates: map[cursorKey]*cursorGate{}}
}

// enter waits for the turn at a cursor.
func (c *cursorWaits) enter(ctx context.Context, k cursorKey) (leave func(), err error) {
	c.mu.Lock()
	g := c.gates[k]
	if g == nil {
		g = &cursorGate{turn: make(chan struct{}, 1)}
		c.gates[k] = g
	}
	g.wanting++
	c.mu.Unlock()
	forget := func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if g.wanting--; g.wanting == 0 {
			delete(c.gates, k)
		}
	}
	select {
	case g.turn <- struct{}{}:
		return sync.OnceFunc(func() { <-g.turn; forget() }), nil
	case <-ctx.Done():
		forget()
		return nil, ctx.Err()
	}
}

// slot waits for the right to a connection.
func (c *cursorWaits) slot(ctx context.Context) (free func(), err error) {
	select {
	case c.slots <- struct{}{}:
		return sync.OnceFunc(func() { <-c.slots }), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// cursorHeld is the error of a cursor that another session holds; nothing was written.
type cursorHeld struct{ error }

func (c cursorHeld) Unwrap() error { return c.error }

// deliverInTurn waits for the cursor, in short attempts, as long as the store has
// patience.
func (s *Store) deliverInTurn(ctx context.Context, k cursorKey, once func(free func()) error) error {
	patient, cancel := context.WithTimeout(ctx, s.db.Config.Limits.LockTimeout)
	defer cancel()
	out := func(err error) error {
		if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
			return pg.LockHeldFault(err)
		}
		return err
	}
	leave, err := s.cursors.enter(patient, k)
	if err != nil {
		return out(err)
	}
	defer leave()
	for pause := firstCursorPause; ; pause = min(2*pause, cursorPause) {
		free, err := s.cursors.slot(patient)
		if err != nil {
			return out(err)
		}
		err = once(func() { free(); leave() })
		free()
		if _, held := errors.AsType[cursorHeld](err); !held {
			return err
		}
		if err := ports.Sleep(patient, pause); err != nil {
			return out(err)
		}
	}
}

// waitForCursor locks a cursor in one round trip; what comes after it in the transaction
// has the usual patience.
func (s *Store) waitForCursor(ctx context.Context, tx pgx.Tx, k cursorKey) (row subscriptionsdb.LockSubscriptionCursorRow, err error) {
	var batch pgx.Batch
	batch.Queue(pg.SetLockTimeout, pg.Milliseconds(pg.ShortLockWait))
	batch.Queue(subscriptionsdb.LockSubscriptionCursor, pg.UUID(k.subscription), int32(k.partition)).Query(func(rows pgx.Rows) (err error) {
		row, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[subscriptionsdb.LockSubscriptionCursorRow])
		return err
	})
	batch.Queue(pg.SetLockTimeout, pg.Milliseconds(s.db.Config.Limits.LockTimeout))
	if err = tx.SendBatch(ctx, &batch).Close(); pg.IsLockTimeout(err) {
		err = cursorHeld{err}
	}
	return row, err
}
