package fanout

import (
	"context"
	"time"

	"github.com/erpbackbone/backbone/application/sharing"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

func (d *Dispatcher) resource(p event.PartitionID) ports.LeaseResource {
	return ports.LeaseResource{Name: LeaseName(d.Name), Partition: p}
}

// renew sends a heartbeat, releases idle partitions that another node should publish, and
// acquires and renews the rest of this node's share. While the store does not answer, each
// lease is used until it ends.
func (d *Dispatcher) renew(ctx context.Context, heads map[event.PartitionID]ports.Head) {
	asking, cancel := context.WithTimeout(ctx, d.TTL/3)
	defer cancel()
	var wanted, inUse []ports.LeaseResource
	for p, h := range heads {
		if h.Sequence > 0 {
			wanted = append(wanted, d.resource(p))
		}
	}
	for p, s := range d.held {
		if s.busy {
			inUse = append(inUse, d.resource(p))
		}
	}
	before := time.Now()
	changes, err := d.member.Renew(asking, wanted, inUse)
	if d.Observer != nil {
		for _, c := range changes {
			d.Observer.PublisherLease(d.Name, c.Kind)
		}
	}
	d.reconcile(changes)
	if err != nil {
		if ctx.Err() == nil {
			d.Logger.WarnContext(ctx, "the leases of a publisher could not be renewed; it will be tried again", "publisher", d.Name, "code", fault.CodeOf(err))
		}
		return
	}
	d.renewedAt = before
	if d.Observer != nil {
		d.Observer.PublisherLeases(d.Name, len(d.held))
		d.Observer.PublisherNodes(d.Name, d.member.Nodes())
	}
}

// reconcile makes the published partitions those whose leases this node holds.
func (d *Dispatcher) reconcile(changes []sharing.Change) {
	for _, c := range changes {
		if s := d.held[c.Resource.Partition]; s != nil {
			d.drop(s) // also if it was lost and acquired again: its term has changed
		}
		if c.Kind == sharing.Taken {
			d.held[c.Resource.Partition] = &heldPartition{partition: c.Resource.Partition}
		}
	}
	for p, s := range d.held {
		lease, until, isHeld := d.member.Lease(d.resource(p))
		if !isHeld { // it expired unused
			d.drop(s)
			continue
		}
		s.term, s.leaseEnds, s.leaving = lease.Term, until, !d.member.IsPreferred(d.resource(p))
	}
}

// drop stops publishing a partition here.
func (d *Dispatcher) drop(s *heldPartition) {
	if s.cancel != nil {
		s.cancel()
	}
	if d.held[s.partition] == s {
		delete(d.held, s.partition)
	}
}
