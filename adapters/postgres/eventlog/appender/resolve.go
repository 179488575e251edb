package appender

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/appenderdb"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/domain/event"
)

// resolveOutcome finds out whether a group was committed whose connection was lost at
// commit. On a new connection it takes the group's head locks, which the server holds for
// the lost session until that session's transaction has ended. Then it looks for one row of
// the group: all rows of the group are there or none. It returns committed, rolledBack with
// errCommitNotFound, or, after resolveTries failures, outcomeUnknown. After a failover it asks the
// new primary: a commit that the failover lost counts as rolled back, and the group runs again.
func (g *group) resolveOutcome(ws []*queuedRequest) (transactionOutcome, error) {
	var err error
	for try := range resolveTries {
		if try > 0 {
			time.Sleep(resolvePause << try)
		}
		var found bool
		found, err = g.findCommitMarker(ws)
		switch {
		case err != nil:
			continue
		case found:
			return committed, nil
		default:
			return rolledBack, errCommitNotFound
		}
	}
	return outcomeUnknown, err
}

func (g *group) findCommitMarker(ws []*queuedRequest) (found bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), g.engine.limits.GroupTimeout)
	defer cancel()
	conn, err := g.engine.pool.Acquire(ctx)
	if err != nil {
		return false, err
	}
	defer func() {
		if err != nil {
			discard(conn)
			return
		}
		conn.Release()
	}()
	g.facts.reset()
	isCommitted := g.wantCommitMarker(ws)
	if err := g.lockHeads(ctx, conn); err != nil {
		return false, err
	}
	if err := g.readPending(ctx, conn); err != nil {
		return false, err
	}
	if _, err := conn.Exec(ctx, "rollback"); err != nil {
		return false, err
	}
	return isCommitted(), nil
}

func (g *group) lockHeads(ctx context.Context, conn *pgxpool.Conn) error {
	var batch pgx.Batch
	batch.Queue(beginAppend)
	batch.Queue(pg.SetLockTimeout, pg.Milliseconds(g.engine.limits.LockTimeout)) // IdleTimeout ends the lost session before it
	batch.Queue(appenderdb.LockPartitionHeads, g.partitionIDs)
	return conn.SendBatch(ctx, &batch).Close()
}

// wantCommitMarker asks for a row that only this group can have written, an event or an
// idempotency key, and returns a function that judges the row.
func (g *group) wantCommitMarker(ws []*queuedRequest) (isCommitted func() bool) {
	if len(g.events) > 0 {
		k := idKey{g.events[0].Partition, g.events[0].ID}
		g.facts.sequences.want(k)
		want := g.events[0].Sequence
		return func() bool { return g.facts.sequences.rows[k] == want }
	}
	for i, w := range ws {
		if c := w.request.Idempotency; g.verdicts[i].writes && c != nil {
			k := textKey{w.request.Partition, c.Key}
			g.facts.idempotency.want(k)
			want := idempotencyRow{g.verdicts[i].outcome, event.Micros(c.ExpiresAt)}
			return func() bool {
				row := g.facts.idempotency.rows[k]
				return row.outcome == want.outcome && row.expiresAt.Equal(want.expiresAt)
			}
		}
	}
	return func() bool { return false }
}
