package memory

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/erpbackbone/backbone/ports"
)

// Leases shares work between the runners on one database.
type Leases struct{ *state }

// Hold implements ports.Leases.
func (l *Leases) Hold(ctx context.Context, holder string, ttl time.Duration, resources []ports.LeaseResource) ([]ports.Lease, error) {
	if err := ports.CheckLease(holder, ttl); err != nil {
		return nil, err
	}
	return get(ctx, l.state, func() ([]ports.Lease, error) {
		now := l.clock.Now()
		own := map[ports.LeaseResource]ports.Lease{}
		for _, r := range resources {
			lease, known := l.leases[r]
			if known && lease.Holder != holder && lease.ExpiresAt.After(now) {
				continue
			}
			if lease.Holder != holder {
				lease = ports.Lease{LeaseResource: r, Holder: holder, Term: lease.Term + 1, TakenAt: now}
			}
			lease.ExpiresAt = now.Add(ttl)
			l.leases[r], own[r] = lease, lease
		}
		return list(maps.Values(own), all, compareLeases), nil
	})
}

// Release implements ports.Leases.
func (l *Leases) Release(ctx context.Context, holder string, resources []ports.LeaseResource) error {
	return l.do(ctx, func() error {
		for _, r := range resources {
			if lease, known := l.leases[r]; known && lease.Holder == holder {
				lease.Holder, lease.ExpiresAt = "", time.Unix(0, 0).UTC()
				l.leases[r] = lease
			}
		}
		return nil
	})
}

// List implements ports.Leases.
func (l *Leases) List(ctx context.Context, name string) ([]ports.Lease, error) {
	return get(ctx, l.state, func() ([]ports.Lease, error) {
		return list(maps.Values(l.leases), func(lease ports.Lease) bool { return name == "" || lease.Name == name }, compareLeases), nil
	})
}

// Beat implements ports.Leases.
func (l *Leases) Beat(ctx context.Context, work, node string, within time.Duration) ([]string, error) {
	if err := ports.CheckLease(node, within); err != nil {
		return nil, err
	}
	return get(ctx, l.state, func() ([]string, error) {
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
	})
}

// Leave implements ports.Leases.
func (l *Leases) Leave(ctx context.Context, work, node string) error {
	return l.do(ctx, func() error {
		delete(l.nodes[work], node)
		return nil
	})
}

// Prune implements ports.Leases.
func (l *Leases) Prune(ctx context.Context, prefix string, keep []string) (int, error) {
	return get(ctx, l.state, func() (int, error) {
		now, before := l.clock.Now(), len(l.leases)
		maps.DeleteFunc(l.leases, func(r ports.LeaseResource, held ports.Lease) bool {
			return strings.HasPrefix(r.Name, prefix) && !held.ExpiresAt.After(now) && !slices.Contains(keep, r.Name)
		})
		return before - len(l.leases), nil
	})
}

// term is the term under which the holder has the resource, also after the lease has expired;
// 0 if another holder has taken the lease or it was released. It is called with the lock held.
func (s *state) term(r ports.LeaseResource, holder string) uint64 {
	if lease := s.leases[r]; lease.Holder == holder {
		return lease.Term
	}
	return 0
}

func compareLeases(a, b ports.Lease) int {
	return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Partition, b.Partition))
}
