package sharing_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/adapters/system"
	"github.com/erpbackbone/backbone/application/sharing"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

const (
	ttl        = 10 * time.Second
	partitions = 40
)

// unreachable fails the calls whose names are listed.
type unreachable struct {
	ports.Leases
	calls string
	held  []ports.LeaseResource // asked for by the newest Hold
}

func (u *unreachable) err(call string) error {
	if strings.Contains(u.calls, call) {
		return fault.New(fault.Unavailable, "store.unavailable", "the store does not answer; wait")
	}
	return nil
}

func (u *unreachable) Hold(ctx context.Context, holder string, ttl time.Duration, resources []ports.LeaseResource) ([]ports.Lease, error) {
	u.held = resources
	if err := u.err("hold"); err != nil {
		return nil, err
	}
	return u.Leases.Hold(ctx, holder, ttl, resources)
}

func (u *unreachable) Release(ctx context.Context, holder string, resources []ports.LeaseResource) error {
	if err := u.err("release"); err != nil {
		return err
	}
	return u.Leases.Release(ctx, holder, resources)
}

func (u *unreachable) Beat(ctx context.Context, work, node string, within time.Duration) ([]string, error) {
	if err := u.err("beat"); err != nil {
		return nil, err
	}
	return u.Leases.Beat(ctx, work, node, within)
}

// memberFixture is one node on a lease store that it shares with other fixtures.
type memberFixture struct {
	*sharing.Member
	store  *unreachable
	leases *memory.Leases
	skew   time.Duration // of the node's clock
}

func newLeases() *memory.Leases {
	return memory.New(memory.Config{Clock: system.Clock{}}).Leases
}

func newMember(leases *memory.Leases, node string) *memberFixture {
	m := &memberFixture{leases: leases, store: &unreachable{Leases: leases}}
	m.Member = sharing.New(sharing.Config{
		Leases: m.store, Work: "work", Holder: node, TTL: ttl, Now: func() time.Time { return time.Now().Add(m.skew) }, Logger: slog.New(slog.DiscardHandler),
	})
	return m
}

func resource(p int) ports.LeaseResource {
	return ports.LeaseResource{Name: "work", Partition: event.PartitionID(p)}
}

func resources() []ports.LeaseResource {
	out := make([]ports.LeaseResource, partitions)
	for i := range out {
		out[i] = resource(i + 1)
	}
	return out
}

// pass lets simulated time pass.
func pass(d time.Duration) { <-time.After(d) }

// usable are the resources that a node may work now.
func (m *memberFixture) usable() int {
	n := 0
	for _, r := range resources() {
		if m.Use(r) {
			n++
		}
	}
	return n
}

// kinds counts changes by kind.
func kinds(changes []sharing.Change) map[string]int {
	out := map[string]int{}
	for _, c := range changes {
		out[c.Kind]++
	}
	return out
}

func (m *memberFixture) renew(t *testing.T, inUse ...ports.LeaseResource) map[string]int {
	t.Helper()
	changes, err := m.Renew(t.Context(), resources(), inUse)
	require.NoError(t, err)
	return kinds(changes)
}

func TestMember(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(*testing.T){
		"nodes_share_and_hand_over":                    testHandOver,
		"a_dead_nodes_resources_are_taken_at_expiry":   testDeadNode,
		"a_leaving_node_is_replaced_at_once":           testLeave,
		"a_lease_in_use_is_released_when_it_is_idle":   testInUse,
		"a_lease_outlives_an_unreachable_store":        testUnreachable,
		"a_failed_release_is_tried_again":              testReleaseFails,
		"an_unused_lease_is_not_renewed":               testIdle,
		"a_remote_resource_is_not_asked_for_at_once":   testRetryIn,
		"a_clock_set_back_ends_leases":                 testClockSetBack,
		"a_fenced_lease_is_forgotten_for_its_own_term": testForget,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, test)
		})
	}
}

func testHandOver(t *testing.T) {
	leases := newLeases()
	a, b := newMember(leases, "a"), newMember(leases, "b")
	require.False(t, a.IsPreferred(resource(1)), "before the first heartbeat no node is preferred")
	require.Equal(t, map[string]int{sharing.Taken: partitions}, a.renew(t))
	require.Equal(t, partitions, a.usable())
	require.Equal(t, 1, a.Nodes())

	require.Empty(t, b.renew(t), "a has not released anything")
	released := a.renew(t)[sharing.Released]
	require.Greater(t, released, partitions/5)
	require.Less(t, released, partitions*4/5)
	require.Equal(t, map[string]int{sharing.Taken: released}, b.renew(t))
	require.Equal(t, released, b.usable())
	require.Equal(t, partitions-released, a.usable())
	require.Equal(t, 2, a.Nodes())
	for _, r := range resources() {
		require.NotEqual(t, a.IsPreferred(r), b.IsPreferred(r), "both nodes compute the same owner")
		require.Equal(t, a.IsPreferred(r), a.Use(r))
	}
	require.Empty(t, a.renew(t), "nothing moves while no node comes or goes")
	require.Empty(t, b.renew(t))
}

