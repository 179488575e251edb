package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/conformance"
	"github.com/erpbackbone/backbone/test/testkit"
)

// TestLeases lets time pass by moving what the database has written down: its clock
// is nobody's to move.
func TestLeases(t *testing.T) {
	t.Parallel()
	dsn := database(t)
	s := open(t, dsn)
	conformance.RunLeases(t, func(t *testing.T) conformance.LeaseHarness {
		execute(t, dsn, "DELETE FROM backbone.leases; DELETE FROM backbone.nodes; DELETE FROM backbone.work_nodes")
		return conformance.LeaseHarness{Leases: s.Leases(), Pass: func(d time.Duration) {
			execute(t, dsn, fmt.Sprintf(`UPDATE backbone.leases SET taken_at = taken_at - '%[1]d s'::interval, expires_at = expires_at - '%[1]d s'::interval;
				UPDATE backbone.nodes SET seen_at = seen_at - '%[1]d s'::interval; UPDATE backbone.work_nodes SET seen_at = seen_at - '%[1]d s'::interval`, int(d.Seconds())))
		}}
	})
}

// TestLeasesGoByTheDatabasesClock has two stores whose own clocks are years apart.
func TestLeasesGoByTheDatabasesClock(t *testing.T) {
	t.Parallel()
	dsn := database(t)
	slow := open(t, dsn, withClock(testkit.NewClock(time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC))))
	fast := open(t, dsn, withClock(testkit.NewClock(time.Date(2101, 1, 1, 0, 0, 0, 0, time.UTC))))
	resources := []ports.LeaseResource{{Name: "w", Partition: event.PartitionID(1)}}
	held, err := slow.Leases().Hold(t.Context(), "slow", time.Hour, resources)
	require.NoError(t, err)
	require.Len(t, held, 1)
	require.WithinDuration(t, time.Now().Add(time.Hour), held[0].ExpiresAt, time.Minute)
	held, err = fast.Leases().Hold(t.Context(), "fast", time.Hour, resources)
	require.NoError(t, err)
	require.Empty(t, held, "nothing expires early because a node's clock runs ahead")
	alive, err := slow.Leases().Beat(t.Context(), "slow", time.Hour)
	require.NoError(t, err)
	require.Equal(t, []string{"slow"}, alive)
	alive, err = fast.Leases().Beat(t.Context(), "fast", time.Hour)
	require.NoError(t, err)
	require.Equal(t, []string{"fast", "slow"}, alive)
}
