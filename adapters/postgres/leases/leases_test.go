package leases_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/pgtest"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/conformance"
	"github.com/erpbackbone/backbone/test/testkit"
)

// TestLeases lets time pass by changing the stored times, since a test cannot set the
// database's clock.
func TestLeases(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	s := pgtest.Open(t, dsn)
	conformance.RunLeases(t, func(t *testing.T) conformance.LeaseHarness {
		pgtest.Execute(t, dsn, "DELETE FROM backbone.leases; DELETE FROM backbone.nodes; DELETE FROM backbone.work_nodes")
		return conformance.LeaseHarness{Leases: s.Leases, Pass: func(d time.Duration) {
			pgtest.Execute(t, dsn, fmt.Sprintf(`UPDATE backbone.leases SET taken_at = taken_at - '%[1]d s'::interval, expires_at = expires_at - '%[1]d s'::interval;
				UPDATE backbone.nodes SET seen_at = seen_at - '%[1]d s'::interval; UPDATE backbone.work_nodes SET seen_at = seen_at - '%[1]d s'::interval`, int(d.Seconds())))
		}}
	})
}

// TestHold_UsesDatabaseClock has two stores whose own clocks are years apart.
func TestHold_UsesDatabaseClock(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	slow := pgtest.Open(t, dsn, pgtest.WithClock(testkit.NewClock(time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC))))
	fast := pgtest.Open(t, dsn, pgtest.WithClock(testkit.NewClock(time.Date(2101, 1, 1, 0, 0, 0, 0, time.UTC))))
	resources := []ports.LeaseResource{{Name: "w", Partition: event.PartitionID(1)}}
	held, err := slow.Leases.Hold(t.Context(), "slow", time.Hour, resources)
	require.NoError(t, err)
	require.Len(t, held, 1)
	require.WithinDuration(t, time.Now().Add(time.Hour), held[0].ExpiresAt, time.Minute)
	held, err = fast.Leases.Hold(t.Context(), "fast", time.Hour, resources)
	require.NoError(t, err)
	require.Empty(t, held, "nothing expires early because a node's clock runs ahead")
	alive, err := slow.Leases.Beat(t.Context(), "", "slow", time.Hour)
	require.NoError(t, err)
	require.Equal(t, []string{"slow"}, alive)
	alive, err = fast.Leases.Beat(t.Context(), "", "fast", time.Hour)
	require.NoError(t, err)
	require.Equal(t, []string{"fast", "slow"}, alive)
}

// TestHold_LockedLeaseIsSkipped: another session locks one lease and a node's sign of
// life.
func TestHold_LockedLeaseIsSkipped(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	leases := pgtest.Open(t, dsn, pgtest.WithDefaultLimits).Leases
	resources := make([]ports.LeaseResource, 5)
	for i := range resources {
		resources[i] = ports.LeaseResource{Name: "w", Partition: event.PartitionID(i + 1)}
	}
	all, err := leases.Hold(t.Context(), "a", time.Hour, resources)
	require.NoError(t, err)
	require.Len(t, all, 5)
	for _, beat := range []func() ([]string, error){
		func() ([]string, error) { return leases.Beat(t.Context(), "", "a", time.Hour) },
		func() ([]string, error) { return leases.Beat(t.Context(), "", "b", time.Hour) },
		func() ([]string, error) { return leases.Beat(t.Context(), "p", "a", time.Hour) },
		func() ([]string, error) { return leases.Beat(t.Context(), "p", "b", time.Hour) },
	} {
		_, err := beat()
		require.NoError(t, err)
	}
	tx, err := pgtest.Connect(t, dsn).Begin(t.Context())
	require.NoError(t, err)
	for _, statement := range []string{
		"SELECT FROM backbone.leases WHERE partition_id = 3 FOR UPDATE",
		"SELECT FROM backbone.nodes WHERE node = 'a' FOR UPDATE", "SELECT FROM backbone.work_nodes WHERE node = 'a' FOR UPDATE",
	} {
		_, err := tx.Exec(t.Context(), statement)
		require.NoError(t, err)
	}
	more := append(resources, ports.LeaseResource{Name: "w", Partition: 6})
	held, err := leases.Hold(t.Context(), "a", 2*time.Hour, more)
	require.NoError(t, err)
	var partitions []event.PartitionID
	for _, l := range held {
		partitions = append(partitions, l.Partition)
		require.Greater(t, time.Until(l.ExpiresAt), time.Hour, "it is renewed")
		require.EqualValues(t, 1, l.Term)
	}
	require.Equal(t, []event.PartitionID{1, 2, 4, 5, 6}, partitions)
	require.Equal(t, fault.Unavailable, fault.KindOf(leases.Release(t.Context(), "a", resources[2:3])))
	require.NoError(t, leases.Release(t.Context(), "a", resources[:1]))
	alive, err := leases.Beat(t.Context(), "", "a", time.Hour)
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b"}, alive)
	alive, err = leases.Beat(t.Context(), "p", "a", time.Hour)
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b"}, alive)

	require.NoError(t, tx.Rollback(t.Context()))
	held, err = leases.Hold(t.Context(), "a", time.Hour, resources[2:3])
	require.NoError(t, err)
	require.Len(t, held, 1)
	require.Equal(t, all[2].Term, held[0].Term, "no other node held it in between")
}
