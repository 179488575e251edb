package memory

import (
	"context"
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
func (s *ProjectionRows) ListProjectionRows(ctx context.Context, q ports.ProjectionRowQuery) ([]ports.ProjectionRow, event.Sequence, error) {
	if err := ctx.Err(); err != nil {
		return nil, 0, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := []ports.ProjectionRow{}
	for _, r := range rows(s.tables[rowTable(q.Projection, q.Version, q.Partition)], q.Prefix) {
		if q.Key != "" && r.Key != q.Key || r.Key <= q.After {
			continue
		}
		if q.Limit > 0 && len(out) == q.Limit {
			break
		}
		out = append(out, copyRow(r.Value))
	}
	return out, s.checkpoints[checkpointKey{q.Projection, q.Version, q.Partition}].Sequence, nil
}

// EndProjection implements ports.ProjectionRows.
func (s *ProjectionRows) EndProjection(ctx context.Context, name, by string) error {
	if err := s.occupy(ctx); err != nil { // whoever is writing it ends first
		return err
	}
	defer s.leave()
	s.mu.Lock()
	defer s.mu.Unlock()
	found := false
	for key, p := range s.operated.projections {
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
