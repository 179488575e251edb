package projections

import (
	"context"
	"slices"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
)

// limitScope keeps the one partition that a version is about; nil: all.
func limitScope(p projection.Projection, read []event.PartitionID) []event.PartitionID {
	if p.Scope != 0 {
		return []event.PartitionID{p.Scope}
	}
	return read
}

// checkScopes refuses to build a partition of a version that another handler built: its rows
// would be among those of the other partitions.
func (r *Rebuilds) checkScopes(all []projection.Projection, next projection.Projection) error {
	if next.Scope == 0 {
		return nil
	}
	for _, p := range all {
		if p.Name == next.Name && p.Role == projection.Active && !projection.SameCode(p, next) {
			return projection.OtherCode(p.Name, p.Version)
		}
	}
	return nil
}

// requireCovered refuses a partition that a version does not read: nothing would ever be built
// of it.
func (r *Rebuilds) requireCovered(ctx context.Context, p projection.Projection) error {
	if p.Scope == 0 {
		return nil
	}
	read, err := r.reads(ctx, p)
	if err == nil && !slices.Contains(read, p.Scope) {
		err = projection.NotRead(p.Name)
	}
	return err
}

// statusFor tells how the versions stand that an order is about.
func (r *Rebuilds) statusFor(ctx context.Context, o Order) (Rebuild, error) {
	all, err := r.list(ctx, o.Name)
	if err != nil {
		return Rebuild{}, err
	}
	return r.status(ctx, all, o.Name, o.Partition)
}

// activate shows readers other rows: those of another version, or other ones in a partition
// of the version that they are shown.
func (r *Rebuilds) activate(ctx context.Context, o Order, s ports.ProjectionSwitch) error {
	if o.Partition == 0 {
		return r.config.Versions.SwitchProjection(ctx, s)
	}
	all, err := r.config.Register.NamedProjections(ctx, o.Name)
	if err != nil {
		return err
	}
	for _, p := range all {
		if p.Version != s.To {
			continue
		}
		// What is shown may have been changed since the version was begun.
		if i := slices.IndexFunc(all, func(shown projection.Projection) bool { return shown.Version == s.From }); i < 0 || !projection.SameCode(all[i], p) {
			return projection.OtherCode(o.Name, p.Version)
		}
		s.Partitions = []event.PartitionID{o.Partition}
		tables, _ := r.tables(p)
		_, err := r.config.Versions.SwitchPartition(ctx, ports.PartitionSwitch{ProjectionSwitch: s, Partition: o.Partition, Tables: tables})
		return err
	}
	return projection.Changed()
}

// addParts adds what there is of single partitions, and the snapshots.
func (r *Rebuilds) addParts(ctx context.Context, all []projection.Projection, out *Rebuild) error {
	var scopes []event.PartitionID
	for _, p := range all {
		if p.Name == out.Projection && p.Scope != 0 && p.Role.IsLive() && !slices.Contains(scopes, p.Scope) {
			scopes = append(scopes, p.Scope)
		}
	}
	slices.Sort(scopes)
	for _, scope := range scopes {
		part, err := r.status(ctx, all, out.Projection, scope)
		if err != nil {
			return err
		}
		part.Dropping = nil
		out.Parts = append(out.Parts, part)
	}
	return r.addSnapshots(ctx, all, out)
}
