package projections

import (
	"context"
	"fmt"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// LeaseName names the leases of a projection's version.
func LeaseName(name string, version int) string {
	return fmt.Sprintf("projection/%s/%d", name, version)
}

// resourceOf is what must be held to work a partition.
func (p *running) resourceOf(id event.PartitionID) ports.LeaseResource {
	if p.known.Settings.SingleInstance {
		id = 0
	}
	return ports.LeaseResource{Name: p.resource, Partition: id}
}

// preferred tells whether this node is the one among the living that should work a
// resource.
func (r *Runner) preferred(resource ports.LeaseResource) bool {
	if r.config.Leases == nil {
		return true
	}
	return ports.Preferred(r.loop.alive, resource) == r.config.Node
}

// renew gives a sign of life, renews the leases that are in use and gives back those
// that another node should have.
func (r *Runner) renew(ctx context.Context) {
	alive, err := r.config.Leases.Beat(ctx, r.config.Node, r.config.TTL)
	if err != nil {
		r.complain(ctx, err)
		return // what is held stays until it expires
	}
	if !r.loop.waited || len(alive) != len(r.loop.alive) {
		r.config.Logger.InfoContext(ctx, "nodes that share the projections", "node", r.config.Node, "alive", len(alive))
	}
	r.loop.alive, r.loop.waited = alive, true
	now := r.config.Clock.Now()
	var keep, back []ports.LeaseResource
	r.mu.Lock()
	inUse := map[ports.LeaseResource]bool{}
	for _, p := range r.running {
		for id, u := range p.units {
			if u.busy {
				inUse[p.resourceOf(id)] = true
			}
		}
	}
	for resource, h := range r.leases {
		switch {
		case inUse[resource]:
			keep = append(keep, resource)
		case !r.preferred(resource):
			back = append(back, resource)
			delete(r.leases, resource)
		case apart(now, h.used) < r.config.TTL:
			keep = append(keep, resource)
		case left(now, h.until, r.config.TTL) == 0:
			delete(r.leases, resource) // idle, so it has been let go
		}
	}
	r.mu.Unlock()
	if len(back) > 0 {
		if err := r.config.Leases.Release(ctx, r.config.Node, back); err != nil {
			r.complain(ctx, err)
		}
		for _, resource := range back {
			r.config.Observer.ProjectionLease(r.nameOf(resource), "released")
		}
		r.left()
	}
	if len(keep) > 0 {
		r.hold(ctx, keep)
	}
}

// hold takes or renews leases. What is not this node's afterwards is forgotten.
func (r *Runner) hold(ctx context.Context, resources []ports.LeaseResource) {
	begun := r.config.Clock.Now()
	leases, err := r.config.Leases.Hold(ctx, r.config.Node, r.config.TTL, resources)
	if err != nil {
		r.complain(ctx, err)
		return
	}
	got := make(map[ports.LeaseResource]ports.Lease, len(leases))
	for _, l := range leases {
		got[l.LeaseResource] = l
	}
	type change struct{ projection, what string }
	var changes []change
	r.mu.Lock()
	for _, resource := range resources {
		before, had := r.leases[resource]
		l, has := got[resource]
		delete(r.others, resource)
		if !has {
			r.others[resource] = begun
		}
		switch {
		case has:
			if before.Term != l.Term {
				changes = append(changes, change{r.nameOf(resource), "taken"})
				before.used = begun
			}
			r.leases[resource] = held{Lease: l, until: begun.Add(r.config.TTL), used: before.used}
		case had:
			changes = append(changes, change{r.nameOf(resource), "lost"})
			delete(r.leases, resource)
		}
	}
	r.mu.Unlock()
	for _, c := range changes {
		r.config.Observer.ProjectionLease(c.projection, c.what)
	}
}

// lost forgets a lease that a transaction was fenced for.
func (r *Runner) lost(p *running, l ports.Lease) {
	r.mu.Lock()
	if r.leases[l.LeaseResource].Term == l.Term {
		delete(r.leases, l.LeaseResource)
	}
	r.mu.Unlock()
	r.config.Observer.ProjectionLease(p.label(), "lost")
}

func (r *Runner) nameOf(resource ports.LeaseResource) string {
	for _, p := range r.running {
		if p.resource == resource.Name {
			return p.label()
		}
	}
	return resource.Name
}

// left reports the partitions that are other nodes' now.
func (r *Runner) left() {
	for _, p := range r.running {
		for id := range p.units {
			if !r.preferred(p.resourceOf(id)) {
				r.config.Observer.ProjectionLeft(p.label(), id)
			}
		}
	}
}

// leave gives everything back, so that the others need not wait.
func (r *Runner) leave(ctx context.Context) {
	if r.config.Leases == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveWithin)
	defer cancel()
	r.mu.Lock()
	all := make([]ports.LeaseResource, 0, len(r.leases))
	for resource := range r.leases {
		all = append(all, resource)
	}
	clear(r.leases)
	r.mu.Unlock()
	if err := r.config.Leases.Release(ctx, r.config.Node, all); err != nil {
		r.complain(ctx, err)
	}
	if err := r.config.Leases.Leave(ctx, r.config.Node); err != nil {
		r.complain(ctx, err)
	}
}

// askAgain is how long another node's lease is not asked for again: while it is handed
// over, every new event would ask.
const askAgain = 100 * time.Millisecond

// leaveWithin bounds the goodbye: without it the others wait for the leases to expire.
const leaveWithin = 2 * time.Second

func (r *Runner) complain(ctx context.Context, err error) {
	if ctx.Err() == nil {
		r.config.Logger.WarnContext(ctx, "leases on projections could not be kept; they will be tried again", "code", fault.CodeOf(err))
	}
}
