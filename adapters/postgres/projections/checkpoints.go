// Package projections stores the checkpoints and rows of read models. [Checkpoints] runs a
// handler in the transaction that locks the checkpoint of a projection in a partition;
// [Versions] is the register of projections, which builds a new version beside the active one
// and switches to it; [Rows] stores the rows of custom projections; [Snapshots] saves the rows
// of a version; [Targets] recomputes the rows of single entities.
//
// application/projections and the HTTP API call it through ports. Every object locks the
// checkpoint's row before anything else, so that no two transactions write the rows of one
// version and partition. The package computes no row itself: handlers do.
package projections

import (
	"context"
	"math"

	"github.com/jackc/pgx/v5"

	"github.com/erpbackbone/backbone/adapters/postgres/eventlog"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/projectionsdb"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
)

// Checkpoints advances projections and stores the position of each in each partition.
type Checkpoints struct{ *work }

var _ ports.Projections = (*Checkpoints)(nil)

// New makes the store of checkpoints over db.
func New(db *pg.Database, events *eventlog.Reader) *Checkpoints {
	return &Checkpoints{&work{db: db, queries: projectionsdb.New(), events: events}}
}

// Advance implements ports.Projections. The handler's transaction is a pgx.Tx at READ COMMITTED.
// After a deadlock or serialization failure the handler is called again with the same events
// in a new transaction. The checkpoint also advances over events of other types.
func (s *Checkpoints) Advance(ctx context.Context, a ports.ProjectionAdvance, h ports.ProjectionHandler) (c ports.Checkpoint, passed int, err error) {
	c, err = s.onCheckpoint(ctx, a.ProjectionWork, func(tx pgx.Tx, c *ports.Checkpoint) (bool, error) {
		passed = 0
		if c.Status == projection.Halted {
			return false, nil
		}
		passed, err = s.apply(ctx, tx, a, h, c)
		return passed > 0, err
	})
	if err != nil {
		passed = 0
	}
	return c, passed, err
}

// apply gives the handler the events after a checkpoint that tx has locked.
func (s *work) apply(ctx context.Context, tx pgx.Tx, a ports.ProjectionAdvance, h ports.ProjectionHandler, c *ports.Checkpoint) (passed int, err error) {
	events, last, err := s.events.EventsOf(ctx, tx, &a, c.Sequence)
	if err != nil || last == nil {
		return 0, err
	}
	passed = int(last.Sequence - c.Sequence)
	if len(events) > 0 {
		b := ports.ProjectionBatch{Projection: a.Projection, Version: a.Version, Partition: a.Partition, Events: events}
		if err := h.Apply(ctx, tx, b); err != nil {
			return 0, markHandlerError(ctx, err)
		}
	}
	if c.IsFailing() {
		if err := s.settleLetters(ctx, tx, a.ProjectionWork, last.Sequence, ports.LetterResolved, "", ""); err != nil {
			return 0, err
		}
	}
	c.Advance(last.Sequence, len(events), last.RecordedAt, s.db.Now())
	return passed, nil
}

// Checkpoints implements ports.Projections, by partition.
func (s *Checkpoints) Checkpoints(ctx context.Context, name string, version int) ([]ports.Checkpoint, error) {
	rows, err := s.queries.ListCheckpoints(ctx, s.db.Reads, &projectionsdb.ListCheckpointsParams{Projection: name, Version: int32(version)})
	return pg.MapRows(ctx, rows, err, func(r *projectionsdb.ListCheckpointsRow) ports.Checkpoint {
		return checkpoint(&r.BackboneProjectionCheckpoint)
	})
}

// RecordFailure implements ports.Projections. A projection that failed on its first event gets a
// checkpoint at sequence 0.
func (s *Checkpoints) RecordFailure(ctx context.Context, f ports.ProjectionFailure) (ports.Checkpoint, error) {
	return s.onCheckpoint(ctx, f.ProjectionWork, func(_ pgx.Tx, c *ports.Checkpoint) (bool, error) {
		if c.Sequence != f.At || c.Status == projection.Halted {
			return false, nil
		}
		c.Fail(f.Code, f.Pause, s.db.Now())
		return true, nil
	})
}

