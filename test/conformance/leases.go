package conformance

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// LeaseHarness makes leases under test.
type LeaseHarness struct {
	// Leases are those of a new installation, empty at first.
	Leases ports.Leases
	// Pass ages all leases and heartbeats by d.
	Pass func(d time.Duration)
}

const leaseLife = time.Hour // longer than any test

var leasePromises = []struct {
	name  string
	check func(t *testing.T, h LeaseHarness)
}{
	{"free resource is acquired", leaseTaken},
	{"resource of another holder is left out", leaseLeftOut},
	{"renewal keeps the term", leaseRenewed},
	{"expired lease is taken over with the next term", leaseTakenOver},
	{"holder renews its expired lease in the same term", leaseResumed},
	{"released lease is free at once", leaseReleased},
	{"lease of another holder is not released", leaseForeign},
	{"names and partitions are independent", leaseSeparate},
	{"one of many acquires a resource", leaseRace},
	{"overlapping calls do not deadlock", leaseOverlap},
	{"nodes are alive while they beat", leaseBeat},
	{"node that leaves is gone at once", leaseLeave},
	{"nodes are listed by their work", leaseWork},
	{"only free resources are pruned", leasePrune},
	{"cancelled call acquires nothing", leaseCancelled},
	{"lease needs a holder and a duration", leaseInvalid},
}

// RunLeases checks ports.Leases: who holds a resource, in which term, and which nodes are
// alive. Each sub-test gets new leases.
func RunLeases(t *testing.T, open func(t *testing.T) LeaseHarness) {
	t.Helper()
	for _, p := range leasePromises {
		t.Run(p.name, func(t *testing.T) { p.check(t, open(t)) })
	}
}

func work(name string, partitions ...event.PartitionID) []ports.LeaseResource {
	out := make([]ports.LeaseResource, len(partitions))
	for i, p := range partitions {
		out[i] = ports.LeaseResource{Name: name, Partition: p}
	}
	return out
}

func (h LeaseHarness) hold(t *testing.T, holder string, resources []ports.LeaseResource) []ports.Lease {
	t.Helper()
	held, err := h.Leases.Hold(context.Background(), holder, leaseLife, resources)
	require.NoError(t, err)
	require.NotNil(t, held)
	for _, l := range held {
		require.Equal(t, holder, l.Holder)
		require.NotZero(t, l.Term)
		require.Equal(t, time.UTC, l.ExpiresAt.Location())
		require.True(t, l.ExpiresAt.After(l.TakenAt))
	}
	return held
}

func (h LeaseHarness) release(t *testing.T, holder string, resources []ports.LeaseResource) {
	t.Helper()
	require.NoError(t, h.Leases.Release(context.Background(), holder, resources))
}

func (h LeaseHarness) beat(t *testing.T, node string) []string {
	t.Helper()
	alive, err := h.Leases.Beat(context.Background(), "", node, leaseLife)
	require.NoError(t, err)
	return alive
}

// terms returns the terms by resource.
func terms(leases []ports.Lease) map[ports.LeaseResource]uint64 {
	out := map[ports.LeaseResource]uint64{}
	for _, l := range leases {
		out[l.LeaseResource] = l.Term
	}
	return out
}

func leaseTaken(t *testing.T, h LeaseHarness) {
	require.Empty(t, h.hold(t, "a", nil))
	held := h.hold(t, "a", []ports.LeaseResource{{Name: "w", Partition: 2}, {Name: "w"}, {Name: "v", Partition: 9}, {Name: "w", Partition: 2}})
	require.Equal(t, []ports.LeaseResource{{Name: "v", Partition: 9}, {Name: "w"}, {Name: "w", Partition: 2}},
		[]ports.LeaseResource{held[0].LeaseResource, held[1].LeaseResource, held[2].LeaseResource}, "in order, each once")
	for _, l := range held {
		require.EqualValues(t, 1, l.Term)
		require.Equal(t, leaseLife, l.ExpiresAt.Sub(l.TakenAt))
	}
	all, err := h.Leases.List(context.Background(), "")
	require.NoError(t, err)
	require.Equal(t, held, all)
	some, err := h.Leases.List(context.Background(), "w")
	require.NoError(t, err)
	require.Equal(t, held[1:], some)
	none, err := h.Leases.List(context.Background(), "unknown")
	require.NoError(t, err)
	require.NotNil(t, none)
	require.Empty(t, none)
}

func leaseLeftOut(t *testing.T, h LeaseHarness) {
	h.hold(t, "a", work("w", 1, 3))
	held := h.hold(t, "b", work("w", 1, 2, 3, 4))
	require.Equal(t, map[ports.LeaseResource]uint64{{Name: "w", Partition: 2}: 1, {Name: "w", Partition: 4}: 1}, terms(held))
	require.Empty(t, h.hold(t, "b", work("w", 1)))
	require.Len(t, h.hold(t, "a", work("w", 1, 2, 3)), 2, "b's attempt took nothing of it")
}

