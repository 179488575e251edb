package projections

import (
	"context"
	"slices"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
)

// Custom knows how projections are run that were created at run time: those of the
// register that have a definition.
type CustomProjections interface {
	// Declare tells what a version reads.
	Declare(p projection.Projection) (module.Projection, error)
	// Prepare builds what a version is run with.
	Prepare(p projection.Projection) (module.Projection, ports.ProjectionHandler, ports.ProjectionResetter, error)
	// Partitions are those that it reads.
	Partitions(ctx context.Context, p projection.Projection) ([]event.PartitionID, error)
}

// versionSpec is a version that this node works.
type versionSpec struct {
	declaration *declaredProjection
	registered  projection.Projection
	only        map[event.PartitionID]bool // nil: all partitions
	partitions  int                        // that there were when only was made
}

// customVersions are the projections of the register that were created at run time. One that
// cannot be built keeps no other from running; it is tried again when it is changed.
func (r *Runner) customVersions(ctx context.Context, all []projection.Projection) (out []versionSpec, err error) {
	if r.config.Custom == nil {
		return nil, nil
	}
	heads, _ := r.config.Heads.Heads()
	for _, known := range all {
		if len(known.Definition) == 0 || !known.Role.IsLive() {
			continue
		}
		w := versionSpec{registered: known, partitions: len(heads)}
		p := r.findRunning(known)
		if p == nil {
			resource := LeaseName(known.Name, known.Version)
			if r.loop.unready[resource] == known.Revision {
				continue
			}
			declared, handler, _, err := r.config.Custom.Prepare(known)
			if err != nil {
				if r.loop.unready == nil {
					r.loop.unready = map[string]int64{}
				}
				r.loop.unready[resource] = known.Revision
				r.config.Logger.ErrorContext(ctx, "a version of a projection that was created cannot be run by this node; change the projection, or delete it and create it again", "projection", known.Name, "version", known.Version, "code", fault.CodeOf(err))
				continue
			}
			w.declaration = &declaredProjection{declared, guarded{handler, known.Name, r.config.Logger}}
		}
		if p != nil && p.partitions == len(heads) {
			w.only, w.partitions = p.only, p.partitions
		} else {
			read, err := r.config.Custom.Partitions(ctx, known)
			if err != nil {
				return out, err
			}
			w.only = map[event.PartitionID]bool{}
			for _, id := range read {
				w.only[id] = known.Reads(id)
			}
		}
		out = append(out, w)
	}
	return out, nil
}

// customLabel is what the projections of tenants are observed as, all together: metrics are
// for everybody, and their names are not.
const customLabel = "own"

// customTurnBatches is turnBatches for projections of tenants, whose programs may be slow.
const customTurnBatches = 2

// isCustom tells whether a tenant created the projection. The name says so, which does
// not change while workers ask.
func (p *running) isCustom() bool {
	_, _, owned := projection.SplitName(p.Name)
	return owned
}

// reads tells whether a version reads a partition at all.
func (p *running) reads(id event.PartitionID) bool { return p.only == nil || p.only[id] }

// readOnly sets which partitions a version reads.
func (r *Runner) readOnly(p *running, w versionSpec) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p.only, p.partitions = w.only, w.partitions
}

// readPartitions keeps the partitions that a projection reads.
func (o *Operations) readPartitions(ctx context.Context, p projection.Projection, partitions []event.PartitionID) ([]event.PartitionID, error) {
	partitions = slices.DeleteFunc(slices.Clone(partitions), func(id event.PartitionID) bool { return !p.Reads(id) })
	if len(p.Definition) == 0 || o.config.Custom == nil {
		return partitions, nil
	}
	read, err := o.config.Custom.Partitions(ctx, p)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(partitions), func(id event.PartitionID) bool { return !slices.Contains(read, id) }), nil
}

// declaration is what a version declares; nil: nobody does.
func (o *Operations) declaration(p projection.Projection) *module.Projection {
	if len(p.Definition) == 0 || o.config.Custom == nil {
		return o.declared(p.Name)
	}
	d, err := o.config.Custom.Declare(p)
	if err != nil {
		d = module.Projection{Name: p.Name}
	}
	d.Version = p.Code
	return &d
}

