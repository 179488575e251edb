package projections

import (
	"context"
	"fmt"
	"slices"

	"github.com/erpbackbone/backbone/application/sharing"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// LeaseName names the leases of a projection's version.
func LeaseName(name string, version int) string {
	return fmt.Sprintf("projection/%s/%d", name, version)
}

// resourceOf names the lease that a node needs to work a partition.
func (p *running) resourceOf(id event.PartitionID) ports.LeaseResource {
	if p.registered.Settings.SingleInstance {
		id = 0
	}
	return ports.LeaseResource{Name: p.resource, Partition: id}
}

// prefers reports whether this node should work a resource. Each node computes the answer from the
// resource and the live nodes that it last read, which differ for a moment when a node comes or
// goes: the lease decides then which node folds the partition.
func (r *Runner) prefers(resource ports.LeaseResource) bool {
	return r.member == nil || r.member.IsPreferred(resource)
}

// renew sends a heartbeat, renews the leases in use, and releases those that another node
// should hold.
func (r *Runner) renew(ctx context.Context) {
	var inUse []ports.LeaseResource
	r.mu.Lock()
	for _, p := range r.running {
		for id, u := range p.units {
			if u.busy {
				inUse = append(inUse, p.resourceOf(id))
			}
		}
	}
	r.mu.Unlock()
	changes, err := r.member.Renew(ctx, nil, inUse)
	r.reportLeases(ctx, changes, err)
	if slices.ContainsFunc(changes, func(c sharing.Change) bool { return c.Kind == sharing.Released }) {
		r.reportRemote()
	}
}

// reportLeases notifies the observer of the leases that changed.
func (r *Runner) reportLeases(ctx context.Context, changes []sharing.Change, err error) {
	for _, c := range changes {
		r.config.Observer.ProjectionLease(r.labelOf(c.Resource), c.Kind)
	}
	if err != nil && ctx.Err() == nil {
		r.config.Logger.WarnContext(ctx, "leases of projections could not be renewed; they will be tried again", "code", fault.CodeOf(err))
	}
}

// forgetLease drops a lease after a transaction under it was fenced.
func (r *Runner) forgetLease(p *running, l ports.Lease) {
	r.member.Forget(l.LeaseResource, l.Term)
	r.config.Observer.ProjectionLease(p.label(), sharing.Lost)
}

func (r *Runner) labelOf(resource ports.LeaseResource) string {
	for _, p := range r.running {
		if p.resource == resource.Name {
			return p.label()
		}
	}
	return resource.Name
}

// reportRemote notifies the observer of the partitions that other nodes should work.
func (r *Runner) reportRemote() {
	for _, p := range r.running {
		for id := range p.units {
			if !r.prefers(p.resourceOf(id)) {
				r.config.Observer.ProjectionLeft(p.label(), id)
			}
		}
	}
}
