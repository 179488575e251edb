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
// errCommitNotFound, or, after resolveTries failures or where the row does not tell,
// outcomeUnknown. After a failover it asks the new primary: a commit that the failover lost
// counts as rolled back, and the group runs again.
func (g *group) resolveOutcome(ws []*queuedRequest) (transactionOutcome, error) {
	var err error
	for try := range resolveTries {
		if try > 0 {
			time.Sleep(resolvePause << try)
		}
		var found, certain bool
		found, certain, err = g.findCommitMarker(ws)
		switch {
		case err != nil:
			continue
		case !certain:
			return outcomeUnknown, nil
		case found:
			return committed, nil
		default:
			return rolledBack, errCommitNotFound
		}
	}
	return outcomeUnknown, err
}

func (g *group) findCommitMarker(ws []*queuedRequest) (found, certain bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), g.engine.limits.GroupTimeout)
	defer cancel()
	conn, err := g.engine.pool.Acquire(ctx)
	if err != nil {
		return false, false, err
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
		return false, false, err
	}
	if err := g.readPending(ctx, conn); err != nil {
		return false, false, err
	}
	if _, err := conn.Exec(ctx, "rollback"); err != nil {
		return false, false, err
	}
	found, certain = isCommitted()
	return found, certain, nil
}

func (g *group) lockHeads(ctx context.Context, conn *pgxpool.Conn) error {
	var batch pgx.Batch
	batch.Queue(beginAppend)
	batch.Queue(pg.SetLockTimeout, pg.Milliseconds(g.engine.limits.LockTimeout)) // IdleTimeout ends the lost session before it
	batch.Queue(appenderdb.LockPartitionHeads, g.partitionIDs)
	return conn.SendBatch(ctx, &batch).Close()
}

// wantCommitMarker asks for a row that only this group can have written and returns a
// function that judges the row. The answer is certain for events and idempotency keys, and
// for an intent without either unless another transaction has changed the intent since.
func (g *group) wantCommitMarker(ws []*queuedRequest) (isCommitted func() (found, certain bool)) {
	if len(g.events) > 0 {
		k := idKey{g.events[0].Partition, g.events[0].ID}
		g.facts.sequences.want(k)
		want := g.events[0].Sequence
		return func() (bool, bool) { return g.facts.sequences.rows[k] == want, true }
	}
	for i, w := range ws {
		if c := w.request.Idempotency; g.verdicts[i].writes && c != nil {
			k := textKey{w.request.Partition, c.Key}
			g.facts.idempotency.want(k)
			want := idempotencyRow{g.verdicts[i].outcome, event.Micros(c.ExpiresAt)}
			return func() (bool, bool) {
				row := g.facts.idempotency.rows[k]
				return row.outcome == want.outcome && row.expiresAt.Equal(want.expiresAt), true
			}
		}
	}
	for i, w := range ws {
		if !g.verdicts[i].writes {
			continue
		}
		in := w.request.Intent
		k := idKey{w.request.Partition, in.Intent.ID}
		g.facts.intents.want(k)
		return func() (bool, bool) {
			row := g.facts.intents.rows[k]
			if row.revision <= in.ExpectedRevision {
				return false, true
			}
			same := row.revision == in.ExpectedRevision+1 && row.status == string(in.Intent.Status) &&
				row.updatedAt.Equal(in.Intent.UpdatedAt.Truncate(time.Microsecond))
			return same, same
		}
	}
	return func() (bool, bool) { return false, true }
}