// resetter is what forgets what a version wrote.
func (o *Operations) resetter(p projection.Projection) (ports.ProjectionResetter, bool) {
	if len(p.Definition) == 0 || o.config.Custom == nil {
		r, can := o.config.Handlers[p.Name].(ports.ProjectionResetter)
		return r, can
	}
	_, _, r, err := o.config.Custom.Prepare(p)
	return r, err == nil && r != nil
}

// list gives all versions of all projections. Fault projection.not_found when nothing
// is known of the one that is named.
func (r *Rebuilds) list(ctx context.Context, name string) ([]projection.Projection, error) {
	all, err := r.config.Register.ListProjections(ctx)
	if err != nil || r.declared(name) != nil {
		return all, err
	}
	if !slices.ContainsFunc(all, func(p projection.Projection) bool { return p.Name == name && len(p.Definition) > 0 && p.Role.IsLive() }) {
		_, own, _ := projection.SplitName(name)
		return nil, projection.NotFound(own)
	}
	return all, nil
}

// declared is what the code declares of a projection; nil: it was created, or is
// nobody's.
func (r *Rebuilds) declared(name string) *module.Projection {
	for i := range r.config.Declared {
		if r.config.Declared[i].Name == name {
			return &r.config.Declared[i]
		}
	}
	return nil
}

// build is what a version is built with.
type build struct {
	module.Projection
	handler ports.ProjectionHandler // nil: another release's
	only    []event.PartitionID     // that it reads; nil: all
}

func (b build) reads(id event.PartitionID) bool { return b.only == nil || slices.Contains(b.only, id) }

// build finds what a version is built with: that of its own definition, or the handler
// of the code, if that is the one that built it so far.
func (r *Rebuilds) build(ctx context.Context, p projection.Projection) (b build, err error) {
	if b.only, err = r.reads(ctx, p); err != nil {
		return b, err
	}
	if len(p.Definition) > 0 && r.config.Custom != nil {
		b.Projection, b.handler, _, err = r.config.Custom.Prepare(p)
	} else if d := r.declared(p.Name); d != nil {
		if b.Projection = *d; p.Code == d.Version {
			b.handler = r.config.Handlers[p.Name]
		}
	}
	if b.handler != nil {
		b.handler = guarded{b.handler, p.Name, r.config.Logger} // like the runner's
	}
	return b, err
}

// find is build for a version by its number. Fault projection.changed.
func (r *Rebuilds) find(ctx context.Context, name string, version int) (build, error) {
	all, err := r.config.Register.NamedProjections(ctx, name)
	if err != nil {
		return build{}, err
	}
	for _, p := range all {
		if p.Version == version {
			return r.build(ctx, p)
		}
	}
	return build{}, projection.Changed()
}

// reads are the partitions that a version reads; nil: all.
func (r *Rebuilds) reads(ctx context.Context, p projection.Projection) ([]event.PartitionID, error) {
	if len(p.Definition) == 0 || r.config.Custom == nil {
		return limitScope(p, nil), nil
	}
	read, err := r.config.Custom.Partitions(ctx, p)
	read = slices.DeleteFunc(read, func(id event.PartitionID) bool { return !p.Reads(id) })
	if err == nil && read == nil {
		read = []event.PartitionID{}
	}
	return read, err
}

// typesOf are the event types that a version reads; none: all.
func (r *Rebuilds) typesOf(p projection.Projection) ([]string, error) {
	if len(p.Definition) > 0 && r.config.Custom != nil {
		d, err := r.config.Custom.Declare(p)
		return d.EventTypes, err
	}
	if d := r.declared(p.Name); d != nil {
		return d.EventTypes, nil
	}
	return nil, nil
}

// isBuiltHere tells whether this node switches by itself to a version once it has caught up.
func (r *Rebuilds) isBuiltHere(p projection.Projection) bool {
	if len(p.Definition) > 0 {
		return r.config.Custom != nil
	}
	d := r.declared(p.Name)
	return d != nil && p.Code == d.Version && (!r.config.ManualSwitch || p.ChangedBy != builtIn(*d).ChangedBy)
}

// tables are those that a version's rows are in.
func (r *Rebuilds) tables(p projection.Projection) (tables []ports.ProjectionTable, ours bool) {
	if len(p.Definition) > 0 {
		return []ports.ProjectionTable{ports.ProjectionRowTable}, true
	}
	tables, ours = r.config.Tables[p.Name]
	return tables, ours
}
