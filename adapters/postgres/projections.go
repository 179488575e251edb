package postgres

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/backbonedb"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

// The states of a checkpoint.
const (
	statusRunning = "running"
	statusFaulted = "faulted"
)

const advanceTries = 3

// Advance implements ports.Projections. The handler's transaction is a pgx.Tx at
// READ COMMITTED. A deadlock or serialization failure runs all of it again, so the
// handler may be called again with the same events in a new transaction. Without
// types every event is handed over; a limit of 0 reads to the end. The checkpoint
// passes events of other types too.
func (s *Store) Advance(ctx context.Context, projection string, version int, p event.PartitionID, types []string, limit int, h ports.ProjectionHandler) (checkpoint ports.Checkpoint, passed int, err error) {
	for range advanceTries {
		checkpoint, passed, err = s.advanceOnce(ctx, projection, version, p, types, limit, h)
		if !serializationFailure(err) {
			break
		}
	}
	return checkpoint, passed, err
}

func (s *Store) advanceOnce(ctx context.Context, projection string, version int, p event.PartitionID, types []string, limit int, h ports.ProjectionHandler) (ports.Checkpoint, int, error) {
	before := ports.Checkpoint{Projection: projection, Version: version, Partition: p}
	after, passed := before, 0
	var handlerErr error
	err := pgx.BeginFunc(ctx, s.reads, func(tx pgx.Tx) error {
		if err := s.queries.InsertCheckpoint(ctx, tx, &backbonedb.InsertCheckpointParams{
			Projection: projection, Version: int32(version), PartitionID: int32(p), UpdatedAt: s.now(),
		}); err != nil {
			return err
		}
		row, err := s.queries.LockCheckpoint(ctx, tx, &backbonedb.LockCheckpointParams{
			Projection: projection, Version: int32(version), PartitionID: int32(p),
		})
		if err != nil {
			return err
		}
		before.Sequence, before.Status, before.Error, before.UpdatedAt = event.Sequence(row.Sequence), row.Status, row.Error.String, row.UpdatedAt.UTC()
		events, err := s.eventsAfter(ctx, tx, p, before.Sequence, limit, types)
		if err != nil {
			return err
		}
		after = before
		if passed = len(events); passed > 0 {
			after.Sequence = events[passed-1].Sequence
		}
		if len(types) > 0 {
			events = slices.DeleteFunc(events, func(e event.Recorded) bool { return !slices.Contains(types, e.Type) })
		}
		if len(events) > 0 {
			if handlerErr = h.Apply(ctx, tx, events); handlerErr != nil {
				return handlerErr
			}
		}
		after.Status, after.Error, after.UpdatedAt = statusRunning, "", s.now()
		return s.queries.UpdateCheckpoint(ctx, tx, &backbonedb.UpdateCheckpointParams{
			Projection: projection, Version: int32(version), PartitionID: int32(p), Sequence: int64(after.Sequence), UpdatedAt: after.UpdatedAt,
		})
	})
	switch {
	case err == nil:
		return after, passed, nil
	case serializationFailure(err) || handlerErr != nil:
		return before, 0, err // the handler's own words are the caller's to judge
	default:
		return before, 0, translate(ctx, err)
	}
}

// Checkpoints implements ports.Projections, by partition.
func (s *Store) Checkpoints(ctx context.Context, projection string, version int) ([]ports.Checkpoint, error) {
	rows, err := s.queries.ListCheckpoints(ctx, s.reads, &backbonedb.ListCheckpointsParams{Projection: projection, Version: int32(version)})
	if err != nil {
		return nil, translate(ctx, err)
	}
	out := make([]ports.Checkpoint, len(rows))
	for i, r := range rows {
		out[i] = ports.Checkpoint{
			Projection: projection, Version: version, Partition: event.PartitionID(r.PartitionID), Sequence: event.Sequence(r.Sequence),
			Status: r.Status, Error: r.Error.String, UpdatedAt: r.UpdatedAt.UTC(),
		}
	}
	return out, nil
}

// MarkFaulted implements ports.Projections. A projection that failed on its very
// first event gets a checkpoint at sequence 0.
func (s *Store) MarkFaulted(ctx context.Context, projection string, version int, p event.PartitionID, message string) error {
	return translate(ctx, s.queries.FaultCheckpoint(ctx, s.reads, &backbonedb.FaultCheckpointParams{
		Projection: projection, Version: int32(version), PartitionID: int32(p), Error: optionalText(message), UpdatedAt: s.now(),
	}))
}
