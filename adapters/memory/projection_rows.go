package memory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
)

// rowTable names the table of a version's rows in a partition.
func rowTable(name string, version int, p event.PartitionID) string {
	return fmt.Sprintf("%s%d", rowTables(name, version), p)
}

// rowTables begins the names of all tables of a version.
func rowTables(name string, version int) string {
	return fmt.Sprintf("projection_rows/%s/%d/", name, version)
}

func rowTableOf(b ports.ProjectionBatch) string {
	return rowTable(b.Projection, b.Version, b.Partition)
}

// ProjectionRows keeps the rows of custom projections.
type ProjectionRows struct{ *state }

// LoadProjectionRows implements ports.ProjectionRows.
func (s *ProjectionRows) LoadProjectionRows(_ context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch, keys []string) (map[string]ports.ProjectionRow, error) {
	t, err := Bind(tx)
	if err != nil {
		return nil, err
	}
	out := make(map[string]ports.ProjectionRow, len(keys))
	for _, key := range keys {
		if value, found := t.Get(rowTableOf(b), key); found {
			out[key] = copyRow(value)
		}
	}
	return out, nil
}

func copyRow(value any) ports.ProjectionRow {
	row, _ := value.(ports.ProjectionRow)
	row.State = slices.Clone(row.State)
	return row
}

// StoreProjectionRows implements ports.ProjectionRows.
func (s *ProjectionRows) StoreProjectionRows(_ context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch, rows []ports.ProjectionRow, gone []string) error {
	t, err := Bind(tx)
	if err != nil {
		return err
	}
	for _, key := range gone {
		t.Delete(rowTableOf(b), key)
	}
	for _, row := range rows {
		t.Put(rowTableOf(b), row.Key, copyRow(row))
	}
	return nil
}

// ForgetProjectionRows implements ports.ProjectionRows.
func (s *ProjectionRows) ForgetProjectionRows(_ context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch) error {
	t, err := Bind(tx)
	if err != nil {
		return err
	}
	for _, row := range t.Rows(rowTableOf(b), "") {
		t.Delete(rowTableOf(b), row.Key)
	}
	return nil
}

// ListProjectionRows implements ports.ProjectionRows.
func (s *ProjectionRows) ListProjectionRows(ctx context.Context, q ports.ProjectionRowQuery) (out []ports.ProjectionRow, at event.Sequence, err error) {
	err = s.do(ctx, func() error {
		out = []ports.ProjectionRow{}
		for _, r := range rows(s.tables[rowTable(q.Projection, q.Version, q.Partition)], q.Prefix) {
			if (q.Key == "" || r.Key == q.Key) && r.Key > q.After {
				out = append(out, copyRow(r.Value))
			}
		}
		out, at = first(out, q.Limit), s.checkpoints[checkpointKey{q.Projection, q.Version, q.Partition}].Sequence
		return nil
	})
	return out, at, err
}

// EndProjection implements ports.ProjectionRows.
func (s *ProjectionRows) EndProjection(ctx context.Context, name, by string) error {
	turn, err := s.readModels.acquire(ctx, 0) // a writer finishes first
	if err != nil {
		return err
	}
	defer s.readModels.release(turn)
	s.mu.Lock()
	defer s.mu.Unlock()
	found := false
	for key, p := range s.projections {
		if snapshot := p.Role == projection.Saving || p.Role == projection.Saved; key.name == name && (snapshot || p.Role.IsLive()) {
			found = true
			s.drop(key, by)
		}
	}
	if !found {
		return projection.NotFound(name)
	}
	return nil
}

// sweepRows removes at most limit rows of each partition; it is called with the lock
// held.
func (s *state) sweepRows(name string, version, limit int) (removed int64) {
	for table, stored := range s.tables {
		if !strings.HasPrefix(table, rowTables(name, version)) {
			continue
		}
		for i, key := range slices.Sorted(maps.Keys(stored)) {
			if i == limit {
				break
			}
			delete(stored, key)
			removed++
		}
	}
	return removed
}

// errRehearsed rolls a dry run back.
var errRehearsed = errors.New("rehearsed")

// RowPosition implements ports.RowRecomputer.
func (s *ProjectionRows) RowPosition(ctx context.Context, w ports.ProjectionWork) (at ports.RowPosition, begun bool, err error) {
	err = s.do(ctx, func() error {
		var c ports.Checkpoint
		c, begun = s.checkpoints[checkpointKey{w.Projection, w.Version, w.Partition}]
		at = ports.RowPosition{Sequence: c.Sequence, Generation: c.Generation, Redactions: uint64(s.epoch(w.Partition))}
		return nil
	})
	return at, begun, err
}

// RecomputeRows implements ports.RowRecomputer.
func (s *ProjectionRows) RecomputeRows(ctx context.Context, r ports.RowRecompute, begin func() (ports.ProjectionHandler, func() map[string]ports.ProjectionRow)) (change ports.TargetChange, err error) {
	_, err = s.onCheckpoint(ctx, r.ProjectionWork, func(tx *Tx, c *ports.Checkpoint) (bool, error) {
		s.mu.Lock()
		now := ports.RowPosition{Sequence: r.Since.Sequence, Generation: c.Generation, Redactions: uint64(s.epoch(r.Partition))}
		s.mu.Unlock()
		if now != r.Since || c.Sequence < r.ReadThrough || uint64(c.Sequence-r.ReadThrough) > uint64(r.Limit) {
			return false, projection.Changed()
		}
		h, rows := begin()
		b := ports.ProjectionBatch{Projection: r.Projection, Version: r.Version, Partition: r.Partition}
		if c.Sequence > r.ReadThrough {
			if b.Events, err = s.reader().Events(ctx, ports.EventQuery{Partition: r.Partition, After: r.ReadThrough, Limit: int(c.Sequence - r.ReadThrough)}); err != nil {
				return false, err
			}
			b.Events = slices.DeleteFunc(b.Events, func(e event.Recorded) bool { return len(r.Types) > 0 && !slices.Contains(r.Types, e.Type) })
			if len(b.Events) > 0 {
				if err := h.Apply(ctx, tx, b); err != nil {
					return false, err
				}
			}
		}
		change = ports.TargetChange{Sequence: c.Sequence, Events: len(b.Events)}
		before, err := s.LoadProjectionRows(ctx, tx, b, r.Keys)
		if err != nil {
			return false, err
		}
		rewritten, gone, d := ports.DiffRows(r.Keys, before, rows())
		change.Tables = []ports.TableDifference{d}
		if r.DryRun {
			return false, errRehearsed
		}
		if err := s.StoreProjectionRows(ctx, tx, b, rewritten, gone); err != nil {
			return false, err
		}
		tx.atEnd(func() { s.resolve(r) })
		if change.Rows() > 0 {
			c.Generation++
		}
		return true, nil
	})
	if errors.Is(err, errRehearsed) {
		err = nil
	}
	if err != nil {
		change = ports.TargetChange{}
	}
	return change, err
}

// resolve is called with the lock held.
func (s *state) resolve(r ports.RowRecompute) {
	for _, sequence := range r.Recovered {
		key := letterKey{ports.LetterOfProjection, r.Projection, r.Version, r.Partition, sequence}
		if d, known := s.letters[key]; known {
			d.Status, d.SettledAt, d.SettledBy = ports.LetterResolved, s.now(), r.By
			s.letters[key] = d
		}
	}
}
