package projections

import (
	"context"
	"slices"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
)

// Comparison lists the differences between two versions of a projection.
type Comparison struct {
	Projection string
	Left       int // the active version
	Right      int // the building version, else the retained one
	Partitions []ports.ProjectionDifference
	Unready    []event.PartitionID // in which the two could not be brought to the same event
	OnlyLeft   []event.PartitionID // that the definition of one of the two leaves out
	OnlyRight  []event.PartitionID
}

// Rows is the number of rows that differ.
func (c Comparison) Rows() (n uint64) {
	for _, p := range c.Partitions {
		n += p.Rows()
	}
	return n
}

// Compare compares the active version with the building one, else with the retained one, row
// by row and in each of the partitions at one event. scope is the one partition that the
// other version covers; 0: all. Faults: projection.not_building,
// projection.definition_unreadable.
func (r *Rebuilds) Compare(ctx context.Context, name string, scope event.PartitionID, partitions []event.PartitionID, examples int) (Comparison, error) {
	all, err := r.list(ctx, name)
	if err != nil {
		return Comparison{}, err
	}
	left, right := selectPair(all, name, scope)
	if left.Name == "" || right.Name == "" {
		return Comparison{}, projection.NotBuilding(name)
	}
	active, err := r.builderOf(ctx, left)
	if err != nil {
		return Comparison{}, err
	}
	other, err := r.builderOf(ctx, right)
	if err != nil {
		return Comparison{}, err
	}
	tables, _ := r.tables(left)
	c := ports.ProjectionComparison{
		Projection: name, Left: left.Version, Right: right.Version, MaxBehind: uint64(r.config.MaxBehind), Tables: tables, Examples: examples,
		Types:    map[int][]string{left.Version: active.EventTypes, right.Version: other.EventTypes},
		Handlers: map[int]ports.ProjectionHandler{left.Version: active.handler, right.Version: other.handler},
	}
	out := Comparison{Projection: name, Left: c.Left, Right: c.Right}
	for _, id := range slices.Sorted(slices.Values(partitions)) {
		switch inLeft, inRight := active.reads(id), other.reads(id); {
		case inLeft && !inRight:
			out.OnlyLeft = append(out.OnlyLeft, id)
			continue
		case inRight && !inLeft:
			out.OnlyRight = append(out.OnlyRight, id)
			continue
		case !inLeft:
			continue
		}
		c.Partition = id
		difference, err := r.config.Versions.CompareProjection(ctx, c)
		switch {
		case fault.CodeOf(err) == projection.CodeIncomparable:
			out.Unready = append(out.Unready, id)
		case err != nil:
			return out, err
		default:
			out.Partitions = append(out.Partitions, difference)
		}
	}
	return out, nil
}

// selectPair returns the active version and the one to compare it with; a name is empty when
// there is none.
func selectPair(all []projection.Projection, name string, scope event.PartitionID) (left, right projection.Projection) {
	var retained projection.Projection
	for _, p := range all {
		switch {
		case p.Name != name:
		case p.Role == projection.Active:
			left = p
		case p.Scope != scope:
		case p.Role == projection.Building:
			right = p
		case p.Role == projection.Retained:
			retained = p
		}
	}
	if right.Name == "" {
		right = retained
	}
	return left, right
}