func testDeadNode(t *testing.T) {
	leases := newLeases()
	a, b := newMember(leases, "a"), newMember(leases, "b")
	a.renew(t)
	b.renew(t)
	moved := a.renew(t)[sharing.Released]
	b.renew(t)
	begun := time.Now()
	for b.usable() < partitions { // a has died
		require.Less(t, time.Since(begun), 2*ttl)
		pass(time.Second)
		b.renew(t)
	}
	require.GreaterOrEqual(t, time.Since(begun), ttl, "not before the leases ended")
	require.Zero(t, a.usable(), "the dead node knows by its own clock")
	lease, _, isHeld := b.Lease(resource(1))
	require.True(t, isHeld)
	require.LessOrEqual(t, lease.Term, uint64(2))
	require.Positive(t, moved)
}

func testLeave(t *testing.T) {
	leases := newLeases()
	a, b := newMember(leases, "a"), newMember(leases, "b")
	a.renew(t)
	b.renew(t)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	a.Leave(ended)
	require.Zero(t, a.usable())
	require.Equal(t, map[string]int{sharing.Taken: partitions}, b.renew(t))
}

func testInUse(t *testing.T) {
	leases := newLeases()
	a, b := newMember(leases, "a"), newMember(leases, "b")
	a.renew(t)
	b.renew(t)
	all := resources()
	require.Empty(t, a.renew(t, all...), "each has work in flight")
	require.Equal(t, partitions, a.usable())
	require.Empty(t, b.renew(t))
	require.Positive(t, a.renew(t)[sharing.Released])
}

func testUnreachable(t *testing.T) {
	leases := newLeases()
	a, b := newMember(leases, "a"), newMember(leases, "b")
	a.renew(t)
	for _, calls := range []string{"beat", "hold"} {
		a.store.calls = calls
		_, err := a.Renew(t.Context(), resources(), nil)
		require.Equal(t, "store.unavailable", fault.CodeOf(err))
	}
	pass(ttl - time.Second)
	require.Equal(t, partitions, a.usable(), "until they end")
	pass(time.Second)
	require.Zero(t, a.usable())
	b.renew(t)
	a.store.calls = ""
	lost := a.renew(t)
	require.Equal(t, partitions, lost[sharing.Lost]+lost[sharing.Released])
}

func testReleaseFails(t *testing.T) {
	leases := newLeases()
	a, b := newMember(leases, "a"), newMember(leases, "b")
	a.renew(t)
	b.renew(t)
	a.store.calls = "release"
	changes, err := a.Renew(t.Context(), resources(), nil)
	require.Equal(t, "store.unavailable", fault.CodeOf(err))
	require.Empty(t, changes)
	a.store.calls = ""
	require.Positive(t, a.renew(t)[sharing.Released])
}

func testIdle(t *testing.T) {
	m := newMember(newLeases(), "a")
	_, err := m.Renew(t.Context(), nil, nil)
	require.NoError(t, err)
	changes, err := m.Acquire(t.Context(), resources()[:2])
	require.NoError(t, err)
	require.Equal(t, map[string]int{sharing.Taken: 2}, kinds(changes))
	for range 4 {
		pass(ttl / 2)
		require.True(t, m.Use(resource(1)))
		changes, err = m.Renew(t.Context(), nil, nil)
		require.NoError(t, err)
		require.Empty(t, changes)
	}
	require.Equal(t, resources()[:1], m.store.held, "only what is used is renewed")
	_, _, isHeld := m.Lease(resource(2))
	require.False(t, isHeld)
}

func testRetryIn(t *testing.T) {
	leases := newLeases()
	a, b := newMember(leases, "a"), newMember(leases, "b")
	a.renew(t)
	require.Zero(t, b.RetryIn(resource(1)))
	_, err := b.Acquire(t.Context(), resources())
	require.NoError(t, err)
	require.Equal(t, 100*time.Millisecond, b.RetryIn(resource(1)))
	pass(100 * time.Millisecond)
	require.Zero(t, b.RetryIn(resource(1)))
}

func testClockSetBack(t *testing.T) {
	m := newMember(newLeases(), "a")
	m.renew(t)
	m.skew = -time.Hour
	require.Zero(t, m.usable(), "a lease does not become longer")
	require.Empty(t, m.renew(t))
	require.Equal(t, partitions, m.usable())
}

func testForget(t *testing.T) {
	m := newMember(newLeases(), "a")
	m.renew(t)
	m.Forget(resource(1), 7)
	require.True(t, m.Use(resource(1)), "it is held with another term")
	m.Forget(resource(1), 1)
	require.False(t, m.Use(resource(1)))
	require.Equal(t, map[string]int{sharing.Taken: 1}, m.renew(t))
}
