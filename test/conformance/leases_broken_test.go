package conformance_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/conformance"
)

// leases are sound; each breakage replaces what it breaks.
type leases struct{ ports.Leases }

// sharedLeases takes resources that another holder has.
type sharedLeases struct{ leases }

func (l sharedLeases) Hold(ctx context.Context, holder string, ttl time.Duration, resources []ports.LeaseResource) ([]ports.Lease, error) {
	if ctx.Err() == nil && holder != "" && ttl > 0 {
		all, _ := l.List(ctx, "")
		for _, lease := range all {
			_ = l.Release(ctx, lease.Holder, resources)
		}
	}
	return l.Leases.Hold(ctx, holder, ttl, resources)
}

// oneTerm reports the first term for every lease.
type oneTerm struct{ leases }

func (l oneTerm) Hold(ctx context.Context, holder string, ttl time.Duration, resources []ports.LeaseResource) ([]ports.Lease, error) {
	held, err := l.Leases.Hold(ctx, holder, ttl, resources)
	for i := range held {
		held[i].Term = 1
	}
	return held, err
}

// busyTerm makes a renewal a new term.
type busyTerm struct{ leases }

func (l busyTerm) Hold(ctx context.Context, holder string, ttl time.Duration, resources []ports.LeaseResource) ([]ports.Lease, error) {
	if ctx.Err() == nil {
		_ = l.Release(ctx, holder, resources)
	}
	return l.Leases.Hold(ctx, holder, ttl, resources)
}

// keptLeases releases nothing.
type keptLeases struct{ leases }

func (keptLeases) Release(ctx context.Context, _ string, _ []ports.LeaseResource) error {
	return ctx.Err()
}

// endlessLeases never expire.
type endlessLeases struct{ leases }

func (l endlessLeases) Hold(ctx context.Context, holder string, ttl time.Duration, resources []ports.LeaseResource) ([]ports.Lease, error) {
	if ttl > 0 {
		ttl *= 1000
	}
	return l.Leases.Hold(ctx, holder, ttl, resources)
}

// immortal reports dead nodes as alive.
type immortal struct{ leases }

func (l immortal) Beat(ctx context.Context, work, node string, within time.Duration) ([]string, error) {
	if within > 0 {
		within *= 10_000
	}
	return l.Leases.Beat(ctx, work, node, within)
}

func (immortal) Leave(context.Context, string, string) error { return nil }

// crowded counts the nodes of all work together.
type crowded struct{ leases }

func (l crowded) Beat(ctx context.Context, _, node string, within time.Duration) ([]string, error) {
	return l.Leases.Beat(ctx, "", node, within)
}

// greedy prunes the resources that the caller keeps.
type greedy struct{ leases }

func (l greedy) Prune(ctx context.Context, prefix string, _ []string) (int, error) {
	return l.Leases.Prune(ctx, prefix, nil)
}

var brokenLeases = []struct {
	name     string
	wrap     func(leases) ports.Leases
	mustFail []string
}{
	{"shares what is held", func(l leases) ports.Leases { return sharedLeases{l} }, []string{"resource of another holder is left out", "one of many acquires a resource"}},
	{"counts no terms", func(l leases) ports.Leases { return oneTerm{l} }, []string{"expired lease is taken over with the next term"}},
	{"counts renewals", func(l leases) ports.Leases { return busyTerm{l} }, []string{"renewal keeps the term"}},
	{"releases nothing", func(l leases) ports.Leases { return keptLeases{l} }, []string{"released lease is free at once"}},
	{"holds for ever", func(l leases) ports.Leases { return endlessLeases{l} }, []string{"expired lease is taken over with the next term"}},
	{"reports dead nodes as alive", func(l leases) ports.Leases { return immortal{l} }, []string{"nodes are alive while they beat", "node that leaves is gone at once"}},
	{"mixes the nodes of all work", func(l leases) ports.Leases { return crowded{l} }, []string{"nodes are listed by their work"}},
	{"prunes what is kept", func(l leases) ports.Leases { return greedy{l} }, []string{"only free resources are pruned"}},
}

// TestRunLeasesFailsOnBrokenLeases runs the suite on all broken leases in child
// processes and demands that the named sub-tests failed there.
func TestRunLeasesFailsOnBrokenLeases(t *testing.T) {
	t.Parallel()
	for _, b := range brokenLeases {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			requireNoticed(t, "TestLeaseSuite", b.name, b.mustFail)
		})
	}
}

// TestLeaseSuite runs in the child process; without a name it runs on sound leases.
func TestLeaseSuite(t *testing.T) {
	t.Parallel()
	name := os.Getenv(brokenVariable)
	wrap := func(l leases) ports.Leases { return l }
	for _, b := range brokenLeases {
		if b.name == name {
			wrap = b.wrap
		}
	}
	conformance.RunLeases(t, func(*testing.T) conformance.LeaseHarness {
		clock := conformance.NewClock()
		return conformance.LeaseHarness{Leases: wrap(leases{memory.New(memory.Config{Clock: clock}).Leases}), Pass: clock.Advance}
	})
}
