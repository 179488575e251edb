package projector

import (
	"context"
	"slices"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
)

// Created knows how projections are run that were created at run time: those of the
// register that have a definition.
type Created interface {
	// Declare tells what a version reads.
	Declare(p projection.Projection) (module.Projection, error)
	// Prepare builds what a version is run with.
	Prepare(p projection.Projection) (module.Projection, ports.ProjectionHandler, ports.ProjectionResetter, error)
	// Partitions are those that it reads.
	Partitions(ctx context.Context, p projection.Projection) ([]event.PartitionID, error)
}

// wanted is a version that this node works.
type wanted struct {
	declaration *declaration
	known       projection.Projection
	only        map[event.PartitionID]bool // nil: all partitions
	partitions  int                        // that there were when only was made
}

// created are the projections of the register that were created at run time. One that
// cannot be built keeps no other from running; it is tried again when it is changed.
func (r *Runner) created(ctx context.Context, all []projection.Projection) (out []wanted, err error) {
	if r.config.Created == nil {
		return nil, nil
	}
	heads, _ := r.config.Heads.Heads()
	for _, known := range all {
		if len(known.Definition) == 0 || !known.Role.Alive() {
			continue
		}
		w := wanted{known: known, partitions: len(heads)}
		p := r.runningOf(known)
		if p == nil {
			resource := LeaseName(known.Name, known.Version)
			if r.loop.unready[resource] == known.Revision {
				continue
			}
			declared, handler, _, err := r.config.Created.Prepare(known)
			if err != nil {
				if r.loop.unready == nil {
					r.loop.unready = map[string]int64{}
				}
				r.loop.unready[resource] = known.Revision
				r.config.Logger.ErrorContext(ctx, "a projection that was created cannot be run; delete it and create it again", "projection", known.Name, "code", fault.CodeOf(err))
				continue
			}
			w.declaration = &declaration{declared, guarded{handler, known.Name, r.config.Logger}}
		}
		if p != nil && p.partitions == len(heads) {
			w.only, w.partitions = p.only, p.partitions
		} else {
			read, err := r.config.Created.Partitions(ctx, known)
			if err != nil {
				return out, err
			}
			w.only = map[event.PartitionID]bool{}
			for _, id := range read {
				w.only[id] = true
			}
		}
		out = append(out, w)
	}
	return out, nil
}

// ownLabel is what the projections of tenants are observed as, all together: metrics are
// for everybody, and their names are not.
const ownLabel = "own"

// ownTurnBatches is turnBatches for projections of tenants, whose programs may be slow.
const ownTurnBatches = 2

// ofTenant tells whether a tenant created the projection.
func (p *running) ofTenant() bool { return len(p.known.Definition) > 0 }

// reads tells whether a version reads a partition at all.
func (p *running) reads(id event.PartitionID) bool { return p.only == nil || p.only[id] }

// readOnly sets which partitions a version reads.
func (r *Runner) readOnly(p *running, w wanted) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p.only, p.partitions = w.only, w.partitions
}

// readBy keeps the partitions that a projection reads.
func (o *Operations) readBy(ctx context.Context, p projection.Projection, partitions []event.PartitionID) ([]event.PartitionID, error) {
	if len(p.Definition) == 0 || o.config.Created == nil {
		return partitions, nil
	}
	read, err := o.config.Created.Partitions(ctx, p)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(partitions), func(id event.PartitionID) bool { return !slices.Contains(read, id) }), nil
}

// declarationOf is what a version declares; nil: nobody does.
func (o *Operations) declarationOf(p projection.Projection) *module.Projection {
	if len(p.Definition) == 0 || o.config.Created == nil {
		return o.declared(p.Name)
	}
	d, err := o.config.Created.Declare(p)
	if err != nil {
		d = module.Projection{Name: p.Name}
	}
	d.Version = p.Code
	return &d
}

// resetter is what forgets what a version wrote.
func (o *Operations) resetter(p projection.Projection) (ports.ProjectionResetter, bool) {
	if len(p.Definition) == 0 || o.config.Created == nil {
		r, can := o.config.Handlers[p.Name].(ports.ProjectionResetter)
		return r, can
	}
	_, _, r, err := o.config.Created.Prepare(p)
	return r, err == nil && r != nil
}

// tables are those that a version's rows are in.
func (r *Rebuilds) tables(p projection.Projection) (tables []ports.ProjectionTable, ours bool) {
	if len(p.Definition) > 0 {
		return []ports.ProjectionTable{ports.ProjectionRowTable}, true
	}
	tables, ours = r.config.Tables[p.Name]
	return tables, ours
}
