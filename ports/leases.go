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
	Holder string // "" in a list: released
	// Term numbers the holders of the resource, from 1. It grows whenever the holder
	// changes and never when a lease is renewed. A transaction that checks it refuses a holder
	// that was paused past its lease.
	Term      uint64
	TakenAt   time.Time // when the holder took it
	ExpiresAt time.Time
}

// Leases divides work among the nodes of an installation. All times are of the store's clock, so
// that the clocks of nodes do not matter. A lease alone does not stop a holder that was paused
// past it: where two holders must not write, their transactions check the term.
type Leases interface {
	// Hold takes the leases of all resources that are free or expired, renews those that the
	// holder has already, all for ttl from now, and returns the leases that the holder has
	// afterwards, by name and partition. It leaves out resources that another node holds. On
	// an error it changes nothing. A resource that is named twice counts once.
	Hold(ctx context.Context, holder string, ttl time.Duration, resources []LeaseResource) ([]Lease, error)
	// Release ends the holder's leases of the resources, so that the next holder does not wait
	// until they expire. It leaves leases of other holders unchanged.
	Release(ctx context.Context, holder string, resources []LeaseResource) error
	// List returns the leases of a name, or all for "", by name and partition, including
	// expired and released ones.
	List(ctx context.Context, name string) ([]Lease, error)

	// Prune removes expired and released leases whose name begins with prefix and is not among
	// keep, and returns their number. The next lease under such a name begins with term 1, so
	// Prune is only for names whose terms no transaction checks, or that are never used again.
	Prune(ctx context.Context, prefix string, keep []string) (int, error)

	// Beat records a heartbeat of a node that shares a piece of work and returns the nodes
	// that sent one for it less than within ago, by name; the node itself is one of them.
	// The nodes of each work are counted separately, since not every node publishes to a
	// broker; work "" is that of all nodes.
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
// gains or loses move. All nodes compute the same result and hold about equally many.
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
