package projections

import (
	"context"
	"slices"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
)

// Comparison is in what two versions of a projection differ.
type Comparison struct {
	Projection string
	Left       int // the version that is shown
	Right      int // the one that is building, else the one that is retained
	Partitions []ports.ProjectionDifference
	// Unready are partitions in which the two could not be brought to the same event.
	Unready []event.PartitionID
	// OnlyLeft and OnlyRight are partitions that one of the two reads alone, since their
	// definitions name other legal entities.
	OnlyLeft  []event.PartitionID
	OnlyRight []event.PartitionID
}

// Rows is how many rows differ.
func (c Comparison) Rows() (n uint64) {
	for _, p := range c.Partitions {
		n += p.Rows()
	}
	return n
}

// Compare compares the version that is shown with the one that is built, or else with
// the one that is retained, in some partitions, row by row and each at one event.
// Faults: projection.not_building, projection.definition_unreadable.
func (r *Rebuilds) Compare(ctx context.Context, name string, partitions []event.PartitionID, examples int) (Comparison, error) {
	return r.compare(ctx, name, 0, partitions, examples)
}

// ComparePartition is Compare for what was built for one partition alone.
func (r *Rebuilds) ComparePartition(ctx context.Context, name string, p event.PartitionID, examples int) (Comparison, error) {
	return r.compare(ctx, name, p, []event.PartitionID{p}, examples)
}

func (r *Rebuilds) compare(ctx context.Context, name string, scope event.PartitionID, partitions []event.PartitionID, examples int) (Comparison, error) {
	all, err := r.list(ctx, name)
	if err != nil {
		return Comparison{}, err
	}
	left, right := pair(all, name, scope)
	if left.Name == "" || right.Name == "" {
		return Comparison{}, projection.NotBuilding(name)
	}
	shown, err := r.build(ctx, left)
	if err != nil {
		return Comparison{}, err
	}
	other, err := r.build(ctx, right)
	if err != nil {
		return Comparison{}, err
	}
	tables, _ := r.tables(left)
	c := ports.ProjectionComparison{
		Projection: name, Left: left.Version, Right: right.Version, MaxBehind: r.config.MaxBehind, Tables: tables, Examples: examples,
		Types:    map[int][]string{left.Version: shown.EventTypes, right.Version: other.EventTypes},
		Handlers: map[int]ports.ProjectionHandler{left.Version: shown.handler, right.Version: other.handler},
	}
	out := Comparison{Projection: name, Left: c.Left, Right: c.Right}
	for _, id := range slices.Sorted(slices.Values(partitions)) {
		switch inLeft, inRight := shown.reads(id), other.reads(id); {
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

// pair gives the version that is shown and the one that it is compared with; a name is
// empty when there is none.
func pair(all []projection.Projection, name string, scope event.PartitionID) (left, right projection.Projection) {
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