// Isolate implements ports.Projections.
func (s *Checkpoints) Isolate(ctx context.Context, f ports.ProjectionFailure, policy string) (ports.Checkpoint, error) {
	return s.onCheckpoint(ctx, f.ProjectionWork, func(tx pgx.Tx, c *ports.Checkpoint) (bool, error) {
		if c.Sequence != f.At || c.Status == projection.Halted {
			return false, nil
		}
		e, err := s.readNext(ctx, tx, f.Partition, c.Sequence)
		if err != nil {
			return false, err
		}
		c.Halt(f.Code, s.db.Now(), f.Attempts, f.Since)
		letter := &projectionsdb.UpsertDeadLetterParams{
			Kind: ports.LetterOfProjection, Name: f.Projection, Version: int32(f.Version), PartitionID: int32(f.Partition), Sequence: int64(e.Sequence),
			EventID: pg.UUID(e.ID), Code: f.Code, Detail: f.Detail, Attempts: int32(c.Attempts),
			FirstFailedAt: c.FirstFailedAt, LastFailedAt: c.LastFailedAt, Status: ports.LetterWaiting,
		}
		if policy == projection.SkipEvent {
			letter.Status = ports.LetterPassed
			c.SkipEvent(e.Sequence, e.RecordedAt, s.db.Now())
		}
		if err := s.queries.UpsertDeadLetter(ctx, tx, letter); err != nil {
			return false, err
		}
		if policy == projection.StopProjection {
			return true, s.queries.FaultProjection(ctx, tx, &projectionsdb.FaultProjectionParams{
				Name: f.Projection, Version: int32(f.Version), ChangedAt: s.db.Now(), ChangedBy: systemActor,
			})
		}
		return true, nil
	})
}

// readNext reads the event after a sequence.
func (s *work) readNext(ctx context.Context, tx pgx.Tx, p event.PartitionID, after event.Sequence) (event.Recorded, error) {
	events, err := s.events.EventsAfter(ctx, tx, p, after, 1, []string{""})
	if err == nil && len(events) == 0 {
		err = fault.New(fault.FailedPrecondition, "projection.no_event", "there is no event after the checkpoint; look at the checkpoints again")
	}
	if err != nil {
		return event.Recorded{}, err
	}
	return events[0], nil
}

// Fix implements ports.Projections.
func (s *Checkpoints) Fix(ctx context.Context, o ports.ProjectionOperation) (ports.Checkpoint, error) {
	return s.onCheckpoint(ctx, o.ProjectionWork, func(tx pgx.Tx, c *ports.Checkpoint) (bool, error) {
		if err := c.Retry(s.db.Now()); err != nil {
			return false, err
		}
		return true, s.bumpRevision(ctx, tx, o)
	})
}

// Skip implements ports.Projections.
func (s *Checkpoints) Skip(ctx context.Context, o ports.ProjectionOperation) (ports.Checkpoint, error) {
	return s.onCheckpoint(ctx, o.ProjectionWork, func(tx pgx.Tx, c *ports.Checkpoint) (bool, error) {
		if err := c.RequireHaltedAt(o.Sequence); err != nil {
			return false, err
		}
		e, err := s.readNext(ctx, tx, o.Partition, c.Sequence)
		if err != nil {
			return false, err
		}
		c.SkipEvent(e.Sequence, e.RecordedAt, s.db.Now())
		if err := s.settleLetters(ctx, tx, o.ProjectionWork, e.Sequence, ports.LetterSkipped, o.By, o.Reason); err != nil {
			return false, err
		}
		return true, s.bumpRevision(ctx, tx, o)
	})
}

// Reset implements ports.Projections.
func (s *Checkpoints) Reset(ctx context.Context, o ports.ProjectionOperation, h ports.ProjectionResetter) (ports.Checkpoint, error) {
	return s.onCheckpoint(ctx, o.ProjectionWork, func(tx pgx.Tx, c *ports.Checkpoint) (bool, error) {
		b := ports.ProjectionBatch{Projection: o.Projection, Version: o.Version, Partition: o.Partition}
		if err := h.Reset(ctx, tx, b); err != nil {
			return false, markHandlerError(ctx, err)
		}
		if err := s.queries.RestartRows(ctx, tx, &projectionsdb.RestartRowsParams{Projection: o.Projection, Version: int32(o.Version), PartitionID: int32(o.Partition)}); err != nil {
			return false, err
		}
		if err := s.settleLetters(ctx, tx, o.ProjectionWork, math.MaxInt64, ports.LetterDiscarded, o.By, o.Reason); err != nil {
			return false, err
		}
		c.Rewind(s.db.Now())
		return true, s.bumpRevision(ctx, tx, o)
	})
}

func (s *work) bumpRevision(ctx context.Context, tx pgx.Tx, o ports.ProjectionOperation) error {
	return s.queries.TouchProjection(ctx, tx, &projectionsdb.TouchProjectionParams{
		Name: o.Projection, Version: int32(o.Version), ChangedAt: s.db.Now(), ChangedBy: o.By,
	})
}