func leaseRenewed(t *testing.T, h LeaseHarness) {
	first := h.hold(t, "a", work("w", 1))[0]
	for range 3 {
		h.Pass(leaseLife * 3 / 4)
		again := h.hold(t, "a", work("w", 1))[0]
		require.Equal(t, first.Term, again.Term)
		require.Empty(t, h.hold(t, "b", work("w", 1)), "it is the renewed life that counts")
	}
	list, err := h.Leases.List(context.Background(), "w")
	require.NoError(t, err)
	require.Greater(t, list[0].ExpiresAt.Sub(list[0].TakenAt), leaseLife, "a renewal is no taking")
}

func leaseTakenOver(t *testing.T, h LeaseHarness) {
	h.hold(t, "a", work("w", 1, 2))
	h.Pass(leaseLife + time.Second)
	held := h.hold(t, "b", work("w", 1))
	require.Equal(t, map[ports.LeaseResource]uint64{{Name: "w", Partition: 1}: 2}, terms(held))
	require.Equal(t, leaseLife, held[0].ExpiresAt.Sub(held[0].TakenAt), "taken now")
	require.Equal(t, map[ports.LeaseResource]uint64{{Name: "w", Partition: 2}: 1}, terms(h.hold(t, "a", work("w", 1, 2))), "the old holder has lost it")
	h.Pass(leaseLife + time.Second)
	require.EqualValues(t, 3, h.hold(t, "a", work("w", 1))[0].Term, "a term never comes again")
}

func leaseResumed(t *testing.T, h LeaseHarness) {
	h.hold(t, "a", work("w", 1))
	h.Pass(10 * leaseLife)
	require.EqualValues(t, 1, h.hold(t, "a", work("w", 1))[0].Term)
	require.Empty(t, h.hold(t, "b", work("w", 1)))
}

func leaseReleased(t *testing.T, h LeaseHarness) {
	h.hold(t, "a", work("w", 1, 2))
	h.release(t, "a", work("w", 1, 7))
	list, err := h.Leases.List(context.Background(), "w")
	require.NoError(t, err)
	require.Len(t, list, 2)
	require.Equal(t, []string{"", "a"}, []string{list[0].Holder, list[1].Holder})
	require.False(t, list[0].ExpiresAt.After(list[0].TakenAt))
	require.Equal(t, map[ports.LeaseResource]uint64{{Name: "w", Partition: 1}: 2}, terms(h.hold(t, "b", work("w", 1, 2))))
	h.release(t, "b", work("w", 1))
	require.EqualValues(t, 3, h.hold(t, "b", work("w", 1))[0].Term, "given back is given back")
}

func leaseForeign(t *testing.T, h LeaseHarness) {
	h.hold(t, "a", work("w", 1))
	h.release(t, "b", work("w", 1))
	h.release(t, "", work("w", 1))
	h.release(t, "a", nil)
	require.Empty(t, h.hold(t, "b", work("w", 1)))
	require.EqualValues(t, 1, h.hold(t, "a", work("w", 1))[0].Term)
}

func leaseSeparate(t *testing.T, h LeaseHarness) {
	h.hold(t, "a", work("w", 1))
	require.Len(t, h.hold(t, "b", append(work("w", 0, 2), work("v", 1)...)), 3)
}

func leaseRace(t *testing.T, h LeaseHarness) {
	for round := range races {
		won := make([]int, 8)
		errs := race(len(won), func(i int) error {
			held, err := h.Leases.Hold(context.Background(), fmt.Sprint("node ", i), leaseLife, work("w", event.PartitionID(round)))
			won[i] = len(held)
			return err
		})
		sum := 0
		for i := range won {
			require.NoError(t, errs[i])
			sum += won[i]
		}
		require.Equal(t, 1, sum)
	}
}

// leaseOverlap lets nodes take and give back the same resources in opposite orders.
func leaseOverlap(t *testing.T, h LeaseHarness) {
	ctx := context.Background()
	var wg sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		wg.Go(func() {
			resources := work("w", 1, 2, 3, 4, 5, 6)
			if i%2 == 1 {
				resources = work("w", 6, 5, 4, 3, 2, 1)
			}
			for range 20 {
				held, err := h.Leases.Hold(ctx, fmt.Sprint("node ", i), leaseLife, resources)
				if err == nil {
					err = h.Leases.Release(ctx, fmt.Sprint("node ", i), resources)
				}
				if err != nil {
					errs[i] = err
					return
				}
				_ = held
			}
		})
	}
	wg.Wait()
	for i := range errs {
		require.NoError(t, errs[i])
	}
}

