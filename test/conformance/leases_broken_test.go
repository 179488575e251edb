package conformance_test

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/conformance"
)

// brokenLeasesVariable names, in a child process, the leases that the suite runs on.
const brokenLeasesVariable = "BACKBONE_BROKEN_LEASES"

// leases are sound; each breakage replaces what it breaks.
type leases struct{ ports.Leases }

// sharedLeases takes what another holds.
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

// oneTerm shows every lease under its first term.
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

// keptLeases gives nothing back.
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

// immortal nodes are never missed.
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

// greedy prunes what is asked to be kept.
type greedy struct{ leases }

func (l greedy) Prune(ctx context.Context, prefix string, _ []string) (int, error) {
	return l.Leases.Prune(ctx, prefix, nil)
}

var brokenLeases = []struct {
	name   string
	wrap   func(leases) ports.Leases
	notice []string
}{
	{"shares what is held", func(l leases) ports.Leases { return sharedLeases{l} }, []string{"WhatAnotherHoldsIsLeftOut", "OneOfManyTakesAResource"}},
	{"counts no terms", func(l leases) ports.Leases { return oneTerm{l} }, []string{"AnExpiredLeaseIsTakenOverWithTheNextTerm"}},
	{"counts renewals", func(l leases) ports.Leases { return busyTerm{l} }, []string{"ARenewalKeepsTheTerm"}},
	{"gives nothing back", func(l leases) ports.Leases { return keptLeases{l} }, []string{"AReleasedLeaseIsFreeAtOnce"}},
	{"holds for ever", func(l leases) ports.Leases { return endlessLeases{l} }, []string{"AnExpiredLeaseIsTakenOverWithTheNextTerm"}},
	{"takes the dead for living", func(l leases) ports.Leases { return immortal{l} }, []string{"NodesAreAliveWhileTheyBeat", "ANodeThatLeavesIsGoneAtOnce"}},
	{"mixes the nodes of all work", func(l leases) ports.Leases { return crowded{l} }, []string{"NodesOfOneWorkAreApart"}},
	{"prunes what is kept", func(l leases) ports.Leases { return greedy{l} }, []string{"OnlyWhatNobodyHoldsIsPruned"}},
}

// TestLeaseSuite_FailsOnBrokenLeases runs the suite on all broken leases in child
// processes and demands that the named sub-tests failed there.
func TestLeaseSuite_FailsOnBrokenLeases(t *testing.T) {
	t.Parallel()
	for _, b := range brokenLeases {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestLeaseSuiteChild$", "-test.v")
			child.Env = append(os.Environ(), brokenLeasesVariable+"="+b.name)
			output, err := child.CombinedOutput()
			require.Error(t, err, "the suite passes on broken leases")
			failed := failures(string(output))
			for _, name := range b.notice {
				require.Contains(t, failed, "TestLeaseSuiteChild/"+name)
			}
		})
	}
}

// TestLeaseSuiteChild is the child's side; without a name it runs on sound leases.
func TestLeaseSuiteChild(t *testing.T) {
	t.Parallel()
	name := os.Getenv(brokenLeasesVariable)
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
