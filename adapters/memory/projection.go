package memory

import (
	"cmp"
	"context"
	"slices"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

type checkpointKey struct {
	projection string
	version    int
	partition  event.PartitionID
}

// The states of a checkpoint.
const (
	statusRunning = "running"
	statusFaulted = "faulted"
)

// Advance implements ports.Projections. The handler gets a *Tx and may read the
// store; it must not call Advance. Without types every event is handed over; a
// limit of 0 reads to the end. The checkpoint passes events of other types too.
func (s *Store) Advance(ctx context.Context, projection string, version int, id event.PartitionID, types []string, limit int, h ports.ProjectionHandler) (ports.Checkpoint, int, error) {
	select {
	case <-ctx.Done():
		return ports.Checkpoint{}, 0, ctx.Err()
	case s.advancing <- struct{}{}:
	}
	defer func() { <-s.advancing }()

	key := checkpointKey{projection, version, id}
	s.mu.RLock()
	checkpoint, known := s.checkpoints[key]
	s.mu.RUnlock()
	if !known {
		checkpoint = ports.Checkpoint{Projection: projection, Version: version, Partition: id}
	}
	before := checkpoint
	events, err := s.Events(ctx, ports.EventQuery{Partition: id, After: checkpoint.Sequence, Limit: limit})
	if err != nil {
		return before, 0, err
	}
	tx := newTx(s)
	passed := len(events)
	if passed > 0 {
		checkpoint.Sequence = events[passed-1].Sequence
	}
	if len(types) > 0 {
		events = slices.DeleteFunc(events, func(e event.Recorded) bool { return !slices.Contains(types, e.Type) })
	}
	if len(events) > 0 {
		if err := h.Apply(ctx, tx, events); err != nil {
			tx.close()
			return before, 0, err
		}
	}
	// A caller who gave up gets neither the effects nor the checkpoint.
	if err := ctx.Err(); err != nil {
		tx.close()
		return before, 0, err
	}
	checkpoint.Status, checkpoint.Error, checkpoint.UpdatedAt = statusRunning, "", s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	tx.commit()
	s.checkpoints[key] = checkpoint
	return checkpoint, passed, nil
}

// Checkpoints implements ports.Projections, by partition.
func (s *Store) Checkpoints(ctx context.Context, projection string, version int) ([]ports.Checkpoint, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := []ports.Checkpoint{}
	for key, c := range s.checkpoints {
		if key.projection == projection && key.version == version {
			out = append(out, c)
		}
	}
	slices.SortFunc(out, func(a, b ports.Checkpoint) int { return cmp.Compare(a.Partition, b.Partition) })
	return out, nil
}

// MarkFaulted implements ports.Projections. A projection that failed on its very
// first event gets a checkpoint at sequence 0.
func (s *Store) MarkFaulted(ctx context.Context, projection string, version int, id event.PartitionID, message string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := checkpointKey{projection, version, id}
	c, known := s.checkpoints[key]
	if !known {
		c = ports.Checkpoint{Projection: projection, Version: version, Partition: id}
	}
	c.Status, c.Error, c.UpdatedAt = statusFaulted, message, s.now()
	s.checkpoints[key] = c
	return nil
}

// PartitionHeads implements ports.Projections.
func (s *Store) PartitionHeads(ctx context.Context) (map[event.PartitionID]ports.Head, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := make(map[event.PartitionID]ports.Head, len(s.partitions))
	for id, p := range s.partitions {
		out[id] = p.head()
	}
	return out, nil
}
