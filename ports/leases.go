package ports

import (
	"context"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
)

// LeaseResource is work that one holder at a time does, such as a projection's of one
// partition.
type LeaseResource struct {
	Name      string            // what is worked, such as "projection/gl.ledger/1"
	Partition event.PartitionID // 0: work of no single partition
}

// Lease says who works a resource.
type Lease struct {
	LeaseResource
	Holder string // "" in a list: released
	// Term numbers the holders of the resource, from 1. It grows whenever the holder
	// changes and never when a lease is renewed, so that a transaction of the holder can be
	// told from one who was paused past its lease.
	Term      uint64
	TakenAt   time.Time // when the holder took it
	ExpiresAt time.Time
}

// Leases divides work among the nodes of an installation. Every time is of the store's
// clock, so that a node whose own clock jumps changes nothing. A lease alone protects
// nothing: a transaction of a holder checks the term before it commits.
type Leases interface {
	// Hold takes every resource that is free or expired, renews what is the holder's
	// already, all for ttl from now, and returns what is the holder's afterwards, in the
	// order of name and partition. A resource that another node holds is left out. It is
	// one statement: all of it or, on an error, nothing. A resource that is named twice
	// counts once.
	Hold(ctx context.Context, holder string, ttl time.Duration, resources []LeaseResource) ([]Lease, error)
	// Release releases those of the resources that are the holder's and leaves the rest
	// unchanged. The next holder does not have to wait until they expire.
	Release(ctx context.Context, holder string, resources []LeaseResource) error
	// List returns the leases of a name, or all for "", by name and partition, including
	// expired and released ones.
	List(ctx context.Context, name string) ([]Lease, error)

	// Prune removes the leases whose name begins with prefix and is not among keep, and that
	// no node holds any more. It returns how many. A lease that is taken again under such
	// a name begins with term 1, so Prune is only for names whose term fences nothing, or
	// that are never used again.
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

// CheckLease refuses what no store takes. Fault lease.invalid.
func CheckLease(holder string, ttl time.Duration) error {
	if holder == "" || ttl <= 0 {
		return fault.New(fault.Internal, "lease.invalid", "a lease needs a holder and a time to live; pass both")
	}
	return nil
}

// Preferred is the node that should work a resource, "" without nodes: the one with the
// highest score. When a node comes or goes, only the resources that it gains or
// loses move, and all shares stay about equal. All nodes compute the same answer.
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