func leaseBeat(t *testing.T, h LeaseHarness) {
	require.Equal(t, []string{"b"}, h.beat(t, "b"))
	require.Equal(t, []string{"a", "b"}, h.beat(t, "a"))
	h.Pass(leaseLife * 2 / 3)
	require.Equal(t, []string{"a", "b"}, h.beat(t, "a"))
	h.Pass(leaseLife * 2 / 3)
	require.Equal(t, []string{"a", "c"}, h.beat(t, "c"), "b was silent for too long")
	require.Equal(t, []string{"a", "b", "c"}, h.beat(t, "b"), "and came back")
	h.Pass(1000 * leaseLife)
	require.Equal(t, []string{"a"}, h.beat(t, "a"))
}

func leaseLeave(t *testing.T, h LeaseHarness) {
	h.beat(t, "a")
	h.beat(t, "b")
	require.NoError(t, h.Leases.Leave(context.Background(), "", "a"))
	require.NoError(t, h.Leases.Leave(context.Background(), "", "unknown"))
	require.Equal(t, []string{"b"}, h.beat(t, "b"))
}

func leaseCancelled(t *testing.T, h LeaseHarness) {
	_, err := h.Leases.Hold(cancelled(), "a", leaseLife, work("w", 1))
	require.ErrorIs(t, err, context.Canceled)
	h.hold(t, "b", work("w", 2))
	require.ErrorIs(t, h.Leases.Release(cancelled(), "b", work("w", 2)), context.Canceled)
	_, err = h.Leases.Beat(cancelled(), "", "a", leaseLife)
	require.ErrorIs(t, err, context.Canceled)
	list, err := h.Leases.List(context.Background(), "")
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Equal(t, "b", list[0].Holder)
}

func leaseInvalid(t *testing.T, h LeaseHarness) {
	for _, c := range []struct {
		holder string
		life   time.Duration
	}{{"", leaseLife}, {"a", 0}, {"a", -1}} {
		_, err := h.Leases.Hold(context.Background(), c.holder, c.life, work("w", 1))
		require.Equal(t, "lease.invalid", fault.CodeOf(err))
		_, err = h.Leases.Beat(context.Background(), "", c.holder, c.life)
		require.Equal(t, "lease.invalid", fault.CodeOf(err))
	}
}

func leaseWork(t *testing.T, h LeaseHarness) {
	beat := func(work, node string) []string {
		alive, err := h.Leases.Beat(context.Background(), work, node, leaseLife)
		require.NoError(t, err)
		return alive
	}
	require.Equal(t, []string{"a"}, h.beat(t, "a"))
	require.Equal(t, []string{"b"}, beat("publish", "b"))
	require.Equal(t, []string{"a"}, h.beat(t, "a"), "a node of one work is not counted for another")
	require.Equal(t, []string{"a", "b"}, beat("publish", "a"))
	require.Equal(t, []string{"c"}, beat("other", "c"))
	h.Pass(leaseLife / 2)
	require.Equal(t, []string{"a", "b"}, beat("publish", "b"))
	h.Pass(leaseLife * 2 / 3)
	require.Equal(t, []string{"b"}, beat("publish", "b"), "the last beat of a is too old")
	require.NoError(t, h.Leases.Leave(context.Background(), "publish", "b"))
	require.Equal(t, []string{"c"}, beat("publish", "c"))
	require.NoError(t, h.Leases.Leave(context.Background(), "publish", "unknown"))
	_, err := h.Leases.Beat(context.Background(), "publish", "", leaseLife)
	require.Equal(t, "lease.invalid", fault.CodeOf(err))
}

func leasePrune(t *testing.T, h LeaseHarness) {
	h.hold(t, "a", []ports.LeaseResource{{Name: "hook/1"}, {Name: "hook/2"}, {Name: "hook/3"}, {Name: "hooks"}, {Name: "g", Partition: 1}, {Name: "hook%"}})
	h.release(t, "a", []ports.LeaseResource{{Name: "hook/1"}, {Name: "hook/2"}, {Name: "hooks"}, {Name: "g", Partition: 1}})
	n, err := h.Leases.Prune(context.Background(), "hook/", []string{"hook/2"})
	require.NoError(t, err)
	require.Equal(t, 1, n, "hook/2 is kept, hook/3 is held, the remaining names have another prefix")
	left, err := h.Leases.List(context.Background(), "")
	require.NoError(t, err)
	var names []string
	for _, l := range left {
		names = append(names, l.Name)
	}
	require.Equal(t, []string{"g", "hook%", "hook/2", "hook/3", "hooks"}, names)
	h.Pass(2 * leaseLife)
	n, err = h.Leases.Prune(context.Background(), "hook/", nil)
	require.NoError(t, err)
	require.Equal(t, 2, n, "an expired lease has no holder")
	again := h.hold(t, "b", []ports.LeaseResource{{Name: "hook/1"}})
	require.EqualValues(t, 1, again[0].Term)
}
