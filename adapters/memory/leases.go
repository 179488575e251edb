package memory

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/erpbackbone/backbone/ports"
)

// Leases are kept in the process, for the runners on one store.
type Leases struct {
	clock ports.Clock

	mu    sync.Mutex
	held  map[ports.LeaseResource]ports.Lease
	nodes map[string]map[string]time.Time // by work; "" is all work
}

func newLeases(c ports.Clock) *Leases {
	return &Leases{clock: c, held: map[ports.LeaseResource]ports.Lease{}, nodes: map[string]map[string]time.Time{}}
}

// Hold implements ports.Leases.
func (l *Leases) Hold(ctx context.Context, holder string, ttl time.Duration, resources []ports.LeaseResource) ([]ports.Lease, error) {
	if err := ports.CheckLease(holder, ttl); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock.Now()
	own := map[ports.LeaseResource]ports.Lease{}
	for _, r := range resources {
		lease, known := l.held[r]
		if known && lease.Holder != holder && lease.ExpiresAt.After(now) {
			continue
		}
		if lease.Holder != holder {
			lease = ports.Lease{LeaseResource: r, Holder: holder, Term: lease.Term + 1, TakenAt: now}
		}
		lease.ExpiresAt = now.Add(ttl)
		l.held[r], own[r] = lease, lease
	}
	return inOrder(slices.Collect(maps.Values(own))), nil
}

// Release implements ports.Leases.
func (l *Leases) Release(ctx context.Context, holder string, resources []ports.LeaseResource) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range resources {
		if lease, known := l.held[r]; known && lease.Holder == holder {
			lease.Holder, lease.ExpiresAt = "", time.Unix(0, 0).UTC()
			l.held[r] = lease
		}
	}
	return nil
}

// List implements ports.Leases.
func (l *Leases) List(ctx context.Context, name string) ([]ports.Lease, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	out := []ports.Lease{}
	for _, lease := range l.held {
		if name == "" || lease.Name == name {
			out = append(out, lease)
		}
	}
	return inOrder(out), nil
}

// Beat implements ports.Leases.
func (l *Leases) Beat(ctx context.Context, work, node string, within time.Duration) ([]string, error) {
	if err := ports.CheckLease(node, within); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock.Now()
	if l.nodes[work] == nil {
		l.nodes[work] = map[string]time.Time{}
	}
	l.nodes[work][node] = now
	out := []string{}
	for n, seen := range l.nodes[work] {
		if seen.After(now.Add(-within)) {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out, nil
}

// Leave implements ports.Leases.
func (l *Leases) Leave(ctx context.Context, work, node string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.nodes[work], node)
	return nil
}

// Prune implements ports.Leases.
func (l *Leases) Prune(ctx context.Context, prefix string, keep []string) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now, before := l.clock.Now(), len(l.held)
	maps.DeleteFunc(l.held, func(r ports.LeaseResource, held ports.Lease) bool {
		return strings.HasPrefix(r.Name, prefix) && !held.ExpiresAt.After(now) && !slices.Contains(keep, r.Name)
	})
	return before - len(l.held), nil
}

// term is the term under which the holder has the resource, 0 if it has not.
func (l *Leases) term(r ports.LeaseResource, holder string) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if lease := l.held[r]; lease.Holder == holder {
		return lease.Term
	}
	return 0
}

func inOrder(leases []ports.Lease) []ports.Lease {
	slices.SortFunc(leases, func(a, b ports.Lease) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Partition, b.Partition))
	})
	if leases == nil {
		leases = []ports.Lease{}
	}
	return leases
}
