package ports

import (
	"context"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
)

// LeaseResource names work that one node at a time does, such as a projection of one
// partition.
type LeaseResource struct {
	Name      string            // such as "projection/gl.ledger/1"
	Partition event.PartitionID // 0: work of no single partition
}

// Lease is the right of one node, its holder, to do the work of a resource until it expires.
type Lease struct {
	LeaseResource
	Holder string // the node, or one run of it; "": released
	// Term numbers the holders of the resource, from 1. It grows whenever the holder changes. A
	// holder that comes back after its own lease has expired, and that no other node has taken,
	// renews it under the same term. After Release the next holder gets a new term, even if it is
	// the same node.
	Term      uint64
	TakenAt   time.Time // when the holder took it
	ExpiresAt time.Time
}

// Leases divides work among the nodes of an installation: the projector, the publisher and the
// webhook dispatcher use it through application/sharing. All times are of the store's clock, so
// that the clocks of nodes do not matter.
//
// A lease alone does not stop a holder that was paused past it. Where two holders must not write,
// their transactions check the term: ProjectionWork.Lease refuses every term but that of the
// current holder, PublisherCursors every term lower than the highest that it has seen. Both rely
// on terms never coming again under a name.
type Leases interface {
	// Hold takes the leases of all resources that are free or expired, renews those that the
	// holder has already, all for ttl from now, and returns the leases that the holder has
	// afterwards, by name and partition. It leaves out resources that another node holds. On
	// an error it changes nothing. A resource that is named twice counts once.
	Hold(ctx context.Context, holder string, ttl time.Duration, resources []LeaseResource) ([]Lease, error)
	// Release ends the holder's leases of the resources, so that the next holder does not wait
	// until they expire. A transaction under a released lease is refused. Leases of other holders
	// stay unchanged.
	Release(ctx context.Context, holder string, resources []LeaseResource) error
	// List returns the leases of a name, or all for "", by name and partition, including
	// expired and released ones.
	List(ctx context.Context, name string) ([]Lease, error)

	// Prune removes expired and released leases whose name begins with prefix and is not one of
	// the full names in keep, and returns their number. The next lease under such a name begins
	// with term 1, so Prune is only for names whose terms no transaction checks or that are never
	// used again, such as those on webhook endpoints. Under the name of a projection or
	// publisher, a paused holder of an old term could pass for the current one, and the rightful
	// holder would be refused where a higher term is stored.
	Prune(ctx context.Context, prefix string, keep []string) (int, error)

	// Beat records a heartbeat of a node that shares a kind of work and returns the nodes
	// that sent one for it less than within ago, by name; the node itself is one of them.
	// The kinds are counted separately, since not every node publishes to a broker; "" is the
	// kind that all nodes share.
	Beat(ctx context.Context, work, node string, within time.Duration) ([]string, error)
	// Leave removes a node from those that share the work, so that the remaining nodes share
	// it at once. The node's leases stay until they are released or expire.
	Leave(ctx context.Context, work, node string) error
}

// CheckLease refuses arguments that every store refuses. Fault lease.invalid.
func CheckLease(holder string, ttl time.Duration) error {
	if holder == "" || ttl <= 0 {
		return fault.New(fault.Internal, "lease.invalid", "a lease needs a holder and a time to live; pass both")
	}
	return nil
}

// Preferred returns the node that should hold a resource, "" without nodes: the one with the
// highest score (rendezvous hashing). When a node joins or leaves, only the resources that it
// gains or loses move. All nodes compute the same result and hold about equally many. It is
// advice to the nodes; Hold gives a free lease to any of them.
func Preferred(nodes []string, resource LeaseResource) string {
	best, highest := "", uint64(0)
	for _, node := range nodes {
		if s := score(node, resource); best == "" || s > highest {
			best, highest = node, s
		}
	}
	return best
}

func score(node string, resource LeaseResource) uint64 {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%s\x00%s\x00%d", node, resource.Name, resource.Partition)
	// The last bytes reach only few bits of the sum; this spreads them.
	x := h.Sum64()
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}
