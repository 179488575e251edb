package memory

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
)

// CompareProjection implements ports.ProjectionVersions for the rows of custom projections.
// The other projections have no tables in memory: fault projection.not_comparable.
func (s *ProjectionVersions) CompareProjection(ctx context.Context, c ports.ProjectionComparison) (ports.ProjectionDifference, error) {
	d := ports.ProjectionDifference{Partition: c.Partition}
	if len(c.Tables) != 1 || c.Tables[0].Name != ports.ProjectionRowTable.Name {
		return d, projection.Incomparable(c.Projection)
	}
	turn, err := s.readModels.acquire(ctx, 0)
	if err != nil {
		return d, err
	}
	defer s.readModels.release(turn)
	if err := s.catchUp(ctx, turn, c); err != nil {
		return d, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	one, err := s.rowDifference(c)
	d.Sequence, d.Tables = s.checkpoints[checkpointKey{c.Projection, c.Left, c.Partition}].Sequence, []ports.TableDifference{one}
	return d, err
}

// catchUp advances the version that is behind to the checkpoint of the other. It is called by a
// caller that has locked the read models.
func (s *state) catchUp(ctx context.Context, turn uint64, c ports.ProjectionComparison) error {
	s.mu.Lock()
	behind, hasLeft := s.checkpoints[checkpointKey{c.Projection, c.Left, c.Partition}]
	ahead, hasRight := s.checkpoints[checkpointKey{c.Projection, c.Right, c.Partition}]
	s.mu.Unlock()
	if hasLeft != hasRight {
		return projection.Incomparable(c.Projection) // one has not begun
	}
	if behind.Sequence > ahead.Sequence {
		behind, ahead = ahead, behind
	}
	if behind.Sequence == ahead.Sequence {
		return nil
	}
	h, lacking := c.Handlers[behind.Version], uint64(ahead.Sequence-behind.Sequence)
	if h == nil || behind.Status == projection.Halted || lacking > c.MaxBehind {
		return projection.Incomparable(c.Projection)
	}
	_, _, err := s.advance(ctx, turn, ports.ProjectionAdvance{
		ProjectionWork: ports.ProjectionWork{Projection: c.Projection, Version: behind.Version, Partition: c.Partition}, Types: c.Types[behind.Version], Limit: int(lacking),
	}, h)
	return err
}

// rowDifference is called with the lock held.
func (s *state) rowDifference(c ports.ProjectionComparison) (ports.TableDifference, error) {
	t := c.Tables[0]
	d := ports.TableDifference{Table: t.Schema + "." + t.Name}
	left, right := s.tables[rowTable(c.Projection, c.Left, c.Partition)], s.tables[rowTable(c.Projection, c.Right, c.Partition)]
	d.LeftRows, d.RightRows = uint64(len(left)), uint64(len(right))
	keys := slices.AppendSeq(slices.Collect(maps.Keys(left)), maps.Keys(right))
	slices.Sort(keys)
	for _, key := range slices.Compact(keys) {
		a, inLeft := left[key]
		b, inRight := right[key]
		e := ports.RowDifference{}
		switch {
		case !inRight:
			d.OnlyLeft++
			e.Where = "left"
		case !inLeft:
			d.OnlyRight++
			e.Where = "right"
		default:
			if e.Columns = changedColumns(copyRow(a), copyRow(b)); len(e.Columns) == 0 {
				continue
			}
			d.Changed++
			e.Where = "both"
		}
		if len(d.Examples) == c.Examples {
			continue
		}
		var err error
		if e.Key, err = json.Marshal(map[string]string{"key": key}); err != nil {
			return d, err
		}
		d.Examples = append(d.Examples, e)
	}
	return d, nil
}

// changedColumns names the columns in which two rows of one key differ, as a database
// names them.
func changedColumns(a, b ports.ProjectionRow) (out []string) {
	if a.Sequence != b.Sequence {
		out = append(out, "sequence")
	}
	if !bytes.Equal(canonical(a.State), canonical(b.State)) {
		out = append(out, "state")
	}
	return out
}

// canonical writes a state with its members in order and its numbers as they are.
func canonical(state json.RawMessage) []byte {
	decoder := json.NewDecoder(bytes.NewReader(state))
	decoder.UseNumber()
	var v any
	if decoder.Decode(&v) != nil {
		return state
	}
	out, err := json.Marshal(v)
	if err != nil {
		return state
	}
	return out
}
