package fanout

import (
	"context"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

func (d *Dispatcher) resource(p event.PartitionID) ports.LeaseResource {
	return ports.LeaseResource{Name: LeaseName(d.Name), Partition: p}
}

// preferred tells whether this node is the one among the living that should publish a
// partition.
func (d *Dispatcher) preferred(p event.PartitionID) bool {
	return ports.Preferred(d.alive, d.resource(p)) == d.holder
}

// renew gives a sign of life, gives back what another node should have and nothing is
// under way for, and takes and renews the rest of this node's share. While the store
// cannot be asked, each lease goes on to its end.
func (d *Dispatcher) renew(ctx context.Context, heads map[event.PartitionID]ports.Head) {
	asking, cancel := context.WithTimeout(ctx, d.TTL/3)
	defer cancel()
	alive, err := d.Leases.BeatWork(asking, LeaseName(d.Name), d.holder, d.TTL)
	if err != nil {
		d.complain(ctx, err)
		return
	}
	if len(alive) != len(d.alive) {
		d.Logger.InfoContext(ctx, "nodes that share a publisher's legal entities", "publisher", d.Name, "alive", len(alive))
	}
	d.alive = alive
	d.giveBack(asking, ctx)
	var resources []ports.LeaseResource
	for p, h := range heads {
		if h.Sequence > 0 && (d.preferred(p) || d.held[p] != nil) {
			resources = append(resources, d.resource(p))
		}
	}
	before := time.Now() // the store counts from later
	var leases []ports.Lease
	if len(resources) > 0 {
		if leases, err = d.Leases.Hold(asking, d.holder, d.TTL, resources); err != nil {
			d.complain(ctx, err)
			return
		}
	}
	d.renewed = before
	d.take(leases, before)
	if d.Observer != nil {
		d.Observer.PublisherLeases(d.Name, len(d.held))
		d.Observer.PublisherNodes(d.Name, len(alive))
	}
}

// giveBack releases the partitions of other nodes. One that is being published goes on
// to the end of its batch first, so that a change of hands publishes nothing twice.
func (d *Dispatcher) giveBack(asking, ctx context.Context) {
	var back []ports.LeaseResource
	for p, s := range d.held {
		if s.leaving = !d.preferred(p); s.leaving && !s.busy {
			back = append(back, d.resource(p))
		}
	}
	if len(back) == 0 {
		return
	}
	if err := d.Leases.Release(asking, d.holder, back); err != nil {
		d.complain(ctx, err)
		return
	}
	for _, r := range back {
		d.drop(d.held[r.Partition])
		d.changed("released")
	}
}

// take notes what is held now.
func (d *Dispatcher) take(leases []ports.Lease, before time.Time) {
	ours := make(map[event.PartitionID]bool, len(leases))
	for _, l := range leases {
		ours[l.Partition] = true
		s := d.held[l.Partition]
		if s != nil && s.term != l.Term { // lost and taken again in between
			d.drop(s)
			s = nil
		}
		if s == nil {
			s = &share{partition: l.Partition, term: l.Term}
			d.held[l.Partition] = s
			d.changed("taken")
		}
		s.ends = before.Add(d.TTL)
	}
	for p, s := range d.held {
		if !ours[p] {
			d.drop(s)
			d.changed("lost")
		}
	}
}

func (d *Dispatcher) changed(how string) {
	if d.Observer != nil {
		d.Observer.PublisherLease(d.Name, how)
	}
}

// drop leaves a partition to somebody else.
func (d *Dispatcher) drop(s *share) {
	if s.cancel != nil {
		s.cancel()
	}
	if d.held[s.partition] == s {
		delete(d.held, s.partition)
	}
}

// leaveWithin bounds the goodbye: without it the others wait for the leases to expire.
const leaveWithin = 2 * time.Second

// release gives back what is held, so that another node goes on at once.
func (d *Dispatcher) release(ctx context.Context) {
	leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveWithin)
	defer cancel()
	resources := make([]ports.LeaseResource, 0, len(d.held))
	for p := range d.held {
		resources = append(resources, d.resource(p))
	}
	clear(d.held)
	err := d.Leases.Release(leaving, d.holder, resources)
	if err == nil {
		err = d.Leases.LeaveWork(leaving, LeaseName(d.Name), d.holder)
	}
	if err != nil {
		d.Logger.WarnContext(leaving, "another node goes on when the leases of this one expire", "publisher", d.Name, "code", fault.CodeOf(err))
	}
}

func (d *Dispatcher) complain(ctx context.Context, err error) {
	if ctx.Err() == nil {
		d.Logger.WarnContext(ctx, "the leases of a publisher could not be kept; it will be tried again", "publisher", d.Name, "code", fault.CodeOf(err))
	}
}
