package appender

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/domain/fault"
)

// write is the second round trip: inserts and commit. A group with a lease in another database
// takes two more: when all rows are written it probes the lease, and commits only if the lease
// still exists.
func (g *group) write(ctx context.Context, conn *pgxpool.Conn, ws []*queuedRequest) (transactionOutcome, error) {
	statements := g.writer.fill(g, ws)
	var batch pgx.Batch
	for _, s := range statements {
		batch.Queue(s.sql, s.args...)
	}
	if g.lease.pool != nil && g.writer.sealed() {
		if err := g.readWritten(conn.SendBatch(ctx, &batch), statements, nil); err != nil {
			return beforeCommit(err), err
		}
		if err := g.lease.probe(ctx); err != nil {
			return rolledBack, fmt.Errorf("%w: %w", errLeaseLost, pg.RedactError(err))
		}
		batch = pgx.Batch{}
		statements = statements[:0]
	}
	batch.Queue("commit")
	var tag pgconn.CommandTag
	if err := g.readWritten(conn.SendBatch(ctx, &batch), statements, &tag); err != nil {
		return atCommit(err), err
	}
	if tag.String() != "COMMIT" {
		return rolledBack, errCommitRolledBack
	}
	return committed, nil
}

// readWritten reads the answers to the statements, and to the commit if its tag is wanted. Only a
// defect, or a trigger of an operator, makes a row count differ from the expected one. Without a
// commit the group is refused then. A commit was sent in the same pipeline and cannot be stopped:
// operators are told, the group is committed and its callers get success.
func (g *group) readWritten(results pgx.BatchResults, statements []statement, commit *pgconn.CommandTag) error {
	defer results.Close()
	for _, s := range statements {
		tag, err := results.Exec()
		if err != nil {
			return err
		}
		if s.rows != anyRows && int(tag.RowsAffected()) != s.rows {
			g.engine.db.Log.Error("append wrote fewer rows than it should", "statement", s.name, "rows", tag.RowsAffected(), "expected", s.rows)
			if commit == nil {
				return errRowsDiffer()
			}
		}
	}
	if commit != nil {
		tag, err := results.Exec()
		if err != nil {
			return err
		}
		*commit = tag
	}
	return results.Close()
}

// errRowsDiffer refuses a group before its commit.
func errRowsDiffer() *fault.Error {
	return fault.New(fault.Internal, pg.CodeInternal, "the database would store other rows than the append has, so nothing was written; have an operator look for triggers and rules on the tables of the log, and report a defect of the program if there are none")
}

// errCommitRolledBack says that the server answered COMMIT with ROLLBACK: nothing was written.
var errCommitRolledBack = errors.New("the commit was answered by a rollback")

// errCommitNotFound is resolveOutcome's result for a group that was not committed and may run
// again.
var errCommitNotFound = errors.New("the group was not committed")

// atCommit classifies an error of the commit. An error that the server reported in a session
// that goes on means that the transaction was rolled back; after any other the outcome is
// unknown.
func atCommit(err error) transactionOutcome {
	if pg.IsConnectionLost(err) {
		return outcomeUnknown
	}
	return rolledBack
}
